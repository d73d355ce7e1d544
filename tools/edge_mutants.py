"""Tests the tests of asynchronous edges: each mutant of tests/edge_mutants removes a wait, a budget or an owner in a
copy of the tree.

The tests in the mutant's line `tests:` (a C++ test or a file of tests/python; by default test_hazards.py) have to fail
by an assertion. A crash counts if the mutant says `catch: crash`, because it removes an owner. A hang is never a catch.
Other folders of such mutants are judged alike.
"""

import argparse
import functools
import os
import re
import shutil
import subprocess
import sys

import mutants

LONGEST = 600  # seconds


def build_of(copy):
    """Return the folder of a copy's build: as deep as other builds, because the compiler's cache knows its files."""
    return copy.tree / "build" / "edges"


def package_of(copy):
    """Return the folder of a copy's package."""
    return copy.folder / "package" / "tensorkv"


def configure(copy):
    """Configure a copy's build. Not in batches: each mutant compiles one file."""
    if not (build_of(copy) / "build.ninja").exists():
        options = ["-DTKV_BUILD_PYTHON=ON", "-DTKV_BUILD_BENCH=OFF", "-DTKV_UNITY=OFF"]
        copy.configure("-B", build_of(copy), *options, f"-DPython_EXECUTABLE={sys.executable}")


def link_package(copy):
    """Make a package of a copy's Python files and its extension."""
    package = package_of(copy)
    shutil.rmtree(package, ignore_errors=True)
    package.mkdir(parents=True)
    for file in [*(copy.tree / "python" / "tensorkv").iterdir(), *(build_of(copy) / "python").glob("_core*.so")]:
        (package / file.name).symlink_to(file)


def run(copy, command, **environment):
    """Run tests; return their status, None if they hang, and their output."""
    environment = {**os.environ, **environment}
    try:
        done = subprocess.run(
            command, cwd=copy.tree, env=environment, capture_output=True, text=True, check=False, timeout=LONGEST
        )
    except subprocess.TimeoutExpired:
        return None, ""
    return done.returncode, done.stdout + done.stderr


def run_python(copy, file, programs):
    """Run a file of tests/python."""
    command = [sys.executable, "-m", "pytest", "-x", "-p", "no:cacheprovider", "-k", "not processes"]
    where = {"PYTHONPATH": str(package_of(copy).parent), "TKV_TEST_HAZARD_PROGRAMS": str(programs)}
    return run(copy, [*command, str(copy.tree / "tests" / "python" / file)], **where)


def tests_of(mutant):
    """Return the tests that have to catch a mutant, and the target that is built for them."""
    named = mutant.values("tests")
    tests = named[0] if named else "test_hazards.py"
    return tests, "_core" if tests.endswith(".py") else tests


def judge(mutant, copy, programs):
    """Break a rule; return whether the mutant's tests have noticed, and a word on it."""
    tests, target = tests_of(mutant)
    built = build_of(copy)
    with mutants.quieted(mutant, copy):
        try:
            copy.build(built, target)
        except mutants.NotBuiltError as error:
            return False, f"does not build: {mutants.first_error(error)}"
        command = [built / "tests" / tests, "--gtest_brief=1", "--gtest_fail_fast"]
        # GPU tests need the pretended driver, and other tests do not look for one.
        gpus = {"LD_LIBRARY_PATH": str(built / "tests" / "gpu" / "fake"), "FAKE_DEVICES": "1000"}
        gpus["FAKE_MIB"] = "16" if tests == "device_test" else "64"  # as tests/CMakeLists.txt has it
        status, text = run_python(copy, tests, programs) if target == "_core" else run(copy, command, **gpus)
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
    copies = mutants.copies(chosen)
    targets = {tests_of(mutant)[1] for mutant in chosen}
    for copy in copies:
        configure(copy)
        try:
            for target in sorted(targets):
                copy.build(build_of(copy), target)
        except mutants.NotBuiltError as error:
            raise SystemExit(f"edge mutants: the copy does not build:\n{error}") from error
        if "_core" in targets:
            link_package(copy)
    return mutants.report(chosen, copies, functools.partial(judge, programs=arguments.programs))


if __name__ == "__main__":
    sys.exit(main())
