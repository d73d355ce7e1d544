"""The texts of tests/keys/table.txt as keys: taken or refused alike by every language, and shown and kept by every tool."""

import json
import re
import signal
import subprocess
import sys
import urllib.request

import numpy as np
import pytest
import tensorkv as mx
from jobs import finish, read_until
from test_cli import objects
from test_languages import DEPENDENCIES, ROOT, program

FOLDER = ROOT / "tests" / "keys"
TABLE = FOLDER / "table.txt"
TKV = [sys.executable, "-m", "tensorkv"]
LINES = [(n, *line.split()[:2]) for n, line in enumerate(TABLE.read_text().splitlines()) if line[0] != "#"]
GOOD = {digits: number for number, digits, kind in LINES if kind == "good"}
WANTED = [f"{digits} {'made' if kind == 'good' else 'refused'}" for _, digits, kind in LINES]


def bytes_of(digits):
    return b"" if digits == "-" else bytes.fromhex(digits)


TEXTS = [bytes_of(digits).decode() for digits in GOOD]


def of_python(verb, folder):
    """The keys that Python takes, as the programs of other languages say them."""
    kv = mx.kv.create()
    if verb == "read":
        kv.init(TEXTS, [mx.nd.zeros((1,)) for _ in TEXTS])
        kv.load(folder)  # a store with other keys than the snapshot's is refused
        return [f"{key.encode().hex() or '-'} {kv.pull(key).asscalar():.0f}" for key in TEXTS]
    said = []
    for number, digits, _ in LINES:
        try:
            # A byte that is no UTF-8 is half of a pair in a str, as in names of files.
            kv.init(bytes_of(digits).decode(errors="surrogateescape"), mx.nd.full((1,), number))
            said.append(f"{digits} made")
        except mx.errors.InvalidArgumentError:
            said.append(f"{digits} refused")
    kv.save(folder)
    return said


def jars(*folders):
    """A class path with the output of ./dev jvm and its dependencies."""
    found = [
        p for f in folders for p in sorted(f.glob("**/*.jar")) if not p.name.endswith(("-sources.jar", "-javadoc.jar"))
    ]
    assert found, f"{folders} have no jars: ./dev jvm makes them"
    return ":".join(map(str, found))


def command_of(language, cache):
    """The program of a language."""
    if language in ("c", "cpp"):
        return [program(f"keys_in_{language}")]
    built = ROOT / "jvm" / "target" / "repository" / "org" / "tensorkv" / "tensorkv"
    path = jars(built, DEPENDENCIES / "org" / "bytedeco" / "javacpp")
    java = ["java", "-Duser.language=en", f"-Dorg.bytedeco.javacpp.cachedir={cache}", "-cp"]
    if language == "java":
        return [*java, path, str(FOLDER / "Keys.java")]
    (version,) = re.findall(r"<scala2.version>(.*)</scala2.version>", (ROOT / "jvm" / "pom.xml").read_text())
    target = ROOT / "jvm" / "scala" / "2.13" / "target"
    library = jars(DEPENDENCIES / "org" / "scala-lang" / "scala-library" / version)
    classes = f"{target / 'classes'}:{target / 'test-classes'}"
    return [*java, f"{classes}:{library}:{path}", "org.tensorkv.scala.KeysProgram"]


@pytest.fixture
def say(tmp_path):
    """Lines that the program of a language says of a table and a folder."""

    def say(language, verb, folder):
        if language == "python":
            return of_python(verb, folder)
        words = [*command_of(language, tmp_path / "javacpp"), verb, str(TABLE), str(folder)]
        ended = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
        assert ended.returncode == 0, ended.stdout + ended.stderr
        return ended.stdout.splitlines()

    return say


@pytest.mark.parametrize("writer", ["python", "c", "cpp", "java", "scala"])
def test_every_language_takes_the_same_keys_and_reads_those_of_the_others(say, writer, tmp_path):
    assert say(writer, "write", tmp_path / "snapshots") == WANTED
    for reader in ["python", "c", "cpp", "java", "scala"]:
        found = dict(line.split() for line in say(reader, "read", tmp_path / "snapshots"))
        assert {digits: int(value) for digits, value in found.items()} == GOOD, f"{reader} reads what {writer} wrote"


