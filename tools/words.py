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
NO_SENTENCE = re.compile(r"clang-format|NOLINT|namespace|noqa|type: ignore|pyright:|SPDX|https?://\S+$|^[-=─ ]+$")


def of_cpp(text):
    """Yield (line, comment) of each block of comments, and of each comment behind code."""
    block, begin = [], 0
    for number, line in enumerate([*text.splitlines(), ""], 1):
        alone = re.match(r"\s*// ?(.*)$", line)
        if alone:
            begin = begin if block else number
            block.append(alone[1])
            continue
        if block:
            yield begin, "\n".join(block)
            block = []
        behind = re.search(r"[;{},)]\s+// ?(.*)$", line)
        if behind:
            yield number, behind[1]
    for found in re.finditer(r"/\*(.*?)\*/", text, re.DOTALL):
        lines = [re.sub(r"^\s*\* ?", "", line) for line in found[1].splitlines()]
        yield text.count("\n", 0, found.start()) + 1, "\n".join(lines).strip()


def of_python(text):
    """Yield (line, text) of each docstring and comment."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)) and ast.get_docstring(
            node
        ):
            yield node.body[0].lineno, ast.get_docstring(node)
    block, begin = [], 0
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        is_alone = token.type == tokenize.COMMENT and not token.line[: token.start[1]].strip()
        if is_alone:
            begin = begin if block else token.start[0]
            block.append(token.string.removeprefix("#").strip())
        elif block and token.type != tokenize.NL:
            yield begin, "\n".join(block)
            block = []
        if token.type == tokenize.COMMENT and not is_alone:
            yield token.start[0], token.string.removeprefix("#").strip()


TABLE = re.compile(r"[^.!?\s] {2,}\S|^ *(>>>|\.\.\.)")  # a row, such as a slot `throws  kNotFound`; an example
ENTRY = re.compile(r"\s*([-*] |[`*\w, ]+: )")


def sentences(comment):
    """Yield the sentences of a comment. A list item and an entry such as `name: text` begin one; tables and examples have none."""
    paragraph, indent, is_table = [], 0, False
    for line in [*comment.splitlines(), ""]:
        depth = len(line) - len(line.lstrip())
        if not line.strip() or TABLE.search(line) or ENTRY.match(line) or depth < indent:
            yield from [] if is_table else re.split(r"(?<=[.!?;])\s+(?=[A-Z`])", " ".join(paragraph))
            paragraph, indent, is_table = [], depth, bool(TABLE.search(line))
        paragraph.append(ENTRY.sub("", line, count=1).strip() if not paragraph else line.strip())


def faults(path):
    """Yield (line, sentence) of what is hard to read in a file."""
    text = path.read_text()
    found = of_python(text) if path.suffix == ".py" else of_cpp(text)
    for line, comment in found:
        for sentence in filter(None, sentences(comment)):
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
