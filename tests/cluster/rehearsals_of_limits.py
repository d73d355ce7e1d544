"""Rehearsals of the rows of docs/failures.md about memory, files, ends of scripts, loads and exceptions."""

import os
import re
import resource
import signal
import time

from hosts import hosts  # noqa: F401 - a fixture
from jobs import finish, is_stopped, living, pids_of, read_until
from page import Seen
from stage import LONG, limit, longest, memory_of, of_worker, rehearses, save_two_snapshots, wait_until

BIG = """
kv = create(patience=20)
SIZE = 4_000_000
big = np.ones(SIZE, np.float32)
kv.init("big", np.zeros(SIZE, np.float32))
kv.init("w", np.zeros(4, np.float32))
kv.set_optimizer(mx.optimizer.Adam(learning_rate=0.5))
step(kv)
print("under way", flush=True)
until_marked("limited")
met(lambda: kv.push("big", big, async_op=True).wait())
print("round is", kv.round("big"), flush=True)
met(lambda: kv.save(os.path.dirname(os.path.abspath(__file__)) + "/saved"), "save")
met(lambda: step(kv), "small")
print("tried", flush=True)
until_marked("lifted")
while kv.round("big") < 1:
    kv.push("big", big)
kv.pull("big", out=big)
print("big is", big.min() == big.max(), kv.round("big"), flush=True)
kv.close()
"""


def push_without_memory(stage):
    """Push a key of 16 parts to a server with memory for some of them, and again with more; returns all output."""
    job = stage.launch(BIG, "--tcp", workers=1, TKV_LOG="warning", MALLOC_ARENA_MAX=1)
    said = read_until(job, "under way")
    (server,) = pids_of(job, "server")
    lift = limit(server, resource.RLIMIT_AS, memory_of(server) + (24 << 20))
    stage.mark("limited")
    said += read_until(job, "tried")
    lift()
    stage.mark("lifted")
    status, rest = finish(job)
    assert status == 0 and "big is True 1" in rest, said + rest
    assert "small of 0 is done" in said and not re.search("resumed|lost the connection", said), said
    return said + rest


@rehearses("a server has no memory for what is pushed")
def a_server_has_no_memory(stage):
    said = push_without_memory(stage)
    assert re.search(r"server 0\] .* warning .*PUSH of worker 0: .*memory", said), said
    return Seen(said, (("at once", longest(said), 1),), ("more or larger servers",))


@rehearses("a server has no memory for a part of a key, and takes the other parts of the same push")
def a_server_has_no_memory_for_a_part(stage):
    said = push_without_memory(stage)
    assert "round is 0" in said and "save of 0 met FailedPreconditionError" in said, said
    return Seen(said, (("at once", longest(said), 1),), ("push again, as `kv.round` reports",))


@rehearses("the head has no memory (`tkv launch` holds it)")
def the_head_has_no_memory(stage):
    text = """
kv = create("dist_async")
kv.init("w", np.zeros(4, np.float32))
print("under way", flush=True)
until_marked("limited")
eyes, failed = [], None
def connect():
    eyes.append(mx.kv.connect(kv.url, patience=2, server_patience=2))
while not failed and len(eyes) < 300:
    failed = met(connect)
step(kv)
print("tried", flush=True)
until_marked("lifted")
for eye in eyes:
    eye.close()
met(connect, "again")
eyes[-1].close()
kv.close()
"""
    job = stage.launch(text, workers=1, TKV_LOG="warning", MALLOC_ARENA_MAX=1)
    said = read_until(job, "under way")
    lift = limit(job.pid, resource.RLIMIT_AS, memory_of(job.pid))
    stage.mark("limited")
    said += read_until(job, "tried")
    lift()
    stage.mark("lifted")
    status, rest = finish(job)
    assert status == 0 and "again of 0 is done" in rest, said + rest
    times = (("`connect` fails after `server_patience` (30 s)", longest(said), 15),)
    return Seen(said + rest, times, ("more memory; then they can join",))


