"""Tests the tests of the Python package: applies each patch of tests/python_mutants to a copy of the installed package and runs
the tests of its line `tests:` with that copy. They have to fail by a test; a hang or an error of the run is no catch."""

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
PATCHES = sorted((ROOT / "tests" / "python_mutants").glob("*.patch"))
PACKAGE = pathlib.Path(tensorkv.__file__).parent
COPY = ROOT / "build" / "python_mutants" / "python"
LONGEST = 300  # seconds


def copy_package():
    """Copy the Python files of the tree; what is compiled is linked from the installed package."""
    target = COPY / "tensorkv"
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    for source in (ROOT / "python" / "tensorkv").glob("*.py"):
        shutil.copyfile(source, target / source.name)
    for built in [*PACKAGE.glob("*.so*"), PACKAGE / "bin"]:
        (target / built.name).symlink_to(built)


def patch(path, *options):
    """Apply a patch to the copy; raise if it does not fit."""
    command = ["patch", "-p1", "--silent", "--fuzz=0", *options, "-i", str(path)]
    done = subprocess.run(command, cwd=COPY.parent, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"python mutants: {path.name} does not apply: {done.stdout}{done.stderr}")


def tests_of(path):
    """Return the arguments of pytest in a patch's line `tests:`."""
    return re.search(r"^tests: (.+)$", path.read_text(), re.MULTILINE)[1].split()


def run(tests):
    """Run tests with the copy; return the status of pytest, None where it hangs, and what it said."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *tests]
    environment = {**os.environ, "PYTHONPATH": str(COPY)}
    try:
        done = subprocess.run(
            command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=LONGEST
        )
    except subprocess.TimeoutExpired:
        return None, ""
    return done.returncode, done.stdout + done.stderr


def judge(path):
    """Apply a patch; return whether its tests have seen what it has broken, and a word on it."""
    patch(path)
    try:
        status, text = run(tests_of(path))
    finally:
        patch(path, "--reverse")
    failed = re.search(r"^FAILED (\S+)", text, re.MULTILINE)
    if status == 1 and failed and "Failed: Timeout" not in text:
        return True, f"caught by {failed[1].rpartition('::')[2]}"
    return False, "NOT CAUGHT" if status == 0 else f"status {status}: {text[-500:]}"


def main():
    """Judge the patches whose names contain one of the arguments, or all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    arguments = parser.parse_args()
    chosen = [one for one in PATCHES if not arguments.names or any(name in one.name for name in arguments.names)]
    copy_package()
    for path in PATCHES:
        patch(path, "--dry-run")
    return mutants.report(chosen, judge)


if __name__ == "__main__":
    sys.exit(main())
