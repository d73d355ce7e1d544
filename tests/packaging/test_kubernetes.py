"""The manifests in deploy/kubernetes name existing fields and commands and keep our rules; their image and jobs run."""

import os
import pathlib
import shutil
import socket
import stat
import subprocess
import sys

import manifests
import pytest
from manifests import FOLDER, find_tkv, load, of_kind
from pods import Cluster, Image, finish, instructions, run

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]  # the first of those that run jobs makes the image
ALL = ["jobset", "leaderworkerset", "rayjob", "trainjob-mpi", "trainjob-torch"]


def test_these_are_all_manifests():
    assert sorted(path.stem for path in FOLDER.glob("*.yaml")) == ALL


@pytest.mark.parametrize("name", ALL)
def test_every_field_exists_and_has_its_type(name):
    manifests.check_fields(load(name))


@pytest.mark.parametrize("name", ALL)
def test_the_rules_are_kept(name):
    assert manifests.faults(load(name), find_tkv()) == []


# ------------------------------------------------------------------------------------- that faults are found
def pod_of(documents, name):
    return dict(manifests.templates(documents))[name]["spec"]


def container_of(documents, name, container):
    return next(c for c in pod_of(documents, name)["containers"] if c["name"] == container)


def variable_of(documents, pod, container, name):
    return next(entry for entry in container_of(documents, pod, container)["env"] if entry["name"] == name)


FIELDS = {
    "of the JobSet": ("jobset", lambda d: d[0]["spec"].update(sucessPolicy={}), "sucessPolicy"),
    "of a replicated job": ("jobset", lambda d: d[0]["spec"]["replicatedJobs"][1].update(dependOn=[]), "dependOn"),
    "of a Job": ("jobset", lambda d: manifests.jobs(d)["workers"].update(completion=2), "completion"),
    "type of a Job": ("jobset", lambda d: manifests.jobs(d)["workers"].update(completions="2"), "completions"),
    "of a runtime": ("trainjob-mpi", lambda d: d[0]["spec"]["mlPolicy"]["mpi"].update(slots=1), "slots"),
    "of a TrainJob": ("trainjob-torch", lambda d: d[1]["spec"]["trainer"].update(numWorkers=2), "numWorkers"),
    "of a pod of LWS": ("leaderworkerset", lambda d: pod_of(d, "worker").update(container=[]), "container"),
    "type of a pod of LWS": ("leaderworkerset", lambda d: pod_of(d, "worker").update(volumes={}), "volumes"),
    "of a container of Ray": ("rayjob", lambda d: container_of(d, "head", "ray-head").update(cmd=[]), "cmd"),
    "missing in a container": ("rayjob", lambda d: container_of(d, "head", "ray-head").pop("name"), "name"),
    "of a policy": ("rayjob", lambda d: d[-1]["spec"].update(policyType=[]), "policyType"),
}


@pytest.mark.parametrize("name, spoil, said", FIELDS.values(), ids=FIELDS)
def test_a_field_that_is_wrong_is_found(name, spoil, said):
    documents = load(name)
    spoil(documents)
    with pytest.raises(ValueError, match=said):
        manifests.check_fields(documents)


def add_variable(pod, container, **entry):
    return lambda d: container_of(d, pod, container)["env"].append(entry)


def set_variable(pod, container, name, value):
    return lambda d: variable_of(d, pod, container, name).update(value=value)


