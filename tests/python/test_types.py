"""Types hold: right calls pass mypy --strict and pyright, wrong calls are found, and the stub matches the module."""

import ast
import inspect
import json
import os
import pathlib
import re
import subprocess
import sys
import typing
from importlib import import_module

import pytest
import tensorkv as mx
from tensorkv import _core

ROOT = pathlib.Path(__file__).parents[2]
HERE = pathlib.Path(__file__).parent
PACKAGE = pathlib.Path(mx.__file__).parent
RIGHT = [HERE / "typed_program.py", *sorted((ROOT / "examples").glob("*.py"))]
WRONG = HERE / "wrong_calls.py"
MODULES = "base context errors initializer kvstore kvstore_server lr_scheduler metric ndarray numpy optimizer profiler random test_utils testing ticket".split()


def mypy():
    """Return a process that checks all files with mypy --strict."""
    cache = pathlib.Path(os.environ.get("XDG_CACHE_HOME", pathlib.Path.home() / ".cache")) / "tensorkv" / "mypy-tests"
    paths = [ROOT / "examples"] if PACKAGE.parent.name == "site-packages" else [ROOT / "examples", PACKAGE.parent]
    options = ["--strict", "--follow-imports=silent", "--no-pretty", "--config-file", ROOT / "pyproject.toml"]
    return subprocess.Popen(
        [
            sys.executable,
            "-m",
            "mypy",
            "--python-executable",
            sys.executable,
            *options,
            "--cache-dir",
            cache,
            *RIGHT,
            WRONG,
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=os.environ | {"MYPYPATH": ":".join(map(str, paths))},
    )


def pyright(*arguments):
    """Return a process that runs pyright."""
    return subprocess.Popen(
        [sys.executable, "-m", "basedpyright", "--pythonpath", sys.executable, "--outputjson", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": f"{PACKAGE.parent}:{ROOT / 'examples'}"},
    )


@pytest.fixture(scope="module")
def found():
    """Return the findings of each checker as (file, line, code); both run at the same time."""
    running = {"mypy": mypy(), "pyright": pyright("--project", ROOT, *RIGHT, WRONG)}
    said = {name: process.communicate(timeout=110)[0] for name, process in running.items()}
    errors = re.findall(r"^(.+?):(\d+): error: .*  \[([\w-]+)\]$", said["mypy"], re.MULTILINE)
    assert f"Found {len(errors)} errors" in said["mypy"], said["mypy"]
    diagnostics = json.loads(said["pyright"])
    assert diagnostics["summary"]["filesAnalyzed"] == len(RIGHT) + 1
    return {
        "mypy": [(pathlib.Path(path).name, int(line), code) for path, line, code in errors],
        "pyright": [
            (pathlib.Path(d["file"]).name, d["range"]["start"]["line"] + 1, d.get("rule", ""))
            for d in diagnostics["generalDiagnostics"]
            if d["severity"] == "error"
        ],
    }


@pytest.mark.parametrize("checker", ["mypy", "pyright"])
def test_a_right_program_and_the_examples_have_no_error(found, checker):
    assert [error for error in found[checker] if error[0] != WRONG.name] == []


@pytest.mark.parametrize("checker", ["mypy", "pyright"])
def test_each_wrong_call_is_found_and_no_other_line(found, checker):
    column = ["mypy", "pyright"].index(checker)
    lines = WRONG.read_text().splitlines()
    marks = {i: re.search(r"  # wrong: ([\w-]+), (\w+)$", line) for i, line in enumerate(lines, 1) if "# wrong" in line}
    wanted = {i: mark.groups()[column] for i, mark in marks.items() if mark}
    codes = {}
    for name, line, code in found[checker]:
        if name == WRONG.name:
            codes.setdefault(line, set()).add(code)
    assert {i: lines[i - 1] for i in set(wanted) - set(codes)} == {}, "not found"
    assert {i: lines[i - 1] for i in set(codes) - set(wanted)} == {}, "found without a mark"
    assert {i: (codes[i], code) for i, code in wanted.items() if code not in codes[i]} == {}
    assert len(wanted) > 60


def test_pyright_knows_the_type_of_every_public_name():
    said = pyright("--verifytypes", "tensorkv", "--ignoreexternal").communicate(timeout=110)[0]
    found = json.loads(said)["typeCompleteness"]
    unclear = [
        (symbol["name"], diagnostic["message"])
        for symbol in found["symbols"]
        for diagnostic in symbol.get("diagnostics", [])
        if "docstring" not in diagnostic["message"]
        and not symbol["name"].startswith(
            ("tensorkv.torch.", "tensorkv.jax.", "tensorkv.ray.", "tensorkv._frameworks.")
        )  # whose frameworks may be missing
    ]
    assert unclear == []
    assert found["exportedSymbolCounts"]["withKnownType"] > 250


def test_the_right_program_runs():
    run = subprocess.run([sys.executable, HERE / "typed_program.py"], capture_output=True, text=True, timeout=60)
    assert run.returncode == 0, run.stderr
    assert run.stdout.split() == re.findall(r"^def (test_\w+)", (HERE / "typed_program.py").read_text(), re.MULTILINE)


# ------------------------------------------------------------------------------------------------ signatures and the stub


def public_callables():
    """Yield (name, object) of every public function and class of the package, and of every method of such a class."""
    for module in ["tensorkv", *(f"tensorkv.{name}" for name in MODULES)]:
        for name in import_module(module).__all__:
            value = getattr(import_module(module), name)
            if inspect.ismodule(value):
                continue
            yield f"{module}.{name}", value
            for member in dir(value) if inspect.isclass(value) else ():
                inner = getattr(value, member)
                ours = str(getattr(inner, "__module__", "")).startswith("tensorkv.")
                if ours and not member.startswith("_") and inspect.isroutine(inner):
                    yield f"{module}.{name}.{member}", inner


def test_every_public_signature_can_be_read_and_is_annotated():
    bare = []
    for name, value in public_callables():
        if not callable(value):
            continue
        signature = inspect.signature(value)  # raises where there is none
        for parameter in signature.parameters.values():
            if parameter.name != "self" and parameter.annotation is inspect.Parameter.empty:
                bare.append(f"{name}({parameter.name})")
        if inspect.isroutine(value) and signature.return_annotation is inspect.Signature.empty:
            bare.append(f"{name} -> ?")
    assert bare == []


def test_the_options_of_the_types_are_those_of_create():
    types = ast.parse((PACKAGE / "_types.py").read_text())
    classes = {node.name: node for node in types.body if isinstance(node, ast.ClassDef)}
    names = {
        node.target.id
        for name in ("ClusterOptions", "StoreOptions")
        for node in classes[name].body
        if isinstance(node, ast.AnnAssign)
    }
    known = {p.name for p in inspect.signature(mx.kv.create).parameters.values() if p.kind == p.KEYWORD_ONLY}
    rows = {row["name"] for row in _core.option_table()} | {row["seconds"] for row in _core.option_table()} - {""}
    assert names == known == rows | {"url", "token_file", "bootstrap", "rank", "num_workers"}


def test_the_hyperparameters_of_the_types_are_those_of_the_base_class():
    types = ast.parse((PACKAGE / "_types.py").read_text())
    classes = {node.name: node for node in types.body if isinstance(node, ast.ClassDef)}
    names = {
        n.target.id
        for c in ("OtherHyperparametersBesideLazy", "OtherHyperparameters", "Hyperparameters")
        for n in classes[c].body
        if isinstance(n, ast.AnnAssign)
    }
    assert names == set(inspect.signature(mx.optimizer.Optimizer).parameters)


def stub():
    """Return the members of the stub, {'Array.shape': node}, and of overloaded functions the last."""
    found = {}

    def read(body, prefix):
        for node in body:
            if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
                found[prefix + node.name] = node
            elif isinstance(node, ast.AnnAssign):
                found[prefix + node.target.id] = node
            if isinstance(node, ast.ClassDef):
                read(node.body, f"{node.name}.")

    read(ast.parse((PACKAGE / "_core.pyi").read_text()).body, "")
    return found


def test_the_stub_has_every_name_of_the_extension_and_no_other():
    own = {"__new__", "__module__", "__doc__", "__slots__"}
    there = set()
    for name, value in vars(_core).items():
        if name.startswith("__"):
            continue
        there.add(name)
        if inspect.isclass(value):
            there |= {
                f"{name}.{member}" for member in vars(value) if member not in own and not member.startswith("__nb_")
            }
    written = set(stub())
    assert {n for n in there - written if not n.endswith("__")} == set(), "missing in the stub"
    assert written - there == set(), "not in the extension"


def test_the_stub_names_the_parameters_that_the_extension_has():
    compared = 0
    for name, node in stub().items():
        owner, _, member = name.rpartition(".")
        value = vars(getattr(_core, owner) if owner else _core)[member]
        value = getattr(value, "__func__", value)
        signatures = getattr(value, "__nb_signature__", None)
        if not isinstance(node, ast.FunctionDef) or not signatures:
            continue
        written = [argument.arg for argument in [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]]
        real = re.findall(
            r"(?:^|[(,] ?)(\w+)(?=[:,)])", signatures[-1][0].partition("(")[2].rpartition(") ->")[0] + ","
        )
        assert [w for w in written if w not in real] == [], (name, signatures[-1][0])
        compared += 1
    assert compared > 60


def test_the_package_says_that_it_has_types():
    assert (PACKAGE / "py.typed").exists()
    assert typing.get_type_hints(mx.Context.__init__)["device_id"] is typing.SupportsIndex
