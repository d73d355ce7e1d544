"""Keys that are kept by rows, and row-sparse values of the verbs, against NumPy."""

import array
import json
import pathlib
import pickle
import threading

import numpy as np
import pytest
import tensorkv as mx
from sparse_cases import CASES, result

ORACLE = json.loads(pathlib.Path(__file__).with_name("sparse_oracle.json").read_text())
sparse = mx.nd.sparse
STORES = {
    "local": lambda: mx.kv.create("local"),
    "device": lambda: mx.kv.create("device"),
    "dist_sync": lambda: mx.kv.create("dist_sync", bootstrap="self"),
    "dist_async": lambda: mx.kv.create("dist_async", bootstrap="self"),
}
IN_ONE_PROCESS = ["local", "device"]


@pytest.fixture(params=STORES)
def kv(request):
    with STORES[request.param]() as store:
        yield store


@pytest.fixture(params=IN_ONE_PROCESS)
def alone(request):
    """A store of one process, whose dense keys take rows too, and whose updaters may be functions that are called."""
    with STORES[request.param]() as store:
        yield store


def rows(data, indices, shape, dtype="float32"):
    return sparse.row_sparse_array((np.asarray(data, np.float64), indices), shape=shape, dtype=dtype)


def random_rows(random, shape, dtype="float32", most=None):
    count = random.integers(0, (most or shape[0]) + 1)
    chosen = random.choice(shape[0], size=min(count, shape[0]), replace=False)
    return rows(random.integers(-8, 9, (len(chosen), *shape[1:])), chosen, shape, dtype)


def start(shape=(4, 2), dtype="float32"):
    """1, 2, 3, ... in the rows 0 and 2."""
    row = int(np.prod(shape[1:]))
    return rows(np.arange(1, 2 * row + 1).reshape(2, *shape[1:]), [0, 2], shape, dtype)


def holds(array, dense, indices=None):
    assert array.stype == ("default" if indices is None else "row_sparse")
    np.testing.assert_array_equal(array.asnumpy(), np.asarray(dense))
    if indices is not None:
        assert array.indices.asnumpy().tolist() == list(indices)


# --------------------------------------------------------------------------------------------------------- init and pull


def test_a_row_sparse_value_makes_a_key_of_rows(kv):
    value = start()
    kv.init("w", value)
    holds(kv.pull("w"), value.asnumpy())
    out, dense = sparse.zeros("row_sparse", (4, 2)), np.full((4, 2), 9, np.float32)
    kv.pull("w", out=out, ignore_sparse=False)
    kv.pull("w", out=dense)
    holds(out, value.asnumpy(), [0, 2])
    np.testing.assert_array_equal(dense, value.asnumpy())
    assert kv.pull("w", like=np.empty(0)).tolist() == value.asnumpy().tolist() and "w" in kv


def test_the_store_has_a_copy(kv):
    value = start()
    kv.init("w", value)
    value.data[:] = 9
    assert kv.pull("w").asnumpy().max() == 4


def test_row_sparse_outputs_of_pull_stay_unless_asked_for(kv):
    kv.init("w", start())
    out, dense = sparse.zeros("row_sparse", (4, 2)), mx.nd.zeros((4, 2))
    kv.pull("w", out=out)
    holds(out, np.zeros((4, 2)), [])
    kv.pull("w", out=[out, dense])
    holds(out, np.zeros((4, 2)), [])
    holds(dense, start().asnumpy())


def test_a_dense_key_into_a_row_sparse_output(kv):
    kv.init("w", start().tostype("default"))
    out = sparse.zeros("row_sparse", (4, 2), dtype="float16")
    kv.pull("w", out=out)
    holds(out, np.zeros((4, 2)), [])
    kv.pull("w", out=out, ignore_sparse=False)
    holds(out, start().asnumpy(), [0, 2])
    assert out.dtype is np.float16


def test_lists_of_keys_of_both_kinds(kv):
    kv.init([1, 2, 3], [start(), mx.nd.ones((3,)), sparse.zeros("row_sparse", (5,))])
    outs = [
        [mx.nd.zeros((4, 2)), sparse.zeros("row_sparse", (4, 2))],
        mx.nd.zeros((3,)),
        sparse.zeros("row_sparse", (5,)),
    ]
    kv.pull([1, 2, 3], out=outs, ignore_sparse=False)
    holds(outs[0][0], start().asnumpy())
    holds(outs[0][1], start().asnumpy(), [0, 2])
    holds(outs[1], np.ones(3))
    holds(outs[2], np.zeros(5), [])
    values = kv.pull([1, 2, 3])
    assert [v.shape for v in values] == [(4, 2), (3,), (5,)] and kv.keys() == [1, 2, 3]
    with pytest.raises(mx.errors.AlreadyExistsError):
        kv.init([4, 1], [mx.nd.ones((2,)), start()])
    with pytest.raises(mx.errors.AlreadyExistsError):
        kv.init([5, 5], [mx.nd.ones((2,)), start()])
    with pytest.raises(mx.errors.AlreadyExistsError):
        kv.init(1, start())
    assert kv.keys() == [1, 2, 3]


@pytest.mark.parametrize(
    "keys, values",
    [
        ([1, "a"], lambda: [np.ones(3, np.float32), start()]),
        ([1, "a"], lambda: [start(), np.ones(3, np.float32)]),
        ([1, 2, 3], lambda: [np.ones(3, np.float32), start(), rows(np.zeros((0, 1 << 23)), [], (4, 1 << 23))]),
    ],
    ids=["rows of another kind of key", "a value of another kind of key", "rows that are too long"],
)
def test_an_init_of_both_kinds_that_is_refused_makes_no_key(kv, keys, values):
    with pytest.raises(mx.errors.InvalidArgumentError):
        kv.init(keys, values())
    assert kv.keys() == []


def test_an_init_of_rows_that_the_optimizer_cannot_update_makes_no_key(kv):
    kv.set_optimizer(mx.optimizer.LAMB())
    with pytest.raises(mx.errors.InvalidArgumentError):
        kv.init([1, 2], [mx.nd.ones((3,)), start()])
    assert kv.keys() == []


def test_init_takes_a_list_of_one_and_trees(kv):
    kv.init("w", [start()])
    tree = {"a": {"b": start(), "c": mx.nd.ones((2,))}}
    kv.init(tree)
    kv.push(tree)
    for found in (kv.pull(tree), kv.pull(tree, async_op=True).wait()):
        holds(found["a"]["b"], start().asnumpy(), [0, 2])
        holds(found["a"]["c"], np.ones(2))
    holds(kv.pull("w", like=start()), start().asnumpy(), [0, 2])
    outs = {"a": {"b": mx.nd.zeros((4, 2)), "c": np.zeros(2, np.float32)}}
    kv.pull(tree, out=outs)
    holds(outs["a"]["b"], start().asnumpy())
    copies = kv.broadcast({"d": start(), "e": mx.nd.ones((3,))})
    holds(copies["d"], start().asnumpy(), [0, 2])
    holds(copies["e"], np.ones(3))


def test_init_in_a_thread(kv):
    kv.init("w", start(), async_op=True).wait()
    holds(kv.pull("w"), start().asnumpy())


@pytest.mark.parametrize("dtype", ["float16", "float64", "int32", "int64", "bfloat16"])
def test_rows_of_other_dtypes(kv, dtype):
    kv.init("w", start(dtype=dtype))
    assert kv.pull("w").dtype_name == dtype
    kv.push("w", [start(dtype=dtype), start(dtype=dtype)])
    assert (kv.pull("w").astype("float64").asnumpy() == 2 * start().asnumpy()).all()
    out = sparse.zeros("row_sparse", (4, 2), dtype=dtype)
    kv.row_sparse_pull("w", out=out, row_ids=[2])
    assert out.astype("float64").asnumpy()[2].tolist() == [6, 8]