SECRET = {"secretKeyRef": {"name": "digits-token", "key": "token"}}
RULES = {
    "root": ("jobset", lambda d: pod_of(d, "head")["securityContext"].pop("runAsNonRoot"), "may run as root"),
    "user 0": ("rayjob", lambda d: pod_of(d, "workers")["securityContext"].update(runAsUser=0), "may run as root"),
    "seccomp": (
        "trainjob-mpi",
        lambda d: pod_of(d, "node")["securityContext"].pop("seccompProfile"),
        "no seccomp profile",
    ),
    "a root that is written to": (
        "trainjob-torch",
        lambda d: container_of(d, "node", "node")["securityContext"].pop("readOnlyRootFilesystem"),
        "securityContext is not",
    ),
    "a capability": (
        "leaderworkerset",
        lambda d: container_of(d, "worker", "worker")["securityContext"]["capabilities"].update(add=["SYS_PTRACE"]),
        "securityContext is not",
    ),
    "the network of the machine": ("jobset", lambda d: pod_of(d, "servers").update(hostNetwork=True), "not apart"),
    "links": ("jobset", lambda d: pod_of(d, "servers").pop("enableServiceLinks"), "enableServiceLinks"),
    "no time to end": ("jobset", lambda d: pod_of(d, "head").pop("terminationGracePeriodSeconds"), "how long it takes"),
    "no limit": (
        "jobset",
        lambda d: container_of(d, "workers", "worker")["resources"]["limits"].pop("memory"),
        "no limit of memory",
    ),
    "no request of what runs first": (
        "jobset",
        lambda d: pod_of(d, "workers")["initContainers"][0]["resources"].pop("requests"),
        "token: no request",
    ),
    "too small a limit": (
        "rayjob",
        lambda d: container_of(d, "workers", "ray-worker")["resources"]["limits"].update(memory="1Gi"),
        "more memory than its limit",
    ),
    "the token as a value": (
        "jobset",
        add_variable("workers", "worker", name="TKV_TOKEN", value="x"),
        "token is in the",
    ),
    "the token from a secret": (
        "jobset",
        add_variable("head", "head", name="T", valueFrom=SECRET),
        "a secret is in the",
    ),
    "no token": ("jobset", add_variable("head", "head", name="TKV_INSECURE_NETWORK", value="1"), "without a token"),
    "the secret itself": (
        "jobset",
        set_variable("head", "head", "TKV_TOKEN_FILE", "/run/secret/token"),
        "no file with the token",
    ),
    "a copy that others can read": (
        "leaderworkerset",
        lambda d: pod_of(d, "worker")["initContainers"][0].update(
            command=["install", "-m", "440", "/run/secret/token", "/run/tensorkv/token"]
        ),
        "no file with the token",
    ),
    "a copy on a disk": (
        "jobset",
        lambda d: next(v for v in pod_of(d, "head")["volumes"] if v["name"] == "token")["emptyDir"].pop("medium"),
        "no file with the token",
    ),
    "another name of the head": (
        "jobset",
        set_variable("workers", "worker", "TKV_HEAD", "tcp:digits-head-0-1.digits:7000"),
        "no pod of the manifest",
    ),
    "the name without its subdomain": (
        "jobset",
        set_variable("servers", "server", "TKV_HEAD", "tcp:digits-head-0-0:7000"),
        "no pod of the manifest",
    ),
    "another subdomain": (
        "jobset",
        lambda d: d[0]["spec"]["network"].update(subdomain="other"),
        "no pod of the manifest",
    ),
    "fewer workers": ("jobset", set_variable("head", "head", "TKV_WORKERS", "1"), "told of 1 workers"),
    "fewer servers": (
        "leaderworkerset",
        set_variable("leader", "head", "TKV_SERVERS", "2"),
        "told of 2 workers and 2 servers",
    ),
    "a variable that nothing reads": (
        "jobset",
        add_variable("head", "head", name="TKV_WORKER", value="2"),
        "TKV_WORKER",
    ),
    "a value that is refused": ("jobset", set_variable("head", "head", "TKV_ON_DEATH", "waits"), "TKV_ON_DEATH"),
    "an option that is not there": (
        "jobset",
        lambda d: container_of(d, "servers", "server").update(args=["server", "--hedd", "x"]),
        "no option --hedd",
    ),
    "a subcommand that is not there": (
        "jobset",
        lambda d: container_of(d, "servers", "server").update(args=["sever"]),
        "no subcommand sever",
    ),
    "an option that the script does not have": (
        "trainjob-torch",
        lambda d: d[1]["spec"]["trainer"]["command"].append("--epoch"),
        "no option --epoch",
    ),
    "a script that is not there": (
        "rayjob",
        lambda d: d[0]["spec"].update(entrypoint="python /app/digit.py"),
        "image has no /app/digit.py",
    ),
    "no writable folder": (
        "jobset",
        lambda d: container_of(d, "workers", "worker")["volumeMounts"].pop(),
        "writes to /tmp",
    ),
    "no volume": ("rayjob", lambda d: pod_of(d, "head")["volumes"].clear(), "no volume tmp"),
    "no policy": ("jobset", lambda d: d.pop(), "no network policy"),
    "a policy for others": (
        "jobset",
        lambda d: d[-1]["spec"].update(podSelector={"matchLabels": {manifests.INSTANCE: "other"}}),
        "does not select it",
    ),
    "a policy that lets others in": ("jobset", lambda d: d[-1]["spec"]["ingress"].append({}), "lets others in"),
    "an image that is not made": (
        "jobset",
        lambda d: container_of(d, "head", "head").update(image="registry.example.com/tensorkv-cuda:0.1.0"),
        "no image",
    ),
}


