"""Rehearsals of the rows of docs/failures.md about workers: they die, stand still, leave, close and return."""

import os
import re
import signal
import sys
import time

from hosts import hosts  # noqa: F401 - a fixture
from jobs import finish, is_stopped, living, read_until
from page import Seen
from stage import (
    FROM_A_SNAPSHOT,
    LONG,
    TKV,
    TRAIN,
    from_a_snapshot,
    longest,
    of_worker,
    rehearses,
    save_two_snapshots,
    wait_until,
)


@rehearses(
    "a worker is killed or crashes under `tkv launch`, or its script ends by an exception",
)
def a_worker_is_killed(stage):
    said, did = "", ()
    for end in ("die()", "raise ValueError('a bad batch')"):
        status, one = stage.run(TRAIN.replace("END", end), *LONG, "--grace", 9)
        # A process that has had an error because of another one may end before it: it was alone to be killed.
        assert status in ((137,) if "die" in end else (1, 7)), one
        assert re.search("tkv launch: worker 1 (was killed by signal 9|ended with status 1)", one), one
        said += one
    took = longest(said)
    status, again = stage.run(TRAIN.replace("END", "die()"), *LONG, "--restart", 1)
    if status == 0 and again.count("went on to the end") == 2:
        did = ("`--restart N`",)
    return Seen(said, (("at once", took, 1),), did)


@rehearses("the same, without a launcher that watches")
def a_worker_is_killed_without_a_launcher(stage):
    started = stage.by_hand(TRAIN.replace("END", "die()"), TKV_SILENCE_MS=60_000)
    _, said = finish(started["worker 0"])
    assert "UnavailableError: pull 'w': worker 1 is dead; round 4 needs it" in said, said
    return Seen(said, (("at once where the head is on the same host", longest(said), 1),))


@rehearses("a worker is stopped (SIGSTOP), or its host pauses")
def a_worker_is_stopped(stage):
    text = TRAIN.replace("END", "die(signal.SIGSTOP)").replace("os._exit(7)", "until_marked('woken'); os._exit(7)")
    job = stage.launch(text, "--grace", 60)
    said = read_until(job, "is silent and counts as dead")
    said += "" if "it of 0 met" in said else read_until(job, "it of 0 met")
    os.kill(living(job, "worker")[1], signal.SIGCONT)
    said += read_until(job, "it of 1 met")
    stage.mark("woken")
    said += finish(job)[1]
    status, again = stage.run(
        TRAIN.replace("END", "die(signal.SIGSTOP)"), "--silence-ms", 1500, "--grace", 1, "--restart", 1
    )
    assert status == 0 and "worker 1 was killed by signal 9; it is started again" in again, again
    return Seen(said, (("5 s", longest(said, rank=0), 1),), ("`--restart N`",))


@rehearses("a worker stands still in its own code (a deadlock, an endless loop, a slow disk)")
def a_worker_hangs(stage):
    text = TRAIN.replace("END", "until_marked('healed')").replace("create()", "brief(7)")
    text = text.replace("os._exit(7)", "mark('met'); until_marked('looked'); os._exit(7)")
    job = stage.launch(text, "--log", stage.folder / "logs", "--grace", 30)
    said = read_until(job, "it of 0 met")
    url = re.search(r"tkv://\S+", (stage.folder / "logs" / "launcher.log").read_text())[0]
    status, probe = finish(stage.start([*TKV, "status", "--probe", url]))
    assert (status, probe) == (0, "healthy\n"), probe
    status, table = finish(stage.start([*TKV, "status", url]))
    assert status == 0 and re.search(r"slowest +worker 1: 1 rounds wait for it, the oldest", table), table
    os.kill(living(job, "worker")[1], signal.SIGKILL)
    stage.mark("looked")
    said += finish(job)[1]
    # The same, and somebody ends the worker that stands still.
    job = stage.launch(TRAIN.replace("END", "mark('still'); time.sleep(60)"), "--restart", 1)
    stage.until_marked("still")
    os.kill(living(job, "worker")[1], signal.SIGKILL)
    status, again = finish(job)
    assert status == 0 and again.count("went on to the end") == 2, again
    return Seen(said, (("patience 600 s", longest(said, rank=0), 600 / 7),), ("`kill -9 PID`", "`--restart N`"))


