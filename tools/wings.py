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


def imports(module):
    """Return the modules of the package that a module imports while it is imported."""
    path = modules()[module]
    found = set()
    for node in statements(ast.parse(path.read_text())):
        if not isinstance(node, ast.ImportFrom) or not node.level:
            continue
        parts = path.relative_to(PACKAGE).parent.parts
        parts = parts[: len(parts) - node.level + 1]
        base = ".".join([*parts, *([node.module] if node.module else [])])
        for name in node.names:
            full = f"{base}.{name.name}" if base else name.name
            found.add(full if full in modules() or full == "_core" else base)
    return found - {module, ""}


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
