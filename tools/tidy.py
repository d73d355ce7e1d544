"""Checks rules of the tree that no compiler checks.

tools/layers.txt says which module may include which, and which calls only some files may make. tools/wings.txt says what modules of the
Python package may import. Every test and fuzzer is built, every C function has a test, and every mutant can be made.
"""

import functools
import pathlib
import re
import subprocess
import sys

import mutants
import wings

ROOT = pathlib.Path(__file__).resolve().parent.parent
CALLS = ("getenv", "printf", "puts", "fprintf", "abort", "exit", "cout", "cerr")
FORBIDDEN = re.compile(rf"(?<![\w.:])(?:std::)?({'|'.join(CALLS)})\s*[(<]")


@functools.cache
def table():
    """Return ({module: its permitted includes}, {public header: its module}, {call: files that may make it})."""
    layers, owners, callers = {}, {}, {}
    for line in (ROOT / "tools" / "layers.txt").read_text().splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        left, _, right = line.partition(":")
        kind, _, name = left.strip().rpartition(" ")
        if kind == "public":
            owners.update({f"tkv/{header}.h": name for header in right.split()})
        elif kind == "call":
            callers[name] = set(right.split())
        else:
            layers[name] = set(right.split())
    return layers, owners, callers


def module_of(path):
    """Return the module that a file belongs to."""
    parts = path.relative_to(ROOT).parts
    if parts[0] == "include":
        return table()[1].get("/".join(parts[1:]))
    return parts[1] if parts[0] == "src" else parts[0]


def sources():
    """Yield every C++ file of ours."""
    for folder in ("include/tkv", "src", "cli", "python/src", "tests", "bench"):
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in (".h", ".cc") and "dlpack/dlpack.h" not in str(path):
                yield path


def includes(path):
    """Yield (line number, header) of each include in quotes."""
    for number, line in enumerate(path.read_text().splitlines(), 1):
        match = re.match(r'\s*#\s*include "([^"]+)"', line)
        if match:
            yield number, match.group(1)


def is_allowed(path, module, header):
    """Return whether a file of a module may include a header."""
    layers, owners, _ = table()
    allowed = {module, *layers[module], *(["tests"] if path.name.endswith("_test.cc") else [])}
    if "/" not in header:
        return (path.parent / header).exists()
    if header.startswith("tkv/dlpack/"):
        header = "tkv/dlpack.h"
    folder = owners.get(header) if header.startswith("tkv/") else header.split("/")[0]
    is_public = header.startswith("tkv/") and folder is not None
    return folder in allowed or header in allowed or (is_public and "tkv" in allowed)


def check_includes():
    """Yield the include edges that are not permitted."""
    layers, owners, _ = table()
    for path in sources():
        name, module = path.relative_to(ROOT), module_of(path)
        if module not in layers:
            yield f"{name}: no module in tools/layers.txt has this file"
            continue
        for number, header in includes(path):
            if path.is_relative_to(ROOT / "include") and not header.startswith("tkv/"):
                yield f"{name}:{number}: public headers include public headers only"
            elif not is_allowed(path, module, header):
                yield f"{name}:{number}: {module} may not include {header}"
    for header in owners:
        if not (ROOT / "include" / header).exists():
            yield f"tools/layers.txt: there is no {header}"


def check_exports():
    """Yield functions and classes of the public headers that a shared library would not show."""
    hidden = re.compile(
        r"^(?!TKV_API|class|struct|enum|using|namespace|template|inline|constexpr)[A-Za-z_][\w:<>*&, ]*\w\(",
        re.MULTILINE,
    )
    members = re.compile(r"^class (?!TKV_API)(\w+)[^;{]*\{(.*?)^\};", re.MULTILINE | re.DOTALL)
    for path in sorted((ROOT / "include" / "tkv").glob("*.h")):
        text = re.sub(r"//.*", "", path.read_text())
        for found in hidden.findall(text):
            yield f"{path.relative_to(ROOT)}: {found.strip()}...) without TKV_API"
        for name, body in members.findall(text):
            if re.search(r"^  [\w:<>*&, ~]+\([^;{}]*\)( const)?( noexcept)?;", body, re.MULTILINE):
                yield f"{path.relative_to(ROOT)}: class {name} has members in the library, and no TKV_API"


