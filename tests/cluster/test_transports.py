"""The ways that values take between processes of one host: the same results by each, and none that hangs."""

import signal

import pytest
from jobs import finish

SIZES = """
sizes = [1, 1000, 16384, 300_000, 2_000_000]  # up to the socket, shared memory, several chunks
keys = [str(i) for i in range(len(sizes))]
kv = mx.kv.create("dist_sync")
kv.init(keys, [mx.nd.zeros((n,)) for n in sizes])
outs = [mx.nd.zeros((n,)) for n in sizes]
for step in range(6):
    values = [mx.nd.array(np.arange(n, dtype=np.float32) % 97 + step + kv.rank) for n in sizes]
    if step % 2:
        kv.pushpull(keys, values, out=outs)
    else:
        kv.push(keys, values)
        kv.pull(keys, out=outs)
    for n, out in zip(sizes, outs):
        expected = kv.num_workers * (np.arange(n, dtype=np.float32) % 97 + step) + sum(range(kv.num_workers))
        assert np.array_equal(out.asnumpy(), expected), (step, n)
print("right", flush=True)
kv.close()
"""


@pytest.mark.parametrize("transport", ["auto", "unix", "tcp"])
def test_values_of_all_sizes_arrive_by_every_transport(processes, transport):
    status, said = finish(processes.launch(SIZES, workers=3, TKV_TRANSPORT=transport))
    assert status == 0 and said.count("right") == 3, said


def test_what_leaves_by_tcp_is_encrypted_where_that_is_wanted(processes):
    counted = SIZES.replace(
        "kv.close()", "t = kv.stats()['traffic']; print('encrypted', t['encrypted_out_bytes'] > 5e7)"
    )
    for tls, encrypted in (("on", "True"), ("off", "False"), ("auto", "False")):  # within a host
        status, said = finish(processes.launch(counted, workers=2, TKV_TRANSPORT="tcp", TKV_TLS=tls))
        assert status == 0 and said.count("right") == 2, said
        assert said.count(f"encrypted {encrypted}") == 2, (tls, said)


def test_tls_without_a_token_is_an_error(processes):
    wishes = {"TKV_TLS": "on", "TKV_INSECURE_NETWORK": "1"}
    status, said = finish(processes.launch("mx.kv.create('dist_sync')", workers=1, servers=1, **wishes))
    assert status != 0
    assert "tls='on' and insecure_network: the keys of TLS are derived from the token" in said, said


def test_a_transport_that_is_none_is_named(processes):
    status, said = finish(processes.launch("mx.kv.create('dist_sync', transport='pigeon')", workers=1, servers=1))
    assert status != 0
    assert "create: transport='pigeon': one of auto, unix, tcp is needed" in said, said


def test_where_shared_memory_is_not_allowed_one_warning_says_so(processes):
    text = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))\n" + SIZES
    status, said = finish(processes.launch(text, workers=1, servers=1, TKV_LOG="warning"))
    assert status == 0 and "right" in said, said
    assert said.count("shared memory") == 1, said


def test_a_worker_that_is_killed_amid_large_values_is_named_at_once(processes):
    text = """
    kv = mx.kv.create("dist_sync")
    value, out = mx.nd.ones((8_000_000,)), mx.nd.zeros((8_000_000,))
    kv.init("w", value)
    if kv.rank == 1:
        import threading
        threading.Timer(0.7, lambda: os.kill(os.getpid(), signal.SIGKILL)).start()
    try:
        while True:
            before = time.time()
            kv.pushpull("w", value, out=out)
            assert out.asnumpy().min() == out.asnumpy().max() == 2
    except mx.errors.UnavailableError as error:
        print(f"after {time.time() - before:.2f} s: {error}", flush=True)
        assert time.time() - before < 3
        sys.exit(7)
    """
    status, said = finish(processes.launch(text, "--grace", "5"))
    assert "worker 1 was killed by signal 9" in said
    assert "worker 1" in said.partition("after ")[2], said
    assert status == 128 + signal.SIGKILL