@rehearses("it was stopped for less than 5 s")
def a_worker_is_stopped_for_less(stage):
    job = stage.launch(TRAIN.replace("END", "mark('stops'); die(signal.SIGSTOP)"))
    stage.until_marked("stops")
    stopped = living(job, "worker")[1]
    wait_until(lambda: is_stopped(stopped))
    time.sleep(1.5)
    os.kill(stopped, signal.SIGCONT)
    status, said = finish(job)
    assert status == 0 and said.count("went on to the end") == 2, said
    return Seen(said)


@rehearses("a worker leaves (its script ends) before the others")
def a_worker_leaves(stage):
    text = TRAIN.replace("END", "sys.exit(0)")
    _, said = stage.run(text, *LONG)
    status, again = stage.run(text, "--on-death", "continue")
    assert status == 0 and again.count("went on to the end") == 1, again
    return Seen(said, (("at once", longest(said), 1),), ("`tkv launch --on-death continue`",))


@rehearses("rank 0 does not call `init`, or its call is refused")
def rank_0_does_not_init(stage):
    text = """
kv = brief(2)
if rank == 0:
    met(lambda: kv.init("w", "no array"), "wrong")
    until_marked("met")
else:
    met(lambda: kv.init("w", np.zeros(4, np.float32)))
    mark("met")
"""
    _, said = stage.run(text)
    mended = "kv = create()\nkv.init('w', np.zeros(4, np.float32))\nstep(kv)\nprint('went on to the end', flush=True)"
    status, again = stage.run(mended)
    assert status == 0 and again.count("went on") == 2, again
    assert longest(said, "wrong") < 2, said
    times = (("patience 600 s", longest(said), 300),)
    return Seen(said, times, ("mend the error of rank 0, which its own call has raised at once",))


@rehearses("one worker alone calls `assign`, `load` or `load_optimizer_states`")
def one_worker_alone_assigns(stage):
    text = """
kv = brief(2 if rank == 0 else 60, "w")
step(kv)
kv.barrier()
if rank == 0:
    met(lambda: kv.assign("w", ones))
    mark("met")
else:
    until_marked("met")
kv.barrier() if AGAIN else None
met(lambda: kv.assign("w", ones), "both") if AGAIN else None
"""
    _, said = stage.run(text.replace("AGAIN", "False"))
    together = text.replace("if rank == 0:\n", "if False:\n").replace("until_marked", "str")
    status, again = stage.run(together.replace("AGAIN", "True"))
    assert status == 0 and len(re.findall("both of . is done", again)) == 2, again
    return Seen(said, (("patience 600 s", longest(said), 300),), ("have every worker call it",))


@rehearses(
    "a worker is killed between `step()` and `assign()`, or within `assign`, and started again: its script goes on with"
    " the next step, and the others wait in `assign`"
)
def a_worker_is_killed_before_assign(stage):
    text = """
kv = brief(3, "w")
for number in range(kv.round("w"), 6):
    failed = met(lambda: step(kv))
    if number == 2 and rank == 1 and not kv.rejoined:
        die()
    if failed or met(lambda: kv.assign("w", ones * number)):
        mark(f"met {rank}")
        until_marked(f"met {1 - rank}")
        os._exit(0)
"""
    _, said = stage.run(text, "--restart", 1)
    assert re.search(r"it of 0 met DeadlineExceededError: assign: waited [\d.]+ s for worker 1", said), said
    assert re.search(r"it of 1 met DeadlineExceededError: pull 'w': waited [\d.]+ s for worker 0", said), said
    return Seen(said, (("patience 600 s", longest(said), 200),), (FROM_A_SNAPSHOT,) if from_a_snapshot(stage) else ())


