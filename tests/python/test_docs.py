"""Every public name is documented, every example and every code block of the documents runs."""

import doctest
import importlib
import inspect
import operator
import pathlib
import re

import numpy as np
import pytest
import tensorkv as mx

ROOT = pathlib.Path(__file__).parents[2]
MODULES = ["tensorkv"] + [
    f"tensorkv.{name}"
    for name in (
        "base",
        "context",
        "errors",
        "initializer",
        "kvstore",
        "lr_scheduler",
        "metric",
        "ndarray",
        "ndarray.sparse",
        "npx",
        "numpy",
        "optimizer",
        "profiler",
        "random",
        "test_utils",
    )
]
FLAGS = doctest.NORMALIZE_WHITESPACE | doctest.IGNORE_EXCEPTION_DETAIL


def is_ours(cls):
    return cls.__module__.startswith("tensorkv.")


def public(module):
    """Yield (name, object) of the module's public objects: those in __all__, or those that it defines."""
    for name in getattr(module, "__all__", [n for n in vars(module) if not n.startswith("_")]):
        value = getattr(module, name)
        if inspect.isclass(value) or inspect.isroutine(value):
            yield f"{module.__name__}.{name}", value


def members(name, cls):
    """Yield (name, object) of the public members, also those that parts of the class define in files of their own."""
    for member, value in {k: v for c in reversed(cls.__mro__[:-1]) if is_ours(c) for k, v in vars(c).items()}.items():
        if not member.startswith("_") and (inspect.isroutine(value) or isinstance(value, (property, staticmethod))):
            yield f"{name}.{member}", inspect.unwrap(value.__func__ if isinstance(value, staticmethod) else value)


def everything():
    found = {}
    for module_name in MODULES:
        for name, value in public(importlib.import_module(module_name)):
            found.setdefault(name, value)
            if inspect.isclass(value):
                found.update(members(name, value))
    return found


def test_every_public_name_has_a_docstring():
    assert not [name for name, value in everything().items() if not (value.__doc__ or "").strip()]


def test_the_verbs_and_constructors_say_shapes_errors_and_show_an_example():
    found = everything()
    for verb in ("init", "push", "pull", "pushpull", "broadcast"):
        text = found[f"tensorkv.kvstore.KVStore.{verb}"].__doc__
        assert "Args:" in text and "Raises:" in text and ">>>" in text, verb
    without = [
        name
        for name, value in found.items()
        if (inspect.isclass(value) or name.rpartition(".")[0] in MODULES)
        and ">>>" not in (value.__doc__ or "")
        and not (inspect.isclass(value) and issubclass(value, Exception))
    ]
    assert not without, "no example"


@pytest.mark.parametrize("name", sorted(everything()))
def test_examples_run(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = everything()[name].__doc__ or ""
    if ">>>" not in text:
        return
    import os
    import tempfile

    names = {"tkv": mx, "mx": mx, "np": np, "os": os, "tempfile": tempfile}
    test = doctest.DocTestParser().get_doctest(inspect.cleandoc(text), names, name, name, 0)
    runner = doctest.DocTestRunner(optionflags=FLAGS)
    report = []
    runner.run(test, out=report.append)
    assert runner.failures == 0, "".join(report)


def blocks():
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        for i, code in enumerate(re.findall(r"(?<!-->\n)```python\n(.*?)```", path.read_text(), re.DOTALL)):
            yield pytest.param(path, code, id=f"{path.relative_to(ROOT)}-{i}")


@pytest.mark.parametrize("path, code", list(blocks()))
def test_code_blocks_run(path, code, tmp_path, monkeypatch):
    if "import torch" in code:
        pytest.importorskip("torch")
    monkeypatch.chdir(tmp_path)
    names = {"tkv": mx, "np": np}
    if ">>>" in code:
        test = doctest.DocTestParser().get_doctest(code, names, str(path), str(path), 0)
        runner = doctest.DocTestRunner(optionflags=FLAGS)
        report = []
        runner.run(test, out=report.append)
        assert runner.failures == 0, "".join(report)
    else:
        exec(compile(code, str(path), "exec"), names)


def test_the_reference_lists_what_dir_and_all_list():
    text = (ROOT / "docs" / "api.md").read_text()
    written = [operator.attrgetter(name)(mx) for name in re.findall(r"^###+ `(?:mx|tkv)\.([\w.]+)", text, re.MULTILINE)]
    for module_name in [*MODULES, "tensorkv.kvstore_server", "tensorkv.testing", "tensorkv.ticket"]:
        module = importlib.import_module(module_name)
        listed = [name for name in dir(module) if not name.startswith("__")]
        assert listed == sorted(module.__all__), module_name
        values = {name: getattr(module, name) for name in listed}
        unwritten = [n for n, v in values.items() if not inspect.ismodule(v) and not any(v is w for w in written)]
        assert unwritten == [], module_name


def test_the_reference_has_contents_and_the_modules_of_frameworks():
    text = (ROOT / "docs" / "api.md").read_text()
    titles = re.findall(r"^## (.+)$", text, re.MULTILINE)
    assert re.findall(r"\[([^]]+)\]\(#", text[: text.index("\n## ")]) == titles
    for name in (
        "torch.KVOptimizer",
        "torch.KVOptimizer.step",
        "torch.Trainer",
        "torch.Trainer.step",
        "jax.KVOptimizer",
        "jax.average",
    ):
        assert re.search(rf"^###+ `tensorkv\.{re.escape(name)}[(`]", text, re.MULTILINE), name


def test_functions_of_np_show_their_parameters():
    functions = [name for name in mx.np.__all__ if name not in ("random", "ndarray")]
    shown = {name: list(inspect.signature(getattr(mx.np, name)).parameters) for name in functions}
    assert not [name for name in shown if {"args", "options"} & set(shown[name])]
    assert shown["mean"] == ["a", "axis", "dtype", "out", "keepdims"] and shown["add"] == ["x1", "x2", "out"]
    for name in ("sum", "argmax", "sort", "cumsum", "take", "full_like", "repeat", "swapaxes", "tile", "clip", "split"):
        assert set(shown[name]) - {"ctx", "out"} <= set(inspect.signature(getattr(np, name)).parameters), name
