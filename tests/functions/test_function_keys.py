"""Functions of `set_updater` on servers: the keys that they are read for, and the arrays and names that they get of each."""

import contextlib
import dataclasses
import enum
import sys

import numpy as np
import pytest
import tensorkv as mx
from tensorkv._update import watch as _watch

STORES = {
    "local": lambda: mx.kv.create("local"),
    "dist_sync": lambda: mx.kv.create("dist_sync", bootstrap="self"),
}


@pytest.fixture(params=STORES)
def kv(request):
    with STORES[request.param]() as store:
        yield store


@pytest.fixture
def servers():
    with STORES["dist_sync"]() as store:
        yield store


def decays_matrices(key, grad, weight):
    weight -= 0.25 * grad + (0.0 if weight.ndim == 1 else 0.5) * weight


def by_length(key, grad, weight):
    weight -= grad / len(weight)


MAKES = {
    "init": lambda kv: kv.init("w", mx.nd.ones((6, 3)).tostype("row_sparse")),
    "init_table": lambda kv: kv.init_table("w", 3, initializer=1.0),
}


@pytest.mark.parametrize("make", MAKES)
def test_a_key_of_rows_has_one_axis_more_than_a_row_whenever_the_function_is_set(servers, make):
    servers.set_updater(decays_matrices)
    MAKES[make](servers)
    program = servers._read().program.text
    servers.set_updater(decays_matrices)
    assert servers._read().program.text == program
    servers.push_rows("w", [1], np.ones((1, 3), np.float32))
    assert servers.pull_rows("w", [1]).tolist() == [[0.25] * 3]


BY_ROWS = {
    "comparison": lambda weight: 0.5 if weight.shape[0] > 5 else 1.0,
    "equality": lambda weight: 0.5 if weight.shape == (10, 3) else 1.0,
    "swapped": lambda weight: 0.5 if 5 < weight.shape[0] else 1.0,
    "size": lambda weight: 1.0 / weight.size,
    "arithmetic": lambda weight: 2.0 ** -weight.shape[0],
    "parity": lambda weight: (1 + weight.shape[0]) % 2,
    "truth": lambda weight: 0.5 if weight.shape[0] else 1.0,
    "index": lambda weight: [0.5, 1.0][weight.shape[0]],
    "range": lambda weight: len(range(weight.shape[0])),
    "table": lambda weight: {10: 0.5}.get(weight.shape[0], 1.0),
    "table of shapes": lambda weight: {(10, 3): 0.5}.get(weight.shape, 1.0),
    "float": lambda weight: float(weight.shape[0]),
    "of NumPy": lambda weight: np.shape(weight)[0] * 0.5,
    "root": lambda weight: np.sqrt(weight.shape[0]),
    "member": lambda weight: weight.shape[0].bit_length(),
}


@pytest.mark.parametrize("how", BY_ROWS)
@pytest.mark.parametrize("caught", [(), Exception])
def test_the_number_of_rows_of_a_key_is_refused_however_it_is_used(servers, how, caught):
    def update(key, grad, weight):
        rate = 1.0
        with contextlib.suppress(caught):
            rate = BY_ROWS[how](weight)
        weight -= grad * rate

    servers.init("w", mx.nd.zeros((10, 3)).tostype("row_sparse"))
    with pytest.raises(mx.errors.InvalidArgumentError, match="depends on how many rows the key has"):
        servers.set_updater(update)


def test_shapes_of_a_key_of_rows_are_printed_and_compared_with_each_other(servers, capsys):
    def update(key, grad, weight):
        print(f"update {weight.shape}", grad)
        assert weight.shape == grad.shape and isinstance(weight.shape[0], int)
        weight -= grad / weight.shape[1]

    servers.set_updater(update)
    servers.init("w", mx.nd.zeros((5000, 4)).tostype("row_sparse"))
    assert "update (rows, 4) <sum of shape (rows, 4)" in capsys.readouterr().out
    servers.push_rows("w", [1], np.ones((1, 4), np.float32))
    assert servers.pull_rows("w", [1]).tolist() == [[-0.25] * 4]


