"""Lives of workers: stores of a process that fails, stores that some have closed, and jobs whose workers are all dead for a while."""

import os
import re
import signal
import time

import pytest
from jobs import finish, pids_of, read_until

TRAIN = """
stores = [mx.kv.create("dist_sync") for _ in range(STORES)]
for kv in stores:
    kv.init("w", np.zeros(4, np.float32))
print("begins", stores[0].rejoined, [kv.round("w") for kv in stores], flush=True)
while stores[0].round("w") < 6:
    for kv in stores:
        kv.push("w", np.full(4, kv.round("w") + 1, np.float32))
        kv.pull("w")
    if stores[0].round("w") == 3 and not stores[0].rejoined:
        FAIL
print("ends", [float(kv.pull("w").asnumpy()[0]) for kv in stores], flush=True)
"""
FAILS = {"exception": "raise RuntimeError('a bad batch')", "killed": "os.kill(os.getpid(), signal.SIGKILL)"}


@pytest.mark.parametrize("fail", FAILS)
@pytest.mark.parametrize("stores", [1, 2, 4])
def test_the_next_life_finds_every_store_as_the_last_one_left_it(processes, stores, fail):
    text = f"STORES = {stores}\n" + TRAIN.replace("FAIL", FAILS[fail])
    status, said = finish(processes.launch(text, "--restart", "1", workers=1))
    assert status == 0, said
    assert f"begins True {[3] * stores}" in said and f"ends {[6.0] * stores}" in said, said


@pytest.mark.parametrize("how", ["raise RuntimeError('no second store')", "sys.exit(3)"])
def test_a_store_that_an_exception_drops_has_not_left_its_job(processes, how):
    """The first store of the list is in no frame, so it ends before the script does."""
    text = f"""
def second():
    if not first.exists():
        first.touch()
        {how}
    return mx.kv.create("dist_sync")
import pathlib
first = pathlib.Path({str(processes.folder)!r}) / "first"
stores = [mx.kv.create("dist_sync"), second()]
print("ends", flush=True)
"""
    status, said = finish(processes.launch(text, "--restart", "1", workers=1))
    assert status == 0 and "it is started again (1 of 1)" in said and "ends" in said, said


def test_a_script_that_catches_the_exception_makes_its_store_again(processes):
    text = """
def second():
    raise RuntimeError("no second store")
try:
    [mx.kv.create("dist_sync"), second()]
except RuntimeError:
    kv = mx.kv.create("dist_sync")
kv.init("w", np.ones(4, np.float32))
print("ends", kv.pull("w").asnumpy().sum(), flush=True)
"""
    status, said = finish(processes.launch(text, "--restart", "1", workers=1))
    assert status == 0 and "ends 4.0" in said and "started again" not in said, said


ENDS_WELL = {
    "sys.exit": "[mx.kv.create('dist_sync'), sys.exit(0)]",
    "a generator that is closed": """
def made():
    yield [mx.kv.create("dist_sync"), (yield)]
generator = made()
next(generator)
generator.close()""",
}


@pytest.mark.parametrize("how", ENDS_WELL)
def test_a_store_that_is_dropped_without_a_failure_has_left_its_job(processes, how):
    text = "def work():\n" + "".join(f"    {line}\n" for line in ENDS_WELL[how].splitlines())
    text += "try:\n    work()\nfinally:\n    os.kill(os.getpid(), signal.SIGKILL)\n"
    status, said = finish(processes.launch(text, "--restart", "1", workers=1))
    assert "worker 0 was killed by signal 9; it is not started again, because it had left the job" in said, said
    assert status == 128 + signal.SIGKILL, said


@pytest.mark.parametrize("policy", ["wait", "continue", "fail"])
def test_stores_stay_where_all_workers_fail(processes, policy):
    text = "STORES = 2\n" + TRAIN.replace("FAIL", FAILS["exception"])
    # Rounds continue without dead workers, so only the values of rounds that all workers have pushed are certain.
    job = processes.launch(text, "--restart", "8", "--on-death", policy, workers=2)
    status, said = finish(job)
    # Under `fail` a wait for the other one's next life fails at once, so that the restarts may run out.
    assert policy == "fail" or (status == 0 and said.count("ends") == 2), said
    begun = [eval(line.partition("True ")[2]) for line in said.splitlines() if "begins True" in line]
    assert begun and min(min(rounds) for rounds in begun) >= 2, said


