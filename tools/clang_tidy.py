"""Runs clang-tidy over the files of `src/` and `cli/`, but not over those that passed before as they are now.

A file's state is a hash of what it and its headers contain, of clang-tidy's version and rules, and of the file's flags; the build
knows the headers. A file that passes leaves an empty file of that name in the folder of passes, which clones share.
"""

import argparse
import concurrent.futures
import functools
import hashlib
import json
import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
TIDY = "clang-tidy-19"


def run(*command):
    """Return the output of a command."""
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout


def files():
    """Return the files to look at; the kernels are compiled by macros that clang-tidy cannot follow."""
    names = run("git", "ls-files", "src/*.cc", "cli/*.cc").split()
    return [n for n in names if not n.endswith("_test.cc") and "kernels/cpu/" not in n]


@functools.cache
def content(path):
    """Return the hash of a file's contents."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def headers(build):
    """Return {source: files that its last compile read}."""
    found, source = {}, None
    for line in run("ninja", "-C", str(build), "-t", "deps").splitlines():
        if not line.startswith("    "):
            source = None
            continue
        path = pathlib.Path(os.path.normpath(build / line.strip()))
        if source is None:  # the first is what was compiled
            source = path
            found[source] = []
        found[source].append(path)
    return found


def state(source, read, flags, rules):
    """Return the hash that a pass is known by; the folder of the tree is not in it."""
    text = [rules, flags.replace(str(ROOT), ".")]
    text += sorted(f"{str(path).replace(str(ROOT), '.')} {content(path)}" for path in read)
    return hashlib.sha256("\n".join([str(source), *text]).encode()).hexdigest()


def tidy(name, build):
    """Return (name, clang-tidy's findings, empty if there are none)."""
    quiet = [
        "--extra-arg=-Wno-unknown-warning-option",
        "--extra-arg=-Wno-deprecated-declarations",
    ]  # as cmake/Module.cmake
    command = [TIDY, "-p", str(build), "--quiet", *quiet, name]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return name, "" if done.returncode == 0 else done.stdout + done.stderr


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", type=pathlib.Path, required=True, help="a build that is up to date")
    parser.add_argument("--passed", type=pathlib.Path, required=True, help="the folder of passes")
    arguments = parser.parse_args()
    build = (ROOT / arguments.build).resolve()
    arguments.passed.mkdir(parents=True, exist_ok=True)
    rules = run(TIDY, "--version") + (ROOT / ".clang-tidy").read_text()
    commands = {entry["file"]: entry["command"] for entry in json.loads((build / "compile_commands.json").read_text())}
    read = headers(build)
    wanted, every = {}, files()
    for name in every:
        path = ROOT / name
        if str(path) not in commands:
            continue  # another backend's stub
        known = path in read
        key = state(name, read[path], commands[str(path)], rules) if known else None
        if not known or not (arguments.passed / key).exists():
            wanted[name] = key
    failed = 0
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for name, found in pool.map(lambda n: tidy(n, build), wanted):
            if found:
                failed += 1
                print("\n".join(line for line in found.splitlines() if "error" in line or "warning:" in line))
            elif wanted[name]:
                (arguments.passed / wanted[name]).touch()
    print(f"clang-tidy: {len(every)} files, {len(every) - len(wanted)} passed before as they are, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
