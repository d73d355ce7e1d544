"""A key costs the processes of a job the same however many others there are: by sockets, with others waiting."""

import re

import pytest
from jobs import finish

FEW, MANY = 2_000, 16_000
MOST = 4  # times as much CPU for a key: tables outgrow caches; work on all that waits would be 8 times as much
# Prints the seconds of CPU time of all processes of the job for each phase, the less of two.
WORK = """
def cpu():
    spent = 0
    for name in os.listdir("/proc"):
        with contextlib.suppress(OSError):
            if name.isdigit():
                words = open(f"/proc/{name}/stat").read().rpartition(")")[2].split()
                spent += (int(words[11]) + int(words[12])) * (int(words[1]) == os.getppid())
    return spent / os.sysconf("SC_CLK_TCK")


def measured(phase, work):
    kv.barrier()
    begin = cpu()
    work()
    kv.barrier()
    spent.setdefault(phase, []).append(cpu() - begin)


def init():
    if kv.rank == 0:
        time.sleep(0.5)  # the questions of the other worker are there before the answers
    kv.init(keys, values)


kv = mx.kv.create("dist_sync")
for count in counts:
    spent = {}
    for turn in range(2):
        keys = [f"{count}.{turn}.{i}" for i in range(count)]
        values = [np.full(2, i, np.float32) for i in range(count)]
        outs = [np.zeros(2, np.float32) for _ in keys]
        measured("init", init)
        measured("push", lambda: kv.push(keys, values))
        measured("pull", lambda: kv.pull(keys, out=outs))
        measured("pushpull", lambda: kv.pushpull(keys, values, out=outs))
        measured("delete", lambda: [kv.delete(key) for key in keys[kv.rank :: 16]])
        assert all(np.array_equal(out, 2 * value) for out, value in zip(outs, values))
    if kv.rank == 0:
        for phase, both in spent.items():
            print(f"{count} keys, {phase}: {min(both) / count * 1e6:.2f} us", flush=True)
kv.close()
"""


@pytest.mark.parametrize("transport", ["unix", "tcp"])
def test_each_message_of_a_job_costs_what_it_touches(processes, transport):
    text = f"import contextlib\ncounts = [{FEW}, {MANY}]\n{WORK}"
    status, said = finish(processes.launch(text, servers=1, TKV_TRANSPORT=transport), timeout=300)
    assert status == 0, said
    spent = {}
    for count, phase, time in re.findall(r"(\d+) keys, (\w+): ([\d.]+) us", said):
        spent.setdefault(phase, []).append(float(time))
    assert len(spent) == 5
    for phase, (few, many) in spent.items():
        assert many < MOST * max(few, 10.0), f"{phase}: {said}"
