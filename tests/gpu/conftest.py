"""The frameworks that the tests need, each with a GPU."""

import pytest


@pytest.fixture(scope="module")
def torch():
    module = pytest.importorskip("torch")
    if not module.cuda.is_available():
        pytest.skip("PyTorch sees no GPU")
    import tensorkv.torch  # noqa: F401

    return module


@pytest.fixture(scope="module")
def jax():
    module = pytest.importorskip("jax")
    if module.default_backend() != "gpu":
        pytest.skip("JAX sees no GPU")
    import tensorkv.jax  # noqa: F401

    return module
