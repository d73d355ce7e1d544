"""Tables whose rows are partly on a disk: the same as tables in memory, in every store."""

import numpy as np
import pytest
import tensorkv as mx
from tensorkv.errors import FailedPreconditionError, InvalidArgumentError

KINDS = ["local", "dist_sync", "dist_async"]


def store(kind, folder=None):
    options = {} if folder is None else {"rows_dir": folder}
    return (
        mx.kv.create(kind, **options) if kind == "local" else mx.kv.create(kind, bootstrap="self", servers=2, **options)
    )


@pytest.mark.parametrize("kind", KINDS)
def test_a_table_on_disk_is_the_same_as_one_in_memory(kind, tmp_path):
    random = np.random.default_rng(3)
    with store(kind, tmp_path) as kv, store(kind) as twin:
        for each, memory in ((kv, 40_000), (twin, None)):
            each.set_optimizer(mx.optimizer.Adam(learning_rate=0.1))
            mx.random.seed(5)
            each.init_table("t", 16, initializer=mx.init.Normal(1), admit=2, evict={"age": 30}, memory=memory)
        for step in range(40):
            ids = random.integers(0, 3000, 300)
            rows = random.standard_normal((300, 16)).astype(np.float32)
            for each in (kv, twin):
                each.push_rows("t", ids, rows)
            if step % 8 == 0:
                asked = random.integers(0, 3000, 500)
                np.testing.assert_array_equal(kv.pull_rows("t", asked), twin.pull_rows("t", asked))
        stats, wanted = kv.table_stats("t"), twin.table_stats("t")
        assert stats["disk_rows"] > 1000 and stats["disk_bytes"] > 0 and wanted["disk_rows"] == 0
        assert {name: stats[name] for name in ("rows", "candidates", "evicted", "version")} == {
            name: wanted[name] for name in ("rows", "candidates", "evicted", "version")
        }
        some, others = kv.export_rows("t"), twin.export_rows("t")
        np.testing.assert_array_equal(some.ids, others.ids)
        np.testing.assert_array_equal(some.values.asnumpy(), others.values.asnumpy())
        # A snapshot has all rows, and goes into stores that bound memory and into those that do not.
        kv.save(str(tmp_path / "saved"))
        twin.load(str(tmp_path / "saved"))
        kv.load(str(tmp_path / "saved"))
        assert kv.table_stats("t")["disk_rows"] > 1000
        for each in (kv, twin):
            each.push_rows("t", ids, rows)
        np.testing.assert_array_equal(kv.pull_rows("t", np.arange(3000)), twin.pull_rows("t", np.arange(3000)))
        kv.import_rows("t", ids[:1], np.zeros((1, 16), np.float32))
        assert not kv.pull_rows("t", ids[:1]).any()
    assert [path.name for path in tmp_path.iterdir()] == ["saved"]


@pytest.mark.parametrize("kind", KINDS)
def test_memory_needs_a_folder(kind):
    with store(kind) as kv:
        with pytest.raises(FailedPreconditionError, match=r"init_table 't'.*rows_dir is not set"):
            kv.init_table("t", 4, memory=1 << 20)
        kv.init_table("t", 4)


@pytest.mark.parametrize("kind", KINDS)
def test_a_folder_that_is_none(kind):
    with pytest.raises(
        FailedPreconditionError,
        match="rows_dir '/nowhere/at/all': rows cannot be kept there: No such file or directory",
    ):
        store(kind, "/nowhere/at/all")


@pytest.mark.parametrize("memory", [0, -1, 1.5, True, "1GiB", 2**63])
def test_memory_that_is_no_number_of_bytes(memory, tmp_path):
    with store("local", tmp_path) as kv, pytest.raises(InvalidArgumentError, match=r"init_table 't': memory="):
        kv.init_table("t", 4, memory=memory)


def test_rows_that_stay_by_their_norm_are_in_memory(tmp_path):
    with store("local", tmp_path) as kv, pytest.raises(InvalidArgumentError, match="init_table 't'.*norm"):
        kv.init_table("t", 4, memory=1 << 20, evict={"rows": 10, "by": "norm"})


@pytest.mark.parametrize("kind", ["local", "dist_sync"])
def test_an_optimizer_that_updates_all_rows_needs_them_in_memory(kind, tmp_path):
    with store(kind, tmp_path) as kv:
        kv.set_optimizer(mx.optimizer.SGD(learning_rate=0.1, momentum=0.9, lazy_update=False))
        kv.init_table("t", 64, memory=1000)
        kv.push_rows("t", np.arange(100), np.ones((100, 64), np.float32))
        with pytest.raises(FailedPreconditionError, match="'t'.*rows are on a disk"):
            kv.push_rows("t", [1], np.ones((1, 64), np.float32))
            kv.pull_rows("t", np.array([1]))
