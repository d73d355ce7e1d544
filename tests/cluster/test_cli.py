"""The output of the command `tkv`, in words and as JSON, and its exit status."""

import json
import math
import pathlib
import re
import signal
import sys

import pytest
import tensorkv as mx
from jobs import finish, read_until, tkv

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
    status, said = finish(processes.start([*tkv(words[0]), words[0], "--json", *words[1:]], **variables))
    found = [json.loads(line) for line in said.split("\n") if line]  # a key may have another end of a line in it
    for one in found:
        members = documented().get((words[0], one["event"])) or documented()["any", one["event"]]
        assert one["event"] == "config" or set(one) - {"event"} == members, one
    return status, found


@pytest.mark.parametrize(
    "words, status, events",
    [
        (["config"], 0, ["config"]),
        (["explain", "--optimizer", "sgd"], 0, ["program"]),
        (["explain", "/nowhere"], 2, ["error"]),
        (["completion", "bash"], 0, ["script"]),
        (["doctor"], 0, ["finding", "summary"]),
        (["sim", "--count", "2"], 0, ["summary"]),
        (["sim", "--count", "2", "--coverage"], 0, ["coverage", "summary"]),
        (["sim", "--count", "2", "--hashes"], 0, ["hash"]),
        (["explore", "X"], 0, ["scope", "summary"]),
        (["explore", "--list"], 0, ["name"]),
        (["sim", "--count", "0"], 2, ["error"]),
        (["sim", "--sed", "1"], 2, ["error"]),
        (["sim", "--faults", "rain"], 2, ["error"]),
        (["lunch"], 2, ["error"]),
        (["launch"], 2, ["error"]),
        (["explore", "nothing"], 2, ["error"]),
    ],
    ids=str,
)
def test_every_line_of_json_is_an_object_that_is_documented(processes, words, status, events):
    ended, found = objects(processes, *words)
    assert ended == status and sorted({one["event"] for one in found}) == events, found


@pytest.mark.parametrize("subcommand", ["sim", "explore"])
def test_a_package_names_the_build_that_checks_the_protocol(processes, subcommand):
    status, said = finish(processes.start([*TKV, subcommand, "--count", "2"]))
    assert status == 2 and f"tkv: {subcommand}: not in this build; ./dev build" in said, said
    status, said = finish(processes.start([*TKV, subcommand, "--json"]))
    assert status == 2 and json.loads(said)["code"] == "Unimplemented", said
    _, said = finish(processes.start([*TKV, "--help"]))
    assert subcommand not in re.findall(r"^  (\w+) ", said, re.MULTILINE)


def test_an_error_as_json_has_its_code_its_sentence_and_the_exit_status(processes):
    status, found = objects(processes, "doctor", "--hosts", "/nowhere/hosts")
    assert status == 2
    message = "hosts '/nowhere/hosts': No such file or directory"
    assert found == [{"event": "error", "code": "InvalidArgument", "message": message, "status": 2}]


def test_a_file_of_hosts_may_begin_with_a_byte_order_mark_and_names_are_of_either_case(processes, tmp_path):
    (tmp_path / "hosts").write_bytes(b"\xef\xbb\xbfLOCALHOST\r\nLocalhost\n")
    command = [*TKV, "launch", "-n", "2", "--hosts", tmp_path / "hosts", "true"]
    status, said = finish(processes.start([*map(str, command)], TKV_SSH="/nowhere/ssh"))
    assert status == 0, said


def test_an_ssh_that_is_not_executable_is_named(processes, tmp_path):
    ssh, hosts = tmp_path / "ssh", tmp_path / "hosts"
    ssh.write_text("#!/bin/sh\n")
    hosts.write_text("elsewhere\n")
    for path, why in ((ssh, "Permission denied"), (tmp_path, "Permission denied"), (hosts / "ssh", "Not a directory")):
        command = [*TKV, "launch", "-n", "1", "--hosts", str(hosts), "true"]
        status, said = finish(processes.start(command, TKV_SSH=f"{path} -v"))
        assert status == 2 and f"{path}: {why}; TKV_SSH names another command" in said, said


def test_a_host_whose_name_is_too_long_is_refused_by_its_beginning(processes, tmp_path):
    (tmp_path / "hosts").write_text("h" * 3_000_000)
    status, said = finish(processes.start([*TKV, "launch", "--hosts", str(tmp_path / "hosts"), "true"]))
    assert status == 2 and f"line 1: '{'h' * 64}...' is not the name of one host" in said, said[:500]


