"""Runs the command ``tkv``, a separate program in the package, so that it is on the PATH."""

import os
import sys
from typing import NoReturn


def main() -> NoReturn:
    """Become the program."""
    program = os.path.join(os.path.dirname(os.path.abspath(__file__)), "bin", "tkv")
    os.environ["TKV_PYTHON"] = sys.executable  # which other hosts of a job are to use, too
    os.execv(program, ["tkv", *sys.argv[1:]])
