"""Jobs under Ray, on a cluster of three nodes in one machine: the ranks of workers, and the effects of each death."""

import contextlib
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
import tensorkv as mx
from jobs import finish, read_until, wait_until

ray = pytest.importorskip("ray")
import tensorkv.ray  # noqa: E402
from ray.cluster_utils import Cluster  # noqa: E402

pytestmark = [pytest.mark.framework, pytest.mark.slow, pytest.mark.timeout(180)]
ray.cloudpickle.register_pickle_by_value(
    sys.modules[__name__]
)  # the actors below are not in a module of the workers' path

EXAMPLES = pathlib.Path(__file__).parents[2] / "examples"
NAMESPACE = "tests"
PATIENCE = 60


def add_node(cluster, **options):
    """Add a node; on a busy machine one may take longer to start than Ray waits for it."""
    for attempt in range(3):
        try:
            return cluster.add_node(**options)
        except Exception as error:  # Ray raises no more special one
            if attempt == 2 or "timed out during startup" not in str(error):
                raise


@pytest.fixture(scope="module")
def cluster():
    """A cluster of three nodes, to which this process is connected."""
    made = Cluster()
    add_node(made, num_cpus=2, include_dashboard=False)
    for _ in range(2):
        add_node(made, num_cpus=2)
    ray.init(address=made.address, namespace=NAMESPACE, log_to_driver=False)
    yield made
    ray.shutdown()
    made.shutdown()


@pytest.fixture
def start(cluster):
    """`tensorkv.ray.start`; jobs that a test has started are stopped at its end."""
    started = []

    def start_one(*arguments, **options):
        started.append(tensorkv.ray.start(*arguments, **{"patience": PATIENCE, **options}))
        return started[-1]

    yield start_one
    for job in started:
        job.stop()


class Trainer:
    """A worker that pushes whole numbers, whose sum says whether each push has counted once."""

    def __init__(self):
        self.begun = time.monotonic()

    def pid(self):
        return os.getpid()

    def train(self, job, steps, die_at=None, slow=0.0, late=0.0):
        """Train until the end, through all restarts of the job; return a record of the training."""
        time.sleep(late)
        told = {"pid": os.getpid(), "rejoined": [], "begins": []}
        while True:
            try:
                with job.store() as kv:
                    told["rank"] = kv.rank
                    told["rejoined"].append(kv.rejoined)
                    self.push(kv, steps, die_at, slow, told)
                    told["value"] = kv.pull("w").asnumpy().tolist()
                    kv.barrier()  # no worker leaves while another one may need a server
                return told
            except mx.errors.UnavailableError as error:
                told["error"] = str(error)

    def push(self, kv, steps, die_at, slow, told):
        kv.init("w", np.zeros(3, np.float32))
        kv.set_optimizer(mx.optimizer.SGD(learning_rate=-1.0))
        told["begins"].append(kv.round("w"))
        for step in range(told["begins"][-1] + 1, steps + 1):
            if step == die_at and kv.rank == 1 and not kv.rejoined:
                os.kill(os.getpid(), signal.SIGKILL)
            kv.pushpull("w", np.full(3, step * (kv.rank + 1), np.float32), out=np.empty(3, np.float32))
            told.setdefault("first_push_after", time.monotonic() - self.begun)
            time.sleep(slow)

    def rank(self, rank=None, job=None):
        """Return the rank of a store made by plain create, or of a job."""
        self.kv = job.store(rank=rank) if job is not None else mx.kv.create("dist_sync", rank=rank)
        return self.kv.rank

    def error(self, job=None, **options):
        """Return the type and the text of the error that a store is not made with."""
        try:
            job.store(**options) if job is not None else mx.kv.create("dist_sync", **options)
        except mx.KVError as error:
            return type(error).__name__, str(error)

    def push_once(self):
        """Push and wait for the round, which needs all workers; return its error."""
        if "w" not in self.kv:
            self.kv.init("w", np.zeros(3, np.float32))
        self.kv.push("w", np.ones(3, np.float32))
        try:
            self.kv.pull("w")
        except mx.KVError as error:
            return type(error).__name__, str(error)


