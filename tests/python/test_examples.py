"""The examples run, and the demonstration keeps its promises."""

import json
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).parents[2]


def run(script, *arguments):
    return subprocess.run(
        [sys.executable, str(ROOT / "examples" / script), *arguments], capture_output=True, text=True, timeout=100
    )


def test_the_tutorial_runs():
    result = run("tutorial.py")
    assert result.returncode == 0 and result.stdout.endswith("done\n"), result.stderr


def figure(output, name):
    line = next(line for line in output.splitlines() if line.startswith(name))
    return line[len(name) :].strip()


def test_the_digits_train_and_draw(tmp_path):
    picture = tmp_path / "digits.png"
    result = run("digits.py", "--picture", str(picture))
    assert result.returncode == 0, result.stderr
    assert float(figure(result.stdout, "test accuracy")) >= 0.95
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_several_workers_train_the_same_weights():
    result = run("digits_workers.py", "5")
    assert result.returncode == 0, result.stdout + result.stderr
    assert figure(result.stdout, "two deterministic runs") == "equal, bit for bit"


def test_a_run_resumed_from_a_checkpoint_ends_with_the_same_weights(tmp_path):
    checkpoint, picture = str(tmp_path / "state"), str(tmp_path / "p.png")
    whole = run("digits.py", "--picture", picture)
    first = run("digits.py", "--picture", picture, "--epochs", "10", "--every", "22", "--checkpoint", checkpoint)
    rest = run("digits.py", "--picture", picture, "--checkpoint", checkpoint)
    assert "resumed from" in rest.stdout and rest.returncode == 0, first.stderr + rest.stderr
    assert figure(rest.stdout, "test accuracy") == figure(whole.stdout, "test accuracy")


def test_a_job_whose_worker_is_killed_is_drawn_on_one_time_axis(tmp_path):
    examples, folder, picture = ROOT / "examples", tmp_path / "events", tmp_path / "job.png"
    folder.mkdir()
    launch = [sys.executable, "-m", "tensorkv", "launch", "-n", "2", "-s", "2", "--restart", "1", sys.executable]
    worker = [examples / "digits.py", "--kv", "dist_sync", "--epochs", "30", "--die-at", "300", "--events", folder]
    watcher = [":", "--observers", "1", sys.executable, examples / "digits_watch.py", folder]
    result = subprocess.run(
        [*launch, *worker, "--picture", tmp_path / "digits.png", *watcher], capture_output=True, text=True, timeout=100
    )
    assert result.returncode == 0, result.stdout + result.stderr
    lines = {path.stem: list(map(json.loads, path.read_text().splitlines())) for path in folder.iterdir()}
    assert [line["step"] for line in lines["worker-1"] if "step" in line] == list(range(660))
    assert [line["killed"] for line in lines["worker-1"] if "killed" in line] == [300]
    assert any(line["workers"][1] == "dead" for line in lines["job"])
    drawn = run("digits_picture.py", str(folder), str(picture))
    difference = re.search(r"the largest difference is (\S+)\.  9\d", drawn.stdout)
    assert drawn.returncode == 0 and float(difference.group(1)) < 1e-4, drawn.stdout + drawn.stderr
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_words_find_their_neighbours_though_a_worker_dies(tmp_path):
    picture = tmp_path / "pictures" / "words.svg"
    launch = [sys.executable, "-m", "tensorkv", "launch", "-n", "2", "-s", "2", "--restart", "1", sys.executable]
    command = [str(ROOT / "examples" / "word_embeddings.py"), "--kill", "--steps", "300", "--picture", str(picture)]
    result = subprocess.run([*launch, *command], capture_output=True, text=True, timeout=100)
    assert result.returncode == 0, result.stdout + result.stderr
    assert "worker 1 was killed by signal 9; it is started again" in result.stderr
    assert "[worker 1] started again; goes on with step 150" in result.stdout
    first, last = re.findall(r"([0-9.]+) at (?:first|last)", figure(result.stdout, "[worker 0] loss"))
    assert float(last) < 0.8 * float(first), result.stdout
    assert picture.read_bytes().startswith(b"<?xml")


def test_words_are_the_same_in_every_run_of_one_process(tmp_path):
    def losses():
        result = run("word_embeddings.py", "--kv", "local", "--steps", "50", "--picture", str(tmp_path / "words.svg"))
        assert result.returncode == 0, result.stderr
        return figure(result.stdout, "loss"), figure(result.stdout, "class")

    assert losses() == losses()


def test_mistakes_on_the_command_line_say_what_is_wrong(tmp_path):
    assert run("digits.py", "--batch", "1").returncode == 2
    wrong = run("digits.py", "--kv", "loca", "--picture", str(tmp_path / "p.png"))
    assert wrong.returncode != 0 and "create 'loca': no such type" in wrong.stderr
