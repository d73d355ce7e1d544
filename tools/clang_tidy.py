"""Runs clang-tidy over the files of `src/` and `cli/`, but not over those that passed before as they are now.

It reads the batches of files that a build compiles: alone, the 300 files take five times as long. A batch's state is a hash of what
its files and headers contain, of clang-tidy's version and rules, and of its flags; the compiler lists what it reads. A batch that
passes leaves an empty file of that name in the folder of passes, which clones share.
"""

import argparse
import concurrent.futures
import functools
import hashlib
import json
import os
import pathlib
import shlex
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
TIDY = "clang-tidy-19"


def run(*command):
    """Return the output of a command."""
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout


# Sources in a batch are headers for clang-tidy, which cannot follow the macros that compile the kernels.
SOURCES = r"(src|cli|include/tkv)/([^/]*/)*[^/]*\.(h|cc)$"
KERNELS = "kernels/cpu/"


def compiles(build):
    """Return the command of each compile of `src/` and `cli/`, but not of tests, by its file's path below the tree or the build."""
    found = {}
    for entry in json.loads((build / "compile_commands.json").read_text()):
        path = pathlib.Path(entry["file"])
        name = str(path.relative_to(build if path.is_relative_to(build) else ROOT))
        if name.startswith(("src/", "cli/")) and "_test" not in name and KERNELS not in name:
            found[name] = (path, entry["command"])
    return found


@functools.cache
def content(path):
    """Return the hash of a file's contents."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def headers(command):
    """Return the files that a compile reads.

    Args:
        command: the compiler's, as the build has it.
    """
    words = shlex.split(command)
    end = words.index("-o")
    done = subprocess.run([*words[:end], "-M", *words[end + 3 :]], cwd=ROOT, capture_output=True, text=True, check=True)
    return [pathlib.Path(name) for name in done.stdout.replace("\\\n", " ").split()[1:]]


def state(name, read, flags, rules):
    """Return the hash that a pass is known by; the folder of the tree is not in it."""
    text = [rules, SOURCES, flags.replace(str(ROOT), ".")]
    text += sorted(f"{str(path).replace(str(ROOT), '.')} {content(path)}" for path in read)
    return hashlib.sha256("\n".join([name, *text]).encode()).hexdigest()


def tidy(path, build):
    """Return clang-tidy's findings, empty if there are none."""
    quiet = [
        "--extra-arg=-Wno-unknown-warning-option",
        "--extra-arg=-Wno-deprecated-declarations",
    ]  # as cmake/Module.cmake
    where = [f"--header-filter={SOURCES}", f"--exclude-header-filter={KERNELS}"]
    command = [TIDY, "-p", str(build), "--quiet", *where, *quiet, str(path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return "" if done.returncode == 0 else done.stdout + done.stderr


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", type=pathlib.Path, required=True, help="a build that is configured")
    parser.add_argument("--passed", type=pathlib.Path, required=True, help="the folder of passes")
    arguments = parser.parse_args()
    build = (ROOT / arguments.build).resolve()
    arguments.passed.mkdir(parents=True, exist_ok=True)
    rules = run(TIDY, "--version") + (ROOT / ".clang-tidy").read_text()
    every, wanted = compiles(build), {}
    failed = 0
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        read = pool.map(lambda one: headers(one[1]), every.values())
        for (name, (path, command)), paths in zip(every.items(), read, strict=True):
            key = state(name, paths, command, rules)
            if not (arguments.passed / key).exists():
                wanted[path] = key
        for key, found in zip(wanted.values(), pool.map(lambda path: tidy(path, build), wanted), strict=True):
            if found:
                failed += 1
                print("\n".join(line for line in found.splitlines() if "error" in line or "warning:" in line))
            else:
                (arguments.passed / key).touch()
    print(f"clang-tidy: {len(every)} batches, {len(every) - len(wanted)} passed before as they are, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