def test_an_option_before_the_subcommand_is_named(processes):
    for words in (["--foo", "config"], ["--json", "config"]):
        status, said = finish(processes.start([*TKV, *words]))
        assert status == 2 and f"'{words[0]}' was not expected before a subcommand" in said, said


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
    assert config == {"event": "config", **lines, "warnings": []}
    _, [config] = objects(processes, "config", TKV_STALENES="2")
    assert len(config["warnings"]) == 1 and "TKV_STALENES" in config["warnings"][0]


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


def test_help_names_a_subcommand_before_or_behind(processes):
    _, before = finish(processes.start([*TKV, "help", "launch"]))
    status, behind = finish(processes.start([*TKV, "launch", "--help"]))
    assert status == 0 and before == behind != finish(processes.start([*TKV, "help"]))[1]


def test_output_that_cannot_be_written_is_an_error(processes):
    status, said = finish(processes.start(["sh", "-c", f"{sys.executable} -m tensorkv config >/dev/full"]))
    assert status == 2 and "standard output: No space left on device" in said, said


# ---- explain

SPEECH = {"×": "*", "^": "**", "√": "sqrt", "≠": "!=", "≤": "<=", "≥": ">=", " = ": " == ", " where ": " if "}
BUILTIN = "adadelta adagrad adam adamax adamw dcasgd ftml ftrl lamb lars lbsgd momentum nadam nag rmsprop rmsprop_centered sgd signsgd signum test"


def explain(processes, *words):
    """Return the explanation of a program."""
    status, found = objects(processes, "explain", *words)
    assert status == 0, found
    return found[0]


def value_of(formula, names):
    """Return the value of a formula of scalars, evaluated by Python after its signs are translated."""
    for sign, python in SPEECH.items():
        formula = formula.replace(sign, python)
    minimum, maximum = (lambda a, b: a if a < b else b), (lambda a, b: a if a > b else b)
    known = {"sqrt": math.sqrt, "min": minimum, "max": maximum, "Σ": float, "pow": pow, "log": math.log}
    known |= {"exp": math.exp, "floor": math.floor, "cos": math.cos, "sign": lambda a: (a > 0) - (a < 0)}
    return float(eval(formula, {}, {**known, **names}))


@pytest.mark.parametrize("optimizer", BUILTIN.split())
def test_the_formulas_of_an_optimizer_give_what_its_store_computes(processes, optimizer):
    words = ["--param", "learning_rate=0.25", "--param", "wd=0.125"] if optimizer != "test" else []
    made = explain(processes, "--optimizer", optimizer, "--round", "2", *words)
    params = {param["name"]: float(param["value"]) for param in made["params"]}
    state = {one["name"]: float(one["initial"]) for one in made["states"]} | {"value": 1.5}
    program = mx.Program(made["text"])
    for name, value in params.items():
        program.set_param(name, value)
    kv = mx.kv.create("local")
    kv.init("w", mx.nd.full((1,), 1.5, dtype="float64"))
    kv.set_updater(program)
    for t in (1, 2):
        names = {**params, **state, "sum": 0.75, "t": t, "n": 1}
        for line in made["short"]:
            target, word, formula = re.match(r"(?:with )?(\w+) (=|becomes) (.*)", line).groups()
            (names if word == "=" else state)[target] = value_of(formula, names)
        kv.push("w", mx.nd.full((1,), 0.75, dtype="float64"))
    assert kv.pull("w").asnumpy()[0] == pytest.approx(state["value"], rel=1e-12)


NESTED = """program nested
param p 3
state s
less = sub sum value
w1 = sub s less
more = add sum p
w2 = neg more
low = div sum s
w3 = div w2 low
q1 = add p 1
q = pow q1 n
w4 = mul w3 q
w5 = select w1 w4 s
less5 = lt w5 2
w6 = sub sum less5
s <- sum
value <- w6
"""


def test_what_binds_less_stands_in_brackets(processes, tmp_path):
    (tmp_path / "nested").write_text(NESTED)
    assert explain(processes, str(tmp_path / "nested"))["short"] == [
        "s becomes sum",
        "value becomes sum - ((-(sum + p) / (sum / s) × (p + 1) ^ n where s - (sum - value) ≠ 0 else s) < 2)",
    ]


def test_the_numbers_of_a_round_are_shown_and_depend_on_the_hyperparameters(processes):
    made = explain(processes, "--optimizer", "adam", "--round", "3", "--param", "beta1=0.5")
    values = {one["name"]: float(one["value"]) for one in made["assignments"] if "value" in one}
    assert values["power1"] == 0.125 and values["power2"] == pytest.approx(0.999**3)
    assert {one["name"] for one in made["assignments"] if one["per"] == "element"}.isdisjoint(values)


