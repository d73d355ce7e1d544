"""Finds comments and docstrings that are hard to read: sentences without a subject that a stranger knows, and long ones.

Run without arguments it compares their number in each folder with tools/words.txt, which may only become smaller. With paths it
lists them.
"""

import argparse
import ast
import collections
import io
import pathlib
import re
import subprocess
import sys
import tokenize

ROOT = pathlib.Path(__file__).resolve().parent.parent
BUDGET = ROOT / "tools" / "words.txt"
HEADLESS = re.compile(r"(What|Who|Whoever|Whatever|Whose|Whether|Where|That|Those|Of|One|It)\b")
WORDS_MAX = 35
NO_SENTENCE = re.compile(r"clang-format|NOLINT|namespace|noqa|type: ignore|pyright:|SPDX|https?://\S+$|^[-=─ ]+")


def of_cpp(text):
    """Yield (line, comment) of each block of comments, and of each comment behind code."""
    block, begin = [], 0
    for number, line in enumerate(text.splitlines(), 1):
        alone = re.match(r"\s*// ?(.*)$", line)
        if alone:
            if not block:
                begin = number
            block.append(alone[1])
            continue
        if block:
            yield begin, "\n".join(block)
            block = []
        behind = re.search(r"[;{},)]\s+// ?(.*)$", line)
        if behind:
            yield number, behind[1]
    if block:
        yield begin, "\n".join(block)


def of_python(text):
    """Yield (line, text) of each docstring and comment."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)) and ast.get_docstring(
            node
        ):
            yield node.body[0].lineno, ast.get_docstring(node)
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string.removeprefix("#").strip()


def sentences(comment):
    """Yield the sentences of a comment; a list item, a slot such as `throws`, and an indented line begin one."""
    paragraph = []
    for line in [*comment.splitlines(), ""]:
        is_new = not line.strip() or line.startswith(("  ", "- ", "* ")) or re.match(r"\s*(>>>|\.\.\.|\w+: )", line)
        if is_new and paragraph:
            yield from re.split(r"(?<=[.!?])\s+(?=[A-Z`])", " ".join(paragraph))
            paragraph = []
        if line.strip() and not re.match(r"\s*(>>>|\.\.\.)", line):
            paragraph.append(line.strip())


def faults(path):
    """Yield (line, sentence) of what is hard to read in a file."""
    text = path.read_text()
    found = of_python(text) if path.suffix == ".py" else of_cpp(text)
    for line, comment in found:
        for sentence in sentences(comment):
            if NO_SENTENCE.search(sentence):
                continue
            if HEADLESS.match(sentence) or len(sentence.split()) > WORDS_MAX:
                yield line, sentence


def folder_of(name):
    """Return the folder that a file counts in."""
    parts = name.split("/")
    return "/".join(parts[:2]) if parts[0] in ("src", "tests", "include") and len(parts) > 2 else parts[0]


def files():
    """Return the names of all files of code of ours."""
    command = ["git", "ls-files", "*.h", "*.cc", "*.c", "*.py", ":!include/tkv/dlpack"]
    return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.split()


def count():
    """Return how many faults each folder has."""
    found = collections.Counter()
    for name in files():
        if (ROOT / name).is_file():
            found[folder_of(name)] += sum(1 for _ in faults(ROOT / name))
    return found


def budget():
    """Return how many faults each folder may have."""
    lines = [line.split() for line in BUDGET.read_text().splitlines() if line and not line.startswith("#")]
    return {name: int(number) for name, number in lines}


def check():
    """Yield folders that have more or fewer faults than tools/words.txt says."""
    allowed, found = budget(), count()
    for folder in sorted(allowed.keys() | found.keys()):
        has, may = found[folder], allowed.get(folder, 0)
        if has > may:
            yield f"{folder}: {has} comments are hard to read, tools/words.txt allows {may}; tools/words.py {folder} lists them"
        elif has < may:
            yield f"{folder}: {has} comments are hard to read, tools/words.txt says {may}; tools/words.py --write lowers it"


def main():
    """List faults, or write the budget."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", nargs="*", help="files or folders, to list what is in them")
    parser.add_argument("--write", action="store_true", help="write tools/words.txt")
    arguments = parser.parse_args()
    if arguments.write:
        head = "# Comments that are hard to read, by folder: sentences without a noun as subject, and long ones (tools/words.py).\n"
        lines = [f"{name} {number}\n" for name, number in sorted(count().items()) if number]
        BUDGET.write_text(head + "".join(lines))
        return 0
    for name in files():
        if any(name == path or name.startswith(path.rstrip("/") + "/") for path in arguments.paths):
            for line, sentence in faults(ROOT / name):
                print(f"{name}:{line}: {sentence}")
    problems = [] if arguments.paths else list(check())
    print("\n".join(problems))
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
