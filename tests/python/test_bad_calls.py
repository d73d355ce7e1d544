"""Random bad calls: each raises a typed error and the store afterwards equals the store before."""

import math

import numpy as np
import pytest
import tensorkv as mx
from hypothesis import assume, given, settings
from hypothesis import strategies as st

closed = mx.kv.create("local")
closed.close()

GOOD = (2, 3)
VERBS = ("push", "pull", "pushpull", "init", "broadcast")
CREATING = ("init", "broadcast")

# A value for one key, and the verbs that take it: `init` and `broadcast` for a key that is not there yet, the others for one
# of shape (2, 3) and float32.
VALUES = {
    "right": (lambda: mx.nd.ones(GOOD), VERBS),
    "a list of one": (lambda: [mx.nd.ones(GOOD)], VERBS),
    "a list of two": (lambda: [mx.nd.ones(GOOD), mx.nd.ones(GOOD)], ("push", "pull", "pushpull")),
    "two that differ": (lambda: [mx.nd.ones(GOOD), mx.nd.ones((6,))], ()),
    "another shape": (lambda: mx.nd.ones((3, 2)), CREATING),
    "another dtype": (lambda: mx.nd.ones(GOOD, dtype="int32"), CREATING),
    "rank 0": (lambda: mx.nd.ones(()), CREATING),
    "no elements": (lambda: mx.nd.ones((0,)), CREATING),
    "a strided view": (lambda: np.ones((2, 4), np.float32)[:, ::2], CREATING),
    "float64": (lambda: np.ones(GOOD), ("pull", *CREATING)),  # outputs convert between floats
    "complex64": (lambda: np.ones(GOOD, np.complex64), CREATING),
    "complex128": (lambda: np.ones(GOOD, np.complex128), ()),
    "bytes": (lambda: b"123456", ("init",)),  # a buffer that cannot be written
    "None": (lambda: None, ()),
    "a number": (lambda: 5, ()),
    "text": (lambda: "x", ()),
    "no list": (lambda: [], ()),
    "a list of None": (lambda: [None], ()),
    "a dict": (lambda: {}, ()),
    "an object": (lambda: object(), ()),
    "a context": (lambda: mx.cpu(), ()),
    "a store": (lambda: closed, ()),
    "an iterator": (lambda: iter([]), ()),
    "a nested list": (lambda: [[mx.nd.ones(GOOD)]], ()),
}
# Arguments for `key`, each with the keys that it means; None if it is no key.
KEYS = [
    *[(key, [key]) for key in (1, 2, 98, 99)],
    *[(keys, list(keys)) for keys in ([1], [1, 2], (2, 1), [99], (98, 99), [1, 99], [99, 1])],
    *[(key, None) for key in ("1", None, 1.0, True, 2**70, b"1", [], [1, "2"], (1, None), {1: 2}, object())],
]
HELD = (1, 2)


def state(kv):
    return {key: kv.pull(key).asnumpy().tobytes() for key in kv}


def is_right(verb, keys, is_list, name, fills):
    """Return whether a call has to succeed."""
    if keys is None or any((key in HELD) == (verb in CREATING) for key in keys):
        return False
    if verb == "pull" and name == "None" and not fills:
        return True  # no outputs: new ones are made
    if not is_list or fills:
        return verb in VALUES[name][1]
    # The value stands for the whole list: one item for each key, each an array or a list of arrays.
    whole = {("a list of one", 1), ("a list of two", 2), ("a nested list", 1)}
    if verb in CREATING:
        whole.add(("two that differ", 2))
    return (name, len(keys)) in whole


@pytest.mark.parametrize("verb", VERBS)
def test_each_combination_succeeds_or_is_a_typed_error_that_changes_nothing(verb):
    right = wrong = 0
    for key, keys in KEYS:
        is_list = isinstance(key, (list, tuple))
        for name, (make, _) in VALUES.items():
            for fills in (False, True) if is_list and key else (False,):
                kv = mx.kv.create("local")
                kv.init(list(HELD), [mx.nd.ones(GOOD), mx.nd.full(GOOD, 2)])
                before = state(kv)
                # `fills`: a list of one value for each key, the last of which is the one to try.
                value = [*(mx.nd.ones(GOOD) for _ in key[1:]), make()] if fills else make()
                arguments = (key, value) if verb in ("push", "pull", "init") else (key, value, value)
                case = f"{verb}({key!r}, {name}{' as the last of a list' if fills else ''})"
                if is_right(verb, keys, is_list, name, fills):
                    getattr(kv, verb)(*arguments)
                    assert set(kv) == {*HELD, *keys}, case
                    right += 1
                    continue
                with pytest.raises((mx.KVError, TypeError)) as error:
                    getattr(kv, verb)(*arguments)
                    pytest.fail(f"{case} succeeded")
                assert str(error.value), case
                assert state(kv) == before, case
                wrong += 1
    assert right >= 15 and wrong >= 400


