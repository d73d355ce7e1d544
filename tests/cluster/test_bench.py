"""`tkv bench`: each result is shown beside its limit, and no process or file is left."""

import os
import re
import signal
import sys
import xml.etree.ElementTree as Xml

import pytest
from hosts import hosts  # noqa: F401 - a fixture
from jobs import finish, wait_until
from test_cli import objects

TKV = [sys.executable, "-m", "tensorkv"]
NAMES = [
    "copy, one core",
    "copy, all cores",
    "sum of 4, all cores",
    "shared memory",
    "TCP, loopback",
    "1 KiB, one process",
    "1 KiB, shared memory",
    "1 KiB, TCP, loopback",
]


def check(figures):
    """The figures are those of some machine, and the fraction is that of the two figures."""
    for one in figures:
        low, high = (1e6, 1e13) if one["unit"] == "bytes/s" else (1e-9, 1)
        assert low < one["value"] < high and low < one["limit"] < high, one
        assert 0 < one["lowest"] <= one["reached"] <= one["highest"] and 0 <= one["others"] <= 1, one
        ratio = one["value"] / one["limit"] if one["unit"] == "bytes/s" else one["limit"] / one["value"]
        assert one["lowest"] / 2 < ratio < one["highest"] * 2, one


def test_each_figure_stands_beside_its_limit(processes):
    status, [*figures, summary] = objects(processes, "bench", "--seconds", "1")
    assert status == 0 and [one["name"] for one in figures] == NAMES
    check(figures)
    units = {one["name"]: one["unit"] for one in figures}
    assert all(unit == ("s" if name.startswith("1 KiB") else "bytes/s") for name, unit in units.items())
    assert summary["rounds"] >= 1 and summary["seconds"] > 0 and summary["cores"] >= 1, summary


def test_the_picture_has_the_bars_that_are_printed(processes, tmp_path):
    status, said = finish(processes.start([*TKV, "bench", "--seconds", "1", "--svg", str(tmp_path / "bench.svg")]))
    assert status == 0, said
    printed = re.findall(r"^  (.{22}) ([█▏▎▍▌▋▊▉·]{24}) (\d+\.\d\d)   \S+ \S+ of ", said, re.MULTILINE)
    assert [name.strip() for name, _, _ in printed] == NAMES, said
    space = "{http://www.w3.org/2000/svg}"
    picture = Xml.parse(tmp_path / "bench.svg").getroot()
    bars = [one for one in picture.iter(f"{space}rect") if one.get("fill") == "#3b76af"]
    words = [one.text for one in picture.iter(f"{space}text")]
    assert set(NAMES) < set(words)
    for (_, drawn, fraction), bar in zip(printed, bars, strict=True):
        reached = float(fraction)
        assert abs(int(bar.get("width")) / 300 - min(reached, 1.15)) < 0.01
        assert abs((24 - drawn.count("·")) / 24 - min(reached, 1)) < 1 / 24 + 0.01


def test_a_machine_that_is_not_idle_is_called_so(processes):
    others = [processes.start([sys.executable, "-c", "while True: pass"]) for _ in os.sched_getaffinity(0)]
    status, [*figures, summary] = objects(processes, "bench", "--seconds", "1")
    for other in others:
        other.kill()
    assert status == 0 and summary["idle"] is False
    assert max(one["others"] for one in figures) > 0.2, figures


def test_a_picture_that_cannot_be_written_is_an_error_before_anything_is_measured(processes):
    status, said = finish(
        processes.start([*TKV, "bench", "--seconds", "60", "--svg", "/nowhere/bench.svg"]), timeout=20
    )
    assert status == 2 and said == "tkv: bench: --svg '/nowhere/bench.svg': No such file or directory\n"


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
def test_a_signal_ends_it_and_leaves_no_process_and_no_file(processes, tmp_path, name):
    bench = processes.start([*TKV, "bench", "--seconds", "60"], TMPDIR=tmp_path)
    wait_until(lambda: list(tmp_path.glob("tkv-*/token")))
    bench.send_signal(getattr(signal, name))
    status, said = finish(bench)
    assert status == 128 + getattr(signal, name) and said == "", said
    assert not list(tmp_path.glob("tkv-*"))


def test_a_job_of_the_environment_is_not_taken_part_in(processes):
    status, found = objects(
        processes, "bench", "--seconds", "1", TKV_HEAD="tcp:127.0.0.1:1", TKV_RANK="7", TKV_WORKERS="9"
    )
    assert status == 0 and len(found) == len(NAMES) + 1


def test_tcp_is_measured_between_two_hosts(processes, hosts, tmp_path, monkeypatch):  # noqa: F811
    monkeypatch.chdir(tmp_path)
    path = f"{os.path.dirname(sys.executable)}:{os.environ['PATH']}"
    words = [*hosts.on("a"), *TKV, "bench", "--seconds", "1", "--peer"]
    status, said = finish(processes.start([*words, "b"], TKV_SSH=hosts.ssh, PATH=path))
    assert status == 0 and "TCP to the peer" in said and "TCP, loopback" not in said, said
    status, said = finish(processes.start([*words, "nowhere"], TKV_SSH=hosts.ssh, PATH=path))
    assert status == 2 and said.startswith("tkv: "), said
    assert "nowhere" in said
