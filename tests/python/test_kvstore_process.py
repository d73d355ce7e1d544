"""A store in its process: threads, the interpreter's lock, forked and spawned children, import and exit."""

import subprocess
import sys
import threading

import pytest
import tensorkv as mx

S = (2, 3)


def value_of(kv, key):
    return kv.pull(key).asnumpy().ravel().tolist()[0]


def test_two_threads_lose_nothing():
    kv = mx.kv.create("local")
    kv.init(["a", "b"], [mx.nd.zeros(S)] * 2)
    kv.set_updater(lambda key, sum, stored: stored.__iadd__(sum))
    errors = []

    def work():
        try:
            for _ in range(200):
                kv.push(["a", "b"], [mx.nd.ones(S)] * 2)
                kv.pull("a")
        except Exception as error:  # reported below, on the test's thread
            errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(2)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert errors == [] and value_of(kv, "a") == 400 and value_of(kv, "b") == 400


def test_waiting_for_another_thread_has_a_deadline():
    kv = mx.kv.create("local", patience_ms=50)
    kv.init(1, mx.nd.zeros(S))
    inside, leave = threading.Event(), threading.Event()

    def update(key, sum, stored):
        inside.set()
        leave.wait(30)

    kv.set_updater(update)
    pusher = threading.Thread(target=kv.push, args=(1, mx.nd.ones(S)))
    pusher.start()
    assert inside.wait(30)
    for call in (kv.pull, kv.delete):
        with pytest.raises(TimeoutError, match=f"{call.__name__} 1: another thread has used the key for 50 ms"):
            call(1)
    leave.set()
    pusher.join()


def test_no_gil_while_the_core_works():
    kv = mx.kv.create("local", threads=1)
    big = mx.nd.ones((64 << 20,))
    kv.init(1, big)
    count, started, stop = [0], threading.Event(), threading.Event()

    def counter():
        while not stop.is_set():
            count[0] += 1
            started.set()

    thread = threading.Thread(target=counter)
    thread.start()
    assert started.wait(30)
    during = 0
    for _ in range(50):  # where other programs have both cores it may have to wait for one
        before = count[0]
        kv.push(1, [big, big])
        during = count[0] - before
        if during > 100:
            break
    stop.set()
    thread.join()
    assert during > 100


# ----------------------------------------------------------------------------------------------------------------- fork

FORK = """
import os, sys, multiprocessing
import tensorkv as mx
mx._core._warn_of_leaks(True)
kv = mx.kv.create('local')
kv.init(1, mx.nd.ones((300, 1000)))
kv.push(1, [mx.nd.ones((300, 1000))] * 4)

def child():
    for verb in (lambda: kv.push(1, mx.nd.ones((300, 1000))), lambda: kv.pull(1), lambda: len(kv)):
        try:
            verb()
        except mx.errors.FailedPreconditionError as error:
            assert 'fork' in str(error)
        else:
            raise SystemExit('no error')
    a = mx.nd.ones((300, 1000)) * 2
    assert a.asnumpy().min() == 2
    kv.close()
    own = mx.kv.create('local')
    own.init(1, a)
    own.push(1, [a, a])
    assert own.pull(1).asnumpy().max() == 4

if HOW == 'os.fork':
    pid = os.fork()
    if pid == 0:
        child()
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
else:
    process = multiprocessing.get_context('fork').Process(target=child)
    process.start()
    process.join(60)
    assert process.exitcode == 0, process.exitcode
assert kv.pull(1).asnumpy().max() == 4
print('fine')
"""


@pytest.mark.parametrize("how", ["os.fork", "multiprocessing"])
def test_a_forked_child_gets_an_error_and_its_arrays_work(how):
    run = subprocess.run([sys.executable, "-c", f"HOW = {how!r}\n{FORK}"], capture_output=True, text=True, timeout=90)
    assert run.stdout == "fine\n", run.stderr
    assert "leaked" not in run.stderr


