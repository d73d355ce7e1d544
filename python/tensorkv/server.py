"""``python -m tensorkv.server`` serves the keys of a job, as ``tkv server`` does.

The environment says which job: ``TKV_*``, ``DMLC_*``, or that of an MPI launcher (``mpirun``, ``srun``).
"""

import sys

from . import _core
from .errors import KVError


def main() -> int:
    """Serve until all workers have left; return the exit status."""
    try:
        role = _core.role()
        if role not in ("server", "head") and not (role is None and _core.is_in_group()):
            print(
                "tensorkv.server: TKV_ROLE, DMLC_ROLE or an MPI launcher has to make this process a server",
                file=sys.stderr,
            )
            return 2
        _core.serve()
    except KVError as error:
        print(f"tensorkv.server: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
