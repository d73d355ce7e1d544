"""Counters of ``kv.stats()``: exact numbers for known work on every kind of store."""

import numpy as np
import pytest
import tensorkv as mx

VERBS = "init push pull pushpull broadcast barrier delete set_updater set_optimizer save load".split()
CAUSES = "key array accepted answer round pull order link credit window pull_bytes".split()
TRAFFIC = {f"{way}_{where}_bytes" for way in ("wire", "shared", "encrypted") for where in ("out", "in")}


def work(kv):
    """Do known work and return the stats after it: 100 floats, 400 bytes."""
    kv.init("w", mx.nd.zeros((100,)))
    kv.init(["a", "b"], [mx.nd.zeros((1,))] * 2)
    for _ in range(3):
        kv.push("w", mx.nd.ones((100,)))
        kv.pull("w", out=mx.nd.zeros((100,)))
    kv.pushpull(["a", "b"], [mx.nd.ones((1,))] * 2, out=[mx.nd.zeros((1,)) for _ in range(2)])
    kv.push("w", np.ones(100, np.float32), async_op=True).wait()
    kv.barrier()
    with pytest.raises(mx.errors.KeyNotFoundError):
        kv.pull("none", out=mx.nd.zeros((1,)))
    return kv.stats()


def check(stats):
    assert list(stats["verbs"]) == VERBS and list(stats["waits"]) == CAUSES
    called = {verb: (n["calls"], n["failed"]) for verb, n in stats["verbs"].items() if n["calls"]}
    assert called == {"init": (2, 0), "push": (4, 0), "pull": (4, 1), "pushpull": (1, 0), "barrier": (1, 0)}
    assert stats["bytes"] == {"init_bytes": 408, "pushed_bytes": 1608, "pulled_bytes": 1208}
    assert stats["rounds"] == 6 and stats["key_count"] == 3
    assert list(stats["keys"]) == ["w", "a", "b"]
    assert stats["keys"]["w"] == {"rounds": 4, "init_bytes": 400, "pushed_bytes": 1600, "pulled_bytes": 1200}
    assert stats["operations_under_way"] == 0 and stats["resends"] == 0 and stats["reconnects"] == 0
    assert set(stats["traffic"]) == TRAFFIC
    assert 0 <= stats["age_seconds"] < 600


def check_peers(stats, servers):
    assert list(stats["peers"]) == ["head", *(f"server {i}" for i in range(servers))]
    for name, peer in stats["peers"].items():
        assert peer["state"] == "open" and peer["connections"] == 1, name
        assert peer["queued_messages"] == peer["queued_bytes"] == peer["unaccepted_bytes"] == 0
        assert 0 <= peer["last_word_seconds"] < 60 and peer["resends"] == 0
    for way in TRAFFIC:
        assert stats["traffic"][way] == sum(peer[way] for peer in stats["peers"].values())


@pytest.mark.parametrize("kind", ["local", "device"])
def test_a_store_of_one_process(kind):
    with mx.kv.create(kind) as kv:
        stats = work(kv)
    check(stats)
    assert stats["peers"] == {} and set(stats["traffic"].values()) == {0}
    assert all(wait == {"count": 0, "wait_seconds": 0.0} for wait in stats["waits"].values())


@pytest.mark.parametrize("kind", ["dist_sync", "dist_async"])
def test_a_job_of_one_worker(kind):
    with mx.kv.create(kind, bootstrap="self", servers=1) as kv:
        stats = work(kv)
    check(stats)
    check_peers(stats, servers=1)
    assert stats["traffic"]["wire_out_bytes"] >= 408 + 1608
    assert stats["traffic"]["wire_in_bytes"] >= 1208
    assert stats["waits"]["answer"]["count"] >= 4 and stats["waits"]["link"]["count"] == 1


def test_every_worker_of_a_cluster():
    with mx.testing.cluster(workers=3, servers=1) as job:
        for stats in job.run(work):
            check(stats)
            check_peers(stats, servers=1)


def test_the_failure_of_a_ticket_is_its_verbs():
    def wait_for_the_other(kv):
        kv.init("w", mx.nd.zeros((2,)))
        if kv.rank == 0:
            ticket = kv.pushpull("w", mx.nd.ones((2,)), async_op=True)
            assert kv.stats()["operations_under_way"] == 1
            assert ticket.cancel()
            with pytest.raises(mx.errors.KVError):
                ticket.wait()
            verb = kv.stats()["verbs"]["pushpull"]
            kv.barrier()
            return verb
        kv.barrier()
        return None

    with mx.testing.cluster(workers=2, servers=1) as job:
        assert job.run(wait_for_the_other)[0] == {"calls": 1, "failed": 1}


def test_a_closed_store_has_none():
    kv = mx.kv.create("local")
    kv.close()
    with pytest.raises(mx.errors.FailedPreconditionError, match="stats: the store is closed"):
        kv.stats()


def test_looking_changes_nothing():
    with mx.kv.create("local") as kv:
        kv.init("w", mx.nd.zeros((2,)))
        first, second = kv.stats(), kv.stats()
        first.pop("age_seconds"), second.pop("age_seconds")
        assert first == second
