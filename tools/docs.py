"""Writes the generated documents, or checks that they are current: docs/api.md, docs/options.md, tests/errors.golden
and the stub of the extension."""

import argparse
import ast
import importlib
import inspect
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
SECTIONS = [
    ("Stores", "tensorkv.kvstore", ["create", "create_async", "connect", "KVStore", "KVStoreBase", "TestStore"]),
    ("Tickets", "tensorkv.ticket", ["Ticket"]),
    ("Arrays", "tensorkv.ndarray", None),
    (
        "Row-sparse arrays",
        "tensorkv.ndarray.sparse",
        ["RowSparseNDArray", "array", "cast_storage", "empty", "retain", "row_sparse_array", "zeros"],
    ),
    ("Arrays in NumPy's manner", "tensorkv.numpy", None),
    ("Names beside mx.np", "tensorkv.npx", ["load", "set_np", "reset_np", "is_np_array", "is_np_shape"]),
    ("Contexts", "tensorkv.context", None),
    ("Optimizers", "tensorkv.optimizer", None),
    ("Learning rates", "tensorkv.lr_scheduler", None),
    ("Initializers", "tensorkv.initializer", None),
    ("Metrics", "tensorkv.metric", None),
    ("Random numbers", "tensorkv.random", None),
    ("Traces", "tensorkv.profiler", None),
    ("Errors", "tensorkv.errors", None),
    ("Several workers in one process", "tensorkv.testing", ["cluster", "Cluster"]),
    ("Helpers of test scripts", "tensorkv.test_utils", None),
    ("Servers", "tensorkv.kvstore_server", None),
    ("Names of mxnet.base", "tensorkv.base", ["py_str"]),
    ("MXNet's name", "tensorkv", ["install_as_mxnet"]),
]
MXNET_ONLY = {f"tensorkv.{name}" for name in ("base", "metric", "npx", "numpy", "profiler", "test_utils")}
FRAMEWORKS = [("PyTorch", "torch"), ("JAX", "jax"), ("Ray", "ray")]  # which may be missing here: read, not imported


def signature(value):
    """Return the signature, from the docstring's place where the extension has none."""
    try:
        text = re.sub(r"(: |-> )'([^']*)'", r"\1\2", str(inspect.signature(value)))
    except (TypeError, ValueError):
        nb = getattr(value, "__nb_signature__", None)
        if not nb:
            return ""
        text = nb[0][0].partition("(")[2].rpartition(")")[0]
        text = "(" + text.replace("self, ", "").replace(": object", "").replace(" | None", "").replace("\\0", "") + ")"
        for i, default in enumerate(nb[0][2] or []):
            text = text.replace(f"\\{i}", repr(default))
    return text.replace("(self, ", "(").replace("(self)", "()")


def members(cls):
    """Return the members of a class and of the parts that it is made of, up to a base class that users know."""
    found = {}
    for part in cls.__mro__:
        if part is not cls and not part.__module__.startswith("tensorkv._"):
            break
        found = {**vars(part), **found}
    return found


def types():
    """Return the section of the names that stand in signatures."""
    lines = [
        "## Types\n",
        "What signatures call the types of arguments; they exist for type checkers alone.\n",
        "| name | what it stands for |",
        "|---|---|",
    ]
    tree = ast.parse((ROOT / "python" / "tensorkv" / "_types.py").read_text())
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            lines.append(f"| `{node.name}` | {ast.get_docstring(node).splitlines()[0]} |")
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            text = node.value.value if isinstance(node.value, ast.Constant) else ast.unparse(node.value)
            lines.append(f"| `{ast.unparse(node.target)}` | `{text.replace('|', chr(92) + '|')}` |")
    return "\n".join(lines) + "\n"


