"""Connections that do not belong to the job, or break its protocol, cause an error for all concerned and no harm."""

import pathlib
import re
import subprocess
import sys

from jobs import finish, pids_of

FLOOD = str(pathlib.Path(__file__).parents[2] / "bench" / "flood.py")


def rss_of(pid):
    """Return the resident bytes of a process."""
    with open(f"/proc/{pid}/status") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith("VmRSS"))


def port_of(pid):
    """Return the TCP port that a process listens at."""
    with open(f"/proc/{pid}/net/tcp") as file:
        listening = {row[9]: int(row[1].split(":")[1], 16) for row in map(str.split, file) if row[3] == "0A"}
    for link in pathlib.Path(f"/proc/{pid}/fd").iterdir():
        found = re.fullmatch(r"socket:\[(\d+)\]", str(link.readlink()))
        if found and found.group(1) in listening:
            return listening[found.group(1)]
    raise LookupError(f"process {pid} listens nowhere")


def test_a_flood_of_strangers_harms_nobody(processes):
    text = """
    kv = mx.kv.create("dist_sync")
    kv.init("w", mx.nd.zeros((1000,)))
    print("ready", flush=True)
    steps = 0
    while not os.path.exists(os.path.join(os.path.dirname(__file__), "mark-flooded")):
        steps += 1
        value = kv.pushpull("w", mx.nd.ones((1000,)), out=mx.nd.zeros((1000,)))
    out = kv.pull("w").asnumpy()
    assert (out == 1).all()
    print(f"made {steps} steps", flush=True)
    kv.close()
    """
    job = processes.launch(text, "--tcp", workers=1, servers=1, TKV_LOG="info")
    for line in job.stdout:
        if "ready" in line:
            break
    server = pids_of(job, "server")[0]
    before = rss_of(server)
    flood = subprocess.run(
        [sys.executable, FLOOD, f"127.0.0.1:{port_of(server)}", "1000", "3"], capture_output=True, text=True, check=True
    )
    assert int(flood.stdout) > 1000
    assert rss_of(server) - before < 16 << 20
    (processes.folder / "mark-flooded").touch()
    status, said = finish(job)
    assert status == 0 and "made" in said, said
    assert "joined" not in said and "is dead" not in said, said


def test_another_shape_at_one_rank_is_an_error_at_every_rank(processes):
    text = """
    kv = mx.kv.create("dist_sync", patience=10)
    try:
        kv.init("w", mx.nd.zeros((4 + kv.rank,)))
        kv.push("w", mx.nd.ones((4,)))
        kv.pull("w")
    except mx.KVError as error:
        print(type(error).__name__, error, flush=True)
    kv.close()
    """
    _, said = finish(processes.launch(text))
    assert "InvalidArgumentError init 'w': shape (5,) float32 here, (4,) float32 in the store" in said, said
    assert "UnavailableError pull 'w': worker 1 left after round 0; round 1 needs it" in said, said


def test_a_rank_that_leaves_out_a_call_is_named(processes):
    text = """
    rank = int(os.environ["TKV_RANK"])
    kv = mx.kv.create("dist_sync", patience=2 + 58 * rank)  # rank 1 is still there when rank 0 has waited enough
    kv.init("w", mx.nd.zeros((4,)))
    mark(f"inited {rank}")
    until_marked(f"inited {1 - rank}")
    try:
        if kv.rank == 0:
            kv.push("w", mx.nd.ones((4,)))
            kv.pull("w")
        else:
            kv.barrier()
    except mx.KVError as error:
        print(type(error).__name__, error, flush=True)
    kv.close()
    """
    _, said = finish(processes.launch(text))
    waited = re.search(r"DeadlineExceededError pull 'w': waited (\d+\.\d) s for worker 1 \(alive\), round 1", said)
    assert waited and float(waited.group(1)) >= 2, said
    assert re.search(r"worker 1\] UnavailableError barrier:", said), said


def test_a_head_without_an_address_for_tcp_says_so(processes):
    command = [sys.executable, "-m", "tensorkv", "head", "--workers", "1", "--servers", "1"]
    status, said = finish(processes.start(command, TKV_TRANSPORT="tcp"))
    assert status != 0 and "transport 'tcp' leaves nothing to listen at" in said, said
