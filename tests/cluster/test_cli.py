"""What the command `tkv` prints, in words and as JSON, and with which status it ends."""

import json
import pathlib
import re
import signal
import sys

import pytest
from jobs import finish, read_until

TKV = [sys.executable, "-m", "tensorkv"]
DOCS = (pathlib.Path(__file__).parents[2] / "docs" / "cli.md").read_text()


def documented():
    """Return {(subcommand, event): members} of the table in docs/cli.md."""
    rows = re.findall(r"^\| (any|`[a-z`, ]+`) \| `(\w+)` \| (.*) \|$", DOCS, re.MULTILINE)
    members = {}
    for subcommands, event, text in rows:
        while "(" in text:  # explanations, which may nest
            text = re.sub(r"\([^()]*\)", "", text)
        for subcommand in re.findall(r"\w+", subcommands):
            members[subcommand, event] = set(re.findall(r"`(\w+)`", text))
    return members


def objects(processes, *words, **variables):
    """Return (status, objects) of a command with --json, each of which has the members that the documentation lists."""
    status, said = finish(processes.start([*TKV, words[0], "--json", *words[1:]], **variables))
    found = [json.loads(line) for line in said.splitlines()]
    for one in found:
        members = documented().get((words[0], one["event"])) or documented()["any", one["event"]]
        assert one["event"] == "config" or set(one) - {"event"} == members, one
    return status, found


@pytest.mark.parametrize(
    "words, status, events",
    [
        (["config"], 0, {"config"}),
        (["doctor"], 0, {"finding", "summary"}),
        (["sim", "--count", "2"], 0, {"summary"}),
        (["sim", "--count", "2", "--coverage"], 0, {"coverage", "summary"}),
        (["sim", "--count", "2", "--hashes"], 0, {"hash"}),
        (["explore", "X"], 0, {"scope", "summary"}),
        (["explore", "--list"], 0, {"name"}),
        (["sim", "--count", "0"], 2, {"error"}),
        (["sim", "--sed", "1"], 2, {"error"}),
        (["sim", "--faults", "rain"], 2, {"error"}),
        (["lunch"], 2, {"error"}),
        (["launch"], 2, {"error"}),
        (["explore", "nothing"], 2, {"error"}),
    ],
    ids=str,
)
def test_every_line_of_json_is_an_object_that_is_documented(processes, words, status, events):
    ended, found = objects(processes, *words)
    assert ended == status and {one["event"] for one in found} == events, found


def test_an_error_as_json_has_its_code_its_sentence_and_the_exit_status(processes):
    status, found = objects(processes, "doctor", "--hosts", "/nowhere/hosts")
    assert status == 2
    message = "hosts '/nowhere/hosts': No such file or directory"
    assert found == [{"event": "error", "code": "InvalidArgument", "message": message, "status": 2}]


def test_what_doctor_finds_to_repair_makes_the_status_1_in_both_forms(processes, tmp_path):
    token = {"TKV_TOKEN_FILE": tmp_path / "none"}
    status, found = objects(processes, "doctor", **token)
    bad = [one for one in found if one.get("kind") == "bad"]
    assert status == 1 and found[-1] == {"event": "summary", "bad": len(bad)} and bad[0]["repair"], found
    status, said = finish(processes.start([*TKV, "doctor"], **token))
    assert status == 1 and "to repair" in said, said


def test_config_as_json_has_what_the_text_has(processes):
    _, said = finish(processes.start([*TKV, "config"]))
    lines = dict(line.split(" = ", 1) for line in said.splitlines())
    _, [config] = objects(processes, "config")
    assert config == {"event": "config", **lines}


def test_launch_as_json_tells_lines_notes_and_the_status_and_leaves_the_words_of_the_command(processes):
    script = "import os, sys; os.write(1, b'a\\xff\"\\n'); print(sys.argv[1:]); sys.exit(3)"
    status, found = objects(processes, "launch", "--", sys.executable, "-c", script, "--json")
    assert status == 3
    texts = [one["text"] for one in found if one["event"] == "output"]
    assert texts == ['a\ufffd"', "['--json']"], found
    assert {"event": "note", "text": "worker 0 ended with status 3"} in found
    assert found[-1] == {"event": "end", "status": 3}


def test_a_json_of_the_command_alone_does_not_count_for_the_launcher(processes):
    status, said = finish(processes.start([*TKV, "launch", "echo", "--json"]))
    assert status == 0 and "[worker 0] --json" in said, said


def test_a_head_as_json_says_where_it_listens_and_ends_by_its_signal(processes):
    head = processes.start([*TKV, "head", "--json", "--workers", "1", "--servers", "1"])
    listening = json.loads(read_until(head, "listening"))
    assert listening["role"] == "head" and listening["address"].startswith("unix:"), listening
    head.send_signal(signal.SIGTERM)
    status, _ = finish(head)
    assert status == 128 + signal.SIGTERM


def test_help_and_documentation_say_the_same_of_exit_statuses(processes):
    _, said = finish(processes.start([*TKV, "--help"]))
    listed = re.findall(r"^  (\S+) +(.+)$", said.partition("Exit status:\n")[2], re.MULTILINE)
    assert len(listed) == 5
    for status, meaning in listed:
        assert f"| {status} | {meaning} |" in DOCS


def test_output_that_cannot_be_written_is_an_error(processes):
    status, said = finish(processes.start(["sh", "-c", f"{sys.executable} -m tensorkv config >/dev/full"]))
    assert status == 2 and "standard output: No space left on device" in said, said
