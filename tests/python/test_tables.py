"""Tables: which rows they keep, their own optimizers, and rows that go out of them and into them."""

import contextlib
import threading

import numpy as np
import pytest
import tensorkv as mx
from tensorkv import _core

ONES = np.ones((2, 4), np.float32)


def test_the_nth_push_makes_a_row():
    kv = mx.kv.create("local")
    kv.init_table("t", 4, initializer=mx.init.Constant(3), admit=3)
    for n in range(4):
        kv.push_rows("t", [1, 10 + n], ONES * n)
        assert (np.asarray(kv.pull_rows("t", np.array([1])))[0] == (3 if n < 2 else n)).all()
    stats = kv.table_stats("t")
    assert (stats["rows"], stats["candidates"], stats["version"]) == (1, 4, 4)
    assert stats["memory_bytes"] > 0


def test_rows_that_are_not_pushed_grow_old():
    kv = mx.kv.create("local")
    kv.init_table("t", 4, evict={"age": 2})
    kv.set_optimizer(mx.optimizer.SGD(learning_rate=1, momentum=0.5))
    kv.push_rows("t", [1, 2], ONES)
    seen = []
    for _ in range(4):
        kv.push_rows("t", [2], ONES[:1])
        seen.append(kv.pull_rows("t", np.array([1]))[0, 0])
    assert seen == [-1, -1, 0, 0]
    kv.push_rows("t", [1], ONES[:1])
    assert kv.pull_rows("t", np.array([1]))[0, 0] == -1  # without momentum of its former life
    assert kv.table_stats("t")["evicted"] == 1
    assert kv.export_rows("t").ids.tolist() == [1, 2]


@pytest.mark.parametrize("by", ["age", "count", "norm"])
def test_of_too_many_rows_the_lowest_go(by):
    kv = mx.kv.create("local")
    kv.init_table("t", 1, evict={"rows": 32, "by": by})
    for n in range(40):
        value = 100 if n == 5 else 1
        kv.push_rows("t", [n], np.full((1, 1), value, np.float32))
        if n < 39:
            kv.push_rows("t", [7], np.full((1, 1), 1, np.float32))
    kept = kv.export_rows("t").ids.tolist()
    assert len(kept) <= 32 and kv.table_stats("t")["evicted"] >= 40 - len(kept)  # one may go and come back
    assert {"age": 39, "count": 7, "norm": 5}[by] in kept
    assert (0 in kept) == (by == "norm" and 0 in kept)


def test_an_export_has_what_has_changed_since():
    kv = mx.kv.create("local")
    kv.init_table("t", 4)
    kv.push_rows("t", [5, 10**15], ONES)
    seen = kv.export_rows("t")
    assert seen.ids.tolist() == [5, 10**15] and (seen.values.asnumpy() == 1).all() and seen.version == 1
    kv.push_rows("t", [7], ONES[:1])
    assert kv.export_rows("t", since=seen.version).ids.tolist() == [7]
    assert kv.export_rows("t", 6, 8).ids.tolist() == [7]
    assert kv.export_rows("t", since=2).ids.tolist() == []
    with pytest.raises(mx.errors.OutOfRangeError, match="since=3.*version 2"):
        kv.export_rows("t", since=3)
    other = mx.kv.create("local")
    other.init_table("t", 4)
    other.import_rows("t", seen.ids, seen.values)
    assert (other.pull_rows("t", seen.ids) == 1).all()
    assert other.export_rows("t").ids.tolist() == seen.ids.tolist()


