"""Every public name is documented, every example and every code block of the documents runs."""

import doctest
import importlib
import inspect
import pathlib
import re

import numpy as np
import pytest
import tensorkv as mx

ROOT = pathlib.Path(__file__).parents[2]
MODULES = ["tensorkv"] + [
    f"tensorkv.{name}"
    for name in ("base", "context", "errors", "kvstore", "ndarray", "numpy", "optimizer", "random", "test_utils")
]
FLAGS = doctest.NORMALIZE_WHITESPACE | doctest.IGNORE_EXCEPTION_DETAIL


def public(module):
    """Yield (name, object) of what the module itself defines for users."""
    for name, value in vars(module).items():
        own = getattr(value, "__module__", None) in (module.__name__, "tensorkv._core", "tensorkv._mxnet")
        if not name.startswith("_") and own and (inspect.isclass(value) or inspect.isroutine(value)):
            yield f"{module.__name__}.{name}", value


def members(name, cls):
    for member, value in vars(cls).items():
        if not member.startswith("_") and (inspect.isroutine(value) or isinstance(value, (property, staticmethod))):
            yield f"{name}.{member}", inspect.unwrap(value.__func__ if isinstance(value, staticmethod) else value)


def everything():
    found = {}
    for module_name in MODULES:
        for name, value in public(importlib.import_module(module_name)):
            found.setdefault(name, value)
            if inspect.isclass(value):
                found.update(members(name, value))
    for member in ("init", "push", "pull", "pushpull", "broadcast"):
        found[f"tensorkv.kvstore.KVStore.{member}"] = getattr(mx.kv.KVStore, member)
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

    names = {"mx": mx, "np": np, "os": os, "tempfile": tempfile}
    test = doctest.DocTestParser().get_doctest(inspect.cleandoc(text), names, name, name, 0)
    runner = doctest.DocTestRunner(optionflags=FLAGS)
    report = []
    runner.run(test, out=report.append)
    assert runner.failures == 0, "".join(report)


def blocks():
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        for i, code in enumerate(re.findall(r"```python\n(.*?)```", path.read_text(), re.DOTALL)):
            yield pytest.param(path, code, id=f"{path.relative_to(ROOT)}-{i}")


@pytest.mark.parametrize("path, code", list(blocks()))
def test_code_blocks_run(path, code, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = {"mx": mx, "np": np}
    if ">>>" in code:
        test = doctest.DocTestParser().get_doctest(code, names, str(path), str(path), 0)
        runner = doctest.DocTestRunner(optionflags=FLAGS)
        report = []
        runner.run(test, out=report.append)
        assert runner.failures == 0, "".join(report)
    else:
        exec(compile(code, str(path), "exec"), names)
