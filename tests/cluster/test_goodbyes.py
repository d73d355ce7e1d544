"""Workers that end before they take part, stores that are never closed, and stores made after the job's end."""

import os
import re
import signal
import sys

import pytest
from jobs import finish, is_stopped, read_until, start_by_hand, wait_until

WORK = """
begin, others = time.time(), []
try:
    if os.environ["TKV_RANK"] == "1":
        {end}
    others = [mx.kv.create("dist_sync") for _ in range(int(os.environ.get("STORES", 1)) - 1)]
    kv = mx.kv.create("dist_sync")
    kv.init("w", mx.nd.zeros((2,)))
    out = mx.nd.zeros((2,))
    kv.pushpull("w", mx.nd.ones((2,)), out=out)
    print("sum", out.asnumpy()[0], flush=True)
    for other in others:
        other.init("w", mx.nd.zeros((2,)))
        other.pushpull("w", mx.nd.ones((2,)), out=out)
        print("sum", out.asnumpy()[0], flush=True)
except mx.KVError as error:
    print(f"knew {{type(error).__name__}} after {{time.time() - begin:.1f}} s: {{error}}", flush=True)
    for other in others:
        begin = time.time()
        try:
            other.init("w", mx.nd.zeros((2,)))
            other.pushpull("w", mx.nd.ones((2,)), out=mx.nd.zeros((2,)))
        except mx.KVError as error:
            print(f"knew {{type(error).__name__}} after {{time.time() - begin:.1f}} s: {{error}}", flush=True)
    sys.exit(7)
"""
ENDS = {
    "import": "import no_such_module",
    "killed": "os.kill(os.getpid(), signal.SIGKILL)",
    "status 0": "sys.exit(0)",
}


OPTIONS = {"once": (), "restarts used up": ("--restart", "1"), "tcp": ("--tcp",)}
JOBS = [(end, options, 1) for end in ENDS for options in OPTIONS] + [
    ("killed", "once", 2),
    ("status 0", "once", 4),
    ("import", "restarts used up", 4),
]


@pytest.mark.parametrize(("end", "options", "stores"), JOBS)
def test_a_worker_that_ends_before_it_has_joined_is_known_at_once(processes, end, options, stores):
    job = processes.launch(WORK.format(end=ENDS[end]), *OPTIONS[options], servers=1, STORES=stores)
    status, said = finish(job, timeout=40)
    known = "left after round 0" if end == "status 0" else "worker 1 is dead"
    after = re.findall(rf"knew UnavailableError after ([\d.]+) s.*{known}", said)
    assert len(after) == stores and all(float(seconds) < 8 for seconds in after) and status != 0, said


def test_who_joins_when_another_is_lost_still_waits_for_the_others(processes):
    text = WORK.format(end=ENDS["killed"]).replace(
        "try:", "if os.environ['TKV_RANK'] == '0': until_marked('lost')\ntry:", 1
    )
    text = text.replace("    kv.init", "    print('dead', kv.num_dead_node(7), kv.stats()['workers'])\n    kv.init", 1)
    job = processes.launch(text, "--restart", "1", servers=1)
    said = read_until(job, "was killed by signal 9", 2)
    (processes.folder / "mark-lost").touch()
    status, rest = finish(job, timeout=40)
    said += rest
    assert "dead 1 ['alive', 'dead']" in said, said
    assert "knew UnavailableError" in said and "on_death" not in said and status != 0, said


@pytest.mark.parametrize("stores", [1, 2, 4])
def test_rounds_go_on_without_a_worker_that_never_joined(processes, stores):
    job = processes.launch(WORK.format(end=ENDS["import"]), "--on-death", "continue", servers=1, STORES=stores)
    status, said = finish(job, timeout=40)
    assert status == 1 and said.count("sum 1.0") == stores and "worker 1 ended with status 1" in said, said


def test_a_server_that_cannot_come_is_known_at_once(processes):
    text = "kv = mx.kv.create('dist_sync')\n" + WORK.format(end="pass")
    job = processes.launch(text, workers=1, servers=1, TKV_FAILPOINTS="server 0:sent:HELLO:1:kill")
    status, said = finish(job, timeout=40)
    assert "server 0 is dead" in said and status == 128 + signal.SIGKILL, said


DROPS = {
    "a function returns": "train()",
    "del": "kv = make(); work(kv); del kv",
    "collected": "import gc; kv = make(); work(kv); cycle = [kv]; cycle.append(cycle); del kv, cycle; gc.collect()",
    "an exception": """
        try:
            kv = make()
            work(kv)
            kv.pull("no such key")
        except KeyError:
            del kv
""".strip(),
    "replaced": "kv = make(); work(kv); kv = None",
}


