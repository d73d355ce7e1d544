"""A job that has lost a server continues from its newest snapshot, on another number of servers."""

import os
import re
import signal
import sys
import textwrap

from jobs import finish, pids_of, wait_until

TRAIN = textwrap.dedent(
    """
    import os, sys
    import numpy as np
    import tensorkv as mx

    folder, steps = sys.argv[1], int(sys.argv[2])
    with mx.kv.create("dist_sync", deterministic=True) as kv:
        names = ["a", "b", "c"]
        kv.init(names, [np.full(300_000, i, np.float32) for i in range(3)])
        kv.set_optimizer(mx.optimizer.Adam(learning_rate=0.01))
        if os.path.exists(folder) and not kv.rejoined:
            kv.load(folder)
            print("goes on with round", kv.round("a"), flush=True)
        values = [kv.pull(name).asnumpy() for name in names]
        while kv.round("a") < steps:
            gradients = [value * (kv.rank + 1) + kv.round("a") for value in values]
            kv.pushpull(names, gradients, out=values)
            if kv.round("a") % 5 == 0:
                kv.save(folder)
        if kv.rank == 0:
            print("result", float(sum(np.float64(value).sum() for value in values)), flush=True)
    """
)


def test_a_job_goes_on_from_its_snapshot_on_other_servers(processes, tmp_path):
    def start(servers, folder, steps):
        launch = [sys.executable, "-m", "tensorkv", "launch", "-n", "2", "-s", str(servers), "--grace", "5"]
        return processes.start([*launch, sys.executable, "-c", TRAIN, str(tmp_path / folder), str(steps)])

    def result(said):
        return re.search(r"result ([-\d.e+]+)", said).group(1)

    status, whole = finish(start(2, "whole", 40))
    assert status == 0, whole

    job = start(2, "parts", 100_000)
    wait_until(lambda: (tmp_path / "parts" / "000004").exists())
    os.kill(pids_of(job, "server")[1], signal.SIGKILL)
    status, said = finish(job)
    assert status == 128 + signal.SIGKILL, said

    status, said = finish(start(3, "parts", 0))
    assert status == 0, said
    reached = int(re.search(r"goes on with round (\d+)", said).group(1))
    assert reached >= 20 and reached % 5 == 0 and said.count("goes on with round") == 2, said

    # The same rounds in one go give the same bits.
    status, whole = finish(start(1, "again", reached))
    assert status == 0 and result(whole) == result(said), (whole, said)
    for folder in ("parts", "again", "whole"):
        assert len([name for name in os.listdir(tmp_path / folder) if not name.startswith(".")]) == 2


AGAIN = textwrap.dedent(
    """
    import os, signal, sys
    import numpy as np
    import tensorkv as mx

    with mx.kv.create("dist_sync") as kv:
        kv.init("w", np.zeros(4, np.float32))
        if kv.rejoined:
            try:
                kv.load(sys.argv[1])
            except mx.errors.FailedPreconditionError as error:
                print("told:", error, flush=True)
        while kv.round("w") < 10:
            kv.pushpull("w", np.ones(4, np.float32))
            if kv.round("w") == 5:
                kv.save(sys.argv[1])
                if kv.rank == 1 and not kv.rejoined:
                    os.kill(os.getpid(), signal.SIGKILL)
    """
)


def test_a_worker_that_is_started_again_is_told_not_to_load(processes, tmp_path):
    launch = [sys.executable, "-m", "tensorkv", "launch", "-n", "2", "-s", "1", "--restart", "1"]
    status, said = finish(processes.start([*launch, sys.executable, "-c", AGAIN, str(tmp_path / "snapshots")]))
    assert status == 0, said
    assert re.search(r"told: load .*this rank has lived before in this job, because it was started again", said), said
