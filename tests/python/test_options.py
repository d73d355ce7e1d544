"""Every documented option, by every way to give it, has its effect or is an error that says why."""

import inspect
import os
import pathlib
import re
import subprocess
import sys
import tempfile

import pytest
import tensorkv as mx
from tensorkv import _core
from tensorkv.errors import FailedPreconditionError, InvalidArgumentError

ROOT = pathlib.Path(__file__).parents[2]
ROWS = {row["name"]: row for row in _core.option_table()}
# A value that is not the default, as text and as the argument of create.
VALUES = {
    "threads": ("3", 3),
    "patience_ms": ("1234", 1234),
    "server_patience_ms": ("2345", 2345),
    "servers": ("2", 2),
    "staleness": ("4", 4),
    "on_death": ("continue", "continue"),
    "deterministic": ("1", True),
    "window_bytes": ("4096", 4096),
    "snapshots": ("a-folder", "a-folder"),
    "snapshot_every": ("30s", "30s"),
    "transport": ("unix", "unix"),
    "insecure_network": ("1", True),
    "tls": ("off", "off"),
    "check_values": ("1", True),
    "silence_ms": ("3456", 3456),
    "failpoints": ("worker 9:sent:PUSH:1:cut", "worker 9:sent:PUSH:1:cut"),
    "rows_dir": (tempfile.gettempdir(), tempfile.gettempdir()),
    "log": ("debug", "debug"),
}
WRONG = {
    "number": ["-1", "two", "1x", "", "9" * 30],
    "duration": ["0", "-5", "1s", "-" + "9" * 30],
    "flag": ["2", "yes"],
}


