"""The tutorials that the project grew from, step by step, with the results that they print."""

import contextlib
import io

import numpy as np
import pytest
import tensorkv

SHAPE = (2, 3)


def printed(action):
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        action()
    return out.getvalue()


def is_all(array, value):
    return array.shape == SHAPE and array.dtype == np.float32 and (array.asnumpy() == np.float32(value)).all()


def walk_tutorial(mx, contexts):
    """The English tutorial, its two Chinese forms and the older one go through the same steps."""
    kv = mx.kv.create("local")
    kv.init(3, mx.nd.ones(SHAPE) * 2)
    a = mx.nd.zeros(SHAPE)
    kv.pull(3, out=a)
    assert is_all(a, 2)

    kv.push(3, mx.nd.ones(SHAPE) * 8)
    kv.pull(3, out=a)
    assert is_all(a, 8)

    b = [mx.nd.ones(SHAPE, ctx) for ctx in contexts]
    kv.push(3, b)
    kv.pull(3, out=a)
    assert is_all(a, 4)

    def update(key, input, stored):
        print("update on key: %d" % key)  # noqa: UP031
        stored += input * 2

    kv._set_updater(update)
    kv.pull(3, out=a)
    assert is_all(a, 4)
    assert printed(lambda: kv.push(3, mx.nd.ones(SHAPE))) == "update on key: 3\n"
    kv.pull(3, out=a)
    assert is_all(a, 6)

    b = [mx.nd.ones(SHAPE, ctx) for ctx in contexts]
    kv.pull(3, out=b)
    assert is_all(b[1], 6)

    keys = [5, 7, 9]
    three = "update on key: 5\nupdate on key: 7\nupdate on key: 9\n"
    kv.init(keys, [mx.nd.ones(SHAPE)] * len(keys))
    assert printed(lambda: kv.push(keys, [mx.nd.ones(SHAPE)] * len(keys))) == three
    b = [mx.nd.zeros(SHAPE)] * len(keys)
    kv.pull(keys, out=b)
    assert is_all(b[1], 3)

    b = [[mx.nd.ones(SHAPE, ctx) for ctx in contexts]] * len(keys)
    assert printed(lambda: kv.push(keys, b)) == three
    kv.pull(keys, out=b)
    assert is_all(b[1][1], 11)


def test_the_tutorial_with_cpu_contexts():
    walk_tutorial(tensorkv, [tensorkv.cpu(i) for i in range(4)])


def test_the_tutorial_that_asks_for_gpus_falls_back_as_it_says():
    mx = tensorkv
    gpus = mx.test_utils.list_gpus()
    contexts = [mx.gpu(i) for i in gpus] if len(gpus) > 1 else [mx.cpu(i) for i in range(4)]
    walk_tutorial(mx, contexts)


def test_the_tutorial_under_the_name_mxnet():
    tensorkv.install_as_mxnet()
    import mxnet as mx

    walk_tutorial(mx, [mx.cpu(i) for i in range(4)])


@pytest.mark.host
def test_gpus_that_are_not_there_are_a_clear_error():
    with pytest.raises(NotImplementedError, match=r"gpu\(0\): this machine has no NVIDIA driver"):
        tensorkv.nd.ones(SHAPE, tensorkv.gpu(0))


def test_the_cells_of_the_numpy_tutorial():
    tensorkv.install_as_mxnet()
    from mxnet import cpu, kv, np

    kv = kv.create("device")
    kv.init(3, np.ones(SHAPE) * (-2))
    A = np.zeros(SHAPE)
    kv.pull(3, out=A)
    assert repr(A) == "array([[-2., -2., -2.],\n       [-2., -2., -2.]])"

    kv.push(3, np.ones(SHAPE) * (-7))
    kv.pull(3, out=A)
    assert repr(A) == "array([[-7., -7., -7.],\n       [-7., -7., -7.]])"

    contexts = [cpu(i) for i in range(3)]
    B = [np.ones(SHAPE, ctx=ctx) for ctx in contexts]
    kv.push(3, B)
    kv.pull(3, out=A)
    assert repr(A) == "array([[3., 3., 3.],\n       [3., 3., 3.]])"

    keys = [7, 11, 13, 17]
    kv.init(keys, [np.ones(SHAPE) * (-3)] * len(keys))
    C = [np.zeros(SHAPE)] * len(keys)
    kv.pull(keys, out=C)
    assert str(C[0]) == "[[-3. -3. -3.]\n [-3. -3. -3.]]"

    D = [[np.ones(SHAPE, ctx=ctx) * (-0.1) for ctx in contexts]] * len(keys)
    assert str(D[0]) == "[" + ", ".join(["array([[-0.1, -0.1, -0.1],\n       [-0.1, -0.1, -0.1]])"] * 3) + "]"
    kv.push(keys, D)
    kv.pull(keys, out=C)
    assert repr(C[0]) == "array([[-0.3, -0.3, -0.3],\n       [-0.3, -0.3, -0.3]])"

    def update(key, input, stored):
        print("update on key: %d" % key)  # noqa: UP031
        stored += input * 0.01

    kv._set_updater(update)
    kv.pull(3, out=A)
    assert repr(A) == "array([[3., 3., 3.],\n       [3., 3., 3.]])"

    # The document shows the value before this push, and uses a name that it never imports.
    assert printed(lambda: kv.push(3, tensorkv.nd.ones(SHAPE) * 5)) == "update on key: 3\n"
    kv.pull(3, out=A)
    assert str(A.asnumpy()) == "[[3.05 3.05 3.05]\n [3.05 3.05 3.05]]"