@pytest.mark.parametrize("style", ["with", "at the end"])
def test_notes_of_a_script_that_fails_are_there_in_its_next_life(processes, style):
    work = """
def work(kv, notes):
    kv.init("w", np.zeros(4, np.float32))
    notes.init_table("steps", 1, dtype="int64")
    begin = int(np.asarray(notes.pull_rows("steps", kv.rank)).ravel()[0])
    print("begins at", begin, flush=True)
    for step in range(begin, 6):
        kv.push("w", np.full(4, -1, np.float32))
        notes.push_rows("steps", kv.rank, np.array([step + 1]))
        notes.pull_rows("steps", kv.rank)
        if step == 3 and not kv.rejoined:
            raise RuntimeError("a bad batch")
    print("ends", flush=True)
"""
    begin = {
        "with": 'with mx.kv.create("dist_async") as kv, mx.kv.create("dist_async") as notes:\n    work(kv, notes)',
        "at the end": 'work(mx.kv.create("dist_async"), mx.kv.create("dist_async"))',
    }
    status, said = finish(processes.launch(work + begin[style], "--restart", "1", workers=1))
    assert status == 0 and "begins at 0" in said and "begins at 4" in said and "ends" in said, said


UNEVEN = """
a, b = mx.kv.create("dist_sync"), mx.kv.create("dist_sync")
for kv in (a, b):
    kv.init("w", np.zeros(4, np.float32))
    kv.init("v", np.zeros(4, np.float32))
for _ in range(3):
    a.pushpull("w", np.ones(4, np.float32), out=np.zeros(4, np.float32))
if a.rank == CLOSER:
    a.close()
    mark("closed")
    until_marked("done")
    b.pushpull("w", np.ones(4, np.float32), out=np.zeros(4, np.float32))
else:
    until_marked("closed")
    for verb in VERBS:
        begin = time.time()
        try:
            verb(a)
            print("did it", flush=True)
        except mx.KVError as error:
            print(f"knew after {time.time() - begin:.1f} s: {type(error).__name__}: {error}", flush=True)
    mark("done")
    b.pushpull("w", np.ones(4, np.float32), out=np.zeros(4, np.float32))
    print("goes on", flush=True)
"""
VERBS = """
def pull(kv):
    kv.push("w", np.ones(4, np.float32))
    kv.pull("w")
VERBS = [pull, lambda kv: kv.barrier(), lambda kv: kv.pushpull("v", np.ones(4, np.float32), out=np.zeros(4, np.float32))]
INITS = [lambda kv: kv.init("z", np.zeros(3, np.float32)), lambda kv: kv.init_table("t", 2)]
"""


@pytest.mark.parametrize("options", [(), ("--on-death", "wait")], ids=["fail", "wait"])
@pytest.mark.parametrize("closer", [0, 1])
@pytest.mark.parametrize("number", [0, 1], ids=["first", "second"])
def test_what_waits_for_a_worker_that_has_closed_the_store_ends_at_once(processes, number, closer, options):
    inits = "VERBS += INITS\n" if closer == 0 else ""
    text = VERBS + inits + f"CLOSER = {closer}\n" + (UNEVEN if number == 0 else UNEVEN.replace("a, b =", "b, a ="))
    status, said = finish(processes.launch(text, *options))
    known = re.findall(rf"knew after ([\d.]+) s: UnavailableError: .*worker (\d).*closed store {number}", said)
    assert len(known) == (5 if closer == 0 else 3) and "did it" not in said, said
    assert all(float(after) < 2 and int(rank) == closer for after, rank in known), said
    assert "goes on" in said and status == 0, said


def test_under_continue_a_store_goes_on_without_a_worker_that_has_closed_it(processes):
    text = VERBS + "VERBS += INITS\nCLOSER = 0\n" + UNEVEN
    status, said = finish(processes.launch(text, "--on-death", "continue"))
    assert status == 0 and said.count("did it") == 5 and "knew" not in said, said


@pytest.mark.parametrize("rank", [0, 1])
def test_a_next_life_is_told_that_all_have_closed_a_store(processes, rank):
    text = f"""
    a, b = mx.kv.create("dist_sync"), mx.kv.create("dist_sync")
    begin = time.time()
    try:
        a.init("w", np.zeros(4, np.float32))
        while a.round("w") < 2:
            a.pushpull("w", np.ones(4, np.float32), out=np.zeros(4, np.float32))
    except mx.KVError as error:
        print(f"knew after {{time.time() - begin:.1f}} s: {{type(error).__name__}}: {{error}}", flush=True)
    a.close()
    b.init("w", np.zeros(4, np.float32))
    while b.round("w") < 6:
        if b.round("w") == 3 and b.rank == {rank} and not b.rejoined:
            os.kill(os.getpid(), signal.SIGKILL)
        b.pushpull("w", np.ones(4, np.float32), out=np.zeros(4, np.float32))
    print("ends", b.pull("w").asnumpy()[0], flush=True)
    """
    status, said = finish(processes.launch(text, "--restart", "1"))
    known = re.findall(r"knew after ([\d.]+) s: FailedPreconditionError: init 'w': store 0 is over", said)
    assert len(known) == 1 and float(known[0]) < 2, said
    assert status == 0 and said.count("ends 2.0") == 2, said


