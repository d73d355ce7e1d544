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
