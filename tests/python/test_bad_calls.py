"""Random bad calls: each raises a typed error and the store afterwards equals the store before."""

import numpy as np
import tensorkv as mx
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

closed = mx.kv.create("local")
closed.close()

GOOD = (2, 3)
bad_values = st.sampled_from(
    [
        lambda: mx.nd.ones((3, 2)),
        lambda: mx.nd.ones(GOOD, dtype="int32"),
        lambda: mx.nd.ones(()),
        lambda: None,
        lambda: 5,
        lambda: "x",
        lambda: [],
        lambda: [mx.nd.ones(GOOD), mx.nd.ones((6,))],
        lambda: [None],
        lambda: {},
        lambda: np.ones(GOOD),
        lambda: np.ones(GOOD, np.complex64),
        lambda: object(),
        lambda: [[mx.nd.ones(GOOD)]],
        lambda: b"123456",
        lambda: mx.cpu(),
        lambda: closed,
        lambda: iter([]),
        lambda: np.ones((2, 4), np.float32)[:, ::2],
        lambda: mx.nd.ones((0,)),
    ]
)
bad_keys = st.sampled_from([99, "1", None, 1.0, True, 2**70, b"1", [], [1, 99], [1, "2"], (1, None), {1: 2}, object()])
good_keys = st.sampled_from([1, 2, [1], [1, 2], (2, 1)])
verbs = st.sampled_from(["push", "pull", "pushpull", "init", "broadcast"])


def state(kv):
    return {key: kv.pull(key).asnumpy().tobytes() for key in kv}


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(verb=verbs, key=st.one_of(bad_keys, good_keys), make=bad_values, position=st.integers(0, 2))
def test_a_bad_call_is_a_typed_error_and_changes_nothing(verb, key, make, position):
    kv = mx.kv.create("local")
    kv.init([1, 2], [mx.nd.ones(GOOD), mx.nd.full(GOOD, 2)])
    before = state(kv)
    value = make()
    if isinstance(key, (list, tuple)) and position:
        value = [mx.nd.ones(GOOD)] * max(0, len(key) - 1) + [value]
    arguments = {
        "push": (key, value),
        "pull": (key, value),
        "init": (key, value),
        "pushpull": (key, value, value),
        "broadcast": (key, value, value),
    }[verb]
    if verb == "pull" and value is None:
        return  # no outputs: returns new ones
    try:
        getattr(kv, verb)(*arguments)
    except (mx.KVError, TypeError) as error:
        assert str(error)
    else:
        # Not every combination is bad; float64 outputs convert, for example.
        assert verb in ("pull", "pushpull", "push") or set(state(kv)) >= {1, 2}
        return
    assert state(kv) == before


@settings(max_examples=300, deadline=None)
@given(text=st.text(alphabet="prgamstev=<- \n#01addmulsub", max_size=200))
def test_no_program_text_aborts(text):
    try:
        mx.Program(text)
    except mx.errors.InvalidArgumentError as error:
        assert "program" in str(error)


@settings(max_examples=200, deadline=None)
@given(
    shape=st.lists(st.integers(-3, 2**62), max_size=40),
    dtype=st.sampled_from(["float32", "int8", "complex64", "", "bool"]),
)
def test_no_shape_aborts(shape, dtype):
    if np.prod([max(1, n) for n in shape], dtype=float) > 1e6 and all(n >= 0 for n in shape) and len(shape) <= 32:
        size = np.prod(np.array(shape, dtype=object))
        if size and size < 2**45:
            return  # would really be allocated
    try:
        assert mx.nd.empty(tuple(shape), dtype=dtype).shape == tuple(shape)
    except mx.KVError as error:
        assert str(error)