ALL_DIE = """
with mx.kv.create("dist_sync") as kv:
    kv.init("w", np.zeros(4))
    kv.set_optimizer(mx.optimizer.SGD(learning_rate=-1.0))
    print("begins", kv.rejoined, kv.round("w"), flush=True)
    while kv.round("w") < 6:
        kv.push("w", np.ones(4))
        kv.pull("w")
        if kv.round("w") == 3 and not kv.rejoined:
            os.kill(os.getpid(), signal.SIGKILL)
    print("ends", kv.pull("w").asnumpy()[0], flush=True)
"""


@pytest.mark.parametrize("policy", ["continue", "wait", "fail"])
@pytest.mark.parametrize("workers", [1, 2])
def test_a_job_whose_workers_are_all_dead_for_a_while_goes_on(processes, workers, policy):
    job = processes.launch(ALL_DIE, "--restart", "4", "--on-death", policy, workers=workers)
    status, said = finish(job)
    assert status == 0 and said.count("ends") == workers and "the job has ended" not in said, said
    assert said.count("it is started again") >= workers, said


SAVES = """
stores = [mx.kv.create("dist_sync") for _ in range(2)]
keys = [(kv, key, size) for kv in stores for key, size in (("w", 4), ("v", 300_000))]
for kv, key, size in keys:
    kv.init(key, np.zeros(size, np.float32))
for kv in stores:
    kv.set_optimizer(mx.optimizer.SGD(learning_rate=-1.0))
rank = stores[0].rank
print("begins", rank, [kv.round(key) for kv, key, _ in keys], flush=True)
if os.path.exists(os.environ["DEAD"]):  # under continue the first one would go on alone
    mark(f"again-{rank}")
    for other in range(stores[0].num_workers):
        until_marked(f"again-{other}")
for step in range(1, 7):
    for kv, key, size in keys:
        if kv.round(key) < step:
            kv.push(key, np.full(size, (rank + 1) * step, np.float32))
            kv.pull(key)
    if DIES:
        print("waits for its death", flush=True)
        time.sleep(60)
print("ends", sorted({float(x) for kv, key, _ in keys for x in kv.pull(key).asnumpy()}), flush=True)
for kv in stores:
    kv.close()
"""


def kill_together(job, *roles):
    """Kill all processes in these roles while the launcher is stopped: when it looks, all of them are dead."""
    os.kill(job.pid, signal.SIGSTOP)
    for pid in [pid for role in roles for pid in pids_of(job, role)]:
        os.kill(pid, signal.SIGKILL)
    os.kill(job.pid, signal.SIGCONT)


@pytest.mark.parametrize("policy", ["continue", "wait", "fail"])
@pytest.mark.parametrize(
    ("workers", "roles"),
    [(1, ["worker"]), (2, ["worker"]), (3, ["worker"]), (2, ["worker", "server"])],
    ids=["1", "2", "3", "2 and the servers"],
)
def test_a_job_that_saves_goes_on_when_all_its_workers_have_been_dead(processes, tmp_path, workers, roles, policy):
    text = SAVES.replace("DIES", 'step == 3 and not os.path.exists(os.environ["DEAD"])')
    options = ("--restart", "2", "--on-death", policy, "--restore", str(tmp_path / "saved"), "--snapshot-every", "2")
    job = processes.launch(text, *options, workers=workers, servers=2, DEAD=tmp_path / "dead")
    said = read_until(job, "waits for its death", count=workers)
    (tmp_path / "dead").touch()
    kill_together(job, *roles)
    status, rest = finish(job)
    said += rest
    ends = f"ends {[21.0 * workers * (workers + 1) / 2]}"
    assert status == 0 and said.count(ends) == workers, said
    assert ("the job is started again (1 of 2)" in said) == ("server" in roles), said
    begun = re.findall(r"begins \d (\[.*\])", said)
    assert begun[:workers] == ["[0, 0, 0, 0]"] * workers and len(begun) == 2 * workers, said
    # Servers that live have all that was acknowledged; a snapshot that was being written may be missing.
    later = {"[3, 3, 3, 3]"} if roles == ["worker"] else {"[2, 2, 2, 2]", "[0, 0, 0, 0]"}
    assert len(set(begun[workers:])) == 1 and set(begun[workers:]) <= later, said
    # The same command finds the end of the job.
    status, said = finish(processes.launch(text, *options, workers=workers, servers=1, DEAD=tmp_path / "dead"))
    assert status == 0 and said.count("[6, 6, 6, 6]") == workers and said.count(ends) == workers, said