@pytest.mark.parametrize("make", MAKES)
@pytest.mark.parametrize("is_late", [False, True])
def test_a_number_that_depends_on_how_many_rows_a_key_has_is_refused(servers, make, is_late):
    with pytest.raises(mx.errors.InvalidArgumentError, match="depends on how many rows the key has"):
        if is_late:
            MAKES[make](servers)
            servers.set_updater(by_length)
        else:
            servers.set_updater(by_length)
            MAKES[make](servers)


class Name(str, enum.Enum):
    """Keys that are texts and more."""

    WEIGHT = "fc_weight"


class Number(enum.IntEnum):
    """Keys that are numbers and more."""

    FIRST = 1


@pytest.mark.parametrize(
    ("key", "plain"), [(np.int64(3), 3), (Name.WEIGHT, "fc_weight"), (Number.FIRST, 1), (np.str_("w"), "w")]
)
def test_a_function_gets_plain_keys_of_any_class(kv, key, plain):
    def update(key, grad, weight):
        weight += (0.5 if type(key) is type(plain) and str(key) == str(plain) else 8) * grad

    kv.set_updater(update)
    kv.init(key, mx.nd.zeros((2,)))
    kv.push(key, mx.nd.ones((2,)))
    assert kv.pull(plain).asnumpy().tolist() == [0.5, 0.5]


@pytest.mark.parametrize("key", [None, 3.5, [1], {}])
def test_init_says_what_is_wrong_with_a_key(servers, key):
    servers.set_updater(lambda key, grad, weight: weight.__isub__(grad) if key.startswith("w") else None)
    with pytest.raises(mx.errors.InvalidArgumentError, match="^init"):
        servers.init(key, mx.nd.zeros((2,)))


def test_init_says_that_a_key_is_there_before_a_function_sees_its_other_shape(servers):
    servers.set_updater(lambda key, grad, weight: weight.__isub__(grad / weight.shape[0]))
    servers.init("w", mx.nd.zeros((2,)))
    with pytest.raises(mx.errors.AlreadyExistsError, match="init 'w'"):
        servers.init("w", mx.nd.zeros((3,)))


RATES = {"w": 0.5}


def by_name(key, grad, weight):
    weight -= RATES[key] * grad


def test_a_table_with_an_optimizer_of_its_own_is_not_read(servers):
    servers.init("w", mx.nd.zeros((2,)))
    servers.init_table("own", 4, optimizer=mx.optimizer.SGD())
    servers.set_updater(by_name)
    servers.push("w", mx.nd.ones((2,)))
    assert servers.pull("w").asnumpy().tolist() == [-0.5, -0.5]


@dataclasses.dataclass
class Descent:
    """An updater that is equal to others with its rate."""

    rate: float

    def __call__(self, key, grad, weight):
        weight -= self.rate * grad


class Odd(Descent):
    """An updater whose comparison is no bool."""

    def __eq__(self, other):
        return np.ones(2, bool)

    __hash__ = None


@pytest.mark.parametrize("kind", [Descent, Odd])
def test_an_equal_updater_is_another_one(kv, kind):
    first, second = kind(0.25), kind(0.25)
    kv.init("w", mx.nd.zeros((2,)))
    kv.set_updater(first)
    second.rate = 1.0
    kv.set_updater(second)
    kv.push("w", mx.nd.ones((2,)))
    assert kv.pull("w").asnumpy().tolist() == [-1.0, -1.0]


def test_a_method_that_is_set_again_keeps_its_states():
    class Owner:
        def update(self, key, grad, weight):
            momentum = kv.state("m")
            momentum += grad
            weight -= momentum

    owner = Owner()
    with mx.kv.create("local") as kv:
        kv.init("w", mx.nd.zeros((2,)))
        for _ in range(2):
            kv.set_updater(owner.update)
            kv.push("w", mx.nd.ones((2,)))
        assert kv.pull("w").asnumpy().tolist() == [-3.0, -3.0]