@rehearses("a worker hangs or is stopped (SIGSTOP) after it has closed its stores")
def a_worker_hangs_after_its_close(stage):
    text = """
with create() as kv:
    kv.init("w", np.zeros(4, np.float32))
    step(kv)
print("closed", flush=True)
if rank == 1:
    mark("stops")
    die(signal.SIGSTOP)
"""
    said = ""
    for end in ("continue", "end"):
        job = stage.launch(text, "--silence-ms", 1000, "--grace", 1)
        one = read_until(job, "closed", 2)
        stage.until_marked("stops")
        wait_until(lambda: 0 not in living(job, "worker"))
        (worker,) = pids_of(job, "worker")
        wait_until(lambda: is_stopped(worker))
        time.sleep(4)  # longer than silence, grace and the time between SIGTERM and SIGKILL would be
        assert job.poll() is None, one
        os.kill(*((worker, signal.SIGCONT) if end == "continue" else (job.pid, signal.SIGTERM)))
        status, rest = finish(job)
        assert status == (0 if end == "continue" else 143) and "silent" not in rest, one + rest
        said += one
    return Seen(said, (), ("continue or end it; SIGTERM to the launcher ends all",))


@rehearses("a worker has closed its stores and then fails, under `--restart`")
def a_worker_fails_after_its_close(stage):
    text = """
with create() as kv:
    kv.init("w", np.zeros(4, np.float32))
    step(kv)
    if rank == 0:
        until_marked("gone")
        print("went on to the end", flush=True)
if rank == 1:
    FAIL
"""
    job = stage.launch(text.replace("FAIL", "os._exit(3)"), "--restart", 3)
    said = read_until(job, "it is not started again")
    stage.mark("gone")
    status, rest = finish(job)
    assert status == 3 and "went on to the end" in rest and "tkv launch: worker 1 ended with status 3" in said, (
        said + rest
    )
    caught = "met(lambda: 1 / 0, 'caught')\n    mark('gone')"
    status, again = stage.run(text.replace("FAIL", caught), "--restart", 3)
    assert status == 0, again
    return Seen(of_worker(0, said + rest), (("at once", 0.0, 1),), ("catch the error",))


@rehearses("a server computes for long")
def a_server_computes_for_long(stage):
    text = """
lines = "".join(f"a{i + 1} = mul a{i} 0.999\\nb{i + 1} = sqrt b{i}\\n" for i in range(120))
ends = "c = add a120 b120\\nd = mul c 0\\ns = add sum d\\nw = sub value s\\nvalue <- w\\n"
kv = create()
kv.set_optimizer(mx.Program("program busy\\na0 = abs sum\\nb0 = abs sum\\n" + lines + ends))
for size in (16_000_000, 48_000_000, 96_000_000):  # the first that takes longer than a silence may
    kv.init(size, np.zeros(size, np.float32))
    begin = time.monotonic()
    kv.push(size, np.ones(size, np.float32))
    assert kv.pull(size).asnumpy()[-1] == -1
    took = time.monotonic() - begin
    if took > 3:
        break
print(f"took {took:.2f} s", flush=True)
"""
    status, said = stage.run(text, "--silence-ms", 2500, workers=1, TKV_THREADS=1)
    assert status == 0 and "is dead" not in said, said
    assert float(re.search(r"took ([\d.]+) s", said)[1]) > 3, said
    return Seen(said)


@rehearses("a worker ends before it has joined (an `ImportError` on one rank)")
def a_worker_ends_before_it_has_joined(stage):
    text = """
if rank == 1:
    END
kv = create()
kv.init("w", np.zeros(4, np.float32))
met(lambda: step(kv))
"""
    said = ""
    for end in ("import no_such_module", "sys.exit(0)"):
        said += stage.run(text.replace("END", end), *LONG)[1]
    return Seen(said, (("at once under `tkv launch`", longest(said), 1),))


EXITS = """
def work(kv):
    kv.init("w", np.zeros(4, np.float32))
    step(kv)
    if rank == 1:
        sys.exit(3)
    met(lambda: step(kv))
"""