@pytest.mark.parametrize("policy", ["continue", "wait", "fail"])
@pytest.mark.parametrize("restarts", [0, 1])
@pytest.mark.parametrize("workers", [1, 3])
def test_the_launcher_ends_when_all_workers_are_dead_for_good(processes, tmp_path, workers, restarts, policy):
    options = ("--restart", str(restarts), "--on-death", policy, "--grace", "60")
    saves = ("--restore", str(tmp_path / "saved"), "--snapshot-every", "2")
    text = SAVES.replace("DIES", "step == 3")
    job = processes.launch(text, *options, *saves, workers=workers, servers=2, DEAD="none")
    said = read_until(job, "waits for its death", count=workers)
    kill_together(job, "worker")
    if restarts:
        said += read_until(job, "waits for its death", count=workers)
        kill_together(job, "worker")
    status, rest = finish(job, timeout=20)
    said += rest
    assert status == 128 + signal.SIGKILL and said.count("it is started again") == restarts * workers, said


def test_a_job_whose_workers_are_all_dead_ends_where_no_restart_is_left(processes):
    text = ALL_DIE.replace('kv.round("w") == 3 and not kv.rejoined', 'kv.round("w") in (3, 5)')
    begin = time.monotonic()
    status, said = finish(processes.launch(text, "--restart", "1", "--on-death", "continue", workers=1))
    assert status == 128 + signal.SIGKILL and said.count("it is started again") == 1, said
    assert "the job has ended" not in said and time.monotonic() - begin < 20, said


def test_a_life_is_not_started_into_a_job_that_has_ended(processes):
    text = ALL_DIE.replace('kv.round("w") == 3', "False") + "\nraise ValueError('after the leave')\n"
    status, said = finish(processes.launch(text, "--restart", "3", workers=1))
    assert status == 1 and "it is not started again, because it had left the job" in said, said
    assert "it is started again" not in said, said


LEFT_AND_FAILED = """
with mx.kv.create("dist_sync") as kv:
    kv.init("w", np.zeros(4))
    print("begins", kv.rank, kv.rejoined, flush=True)
    if kv.rank == 1 and not kv.rejoined:
        kv.close()
        mark(f"pid-{os.getpid()}")
        os._exit(3)
    if kv.rank == 0:
        found = []
        while not found:
            found = [name[9:] for name in os.listdir(os.path.dirname(sys.argv[0])) if name.startswith("mark-pid-")]
        while os.path.exists("/proc/" + found[0]):  # until the launcher has seen its end
            time.sleep(0.001)
"""


@pytest.mark.parametrize("policy", ["continue", "wait", "fail"])
def test_a_worker_that_fails_after_its_leave_is_not_started_into_a_job_that_ends(processes, policy):
    options = ("--restart", "3", "--on-death", policy)
    status, said = finish(processes.launch(LEFT_AND_FAILED, *options, servers=1))
    assert "FailedPreconditionError" not in said and "it is started again" not in said, said
    assert "worker 1 ended with status 3; it is not started again, because it had left the job" in said, said
    assert status == 3, said


LATE = """
with mx.kv.create("dist_sync") as kv:
    kv.set_optimizer(mx.optimizer.SGD(learning_rate=-1.0))
    kv.init("w", np.zeros(4))
    for i in range(5):
        kv.push("w", np.ones(4))
        kv.pull("w")
        if i == 2 and kv.rank == 0 and not kv.rejoined:
            os.kill(os.getpid(), signal.SIGKILL)
    kv.init("x", np.full(300_000, kv.rank + 1.0, np.float32))
    kv.init_table("t", 2)
    print("made", kv.pull("x").asnumpy()[[0, -1]].tolist(), flush=True)
"""

# A key that one worker deletes while another still reads it is an error there: all wait first.
DELETES_AT_LAST = """
    kv.barrier()
    kv.delete("x")
"""


