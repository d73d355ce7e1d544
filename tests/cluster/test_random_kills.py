"""A process is killed at a random moment, and every survivor continues with exact sums or gets a typed error in time.

TKV_TEST_KILL_RUNS is the number of seeds that are tried. Contributions are powers of two, so that a sum shows which
workers contributed. In a chunk (1 MiB) every element has the same contributions, and a survivor's own pushes are always
among them.
"""

import os
import random
import signal
import sys
import time

import pytest
from jobs import SOON, finish, pids_of, read_until

CHUNK = 262_144
WORK = """
CHUNK = 262_144
sizes = {sizes}
keys = [str(i) for i in range(len(sizes))]
rank = int(os.environ["TKV_RANK"])
begin = time.time()
try:
    kv = mx.kv.create("dist_sync")
    kv.init(keys, [mx.nd.zeros((n,)) for n in sizes])
    values = [mx.nd.full((n,), 2.0 ** kv.rank) for n in sizes]
    outs = [mx.nd.zeros((n,)) for n in sizes]
    print("ready", flush=True)
    steps = 0
    while steps < 10_000 and time.time() - begin < 6:
        begin_step = time.time()
        kv.pushpull(keys, values, out=outs)
        steps += 1
        for n, out in zip(sizes, outs):
            array = out.asnumpy()
            for at in range(0, n, CHUNK):
                part = array[at : at + CHUNK]
                assert part.min() == part.max(), f"step {{steps}}: one chunk holds {{np.unique(part)}}"
                who = int(part[0])
                assert who == part[0] and who >> kv.rank & 1, f"step {{steps}}: sum {{part[0]}} at rank {{kv.rank}}"
                assert who < 2 ** kv.num_workers, f"step {{steps}}: sum {{part[0]}}"
    print(f"went on to the end: {{steps}} steps", flush=True)
    kv.close()
except mx.errors.KVError as error:
    print(f"SURVIVED {{type(error).__name__}} after {{time.time() - begin_step:.2f}} s: {{error}}", flush=True)
    os._exit(7)
"""


@pytest.mark.parametrize("seed", range(int(os.environ.get("TKV_TEST_KILL_RUNS", "6"))))
def test_survivors_go_on_or_get_an_error(processes, seed):
    choose = random.Random(seed)
    workers, servers = choose.randint(2, 3), choose.randint(1, 2)
    policy = choose.choice(["fail", "continue"])
    transport = choose.choice(["auto", "auto", "unix", "tcp"])
    role = choose.choice(["worker", "worker", "server"])
    sizes = [choose.choice([16, 5_000, 40_000, CHUNK, 3 * CHUNK + 17]) for _ in range(choose.randint(1, 4))]
    options = ["--on-death", policy, "--grace", "8"]
    job = processes.launch(
        WORK.format(sizes=sizes), *options, workers=workers, servers=servers, TKV_TRANSPORT=transport, OMP_NUM_THREADS=1
    )
    said = ""
    for _ in range(workers):
        for line in job.stdout:
            said += line
            if "ready" in line:
                break
    time.sleep(choose.uniform(0, 1.2))
    victims = pids_of(job, role)
    victim = choose.randrange(len(victims))
    os.kill(victims[victim], signal.SIGKILL)
    status, rest = finish(job)
    said += rest
    told = f"seed {seed}: {workers} workers, {servers} servers, {policy}, {transport}, {role} {victim} killed\n{said}"
    assert "Assertion" not in said and "Traceback" not in said, told
    assert f"{role} {victim} was killed by signal 9" in said, told
    ended = [line for line in said.splitlines() if "SURVIVED" in line or "went on" in line]
    survivors = workers - (role == "worker")
    assert len(ended) == survivors, told
    # The worker whose time ends first leaves, and the others may have begun another round.
    others_may_leave = any("went on" in line for line in ended)
    for line in ended:
        if "SURVIVED" in line:
            assert f"{role} {victim}" in line or (others_may_leave and " left after round " in line), told
            assert float(line.split(" after ")[1].split(" s")[0]) < SOON, told
        else:
            holds_nothing = servers == 2 and max(sizes) <= CHUNK  # keys of one chunk may all be at the other server
            assert policy == "continue" if role == "worker" else holds_nothing, told
    assert status != 0, told


COUNTED = """
kv = mx.kv.create("dist_sync", patience=60)
sizes = {sizes}
keys = [str(i) for i in range(len(sizes))]
kv.init(keys, [mx.nd.zeros((n,)) for n in sizes])
kv.set_optimizer(mx.optimizer.SGD(learning_rate=-1.0))
print("url", kv.url, flush=True)
for step in range(min(kv.round(key) for key in keys) + 1, {rounds} + 1):
    for key, n in zip(keys, sizes):
        if kv.round(key) < step:
            kv.push(key, mx.nd.full((n,), kv.rank + 1.0))
            kv.pull(key).wait_to_read()
until_marked("read")
kv.close()
"""
READER = """
eye = mx.kv.connect(sys.argv[1], patience=60)
workers, rounds = int(sys.argv[2]), int(sys.argv[3])
last = {}
while not last or min(last.values()) < rounds:
    for key in eye.keys():
        value = eye.pull(key).asnumpy()
        n = eye.round(key)
        assert last.get(key, 0) <= n <= rounds, f"{key}: round {n} after {last}"
        last[key] = n
        # The round in which a worker has died may lack what it pushed, in some chunks and not in others.
        missing = [n * workers * (workers + 1) / 2 - value[at : at + 262_144] for at in range(0, len(value), 262_144)]
        whole = all(m.min() == m.max() and m[0] in range(workers + 1) for m in missing)
        assert whole, f"{key}: round {n} has {np.unique(value)}"
print("read", last, flush=True)
"""


@pytest.mark.parametrize("seed", range(int(os.environ.get("TKV_TEST_KILL_RUNS", "3"))))
def test_readers_see_whole_rounds_while_workers_die_and_links_are_cut(processes, seed):
    choose = random.Random(seed)
    workers, servers, rounds = choose.randint(2, 3), choose.randint(1, 2), choose.randint(20, 60)
    sizes = [choose.choice([16, 5_000, CHUNK, 3 * CHUNK + 17]) for _ in range(choose.randint(1, 3))]
    cuts = [
        f"server {choose.randrange(servers)}:sent:{what}:{choose.randint(1, 40)}:cut"
        for what in ("VALUE", "LISTED", "OK")
    ]
    job = processes.launch(
        COUNTED.format(sizes=sizes, rounds=rounds),
        *["--restart", "2", "--on-death", "wait"],
        workers=workers,
        servers=servers,
        TKV_TRANSPORT=choose.choice(["auto", "unix"]),
        TKV_FAILPOINTS=",".join(cuts),
        OMP_NUM_THREADS=1,
    )
    said = read_until(job, "url", count=workers)
    url = said.split("url ")[1].split()[0]
    reader = [sys.executable, "-u", processes.script(READER, "reader.py"), url, str(workers), str(rounds)]
    readers = [processes.start(reader) for _ in range(2)]
    time.sleep(choose.uniform(0.3, 1.5))
    os.kill(choose.choice(pids_of(job, "worker")), signal.SIGKILL)
    read = [finish(one) for one in readers]
    (processes.folder / "mark-read").touch()
    status, rest = finish(job)
    told = f"seed {seed}: {workers} workers, {servers} servers, {sizes}, {cuts}\n{read}\n{said}{rest}"
    assert all(status == 0 and "read" in text for status, text in read), told
    assert status == 0, told