@pytest.mark.parametrize("name, spoil, said", RULES.values(), ids=RULES)
def test_a_broken_rule_is_found(name, spoil, said):
    documents = load(name)
    spoil(documents)
    before = manifests.faults(load(name), find_tkv())
    after = manifests.faults(documents, find_tkv())
    assert [fault for fault in after if fault not in before and said in fault], after


# ------------------------------------------------------------------------------------- the image, and jobs of it
STAGES = instructions(FOLDER / "Dockerfile")


@pytest.fixture(scope="module")
def image(wheel, tmp_path_factory):
    """The image with MPI, which the plain one is a part of, in a folder."""
    assert os.geteuid() == 0, "making a root of a file system needs root"
    made = Image(tmp_path_factory.mktemp("image") / "root", wheel)
    made.make(STAGES, "mpi")
    return made


@pytest.fixture
def secret(tmp_path):
    """A folder with the content that `kubectl create secret` would have put into the secret."""
    (tmp_path / "token").write_bytes(os.urandom(32).hex().encode())
    return {"secret": tmp_path}


@pytest.fixture
def cluster_of(image, tmp_path_factory):
    """Return a function that makes a cluster with pods of these names, {own name: [names in DNS]}."""
    with_end = []

    def make(names):
        with_end.append(Cluster(image, tmp_path_factory.mktemp("cluster"), names))
        return with_end[-1].__enter__()

    yield make
    for cluster in with_end:
        cluster.__exit__()


def pods_of(job_set, subdomain, documents):
    """Return {pod of a JobSet: its name in DNS}, as the controller names them."""
    counts = {name: job.get("completions", 1) for name, job in manifests.jobs(documents).items()}
    pods = [f"{job_set}-{name}-0-{i}" for name, count in counts.items() for i in range(count)]
    return {pod: [f"{pod}.{subdomain}"] for pod in pods}


def start_job_set(cluster, documents, secret):
    """Start the pods of jobset.yaml in the order of their dependsOn; return {kind: processes}."""
    index = "metadata.annotations['batch.kubernetes.io/job-completion-index']"
    started = {}
    for name, job in manifests.jobs(documents).items():
        spec = job["template"]["spec"]
        (container,) = spec["containers"]
        started[name] = [
            cluster.start(f"digits-{name}-0-{i}", spec, container, told={index: str(i)}, secrets=secret)
            for i in range(job["completions"])
        ]
        if name == "head":
            cluster.wait_until_it_listens("digits-head-0-0", 7000, *started[name])
    return started


def test_the_job_of_jobset_runs_to_its_end(cluster_of, secret):
    documents = load("jobset")
    cluster = cluster_of(pods_of("digits", "digits", documents))
    started = start_job_set(cluster, documents, secret)
    ended = {name: finish(processes) for name, processes in started.items()}
    assert {name: [status for status, _ in of] for name, of in ended.items()} == {
        "head": [0], "servers": [0, 0], "workers": [0, 0]
    }, ended  # fmt: skip
    for rank, (_, said) in enumerate(ended["workers"]):
        assert f"worker {rank} of 2" in said, "the index of the pod is the rank of the worker"
    assert "test accuracy" in ended["workers"][0][1]


