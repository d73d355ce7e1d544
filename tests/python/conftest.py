import contextlib
import os
import sys

import numpy as np
import pytest
import tensorkv as mx

mx._core._warn_of_leaks(True)


@pytest.fixture
def kv():
    """A local store that the test need not close."""
    with mx.kv.create("local") as store:
        yield store


@pytest.fixture
def shape():
    return (2, 3)


IS_ON_GPU = "TKV_TEST_GPU" in os.environ  # test_gpu.py runs suites of arrays so


def pytest_collection_modifyitems(config, items):
    if IS_ON_GPU:
        items[:] = [item for item in items if item.get_closest_marker("host") is None]


@pytest.fixture(autouse=True)
def arrays_on_a_gpu():
    """Tests make their arrays on gpu(0) where they are to."""
    with mx.gpu(0) if IS_ON_GPU else contextlib.nullcontext():
        yield


@pytest.fixture(autouse=True)
def forget_mxnet():
    """A test that installs the package as mxnet does not change the next one."""
    yield
    for name in [n for n in sys.modules if n == "mxnet" or n.startswith("mxnet.")]:
        del sys.modules[name]


@pytest.fixture(autouse=True)
def doctest_names(doctest_namespace):
    doctest_namespace["mx"] = mx
    doctest_namespace["np"] = np