def config(*command, **variables):
    """Return the options in force according to `tkv config`, run by a command."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("TKV_")} | variables
    run = subprocess.run(
        [sys.executable, "-m", "tensorkv", *command], env=environment, capture_output=True, text=True, timeout=60
    )
    return run.returncode, run.stdout + run.stderr


def test_every_option_of_the_table_has_a_value_here():
    assert set(VALUES) == set(ROWS)


def test_the_documented_options_are_those_of_the_table():
    documented = re.findall(r"^\| `(\w+)`", (ROOT / "docs" / "options.md").read_text(), re.MULTILINE)
    assert documented == [*ROWS, "url", "token_file", "bootstrap", "rank", "num_workers"]


def test_the_keywords_of_create_are_those_of_the_table():
    keywords = set(inspect.signature(mx.kv.create).parameters) - {
        "name",
        "url",
        "token_file",
        "bootstrap",
        "rank",
        "num_workers",
    }
    assert keywords == set(ROWS) | {row["seconds"] for row in ROWS.values() if row["seconds"]}


@pytest.mark.parametrize("name", ROWS)
def test_an_argument_is_in_force(name):
    text, value = VALUES[name]
    assert ROWS[name]["default"] != text
    assert _core.options_in_force("dist_sync", {name: value})[name] == text


@pytest.mark.parametrize("name", [name for name, row in ROWS.items() if row["seconds"]])
def test_a_duration_in_seconds_is_in_force(name):
    seconds = ROWS[name]["seconds"]
    assert _core.options_in_force("dist_sync", {seconds: 1.5})[name] == "1500"
    century = str(100 * 365 * 24 * 3600 * 1000)
    for endless in (float("inf"), 1e10, 10**40):
        assert _core.options_in_force("dist_sync", {seconds: endless})[name] == century
    assert _core.options_in_force("dist_sync", {name: 10**40})[name] == century
    with pytest.raises(InvalidArgumentError, match=f"{name}='0'"):
        _core.options_in_force("dist_sync", {seconds: 0})
    for wrong in (-1, float("nan"), float("-inf")):
        with pytest.raises(InvalidArgumentError, match=f"{seconds}={wrong}"):
            _core.options_in_force("dist_sync", {seconds: wrong})
    with pytest.raises(InvalidArgumentError, match=f"{name} and {seconds} are one option"):
        _core.options_in_force("dist_sync", {name: 5, seconds: 5})


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"transport": "pigeon"}, "transport='pigeon'"),
        ({"silence": 0.0001}, "silence_ms='1'"),
        ({"server_patience": "soon"}, "server_patience='soon': a number of seconds is needed"),
    ],
)
def test_errors_of_connect_begin_with_connect(options, problem):
    with pytest.raises(InvalidArgumentError, match=f"^connect: {problem}"):
        mx.kv.connect("tkv://job@unix:0/x", **options)


def test_variables_are_in_force():
    variables = {ROWS[name]["environment"]: text for name, (text, _) in VALUES.items()}
    status, said = config("config", **variables)
    assert status == 0
    for name, (text, _) in VALUES.items():
        assert f"\n{name} = {text}\n" in said, said


def test_without_variables_the_defaults_are_in_force():
    status, said = config("config")
    assert status == 0
    for name, row in ROWS.items():
        assert f"\n{name} = {row['default']}\n" in said, said


def test_flags_of_the_launcher_are_in_force_in_its_processes():
    flags = []
    for name, row in ROWS.items():
        if row["flag"]:
            flags += [row["flag"]] if row["kind"] == "flag" else [row["flag"], VALUES[name][0]]
    tkv = [sys.executable, "-m", "tensorkv", "config"]
    status, said = config("launch", "-n", "1", "-s", "2", *flags, *tkv)
    assert status == 0, said
    for name, (text, _) in VALUES.items():
        in_force = os.path.abspath(text) if name == "snapshots" else text
        assert f"[worker 0] {name} = {in_force}\n" in said, (name, said)


@pytest.mark.parametrize("name", ROWS)
def test_a_value_that_does_not_fit_is_refused_however_it_is_given(name):
    row = ROWS[name]
    wrong = WRONG.get(row["kind"], [] if name in ("failpoints", "snapshots", "rows_dir") else ["nonsense"])
    for text in wrong:
        if text:  # an empty variable is one that is not set
            status, said = config("config", **{row["environment"]: text})
            assert status == 2 and f"{row['environment']}='{text}'" in said and "needed" in said, said
        if text and row["flag"] and row["kind"] != "flag":
            status, said = config("launch", f"{row['flag']}={text}", "true")
            assert status == 2 and name in said and "needed" in said, said
    for value in (b"bytes", [], object()):
        with pytest.raises(InvalidArgumentError, match=f"create: {name}="):
            _core.options_in_force("dist_sync", {name: value})


@pytest.mark.parametrize(
    "name, value", [("threads", 2**32 + 1), ("staleness", 2**32), ("servers", 2**32 + 1), ("window_bytes", 2**64)]
)
def test_a_number_is_never_cut_to_fewer_bits(name, value):
    with pytest.raises(InvalidArgumentError, match=f"create: {name}='{value}'"):
        _core.options_in_force("dist_sync", {name: value})
    status, said = config("config", **{ROWS[name]["environment"]: str(value)})
    assert status == 2 and str(value) in said, said


@pytest.mark.parametrize(
    "make", [mx.kv.create, mx.kv.KVStore, mx.testing.cluster], ids=["create", "KVStore", "cluster"]
)
def test_an_option_that_is_none_is_a_type_error_with_the_nearest_name(make):
    with pytest.raises(TypeError, match="no option 'stalenes'; did you mean 'staleness'"):
        make(stalenes=3)
    with pytest.raises(TypeError, match="no option 'patienc_m'; did you mean 'patience_ms'"):
        make(patienc_m=3)
    with pytest.raises(TypeError, match="no option 'xyzzy'$"):
        make(xyzzy=3)


def test_a_part_of_the_name_of_an_option_is_near_to_it():
    with pytest.raises(TypeError, match="no option 'worker'; did you mean 'num_workers'"):
        mx.kv.create("local", worker=3)


@pytest.mark.parametrize("name", ROWS)
def test_an_option_without_effect_on_a_store_is_refused(name):
    value = VALUES[name][1]
    if ROWS[name]["scope"] == "any":
        mx.kv.create("local", **{name: value}).close()
        return
    with pytest.raises(InvalidArgumentError, match=f"create 'local': {name}=.* has no effect"):
        mx.kv.create("local", **{name: value})
    if ROWS[name]["scope"] == "processes":
        with pytest.raises(InvalidArgumentError, match=f"{name}=.* has no effect: .* several processes"):
            mx.kv.create("dist_sync", bootstrap="self", **{name: value})
    else:
        together = ("snapshots", "snapshot_every")
        options = {other: VALUES[other][1] for other in together} if name in together else {name: value}
        mx.kv.create("dist_sync", bootstrap="self", **options).close()


def test_variables_of_torch_without_torchrun_say_what_to_pass(monkeypatch):
    for name, value in (("MASTER_ADDR", "127.0.0.1"), ("RANK", "0"), ("WORLD_SIZE", "1")):
        monkeypatch.setenv(name, value)
    said = r"MASTER_ADDR, RANK and WORLD_SIZE are set, .*bootstrap=torch\.distributed\.TCPStore\(MASTER_ADDR, PORT"
    with pytest.raises(FailedPreconditionError, match=said):
        mx.kv.create("dist_sync")
    mx.kv.create("dist_sync", bootstrap="self").close()
    mx.kv.create("local").close()
    monkeypatch.delenv("RANK")
    with pytest.raises(FailedPreconditionError, match="nothing says who else takes part"):
        mx.kv.create("dist_sync")


def test_rounds_between_snapshots_may_be_an_int(tmp_path):
    found = _core.options_in_force("dist_sync", {"snapshots": tmp_path, "snapshot_every": 10})
    assert found["snapshot_every"] == "10"
    with mx.kv.create("dist_sync", bootstrap="self", snapshots=tmp_path, snapshot_every=2) as kv:
        kv.init(0, mx.nd.zeros((1,)))
        for _ in range(3):
            kv.push(0, mx.nd.ones((1,)))
    assert any(tmp_path.iterdir())
    for wrong in (True, 1.5, 0, -1):
        with pytest.raises(InvalidArgumentError, match="snapshot_every"):
            mx.kv.create("dist_sync", bootstrap="self", snapshots=tmp_path, snapshot_every=wrong)


def test_a_default_that_is_given_is_no_error():
    mx.kv.create("local", staleness=0, transport="auto", deterministic=False).close()


def test_a_place_goes_with_a_bootstrap_object():
    with pytest.raises(InvalidArgumentError, match="rank=3.*the job has one worker"):
        mx.kv.create("dist_sync", bootstrap="self", rank=3)
    with pytest.raises(InvalidArgumentError, match="rank=-1"):
        mx.kv.create("dist_sync", bootstrap="self", rank=-1)
    with pytest.raises(FailedPreconditionError):
        mx.kv.create("dist_sync")


def test_options_of_a_registered_store_are_refused():
    with pytest.raises(InvalidArgumentError, match="takes no options, here threads"):
        mx.kv.create("teststore", threads=2)


def test_variables_that_nothing_reads_are_told_with_the_nearest_name():
    status, said = config("config", TKV_STALENES="3")
    assert status == 0 and "nothing reads the variable TKV_STALENES; did you mean 'TKV_STALENESS'?" in said
    program = "import tensorkv as mx; mx.kv.create(); mx.kv.create()"
    environment = os.environ | {"TKV_STALENES": "3"}
    run = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True)
    assert run.returncode == 0 and run.stderr.count("nothing reads the variable TKV_STALENES") == 1, run.stderr
    run = subprocess.run(
        [sys.executable, "-c", program], env=environment | {"TKV_LOG": "off"}, capture_output=True, text=True
    )
    assert run.returncode == 0 and run.stderr == "", run.stderr