OPERANDS = st.sampled_from(["sum", "value", "t", "n", "rate", "m", "a", "b", "2", "0.5", "nobody"])
STATEMENTS = st.one_of(
    st.builds(
        "{} = {} {} {}\n".format,
        st.sampled_from("ab"),
        st.sampled_from(["add", "mul", "lt", "plus"]),
        OPERANDS,
        OPERANDS,
    ),
    st.builds("{} <- {}\n".format, st.sampled_from(["value", "m", "sum"]), OPERANDS),
)


def is_program(text):
    """Return whether a text of these statements is a program, by a parser that is independent of the tested one."""
    known, arrays, stored = {"sum", "value", "t", "n", "rate", "m"}, {"sum", "value", "m"}, set()
    for line in text.splitlines():
        target, arrow, *words = line.split()
        if arrow == "<-":
            if target not in ("value", "m") or target in stored or words[0] not in arrays:
                return False
            stored.add(target)
            continue
        if target in known or words[0] == "plus":
            return False
        if not all(word in known or word[0].isdigit() for word in words[1:]):
            return False
        known.add(target)
        arrays |= {target} if arrays & set(words[1:]) else set()
    return "value" in stored


@settings(max_examples=300, deadline=None)
@given(statements=st.lists(STATEMENTS, max_size=5))
def test_a_text_is_a_program_or_an_error_that_names_the_line(statements):
    head = "program p\nparam rate 0.5\nstate m\n"
    text = head + "".join(statements)
    if is_program("".join(statements)):
        program = mx.Program(text)
        assert mx.Program(program.text).text == program.text
    else:
        with pytest.raises(mx.errors.InvalidArgumentError, match="program"):
            mx.Program(text)


@pytest.mark.parametrize("text", ["program p\ud800", b"program p", None])
def test_what_is_no_text_is_no_program(text):
    with pytest.raises(mx.errors.InvalidArgumentError, match=r"^program: .*(no valid Unicode|a str is needed)"):
        mx.Program(text)


@settings(max_examples=300, deadline=None)
@given(text=st.text(alphabet="prgamstev=<- \n#01addmulsub", max_size=200))
def test_no_text_without_a_head_is_a_program(text):
    with pytest.raises(mx.errors.InvalidArgumentError, match="program"):
        mx.Program(text)


@settings(max_examples=200, deadline=None)
@given(
    shape=st.lists(st.integers(-3, 2**62), max_size=40),
    dtype=st.sampled_from(["float32", "int8", "complex64", "complex128", "", "bool"]),
)
def test_no_shape_aborts(shape, dtype):
    fits = all(n >= 0 for n in shape) and len(shape) <= 32 and dtype in ("float32", "int8", "complex64", "bool")
    size = math.prod(shape)
    assume(not (fits and 1e6 < size < 2**45))  # would really be allocated
    if fits and size <= 1e6 and math.prod(n for n in shape if n) < 2**62:
        assert mx.nd.empty(tuple(shape), dtype=dtype).shape == tuple(shape)
    else:
        with pytest.raises(mx.KVError, match="shape|dtype|bytes|memory|extent|dimension"):
            mx.nd.empty(tuple(shape), dtype=dtype)


@pytest.mark.parametrize("priority", ["x", None, 1.5, [], object(), b"1", float("nan"), 2**31, -(2**31) - 1, 10**30])
@pytest.mark.parametrize("verb", ["push", "pull", "pull new", "pushpull", "broadcast"])
@pytest.mark.parametrize("async_op", [False, True])
def test_a_priority_that_is_no_number_is_named_and_changes_nothing(kv, verb, async_op, priority):
    if verb == "broadcast" and async_op:
        return
    kv.init(1, mx.nd.ones(GOOD))
    two, options = mx.nd.ones(GOOD) * 2, {"async_op": True} if async_op else {}
    calls = {
        "push": lambda p: kv.push(1, two, p, **options),
        "pull": lambda p: kv.pull(1, two, p, **options),
        "pull new": lambda p: kv.pull(1, priority=p, **options),
        "pushpull": lambda p: kv.pushpull(1, two, two, p, **options),
        "broadcast": lambda p: kv.broadcast(2, two, two, p),
    }
    with pytest.raises(mx.errors.InvalidArgumentError, match=f"^{verb.split()[0]} .: priority .*a whole number from"):
        calls[verb](priority)
    assert list(kv) == [1]
    assert (kv.pull(1).asnumpy() == 1).all()
    calls[verb](np.int64(-3))


def test_a_type_error_of_an_updater_is_its_own(kv):
    def update(key, grad, stored):
        raise TypeError("mine") from OSError("why")

    kv.init(1, mx.nd.ones(GOOD))
    kv.set_updater(update)
    with pytest.raises(TypeError, match="^mine$") as caught:
        kv.push(1, mx.nd.ones(GOOD))
    assert str(caught.value.__cause__) == "why"


def test_explain_names_a_key_that_is_none(kv):
    with pytest.raises(mx.errors.InvalidArgumentError, match="explain"):
        kv.explain(None)