def test_a_pull_of_floats_converts(kv):
    kv.init("w", start(dtype="float16"))
    out = sparse.zeros("row_sparse", (4, 2), dtype="float32")
    kv.row_sparse_pull("w", out=out, row_ids=mx.nd.array([2, 0], dtype="float16"))
    holds(out, start().asnumpy(), [0, 2])
    kv.pull("w", out=out, ignore_sparse=False)
    assert out.dtype is np.float32
    dense = np.zeros((1, 2))
    kv.pull_rows("w", [2], out=dense)
    assert dense.tolist() == [[3, 4]]


# ---------------------------------------------------------------------------------------------------------------- pushing


def read(kv, key="w"):
    """The rows of a key that are not zero, by their ids, and all rows."""
    out = sparse.zeros("row_sparse", kv.pull(key).shape)
    kv.pull(key, out=out, ignore_sparse=False)
    np.testing.assert_array_equal(out.asnumpy(), kv.pull(key).asnumpy())
    return {int(i): row.tolist() for i, row in zip(out.indices.asnumpy(), out.data.asnumpy(), strict=True)}


def test_a_push_replaces_the_value_of_a_key_that_was_made_from_rows(kv):
    kv.init("w", start())
    kv.push("w", rows([[5, 6], [7, 8]], [3, 0], (4, 2)))
    assert read(kv) == {0: [7, 8], 3: [5, 6]} and kv.table_stats("w")["rows"] == 2
    kv.push_rows("w", [1, 1], np.ones((2, 2), np.float32))
    assert read(kv) == {1: [2, 2]} and kv.pull_rows("w", [0, 1]).tolist() == [[0, 0], [2, 2]]
    kv.push("w", sparse.zeros("row_sparse", (4, 2)))
    assert read(kv) == {} and kv.round("w") == 3
    stats = kv.table_stats("w")
    assert stats["rows"] == 0 and stats["evicted"] == 0


def test_a_push_of_no_ids_replaces_the_value_too(kv):
    kv.init("w", start())
    kv.push_rows("w", [], np.empty((0, 2), np.float32))
    assert read(kv) == {} and kv.round("w") == 1


def test_a_push_to_a_table_keeps_the_rows_that_it_does_not_bring(kv):
    kv.init_table("w", 2, rows=4)
    kv.push("w", start())
    kv.push("w", rows([[5, 6], [7, 8]], [3, 0], (4, 2)))
    assert read(kv) == {0: [7, 8], 2: [3, 4], 3: [5, 6]}
    kv.push_rows("w", [], np.empty((0, 2), np.float32))
    assert read(kv) == {0: [7, 8], 2: [3, 4], 3: [5, 6]}


def test_a_push_with_an_updater_changes_only_the_rows_that_it_brings(kv):
    kv.init("w", start())
    kv.set_optimizer(mx.optimizer.create("test"))
    kv.push("w", rows([[5, 6]], [3], (4, 2)))
    assert read(kv) == {0: [1, 2], 2: [3, 4], 3: [5, 6]}
    kv.set_updater(None)
    kv.push("w", rows([[5, 6]], [1], (4, 2)))
    assert read(kv) == {1: [5, 6]}
    kv.set_optimizer(mx.optimizer.create("test"))
    kv.push("w", rows([[5, 6]], [3], (4, 2)))
    assert read(kv) == {1: [5, 6], 3: [5, 6]}


def test_states_of_replaced_rows_begin_anew(kv):
    momentum = mx.optimizer.SGD(learning_rate=1, momentum=0.5)
    kv.init("w", start())
    kv.set_optimizer(momentum)
    kv.push("w", rows([[8, 8]], [3], (4, 2)))
    kv.set_updater(None)
    kv.push("w", rows([[1, 1]], [1], (4, 2)))
    kv.set_optimizer(momentum)
    kv.push("w", rows([[8, 8], [8, 8]], [3, 1], (4, 2)))
    assert read(kv) == {1: [-7, -7], 3: [-8, -8]}


def test_a_broadcast_makes_a_key_that_a_push_replaces(kv):
    kv.broadcast("w", start(), out=mx.nd.zeros((4, 2)))
    kv.push("w", rows([[5, 6]], [3], (4, 2)))
    assert read(kv) == {3: [5, 6]}


def test_replaced_rows_give_their_memory_back(kv):
    count = 20_000
    kv.init("w", sparse.zeros("row_sparse", (20 * count, 8)))
    values = np.ones((count, 8), np.float32)
    kv.push_rows("w", np.arange(count), values)
    once = kv.table_stats("w")["memory_bytes"]
    for turn in range(1, 20):
        kv.push_rows("w", np.arange(count) + turn * count, values)
    stats = kv.table_stats("w")
    assert stats["rows"] == count and stats["memory_bytes"] < 2 * once
    kv.push_rows("w", [], values[:0])
    assert kv.table_stats("w")["memory_bytes"] < once / 4


def test_an_export_that_has_begun_keeps_replaced_rows(kv):
    kv.init("w", start())
    before = kv.export_rows("w")
    kv.push("w", rows([[5, 6]], [3], (4, 2)))
    after = kv.export_rows("w")
    assert before.ids.tolist() == [0, 2] and after.ids.tolist() == [3]
    kv.import_rows("w", [1], np.full((1, 2), 9, np.float32))
    assert read(kv) == {1: [9, 9], 3: [5, 6]}


def test_a_key_of_a_loaded_snapshot_is_still_replaced(kv, tmp_path):
    kv.init("w", start())
    kv.init_table("t", 2, rows=4, notes=False)
    kv.push("t", start())
    kv.save(tmp_path / "saved")
    kv.push("w", rows([[5, 6]], [3], (4, 2)))
    kv.load(tmp_path / "saved")
    assert read(kv) == {0: [1, 2], 2: [3, 4]}
    for key in ("w", "t"):
        kv.push(key, rows([[7, 8]], [1], (4, 2)))
    assert read(kv) == {1: [7, 8]}
    assert read(kv, "t") == {0: [1, 2], 1: [7, 8], 2: [3, 4]}


def test_values_of_a_list_are_summed_row_by_row(kv):
    kv.init("w", start())
    kv.push(
        "w", [rows([[1, 1]], [1], (4, 2)), rows([[2, 2], [4, 4]], [3, 1], (4, 2)), sparse.zeros("row_sparse", (4, 2))]
    )
    holds(kv.pull("w"), [[0, 0], [5, 5], [0, 0], [2, 2]])


def test_a_key_that_stands_twice_has_all_its_values(kv):
    kv.init(["v", "w"], [start(), start()])
    one = rows([[1, 1]], [1], (4, 2))
    kv.push(["w", "v", "w"], [one, one, [one, one]])
    assert kv.pull("w").asnumpy()[1].tolist() == [3, 3] and kv.pull("v").asnumpy()[1].tolist() == [1, 1]


def test_rows_of_a_dense_key_are_a_sum_whose_other_rows_are_zero(alone):
    alone.init("w", mx.nd.ones((4, 2)))
    alone.push("w", [start(), start()])
    holds(alone.pull("w"), 2 * start().asnumpy())
    alone.push("w", [start(), mx.nd.ones((4, 2))])
    holds(alone.pull("w"), start().asnumpy() + 1)
    alone.set_optimizer(mx.optimizer.create("test", rescale_grad=2))
    alone.push("w", start())
    holds(alone.pull("w"), 3 * start().asnumpy() + 1)