@pytest.mark.parametrize("dtype", ["int32", "uint8"])
def test_an_operation_that_servers_lack_for_integers_is_refused_before_a_push(servers, dtype):
    servers.set_updater(lambda key, grad, weight: weight.__iadd__(mx.nd.sign(grad)))
    with pytest.raises(mx.errors.InvalidArgumentError, match=f"servers cannot run it for a key of {dtype}"):
        servers.init("w", mx.nd.zeros((2,), dtype=dtype))


def test_an_integer_that_no_float64_holds_is_refused_for_keys_of_integers(servers):
    servers.set_updater(lambda key, grad, weight: weight.__iadd__(grad * (2**53 + 1)))
    servers.init("w", mx.nd.zeros((2,), dtype="float64"))
    servers.push("w", mx.nd.ones((2,), dtype="float64"))
    assert servers.pull("w").asnumpy().tolist() == [2.0**53] * 2
    with pytest.raises(mx.errors.InvalidArgumentError, match="9007199254740993 is no float64"):
        servers.init("i", mx.nd.zeros((2,), dtype="int64"))


def test_a_function_may_ask_whether_an_array_has_a_member(kv):
    def update(key, grad, weight):
        assert not hasattr(grad, "indices")
        assert (
            hasattr(grad, "tostype") and callable(getattr(grad, "reshape", None)) and hasattr(np.abs(grad), "tobytes")
        )
        weight -= getattr(weight, "lr_mult", 0.5) * grad

    kv.set_updater(update)
    kv.init("w", mx.nd.zeros((2,)))
    kv.push("w", mx.nd.ones((2,)))
    assert kv.pull("w").asnumpy().tolist() == [-0.5, -0.5]


@pytest.mark.parametrize("call", ["grad.tostype('default')", "np.abs(grad).reshape(-1)", "grad.T"])
def test_a_member_that_programs_lack_is_refused_by_name(servers, call):
    def update(key, grad, weight):
        with contextlib.suppress(Exception):
            eval(call)
        weight -= grad

    servers.set_updater(update)
    name = call.rpartition(".")[2].partition("(")[0]
    with pytest.raises(mx.errors.InvalidArgumentError, match=f"`.{name}` of an array; a function that servers run has"):
        servers.init("w", mx.nd.zeros((2,)))


def test_a_recursion_without_end_is_a_recursion_error(kv):
    def update(key, grad, weight):
        return update(key, grad, weight)

    with pytest.raises(RecursionError):
        kv.set_updater(update)
        kv.init("w", mx.nd.zeros((2,)))
        kv.push("w", mx.nd.ones((2,)))


def test_the_values_outside_are_looked_at_a_few_times_however_many_keys_there_are(servers, monkeypatch):
    looks = []
    look = _watch.Watch.look
    monkeypatch.setattr(_watch.Watch, "look", lambda self: looks.append(None) or look(self))
    servers.init([f"w{i}" for i in range(50)], [mx.nd.zeros((2,))] * 50)
    servers.set_updater(Descent(0.5))
    assert 2 <= len(looks) <= 6, len(looks)


def test_a_change_for_a_later_key_is_refused(servers):
    counts = []

    def update(key, grad, weight):
        if key == "w7":
            counts.append(key)
        weight -= 0.5 * grad

    servers.init([f"w{i}" for i in range(9)], [mx.nd.zeros((2,))] * 9)
    with pytest.raises(mx.errors.InvalidArgumentError, match="a call changes counts"):
        servers.set_updater(update)


def test_numbered_results_are_explained_by_names_that_no_state_has(servers, capsys):
    def update(key, grad, weight):
        state = servers.state("x1")
        half = grad * 0.5
        state += half
        weight -= half * state

    servers.set_updater(update)
    servers.init("w", mx.nd.zeros((2,)))
    capsys.readouterr()
    servers.explain("w")
    said = capsys.readouterr().out
    assert "with x_1 = " in said and "x1 becomes" in said, said


def test_reading_prints_to_standard_error_once(servers, capsys):
    def update(key, grad, weight):
        print("called", file=sys.stderr)
        weight -= 0.5 * grad

    servers.set_updater(update)
    servers.init("w", mx.nd.zeros((2,)))
    assert capsys.readouterr().err.count("called") == 1
