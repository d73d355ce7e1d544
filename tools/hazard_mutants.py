"""Tests the tests of hazards: applies each patch of tests/hazard_mutants, which takes one wait away, to a copy of the tree
and runs tests/python/test_hazards.py there, or the C++ tests that the patch names, which have to fail by an assertion. A
crash or a hang is no catch."""

import argparse
import os
import re
import subprocess
import sys

import mutants

PATCHES = sorted((mutants.ROOT / "tests" / "hazard_mutants").glob("*.patch"))
TREE = mutants.COPY / "tree"
BUILD = mutants.COPY / "hazards"
PACKAGE = mutants.COPY / "package" / "tensorkv"


def build(target):
    """Build the extension or a test in the copy."""
    run = {"cwd": TREE, "env": {**os.environ, "CCACHE_BASEDIR": str(TREE)}, "capture_output": True, "text": True}
    if not (BUILD / "build.ninja").exists():
        options = ["-DTKV_BUILD_PYTHON=ON", "-DTKV_BUILD_BENCH=OFF"]
        python = f"-DPython_EXECUTABLE={sys.executable}"
        subprocess.run(["cmake", "--preset", "release", "-B", BUILD, *options, python], check=True, **run)
    done = subprocess.run(["cmake", "--build", BUILD, "--target", target], check=False, **run)
    if done.returncode != 0:
        raise SystemExit(f"hazard mutants: the copy does not build:\n{done.stdout[-3000:]}")


def link_package():
    """Make a package of the copy's Python files and its extension."""
    PACKAGE.mkdir(parents=True, exist_ok=True)
    for file in [*(TREE / "python" / "tensorkv").iterdir(), *(BUILD / "python").glob("_core*.so")]:
        link = PACKAGE / file.name
        link.unlink(missing_ok=True)
        link.symlink_to(file)


def run_tests(programs):
    """Run the tests; return pytest's status and what it said."""
    tests = TREE / "tests" / "python" / "test_hazards.py"
    command = [sys.executable, "-m", "pytest", "-x", "-p", "no:cacheprovider", "-k", "not processes", str(tests)]
    environment = {**os.environ, "PYTHONPATH": str(PACKAGE.parent), "TKV_HAZARD_PROGRAMS": str(programs)}
    done = subprocess.run(command, cwd=TREE, env=environment, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout


def run_cpp(test):
    """Run a C++ test; return 1 where assertions have failed, and what it said."""
    done = subprocess.run([BUILD / "tests" / test, "--gtest_brief=1"], capture_output=True, text=True, check=False)
    return done.returncode, re.sub(r"^\[  FAILED  \] (\w+\.\w+) ", r"FAILED \1 ", done.stdout, flags=re.MULTILINE)


def judge(path, programs):
    """Say whether the tests see what a patch has broken."""
    test = re.search(r"^tests: (\w+)$", path.read_text(), re.MULTILINE)
    with mutants.patched(path):
        build(test[1] if test else "_core")
        return verdict(*(run_cpp(test[1]) if test else run_tests(programs)))


def verdict(status, text):
    """Say what a run of the tests means for the patch."""
    first = re.search(r"^FAILED (\S+)", text, re.MULTILINE)
    if status == 1 and first and "Timeout" not in text:
        return True, f"caught by {first[1].rpartition('::')[2]}"
    return False, "not caught" if status == 0 else f"status {status}: {text[-500:]}"


def main():
    """Judge the patches whose names contain one of the arguments, or all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--programs", type=int, default=200)
    arguments = parser.parse_args()
    chosen = [p for p in PATCHES if not arguments.names or any(name in p.name for name in arguments.names)]
    mutants.copy_tree()
    build("_core")
    link_package()
    missed = 0
    for path in chosen:
        caught, text = judge(path, arguments.programs)
        print(f"{path.stem}: {text}", flush=True)
        missed += not caught
    print(f"{len(chosen) - missed} of {len(chosen)} caught")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