@pytest.mark.parametrize("restarts", [0, 3])
def test_under_continue_the_lowest_rank_that_lives_creates_keys(processes, restarts):
    text = LATE if restarts else LATE + DELETES_AT_LAST
    job = processes.launch(text, "--restart", str(restarts), "--on-death", "continue", workers=3)
    status, said = finish(job)
    made = re.findall(r"made \[([\d.]+), ([\d.]+)\]", said)
    assert len(made) == (3 if restarts else 2), said
    assert all(first == last for first, last in made) and status == (0 if restarts else 128 + signal.SIGKILL), said
    if not restarts:
        assert set(made) == {("2.0", "2.0")}, said


HEIR_OF_AN_OPTIMIZER = """
with mx.kv.create("dist_sync") as kv:
    def init():
        kv.init("w", np.zeros(4))
    def set_optimizer():
        if kv.rank == 0 and not kv.rejoined:
            until_marked("waits")
            os.kill(os.getpid(), signal.SIGKILL)
        kv.set_optimizer(mx.optimizer.SGD(learning_rate=-1.0))
        mark("waits")
    for call in (CALLS):
        call()
    while kv.rank == 1 and not kv.rejoined and kv.status()["workers"][0]["state"] == "alive":
        time.sleep(0.01)
    done = 0
    while done < 3:
        try:
            kv.push("w", np.ones(4))
            kv.pull("w")
            done += 1
        except mx.errors.InvalidArgumentError as error:
            print(error, flush=True)
            set_optimizer()
    print("ends", kv.rank, kv.pull("w").asnumpy()[0], flush=True)
"""


@pytest.mark.parametrize("calls", ["init, set_optimizer", "set_optimizer, init"])
@pytest.mark.parametrize("restarts", [0, 1])
def test_under_continue_an_heir_is_told_to_set_the_optimizer_that_rank_0_has_not_set(processes, restarts, calls):
    options = ("--restart", str(restarts), "--on-death", "continue")
    status, said = finish(processes.launch(HEIR_OF_AN_OPTIMIZER.replace("CALLS", calls), *options))
    assert "or here again where worker 0 is dead" in said, said
    assert re.search(r"ends 1 [34]\.0", said) if restarts == 0 else said.count("ends") == 2, said
    assert status == (0 if restarts else 128 + signal.SIGKILL), said


SECOND = """
again = os.path.exists(os.path.join(os.path.dirname(os.path.abspath(__file__)), "mark-dies"))
if os.environ["TKV_RANK"] == "0" and again:
    until_marked("made")
a = mx.kv.create("dist_sync")
a.init("w", np.full(4, a.rank + 1, np.float32))
a.set_optimizer(mx.optimizer.SGD(learning_rate=-1.0))
while a.round("w") < 2:
    a.push("w", np.ones(4, np.float32))
    a.pull("w")
mark(f"has-read-{a.rank}")
if a.rank == 0 and not again:
    until_marked("has-read-1")
    until_marked("has-read-2")
    mark("dies")
    os.kill(os.getpid(), signal.SIGKILL)
while a.rank > 0 and a.status()["workers"][0]["state"] not in ("dead", "lost"):
    time.sleep(0.01)
b = mx.kv.create("dist_sync")
b.init("w", np.full(600_000, b.rank + 1, np.float32))
b.init_table("t", 2)
b.set_optimizer(mx.optimizer.SGD(learning_rate=-1.0))
first = sorted(set(b.pull("w").asnumpy().tolist()))
mark("made")
if b.rank == 0:
    mark("is-back")
elif RESTARTS:
    until_marked("is-back")
b.barrier()  # nobody pushes before all have read
for _ in range(3):
    b.push("w", np.full(600_000, 10, np.float32))
    b.push_rows("t", [7], np.ones((1, 2), np.float32))
b.barrier()
last = sorted(set(b.pull("w").asnumpy().tolist()))
row = b.pull_rows("t", [7]).asnumpy().ravel().tolist()
print("made", b.rank, first, last, row, a.pull("w").asnumpy().tolist(), flush=True)
"""


@pytest.mark.parametrize("restarts", [0, 3])
def test_under_continue_a_second_store_is_made_while_rank_0_is_dead(processes, restarts):
    options = ("--restart", str(restarts), "--on-death", "continue")
    status, said = finish(processes.launch(f"RESTARTS = {restarts}\n{SECOND}", *options, workers=3))
    assert status == (0 if restarts else 128 + signal.SIGKILL), said
    pushing = [0, 1, 2] if restarts else [1, 2]
    values = f"[2.0] [{2 + 30.0 * len(pushing)}] {[3.0 * len(pushing)] * 2} {[1 + 2 * 3.0] * 4}"
    assert sorted(re.findall(r"made (\d) (.*)", said)) == [(str(rank), values) for rank in pushing], said