@pytest.mark.parametrize("drop", DROPS)
def test_a_store_that_goes_says_goodbye_and_its_pushes_count(processes, drop):
    text = f"""
def make():
    kv = mx.kv.create("dist_sync")
    kv.init("w", mx.nd.zeros((300_000,)))
    return kv
def work(kv):
    kv.push("w", mx.nd.ones((300_000,)))
def train():
    kv = make()
    work(kv)
if os.environ["TKV_RANK"] == "1":
    if True:
        {DROPS[drop]}
    print("gone", flush=True)
    while not os.path.exists(sys.argv[0] + ".done"):
        time.sleep(0.05)
else:
    kv = make()
    work(kv)
    print("sum", kv.pull("w").asnumpy()[-1], flush=True)
    kv.push("w", mx.nd.ones((300_000,)))
    try:
        kv.pull("w")
    except mx.KVError as error:
        print("error:", error, flush=True)
    finally:
        open(sys.argv[0] + ".done", "w").close()
"""
    status, said = finish(processes.launch(text, servers=1), timeout=40)
    assert "sum 2.0" in said, said
    assert "worker 1 left after round 1; round 2 needs it" in said and "dead" not in said, said


PARTS = """
def make():
    kv = mx.kv.create("dist_sync")
    kv.init("w", mx.nd.zeros((300_000,)))
    return kv
def step(kv):
    kv.push("w", mx.nd.ones((300_000,)))
    return kv.pull("w").asnumpy()[-1]
def fail(kv):
    try:
        with kv:
            raise ValueError("mine")
    except ValueError:
        pass
stores = [make() for _ in range(STORES)]
assert [step(kv) for kv in stores] == [2] * STORES
if stores[0].rank == 1:
    GO
    mark("gone")
    until_marked("known")
else:
    until_marked("gone")
    begin = time.time()
    try:
        step(stores[GOES])
    except mx.KVError as error:
        print(f"knew after {time.time() - begin:.1f} s: {error}", flush=True)
    mark("known")
stores[GOES] = None
print("others", [float(step(kv)) for kv in stores if kv], flush=True)
"""


CAUGHT = 'fail(stores[GOES]); stores[GOES - 1].pull("w")'


@pytest.mark.parametrize(
    "go", ["stores[GOES].close()", "stores[GOES] = None", CAUGHT], ids=["closed", "dropped", "failed and caught"]
)
@pytest.mark.parametrize(("stores", "goes"), [(2, 0), (2, 1), (4, 0), (4, 2)])
def test_a_store_that_goes_takes_none_of_the_others_along(processes, stores, goes, go):
    text = f"STORES, GOES = {stores}, {goes}\n" + PARTS.replace("GO\n", f"{go}\n")
    status, said = finish(processes.launch(text, servers=1), timeout=40)
    known = f"worker 1 closed store {goes} after round 1; round 2 needs it"
    assert re.search(rf"knew after [0-3]\.\d s: .*{known}", said), said
    assert status == 0 and said.count(f"others {[2.0] * (stores - 1)}") == 2, said


@pytest.mark.parametrize("stores", [1, 2, 4])
def test_a_store_that_is_made_after_the_jobs_end_says_so(processes, stores):
    text = f"""
    stores = [mx.kv.create("dist_sync") for _ in range({stores})]
    for kv in stores:
        kv.init("w", mx.nd.zeros((2,)))
        kv.pushpull("w", mx.nd.ones((2,)), out=mx.nd.zeros((2,)))
    for kv in stores:
        kv.close()
    time.sleep(3)  # the other's close, and the end of the servers
    try:
        with mx.kv.create("dist_sync") as kv:
            kv.init("w", mx.nd.zeros((2,)))
    except mx.KVError as error:
        print("second:", error, flush=True)
    """
    status, said = finish(processes.launch(text, "--grace", "3", servers=2), timeout=40)
    assert said.count("second:") == 2 and said.count("the job has ended") >= 2, said
    assert "is dead" not in said and "checkpoint" not in said, said


def test_what_is_missing_at_create_is_named(processes):
    command = [sys.executable, "-u", "-m", "tensorkv"]
    head = processes.start([*command, "head", "--workers", "1", "--servers", "3"], TKV_JOB="hand")
    common = {"TKV_HEAD": head.stdout.readline().split()[-1], "TKV_JOB": "hand"}
    server = processes.start([*command, "server", "--rank", "1"], **common)
    server.stdout.readline()
    script = processes.script("mx.kv.create('dist_sync', patience=2)")
    status, said = finish(processes.start([sys.executable, script], **common))
    assert status == 1 and "waited 2000 ms: 1 of 3 servers have come, server 0 and server 2 are missing" in said, said
    for process in (server, head):
        process.terminate()
        process.wait()
    script = processes.script("mx.kv.create('dist_sync', patience=1)")
    unreachable = {"TKV_HEAD": "tcp:127.0.0.1:1", "TKV_INSECURE_NETWORK": "1"}
    status, said = finish(processes.start([sys.executable, script], **unreachable))
    assert status == 1 and "waited 1000 ms for the head: tcp:127.0.0.1:1: Connection refused" in said, said