def test_a_table_has_an_optimizer_of_its_own():
    kv = mx.kv.create("local")
    optimizer = mx.optimizer.SGD(learning_rate=0.5)
    kv.init_table("own", 4, optimizer=optimizer)
    kv.init_table("other", 4)
    kv.init("dense", mx.nd.zeros((2,)))
    kv.set_optimizer(mx.optimizer.SGD(learning_rate=1))
    kv.push_rows(["own", "other"], [[1], [1]], [ONES[:1], ONES[:1]])
    kv.push("dense", mx.nd.ones((2,)))
    assert kv.pull_rows("own", np.array([1]))[0, 0] == -0.5
    assert kv.pull_rows("other", np.array([1]))[0, 0] == -1
    optimizer.learning_rate = 0.25
    kv.push_rows(["own", "other"], [[1], [1]], [ONES[:1], ONES[:1]])
    assert kv.pull_rows("own", np.array([1]))[0, 0] == -0.75
    assert kv.pull_rows("other", np.array([1]))[0, 0] == -2
    assert optimizer.num_update == 2
    kv.set_optimizer(mx.optimizer.Adam())
    kv.push_rows("own", [1], ONES[:1])
    assert kv.pull_rows("own", np.array([1]))[0, 0] == -1


@pytest.mark.parametrize("where", ["local", "dist_sync"])
def test_the_states_of_a_whole_snapshot_leave_the_values(where, tmp_path):
    def store():
        kv = mx.kv.create(where, **({"bootstrap": "self"} if where == "dist_sync" else {}))
        kv.init_table("t", 4)
        kv.set_optimizer(mx.optimizer.SGD(learning_rate=1, momentum=0.5))
        return kv

    with store() as kv:
        kv.push_rows("t", [1], ONES[:1])
        kv.save(tmp_path / "whole")
    with store() as kv:
        kv.push_rows("t", [1, 2], ONES * 8)
        kv.load_optimizer_states(tmp_path / "whole")
        assert kv.pull_rows("t", [1, 2])[:, 0].tolist() == [-8, -8]
        kv.push_rows("t", [1, 2], ONES)
        assert kv.pull_rows("t", [1, 2])[:, 0].tolist() == [-9.5, -9]  # with the momentum of the snapshot


@pytest.mark.parametrize("where", ["local", "dist_sync"])
def test_rows_that_are_drawn_load_where_the_seed_is_the_same(where, tmp_path):
    def store(seed):
        mx.random.seed(seed)
        kv = mx.kv.create(where, **({"bootstrap": "self"} if where == "dist_sync" else {}))
        kv.init_table("t", 4, initializer=mx.init.Normal(1))
        return kv

    with store(7) as kv:
        kv.push_rows("t", [1], ONES[:1])
        kv.save(tmp_path / "whole")
        unseen = kv.pull_rows("t", [5]).tolist()
    with store(8) as kv, pytest.raises(mx.errors.InvalidArgumentError, match=r"tkv\.random\.seed before init_table"):
        kv.load(tmp_path / "whole")
    with store(7) as kv:
        kv.load(tmp_path / "whole")
        assert kv.pull_rows("t", [1, 5]).tolist() == [[1] * 4, *unseen]


def test_a_schedule_of_a_table_counts_its_pushes(capsys):
    kv = mx.kv.create("local")
    kv.init("dense", mx.nd.zeros((2,)))
    main = mx.optimizer.SGD(learning_rate=1)
    kv.set_optimizer(main)
    schedule = mx.lr_scheduler.FactorScheduler(step=1, factor=0.5, base_lr=1.0)
    kv.init_table("data", 4, optimizer=mx.optimizer.SGD(lr_scheduler=schedule))
    asked = []
    code = mx.optimizer.SGD(lr_scheduler=lambda n: asked.append(n) or 1.0 / n)
    kv.init_table("code", 4, optimizer=code)
    for _ in range(3):
        kv.push("dense", mx.nd.ones((2,)))
    for _ in range(3):
        kv.push_rows(["data", "code"], [[1], [1]], [ONES[:1], ONES[:1]])
    assert kv.pull_rows("data", np.array([1]))[0, 0] == pytest.approx(-1.75)
    assert kv.pull_rows("code", np.array([1]))[0, 0] == pytest.approx(-(1 + 0.5 + 1 / 3))
    assert asked == [1, 2, 3] and main.num_update == 3 and code.num_update == 3
    kv.explain("data")
    assert "its own" in capsys.readouterr().out