LAST = """
stores = [mx.kv.create("dist_sync") for _ in range(2)]
for kv in stores:
    kv.init("w", np.zeros(300_000, np.float32))
    kv.init_table("t", 1)
    kv.set_optimizer(mx.optimizer.SGD(learning_rate=-1.0))
rank, rejoined = stores[0].rank, stores[0].rejoined
def step():
    for factor, kv in enumerate(stores, 1):
        kv.push("w", np.full(300_000, 10.0**rank * factor, np.float32))
        kv.push_rows("t", [3], np.full((1, 1), 10.0**rank * factor, np.float32))
        kv.pull("w"), kv.pull_rows("t", [3])
def values(kv):
    return sorted({*kv.pull("w").asnumpy().tolist(), *kv.pull_rows("t", [3]).asnumpy().ravel().tolist()})
def seen():
    return [[kv.round("w"), kv.round("t"), values(kv)] for kv in stores]
print("begins", rank, rejoined, seen(), flush=True)
while stores[0].round("w") < 2:
    step()
if rank == 1:
    until_marked("left")  # rank 0
    if rejoined == TWICE:
        mark("goes")
    GOES
if rank == 2:
    until_marked("goes")
    while not rejoined and stores[0].status()["workers"][1]["state"] == "alive":
        time.sleep(0.01)
    while ALONE and stores[0].round("w") < 4:
        step()
    if not rejoined:
        raise ValueError("a bad batch")
    if ALONE:
        step()
print("ends", rank, seen(), flush=True)
for kv in stores:
    kv.close()
mark("left")
"""
GOES = {
    "leaves": "pass",
    "closes store 0 and leaves": "stores[0].close()\n    sys.exit(0)",
    "dies twice": "os._exit(3)",
}


@pytest.mark.parametrize("policy", ["continue", "wait", "fail"])
@pytest.mark.parametrize("goes", GOES)
def test_the_last_worker_fails_and_finds_both_stores_in_its_next_life(processes, goes, policy):
    """Rank 0 has left, and rank 1 leaves or is dead for good before rank 2 fails; no push is lost."""
    alone = policy == "continue"
    text = f"ALONE, TWICE = {alone}, {goes == 'dies twice'}\n" + LAST.replace("GOES", GOES[goes])
    status, said = finish(processes.launch(text, "--restart", "1", "--on-death", policy, workers=3))
    assert status == (3 if goes == "dies twice" else 0), said
    found = [[4, 4, [422.0]], [4, 4, [844.0]]] if alone else [[2, 2, [222.0]], [2, 2, [444.0]]]
    assert f"begins 2 True {found}" in said, said
    if alone:
        found = [[5, 5, [522.0]], [5, 5, [1044.0]]]
    assert f"ends 2 {found}" in said, said


@pytest.mark.parametrize("servers", [1, 3])
@pytest.mark.parametrize("moment", ["sent:INIT:1", "sent:INIT:2"])
def test_rank_0_dies_while_it_creates_its_first_key(processes, moment, servers):
    text = """
    with mx.kv.create("dist_sync") as kv:
        kv.init("w", np.full(600_000, kv.rank + 1, np.float32))
        value = kv.pull("w").asnumpy()
        assert value.min() == value.max(), "the key is torn"
        kv.barrier()
        print("ends", value[0], flush=True)
    """
    options = ("--restart", "2", "--on-death", "continue", "--failpoints", f"worker 0:{moment}:kill")
    status, said = finish(processes.launch(text, *options, workers=3, servers=servers))
    assert status == 0 and said.count("ends") == 3 and "it is started again (2" not in said, said
    assert len(set(re.findall(r"ends ([\d.]+)", said))) == 1, said


HANGS = """
with mx.kv.create("dist_sync") as kv:
    kv.init("w", np.zeros(4))
    while kv.round("w") < 8:
        kv.push("w", np.ones(4))
        kv.pull("w")
    print("ends", flush=True)
"""


@pytest.mark.parametrize(
    ("options", "ends", "status"),
    [
        (("--on-death", "continue"), 1, 128 + signal.SIGKILL),
        (("--on-death", "continue", "--restart", "1"), 2, 0),
        (("--restart", "1"), 2, 0),
        ((), 0, None),
    ],
    ids=["continue", "continue and restart", "wait and restart", "fail"],
)
def test_a_worker_that_hangs_is_ended_and_started_again_where_it_may_be(processes, options, ends, status):
    hang = ("--silence-ms", "1500", "--grace", "1", "--failpoints", "worker 1:sent:PUSH:3:stop")
    got, said = finish(processes.launch(HANGS, *hang, *options, servers=1), timeout=40)
    assert said.count("ends") == ends and (ends == 0 or "worker 1 is silent" in said), said
    assert got == status if status is not None else got != 0, said