def test_a_key_that_is_refused_is_shown_escaped():
    kv = mx.kv.create()
    with pytest.raises(mx.errors.InvalidArgumentError, match=r"^init 'p\\x00q': the key has the character zero"):
        kv.init("p\0q", mx.nd.ones((1,)))


def test_the_json_of_every_command_is_json_whatever_keys_are_called(processes):
    launched = processes.launch(
        f"""
        kv = mx.kv.create("dist_sync")
        kv.init({TEXTS!r}, [mx.nd.zeros((1,)) for _ in range({len(TEXTS)})])
        kv.set_optimizer(mx.optimizer.SGD(learning_rate=-1.0))
        with kv.trace({str(processes.folder / "trace.json")!r}):
            kv.push({TEXTS!r}, [mx.nd.ones((1,)) for _ in range({len(TEXTS)})])
            kv.pull({TEXTS!r})
        assert set(kv.stats()["keys"]) == set({TEXTS!r})
        print("url", kv.url, flush=True)
        until_marked("bye")
        kv.close()
        """,
        workers=1,
    )
    url = re.search(r"url (\S+)", read_until(launched, "url")).group(1)
    status, found = objects(processes, "keys", url)
    assert status == 0 and sorted(one["key"] for one in found) == sorted(TEXTS)
    status, [found] = objects(processes, "status", url)
    assert status == 0 and sorted(one["key"] for one in found["keys"]) == sorted(TEXTS)
    status, found = objects(processes, "top", "--interval", "0.1", "--count", "1", url)
    assert status == 0 and len(found[-1]["keys"]) == len(TEXTS)
    status, said = finish(processes.start([*TKV, "keys", url]))
    assert status == 0 and said.count("\n") == len(TEXTS), "one line for each, whatever is in it"
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f]", said), "nothing commands the terminal"
    traced = json.loads((processes.folder / "trace.json").read_text())["traceEvents"]
    assert {event["args"]["key"] for event in traced if "key" in event.get("args", {})} == {f"'{key}'" for key in TEXTS}
    for at, key in enumerate(TEXTS):
        status, said = finish(processes.start([*TKV, "get", "--out", processes.folder / f"{at}.npy", "--", key, url]))
        assert status == 0 and np.load(processes.folder / f"{at}.npy").tolist() == [1], f"{key!r}: {said}"
    for key in TEXTS[::4]:
        named = [f"--key={key}"] if key else ["--key", ""]
        status, found = objects(processes, "explain", *named, "--url", url)
        assert status == 0 and found[0]["name"] == "sgd", f"{key!r}: {found}"
    server = processes.start([*TKV, "status", "--metrics", "0", url])
    page = re.search(r"metrics at (\S+)", read_until(server, "metrics at")).group(1)
    text = urllib.request.urlopen(page, timeout=10).read().decode()
    labels = re.findall(
        r'^tensorkv_key_rounds_total\{job="[^"]+",key="((?:[^"\\\n]|\\["\\n])*)",store="0"\} 1$', text, re.M
    )
    plain = [re.sub(r"\\(.)", lambda c: "\n" if c[1] == "n" else c[1], label) for label in labels]
    assert sorted(plain) == sorted(TEXTS)
    server.send_signal(signal.SIGTERM)
    assert finish(server)[0] == 128 + signal.SIGTERM
    (processes.folder / "mark-bye").touch()
    assert finish(launched)[0] == 0


def test_a_restored_job_has_the_keys_whatever_they_are_called(processes):
    text = f"""
    kv = mx.kv.create("dist_sync")
    kv.init({TEXTS!r}, [mx.nd.zeros((1,)) for _ in range({len(TEXTS)})])
    if not kv.rejoined:
        kv.push({TEXTS!r}, [mx.nd.full((1,), i) for i in range({len(TEXTS)})])
    print([value.asscalar() for value in kv.pull({TEXTS!r})] == list(range({len(TEXTS)})), kv.rejoined, flush=True)
    kv.close()
    """
    for said_before in ("True False", "True True"):
        options = ("--restore", str(processes.folder / "snapshots"), "--snapshot-every", "1")
        status, said = finish(processes.launch(text, *options, workers=1))
        assert status == 0 and said_before in said, said
