"""The constants of include/tkv/tkv.h, which is the one table of error codes, dtypes, devices and the others: read by tests
that compare the front ends with it, and written out for those that cannot include a header."""

import argparse
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
HEADER = ROOT / "include" / "tkv" / "tkv.h"


def enums(header=HEADER):
    """Return {enum: {enumerator without TKV_: number}}, in the order of the header."""
    text = re.sub(r"/\*.*?\*/", "", header.read_text(), flags=re.DOTALL)
    found = {}
    for name, body in re.findall(r"typedef enum (\w+)[^{]*\{(.*?)\}", text, re.DOTALL):
        found[name] = {}
        for enumerator in filter(None, map(str.strip, body.split(","))):
            key, number = re.fullmatch(r"TKV_(\w+) = (\d+)", enumerator).groups()
            found[name][key] = int(number)
    return found


def java(path):
    """Return the text of a Java class that has all constants; folders below `java` are its package."""
    parts = path.resolve().parent.parts
    package = ".".join(parts[len(parts) - parts[::-1].index("java") :])
    lines = [
        "// Made from include/tkv/tkv.h by tools/constants.py.",
        f"package {package};",
        "",
        f"final class {path.stem} {{",
    ]
    for name, numbers in enums().items():
        lines.append(f"  // {name}")
        lines += [f"  static final int {key} = {number};" for key, number in numbers.items()]
    lines += ["", f"  private {path.stem}() {{}}", "}", ""]
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    group = parser.add_mutually_exclusive_group(required=True)
    group.add_argument("--write", metavar="FILE", type=pathlib.Path, help="write the constants as a Java class")
    group.add_argument("--check", metavar="FILE", type=pathlib.Path, help="fail where such a file is not current")
    arguments = parser.parse_args()
    path = arguments.write or arguments.check
    if arguments.write:
        path.write_text(java(path))
    elif not path.exists() or path.read_text() != java(path):
        print(f"{path} is not current: tools/constants.py --write writes it again")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
