"""The findings of `tkv doctor` about disks, limits, versions and jobs of this machine."""

import os
import re
import subprocess
import sys

import pytest
import tensorkv as tkv
from jobs import finish, read_until
from test_cli import objects

TKV = [sys.executable, "-m", "tensorkv"]
COMMAND = os.path.join(os.path.dirname(tkv.__file__), "bin", "tkv")
AMOUNT = r"[\d.]+ (?:B|KiB|MiB|GiB|TiB)"


def findings(processes, **variables):
    """Return (status, {what: finding}) of this machine."""
    status, found = objects(processes, "doctor", **variables)
    return status, {one["what"]: one for one in found[:-1]}


def test_a_healthy_machine_has_no_alarm(processes, tmp_path):
    status, found = findings(processes, TMPDIR=tmp_path)
    assert status == 0 and [one for one in found.values() if one["kind"] == "bad"] == []
    assert found["temporary"]["kind"] == "good", found
    assert re.fullmatch(rf"{AMOUNT} free in {re.escape(str(tmp_path))}", found["temporary"]["text"])
    assert re.match(rf"{AMOUNT} available of {AMOUNT}", found["memory"]["text"]) and found["memory"]["kind"] == "good"
    assert found["processes"]["kind"] == "good" and found["files"]["kind"] == "good", found
    assert found["package"]["kind"] == "good" and found["package"]["text"].endswith(
        f"imports tensorkv {tkv.__version__}"
    )


def test_a_temporary_folder_that_cannot_be_used_is_bad(processes):
    status, found = findings(processes, TMPDIR="/nowhere")
    assert status == 1 and found["temporary"]["kind"] == "bad", found
    assert (
        found["temporary"]["text"] == "/nowhere: No such file or directory" and "TMPDIR" in found["temporary"]["repair"]
    )


def test_a_full_disk_is_a_note(processes, tmp_path):
    full = tmp_path / "full"
    full.mkdir()
    mount = f"mount -t tmpfs -o size=8m tmpfs {full}"
    apart = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c"]
    if subprocess.run([*apart, mount], capture_output=True, check=False).returncode != 0:
        pytest.skip("needs a namespace of its own, in which a small disk can be mounted")
    status, said = finish(processes.start([*apart, f"{mount} && exec {' '.join(TKV)} doctor"], TMPDIR=full))
    assert status == 0 and re.search(rf"note +temporary +8.0 MiB free in {re.escape(str(full))}\n", said), said
    assert "-> delete files there, or let TMPDIR name a folder of another disk" in said, said


def test_few_processes_are_a_note_with_the_way_to_more(processes):
    status, said = finish(processes.start(["bash", "-c", f"ulimit -u 100; exec {' '.join(TKV)} doctor"]))
    assert status == 0 and re.search(r"note +processes +this user may have 100", said) and "ulimit -u 4096" in said, (
        said
    )


def test_running_jobs_are_named(processes):
    launched = processes.launch(
        """
        kv = mx.kv.create("dist_sync")
        print("begun", flush=True)
        until_marked("bye")
        kv.close()
        """,
        "--name",
        "examined",
        workers=1,
    )
    read_until(launched, "begun")
    _, found = findings(processes)
    assert re.search(
        rf"of yours on this machine:.* examined-[0-9a-f]{{16}} \(pid {launched.pid}\)", found["jobs"]["text"]
    )
    (processes.folder / "mark-bye").touch()
    assert finish(launched)[0] == 0


@pytest.mark.parametrize(
    "text, kind, expected",
    [
        ("echo version 0.0.7", "bad", "imports tensorkv 0.0.7, and this command is "),
        (f"echo a warning; echo version {tkv.__version__}", "good", f"imports tensorkv {tkv.__version__}"),
        ("echo ModuleNotFoundError >&2; exit 1", "note", "has no package tensorkv"),
    ],
    ids=["other", "same", "none"],
)
def test_the_package_of_python_is_compared_with_the_command(processes, tmp_path, text, kind, expected):
    python = tmp_path / "python3"
    python.write_text(f"#!/bin/sh\n{text}\n")
    python.chmod(0o755)
    command = processes.start([COMMAND, "doctor"], PATH=f"{tmp_path}:{os.environ['PATH']}", stderr=subprocess.STDOUT)
    status, said = finish(command)
    word = "BAD" if kind == "bad" else kind
    assert re.search(rf"{word} +package +python3 {re.escape(expected)}", said), said
    assert status == (1 if kind == "bad" else 0), said


def test_a_python_that_is_not_there_is_a_note_that_says_so(processes, tmp_path):
    status, said = finish(processes.start([COMMAND, "doctor"], PATH=tmp_path, stderr=subprocess.STDOUT))
    assert status == 0 and re.search(r"note +package +python3: No such file or directory; scripts need", said), said
