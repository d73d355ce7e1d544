"""The first example of README.md is examples/linear.py, and ends as README.md shows, also where a worker is killed."""

import pathlib
import re
import sys

import pytest
from jobs import finish

ROOT = pathlib.Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
EXAMPLE = ROOT / "examples" / "linear.py"


def test_the_example_is_the_file():
    shown = re.search(r"-->\n```python\n(.*?)```", README, re.DOTALL).group(1)
    assert EXAMPLE.read_text().endswith('python examples/linear.py"""\n\n' + shown)


@pytest.mark.framework
def test_a_worker_that_is_killed_goes_on_where_the_job_is(processes):
    pytest.importorskip("torch")
    words = [sys.executable, "-m", "tensorkv", "launch", "-n", "2", "-s", "2", "--name", "linear", "--restart", "3"]
    job = processes.start([*words, sys.executable, "-u", EXAMPLE], TKV_FAILPOINTS="worker 1:sent:PUSH:1200:kill")
    status, said = finish(job, 180)
    assert status == 0, said
    assert "tkv launch: worker 1 was killed by signal 9; it is started again (1 of 3)" in said, said
    losses = {
        (rank, step): float(loss) for rank, step, loss in re.findall(r"worker (\d)\] step (\d+): loss (\S+)", said)
    }
    for rank in "01":
        assert losses[rank, "1000"] < 0.05 < losses[rank, "250"], said