def test_a_dense_value_is_all_rows_of_a_key_of_rows(kv):
    kv.init("w", start())
    kv.push("w", [mx.nd.ones((4, 2)), np.ones((4, 2), np.float32)])
    holds(kv.pull("w"), np.full((4, 2), 2))
    kv.push("w", [start(), mx.nd.ones((4, 2)), start()])
    holds(kv.pull("w"), 2 * start().asnumpy() + 1)
    kv.pushpull("w", [mx.nd.ones((4, 2))], out=[out := mx.nd.zeros((4, 2))])
    holds(out, np.ones((4, 2)))
    kv.init_table("t", 2)
    with pytest.raises(mx.errors.InvalidArgumentError):
        kv.push("t", mx.nd.ones((4, 2)))


def test_a_function_cannot_update_a_key_of_rows(alone):
    alone.init("w", start())
    alone.set_updater(lambda key, grad, stored: None)
    for value in (start(), mx.nd.ones((4, 2))):
        with pytest.raises(mx.errors.UnimplementedError, match="set_optimizer"):
            alone.push("w", value)
    holds(alone.pull("w"), start().asnumpy())


def test_dense_and_row_keys_in_one_push(kv):
    kv.init([1, 2, 3], [start(), mx.nd.ones((4, 2)), mx.nd.ones((3,))])
    kv.push([1, 2, 3], [start(), [start(), mx.nd.ones((4, 2))], mx.nd.zeros((3,))])
    holds(kv.pull(1), start().asnumpy())
    holds(kv.pull(2), start().asnumpy() + 1)
    holds(kv.pull(3), np.zeros(3))


@pytest.mark.parametrize("async_op", [False, True])
def test_a_push_of_both_kinds_that_fails_changes_neither(kv, async_op):
    kv.init("dense", mx.nd.ones((3,)))
    kv.init("rows", start(dtype="bool"))
    kv.set_optimizer(mx.optimizer.SGD(learning_rate=1))
    with pytest.raises(mx.errors.InvalidArgumentError, match="push 'rows'.*bool"):
        kv.push(["dense", "rows"], [mx.nd.ones((3,)), start(dtype="bool")], async_op=async_op)
    holds(kv.pull("dense"), np.ones(3))
    assert kv.round("dense") == 0


@pytest.mark.parametrize("given", ["dtype", "size"])
def test_a_pushpull_or_broadcast_whose_outputs_cannot_be_changes_nothing(kv, given):
    rows_of_key = 4 if given == "dtype" else 2**30
    value = rows([[1, 2]], [1], (rows_of_key, 2))
    out = mx.nd.zeros((4, 2), dtype="int32") if given == "dtype" else mx.nd.sparse.zeros("row_sparse", (2**30, 2))
    with pytest.raises(
        mx.errors.InvalidArgumentError, match="only floats convert" if given == "dtype" else "too many for one array"
    ):
        kv.broadcast("w", value, out)
    assert "w" not in kv
    kv.init("w", value)
    with pytest.raises(
        mx.errors.InvalidArgumentError, match="only floats convert" if given == "dtype" else "too many for one array"
    ):
        kv.pushpull("w", value, out=out)
    assert kv.round("w") == 0


def test_the_verb_of_an_error_is_that_of_the_call(kv):
    kv.init("rows", start())
    with pytest.raises(mx.errors.KeyNotFoundError, match="push_rows 'none'"):
        kv.push_rows("none", [1], np.ones((1, 2), np.float32))
    with pytest.raises(mx.errors.OutOfRangeError, match="^pull_rows 'rows'.*9"):
        kv.pull_rows("rows", [9])
    with pytest.raises(mx.errors.OutOfRangeError, match="^row_sparse_pull 'rows'.*9"):
        kv.row_sparse_pull("rows", out=mx.nd.zeros((1, 2)), row_ids=mx.nd.array([9], dtype="int64"))


def test_an_optimizer_that_needs_whole_values_is_refused(kv):
    kv.init("rows", start())
    with pytest.raises(mx.errors.FailedPreconditionError, match="whole values"):
        kv.set_optimizer(mx.optimizer.LAMB())
    kv.push("rows", start())
    holds(kv.pull("rows", ignore_sparse=False), start().asnumpy())
    kv.set_optimizer(mx.optimizer.SGD())
    kv.delete("rows")
    kv.init("dense", mx.nd.ones((3,)))
    kv.set_optimizer(mx.optimizer.LAMB())
    with pytest.raises(mx.errors.InvalidArgumentError, match="whole values"):
        kv.init("rows", start())
    assert "rows" not in kv


def test_an_optimizer_that_cannot_update_a_tables_dtype_is_refused(kv):
    with pytest.raises(mx.errors.InvalidArgumentError, match="'t'.*bool"):
        kv.init_table("t", 2, "bool", optimizer=mx.optimizer.SGD())
    assert "t" not in kv


@pytest.mark.parametrize("dim", [0, 2**23, 2**40, (2**20, 2**20)])
def test_a_row_has_at_most_16_mib_and_at_least_an_element(kv, dim):
    with pytest.raises(mx.errors.InvalidArgumentError, match="'t'.*1 to 16777216 bytes"):
        kv.init_table("t", dim)
    assert "t" not in kv
    kv.init_table("t", 2**22)


def test_a_constant_that_no_float64_is_is_refused(kv):
    with pytest.raises(mx.errors.InvalidArgumentError, match="4611686018427387905"):
        kv.init_table("t", 1, "int64", initializer=2**62 + 1)
    kv.init_table("t", 1, "int64", initializer=2**62)
    assert kv.pull_rows("t", [3])[0, 0] == 2**62


def test_pushpull_and_broadcast(kv):
    outs = [mx.nd.zeros((4, 2)), sparse.zeros("row_sparse", (4, 2))]
    kv.broadcast("w", start(), out=outs)
    holds(outs[0], start().asnumpy())
    holds(outs[1], start().asnumpy(), [0, 2])
    kv.pushpull("w", rows([[9, 9]], [1], (4, 2)), out=outs)
    holds(outs[1], [[0, 0], [9, 9], [0, 0], [0, 0]], [1])
    kv.pushpull("w", rows([[8, 8]], [1], (4, 2)), out=outs, async_op=True).wait()
    assert outs[0].asnumpy()[1].tolist() == outs[1].asnumpy()[1].tolist() == [8, 8]
    kv.broadcast("d", mx.nd.ones((4, 2)), out=outs)
    holds(outs[1], np.ones((4, 2)), range(4))
    with pytest.raises(mx.errors.InvalidArgumentError, match="`out` is needed"):
        kv.pushpull("w", start())
    with pytest.raises(mx.errors.InvalidArgumentError, match="shape"):
        kv.broadcast("n", start(), out=mx.nd.zeros((3, 2)))
    assert "n" not in kv


def test_a_function_updates_rows_of_a_dense_key(alone):
    alone.init("w", mx.nd.ones((4, 2)))

    def update(key, grad, stored):
        stored += grad * 2

    alone.set_updater(update)
    alone.push("w", [start(), start()])
    holds(alone.pull("w"), 1 + 4 * start().asnumpy())


@pytest.mark.parametrize("type", ["local", "dist_sync"])
def test_a_function_updates_all_rows_of_a_dense_key(type):
    def decay(key, grad, weight):
        weight *= 0.5
        weight -= grad

    with mx.kv.create(type, **({"bootstrap": "self"} if type == "dist_sync" else {})) as kv:
        kv.init("w", mx.nd.ones((3, 1)))
        kv.set_updater(decay)
        for after in ([0.5, -0.5, 0.5], [0.25, -1.25, 0.25]):
            kv.push("w", mx.nd.sparse.row_sparse_array(([[1.0]], [1]), shape=(3, 1)))
            assert kv.pull("w").asnumpy().ravel().tolist() == after