def test_a_worker_that_is_killed_goes_on_in_its_next_life(cluster_of, secret):
    documents = load("jobset")
    cluster = cluster_of(pods_of("digits", "digits", documents))
    workers = manifests.jobs(documents)["workers"]["template"]["spec"]
    workers["containers"][0]["command"] += ["--die-at", "400"]  # worker 1, and not again
    started = start_job_set(cluster, documents, secret)
    ((status, _),) = finish([started["workers"][1]])
    assert status == -9 or status == 137
    index = "metadata.annotations['batch.kubernetes.io/job-completion-index']"
    again = cluster.start("digits-workers-0-1", workers, workers["containers"][0], told={index: "1"}, secrets=secret)
    (status, said), (other, _) = finish([again, started["workers"][0]])
    assert (status, other) == (0, 0) and "started again; goes on with step 400" in said


def test_the_group_of_leaderworkerset_runs_to_its_end(cluster_of, secret):
    documents = load("leaderworkerset")
    names = {"digits-lws-0": ["digits-lws-0.digits-lws.default"], "digits-lws-0-1": [], "digits-lws-0-2": []}
    cluster = cluster_of(names)
    told = {"LWS_LEADER_ADDRESS": "digits-lws-0.digits-lws.default", "LWS_GROUP_SIZE": "3"}
    leader, worker = pod_of(documents, "leader"), pod_of(documents, "worker")
    started = []
    for container in leader["containers"]:
        own = {**told, "LWS_WORKER_INDEX": "0", "metadata.name": "digits-lws-0"}
        started.append(cluster.start("digits-lws-0", leader, container, told=own, secrets=secret))
        cluster.wait_until_it_listens("digits-lws-0", 7000, started[0])
    for i in ("1", "2"):
        own = {**told, "LWS_WORKER_INDEX": i}
        started.append(cluster.start(f"digits-lws-0-{i}", worker, worker["containers"][0], told=own, secrets=secret))
    ended = finish(started)
    assert [status for status, _ in ended] == [0, 0, 0, 0], ended
    assert any("test accuracy" in said for _, said in ended)


def test_mpirun_of_the_launcher_starts_workers_in_the_pods_of_the_nodes(cluster_of, tmp_path):
    documents = load("trainjob-mpi")
    nodes = ["digits-mpi-node-0-0", "digits-mpi-node-0-1"]
    cluster = cluster_of({pod: [f"{pod}.digits-mpi"] for pod in [*nodes, "digits-mpi-launcher-0-0"]})
    # Kubeflow makes a key, and a list of the nodes with the variables that name it.
    keys, hosts = tmp_path / "keys", tmp_path / "hosts"
    keys.mkdir()
    hosts.mkdir()
    run("ssh-keygen", "-q", "-t", "ecdsa", "-N", "", "-f", keys / "id_rsa")
    shutil.copy(keys / "id_rsa.pub", keys / "authorized_keys")
    (hosts / "hostfile").write_text("".join(f"{pod}.digits-mpi slots=1\n" for pod in nodes))
    policy = of_kind(documents, "TrainingRuntime")["spec"]["mlPolicy"]["mpi"]
    key_volume = (
        {"name": "key", "secret": {"defaultMode": 0o640}},
        {"name": "key", "mountPath": policy["sshAuthMountPath"]},
    )
    host_volume = ({"name": "hosts", "secret": {"defaultMode": 0o444}}, {"name": "hosts", "mountPath": "/etc/mpi"})
    told = {
        "OMPI_MCA_orte_default_hostfile": "/etc/mpi/hostfile",
        "OMPI_MCA_orte_keep_fqdn_hostnames": "true",
        "OMPI_MCA_orte_set_default_slots": str(policy["numProcPerNode"]),
        "OMPI_MCA_plm_rsh_args": "-o ConnectionAttempts=10",
    }
    secrets = {"key": keys, "hosts": hosts}
    node = pod_of(documents, "node")
    for pod in nodes:
        sshd = cluster.start(pod, node, node["containers"][0], secrets=secrets, extra=[key_volume])
        cluster.wait_until_it_listens(pod, 2222, sshd)
    launcher = pod_of(documents, "launcher")
    (container,) = launcher["containers"]
    container["command"] = of_kind(documents, "TrainJob")["spec"]["trainer"]["command"]
    mpirun = cluster.start(
        "digits-mpi-launcher-0-0", launcher, container, told=told, secrets=secrets, extra=[key_volume, host_volume]
    )
    ((status, said),) = finish([mpirun])
    assert status == 0 and "worker 0 of 2" in said and "worker 1 of 2" in said and "test accuracy" in said, said