@pytest.mark.parametrize(
    "optimizer, dtype, costs",
    [
        ("sgd", "float32", (8, 4, 4)),  # the sum and the value read, the value written and kept
        ("momentum", "float64", (24, 16, 16)),
        ("adam", "float16", (12, 10, 10)),  # two states of float32
        ("lamb", "float32", (32, 12, 12)),  # all of it is read once more for the norms
    ],
)
def test_an_update_reads_and_writes_as_many_bytes(processes, optimizer, dtype, costs):
    found = {one["dtype"]: one for one in explain(processes, "--optimizer", optimizer)["dtypes"]}
    assert tuple(found[dtype][f"{word}_bytes"] for word in ("read", "written", "kept")) == costs
    assert "int32 arrays do not have this operation" in found["int32"]["refusal"] or optimizer != "adam"


PROGRAM = """# counts
program counts

param half 0.5
scalar steps 2
more = add steps n
big = lt more 5
w = select big value sum  # no comment, but words
"""


def test_a_program_of_a_file_keeps_its_lines_and_tells_what_is_kept(processes, tmp_path):
    (tmp_path / "counts").write_text(PROGRAM.replace("  # no comment, but words", "") + "steps <- more\nvalue <- w\n")
    status, said = finish(processes.start([*TKV, "explain", str(tmp_path / "counts"), "--workers", "3"]))
    assert status == 0, said
    lines = [re.sub(" +", " ", line.strip()) for line in said.splitlines()]
    for line in (
        "value becomes value where more < 5 else sum",
        "steps one float64 for the whole value, 2 at first",
        "half 0.5",
        "6 more = steps + n one number, 5",
        "7 big = more < 5 one number, 0",
        "8 w = value where big ≠ 0 else sum",
        "9 steps becomes more",
        "n the number of workers that have pushed",
        "int8 2 1 1",
    ):
        assert line in lines, said


@pytest.mark.parametrize(
    "text, expected",
    [
        (PROGRAM, "line 8: more words than any statement has"),
        ("program p\nw = ad value sum\n", "line 2: 'ad' is no operation; did you mean 'add'?"),
        ("program p\nparam rate 1\n\nw = mul value rat\n", "line 4: 'rat' is not defined; did you mean 'rate'?"),
        ("program p\nw + value\n", "line 2: 'w + value' is no statement; there are program NAME, param NAME NUMBER"),
        ("", "there is no 'program NAME'"),
        ("program p\n" + "# more\n" * 20000, "bytes, at most 65536 are possible"),
    ],
    ids=["words", "operation", "name", "statement", "empty", "long"],
)
def test_a_program_with_a_mistake_is_an_error_that_names_the_line(processes, tmp_path, text, expected):
    (tmp_path / "bad").write_text(text)
    status, said = finish(processes.start([*TKV, "explain", str(tmp_path / "bad")]))
    assert status == 2 and said.startswith(f"tkv: explain '{tmp_path / 'bad'}': program, line") or "bytes" in said
    assert expected in said, said


@pytest.mark.parametrize(
    "words, expected",
    [
        ([], "there is no program; name a FILE, - for standard input, --optimizer, or --key of a running job"),
        (["--optimizer", "adamm"], "no such built-in; there are adadelta, "),
        (["--optimizer", "sgd", "--param", "speed=1"], "optimizer 'sgd': no hyperparameter 'speed'"),
        (["--optimizer", "sgd", "--param", "wd"], "--param 'wd': NAME=NUMBER is needed"),
        (["--optimizer", "sgd", "--param", "wd=1x"], "--param 'wd=1x': NAME=NUMBER is needed"),
        (["--optimizer", "sgd", "x"], "excludes --optimizer"),
        (["--optimizer", "sgd", "--key", "w"], "--optimizer excludes --key"),
        (["--optimizer", "sgd", "--url", "tkv://a:1/b"], "--url requires --key"),
        (["--optimizer", "sgd", "--patience", "3"], "--patience requires --key"),
        (["--optimizer", "sgd", "--round", "0"], "--round: Value 0"),
        (["/nowhere/program"], "explain '/nowhere/program': No such file or directory"),
        (["/"], "explain '/': Is a directory"),
    ],
)
def test_a_call_of_explain_that_is_wrong_says_what_is_needed(processes, words, expected):
    status, said = finish(processes.start([*TKV, "explain", *words]))
    assert status == 2 and expected in said, said
