"""A job that has lost a server ends; a new run continues from its checkpoint."""

import os
import pathlib
import re
import signal
import sys

import pytest
import tensorkv as mx
from jobs import finish, pids_of, wait_until

DIGITS = str(pathlib.Path(__file__).parents[2] / "examples" / "digits.py")


def accuracy(said):
    return re.search(r"test accuracy +([\d.]+)", said).group(1)


def test_digits_go_on_from_their_checkpoint_after_a_server_has_died(processes, tmp_path):
    checkpoint = tmp_path / "state"
    launch = [sys.executable, "-m", "tensorkv", "launch", "-n", "2", "-s", "2", "--grace", "5"]
    train = [sys.executable, "-u", DIGITS, "--kv", "dist_sync", "--picture", str(tmp_path / "p.png"), "--every", "50"]
    status, whole = finish(processes.start([*launch, *train]))
    assert status == 0, whole

    job = processes.start([*launch, *train, "--checkpoint", str(checkpoint)])
    wait_until(checkpoint.exists)
    os.kill(pids_of(job, "server")[1], signal.SIGKILL)
    status, said = finish(job)
    assert status == 128 + signal.SIGKILL, said
    for rank in (0, 1):
        assert re.search(rf"\[worker {rank}\] .*UnavailableError: .*server 1", said), said

    status, rest = finish(processes.start([*launch, *train, "--checkpoint", str(checkpoint)]))
    assert status == 0 and rest.count("resumed from") == 2, rest
    assert accuracy(rest) == accuracy(whole)


def test_a_worker_that_is_started_again_counts_its_steps_from_the_beginning_of_its_job(processes, tmp_path):
    checkpoint = tmp_path / "state"
    launch = [sys.executable, "-m", "tensorkv", "launch", "-n", "2", "-s", "2", "--restart", "1"]
    train = [sys.executable, "-u", DIGITS, "--kv", "dist_sync", "--picture", str(tmp_path / "p.png"), "--epochs", "20"]
    # Rank 1 dies after the first checkpoint of its job, and must not take that checkpoint for the beginning.
    chaos = ["--every", "50", "--checkpoint", str(checkpoint), "--die-at", "120"]
    status, said = finish(processes.start([*launch, *train, *chaos]))
    assert status == 0 and re.search(r"started again; goes on with step 1(19|20)\b", said), said
    assert int(mx.nd.load(str(checkpoint))["step"].asscalar()) == 400


LOAD = """
kv = mx.kv.create("dist_sync")
keys = list(range(40))
kv.init(keys, [mx.nd.zeros((4,))] * 40)
if not os.path.exists("{folder}"):
    kv.push(keys, [mx.nd.ones((4,))] * 40)
    kv.save("{folder}")
    sys.exit(0)
begin = time.time()
try:
    kv.load("{folder}")
except mx.KVError as error:
    print(f"knew {{type(error).__name__}} after {{time.time() - begin:.1f}} s: {{error}}", flush=True)
    os._exit(7)
"""


def test_a_load_that_fails_half_way_says_what_the_store_is_now_and_what_to_do(processes, tmp_path):
    text = LOAD.format(folder=tmp_path / "saved")
    status, said = finish(processes.launch(text))
    assert status == 0, said
    failpoints = "server 1:received:RESTORE:3:kill"
    _, said = finish(processes.launch(text, "--grace", "20", TKV_FAILPOINTS=failpoints))
    errors = re.findall(r"\[worker (\d)\] .*knew UnavailableError after ([\d.]+) s: (.*)", said)
    assert {rank for rank, _, _ in errors} == {"0", "1"}, said
    assert all(float(seconds) < 10 for _, seconds, _ in errors), said
    for _, _, text in errors:
        assert "server 1 is dead" in text, said
    why = dict((rank, text) for rank, _, text in errors)["0"]
    assert "some keys have been put back and others not" in why and "start the job again" in why, said