def test_torchrun_of_the_trainjob_starts_workers_in_two_nodes(tmp_path):
    """By the package that is installed here: PyTorch makes an image of gigabytes."""
    documents = load("trainjob-torch")
    torchrun = pathlib.Path(sys.executable).with_name("torchrun")
    assert torchrun.exists(), "./dev setup frameworks installs PyTorch"
    trainer = of_kind(documents, "TrainJob")["spec"]["trainer"]
    words = [word.replace("/tmp/", f"{tmp_path}/") for word in trainer["command"]]
    words = [str(torchrun), *(word.replace("/app/", f"{manifests.ROOT}/examples/") for word in words[1:])]
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    # The variables that Kubeflow sets. Kubeflow's own master address is the name of the first pod.
    told = {"PET_NNODES": str(trainer["numNodes"]), "PET_NPROC_PER_NODE": str(trainer["numProcPerNode"]),
            "PET_MASTER_ADDR": "127.0.0.1", "PET_MASTER_PORT": port}  # fmt: skip
    environment = {**os.environ, **manifests.variables(container_of(documents, "node", "node")), **told}
    nodes = [
        subprocess.Popen(
            words, env={**environment, "PET_NODE_RANK": str(i)}, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
        )
        for i in range(trainer["numNodes"])
    ]  # fmt: skip
    ended = finish(nodes)
    assert [status for status, _ in ended] == [0, 0], ended
    assert "worker 0 of 2" in ended[0][1] and "test accuracy" in ended[0][1] and "worker 1 of 2" in ended[1][1]


def test_a_pod_has_the_rights_that_its_manifest_says(cluster_of, secret):
    documents = load("jobset")
    cluster = cluster_of({"digits-workers-0-0": []})
    spec = manifests.jobs(documents)["workers"]["template"]["spec"]
    looks = (
        "import os, tempfile\n"
        "token = os.stat(os.environ['TKV_TOKEN_FILE'])\n"
        "print(os.getuid(), oct(token.st_mode), token.st_uid, os.path.exists('/run/secret/token'))\n"
        "tempfile.TemporaryFile()\n"
        "for path in ('/app/x', '/home/tensorkv/x', '/run/tensorkv/x'):\n"
        "    try: open(path, 'w')\n"
        "    except OSError as error: print(path, error.errno == 30)\n"
    )
    index = {"metadata.annotations['batch.kubernetes.io/job-completion-index']": "0"}
    command = ["python", "-c", looks]
    process = cluster.start(
        "digits-workers-0-0", spec, spec["containers"][0], told=index, secrets=secret, command=command
    )
    ((status, said),) = finish([process])
    assert status == 0, said
    written, *tried = said.splitlines()
    assert written == f"10001 {oct(stat.S_IFREG | 0o400)} 10001 False"
    assert tried == ["/app/x True", "/home/tensorkv/x True", "/run/tensorkv/x True"]


def test_the_secret_itself_is_refused_and_so_is_copied(cluster_of, secret):
    """With fsGroup a file of a secret has mode 440: others than its owner can read it."""
    documents = load("jobset")
    cluster = cluster_of({"digits-head-0-0": []})
    spec = manifests.jobs(documents)["head"]["template"]["spec"]
    del spec["initContainers"]
    (container,) = spec["containers"]
    container["volumeMounts"] = [{"name": "secret", "mountPath": "/run/secret"}]
    variable_of(documents, "head", "head", "TKV_TOKEN_FILE")["value"] = "/run/secret/token"
    ((status, said),) = finish([cluster.start("digits-head-0-0", spec, container, secrets=secret)])
    assert status == 2 and "others can read it" in said, said