def places_of(token):
    """Return the logs of Ray, the commands and the environments that have a text in them."""
    logs = pathlib.Path(ray._private.worker._global_node.get_logs_dir_path())
    places = [
        *logs.rglob("*"),
        *pathlib.Path("/proc").glob("[0-9]*/cmdline"),
        *pathlib.Path("/proc").glob("[0-9]*/environ"),
    ]
    return [str(place) for place in places if has(place, token.encode())]


def has(place, text):
    try:
        return place.is_file() and text in place.read_bytes()
    except OSError:  # its process has ended
        return False


def trainers(count, **options):
    actor = ray.remote(Trainer).options(num_cpus=0.5, **options)
    return [actor.remote() for _ in range(count)]


def expected(steps, workers=2):
    return [sum(range(1, steps + 1)) * sum(range(1, workers + 1))] * 3


def pids_of(kind="TensorKVServer"):
    """Return the processes of this machine that are actors of a class."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            if pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().startswith(f"ray::{kind}".encode()):
                found.append(int(pid))
    return found


def get(*references, timeout=100):
    return ray.get(list(references), timeout=timeout)


# --------------------------------------------------------------------------------------------------------------- deaths


def test_a_worker_that_is_killed_goes_on_as_the_next_life_of_its_rank(start):
    job = start(workers=2)
    actors = trainers(2, max_restarts=1, max_task_retries=1)
    pids = get(*[actor.pid.remote() for actor in actors])
    told = get(*[actor.train.remote(job, 60, die_at=30) for actor in actors])
    assert [one["value"] for one in told] == [expected(60)] * 2
    (first,) = [one for one in told if one["rank"] == 0]
    (second,) = [one for one in told if one["rank"] == 1]
    assert first["rejoined"] == [False] and first["pid"] in pids, "the others never begin anew"
    assert second["rejoined"] == [True] and second["pid"] not in pids and second["begins"] == [29]
    print(f"a worker that was killed pushes {second['first_push_after']:.2f} s after Ray has it back")
    assert second["first_push_after"] < 30


def test_a_server_that_is_killed_without_snapshots_is_the_end_of_the_job(start):
    job = start(workers=2)
    os.kill(pids_of()[0], signal.SIGKILL)  # when it holds nothing yet
    wait_until(lambda: job._look()["run"] == 2 and job._look()["phase"] == "ready")
    actors = trainers(2)
    training = [actor.train.remote(job, 100_000) for actor in actors]
    with mx.KVStore._observer(*place_of(job)) as eye:
        wait_until(lambda: [key["round"] for key in eye.status()["keys"]] > [3])
    os.kill(pids_of()[0], signal.SIGKILL)
    for reference in training:
        with pytest.raises(mx.errors.FailedPreconditionError, match="server 0 has died, and its values are lost"):
            get(reference)
    kind, text = get(actors[0].error.remote(job))[0]
    assert kind == "FailedPreconditionError" and "there are no snapshots to go on from" in text
    assert "stop the job and start another one" in text


def place_of(job):
    """Return the arguments of an observer."""
    look = job._look()
    return look["url"], {"token": look["token"]}, 0


@pytest.mark.parametrize("servers", [2])
def test_a_server_that_is_killed_comes_back_with_the_newest_snapshot(start, tmp_path, servers):
    job = start(workers=2, servers=servers, snapshots=tmp_path, snapshot_every="5")
    actors = trainers(2)
    training = [actor.train.remote(job, 200, slow=0.02) for actor in actors]
    wait_until(lambda: list(tmp_path.glob("0*/*.index.json")))
    os.kill(pids_of()[0], signal.SIGKILL)
    told = get(*training)
    assert [one["value"] for one in told] == [expected(200)] * 2
    for one in told:
        assert one["rejoined"] == [False, True] and one["begins"][1] % 5 == 0 and one["begins"][1] > 0, one
        assert "server" in one["error"]
    assert len({one["begins"][1] for one in told}) == 1
    wait_until(lambda: job._look()["phase"] == "ended")
    look = job._look()
    assert look["run"] == 2
    assert not places_of(look["token"]), "the token is in nothing that others see"


def test_a_job_whose_snapshots_are_gone_does_not_begin_anew(start, tmp_path):
    folder = tmp_path / "saved"
    job = start(workers=1, snapshots=folder, snapshot_every=5)
    training = trainers(1)[0].train.remote(job, 100_000, slow=0.02)
    wait_until(lambda: list(folder.glob("0*/*.index.json")))
    time.sleep(2)  # the head looks once a second
    while folder.exists():  # a save may write there meanwhile
        shutil.rmtree(folder, ignore_errors=True)
    os.kill(pids_of()[0], signal.SIGKILL)
    wait_until(lambda: job._look()["phase"] == "lost")
    assert f"there is no snapshot in {folder} any more" in job._look()["why"]
    ray.cancel(training, force=False)


def test_a_node_that_comes_late_is_awaited_and_one_that_goes_is_replaced(cluster, start, tmp_path):
    options = {"snapshots": tmp_path, "snapshot_every": "5", "resources": {"num_cpus": 1, "resources": {"late": 1}}}
    jobs = []
    starting = threading.Thread(target=lambda: jobs.append(start(workers=2, patience=100, **options)))
    starting.start()
    first = add_node(cluster, num_cpus=1, resources={"late": 1})
    starting.join()
    (job,) = jobs
    training = [actor.train.remote(job, 200, slow=0.02) for actor in trainers(2)]
    wait_until(lambda: list(tmp_path.glob("0*/*.index.json")))
    cluster.remove_node(first, allow_graceful=False)
    second = add_node(cluster, num_cpus=1, resources={"late": 1})
    told = get(*training)
    cluster.remove_node(second)
    assert [one["value"] for one in told] == [expected(200)] * 2
    assert [one["rejoined"] for one in told] == [[False, True]] * 2


def test_a_job_whose_head_is_killed_says_so_to_who_comes_and_data_goes_on(start):
    job = start(workers=2)
    actors = trainers(2)
    assert sorted(get(*[actor.rank.remote() for actor in actors])) == [0, 1]
    get(*[actor.push_once.remote() for actor in actors])
    ray.kill(job._head())
    wait_until(lambda: ask(job)[0] is mx.errors.KeyNotFoundError)
    assert "its head's actor has died" in ask(job)[1] and "start() starts one" in ask(job)[1]
    assert get(*[actor.push_once.remote() for actor in actors]) == [None, None]


def test_a_job_whose_head_is_killed_is_stopped_and_started_again_without_its_handle(start):
    start(workers=1)
    (server,) = pids_of()
    os.kill(pids_of("TensorKVHead")[0], signal.SIGKILL)
    wait_until(lambda: tensorkv.ray.job_names() == [] or ask(tensorkv.ray.job("job"))[0] is mx.errors.UnavailableError)
    job = start(workers=1)
    with job.store() as kv:
        kv.init("w", np.zeros(2, np.float32))
    wait_until(lambda: server not in pids_of())


def test_stores_that_are_open_when_a_job_is_stopped_learn_it_at_once(start):
    job = start(workers=2)
    actors = trainers(2)
    get(*[actor.rank.remote() for actor in actors])
    get(*[actor.push_once.remote() for actor in actors])
    waiting = actors[0].push_once.remote()  # for a round that never comes
    begun = time.monotonic()
    job.stop()
    kind, text = get(waiting)[0]
    print(f"an open store learned of the stop after {time.monotonic() - begun:.2f} s")
    assert kind == "UnavailableError" and "server 0 is dead" in text and time.monotonic() - begun < 20


def test_a_job_is_looked_at_from_the_driver_and_from_commands_outside_of_ray(start, tmp_path):
    job = start(workers=1)
    (actor,) = trainers(1)
    get(actor.rank.remote())
    get(actor.push_once.remote())
    with job.connect() as eye:
        assert eye.keys() == ["w"] and eye.pull("w").asnumpy().tolist() == [1.0] * 3
    with pytest.raises(mx.errors.InvalidArgumentError, match="url says which job is meant"):
        job.connect(url=job.url)
    with pytest.raises(mx.errors.UnauthenticatedError, match=r"observer \(.*\) has no token.*token_file="):
        mx.kv.connect(job.url)
    token = tmp_path / "token"
    token.write_text("an older and longer one" * 9)
    token.chmod(0o644)
    job.write_token(token)
    assert token.stat().st_mode & 0o777 == 0o600
    command = [
        sys.executable,
        "-m",
        "tensorkv",
        "get",
        "w",
        job.url,
        "--token-file",
        token,
        "--out",
        tmp_path / "w.npy",
    ]
    subprocess.run(command, check=True, timeout=60)
    assert np.load(tmp_path / "w.npy").tolist() == [1.0] * 3


def test_a_job_that_has_ended_says_so(start):
    job = start(workers=1)
    with job.store() as kv:
        kv.init("w", np.zeros(2, np.float32))
    wait_until(lambda: job.status()["phase"] == "ended")
    assert job.status() == {
        "phase": "ended",
        "why": "all its workers have left",
        "run": 1,
        "owners": {0: f"driver {ray.get_runtime_context().get_job_id()}"},
    }
    with pytest.raises(mx.errors.FailedPreconditionError, match="job 'job' has ended: all its workers have left"):
        job.store()


def ask(job):
    try:
        job._look()
    except mx.KVError as error:
        return type(error), str(error)
    return None, ""


def test_a_driver_that_is_killed_leaves_no_process(cluster, processes):
    text = f"""
    import ray, tensorkv.ray
    ray.init(address={cluster.address!r}, namespace="theirs", log_to_driver=False)
    job = tensorkv.ray.start(workers=1, servers=1, patience={PATIENCE})
    @ray.remote(num_cpus=0.5)
    class Worker:
        def begin(self):
            self.kv = mx.kv.create("dist_sync")
            return os.getpid()
    worker = Worker.remote()
    print("pid", ray.get(worker.begin.remote()), flush=True)
    time.sleep(600)
    """
    before = set(pids_of("TensorKV"))
    driver = processes.start([sys.executable, "-u", processes.script(text)])
    worker = int(read_until(driver, "pid ").split()[-1])
    theirs = {worker} | set(pids_of("TensorKV")) - before
    assert len(theirs) == 3, "the head, a server and a worker"
    os.kill(driver.pid, signal.SIGKILL)
    wait_until(lambda: not [pid for pid in theirs if os.path.exists(f"/proc/{pid}")])


# --------------------------------------------------------------------------------------------------------------- places


def test_plain_create_finds_the_job_in_actors_in_tasks_and_in_the_driver(start):
    job = start(workers=3, servers=2)
    (actor,) = trainers(1)
    assert get(actor.rank.remote(rank=2)) == [2]
    assert get(actor.rank.remote()) == [2], "the same actor is the same worker"

    @ray.remote(num_cpus=0.5)
    def task():
        with mx.kv.create("dist_sync") as kv:
            return kv.rank, kv.num_workers

    with mx.kv.create("dist_sync", num_workers=3) as kv:
        assert kv.rank == 0
        assert get(task.remote()) == [(1, 3)]
        kinds = {rank: text.split()[0] for rank, text in job.status()["owners"].items()}
        assert kinds == {0: "driver", 1: "task", 2: "actor"}
    with pytest.raises(mx.errors.InvalidArgumentError, match="num_workers=4, and job 'job' has 3"):
        mx.kv.create("dist_sync", num_workers=4)


def test_a_task_that_is_tried_again_is_the_same_worker(start, tmp_path):
    start(workers=1)
    mark = tmp_path / "died"

    @ray.remote(num_cpus=0.5, max_retries=1)
    def task():
        with mx.kv.create("dist_sync") as kv:
            kv.init("w", np.zeros(3, np.float32))
            if kv.round("w") == 0:
                kv.push("w", np.ones(3, np.float32))
                kv.pull("w")
                mark.touch()
                os.kill(os.getpid(), signal.SIGKILL)
            return kv.rank, kv.rejoined, kv.round("w")

    assert get(task.remote()) == [(0, True, 1)] and mark.exists()


def test_a_worker_that_is_late_is_awaited(start):
    """Later than `server_patience`, which is for a server that was there before."""
    job = start(workers=2, server_patience=0.5)
    first, second = trainers(2)
    told = get(first.train.remote(job, 3), second.train.remote(job, 3, late=1.2))
    assert [one["value"] for one in told] == [expected(3)] * 2


def test_two_jobs_at_once_have_workers_of_their_own(start):
    jobs = [start(workers=2, name=name) for name in ("one", "two")]
    assert tensorkv.ray.job("two").name == "two" and len({job.url for job in jobs}) == 2
    actors = trainers(4)
    steps = [20, 30]
    told = get(*[actor.train.remote(jobs[i // 2], steps[i // 2]) for i, actor in enumerate(actors)])
    assert [one["value"] for one in told] == [expected(20)] * 2 + [expected(30)] * 2
    kind, text = get(actors[0].error.remote())[0]
    assert kind == "InvalidArgumentError" and "there are 2 in this namespace of Ray, one, two" in text
    assert "TKV_RAY_JOB" in text
    named = ray.remote(Trainer).options(num_cpus=0.5, runtime_env={"env_vars": {"TKV_RAY_JOB": "two"}}).remote()
    kind, text = get(named.error.remote())[0]
    assert "job 'two' has ended: all its workers have left" in text


def test_the_place_of_an_actor_is_taken_by_another_one_only_when_it_is_dead_for_good(start):
    job = start(workers=2)
    first, second, third = trainers(3)
    assert get(first.rank.remote(rank=1), second.rank.remote(rank=0)) == [1, 0]
    kind, text = get(third.error.remote(job))[0]
    assert kind == "FailedPreconditionError" and "all 2 places are taken (0 is actor" in text and "workers=..." in text
    kind, text = get(third.error.remote(job, rank=1))[0]
    assert kind == "FailedPreconditionError" and "rank=1 is taken" in text
    kind, text = get(second.error.remote(job, rank=1))[0]
    assert kind == "InvalidArgumentError" and "is worker 0 already" in text
    kind, text = get(third.error.remote(job, rank=2))[0]
    assert kind == "InvalidArgumentError" and "has 2 workers, 0 to 1" in text
    waiting = second.push_once.remote()  # a round that the next life of worker 1 completes
    ray.kill(first)
    wait_until(lambda: get(third.error.remote(job, rank=1)) == [None])
    assert get(third.rank.remote(job=job)) == [1]
    get(third.push_once.remote(), waiting)


# --------------------------------------------------------------------------------------------------------------- errors


def test_what_is_wrong_with_a_job_is_said_when_it_is_started(start):
    for options, text in (
        ({"workers": 0}, "workers=0, a whole number"),
        ({"workers": 1, "servers": True}, "servers=True"),
        ({"workers": 1, "name": "a/b"}, "name='a/b', up to 64 letters"),
        ({"workers": 1, "placement": "spread"}, "placement='spread'; there are PACK, SPREAD"),
        ({"workers": 1, "resources": {"cpus": 1}}, "resources has 'cpus'"),
        ({"workers": 1, "resources": {"num_cpus": 0}}, "placement=None needs none"),
        ({"workers": 1, "snapshot_every": "5"}, "needs snapshots="),
        ({"workers": 1, "snapshots": "x", "snapshot_every": "often"}, "such as 30s"),
        ({"workers": 1, "on_death": "cry"}, "on_death"),
        ({"workers": 1, "patience": 0}, "patience=0"),
        ({"workers": 1, "insecure_network": True}, "insecure_network has no effect"),
    ):
        with pytest.raises(mx.errors.InvalidArgumentError, match=re.escape(text)):
            start(**options)
    with pytest.raises(TypeError, match="staleness"):
        start(workers=1, stalenes=1)
    assert not tensorkv.ray.job_names(), "nothing of them is left"


def test_a_store_that_is_asked_for_in_the_wrong_way_takes_no_place(start):
    job = start(workers=1)
    for options, kind, text in (
        ({"patiance": 3}, TypeError, "did you mean 'patience'?"),
        ({"patience": "long"}, mx.errors.InvalidArgumentError, "a number of seconds is needed"),
        ({"type": "local"}, mx.errors.InvalidArgumentError, "type='local'; a store of a job is a distributed one"),
        ({"type": "dist_snyc"}, mx.errors.InvalidArgumentError, "type='dist_snyc'"),
        ({"on_death": "fail"}, mx.errors.InvalidArgumentError, "on_death= of tensorkv.ray.start() says it"),
        ({"rank": "0"}, mx.errors.InvalidArgumentError, "rank='0'"),
        ({"num_workers": 2}, mx.errors.InvalidArgumentError, "num_workers=2"),
        ({"servers": 2}, mx.errors.InvalidArgumentError, "servers=2, and job 'job' has 1: servers= of"),
    ):
        with pytest.raises(kind, match=re.escape(text)):
            job.store(**options)
    with pytest.raises(mx.errors.InvalidArgumentError, match="a number of seconds is needed"):
        mx.kv.create("dist_sync", patience="long")
    assert job.status()["owners"] == {}


def test_options_of_a_store_go_before_those_of_the_job_in_either_unit(start):
    job = start(workers=1, server_patience=20, silence=4)
    with pytest.raises(mx.errors.InvalidArgumentError, match="snapshots and snapshot_every go together"):
        job.store(snapshots="/nowhere")
    assert job.status()["owners"] == {}
    with job.store(server_patience_ms=15000) as kv:
        kv.init("w", np.zeros(2, np.float32))
        with job.connect(silence_ms=3000) as eye:
            assert eye.keys() == ["w"]
        with pytest.raises(TypeError, match="did you mean 'patience'"):
            job.connect(patiense=1)
        with pytest.raises(mx.errors.InvalidArgumentError, match="store=-1"):
            job.connect(store=-1)


def test_a_store_saves_as_often_as_it_says_where_the_job_says(start, tmp_path):
    job = start(workers=1, snapshots=tmp_path / "saved", snapshot_every="1000")
    with job.store(snapshot_every="1") as kv:
        kv.init("w", np.zeros(2, np.float32))
        for _ in range(3):
            kv.pushpull("w", np.ones(2, np.float32), out=np.empty(2, np.float32))
    assert list((tmp_path / "saved").glob("0000*"))


def test_a_job_that_waits_for_room_is_looked_at(cluster):
    errors = []

    def start_without_room():
        try:
            tensorkv.ray.start(workers=1, servers=50, name="big", patience=8)
        except mx.KVError as error:
            errors.append(error)

    starting = threading.Thread(target=start_without_room)
    starting.start()
    wait_until(lambda: "big" in tensorkv.ray.job_names())
    job = tensorkv.ray.job("big")
    assert job.status()["phase"] == "servers start"
    with pytest.raises(mx.errors.UnavailableError, match="connect: job 'big' has no head yet: servers start"):
        job.connect()
    starting.join()
    assert isinstance(errors[0], mx.errors.DeadlineExceededError), errors
    groups = ray.util.placement_group_table().values()
    assert all(group["state"] == "REMOVED" for group in groups if ":big:" in group["name"])


def test_what_a_dead_head_has_left_is_stopped_by_another_driver(start, monkeypatch):
    job = start(workers=1)
    (server,) = pids_of()
    os.kill(pids_of("TensorKVHead")[0], signal.SIGKILL)
    wait_until(lambda: ask(job)[0] in (mx.errors.UnavailableError, mx.errors.KeyNotFoundError))
    monkeypatch.setattr(tensorkv.ray, "_started", {})  # as where somebody else has started it
    tensorkv.ray.Job("job", NAMESPACE, 5).stop()
    wait_until(lambda: server not in pids_of())


def test_a_name_in_use_and_a_stale_handle(start):
    job = start(workers=1)
    with pytest.raises(
        mx.errors.AlreadyExistsError, match=r"there is a job 'job' .*tensorkv.ray.job\('job'\).stop\(\)"
    ):
        start(workers=1)
    job.stop()
    job.stop()
    with pytest.raises(mx.errors.KeyNotFoundError, match="it has been stopped"):
        wait_until(lambda: job.store())
    with pytest.raises(mx.errors.KeyNotFoundError, match="there is none in this namespace"):
        tensorkv.ray.job()


@pytest.mark.parametrize("placement", ["STRICT_SPREAD", None])
def test_a_cluster_without_room_says_what_is_wanted_and_what_there_is(start, placement):
    begun = time.monotonic()
    with pytest.raises(mx.errors.DeadlineExceededError) as caught:
        start(workers=1, servers=2, resources={"num_cpus": 50}, placement=placement, patience=3)
    assert time.monotonic() - begun < 30
    assert re.search(
        r"waited 3 s; 2 servers, on 3 nodes, want each CPU 50 \(the cluster has 6, [0-9.]+ of it", str(caught.value)
    )
    wait_until(lambda: tensorkv.ray.job_names() == [])


WITHOUT_RAY = """
import sys
sys.modules["ray"] = None
import tensorkv as mx
try:
    mx.kv.create("dist_sync")