AGAIN = """
kv = mx.kv.create("dist_sync", patience=40)
keys = list(range(12))
kv.init(keys, [mx.nd.zeros((4,))] * 12)
kv.push(keys, [mx.nd.ones((4,))] * 12)
kv.save({folder!r})
kv.push(keys, [mx.nd.full((4,), 7)] * 12)
kv.barrier()
try:
    kv.load({folder!r})
    print("the load has ended", flush=True)
except mx.KVError as error:
    print(f"told {{type(error).__name__}}: {{error}}", flush=True)
    rounds = kv.load({folder!r})
    values = sorted({{float(kv.pull(key).asnumpy().max()) for key in keys}})
    print(f"again {{values}} in round {{set(rounds.values())}}", flush=True)
"""


@pytest.mark.parametrize(
    "dies_at", ["RESTORE:1", "RESTORE:7", "PUSH:26"]
)  # the last one: when it has come to the first barrier
def test_a_reader_that_dies_on_the_way_leaves_nobody_with_half_a_load(processes, tmp_path, dies_at):
    text = AGAIN.format(folder=str(tmp_path / "saved"))
    job = processes.launch(text, "--on-death", "continue", workers=3, TKV_FAILPOINTS=f"worker 0:sent:{dies_at}:kill")
    _, said = finish(job)
    assert "the load has ended" not in said, said
    told = re.findall(r"\[worker (\d)\] .*told AbortedError: (.*)", said)
    assert {rank for rank, _ in told} == {"1", "2"}, said
    assert all("worker 0, which reads the snapshot, has not ended the load: it is dead" in text for _, text in told), (
        said
    )
    assert said.count("again [3.0] in round {1}") == 2, said


# Rank 1 comes to the load while the head takes rank 0 for alive, and rank 2 after it has heard of the death.
KNOWN_TO_ONE = """
kv = mx.kv.create("dist_sync", patience=40)
kv.init("w", mx.nd.zeros((4,)))
kv.push("w", mx.nd.ones((4,)))
kv.save({folder!r})
if kv.rank == 0:
    until_marked("loading")
    time.sleep(1)
    os.kill(os.getpid(), signal.SIGKILL)
if kv.rank == 1:
    mark("loading")
while kv.rank == 2 and not kv.num_dead_node(4):
    time.sleep(0.01)
begin = time.monotonic()
try:
    kv.load({folder!r})
    print("the load has ended", flush=True)
except mx.KVError as error:
    print(f"told {{type(error).__name__}} {{error}}", flush=True)
    kv.load({folder!r})
print(f"again {{kv.pull('w').asnumpy().tolist()}} after {{time.monotonic() - begin:.1f}} s", flush=True)
"""


def test_a_reader_whose_death_only_one_rank_knows_is_named_to_all_at_once(processes, tmp_path):
    job = processes.launch(KNOWN_TO_ONE.format(folder=str(tmp_path / "saved")), "--on-death", "continue", workers=3)
    _, said = finish(job)
    told = re.findall(r"\[worker (\d)\] told AbortedError load: (worker \d), which reads", said)
    assert sorted(told) == [("1", "worker 0"), ("2", "worker 0")], said
    again = re.findall(r"\[worker (\d)\] again \[3.0, 3.0, 3.0, 3.0\] after ([\d.]+) s", said)
    assert sorted(rank for rank, _ in again) == ["1", "2"], said
    assert all(float(seconds) < 15 for _, seconds in again), said  # the patience for servers is 30 s


LAST = """
with mx.kv.create("dist_sync", patience=25) as kv:
    kv.init("w", np.zeros(4, np.float32))
    kv.push("w", np.ones(4, np.float32))
    kv.pull("w")
    if kv.rank == 1:
        while not os.path.exists(os.environ["FOLDER"] + ".gone"):
            pass  # save as soon as the other has left, before this worker is told of it
        print("saved", repr(kv.save(os.environ["FOLDER"])), flush=True)
if kv.rank == 0:
    open(os.environ["FOLDER"] + ".gone", "w").close()
"""


def test_a_save_right_behind_the_end_of_lower_ranks_is_written(processes, tmp_path):
    """Under `continue`, where rounds complete without workers that have left."""
    for trial in range(3):
        folder = tmp_path / str(trial)
        status, said = finish(processes.launch(LAST, "--on-death", "continue", workers=2, FOLDER=folder))
        assert status == 0 and f"saved '{folder}/000001'" in said, said