def document(name, value, level):
    """Yield the lines for one name and, for a class, its members."""
    kind = "" if inspect.isclass(value) or isinstance(value, property) else signature(value)
    yield f"{'#' * level} `{name}{kind}`\n"
    yield "```text\n" + inspect.cleandoc(value.__doc__ or "") + "\n```\n"
    if inspect.isclass(value) and not issubclass(value, Exception):
        for member, inner in sorted(members(value).items()):
            if member.startswith("_") or not (callable(inner) or isinstance(inner, (property, staticmethod))):
                continue
            inner = inner.__func__ if isinstance(inner, staticmethod) else inner
            if (inner.__doc__ or "").strip():
                yield from document(f"{name}.{member}", inner, level + 1)


def bare(node):
    """Return a class or a function without its bases and without the bodies of its functions."""
    if isinstance(node, ast.ClassDef):
        kept = [bare(inner) for inner in node.body if isinstance(inner, ast.FunctionDef)]
        node.bases, node.body = [], [*node.body[: int(ast.get_docstring(node) is not None)], *kept]
    else:
        node.body = node.body[:1] if ast.get_docstring(node) else [ast.Pass()]
    node.decorator_list = [one for one in node.decorator_list if ast.unparse(one) in ("property", "staticmethod")]
    return node


def read(module_name):
    """Return the docstring of a module and what it lists in __all__, without importing it."""
    tree = ast.parse((ROOT / "python" / "tensorkv" / f"{module_name.replace('.', '/')}.py").read_text())
    defined = [bare(node) for node in tree.body if isinstance(node, (ast.ClassDef, ast.FunctionDef))]
    future = ast.ImportFrom("__future__", [ast.alias("annotations")], 0)
    namespace = {"__name__": f"tensorkv.{module_name}"}
    module = ast.fix_missing_locations(ast.Module([future, *defined], []))
    exec(compile(module, f"{module_name}.py", "exec"), namespace)
    names = next(
        (ast.literal_eval(n.value) for n in tree.body if isinstance(n, ast.Assign) and n.targets[0].id == "__all__"), []
    )
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and node.level == 1 and {a.name for a in node.names} & set(names):
            namespace |= read(node.module)[1]
    return ast.get_docstring(tree), {n: v for n, v in namespace.items() if n in names or not names}


def contents(titles):
    """Return links to the sections."""
    anchors = {title: re.sub(r"[^a-z0-9 -]", "", title.lower()).replace(" ", "-") for title in titles}
    return " · ".join(f"[{title}](#{anchor})" for title, anchor in anchors.items()) + "\n"


def in_order(names):
    """Return names with the classes first, and numbers in them by their value, as linters sort `__all__`."""
    parts = {name: [int(part) if part.isdecimal() else part for part in re.split(r"(\d+)", name)] for name in names}
    return sorted(names, key=lambda name: (not name[0].isupper(), parts[name]))


def api():
    """Return docs/api.md."""
    titles = [section[0] for section in [*SECTIONS, *FRAMEWORKS]] + ["Types"]
    lines = [
        "# Reference\n",
        "Made from the docstrings by `./dev docs`. `tkv` is `tensorkv`. So is `mx`, in front of the names for MXNet's scripts.\n",
        contents(titles),
    ]
    for title, module_name, names in SECTIONS:
        module = importlib.import_module(module_name)
        lines.append(f"## {title}\n\n{inspect.cleandoc(module.__doc__ or '').splitlines()[0]}\n")
        if names is None:
            own = [n for n, v in vars(module).items() if inspect.isclass(v) and v.__module__ == module_name]
            names = in_order(getattr(module, "__all__", own))
        package = "mx" if module_name in MXNET_ONLY else "tkv"
        short = (
            package
            if module_name == "tensorkv"
            else f"{package}."
            + {"kvstore": "kv", "ndarray": "nd", "ndarray.sparse": "nd.sparse", "numpy": "np"}.get(
                module_name[9:], module_name[9:]
            )
        )
        for name in names:
            value = getattr(module, name)
            lines += document(f"{short}.{name}", value, 3)
    for title, module_name in FRAMEWORKS:
        text, found = read(module_name)
        lines.append(f"## {title}\n\n{text.splitlines()[0]}\n")
        for name, value in sorted(found.items()):
            lines += document(f"tensorkv.{module_name}.{name}", value, 3)
    lines.append(types())
    return "\n".join(lines)