def check_tests():
    """Yield tests that no CMakeLists.txt names."""
    for path in sorted([*(ROOT / "src").rglob("*_test.cc"), *(ROOT / "tests").rglob("*_test.cc")]):
        folder = path.parent
        while not (folder / "CMakeLists.txt").exists():
            folder = folder.parent
        if path.name not in (folder / "CMakeLists.txt").read_text():
            yield f"{path.relative_to(ROOT)}: no CMakeLists.txt names this test"


def check_fixtures():
    """Yield tests whose fixture another file declares: a batch of files compiles them, and a file alone does not."""
    for path in sources():
        if not path.name.endswith("_test.cc"):
            continue
        text = path.read_text()
        # A name of a header is known without `using` if the header has it in the namespace of the tests.
        headers = [ROOT / name for name in re.findall(r'#include "(tests/[^"]*)"', text)]
        known = text + "".join(one for header in headers if "namespace tkv {" in (one := header.read_text()))
        for fixture in sorted(set(re.findall(r"^(?:TYPED_)?TEST(?:_F|_P|_SUITE)\((\w+)[,)]", text, re.MULTILINE))):
            if not re.search(rf"(?:class|struct) {fixture}\b|using (?:[\w:]+::)?{fixture}\b", known):
                yield f"{path.relative_to(ROOT)}: declares no fixture {fixture}"


def check_fuzzers():
    """Yield messages of the protocol that no fuzzer reads; numbers from 64 on are reserved."""
    message = (ROOT / "src" / "wire" / "message.h").read_text()
    types = re.search(r"enum class Type[^{]*{(.*?)^};", message, re.MULTILINE | re.DOTALL)
    fuzzed = set(re.findall(r"\w+=(\d+)", (ROOT / "tests" / "fuzz" / "CMakeLists.txt").read_text()))
    for name, number in re.findall(r"(k\w+) = (\d+)", types[1]):
        if int(number) < 64 and number not in fuzzed:
            yield f"tests/fuzz/CMakeLists.txt: no fuzzer of {name}"


def check_c_interface():
    """Yield functions of the C interface that its test in C does not call."""
    header = (ROOT / "include" / "tkv" / "tkv.h").read_text()
    functions = re.findall(r"^TKV_API [^;(]*?(\w+)\(", header, re.MULTILINE)
    test = "\n".join(path.read_text() for path in sorted((ROOT / "tests" / "c_api").glob("*.c")))
    called = set(re.findall(r"\b(tkv_\w+)\(", re.sub(r"/\*.*?\*/", "", test, flags=re.DOTALL)))
    if not functions:
        yield "include/tkv/tkv.h: no function begins with TKV_API"
    for function in functions:
        if function not in called:
            yield f"include/tkv/tkv.h: no test in tests/c_api calls {function}"


def check_calls():
    """Yield places in src/ that print, exit or read the environment."""
    for path in sources():
        name = str(path.relative_to(ROOT))
        if not name.startswith("src/") or name.endswith("_test.cc"):
            continue
        for number, line in enumerate(path.read_text().splitlines(), 1):
            found = FORBIDDEN.search(line.partition("//")[0])
            if found and name not in table()[2].get(found.group(1), ()):
                yield f"{name}:{number}: {found.group(1)} in src/"


def check_merges():
    """Yield lines that Git has left in a file whose conflict nobody has solved."""
    command = ["git", "grep", "-nIE", "^(<<<<<<<|>>>>>>>|\\|\\|\\|\\|\\|\\|\\|) "]
    found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    yield from (f"{line}: a conflict that is not solved" for line in found.stdout.splitlines())


def check_mutants():
    """Yield mutants that cannot be made of the sources."""
    for path in sorted((ROOT / "tests").glob("*mutants/*")):
        try:
            mutants.Mutant(path).changed()
        except mutants.MutantError as error:
            yield f"{path.parent.name}: {error}"


def main():
    problems = [
        *check_includes(),
        *check_exports(),
        *check_tests(),
        *check_fixtures(),
        *check_fuzzers(),
        *check_c_interface(),
        *check_calls(),
        *check_merges(),
        *check_mutants(),
        *wings.check(),
    ]
    print("\n".join(problems) or "tidy: include edges, tests, calls and mutants are in order")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