def test_a_function_updates_other_keys_beside_it():
    kv = mx.kv.create("local")
    kv.init_table("own", 4, optimizer=mx.optimizer.SGD())
    kv.init_table("none", 4)
    kv.init("dense", mx.nd.zeros((2,)))

    def update(key, grad, weight):
        weight += grad * 2

    kv.set_updater(update)
    kv.push("dense", mx.nd.ones((2,)))
    kv.push_rows("own", [1], ONES[:1])
    assert kv.pull("dense").asnumpy().tolist() == [2, 2]
    assert kv.pull_rows("own", np.array([1]))[0, 0] < 0
    with pytest.raises(mx.errors.UnimplementedError, match="init_table"):
        kv.push_rows("none", [1], ONES[:1])


@pytest.mark.parametrize(
    ("given", "match"),
    [
        ({"admit": 0}, "admit=0"),
        ({"admit": 2.0}, "admit=2.0"),
        ({"admit": True}, "admit=True"),
        ({"evict": {}}, "evicts nothing"),
        ({"evict": 5}, "a dict"),
        ({"evict": {"age": -1}}, "'age': -1"),
        ({"evict": {"by": "age"}}, "evicts nothing"),
        ({"evict": {"age": 3, "by": "age"}}, "'by'"),
        ({"evict": {"rows": 3, "by": "size"}}, "'size'"),
        ({"evict": {"ages": 3}}, "'ages'"),
        ({"notes": 1}, "notes=1"),
        ({"optimizer": "adagrad"}, r"type str.*tkv\.optimizer\.create\('adagrad'\) makes one"),
        ({"optimizer": mx.optimizer.AdaGrad}, r"AdaGrad\(\) makes one"),
        ({"optimizer": 5}, "type int"),
        ({"rows": 2**64}, "rows=18446744073709551616"),
        ({"dim": -1}, "dim -1"),
        ({"dim": (2, 2**63)}, r"dim \(2, 9223372036854775808\)"),
        ({"dim": 2**62}, "4611686018427387904"),
        ({"dim": 2**25}, "16777216 bytes"),
        ({"dtype": "float31"}, "dtype 'float31' is not supported; float16"),
        ({"initializer": [1, 2]}, "initializer list"),
        ({"initializer": 0.5, "dtype": "int32"}, "0.5"),
        ({"dtype": "int32", "evict": {"rows": 3, "by": "norm"}}, "no norm"),
        ({"dim": (1,) * 32}, "rows of 32 axes, at most 31"),
        ({"initializer": 1e6, "dtype": "float16"}, "constant 1000000.*infinite as float16"),
        ({"initializer": -65520.0, "dtype": "float16"}, "infinite as float16"),
        ({"initializer": 1e39, "dtype": "bfloat16"}, "infinite as bfloat16"),
        ({"initializer": 1e39}, "infinite as float32"),
        ({"initializer": mx.init.Uniform(1e5), "dtype": "float16"}, "infinite as float16"),
        ({"initializer": mx.init.Normal(3e4), "dtype": "float16"}, "infinite as float16"),
    ],
)
@pytest.mark.parametrize("type", ["local", "dist_sync"])
def test_what_cannot_be_is_refused(type, given, match):
    with mx.kv.create(type, **({"bootstrap": "self"} if type == "dist_sync" else {})) as kv:
        with pytest.raises(mx.errors.InvalidArgumentError, match=f"^init_table 't': .*{match}"):
            kv.init_table("t", **{"dim": 4, **given})
        assert "t" not in kv


@pytest.mark.parametrize("type", ["local", "dist_sync"])
def test_the_largest_rows_that_a_table_can_have_are_taken(type):
    with mx.kv.create(type, **({"bootstrap": "self"} if type == "dist_sync" else {})) as kv:
        kv.init_table("axes", (1,) * 31)
        kv.push_rows("axes", [3], np.ones((1,) * 32, np.float32))
        assert np.ravel(kv.pull_rows("axes", [3])).tolist() == [1]
        kv.init_table("largest", 1, "float16", 65504.0)
        kv.init_table("uniform", 1, "float16", mx.init.Uniform(65504.0))
        kv.init_table("normal", 1, "float16", mx.init.Normal(7000.0))
        for key in ("largest", "uniform", "normal"):
            assert np.isfinite(kv.pull_rows(key, np.arange(2000))).all()