# ------------------------------------------------------------------------------------------------------- row_sparse_pull


def test_ids_in_any_order_with_repetitions(kv):
    kv.init("w", start())
    for ids in (
        mx.nd.array([2, 0, 2, 1]),
        mx.nd.array([[2, 0], [2, 1]], dtype="int64"),
        np.array([2, 0, 2, 1], np.int32),
        [2, 0, 2, 1],
        (2, 0, 2, 1),
        mx.nd.array([2, 0, 2, 1], dtype="float16"),
    ):
        out = rows([[9, 9]], [3], (4, 2))
        kv.row_sparse_pull("w", out=out, row_ids=ids)
        holds(out, start().asnumpy(), [0, 1, 2])
        made = kv.row_sparse_pull("w", row_ids=ids)
        holds(made, start().asnumpy(), [0, 1, 2])


def test_no_ids_are_no_rows(kv):
    kv.init("w", start())
    for ids in ([], mx.nd.array([]), np.zeros((0, 3))):
        out = start()
        kv.row_sparse_pull("w", out=out, row_ids=ids)
        holds(out, np.zeros((4, 2)), [])
    assert kv.row_sparse_pull("w", row_ids=[], async_op=True).wait().indices.shape == (0,)


def test_several_outputs(kv):
    kv.init("w", start())
    value = start().asnumpy()
    outs = [sparse.zeros("row_sparse", (4, 2), mx.cpu(i), "float64" if i else "float32") for i in range(3)]
    kv.row_sparse_pull("w", out=outs, row_ids=mx.nd.array([2]))
    for out in outs:
        holds(out, value * [[0], [0], [1], [0]], [2])
    assert len({id(out.data) for out in outs}) == 3 and outs[1].context == mx.cpu(1)
    outs[0].data[:] = 9
    assert outs[1].asnumpy().max() == 4
    kv.row_sparse_pull("w", out=outs, row_ids=[[2], np.array([0, 1]), mx.nd.array([])])
    assert [out.indices.asnumpy().tolist() for out in outs] == [[2], [0, 1], []]
    kv.row_sparse_pull("w", out=outs, row_ids=[mx.nd.array([1])])
    assert [out.indices.asnumpy().tolist() for out in outs] == [[1]] * 3
    same = sparse.zeros("row_sparse", (4, 2))
    kv.row_sparse_pull("w", out=[same] * 4, row_ids=mx.nd.array([0]))
    holds(same, value * [[1], [0], [0], [0]], [0])


def test_several_keys(kv):
    kv.init(["a", "b"], [start(), start((3, 1))])
    outs = [[sparse.zeros("row_sparse", (4, 2)) for _ in range(2)], [sparse.zeros("row_sparse", (3, 1))]]
    kv.row_sparse_pull(["a", "b"], out=outs, row_ids=[[mx.nd.array([0]), mx.nd.array([2, 1])], [mx.nd.array([2])]])
    assert [[out.indices.asnumpy().tolist() for out in each] for each in outs] == [[[0], [1, 2]], [[2]]]
    kv.row_sparse_pull(["a", "b"], out=outs, row_ids=mx.nd.array([2, 0]))
    assert all(out.indices.asnumpy().tolist() == [0, 2] for each in outs for out in each)
    a, b = kv.row_sparse_pull(["a", "b"], row_ids=[[2], [[0], [1]]])
    assert a.indices.asnumpy().tolist() == [2] and [x.indices.asnumpy().tolist() for x in b] == [[0], [1]]
    holds(kv.pull("b"), outs[1][0].asnumpy())


def test_async_pulls(kv):
    kv.init_table("w", 2, rows=4)
    kv.push("w", start())
    out, dense = sparse.zeros("row_sparse", (4, 2)), np.zeros((4, 2), np.float32)
    tickets = [
        kv.push("w", rows([[9, 9]], [1], (4, 2)), async_op=True),
        kv.row_sparse_pull("w", out=out, row_ids=[1, 2], async_op=True),
        kv.pull("w", out=dense, async_op=True),
        kv.pull_rows("w", [1, 1], async_op=True),
        kv.pull("w", async_op=True),
        kv.push_rows("w", [3], [[7, 7]], async_op=True),
        kv.pull_rows("w", [3], async_op=True),
    ]
    results = [ticket.wait() for ticket in tickets]
    assert results[:3] == [None] * 3 and "row_sparse_pull 'w'" in repr(tickets[1])
    holds(out, [[0, 0], [9, 9], [3, 4], [0, 0]], [1, 2])
    assert dense.tolist() == results[4].asnumpy().tolist() == [[1, 2], [9, 9], [3, 4], [0, 0]]
    assert results[3].asnumpy().tolist() == [[9, 9], [9, 9]] and results[6].asnumpy().tolist() == [[7, 7]]


