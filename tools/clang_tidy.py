"""Runs clang-tidy over the files of `src/` and `cli/`, but not over those that passed before as they are now.

A file's state is a hash of what it and its headers contain, of clang-tidy's version and rules, and of the file's flags; the compiler
lists the headers. A file that passes leaves an empty file of that name in the folder of passes, which clones share.
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


def files():
    """Return the files to look at; the kernels are compiled by macros that clang-tidy cannot follow."""
    names = run("git", "ls-files", "src/*.cc", "cli/*.cc").split()
    return [n for n in names if not n.endswith("_test.cc") and "kernels/cpu/" not in n]


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
    parser.add_argument("--build", type=pathlib.Path, required=True, help="a build that is configured, without batches")
    parser.add_argument("--passed", type=pathlib.Path, required=True, help="the folder of passes")
    arguments = parser.parse_args()
    build = (ROOT / arguments.build).resolve()
    arguments.passed.mkdir(parents=True, exist_ok=True)
    rules = run(TIDY, "--version") + (ROOT / ".clang-tidy").read_text()
    commands = {entry["file"]: entry["command"] for entry in json.loads((build / "compile_commands.json").read_text())}
    wanted, every = {}, files()
    compiled = [name for name in every if str(ROOT / name) in commands]  # not another backend's stub
    failed = 0
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        read = pool.map(lambda name: headers(commands[str(ROOT / name)]), compiled)
        for name, paths in zip(compiled, read, strict=True):
            key = state(name, paths, commands[str(ROOT / name)], rules)
            if not (arguments.passed / key).exists():
                wanted[name] = key
        for name, found in pool.map(lambda n: tidy(n, build), wanted):
            if found:
                failed += 1
                print("\n".join(line for line in found.splitlines() if "error" in line or "warning:" in line))
            else:
                (arguments.passed / wanted[name]).touch()
    print(f"clang-tidy: {len(every)} files, {len(every) - len(wanted)} passed before as they are, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
