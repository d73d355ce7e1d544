"""Tests the tests of the Python package: each mutant of tests/python_mutants breaks a rule in a copy of the installed package, and
the tests of its line `tests:` run with that copy. They have to fail by a test; a hang or an error of the run is no catch."""

import argparse
import os
import pathlib
import re
import shutil
import subprocess
import sys

import mutants
import tensorkv

ROOT = mutants.ROOT
PACKAGE = pathlib.Path(tensorkv.__file__).parent
COPIES = ROOT / "build" / "python_mutants"
LONGEST = 300  # seconds


def copy_package(folder):
    """Copy the Python files of the tree; what is compiled is linked from the installed package.

    Returns:
        The folder that has the copy at the tree's path.
    """
    target = folder / "python" / "tensorkv"
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(ROOT / "python" / "tensorkv", target, ignore=shutil.ignore_patterns("__pycache__", "bin", "*.so*"))
    for built in [*PACKAGE.glob("*.so*"), PACKAGE / "bin"]:
        (target / built.name).symlink_to(built)
    return folder


def run(tests, copy):
    """Run tests with a copy; return the status of pytest, None if it hangs, and its output."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *tests]
    environment = {**os.environ, "PYTHONPATH": str(copy / "python")}
    try:
        done = subprocess.run(
            command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=LONGEST
        )
    except subprocess.TimeoutExpired:
        return None, ""
    return done.returncode, done.stdout + done.stderr


def judge(mutant, copy):
    """Break a rule; return whether the mutant's tests have noticed, and a word on it."""
    with mutants.applied(mutant, copy):
        status, text = run(mutant.values("tests")[0].split(), copy)
    failed = re.search(r"^FAILED (\S+)", text, re.MULTILINE)
    if status == 1 and failed and "Failed: Timeout" not in text:
        return True, f"caught by {failed[1].rpartition('::')[2]}"
    return False, "NOT CAUGHT" if status == 0 else f"status {status}: {text[-500:]}"


def main():
    """Judge the mutants whose names contain one of the arguments, or all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    arguments = parser.parse_args()
    chosen = mutants.find("python_mutants", arguments.names)
    copies = [copy_package(COPIES / str(number)) for number in range(os.cpu_count())]
    return mutants.report(chosen, copies, judge)


if __name__ == "__main__":
    sys.exit(main())
