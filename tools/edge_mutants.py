"""Tests the tests of asynchronous edges: each mutant of tests/edge_mutants removes a wait, a budget or an owner in a
copy of the tree.

The tests in the mutant's line `tests:` (a C++ test or a file of tests/python; by default test_hazards.py) have to fail
by an assertion. A crash counts if the mutant says `catch: crash`, because it removes an owner. A hang is never a catch.
Other folders of such mutants are judged alike.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys

import mutants

TREE = mutants.COPY / "tree"
BUILD = TREE / "build" / "edges"  # as deep as other builds: the compiler's cache knows its files
PACKAGE = mutants.COPY / "package" / "tensorkv"
LONGEST = 600  # seconds


def build(target):
    """Build the extension or a test in the copy; raise mutants.NotBuiltError where it does not build."""
    if not (BUILD / "build.ninja").exists():
        # Not in batches: each mutant compiles one file.
        options = ["-DTKV_BUILD_PYTHON=ON", "-DTKV_BUILD_BENCH=OFF", "-DTKV_UNITY=OFF"]
        python = f"-DPython_EXECUTABLE={sys.executable}"
        subprocess.run(["cmake", "--preset", "release", "-B", BUILD, *options, python], check=True, **mutants.IN_COPY)
    done = subprocess.run(["cmake", "--build", BUILD, "--target", target], text=True, check=False, **mutants.IN_COPY)
    if done.returncode != 0:
        raise mutants.NotBuiltError(done.stdout[-3000:])


def link_package():
    """Make a package of the copy's Python files and its extension."""
    shutil.rmtree(PACKAGE, ignore_errors=True)
    PACKAGE.mkdir(parents=True)
    for file in [*(TREE / "python" / "tensorkv").iterdir(), *(BUILD / "python").glob("_core*.so")]:
        (PACKAGE / file.name).symlink_to(file)


def run(command, **environment):
    """Run tests; return their status, None if they hang, and their output."""
    environment = {**os.environ, **environment}
    try:
        done = subprocess.run(
            command, cwd=TREE, env=environment, capture_output=True, text=True, check=False, timeout=LONGEST
        )
    except subprocess.TimeoutExpired:
        return None, ""
    return done.returncode, done.stdout + done.stderr


def run_python(file, programs):
    """Run a file of tests/python."""
    command = [sys.executable, "-m", "pytest", "-x", "-p", "no:cacheprovider", "-k", "not processes"]
    where = {"PYTHONPATH": str(PACKAGE.parent), "TKV_TEST_HAZARD_PROGRAMS": str(programs)}
    return run([*command, str(TREE / "tests" / "python" / file)], **where)


def tests_of(mutant):
    """Return the tests that have to catch a mutant, and the target that is built for them."""
    named = mutant.values("tests")
    tests = named[0] if named else "test_hazards.py"
    return tests, "_core" if tests.endswith(".py") else tests


def judge(mutant, programs):
    """Break a rule; return whether the mutant's tests have noticed, and a word on it."""
    tests, target = tests_of(mutant)
    with mutants.quieted(mutant):
        try:
            build(target)
        except mutants.NotBuiltError as error:
            return False, f"does not build: {mutants.first_error(error)}"
        command = [BUILD / "tests" / tests, "--gtest_brief=1", "--gtest_fail_fast"]
        # GPU tests need the pretended driver, and other tests do not look for one.
        gpus = {"LD_LIBRARY_PATH": str(BUILD / "tests" / "gpu" / "fake"), "FAKE_DEVICES": "1000"}
        gpus["FAKE_MIB"] = "16" if tests == "device_test" else "64"  # as tests/CMakeLists.txt has it
        status, text = run_python(tests, programs) if target == "_core" else run(command, **gpus)
    failed = re.search(r"^(?:FAILED|\[  FAILED  \]) ([^\s,]+)", text, re.MULTILINE)
    if status == 1 and failed and "Failed: Timeout" not in text:
        return True, f"caught by {failed[1].rpartition('::')[2]}"
    if status is not None and status < 0 and "crash" in mutant.values("catch"):
        return True, f"caught by {tests}, which crashed with signal {-status}"
    return False, "not caught" if status == 0 else f"status {status}: {text[-500:]}"


def main():
    """Judge the mutants whose names contain one of the arguments, or all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--folder", default="edge_mutants", help="of tests/, with the mutants")
    parser.add_argument("--programs", type=int, default=200)
    arguments = parser.parse_args()
    chosen = mutants.find(arguments.folder, arguments.names)
    mutants.copy_tree()
    targets = {tests_of(mutant)[1] for mutant in chosen}
    try:
        for target in sorted(targets):
            build(target)
    except mutants.NotBuiltError as error:
        raise SystemExit(f"edge mutants: the copy does not build:\n{error}") from error
    if "_core" in targets:
        link_package()
    return mutants.report(chosen, lambda mutant: judge(mutant, arguments.programs))


if __name__ == "__main__":
    sys.exit(main())