@rehearses(
    "two workers are killed within one step, and each had pushed keys that the other had not; both are started again"
)
def two_workers_are_killed_within_a_step(stage):
    text = """
kv = brief(3, "a", "b")
if not kv.rejoined:
    for key in "ab":
        step(kv, key)
    kv.push("ab"[rank], ones, async_op=True).wait()
    mark(f"pushed {rank}")
    until_marked(f"pushed {1 - rank}")
    time.sleep(0.5)
    die()
met(lambda: [kv.pull(key) for key in "ab"])
mark(f"met {rank}")
until_marked(f"met {1 - rank}")
os._exit(0)
"""
    _, said = stage.run(text, "--restart", 1)
    assert len(re.findall(r"it of . met DeadlineExceededError: pull", said)) == 2, said
    return Seen(said, (("patience 600 s", longest(said), 200),), (FROM_A_SNAPSHOT,) if from_a_snapshot(stage) else ())


@rehearses("a worker closes one of its stores and goes on with others")
def a_worker_closes_a_store(stage):
    text = """
stores = [create() for _ in range(3)]
for kv in stores:
    kv.init("w", np.zeros(4, np.float32))
    step(kv)
stores[1 - rank].close()  # worker 1 the first, worker 0 the second
mark(f"closed {rank}")
until_marked(f"closed {1 - rank}")
mine = stores[rank]
met(lambda: step(mine))
if rank == 0:
    met(mine.barrier)
else:
    met(lambda: mine.init("v", np.zeros(4, np.float32)))
step(stores[2])
print("went on to the end", flush=True)
"""
    status, said = stage.run(text, *LONG)
    assert status == 0 and said.count("went on to the end") == 2, said
    status, again = stage.run(text, "--on-death", "continue")
    assert status == 0 and again.count("is done") == 4, again
    caught = """
a, b = create(), create()
for kv in (a, b):
    kv.init("w", np.zeros(4, np.float32))
    step(kv)
if rank == 1:
    try:
        with a:
            raise ValueError("a bad batch")
    except ValueError:
        step(b)
    until_marked("met")  # or worker 1 has left, which is another row
else:
    step(b)
    met(lambda: step(a))
    mark("met")
"""
    _, more = stage.run(caught, *LONG)
    assert "worker 1 closed store 0 after round 1; round 2 needs it" in more, more
    return Seen(said, (("at once", longest(said + more), 1),), ("`--on-death continue`",))


@rehearses("a worker dies under `--on-death continue`")
def a_worker_dies_under_continue(stage):
    text = TRAIN.replace("rank == 1", "rank == 0").replace("END", "die()")
    text += "kv.init('new', np.full(4, 5, np.float32))\nassert kv.pull('new').asnumpy()[0] == 5\nkv.save('.')\nkv.delete('new')"
    status, said = stage.run("os.chdir(os.path.dirname(os.path.abspath(__file__)))\n" + text, "--on-death", "continue")
    assert status == 137 and "went on to the end" in said and (stage.here / "000001").exists(), said
    status, again = stage.run(
        TRAIN.replace("rank == 1", "rank == 0").replace("END", "die()"), "--on-death", "continue", "--restart", 1
    )
    assert status == 0 and again.count("went on to the end") == 2, again
    return Seen(of_worker(1, said) + of_worker(0, again))