ERRORS = {
    "no ids": (lambda kv: kv.row_sparse_pull("w", out=start()), mx.errors.InvalidArgumentError, "row_ids are needed"),
    "dense out": (
        lambda kv: kv.row_sparse_pull("w", out=mx.nd.zeros((4, 2)), row_ids=[1]),
        mx.errors.InvalidArgumentError,
        "a RowSparseNDArray is needed",
    ),
    "out of another shape": (
        lambda kv: kv.row_sparse_pull("w", out=start((5, 2)), row_ids=[1]),
        mx.errors.InvalidArgumentError,
        r"shape \(5, 2\), the key has 4 rows of shape \(2,\)",
    ),
    "beyond": (
        lambda kv: kv.row_sparse_pull("w", out=start(), row_ids=[4]),
        mx.errors.OutOfRangeError,
        "row 4; the key has 4 rows",
    ),
    "negative": (lambda kv: kv.row_sparse_pull("w", row_ids=[-1]), mx.errors.OutOfRangeError, "row -1"),
    "fraction": (lambda kv: kv.row_sparse_pull("w", row_ids=[0.5]), mx.errors.InvalidArgumentError, "0.5 is no id"),
    "no key": (lambda kv: kv.row_sparse_pull("x", row_ids=[0]), mx.errors.KeyNotFoundError, "x"),
    "no key of rows": (lambda kv: kv.row_sparse_pull("d", row_ids=[0]), mx.errors.InvalidArgumentError, "dense"),
    "ids for outs": (
        lambda kv: kv.row_sparse_pull("w", out=[start()] * 3, row_ids=[np.array([0]), np.array([1])]),
        mx.errors.InvalidArgumentError,
        "2 arrays of ids for 3 outputs",
    ),
    "ids for keys": (
        lambda kv: kv.row_sparse_pull(["w", "t", "d"], row_ids=[np.array([0]), np.array([1])]),
        mx.errors.InvalidArgumentError,
        "2 arrays of ids for 3 keys",
    ),
    "outs for keys": (
        lambda kv: kv.row_sparse_pull(["w", "t"], out=[start()], row_ids=[0]),
        mx.errors.InvalidArgumentError,
        "2 keys need a list of 2",
    ),
    "no outs": (lambda kv: kv.row_sparse_pull("w", out=[], row_ids=[0]), mx.errors.InvalidArgumentError, "0 outputs"),
    "no keys": (lambda kv: kv.row_sparse_pull([], row_ids=[0]), mx.errors.InvalidArgumentError, "no keys"),
    "empty push": (lambda kv: kv.push("w", []), mx.errors.InvalidArgumentError, "w"),
    "pushed shape": (lambda kv: kv.push("w", start((5, 2))), mx.errors.InvalidArgumentError, "the key has 4 rows"),
    "pushed row": (lambda kv: kv.push("w", start((4, 3))), mx.errors.InvalidArgumentError, "the key has 4 rows"),
    "pushed dtype": (lambda kv: kv.push("w", start(dtype="float64")), mx.errors.InvalidArgumentError, "float64"),
    "pushed to dense": (lambda kv: kv.push("d", start((4, 3))), mx.errors.InvalidArgumentError, r"\(4, 3\)"),
    "pushed to none": (lambda kv: kv.push("x", start()), mx.errors.KeyNotFoundError, "x"),
    "pushed to all": (lambda kv: kv.push(["d", "x"], [start()] * 2), mx.errors.KeyNotFoundError, "x"),
    "two values": (lambda kv: kv.init("x", [start(), start()]), mx.errors.InvalidArgumentError, "2 values"),
    "pulled shape": (
        lambda kv: kv.pull("w", out=mx.nd.ones((3, 2))),
        mx.errors.InvalidArgumentError,
        r"the key has \(4, 2\)",
    ),
    "pulled rsp": (
        lambda kv: kv.pull("w", out=start((3, 2)), ignore_sparse=False),
        mx.errors.InvalidArgumentError,
        "the key has 4 rows",
    ),
    "pulled table": (lambda kv: kv.pull("t"), mx.errors.InvalidArgumentError, "pull_rows"),
    "pull_rows of dense": (lambda kv: kv.pull_rows("d", [0]), mx.errors.InvalidArgumentError, "the key is dense"),
    "pull_rows beyond": (lambda kv: kv.pull_rows("w", [0, 4]), mx.errors.OutOfRangeError, "row 4"),
    "pull_rows negative": (lambda kv: kv.pull_rows("t", [-5]), mx.errors.OutOfRangeError, "row -5"),
    "pull_rows out": (
        lambda kv: kv.pull_rows("w", [0, 1], out=np.zeros((3, 2), np.float32)),
        mx.errors.InvalidArgumentError,
        r"shape \(3, 2\), \(2, 2\) is needed",
    ),
    "push_rows beyond": (lambda kv: kv.push_rows("w", [4], [[1, 2]]), mx.errors.OutOfRangeError, "row 4"),
    "push_rows to dense": (lambda kv: kv.push_rows("d", [4], [[1, 2]]), mx.errors.OutOfRangeError, "row 4"),
    "push_rows shape": (
        lambda kv: kv.push_rows("w", [0, 1], [[1, 2]]),
        mx.errors.InvalidArgumentError,
        "values of shape",
    ),
    "push_rows dtype": (
        lambda kv: kv.push_rows("w", [0], np.ones((1, 2))),
        mx.errors.InvalidArgumentError,
        "float64",
    ),
    "priority": (
        lambda kv: kv.push_rows("w", [0], [[1, 2]], priority="x"),
        mx.errors.InvalidArgumentError,
        "priority 'x'",
    ),
    "pull_rows int out": (
        lambda kv: kv.pull_rows("w", [0, 1], out=np.zeros((2, 2), np.int64)),
        mx.errors.InvalidArgumentError,
        "pull_rows 'w': the output is int64, the key has float32; only floats convert",
    ),
    "all rows of a table": (
        lambda kv: kv.pull("t", out=sparse.zeros("row_sparse", (2**63, 2)), ignore_sparse=False),
        mx.errors.InvalidArgumentError,
        r"pull 't': the key has 2\*\*63 rows; pull_rows\(key, ids\) gives some",
    ),
    "large priority": (lambda kv: kv.pull_rows("w", [0], priority=2**40), mx.errors.InvalidArgumentError, "priority"),
    "broken priority": (
        lambda kv: kv.row_sparse_pull("w", row_ids=[0], priority=1.5),
        mx.errors.InvalidArgumentError,
        "row_sparse_pull 'w': priority 1.5",
    ),
    "text as rows": (lambda kv: kv.push_rows("w", [0], [["a", "b"]]), mx.errors.InvalidArgumentError, "push_rows 'w'"),
    "init_table dim": (lambda kv: kv.init_table("x", "a"), mx.errors.InvalidArgumentError, "dim 'a'"),
    "init_table twice": (lambda kv: kv.init_table("t", 2), mx.errors.AlreadyExistsError, "t"),
    "init_table rows": (lambda kv: kv.init_table("x", 2, rows=-1), mx.errors.InvalidArgumentError, "rows=-1"),
    "init_table of what": (
        lambda kv: kv.init_table("x", 2, initializer=mx.init.Xavier()),
        mx.errors.InvalidArgumentError,
        "Xavier",
    ),
    "init_table dtype": (
        lambda kv: kv.init_table("x", 2, dtype="complex128"),
        mx.errors.InvalidArgumentError,
        "complex128",
    ),
    "init_table mode": (lambda kv: kv.init_table("x", 2, mode="both"), mx.errors.InvalidArgumentError, "both"),
    "int keys": (lambda kv: kv.init_table(3, 2), mx.errors.InvalidArgumentError, "3"),
}


@pytest.mark.parametrize("name", ERRORS)
def test_what_cannot_be_is_an_error_that_changes_nothing(kv, name):
    kv.init(["w", "d"], [start(), mx.nd.ones((4, 2))])
    kv.init_table("t", 2)
    call, error, text = ERRORS[name]
    with pytest.raises(error, match=text):
        call(kv)
    holds(kv.pull("w"), start().asnumpy())
    holds(kv.pull("d"), np.ones((4, 2)))
    assert kv.keys() == ["w", "d", "t"]


WORDS = {
    "ids of another shape": (
        lambda kv: kv.push_rows("t", np.array([[0], [1]]), np.ones((2, 2), np.float32)),
        r"ids of shape \(2, 1\) and rows of shape \(2,\) need \(2, 1, 2\), or row_ids\.reshape\(-1\)",
    ),
    "a set": (lambda kv: kv.push_rows("t", {0}, [[1, 2]]), "ids of type set; an array.*a list"),
    "a generator": (lambda kv: kv.pull_rows("t", (n for n in [0])), "ids of type generator"),
    "None": (lambda kv: kv.pull_rows("t", None), "ids of type NoneType"),
    "text": (lambda kv: kv.pull_rows("t", "12"), "ids of type str"),
    "float64": (lambda kv: kv.push_rows("t", [0], np.ones((1, 2))), r"values\.astype\('float32'\) converts"),
    "imported float64": (lambda kv: kv.import_rows("t", [0], np.ones((1, 2))), r"values\.astype\('float32'\)"),
    "sparse float64": (lambda kv: kv.push("t", start(dtype="float64")), r"values\.astype\('float32'\)"),
    "sparse rows": (
        lambda kv: kv.push_rows("t", [0, 2], start()),
        r"RowSparseNDArray that are row-sparse.*push\(key, value\)",
    ),
    "dense": (lambda kv: kv.row_sparse_pull("t", row_ids=[0]).asnumpy(), "too large to be dense"),
    "into dense": (lambda kv: mx.nd.zeros((2,)) + kv.row_sparse_pull("t", row_ids=[0]), "too large to be dense"),
    "an extent": (lambda kv: mx.nd.zeros((2**63,)), "beyond 64 bits"),
    "a read-only output": (
        lambda kv: kv.pull_rows("t", [0, 1], out=np.broadcast_to(np.float32(0), (2, 2))),
        "^pull_rows 't': the output is read-only",
    ),
    "len": (lambda kv: len(kv.row_sparse_pull("t", row_ids=[0])), r"shape\[0\]"),
    "asscipy": (lambda kv: kv.row_sparse_pull("t", row_ids=[0]).asscipy(), "more than SciPy counts"),
}


@pytest.mark.parametrize("name", WORDS)
def test_an_error_says_what_is_taken(name):
    kv = mx.kv.create("local")
    kv.init_table("t", 2)
    call, text = WORDS[name]
    with pytest.raises(mx.errors.InvalidArgumentError, match=text):
        call(kv)
    assert kv.round("t") == 0