def options():
    """Return docs/options.md."""
    from tensorkv import _core

    lines = [
        "# Options\n",
        "`./dev docs` makes this page from the table in `src/options/option_table.cc`. An argument of `create` overrides its",
        "environment variable, and the variable overrides the default. `tkv config` shows the values in force. A flag of `tkv launch`",
        "sets the variable for all processes of the job. A flag of `tkv server` or `tkv head` sets it for that process. Durations have",
        "a second argument without `_ms`, in seconds. In C++ the members of `tkv::StoreOptions` have the same names.\n",
        "An option without effect on the store is an error, and so is one out of its range. If nothing reads a variable `TKV_*`,",
        "a warning names it.\n",
        "| argument | variable | flag | unit | default | stores | effect |",
        "|---|---|---|---|---|---|---|",
    ]
    stores = {"any": "all", "distributed": "distributed", "processes": "of several processes"}
    for row in _core.option_table():
        names = f"`{row['name']}`" + (f", `{row['seconds']}`" if row["seconds"] else "")
        flag = f"`{row['flag']}`" if row["flag"] else ""
        lines.append(
            f"| {names} | `{row['environment']}` | {flag} | {row['unit']} | {row['default']} | {stores[row['scope']]}"
            f" | {row['help']} |".replace("sent|received", "sent\\|received").replace(
                "kill|stop|cut", "kill\\|stop\\|cut"
            )
        )
    lines += [
        "\nWithout a launcher (`docs/launching.md`), `create` of a distributed store has more arguments:\n",
        "| argument | C, Java | C++ | effect |",
        "|---|---|---|---|",
        "| `url` | `url` | `url` | The job of this worker, `tkv://HOST:PORT/JOB`. `kv.url` of another worker has it. |",
        "| `token_file` | `token_file` | `token_file`, `token` | The secret of that job; default the file that `TKV_TOKEN_FILE` names. |",
        "| `bootstrap` | `self` alone | `bootstrap`, `rendezvous` | `'self'`: a job of this worker alone, with servers in this process. An object that the processes share, such as a `torch.distributed.TCPStore`, or a `tkv::Rendezvous`: a job of `num_workers` processes that host the servers. |",
        "| `rank` | | `rank` | The rank of this worker, with such an object or with `url` (default: any free rank). |",
        "| `num_workers` | | `num_workers` | The number of workers of the job, with such an object. |",
    ]
    return "\n".join(lines) + "\n"


def golden():
    """Return tests/errors.golden."""
    run = subprocess.run(
        [sys.executable, str(ROOT / "tests" / "python" / "test_errors.py")], capture_output=True, text=True
    )
    if run.returncode:
        raise SystemExit(run.stderr)
    return run.stdout


def stub():
    """Return the stub of the extension; every pattern has to fit something."""
    from nanobind import stubgen
    from tensorkv import _core

    patterns = stubgen.load_pattern_file(str(ROOT / "tools" / "stub_patterns.txt"))
    made = stubgen.StubGen(_core, include_private=True, patterns=patterns)
    made.put(_core)
    unused = [pattern.query.pattern for pattern in patterns if not pattern.matches]
    if unused:
        raise SystemExit(f"tools/stub_patterns.txt: nothing has these names: {', '.join(unused)}")
    return made.get()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    group = parser.add_mutually_exclusive_group(required=True)
    group.add_argument("--write", action="store_true")
    group.add_argument("--check", action="store_true")
    arguments = parser.parse_args()
    made = {
        "docs/api.md": api(),
        "docs/options.md": options(),
        "tests/errors.golden": golden(),
        "python/tensorkv/_core.pyi": stub(),
    }
    stale = [path for path, text in made.items() if not (ROOT / path).exists() or (ROOT / path).read_text() != text]
    if arguments.write:
        for path in stale:
            (ROOT / path).write_text(made[path])
            print(f"wrote {path}")
        return 0
    print(
        "\n".join(f"{path} is not current: ./dev docs writes it again" for path in stale)
        or "the generated documents are current"
    )
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
