"""Tests the tester: applies each patch of tests/mutants to a copy of the tree and runs the simulation, whose model has to
catch what the patch breaks. A crash is no catch. A patch that names scopes is explored there too, and every one of them has
to catch it."""

import argparse
import contextlib
import os
import pathlib
import re
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
PATCHES = sorted((ROOT / "tests" / "mutants").glob("*.patch"))
COPY = ROOT / "build" / "mutants"


def copy_tree():
    """Bring the copy up to date; unchanged files keep their time, so that little is compiled again."""
    files = subprocess.run(["git", "ls-files"], cwd=ROOT, check=True, capture_output=True, text=True).stdout.split()
    for name in files:
        source, target = ROOT / name, COPY / "tree" / name
        if not source.is_file() or (target.exists() and target.read_bytes() == source.read_bytes()):
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)


def patch(path, *options):
    """Apply a patch to the copy; raise if it does not fit."""
    command = ["patch", "-p1", "--silent", "--fuzz=0", *options, "-i", str(path)]
    done = subprocess.run(command, cwd=COPY / "tree", capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"mutants: {path.name} does not apply: {done.stdout}{done.stderr}")


class NotBuiltError(Exception):
    """The copy does not build: what the compiler has said."""


def first_error(error):
    """Return the first line of what the compiler has said that names an error."""
    return next((line for line in str(error).splitlines() if "error" in line), "no line names an error")


def build():
    """Build the command in the copy; raise NotBuiltError where it does not build."""
    # The compiler's cache knows every file but the one that a patch changes, because the options are those of the tree.
    run = {"cwd": COPY / "tree", "env": {**os.environ, "CCACHE_BASEDIR": str(COPY / "tree")}, "capture_output": True}
    if not (COPY / "tree" / "build" / "release" / "build.ninja").exists():
        configure = ["cmake", "--preset", "release", "-DTKV_BUILD_TESTS=OFF", "-DTKV_BUILD_BENCH=OFF"]
        subprocess.run(configure, check=True, **run)
    command = ["cmake", "--build", "--preset", "release", "--target", "tkv_cli"]
    done = subprocess.run(command, text=True, check=False, **run)
    if done.returncode != 0:
        raise NotBuiltError(done.stdout[-3000:])


# A rule that is taken away may leave something unused, which is no error here.
QUIET = "".join(
    f'#pragma GCC diagnostic ignored "-Wunused-{what}"\n'
    for what in ("parameter", "variable", "but-set-variable", "function")
)


@contextlib.contextmanager
def patched(path):
    """Apply a patch to the copy while the block runs."""
    patch(path)
    files = [COPY / "tree" / name for name in re.findall(r"^\+\+\+ b/(\S+)", path.read_text(), re.MULTILINE)]
    for file in files:
        file.write_text(QUIET + file.read_text())
    try:
        yield
    finally:
        for file in files:
            file.write_text(file.read_text().removeprefix(QUIET))
        patch(path, "--reverse")


TKV = COPY / "tree" / "build" / "release" / "cli" / "tkv"


def explore(scope):
    """Return (caught, text): what the exploration of a scope says about the copy."""
    done = subprocess.run([TKV, "explore", scope], capture_output=True, text=True, timeout=900, check=False)
    violation = re.search(rf"^{scope}: (.*)$", done.stdout, re.MULTILINE)
    if done.returncode == 1 and violation:
        return True, f"in {scope}: {violation.group(1)}"
    return False, f"survived {scope}" if done.returncode == 0 else f"crashed in {scope} with {done.returncode}"


def judge(seeds):
    """Return (caught, text): what the simulation says about the copy."""
    command = [
        TKV,
        "sim",
        "--count",
        str(seeds),
        "--jobs",
        str(os.cpu_count()),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900, check=False)
    first = re.search(r"^seed (\d+): (.*)$", done.stdout, re.MULTILINE)
    if done.returncode == 1 and first:
        return True, f"after {first.group(1)} seeds: {first.group(2)}"
    if done.returncode == 0:
        return False, f"survived {seeds} seeds"
    return False, f"crashed with {done.returncode}"


def judge_patch(path, seeds):
    """Return (caught, text) of the simulation with a patch, and the same of each scope that the patch names."""
    scopes = re.findall(r"^Scope: (.+)$", path.read_text(), re.MULTILINE)
    with patched(path):
        try:
            build()
        except NotBuiltError as error:
            verdict = False, f"does not build: {first_error(error)}"
            return verdict, [verdict for _ in scopes]
        return judge(seeds), [explore(scope) for scope in scopes]


def report(paths, judge_one):
    """Judge patches and print a line for each; return the exit status.

    Args:
        paths: of the patches.
        judge_one: takes a path, and returns whether its tests have noticed, and a word on it.
    """
    missed = 0
    for path in paths:
        caught, text = judge_one(path)
        print(f"{path.stem}: {text}", flush=True)
        missed += not caught
    print(f"{len(paths) - missed} of {len(paths)} caught")
    return 1 if missed else 0


def main():
    """Run what the arguments say; the exit status is 0 where at least 95 % are caught."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="parts of names of patches; default all")
    parser.add_argument("--seeds", type=int, default=10000)
    parser.add_argument("--apply-only", action="store_true", help="only see that every patch applies")
    arguments = parser.parse_args()
    wanted = [p for p in PATCHES if not arguments.names or any(name in p.name for name in arguments.names)]
    copy_tree()
    for path in PATCHES:
        patch(path, "--dry-run")
    print(f"{len(PATCHES)} patches apply", flush=True)
    if arguments.apply_only:
        return 0
    try:
        build()
    except NotBuiltError as error:
        raise SystemExit(f"mutants: the copy does not build:\n{error}") from error
    sound, text = judge(arguments.seeds)
    if sound or not text.startswith("survived"):
        raise SystemExit(f"mutants: the tree itself fails: {text}")
    caught = explored = missed = 0
    for path in wanted:
        (is_caught, text), verdicts = judge_patch(path, arguments.seeds)
        explored += len(verdicts)
        missed += sum(not found for found, _ in verdicts)
        caught += is_caught
        for found, words in [(is_caught, text), *verdicts]:
            print(f"{path.stem:<32} {'caught' if found else 'NOT CAUGHT'} {words[:150]}", flush=True)
    print(
        f"{caught} of {len(wanted)} mutants caught, {100 * caught / len(wanted):.0f} %; {explored - missed} of {explored} in"
    )
    print("the scopes that they name")
    return 0 if caught >= 0.95 * len(wanted) and missed == 0 else 1


if __name__ == "__main__":
    sys.exit(main())