# ----------------------------------------------------------------------------------------------- tables and lookups


def test_pull_rows_has_the_order_and_the_shape_of_the_ids(kv):
    kv.init("w", start((4, 2, 3)))
    value = start((4, 2, 3)).asnumpy()
    ids = np.array([[2, 0, 2], [3, 3, 1]])
    np.testing.assert_array_equal(kv.pull_rows("w", ids), value[ids])
    assert type(kv.pull_rows("w", ids)) is np.ndarray
    for given in (mx.nd.array(ids), ids.tolist(), [np.int64(2), 0]):
        result = kv.pull_rows("w", given)
        assert type(result) is mx.nd.NDArray
        np.testing.assert_array_equal(result.asnumpy(), value[np.asarray(given, np.int64)])
    assert kv.pull_rows("w", 2).shape == (2, 3) and kv.pull_rows("w", np.int64(2)).shape == (2, 3)
    assert kv.pull_rows("w", []).shape == (0, 2, 3) and kv.pull_rows("w", np.zeros((2, 0))).shape == (2, 0, 2, 3)


def test_rows_of_ids_that_are_of_no_framework(kv):
    kv.init_table("t", 2, initializer=3)
    assert isinstance(kv.pull_rows("t", range(4)), mx.nd.NDArray) and kv.pull_rows("t", range(4)).shape == (4, 2)

    class Exported:
        def __dlpack__(self, **options):
            return np.array([7, 8]).__dlpack__(**options)

        def __dlpack_device__(self):
            return (1, 0)

    for ids in (array.array("q", [7, 8]), Exported()):
        found = kv.pull_rows("t", ids)
        assert type(found) is np.ndarray and found.tolist() == [[3, 3], [3, 3]]


def test_pull_rows_into_outputs(kv):
    kv.init("w", start())
    value = start().asnumpy()
    for out in (np.zeros((3, 2), np.float32), mx.nd.zeros((3, 2)), np.zeros((3, 2)), np.zeros((2, 3), np.float32).T):
        assert kv.pull_rows("w", [2, 0, 2], out=out) is None
        np.testing.assert_array_equal(np.asarray(out), value[[2, 0, 2]])
    a, b = np.zeros((1, 2), np.float32), np.zeros((2, 2), np.float32)
    kv.init("v", start())
    kv.pull_rows(["w", "v"], [[2], [0, 1]], out=[a, b])
    assert a.tolist() == [[3, 4]] and b.tolist() == [[1, 2], [0, 0]]
    both = kv.pull_rows(["w", "v"], [np.array([2]), [0]])
    assert type(both[0]) is np.ndarray and type(both[1]) is mx.nd.NDArray


@pytest.mark.parametrize(
    "ids",
    [
        [2**60 + 1, np.uint64(3)],
        [np.int64(2**60 + 1), np.uint64(3)],
        (2**60 + 1, 3.0),
        np.array([2**60 + 1, 3]),
        [np.array(2**60 + 1), 3],
    ],
)
def test_ids_keep_all_their_bits(kv, ids):
    kv.init_table("t", 1)
    kv.push_rows("t", ids, np.ones((2, 1), np.float32))
    exported = kv.export_rows("t")
    assert exported.ids.tolist() == [3, 2**60 + 1]
    assert pickle.loads(pickle.dumps(exported)).ids.tolist() == exported.ids.tolist()
    assert pickle.loads(b"ctensorkv._store.row_verbs\nTableRows\n.") is type(exported)  # a name in older pickles


@pytest.mark.parametrize(
    ("ids", "match"),
    [
        ([float(2**53)], "9007199254740992 is float64.*int64"),
        (np.array([2.0**60]), "1152921504606846976 is float64"),
        (np.array([16777216], np.float32), "16777216 is float32, which has not every whole number from 16777216 on"),
        (lambda: mx.nd.array([3, 16777217]), "16777216 is float32"),
        ([np.float16(2048)], "2048 is float16"),
        ([np.array([2**60 + 1]), np.array([3], np.uint64)], "is float64"),
        (np.array([np.inf]), "inf is no id"),
        ([1, 0.5], "0.5 is no id"),
        (np.ma.masked_array([1, 2], [0, 1]), "masked"),
    ],
)
def test_floats_that_may_have_been_other_ids_are_refused(kv, ids, match):
    kv.init_table("t", 1)
    ids = ids() if callable(ids) else ids
    with pytest.raises(mx.errors.InvalidArgumentError, match=match):
        kv.push_rows("t", ids, np.ones((2, 1), np.float32))
    assert kv.round("t") == 0 and len(kv.export_rows("t").ids) == 0


def test_floats_that_are_exact_are_ids(kv):
    kv.init_table("t", 1)
    for ids in (np.array([16777215, 3], np.float32), [2.0**53 - 1, 3], np.ma.masked_array([5, 3])):
        kv.push_rows("t", ids, np.ones((2, 1), np.float32))
    assert kv.export_rows("t").ids.tolist() == [3, 5, 16777215, 2**53 - 1]


def test_push_rows_sums_what_has_one_id(kv):
    kv.init_table("w", 2, rows=4)
    kv.push("w", start())
    kv.push_rows("w", np.array([[3, 1], [3, 3]]), np.arange(8, dtype=np.float32).reshape(2, 2, 2))
    holds(kv.pull("w"), [[1, 2], [2, 3], [3, 4], [0 + 4 + 6, 1 + 5 + 7]])
    kv.push_rows("w", mx.nd.array([0]), mx.nd.array([[5, 5]]))
    kv.push_rows("w", 0, [6, 6])
    assert kv.pull("w").asnumpy()[0].tolist() == [6, 6]
    kv.push_rows("w", [], np.zeros((0, 2), np.float32))
    kv.init("v", start())
    kv.push_rows(["w", "v"], [[1], [1, 1]], [[[8, 8]], [[1, 1], [2, 2]]])
    assert kv.pull("w").asnumpy()[1].tolist() == [8, 8] and kv.pull("v").asnumpy()[1].tolist() == [3, 3]


def test_push_rows_to_a_dense_key(alone):
    alone.init("d", mx.nd.ones((4, 2)))
    alone.push_rows("d", [1, 1], np.ones((2, 2), np.float32))
    holds(alone.pull("d"), [[0, 0], [2, 2], [0, 0], [0, 0]])


@pytest.mark.parametrize("store", ["dist_sync", "dist_async"])
def test_rows_for_a_dense_key_of_a_distributed_store(store):
    with STORES[store]() as kv:
        kv.init("d", mx.nd.ones((4, 2)))
        kv.push("d", start())
        holds(kv.pull("d"), start().asnumpy())
        kv.push_rows("d", [3, 1, 3], [[1, 2], [3, 4], [5, 6]])
        holds(kv.pull("d"), [[0, 0], [3, 4], [0, 0], [6, 8]])
        kv.push("d", [start(), mx.nd.zeros((4, 2))])  # as one dense value
        holds(kv.pull("d"), start().asnumpy())


def test_strided_rows_are_packed(kv):
    kv.init_table("t", 2)
    values = np.arange(8, dtype=np.float32).reshape(2, 4).T
    kv.push_rows("t", np.arange(10)[::2][:4], values)
    np.testing.assert_array_equal(kv.pull_rows("t", np.arange(8)[::2]), values)