def test_a_worker_that_fails_and_takes_its_time_is_not_ended(processes):
    text = """
    try:
        with mx.kv.create("dist_sync") as kv:
            kv.init("w", np.zeros(4))
            if kv.rank == 1:
                raise ValueError("mine")
            kv.barrier()
    except ValueError:
        time.sleep(4)
        print("has cleaned up", flush=True)
        raise
    """
    job = processes.launch(text, "--silence-ms", "1000", "--on-death", "continue", "--grace", "0", servers=1)
    status, said = finish(job)
    assert status == 1 and "has cleaned up" in said and "is silent" not in said, said


def test_a_life_that_has_pushed_may_assign(processes):
    work = """
with mx.kv.create("dist_sync") as kv:
    kv.init("w", np.zeros(4, np.float32))
    if kv.rejoined:
        try:
            kv.assign("w", np.ones(4, np.float32))
        except mx.errors.FailedPreconditionError as error:
            print("refused:", error, flush=True)
    while kv.round("w") < 6:
        kv.push("w", np.ones(4, np.float32))
        kv.assign("w", np.full(4, 10 * kv.round("w"), np.float32))
        assert kv.pull("w").asnumpy()[0] == 10 * kv.round("w")
        if kv.round("w") == 3 and not kv.rejoined:
            os.kill(os.getpid(), signal.SIGKILL)
    print("ends", flush=True)
"""
    status, said = finish(processes.launch(work, "--restart", "1", workers=1))
    assert status == 0 and "ends" in said, said
    assert (
        "it was started again or a snapshot was restored before its script began, and has pushed nothing since" in said
    ), said


@pytest.mark.parametrize("kind", ["restarted", "restored"])
def test_a_life_that_has_pushed_may_load(processes, kind):
    work = """
loads = 0
with mx.kv.create("dist_sync") as kv:
    kv.init("w", np.zeros(4, np.float32))
    kv.set_optimizer(mx.optimizer.SGD(learning_rate=-1.0))
    print("begins at", kv.round("w"), kv.rejoined, flush=True)
    while kv.round("w") < 6 or loads < 1:
        kv.pushpull("w", np.ones(4, np.float32))
        assert kv.pull("w").asnumpy()[0] == 2 * kv.round("w"), kv.round("w")
        if kv.round("w") == 2:
            kv.save(sys.argv[1])
        if kv.round("w") == 3 and kv.rank == 1 and not kv.rejoined and KIND == "restarted":
            os.kill(os.getpid(), signal.SIGKILL)
        if kv.round("w") == 6 and loads < 1:
            kv.load(sys.argv[1])
            loads += 1
            assert kv.round("w") == 2 and kv.pull("w").asnumpy()[0] == 4
    print("ends at", kv.round("w"), flush=True)
"""
    work = work.replace("KIND", repr(kind)).replace("sys.argv[1]", repr(str(processes.folder / "snapshots")))
    jobs = [("--restart", "1")] if kind == "restarted" else [(), ("--restore", processes.folder / "snapshots")]
    for options in jobs:
        status, said = finish(processes.launch(work, *options, servers=1))
        assert status == 0 and said.count("ends at 6") == 2, said
    assert re.search(r"begins at \d True", said), said


REPEATS = """
kv = mx.kv.create("dist_sync")
if KIND == "dense":
    kv.init("w", np.zeros(600_000, np.float32))
else:
    kv.init_table("w", 2, rows=12)
kv.set_optimizer(mx.optimizer.SGD(learning_rate=-1.0))
print("begins at", kv.round("w"), flush=True)
while kv.round("w") < 5:
    if KIND == "dense":
        kv.push("w", np.ones(600_000, np.float32))
        kv.pull("w")
    else:
        kv.push_rows("w", np.arange(12), np.ones((12, 2), np.float32))
        kv.pull_rows("w", np.arange(12))
value = kv.pull("w") if KIND == "dense" else kv.pull_rows("w", np.arange(12))
value = np.asarray(value.asnumpy() if hasattr(value, "asnumpy") else value)
print("ends", value.min(), value.max(), flush=True)
"""