except mx.KVError as error:
    print(error)
import tensorkv.ray
"""
OLD_RAY = """
import sys, types
sys.modules["ray"] = types.ModuleType("ray")
sys.modules["ray"].__version__ = "2.9.3"
import tensorkv.ray
"""
NOT_CONNECTED = """
import tensorkv as mx, tensorkv.ray
for call in (lambda: tensorkv.ray.start(workers=1), tensorkv.ray.job, lambda: mx.kv.create("dist_sync")):
    try:
        call()
    except mx.errors.FailedPreconditionError as error:
        print(error)
"""


@pytest.mark.parametrize(
    "text, wanted",
    [
        (WITHOUT_RAY, ["nothing says who else takes part", "pip install 'ray>=2.40'"]),
        (OLD_RAY, ["needs Ray 2.40 or later, this is 2.9.3"]),
        (NOT_CONNECTED, ["start: Ray is not connected; call ray.init() first", "job: Ray", "nothing says who else"]),
    ],
)
def test_without_ray_and_before_it_is_connected(text, wanted):
    said = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=60)
    for words in wanted:
        assert words in said.stdout + said.stderr


# -------------------------------------------------------------------------------------------------------------- example


def test_the_example_reaches_its_accuracy_with_a_worker_killed_on_the_way(cluster, processes, tmp_path):
    command = [sys.executable, "-u", str(EXAMPLES / "ray_actors.py"), "--epochs", "20", "--die-at", "100"]
    status, said = finish(
        processes.start(
            [*command, "--picture", str(tmp_path / "digits.png")], RAY_ADDRESS=cluster.address, RAY_DEDUP_LOGS=0
        ),
        timeout=120,
    )
    assert status == 0, said
    assert "started again; goes on with step 100" in said and said.count("a 'dist_sync' store") == 3, said
    assert float(re.search(r"test accuracy +([0-9.]+)", said)[1]) >= 0.95, said


def test_the_example_of_ray_train_goes_on_with_new_actors_in_the_places_of_the_dead(cluster, processes, tmp_path):
    command = [sys.executable, "-u", str(EXAMPLES / "ray_train.py"), "--epochs", "20", "--die-at", "100"]
    status, said = finish(
        processes.start([*command, "--storage", str(tmp_path)], RAY_ADDRESS=cluster.address), timeout=150
    )
    assert status == 0 and "workers were started again: True" in said, said
    assert float(re.search(r"test accuracy ([0-9.]+)", said)[1]) >= 0.95, said
