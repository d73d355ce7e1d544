"""Scripts that import mxnet run unchanged."""

import subprocess
import sys
import types

import pytest
import tensorkv

SCRIPT = """
import sys
import mxnet as mx
from mxnet import cpu, kv, np
import mxnet.ndarray as nd
from mxnet.base import MXNetError, py_str
from mxnet.test_utils import assert_almost_equal
store = mx.kvstore.create('local')
store.init(3, nd.ones((2,)))
try:
    store.pull(4, out=nd.ones((2,)))
except MXNetError as error:
    print('error:', error)
print(__name__, sys.argv[1:], mx.nd is nd, mx.__version__)
"""


def run(*arguments):
    return subprocess.run(
        [sys.executable, "-m", "tensorkv.mxnet", *arguments], capture_output=True, text=True, timeout=60
    )


def test_an_unchanged_script_runs(tmp_path):
    (tmp_path / "helper.py").write_text("x = 1\n")
    script = tmp_path / "train.py"
    script.write_text(SCRIPT + "import helper\nsys.exit(3)\n")
    result = run(str(script), "--lr", "0.1")
    assert result.stdout.splitlines() == [
        "error: pull 4: no such key, init it first",
        f"__main__ ['--lr', '0.1'] True {tensorkv.__version__}",
    ], result.stderr
    assert result.returncode == 3


def test_mistakes_on_the_command_line():
    assert run().returncode == 2 and "usage" in run().stdout
    missing = run("nowhere.py")
    assert missing.returncode == 2 and "no such script: nowhere.py" in missing.stderr
    assert run("--help").returncode == 0


def test_a_real_mxnet_is_not_pushed_aside():
    sys.modules["mxnet"] = types.ModuleType("mxnet")
    with pytest.raises(tensorkv.errors.FailedPreconditionError, match="another mxnet is loaded already"):
        tensorkv.install_as_mxnet()


def test_installing_twice_is_once():
    tensorkv.install_as_mxnet()
    tensorkv.install_as_mxnet()
    import mxnet.optimizer

    assert mxnet.optimizer is tensorkv.optimizer


NAMES = """
import importlib, pkgutil, sys
import tensorkv
tensorkv.install_as_mxnet()
before = set(sys.modules)
OF_FRAMEWORKS = ("torch", "jax", "ray")  # which may be missing
for module in [m.name for m in pkgutil.iter_modules(tensorkv.__path__) if m.name not in ("__main__", *OF_FRAMEWORKS)]:
    own = importlib.import_module(f"tensorkv.{module}")
    spec = own.__spec__
    assert importlib.import_module(f"mxnet.{module}") is own, module
    assert own.__spec__ is spec and own.__name__ == f"tensorkv.{module}", module
from mxnet.errors import KVError
import mxnet.optimizer.optimizer, mxnet.kvstore.kvstore_server
assert KVError is tensorkv.errors.KVError
for name in ("mxnet.gluon", "mxnet.errors.more", "mxnet.kvstore.more"):
    try:
        importlib.import_module(name)
    except ModuleNotFoundError as error:
        assert error.name.startswith("mxnet."), error
    else:
        sys.exit(name)
files = [m.__file__ for m in set(sys.modules.values()) if "tensorkv" in (getattr(m, "__file__", None) or "")]
assert len(files) == len(set(files)), "a file was loaded twice"
importlib.reload(tensorkv.random)
for line in ("import mxnet.gluon", "from mxnet import gluon", "from mxnet.gluon import nn", "import mxnet as mx; mx.gluon"):
    try:
        exec(line)
    except (ImportError, AttributeError) as error:
        assert "mx.gluon is not here: PyTorch" in str(error) and "tensorkv.torch.Trainer" in str(error), (line, error)
    else:
        sys.exit(line)
from mxnet import nd, np
import mxnet.ndarray.random, mxnet.numpy.random
assert nd.random is mxnet.random and np.random is mxnet.numpy.random
assert not hasattr(mxnet, "gluon") and not hasattr(mxnet, "nothing")
"""


def test_every_module_has_one_object_under_both_names():
    result = subprocess.run([sys.executable, "-c", NAMES], capture_output=True, text=True, timeout=60)
    assert result.returncode == 0, result.stderr


FROM = """
import tensorkv
tensorkv.install_as_mxnet()
from mxnet import np, npx, nd
npx.set_np()
from mxnet.test_utils import same
for line, text in {
    "from mxnet.ndarray import Concat": "mx.nd.Concat is not here: mx.nd.concat",
    "from mxnet.nd import ones, BatchNorm": "mx.nd.BatchNorm is not here: torch",
    "from mxnet.numpy import einsum": "mx.np.einsum is not here: numpy.einsum",
    "from mxnet.np.random import multinomial": "mx.np.random.multinomial is not here",
    "from mxnet.random import uniform_like": "mx.random.uniform_like is not here",
    "from mxnet.ndarray.sparse import csr_matrix": "mx.nd.sparse.csr_matrix is not here: csr",
    "from mxnet.test_utils import same, check_numeric_gradient": "mx.test_utils.check_numeric_gradient is not here",
    "from mxnet.context import cpu_pinned": "mx.context.cpu_pinned is not here: mx.cpu",
    "from mxnet.initializer import FusedRNN": "mx.init.FusedRNN is not here",
    "from mxnet.optimizer import contrib": "mx.optimizer.contrib is not here",
    "from mxnet.profiler import Task": "mx.profiler.Task is not here",
    "from mxnet.ndarray import nothing": "cannot import name 'nothing'",
    "from mxnet.random import nothing": "cannot import name 'nothing'",
}.items():
    try:
        exec(line)
    except ImportError as error:
        assert str(error).startswith(text), (line, error)
    else:
        raise SystemExit(line)
assert tensorkv.random.uniform().shape == (1,)
"""


def test_a_name_that_is_imported_from_a_module_says_what_to_use():
    result = subprocess.run([sys.executable, "-c", FROM], capture_output=True, text=True, timeout=60)
    assert result.returncode == 0, result.stderr


def test_a_module_of_mxnet_is_imported_by_another_name():
    text = "import tensorkv; tensorkv.install_as_mxnet()\n" + "".join(
        f"import mxnet.{name} as x; assert x is tensorkv.{ours}\n"
        for name, ours in (
            ("numpy_extension", "npx"),
            ("kvstore.base", "kvstore"),
            ("optimizer.optimizer", "optimizer"),
        )
    )
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


def test_a_text_is_run_as_a_script():
    words = [
        sys.executable,
        "-m",
        "tensorkv.mxnet",
        "-c",
        "import sys, mxnet; print(mxnet.nd.ones((2,)).sum(), sys.argv)",
        "a",
    ]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and done.stdout.endswith("['-c', 'a']\n"), done.stdout + done.stderr