# A dense key of this size has three parts, and a table on two servers has eight: a round is so many messages. A table's messages to one
# server leave together, so that the fifth one leaves with the last.
@pytest.mark.parametrize(("kind", "message"), [("dense", 7), ("dense", 8), ("rows", 17), ("rows", 19), ("rows", 20)])
@pytest.mark.parametrize("policy", ["wait", "fail"])
@pytest.mark.parametrize("workers", [1, 2])
def test_a_push_that_a_part_of_a_key_has_got_is_repeated(processes, kind, message, policy, workers):
    options = ("--restart", "2", "--on-death", policy, "--failpoints", f"worker 0:sent:PUSH:{message}:kill")
    status, said = finish(processes.launch(f"KIND = {kind!r}\n{REPEATS}", *options, workers=workers))
    assert status == 0 and "it is started again" in said and "begins at 2" in said, said
    assert said.count(f"ends {5.0 * workers} {5.0 * workers}") == workers, said


def test_a_key_of_two_rounds_is_saved_after_its_push_is_repeated(processes, tmp_path):
    text = f"""
    FOLDER = {str(tmp_path / "mine")!r}
    kv = mx.kv.create("dist_sync")
    kv.init("w", np.zeros(600_000, np.float32))
    kv.set_optimizer(mx.optimizer.SGD(learning_rate=-1.0))
    if kv.rejoined:
        try:
            kv.save(FOLDER)
        except mx.errors.FailedPreconditionError as error:
            print("refused:", error, flush=True)
    while kv.round("w") < 5:
        kv.push("w", np.ones(600_000, np.float32))
        kv.pull("w")
    print("saved", kv.save(FOLDER), flush=True)
    """
    options = ("--restart", "1", "--failpoints", "worker 0:sent:PUSH:7:kill")
    status, said = finish(processes.launch(text, *options, workers=1))
    why = "the push of round 3 by this worker has failed, or was ended with its process, and parts of this key have it"
    assert status == 0 and f"refused: save 'w': {why}; push the key again first" in said, said
    assert "saved" in said.rpartition("refused")[2], said


def test_saves_by_themselves_wait_for_the_repeated_push(processes, tmp_path):
    text = """
    kv = mx.kv.create("dist_sync")
    kv.init("w", np.zeros(600_000, np.float32))
    kv.init("v", np.zeros(4, np.float32))
    while kv.round("v") < 8:
        kv.push("v", np.ones(4, np.float32))
        kv.pull("v")
        while kv.round("w") < kv.round("v") and not (kv.rejoined and kv.round("v") < 6):
            kv.push("w", np.ones(600_000, np.float32))
            kv.pull("w")
    kv.close()
    """
    options = ("--restart", "1", "--snapshots", str(tmp_path), "--snapshot-every", "1")
    point = ("--failpoints", "worker 0:sent:PUSH:11:kill")
    status, said = finish(processes.launch(text, *options, *point, workers=1))
    assert status == 0 and said.count("no snapshot is saved by itself until key 'w' is pushed again") == 1, said
    assert "'w'" not in said.rpartition("pushed again")[2], said
    assert list(tmp_path.iterdir()), said


def test_nothing_is_assigned_while_another_worker_has_to_repeat_a_push(processes):
    text = """
    kv = mx.kv.create("dist_sync")
    kv.init("w", np.zeros(600_000, np.float32))
    kv.init("s", np.zeros(1, np.float32))
    kv.set_optimizer(mx.optimizer.SGD(learning_rate=-1.0))
    if not kv.rejoined:
        kv.push("w", np.ones(600_000, np.float32))
        kv.pull("w")
        if kv.rank == 1:
            kv.push("w", np.ones(600_000, np.float32))  # it does not get beyond the second part
    kv.push("s", np.ones(1, np.float32))
    try:
        kv.assign("w", np.full(600_000, 100, np.float32))
    except mx.errors.FailedPreconditionError as error:
        print(f"{kv.rank} refused:", error, flush=True)
    while kv.round("w") < 2:
        kv.push("w", np.ones(600_000, np.float32))
    value = kv.pull("w").asnumpy()
    print("ends", value.min(), value.max(), flush=True)
    """
    options = ("--restart", "1", "--failpoints", "worker 1:sent:PUSH:5:kill")
    status, said = finish(processes.launch(text, *options))
    why = "the push of round 2 by this worker has failed, or was ended with its process, and parts of this key have it"
    assert (
        status == 0
        and f"1 refused: assign 'w': {why}" in said
        and f"0 refused: assign: worker 1: assign 'w': {why}" in said
    ), said
    assert said.count("ends 4.0 4.0") == 2, said
