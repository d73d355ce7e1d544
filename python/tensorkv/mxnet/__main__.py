"""``python -m tensorkv.mxnet SCRIPT ARGS…`` runs a script that imports mxnet, unchanged; ``-c CODE`` runs a text.

If ``DMLC_ROLE`` makes the process a server or the scheduler, it serves instead, as MXNet does when it is imported.
"""

import os
import runpy
import sys


def main() -> int:
    """Run the script named by the first argument with the others as its arguments."""
    if len(sys.argv) < 2 or sys.argv[1] in ("-h", "--help"):
        print(
            "usage: python -m tensorkv.mxnet SCRIPT [ARGS...]\n       python -m tensorkv.mxnet -c CODE [ARGS...]\n\n"
            "Runs SCRIPT or CODE with this package in the place of mxnet."
        )
        return 0 if len(sys.argv) == 2 else 2
    script = sys.argv[1]
    is_code = script == "-c" and len(sys.argv) > 2
    if not is_code and not os.path.isfile(script):
        print(f"tensorkv.mxnet: no such script: {script}", file=sys.stderr)
        return 2
    import tensorkv

    tensorkv.kvstore_server._init_kvstore_server_module()
    tensorkv.install_as_mxnet()
    if is_code:
        code, sys.argv = sys.argv[2], ["-c", *sys.argv[3:]]
        exec(compile(code, "<string>", "exec"), {"__name__": "__main__"})
        return 0
    sys.argv = sys.argv[1:]
    sys.path[0] = os.path.dirname(os.path.abspath(script))
    runpy.run_path(script, run_name="__main__")
    return 0


if __name__ == "__main__":
    sys.exit(main())
