"""A worker that dies before its first push begins again as in its first life: its script loads, passes barriers, and trains from
the snapshot. The job never trains anew, or on values of which some are loaded and others not."""

import re
import shutil

import pytest
from jobs import finish

SETTINGS = """
import contextlib
LENGTHS = {"w": 4, "v": 1_000_000}  # of one part, and of four
FOLDER, STEPS, DIES = os.environ["FOLDER"], int(os.environ["STEPS"]), os.environ.get("DIES", "")
def may_die(kv, where):
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "mark-died")
    if DIES == f"{kv.rank} {where}" and not os.path.exists(path):
        mark("died")
        os.kill(os.getpid(), signal.SIGKILL)
"""

# The loop of docs/failures.md.
TRAIN = (
    SETTINGS
    + """
def train(kv):
    for key, length in LENGTHS.items():
        kv.init(key, np.zeros(length, np.float32))
    kv.set_optimizer(mx.optimizer.SGD(learning_rate=-1.0))
    may_die(kv, "before load")
    if not kv.rejoined:
        if "BARRIER" in os.environ:
            kv.barrier()
        may_die(kv, "between")
        with contextlib.suppress(mx.errors.SnapshotNotFoundError):
            kv.load(FOLDER)
        may_die(kv, "after load")
        if "BARRIER" in os.environ:
            kv.barrier()
        may_die(kv, "before push")
    values = {key: np.unique(kv.pull(key).asnumpy()).tolist() for key in LENGTHS}
    print("goes on at", [kv.round(key) for key in LENGTHS], "with", values, flush=True)
    while kv.round("v") < STEPS:
        step = kv.round("v")
        for key, length in LENGTHS.items():
            if kv.round(key) <= step:
                kv.push(key, np.ones(length, np.float32))
            kv.pull(key)
        if kv.round("v") % 5 == 0:
            kv.save(FOLDER)
    return [np.unique(kv.pull(key).asnumpy()).tolist() for key in LENGTHS]
with mx.kv.create("dist_sync", patience=25) as kv:
    print("ends with", train(kv), flush=True)
"""
)


def check(processes, folder, *options, workers, begins=10, **variables):
    """Run a job that goes on behind a round and makes ten steps."""
    steps = begins + 10
    job = processes.launch(TRAIN, "--restart", "1", *options, workers=workers, FOLDER=folder, STEPS=steps, **variables)
    status, said = finish(job, timeout=100)
    assert status == 0, said
    value = [float(begins * workers)]
    begun = re.findall(r"goes on at \[(\d+), (\d+)\] with (.*)", said)
    assert (str(begins), str(begins), str({"w": value, "v": value})) in begun, said
    # A process that failed because another one had died may have pushed before.
    assert all(int(number) >= begins for *numbers, _ in begun for number in numbers), said
    assert said.count(f"ends with {[[float(steps * workers)]] * 2}") == workers, said
    return said


@pytest.fixture
def saved(processes, tmp_path):
    """Save after five and after ten rounds; return the folder by number of workers."""

    def save(workers):
        folder = tmp_path / "snapshots"
        status, said = finish(processes.launch(TRAIN, workers=workers, FOLDER=folder, STEPS=10))
        assert status == 0 and sorted(path.name for path in folder.iterdir()) == ["000001", "000002"], said
        return folder

    return save


@pytest.mark.parametrize("where", ["before load", "after load"])
def test_a_lone_worker_loads_again(processes, saved, where):
    said = check(processes, saved(1), workers=1, DIES=f"0 {where}")
    assert "it is started again (1 of 1)" in said, said


@pytest.mark.parametrize("policy", ["fail", "wait"])
@pytest.mark.parametrize("where", ["before load", "after load"])
@pytest.mark.parametrize("rank", [0, 1])
def test_a_worker_that_died_before_its_first_push_takes_part_in_the_load(processes, saved, rank, where, policy):
    said = check(processes, saved(2), "--on-death", policy, workers=2, DIES=f"{rank} {where}")
    assert f"worker {rank} was killed by signal 9" in said and "it is started again (1 of 1)" in said, said


@pytest.mark.parametrize("where", ["before load", "between", "after load", "before push"])
@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("begins", [0, 10])
def test_its_barriers_are_those_of_the_others(processes, saved, tmp_path, rank, where, begins):
    """Without a snapshot the barrier of the load has failed for all, and does so again."""
    folder = saved(2) if begins else tmp_path / "none"
    check(processes, folder, "--on-death", "wait", workers=2, begins=begins, DIES=f"{rank} {where}", BARRIER=1)


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("number", [1, 2, 4])
def test_values_of_which_some_are_loaded_are_loaded_again(processes, saved, workers, number):
    said = check(processes, saved(workers), workers=workers, TKV_FAILPOINTS=f"worker 0:sent:RESTORE:{number}:kill")
    assert "it is started again (1 of 1)" in said, said


@pytest.mark.parametrize("workers", [1, 2])
def test_a_job_that_cannot_load_ends_with_that_error_and_prunes_nothing(processes, saved, workers):
    folder = saved(workers)
    (file,) = (folder / "000002").glob("model-00001-*.safetensors")
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)
    job = processes.launch(TRAIN, "--restart", "2", workers=workers, FOLDER=folder, STEPS=40)
    status, said = finish(job, timeout=100)
    assert status == 1 and "goes on at" not in said, said
    assert said.count("DataLossError") >= 3 and "it is started again (2 of 2)" in said, said
    assert sorted(path.name for path in folder.iterdir()) == ["000001", "000002"], said
    shutil.rmtree(folder / "000002")
    check(processes, folder, workers=workers, begins=5)


def test_a_worker_whose_job_has_begun_goes_on(processes, saved):
    text = TRAIN.replace(
        "while kv.round", "kv.push('w', np.ones(4, np.float32))\n    may_die(kv, 'after push')\n    while kv.round"
    )
    folder = saved(1)
    job = processes.launch(text, "--restart", "1", workers=1, FOLDER=folder, STEPS=20, DIES="0 after push")
    status, said = finish(job)
    assert status == 0 and "goes on at [11, 10]" in said, said


def test_a_second_store_is_loaded_again_too(processes, tmp_path):
    text = """
        with mx.kv.create("dist_sync", patience=25) as a, mx.kv.create("dist_sync", patience=25) as b:
            for kv in (a, b):
                kv.init("w", np.zeros(4, np.float32))
                if not kv.rejoined and os.path.exists(os.environ["FOLDER"]):
                    kv.load(f"{os.environ['FOLDER']}/{'ab'[kv is b]}")
                if kv is a:
                    may_die(kv, "between")
            print("goes on at", a.round("w"), b.round("w"), flush=True)
            while a.round("w") < STEPS:
                for kv in (a, b):
                    kv.push("w", np.ones(4, np.float32))
                    kv.pull("w")
            a.save(os.environ["FOLDER"] + "/a")
            b.save(os.environ["FOLDER"] + "/b")
    """
    text = SETTINGS + "".join(line.removeprefix("        ") for line in text.splitlines(keepends=True))
    for steps, variables in ((3, {}), (6, {"DIES": "1 between"})):
        job = processes.launch(text, "--restart", "1", FOLDER=tmp_path / "run", STEPS=steps, **variables)
        status, said = finish(job, timeout=100)
        assert status == 0, said
    assert set(re.findall(r"goes on at .*", said)) == {"goes on at 3 3"}, said