SPAWN = """
import multiprocessing
import tensorkv as mx

def child(array):
    kv = mx.kv.create('local')
    kv.init(1, array)
    assert kv.pull(1).asnumpy().max() == 1

if __name__ == '__main__':
    kv = mx.kv.create('local')
    kv.init(1, mx.nd.ones((4,)))
    process = multiprocessing.get_context('spawn').Process(target=child, args=(kv.pull(1),))
    process.start()
    process.join(60)
    assert process.exitcode == 0, process.exitcode
    print('fine')
"""


def test_a_spawned_child_makes_its_own_store(tmp_path):
    script = tmp_path / "spawn.py"
    script.write_text(SPAWN)
    run = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=90)
    assert run.stdout == "fine\n", run.stderr


def test_threads_follow_the_affinity_mask():
    run = subprocess.run(
        [
            "taskset",
            "-c",
            "0",
            sys.executable,
            "-c",
            "import tensorkv as mx, os; mx.kv.create('local'); print(mx._core.config())",
        ],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert "cores = 1\n" in run.stdout and "large_operation_cores = 1\n" in run.stdout, run.stderr


def test_importing_has_no_side_effect():
    code = (
        "import sys, threading, signal, os, logging; before = (dict(os.environ), signal.getsignal(signal.SIGINT));"
        "import numpy; modules = set(sys.modules); import tensorkv;"
        "assert (dict(os.environ), signal.getsignal(signal.SIGINT)) == before;"
        "assert threading.active_count() == 1 and len(os.listdir('/proc/self/task')) == THREADS, os.listdir('/proc/self/task');"
        "assert not logging.getLogger().handlers;"
        "print(sorted({m.partition('.')[0] for m in set(sys.modules) - modules}))"
    )
    threads = "(lambda: __import__('builtins').T)()"
    code = code.replace("import numpy; ", "import numpy, builtins; builtins.T = len(os.listdir('/proc/self/task')); ")
    run = subprocess.run(
        [sys.executable, "-c", code.replace("THREADS", threads)], capture_output=True, text=True, timeout=60
    )
    assert run.returncode == 0, run.stderr
    assert not {"torch", "jax", "ml_dtypes", "matplotlib"} & set(eval(run.stdout))


def test_no_instances_leak_at_exit():
    code = (
        "import tensorkv as mx\nmx._core._warn_of_leaks(True)\nkv = mx.kv.create('local')\nkv.init(1, mx.nd.ones((2,)))\n"
        "kv.set_updater(lambda k, i, s: s.__iadd__(i))\nkv.push(1, mx.nd.ones((2,)))\nx = kv.pull(1)\n"
        "kv.set_optimizer(mx.optimizer.Adam())\nview = x.asnumpy()\n"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (run.returncode, run.stderr) == (0, "")


MEMORY = """
import resource, sys
import numpy as np
import tensorkv as mx
count = 30_000_000
kv = mx.kv.create(sys.argv[1], **({"bootstrap": "self"} if sys.argv[1] != "local" else {}))
kv.init("w", mx.nd.zeros((count,)))
value = np.ones(count, np.float32)
pages = int(open("/proc/self/statm").read().split()[0])
hard = resource.getrlimit(resource.RLIMIT_AS)[1]
resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + (20 << 20), hard))
calls = {"pull 'w'": lambda: kv.pull("w"), "push": lambda: kv.push("w", [value, value])}
for what in sys.argv[2:]:
    try:
        calls[what]()
    except MemoryError as error:
        assert str(error) == f"{what}: allocate: the system has no 120000000 bytes of memory", error
    else:
        raise AssertionError(f"{what} found memory")
resource.setrlimit(resource.RLIMIT_AS, (hard, hard))
"""


@pytest.mark.parametrize("arguments", [["local", "pull 'w'"], ["dist_sync", "pull 'w'", "push"]])
def test_an_error_of_memory_names_what_it_was_for(arguments):
    run = subprocess.run([sys.executable, "-c", MEMORY, *arguments], capture_output=True, text=True, timeout=90)
    assert run.returncode == 0, run.stderr
