"""``python -m tensorkv.mxnet SCRIPT ARGS…`` runs a script that imports mxnet, unchanged.

If ``DMLC_ROLE`` makes the process a server or the scheduler, it serves instead, as MXNet does when it is imported.
"""

import os
import runpy
import sys


def main() -> int:
    """Run the script named by the first argument with the others as its arguments."""
    if len(sys.argv) < 2 or sys.argv[1] in ("-h", "--help"):
        print(
            "usage: python -m tensorkv.mxnet SCRIPT [ARGS...]\n\nRuns SCRIPT with this package in the place of mxnet."
        )
        return 0 if len(sys.argv) == 2 else 2
    script = sys.argv[1]
    if not os.path.isfile(script):
        print(f"tensorkv.mxnet: no such script: {script}", file=sys.stderr)
        return 2
    import tensorkv

    tensorkv.kvstore_server._init_kvstore_server_module()
    tensorkv.install_as_mxnet()
    sys.argv = sys.argv[1:]
    sys.path[0] = os.path.dirname(os.path.abspath(script))
    runpy.run_path(script, run_name="__main__")
    return 0


if __name__ == "__main__":
    sys.exit(main())