def test_a_table_has_every_id_of_an_int64(kv):
    kv.init_table("t", (2, 3), "float64", initializer=0.5)
    far = [0, 2**63 - 1, 10**15]
    assert (kv.pull_rows("t", np.array(far)) == 0.5).all()
    kv.push_rows("t", far, np.arange(18.0).reshape(3, 2, 3))
    np.testing.assert_array_equal(kv.pull_rows("t", np.array(far)), np.arange(18.0).reshape(3, 2, 3))
    assert (kv.pull_rows("t", [5]).asnumpy() == 0.5).all()
    out = sparse.zeros("row_sparse", (2**63, 2, 3), dtype="float64")
    kv.row_sparse_pull("t", out=out, row_ids=far)
    assert out.indices.asnumpy().tolist() == sorted(far)
    kv.push("t", out * 2)
    assert kv.pull_rows("t", [10**15]).asnumpy().max() == 34
    vocabulary = rows(np.ones((1, 2, 3)), [7], (100, 2, 3), "float64")
    kv.push("t", vocabulary)
    assert kv.pull_rows("t", [7]).asnumpy().tolist() == np.ones((1, 2, 3)).tolist()


def test_a_table_with_an_end(kv):
    kv.init_table("t", 2, rows=5)
    kv.push_rows("t", [4], [[1, 1]])
    assert kv.pull("t").shape == (5, 2)
    with pytest.raises(mx.errors.OutOfRangeError, match="row 5"):
        kv.push_rows("t", [5], [[1, 1]])


@pytest.mark.parametrize(
    ("make", "wanted"),
    [
        (lambda: None, 0),
        (lambda: mx.init.Zero(), 0),
        (lambda: "zeros", 0),
        (lambda: mx.init.One, 1),
        (lambda: mx.init.Constant(-2), -2),
        (lambda: 3, 3),
    ],
)
def test_constant_rows(kv, make, wanted):
    kv.init_table("t", 3, initializer=make())
    assert (kv.pull_rows("t", [1, 10**9]).asnumpy() == wanted).all()


@pytest.mark.parametrize("make", [lambda: mx.init.Uniform(0.5), lambda: mx.init.Normal(0.5), lambda: "normal"])
def test_random_rows_depend_on_seed_and_id_alone(make):
    def table():
        mx.random.seed(3)
        kv = mx.kv.create("local")
        kv.init_table("t", 8, initializer=make())
        return kv

    ids = np.arange(1000)
    kv, other = table(), table()
    found = kv.pull_rows("t", ids)
    other.push_rows("t", [999], np.zeros((1, 8), np.float32))
    np.testing.assert_array_equal(found[::-1][1:], other.pull_rows("t", ids[::-1])[1:])
    np.testing.assert_array_equal(found, kv.pull_rows("t", ids))
    assert np.unique(found).size > 7000 and abs(found.mean()) < 0.05
    if make() != "normal":
        deviation = 0.5 if isinstance(make(), mx.init.Normal) else 0.5 / np.sqrt(3)
        assert abs(found.std() / deviation - 1) < 0.05


def test_rows_begin_as_the_initializer_has_them(kv):
    kv.init_table("t", 2, initializer=5)
    kv.set_optimizer(mx.optimizer.SGD(learning_rate=1))
    kv.push_rows("t", [3, 3], np.ones((2, 2), np.float32))
    assert kv.pull_rows("t", [3, 4]).asnumpy().tolist() == [[3, 3], [5, 5]]


def test_values_of_scipy(kv):
    scipy = pytest.importorskip("scipy.sparse")
    matrix = scipy.coo_matrix((np.float32([1, 2, 3]), ([3, 0, 3], [1, 0, 1])), shape=(4, 2))
    kv.init("w", matrix)
    holds(kv.pull("w"), matrix.toarray())
    kv.push("w", [matrix.tocsr(), matrix])
    holds(kv.pull("w"), 2 * matrix.toarray())


@pytest.mark.framework
def test_values_of_torch(kv):
    torch = pytest.importorskip("torch")
    table = torch.nn.Embedding(5, 2, sparse=True)
    kv.init("w", sparse.zeros("row_sparse", (5, 2)))
    kv.set_optimizer(mx.optimizer.create("test"))
    table(torch.tensor([1, 3, 1])).sum().backward()
    kv.push("w", [table.weight.grad, table.weight.grad])
    found = kv.pull_rows("w", torch.arange(5))
    assert isinstance(found, torch.Tensor) and found.tolist() == [[0, 0], [4, 4], [0, 0], [2, 2], [0, 0]]
    kv.push_rows("w", torch.tensor([[0]]), torch.ones(1, 1, 2))
    out = torch.zeros(1, 2)
    kv.pull_rows("w", torch.tensor([0]), out=out)
    assert out.tolist() == [[1, 1]]
    kv.init("v", table.weight.grad)


# ------------------------------------------------------------------------------------------------------- random programs


class Program:
    """The same calls on a store and on dense arrays of NumPy."""

    SHAPES = {0: (7, 3), 1: (5,), 2: (4, 2, 2)}

    def __init__(self, kv, seed, is_replaced):
        self.kv, self.random, self.is_replaced = kv, np.random.default_rng(seed), is_replaced
        self.values = {}
        for key, shape in self.SHAPES.items():
            value = random_rows(self.random, shape)
            if is_replaced:
                kv.init(key, value)
            else:
                kv.init_table(key, shape[1:], rows=shape[0])
                kv.push(key, value)
            self.values[key] = value.asnumpy()
        self.update = None

    def set_test(self):
        self.kv.set_optimizer(mx.optimizer.create("test", rescale_grad=0.5))
        self.update = lambda value, chosen, total: value.__setitem__(chosen, value[chosen] + 0.5 * total[chosen])

    def apply(self, key, given):
        value = self.values[key]
        total, chosen = np.zeros_like(value), set()
        for ids, data in given:
            np.add.at(total, ids, data)
            chosen |= set(ids.tolist())
        chosen = sorted(chosen)
        if self.update is None and self.is_replaced:
            value[:] = total
        elif self.update is None:
            value[chosen] = total[chosen]
        else:
            self.update(value, chosen, total)

    def keys(self):
        return [int(k) for k in self.random.choice(3, size=self.random.integers(1, 4), replace=False)]

    def push(self):
        keys = self.keys()
        values = [[random_rows(self.random, self.SHAPES[k]) for _ in range(self.random.integers(1, 4))] for k in keys]
        if len(keys) == 1:
            self.kv.push(keys[0], values[0] if len(values[0]) > 1 else values[0][0])
        else:
            self.kv.push(keys, values)
        for key, each in zip(keys, values, strict=True):
            self.apply(key, [(v.indices.asnumpy(), v.data.asnumpy()) for v in each])

    def ids(self, key):
        shape = [(), (4,), (2, 3), (0,)][self.random.integers(4)]
        return self.random.integers(0, self.SHAPES[key][0], shape)

    def push_rows(self):
        key = int(self.random.integers(3))
        ids = self.ids(key)
        data = self.random.integers(-8, 9, (*ids.shape, *self.SHAPES[key][1:])).astype(np.float32)
        self.kv.push_rows(key, ids, data)
        self.apply(key, [(ids.reshape(-1), data.reshape(-1, *self.SHAPES[key][1:]))])

    def row_sparse_pull(self):
        keys = self.keys()
        ids = [self.ids(key) for key in keys]
        outs = [[random_rows(self.random, self.SHAPES[key]) for _ in range(self.random.integers(1, 3))] for key in keys]
        self.kv.row_sparse_pull(keys, out=outs, row_ids=ids)
        for key, each, asked in zip(keys, outs, ids, strict=True):
            wanted = np.zeros_like(self.values[key])
            wanted[asked.reshape(-1)] = self.values[key][asked.reshape(-1)]
            for out in each:
                holds(out, wanted, sorted(set(asked.reshape(-1).tolist())))

    def pull_rows(self):
        key = int(self.random.integers(3))
        ids = self.ids(key)
        np.testing.assert_array_equal(self.kv.pull_rows(key, ids), self.values[key][ids])

    def pull(self):
        for key, value in self.values.items():
            np.testing.assert_array_equal(self.kv.pull(key).asnumpy(), value)
            out = random_rows(self.random, self.SHAPES[key])
            self.kv.pull(key, out=out, ignore_sparse=False)
            np.testing.assert_array_equal(out.asnumpy(), value)


