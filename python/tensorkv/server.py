"""``python -m tensorkv.server`` serves the keys of a job; the environment says which (``TKV_*`` or ``DMLC_*``)."""

import sys

from . import _core
from .errors import KVError


def main():
    """Serve until all workers have left; return the exit status."""
    try:
        if _core.role() not in ("server", "head"):
            print("tensorkv.server: TKV_ROLE or DMLC_ROLE has to make this process a server", file=sys.stderr)
            return 2
        _core.serve()
    except KVError as error:
        print(f"tensorkv.server: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