@rehearses("a script ends by `sys.exit(3)` outside of `with`")
def a_script_exits_outside_of_with(stage):
    status, said = stage.run(EXITS + "kv = create()\nwork(kv)", *LONG)
    assert status == 3 and "worker 1 left after round 1; round 2 needs it" in said, said
    inside = EXITS + "with create() as kv:\n    work(kv)"
    status, again = stage.run(inside, *LONG)
    assert "worker 1 is dead; round 2 needs it" in again, again
    return Seen(said, (("at once", longest(said), 1),), ("use `with`",))


@rehearses("a store goes out of scope without `close()`")
def a_store_goes_out_of_scope(stage):
    text = """
kv = create()
kv.init("w", np.zeros(4, np.float32))
kv.push("w", ones)
if rank == 0:
    print("sum", kv.pull("w").asnumpy()[0], flush=True)
    until_marked("dropped")
    met(lambda: step(kv))
    mark("met")
else:
    END
    mark("dropped")
    until_marked("met")
"""
    said = stage.run(text.replace("END", "del kv"), *LONG)[1]
    again = stage.run(text.replace("END", "kv.close()"), *LONG)[1]
    assert "sum 2.0" in said and "worker 1 left after round 1" in again, said + again
    return Seen(said, (("at most 2 s", longest(said), 1),), ("close it, or use `with`",))


@rehearses("a store is made after the last one of the job was closed")
def a_store_is_made_too_late(stage):
    text = """
kv = create()
kv.init("w", np.zeros(4, np.float32))
step(kv)
kv.close()
time.sleep(3)  # the servers end meanwhile
met(create)
"""
    _, said = stage.run(text, *LONG)
    early = "kv, second = create(), create()\nkv.init('w', ones)\nkv.close()\nsecond.init('w', ones)\nprint('made', flush=True)"
    status, again = stage.run(early)
    assert status == 0 and again.count("made") == 2, again
    return Seen(said, (("at once", longest(said), 1),), ("make all stores before the last one is closed",))


# ---- loads, shapes and signals ------------------------------------------------------------------


@rehearses("`load` fails on one rank, mostly the one that reads")
def load_fails(stage):
    folder = stage.folder / "saved"
    save_two_snapshots(folder)
    text = "kv = create()\nkv.init('w', ones)\nmet(lambda: kv.load(os.environ['FOLDER'] + '/none' * (rank == 0)))"
    _, said = stage.run(text, FOLDER=folder)
    assert len(re.findall("it of . met", said)) == 2, said
    return Seen(said, (("at once, when all have come to `load`", longest(said), 1),))


LOADS = """
kv = create()
for key in "wv":
    kv.init(key, np.zeros(1_000_000, np.float32))
if "SAVE" in os.environ:
    step = lambda key: (kv.push(key, np.ones(1_000_000, np.float32)), kv.pull(key))
    [step(key) for key in "wv"]
    kv.save(os.environ["FOLDER"])
    kv.barrier()
else:
    failed = met(lambda: kv.load(os.environ["FOLDER"]))
    if failed and "AGAIN" in os.environ:
        met(lambda: kv.load(os.environ["FOLDER"]), "again")
    print("values", kv.pull("w").asnumpy()[-1] if not failed or "AGAIN" in os.environ else None, flush=True)
"""


@rehearses("the worker that reads dies while `load` goes on, under `--on-death continue`")
def the_reader_dies(stage):
    folder = stage.folder / "saved"
    status, said = stage.run(LOADS, workers=3, FOLDER=folder, SAVE=1)
    assert status == 0, said
    options = ("--on-death", "continue", "--failpoints", "worker 0:sent:RESTORE:2:kill")
    _, said = stage.run(LOADS, *options, workers=3, FOLDER=folder, AGAIN=1)
    assert len(re.findall("again of [12] is done", said)) == 2 and said.count("values 3.0") == 2, said
    assert len(re.findall("it of [12] met", said)) == 2, said
    times = (("at once, when all others have come to `load`", longest(said), 1),)
    return Seen(said, times, ("`load` again on every rank that lives",))


