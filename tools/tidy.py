"""Rules of the tree that no compiler checks: include edges, tests that are not built, calls that `src/` must not make."""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
FORBIDDEN = re.compile(r"(?<![\w.:])(?:std::)?(getenv|printf|puts|fprintf|abort|exit|cout|cerr)\s*[(<]")


def read_layers():
    """Return {module: modules and headers it may include} from tools/layers.txt."""
    layers = {}
    for line in (ROOT / "tools" / "layers.txt").read_text().splitlines():
        if line.strip() and not line.startswith("#"):
            module, _, allowed = line.partition(":")
            layers[module.strip()] = set(allowed.split())
    return layers


def module_of(path):
    """Return the module that a file belongs to."""
    parts = path.relative_to(ROOT).parts
    return parts[1] if parts[0] == "src" else parts[0]


def includes(path):
    """Yield (line number, header) of each include in quotes."""
    for number, line in enumerate(path.read_text().splitlines(), 1):
        match = re.match(r'\s*#include "([^"]+)"', line)
        if match:
            yield number, match.group(1)


def check_includes(layers):
    """Yield what is wrong with the include edges."""
    files = [
        p
        for folder in ("src", "python/src", "cli")
        for p in sorted((ROOT / folder).rglob("*"))
        if p.suffix in (".h", ".cc")
    ]
    for path in files:
        module = module_of(path)
        if module not in layers:
            yield f"{path.relative_to(ROOT)}: module '{module}' is not in tools/layers.txt"
            continue
        for number, header in includes(path):
            target = header.split("/")[0]
            if target in ("tkv", "hwy") or "/" not in header or path.name.endswith("_test.cc"):
                continue
            if target != module and target not in layers[module] and header not in layers[module]:
                yield f"{path.relative_to(ROOT)}:{number}: {module} may not include {header}"
    for path in sorted((ROOT / "include" / "tkv").glob("*.h")):
        for number, header in includes(path):
            if not header.startswith("tkv/"):
                yield f"{path.relative_to(ROOT)}:{number}: public headers include public headers only"


def check_tests():
    """Yield tests that no CMakeLists.txt names."""
    for path in sorted([*(ROOT / "src").rglob("*_test.cc"), *(ROOT / "tests").rglob("*_test.cc")]):
        folder = path.parent
        while not (folder / "CMakeLists.txt").exists():
            folder = folder.parent
        if path.name not in (folder / "CMakeLists.txt").read_text():
            yield f"{path.relative_to(ROOT)}: no CMakeLists.txt names this test"


def check_calls():
    """Yield places in src/ that print, exit or read the environment."""
    for path in sorted((ROOT / "src").rglob("*.cc")):
        if path.name.endswith("_test.cc"):
            continue
        for number, line in enumerate(path.read_text().splitlines(), 1):
            found = FORBIDDEN.search(line.partition("//")[0])
            # options.cc reads the environment, and writes the log where that asks for one.
            if found and not (found.group(1) in ("getenv", "fprintf") and path.name == "options.cc"):
                yield f"{path.relative_to(ROOT)}:{number}: {found.group(1)} in src/"


def main():
    problems = [*check_includes(read_layers()), *check_tests(), *check_calls()]
    print("\n".join(problems) or "tidy: include edges, tests and calls are in order")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
