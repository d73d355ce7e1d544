"""Finds comments and docstrings that are hard to read: sentences without a noun as their subject, and long ones.

Arguments are files or folders; without any, all files of code are searched. The exit status is 1 if there is such a sentence.
"""

import ast
import io
import pathlib
import re
import subprocess
import sys
import tokenize

ROOT = pathlib.Path(__file__).resolve().parent.parent
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


def files():
    """Return the names of all files of code of ours."""
    command = ["git", "ls-files", "*.h", "*.cc", "*.c", "*.py", ":!include/tkv/dlpack"]
    return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.split()


def main():
    """Print the sentences."""
    paths = sys.argv[1:]
    found = [
        f"{name}:{line}: {sentence}"
        for name in files()
        if not paths or any(name == path or name.startswith(path.rstrip("/") + "/") for path in paths)
        for line, sentence in faults(ROOT / name)
    ]
    if found:
        print("\n".join(["words: these comments have no noun as their subject, or are too long:", *found]))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