@rehearses("a worker dies under `--on-death wait`")
def a_worker_dies_under_wait(stage):
    text = TRAIN.replace("END", "die()").replace("create()", "brief(2 if rank == 0 else 60)")
    text = text.replace("os._exit(7)", "mark('met'); until_marked('back')")
    job = stage.launch(text, "--on-death", "wait")
    said = read_until(job, "it of 0 met")
    line = next(line for line in said.splitlines() if "start it with" in line)
    variables = dict(re.findall(r"(TKV_\w+)=(\S+)", line))
    assert variables["TKV_RANK"] == "1", line
    again = stage.start([sys.executable, "-u", str(stage.here / "script.py")], **variables)
    wait_until(lambda: "is" in read_until(again, "is done"))
    stage.mark("back")
    status, rest = finish(again)
    assert status == 0 and "went on to the end" in rest, rest
    status, rest = finish(job)
    assert status == 137 and "went on to the end" in rest, rest
    status, more = stage.run(TRAIN.replace("END", "die()"), "--restart", 1)
    assert status == 0 and more.count("went on to the end") == 2, more
    times = (("patience 600 s", longest(said, rank=0), 300),)
    return Seen(said, times, ("`--restart N`", "with the variables that the launcher's line names"))


@rehearses("a worker dies before any worker has pushed, also within `load`, and is started again")
def a_worker_dies_before_any_push(stage):
    text = """
kv = create()
print("rejoined is", kv.rejoined, flush=True)
kv.init("w", np.zeros(4, np.float32))
kv.barrier()
if rank == 1 and first_life():
    die()
kv.barrier()
step(kv)
print("went on to the end", flush=True)
"""
    status, said = stage.run(text, "--restart", 1)
    assert status == 0 and said.count("rejoined is False") == 3 and said.count("went on") == 2, said
    return Seen(said)


@rehearses("a snapshot is damaged, or `load` fails otherwise, under `--restart`")
def a_snapshot_is_damaged(stage):
    folder = stage.folder / "saved"
    save_two_snapshots(folder)
    (file,) = (folder / "000002").glob("model-00001-*.safetensors")
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)
    text = """
kv = create()
kv.init("w", np.zeros(4, np.float32))
if met(lambda: kv.load(os.environ["FOLDER"])):
    raise RuntimeError("no training without it")
print("goes on at", kv.round("w"), flush=True)
step(kv)
"""
    status, said = stage.run(text, "--restart", 2, workers=1, FOLDER=folder)
    assert status == 1 and said.count("DataLossError") == 3 and "goes on" not in said, said
    assert sorted(path.name for path in folder.iterdir()) == ["000001", "000002"], said
    text = text.replace('os.environ["FOLDER"]', 'os.environ["FOLDER"] + "/000001"')
    status, again = stage.run(text, "--restart", 2, workers=1, FOLDER=folder)
    assert status == 0 and "goes on at 1" in again, again
    return Seen(said, (("at once", longest(said), 1),), ('`kv.load(folder + "/000001")` takes an older snapshot',))


@rehearses("all workers are dead and `--restart` starts them again")
def all_workers_are_dead(stage):
    text = TRAIN.replace("rank == 1 and kv", "kv").replace("END", "die()")
    said = ""
    for policy in ("fail", "wait", "continue"):
        status, one = stage.run(text, "--restart", 4, "--on-death", policy, workers=1)
        assert status == 0 and "went on to the end" in one and "it is started again" in one, one
        said += one
    return Seen(said)


@rehearses("a restarted worker creates a store that all workers had already closed")
def a_store_is_over(stage):
    text = """
a, b = create(), create()
init = lambda: a.init("w", np.zeros(4, np.float32))
if b.rejoined:
    failed = met(init)
    print("is it", isinstance(failed, mx.errors.FailedPreconditionError), flush=True)
else:
    init()
    step(a)
a.close()
b.init("w", np.zeros(4, np.float32))
while b.round("w") < 4:
    if rank == 1 and b.round("w") == 2 and not b.rejoined:
        die()
    step(b)
print("went on to the end", flush=True)
"""
    status, said = stage.run(text, "--restart", 1)
    assert status == 0 and "is it True" in said and said.count("went on") == 2, said
    return Seen(
        said, (("at once", longest(said), 1),), ("catch it where `kv.rejoined`, and go on with the next store",)
    )
