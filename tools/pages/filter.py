"""Prints a public header, or a document, with its comments as Doxygen wants them: the header itself is for readers.

A block of `//` lines before a declaration, or at the top of a file, and a comment behind a member are documentation.  Slots of
a comment, such as `//   throws  kNotFound`, become a list."""

import pathlib
import re
import sys

SLOT = re.compile(r"^ {2,3}([a-z]\w*(?:, [a-z]+)*)  +(\S.*)$")


def escaped(text):
    """Return text in which nothing is a command of Doxygen's or HTML."""
    parts = re.split(r"(`[^`]*`)", text)
    for i in range(0, len(parts), 2):
        parts[i] = re.sub(r"([\\@#%&<>*_~\[\]])", r"\\\1", parts[i])
        parts[i] = parts[i].replace("\\*", "&lowast;").replace("\\_", "_").replace("\\[", "[").replace("\\]", "]")
        parts[i] = parts[i].replace("\\~", "~")
    return "".join(parts)


def slots(lines):
    """Yield the lines of a comment, its slots as items of a list."""
    is_listing = False
    for line in lines:
        match = SLOT.match(line)
        if match:
            if not is_listing:
                yield ""
            is_listing = True
            yield f"- **{match[1]}** {escaped(match[2])}"
        elif is_listing and line.startswith("    "):
            starts_anew = re.match(r"k[A-Z]\w+ ", line.strip())  # another code that is thrown
            yield "  " + ("<br>" if starts_anew else "") + escaped(line.strip())
        else:
            if is_listing:
                yield ""
            is_listing = False
            yield escaped(line.strip())


def documented(text):
    """Return the text of a header in C++."""
    result, block = [], []

    def end_block(is_file):
        indent = re.match(r"\s*", block[0])[0]
        comments = [line.strip()[2:].removeprefix(" ") for line in block]
        lines = slots(line for line in comments if not line.startswith("----"))  # those are headings
        result.append(f"{indent}/** " + ("@file\n" if is_file else "") + "\n".join(lines) + " */")
        block.clear()

    for line in text.splitlines():
        if re.match(r"\s*//", line):
            block.append(line)
            continue
        if block:
            if line.strip() or len(result) == 0:
                end_block(is_file=len(result) == 0)
            else:  # a heading, or a remark that belongs to nothing
                block.clear()
        code, mark, comment = line.partition("  // ")
        if mark and code.strip() and not comment.startswith("NOLINT"):
            line = f"{code}  /**< {escaped(comment)} */"
        result.append(line)
    return "\n".join(result) + "\n"


def documented_c(text):
    """Return the text of a header in C, of which the first comment is the file's."""
    is_first = True

    def comment(match):
        nonlocal is_first
        lines = [re.sub(r"^\s*\* ?", "", line) for line in match[2].splitlines()]
        text = "\n".join(slots(lines))
        behind = match[1].strip() and not match[1].strip().startswith("#")
        head = "/**< " if behind else "/** @file\n" if is_first else "/** "
        is_first = False
        return match[1] + head + text + " */"

    return re.sub(r"^(.*?)/\*(?!\*)(.*?)\*/", comment, text, flags=re.MULTILINE | re.DOTALL)


def linked(text):
    """Return the text of a document whose links to others, which are no pages here, are their names."""
    return re.sub(r"\[([^\]]*)\]\(([\w/.]+\.md)[^)]*\)", r"\1 (docs/\2)", text)


if __name__ == "__main__":
    path = pathlib.Path(sys.argv[1])
    convert = {"tkv.h": documented_c}.get(path.name, {".md": linked}.get(path.suffix, documented))
    print(convert(path.read_text()), end="")