@rehearses("a server is lost while `load` puts values back")
def a_server_is_lost_in_load(stage):
    folder = stage.folder / "saved"
    status, said = stage.run(LOADS, servers=2, FOLDER=folder, SAVE=1)
    assert status == 0, said
    _, said = stage.run(
        LOADS, "--grace", 9, "--failpoints", "server 1:received:RESTORE:2:kill", servers=2, FOLDER=folder
    )
    assert re.search("it of . met .*some keys|it of . met .*keys", said), said
    status, again = stage.run(LOADS, servers=1, FOLDER=folder)
    assert status == 0 and again.count("values 2.0") == 2, again
    return Seen(said, (("at once", longest(said), 1),), ("start the job again",))


@rehearses("another shape or dtype of a key at one rank")
def another_shape(stage):
    text = """
kv = brief(3)
if met(lambda: kv.init("w", np.zeros(4 + rank, np.float32)), "init"):
    until_marked("met") if STAYS else None
    os._exit(0)
met(lambda: step(kv))
mark("met")
"""
    _, stays = stage.run(text.replace("STAYS", "True"))
    _, leaves = stage.run(text.replace("STAYS", "False").replace("os._exit(0)", "kv.close()"), *LONG)
    assert "worker 1" in stays and "worker 1" in leaves, stays + leaves
    said = stays + leaves
    times = (("at once", longest(said, "init"), 1), ("the patience", 0.0, 1))
    assert 2.5 < longest(stays, rank=0, error="DeadlineExceededError") < 3 + 15, stays
    return Seen(said, times[:1])


@rehearses("Ctrl-C in a wait")
def ctrl_c_in_a_wait(stage):
    text = """
import threading
kv = create()
kv.init("w", np.zeros(4, np.float32))
sent = []
def interrupt():
    sent.append(time.monotonic())
    os.kill(os.getpid(), signal.SIGINT)
if rank == 0:
    kv.push("w", ones)
    threading.Timer(1, interrupt).start()
    try:
        kv.pull("w")
    except KeyboardInterrupt:
        print(f"it of 0 met KeyboardInterrupt: (after {time.monotonic() - sent[0]:.2f} s)", flush=True)
    mark("met")
    kv.pull("w")
else:
    until_marked("met")
    step(kv)
print("went on to the end", flush=True)
"""
    status, said = stage.run(text)
    assert status == 0 and said.count("went on to the end") == 2, said
    took = longest(said, error="KeyboardInterrupt")
    assert took < 2, said
    return Seen(said, (("50 ms", took, 1),))


@rehearses(
    "`KeyboardInterrupt`, `SystemExit`, `MemoryError` or `RecursionError` in Python code that a call runs, such as"
    " `__dlpack__`, `__index__` of a key, an updater or a schedule"
)
def exceptions_of_python_code(stage):
    text = """
kv = create()
kv.init("w", np.zeros(4, np.float32))
for error in (KeyboardInterrupt, SystemExit, MemoryError, RecursionError):
    class Key:
        def __index__(self):
            raise error("mine")
    class Value:
        def __dlpack_device__(self):
            return (1, 0)
        def __dlpack__(self, **_):
            raise error("mine")
    class Rate(mx.lr_scheduler.LRScheduler):
        def __call__(self, number):
            raise error("mine")
    met(lambda: kv.push(Key(), ones))
    met(lambda: kv.push("w", Value()))
assert kv.round("w") == 0
step(kv)
print("went on to the end", flush=True)
"""
    status, said = stage.run(text, workers=1)
    assert status == 0 and "went on to the end" in said, said
    for error in ("KeyboardInterrupt", "SystemExit", "MemoryError", "RecursionError"):
        assert len(re.findall(f"it of 0 met {error}: mine", said)) == 2, said
    return Seen(said, (("at once", longest(said, error=r"\w+"), 1),))