def test_a_table_cannot_have_an_optimizer_that_needs_more():
    kv = mx.kv.create("local")
    with pytest.raises(mx.errors.InvalidArgumentError, match="whole"):
        kv.init_table("t", 4, optimizer=mx.optimizer.LAMB())

    class Mine(mx.optimizer.SGD):
        def update(self, index, weight, grad, state):
            pass

    with pytest.raises(mx.errors.InvalidArgumentError, match="Python code"):
        kv.init_table("t", 4, optimizer=Mine())
    assert "t" not in kv
    kv.init_table("t", 4, optimizer=mx.optimizer.SGD())
    with pytest.raises(mx.errors.AlreadyExistsError, match="^init_table 't': "):
        kv.init_table("t", 4, optimizer=mx.optimizer.SGD())
    kv.delete("t")
    kv.init_table("t", 4)
    kv.push_rows("t", [1], ONES[:1])
    assert kv.pull_rows("t", np.array([1]))[0, 0] == 1  # assigned: the own optimizer went with the key


def test_a_push_of_no_rows_is_a_part_of_the_round():
    def work(kv):
        kv.init_table("t", 4)
        for n in range(3):
            ids = [n] if kv.rank == 0 else []
            kv.push_rows("t", ids, ONES[: len(ids)])
        out = kv.pull_rows("t", np.arange(3))
        return (out == 1).all() and kv.round("t") == 3

    with mx.testing.cluster(workers=2, servers=2, patience=20) as job:
        assert job.run(work) == [True, True]


def test_a_job_has_what_one_process_has():
    def work(kv):
        optimizer = mx.optimizer.AdaGrad(learning_rate=0.5)
        kv.init_table("t", 4, optimizer=optimizer, admit=2, evict={"age": 3})
        for n in range(6):
            kv.push_rows("t", [n, 100], ONES * (kv.rank + 1))
            if n == 3:
                optimizer.learning_rate = 0.25
        return kv.pull_rows("t", np.arange(101)), kv.table_stats("t"), kv.round("t")

    local = mx.kv.create("local")
    optimizer = mx.optimizer.AdaGrad(learning_rate=0.5)
    local.init_table("t", 4, optimizer=optimizer, admit=2, evict={"age": 3})
    for n in range(6):
        local.push_rows("t", [n, 100], ONES * 3)
        if n == 3:
            optimizer.learning_rate = 0.25
    with mx.testing.cluster(workers=2, servers=2, patience=20) as job:
        for rows, stats, rounds in job.run(work):
            np.testing.assert_array_equal(rows, local.pull_rows("t", np.arange(101)))
            assert stats["version"] == rounds == 6


def test_one_rank_imports_between_barriers():
    def work(kv):
        kv.init_table("t", 4)
        kv.push_rows("t", [1], ONES[:1])
        kv.barrier()
        if kv.rank == 0:
            kv.import_rows("t", [1, 2], ONES * 7)
        else:
            with pytest.raises(mx.errors.FailedPreconditionError, match="lowest rank"):
                kv.import_rows("t", [1, 2], ONES)
        kv.barrier()
        with pytest.raises(mx.errors.InvalidArgumentError, match="own optimizer"):
            kv.init_table("u", 4, optimizer=mx.optimizer.SGD() if kv.rank == 0 else mx.optimizer.Adam())
            assert kv.rank == 0
            raise mx.errors.InvalidArgumentError("own optimizer")
        return kv.pull_rows("t", np.array([1, 2]))

    with mx.testing.cluster(workers=2, servers=2, patience=20) as job:
        for rows in job.run(work):
            assert (rows == 7).all()


def test_a_job_notes_what_its_eviction_needs():
    def train(kv):
        for key, evict in (("a", {"age": 5}), ("b", {"rows": 5, "by": "count"})):
            kv.init_table(key, 4, evict=evict, notes=False)
            kv.push_rows(key, [1, 2], ONES)
            seen = kv.export_rows(key).version
            kv.push_rows(key, [2], ONES[:1])
            assert kv.export_rows(key, since=seen).ids.tolist() == [2]

    train(mx.kv.create("local"))
    with mx.testing.cluster(workers=1) as job:
        job.run(train)