@pytest.mark.parametrize("is_replaced", [True, False])
@pytest.mark.parametrize("seed", range(12))
def test_random_programs(kv, seed, is_replaced):
    program = Program(kv, seed, is_replaced)
    steps = [program.push, program.push_rows, program.row_sparse_pull, program.pull_rows, program.pull]
    for number in range(60):
        if seed % 2 and number == 20:
            program.set_test()
        steps[program.random.integers(len(steps))]()
    program.pull()


# ----------------------------------------------------------------------------------------------------------- optimizers


def sgd(weight, state, grad, t):
    state["m"] = 0.5 * state["m"] - 0.25 * (grad + 0.5 * weight)
    return weight + state["m"]


def adagrad(weight, state, grad, t):
    state["h"] = state["h"] + grad * grad
    return weight - 0.25 * (grad / (np.sqrt(state["h"]) + 1e-7) + 0.5 * weight)


def adam(weight, state, grad, t):
    grad = grad + 0.5 * weight
    state["m"] = 0.5 * state["m"] + 0.5 * grad
    state["v"] = 0.75 * state["v"] + 0.25 * grad * grad
    rate = 0.25 * np.sqrt(1 - 0.75**t) / (1 - 0.5**t)
    return weight - rate * state["m"] / (np.sqrt(state["v"]) + 1e-8)


OPTIMIZERS = {
    "sgd": (sgd, lambda **k: mx.optimizer.SGD(learning_rate=0.25, momentum=0.5, wd=0.5, **k)),
    "adagrad": (adagrad, lambda **k: mx.optimizer.AdaGrad(learning_rate=0.25, wd=0.5, **k)),
    "adam": (adam, lambda **k: mx.optimizer.Adam(learning_rate=0.25, beta1=0.5, beta2=0.75, wd=0.5, **k)),
}


@pytest.mark.parametrize("lazy", [True, False])
@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize(
    ("store", "kind"), [(store, "rows") for store in STORES] + [(store, "dense") for store in IN_ONE_PROCESS]
)
def test_optimizers_against_their_definition(store, kind, name, lazy):
    kv = STORES[store]()
    formula, make = OPTIMIZERS[name]
    random = np.random.default_rng(4)
    shape = (9, 3)
    value = random_rows(random, shape)
    kv.init("w", value if kind == "rows" else value.tostype("default"))
    kv.set_optimizer(make(lazy_update=lazy))
    weight = value.asnumpy().astype(np.float64)
    states = {state: np.zeros(shape) for state in ("m", "v", "h")}
    for t in range(1, 8):
        grads = [random_rows(random, shape, most=4) for _ in range(2)]
        kv.push("w", grads)
        total = sum(grad.asnumpy().astype(np.float64) for grad in grads)
        chosen = sorted({i for grad in grads for i in grad.indices.asnumpy().tolist()}) if lazy else list(range(9))
        part = {state: values[chosen] for state, values in states.items()}
        weight[chosen] = formula(weight[chosen], part, total[chosen], t)
        for state, values in part.items():
            states[state][chosen] = values
    np.testing.assert_allclose(kv.pull("w").asnumpy(), weight, rtol=2e-4, atol=2e-4)
    kv.close()


def test_a_lazy_optimizer_leaves_rows_that_are_not_pushed(kv):
    kv.init_table("t", 2, initializer=1)
    kv.set_optimizer(mx.optimizer.SGD(learning_rate=0.5, wd=0.5))
    kv.push_rows("t", [1, 2], np.ones((2, 2), np.float32))
    once = kv.pull_rows("t", np.array([1, 2, 3]))
    kv.push_rows("t", [1], np.ones((1, 2), np.float32))
    twice = kv.pull_rows("t", np.array([1, 2, 3]))
    assert (twice[0] < once[0]).all() and (twice[1:] == once[1:]).all() and (once[2] == 1).all()


def test_updates_of_16_bit_rows_with_masters(kv):
    kv.init("w", start(dtype="float16"))
    kv.set_optimizer(mx.optimizer.create("test", rescale_grad=2**-12, multi_precision=True))
    for _ in range(4096):
        kv.push_rows("w", [2], np.ones((1, 2), np.float16))
    holds(kv.pull("w"), [[1, 2], [0, 0], [4, 5], [0, 0]])


@pytest.mark.parametrize("mode", ["dist_sync", "dist_async"])
def test_all_workers_read_the_rows_that_rank_zero_draws(mode):
    def work(kv):
        kv.init_table("t", 3, initializer=mx.init.Uniform(0.1))
        return kv.pull_rows("t", np.array([5, 10**12]))

    with mx.testing.cluster(workers=3, servers=2, mode=mode) as job:
        first, *others = job.run(work)
    assert len(np.unique(first)) == 6
    for other in others:
        np.testing.assert_array_equal(other, first)


def test_tables_that_begin_differently_are_an_error_that_shows_both():
    def work(kv):
        if kv.rank == 0:
            kv.init_table("t", 3, initializer=mx.init.Normal(0.5))
            return
        with pytest.raises(mx.errors.InvalidArgumentError) as found:
            kv.init_table("t", 3, initializer=0.25)
        assert str(found.value) == "init_table 't': rows begin as 0.25 here, as normal(0, 0.5) in the store"

    with mx.testing.cluster(workers=2, servers=2) as job:
        job.run(work)


# --------------------------------------------------------------------------------------------------------------- keys


def test_keys_count_and_go(kv):
    kv.init("w", start())
    kv.push("w", start())
    kv.push_rows("w", [1], [[1, 1]])
    assert kv.round("w") == 2 and len(kv) == 1
    kv.delete("w")
    assert "w" not in kv
    kv.init("w", mx.nd.ones((2,)))
    holds(kv.pull("w"), np.ones(2))


def test_threads_push_rows_of_one_key():
    kv = mx.kv.create("local")
    kv.init_table("t", 4)
    kv.set_optimizer(mx.optimizer.create("test"))

    def work(number):
        random = np.random.default_rng(number)
        for _ in range(50):
            kv.push_rows("t", random.integers(0, 10, 20), np.ones((20, 4), np.float32))

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert kv.pull_rows("t", np.arange(10)).sum() == 4 * 50 * 20 * 4


def test_a_push_of_rows_counts_in_the_schedule_and_num_update(kv):
    kv.init_table("t", 1)
    optimizer = mx.optimizer.SGD(learning_rate=1, lr_scheduler=lambda count: 1.0 / count if count else 1.0)
    kv.set_optimizer(optimizer)
    for _ in range(2):
        kv.push_rows("t", [0], np.ones((1, 1), np.float32))
    assert kv.pull_rows("t", [0]).asscalar() == -1.5 and optimizer.num_update == 2


# -------------------------------------------------------------------------------------------------------------- MXNet


def test_the_oracle_has_every_case():
    assert list(ORACLE) == list(dict.fromkeys(CASES))


@pytest.mark.parametrize("case", dict.fromkeys(CASES))
def test_a_case_gives_what_mxnet_gives(case):
    *found, elements = result(mx, case)
    *wanted, numbers = ORACLE[case]
    assert found == wanted
    np.testing.assert_allclose([float(x) for x in elements], [float(x) for x in numbers], 1e-5, 1e-5)
