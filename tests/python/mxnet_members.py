"""Writes mxnet_members.json: the public members of MXNet 1.9.1 that scripts with a KVStore meet, with their parameters;
and mxnet_names.json: the public names of its arrays and of the modules that have their functions.

PYTHON-WITH-MXNET tests/python/mxnet_members.py
"""

import inspect
import json
import pathlib

import mxnet as mx

MODULES = {
    "kv": mx.kv,
    "optimizer": mx.optimizer,
    "lr_scheduler": mx.lr_scheduler,
    "init": mx.init,
    "metric": mx.metric,
    "random": mx.random,
    "profiler": mx.profiler,
}
ALSO = {"kv.KVStore": ["_barrier", "_send_command_to_servers", "_set_updater"]}


def parameters(value):
    """Return the names of the parameters, with * and ** before variadic ones; None if the object is not callable."""
    marks = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}
    found = inspect.signature(value).parameters.values()
    return [marks.get(p.kind, "") + p.name for p in found if p.name != "self"]


def is_of(value, module):
    if module is mx.random:  # which has its functions from mx.nd
        return not getattr(value, "__module__", "").startswith("mxnet.base")
    return getattr(value, "__module__", "").startswith(f"mxnet.{module.__name__.split('.')[1]}")


members = {}
for prefix, module in MODULES.items():
    for name, value in sorted(vars(module).items()):
        if (
            name.startswith("_")
            or not (inspect.isclass(value) or inspect.isfunction(value))
            or not is_of(value, module)
        ):
            continue
        members[f"{prefix}.{name}"] = parameters(value.__init__ if inspect.isclass(value) else value)
        if not inspect.isclass(value):
            continue
        for member in sorted(set(dir(value)) - set(dir(Exception)) - set(dir(str)) - {"__init__"}):
            if member.startswith("_") and member not in ALSO.get(f"{prefix}.{name}", []):
                continue
            found = inspect.getattr_static(value, member)
            called = getattr(value, member) if not isinstance(found, property) else None
            members[f"{prefix}.{name}.{member}"] = parameters(called) if callable(called) else None
lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(value)}" for name, value in members.items())
pathlib.Path(__file__).with_suffix(".json").write_text("{\n" + lines + "\n}\n")

OWNERS = {"mx": mx, "mx.nd": mx.nd, "mx.np": mx.np, "NDArray": mx.nd.NDArray, "ndarray": mx.np.ndarray}
named = {
    owner: [
        name for name in dir(value) if name[0] != "_" and (owner == "mx" or not inspect.ismodule(getattr(value, name)))
    ]
    for owner, value in OWNERS.items()
}
OF_OWN = {  # modules whose names are those that they define
    "mx.random": mx.nd.random,
    "mx.np.random": mx.np.random,
    "mx.init": mx.init,
    "mx.context": mx.context,
    "mx.npx": mx.npx,
    "mx.test_utils": mx.test_utils,
}
for owner, module in OF_OWN.items():
    named[owner] = [
        name
        for name in dir(module)
        if name[0] != "_" and getattr(getattr(module, name), "__module__", "") == module.__name__
    ]
named["RowSparseNDArray"] = [name for name in dir(mx.nd.sparse.RowSparseNDArray) if name[0] != "_"]
lines = ",\n".join(f"{json.dumps(owner)}: {json.dumps(names)}" for owner, names in named.items())
pathlib.Path(__file__).with_name("mxnet_names.json").write_text("{\n" + lines + "\n}\n")