def test_exports_of_several_workers_take_turns():
    def train(kv):
        kv.init_table("t", 4)
        kv.push_rows("t", range(50_000), np.ones((50_000, 4), np.float32))
        kv.barrier()
        for _ in range(20):
            assert len(kv.export_rows("t").ids) == 50_000
        kv.barrier()
        kv.push_rows("t", [7], ONES[:1])
        assert (kv.pull_rows("t", np.array([7])) == 3).all()

    with mx.testing.cluster(workers=3, servers=2, patience=60) as job:
        job.run(train)


def test_threads_that_name_tables_in_other_orders_do_not_wait_for_each_other():
    kv = mx.kv.create("local")
    keys, inside = ["a", "b"], threading.Barrier(2)

    def rate(_):
        with contextlib.suppress(threading.BrokenBarrierError):
            inside.wait(0.2)  # both threads are in their first turn, if they can
        return 1.0

    for key in keys:
        kv.init_table(key, 4, optimizer=mx.optimizer.SGD(learning_rate=1.0, lr_scheduler=rate))

    def push(named):
        kv.push_rows(named, [[1]] * 2, [-ONES[:1]] * 2)

    threads = [threading.Thread(target=push, args=(named,), daemon=True) for named in (keys, keys[::-1])]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert not any(thread.is_alive() for thread in threads)
    assert (kv.pull_rows("b", np.array([1])) == 2).all()


@pytest.mark.parametrize("where", ["local", "job"])
def test_an_id_that_is_imported_is_counted_no_longer(where):
    def train(kv):
        kv.init_table("t", 4, admit=3, evict={"rows": 4, "by": "norm"})
        kv.push_rows("t", [5, 6], ONES)
        kv.push_rows("t", [5, 6], ONES)
        kv.import_rows("t", [5], ONES[:1])
        stats = kv.table_stats("t")
        assert (stats["rows"], stats["candidates"]) == (1, 1)

    if where == "local":
        train(mx.kv.create("local"))
    else:
        with mx.testing.cluster(workers=1) as job:
            job.run(train)


def test_the_core_refuses_what_is_no_kind_and_no_score():
    for name in ("", "Uniform", "none"):
        with pytest.raises(mx.errors.InvalidArgumentError, match=f"no initializer '{name}'"):
            _core.RowInitializer(name)
        with pytest.raises(mx.errors.InvalidArgumentError, match=f"no score '{name}'"):
            _core.RowPolicy(rows_max=5, score=name)
    for number in (-1, 2**64):
        with pytest.raises((TypeError, OverflowError)):
            _core.RowPolicy(age_max=number)


def test_a_tree_and_a_list_take_the_locks_of_their_schedules_in_one_order():
    """Two threads push the same keys, one as a tree and one as a list, and each key has a schedule that is Python code."""

    class Same(mx.lr_scheduler.LRScheduler):
        def __call__(self, num_update):
            return 0.1

    grad = np.ones((2, 2), np.float32)
    rows = mx.nd.sparse.row_sparse_array((grad, [0, 1]), shape=(4, 2))
    for _ in range(5):  # the order of the locks depends on addresses
        kv = mx.kv.create("local")
        kv.init("a", np.zeros((2, 2), np.float32))
        kv.set_optimizer(mx.optimizer.SGD(lr_scheduler=Same()))
        kv.init_table("t", 2, rows=4, optimizer=mx.optimizer.SGD(lr_scheduler=Same()))
        calls = [lambda: kv.push({"a": grad, "t": rows}), lambda: kv.push(["a", "t"], [grad, rows])]
        threads = [
            threading.Thread(target=lambda call=call: [call() for _ in range(300)], daemon=True) for call in calls
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        assert not any(thread.is_alive() for thread in threads) and kv.round("a") == kv.round("t") == 600