@pytest.mark.parametrize("trial", range(6))
def test_a_server_ends_well_where_the_answer_to_its_leave_and_the_end_of_the_head_come_together(processes, trial):
    """A server that took the head for lost would wait for another one, because the worker is dead."""
    text = """
    with mx.kv.create("dist_sync"):
        raise ValueError("mine")
    """
    variables = {"TKV_FAILPOINTS": "server 0:sent:GOODBYE:1:stop", "TKV_LOG": "info"}
    started = start_by_hand(processes, text, workers=1, **variables)
    status, said = finish(started["head"])
    assert status == 0 and "server 0 left" in said, said  # its answer and its end wait for the server
    wait_until(lambda: is_stopped(started["server"].pid))
    os.killpg(started["server"].pid, signal.SIGCONT)
    status, said = finish(started["server"], timeout=10)
    assert status == 0 and 'event=ended because="all workers have left or are dead"' in said, said


FAILS = """
def work(kv):
    kv.init("w", mx.nd.zeros((2,)))
    kv.pushpull("w", mx.nd.ones((2,)), out=mx.nd.zeros((2,)))
    if kv.rank == 1:
        {end}
    kv.pushpull("w", mx.nd.ones((2,)), out=mx.nd.zeros((2,)))
{begin}
"""
STYLES = {
    "a store of the script": 'kv = mx.kv.create("dist_sync"); work(kv)',
    "with": 'with mx.kv.create("dist_sync") as kv: work(kv)',
}


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize(
    ("end", "known"),
    [
        ("raise ValueError('mine')", "worker 1 is dead; round 2 needs it"),
        ("sys.exit(0)", "worker 1 (left|closed store \\d) after round 1"),
    ],
)
@pytest.mark.parametrize("stores", [1, 2, 4])
def test_a_worker_that_ends_by_an_exception_is_dead_and_has_not_left(processes, stores, style, end, known):
    begin = (
        f"try:\n    {STYLES[style]}\nexcept mx.KVError as error:\n    print('knew', error, flush=True)\n    sys.exit(7)"
    )
    if "with" not in style:
        begin = STYLES[style].replace("work(kv)", "kv.rank") + "\n" + begin.replace(STYLES[style], "work(kv)")
    text = f"others = [mx.kv.create('dist_sync') for _ in range({stores - 1})]\n" + FAILS.format(end=end, begin=begin)
    _, said = finish(processes.launch(text, servers=1), timeout=40)
    assert re.search(rf"\[worker 0\] .*knew pushpull 'w': {known}", said), said
    assert "this life is over" not in said and "[worker 1] worker 1" not in said, said


EXITS = """
others = [mx.kv.create("dist_sync") for _ in range(STORES - 1)]
for other in others:
    other.init("v", mx.nd.zeros((2,)))
try:
    with mx.kv.create("dist_sync") as kv: work(kv)
except mx.KVError as error:
    print("knew", error, flush=True)
    sys.exit(7)
except SystemExit:
    if not CATCHES: raise
    others[0].push("v", mx.nd.ones((2,)))
"""


@pytest.mark.parametrize(
    ("stores", "catches", "known"),
    [
        (2, False, "worker 1 is dead; round 2 needs it"),
        (4, False, "worker 1 is dead; round 2 needs it"),
        (2, True, "worker 1 (left|closed store 1) after round 1; round 2 needs it"),
    ],
)
def test_a_worker_that_exits_with_a_status_inside_of_with_is_dead_for_all_stores(processes, stores, catches, known):
    text = FAILS.format(end="sys.exit(3)", begin=EXITS)
    text = text.replace("STORES", str(stores)).replace("CATCHES", str(catches))
    _, said = finish(processes.launch(text, servers=1), timeout=40)
    assert re.search(rf"\[worker 0\] .*knew pushpull 'w': {known}", said), said
    assert ("worker 1 is dead" in said) == (not catches), said


@pytest.mark.parametrize("stores", [1, 2, 4])
def test_a_worker_that_ends_by_an_exception_is_awaited_where_it_is_started_again(processes, stores):
    text = f"""
    import contextlib
    with contextlib.ExitStack() as stack:
        stores = [stack.enter_context(mx.kv.create("dist_sync")) for _ in range({stores})]
        for kv in stores:
            kv.init("w", mx.nd.zeros((2,)))
        while kv.round("w") < 3:
            if kv.rank == 1 and kv.round("w") == 1 and not kv.rejoined:
                raise ValueError("mine")
            for kv in stores:
                kv.pushpull("w", mx.nd.ones((2,)), out=mx.nd.zeros((2,)))
        print("values", [float(kv.pull("w").asnumpy()[0]) for kv in stores], flush=True)
    """
    job = processes.launch(text, "--restart", "1", "--on-death", "wait", servers=1)
    status, said = finish(job, timeout=40)
    assert status == 0 and said.count(f"values {[2.0] * stores}") == 2, said
