"""Finds imports of the Python package that tools/wings.txt does not allow, and rings of modules that import each other."""

import ast
import functools
import graphlib
import pathlib

ROOT = pathlib.Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "python" / "tensorkv"


@functools.cache
def table():
    """Return ({wing: the wings that it may import}, {module or folder: its wing})."""
    allowed, owners = {}, {}
    for line in (ROOT / "tools" / "wings.txt").read_text().splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        left, _, right = line.partition(":")
        if left.startswith("modules "):
            owners.update(dict.fromkeys(right.split(), left.removeprefix("modules ").strip()))
        else:
            allowed[left] = {left, *right.split()}
            owners[left] = left
    return allowed, owners


@functools.cache
def modules():
    """Return the file of each module by its dotted name below the package."""
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        is_folder = parts[-1] == "__init__" and len(parts) > 1
        found[".".join(parts[:-1] if is_folder else parts)] = path
    return found


def statements(node):
    """Yield the statements that run when a module is imported."""
    for child in ast.iter_child_nodes(node):
        is_for_checkers = isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING"
        if not is_for_checkers and not isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            yield child
            yield from statements(child)


def named(module):
    """Yield the names, below the package, that the import statements of a module name while it is imported."""
    path = modules()[module]
    for node in statements(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (name.name.partition(".")[2] for name in node.names if name.name.startswith("tensorkv."))
        if not isinstance(node, ast.ImportFrom):
            continue
        parts = path.relative_to(PACKAGE).parent.parts
        parts = parts[: len(parts) - node.level + 1] if node.level else ()
        stem = node.module or ""
        if not node.level:
            if stem.partition(".")[0] != "tensorkv":
                continue
            stem = stem.partition(".")[2]
        base = ".".join([*parts, *([stem] if stem else [])])
        for name in node.names:
            full = f"{base}.{name.name}" if base else name.name
            yield full if full in modules() or full == "_core" else base


def imports(module):
    """Return the modules of the package that a module imports while it is imported.

    The import of a module runs the folders above it first. The folders above the module itself have begun before it.
    """
    found = set()
    for name in named(module):
        parts = name.split(".")
        found.update(".".join(parts[:end]) for end in range(1, len(parts) + 1))
    return {name for name in found if name and name != module and not module.startswith(f"{name}.")}


def wing_of(module):
    """Return the wing of a module, None where tools/wings.txt does not say."""
    return table()[1].get(module.partition(".")[0])


def check():
    """Yield what is wrong."""
    allowed = table()[0]
    graph = {module: imports(module) for module in modules()}
    for module, imported in graph.items():
        name = modules()[module].relative_to(ROOT)
        wing = wing_of(module)
        if wing is None:
            yield f"{name}: tools/wings.txt has no wing for {module}"
            continue
        for other in sorted(imported):
            if wing_of(other) not in allowed[wing]:
                yield f"{name}: imports {other}, of {wing_of(other)}; {wing} may not (tools/wings.txt)"
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        yield f"python/tensorkv: these import each other: {' -> '.join(error.args[1])}"
