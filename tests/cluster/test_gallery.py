"""The scripts of docs/gallery.md have at most 100 lines, run as the page shows them, and print what it shows."""

import pathlib
import re
import sys

import pytest
from jobs import finish

ROOT = pathlib.Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "gallery.md").read_text()
SECTIONS = re.findall(r"\n\[(\w+)\.py\].*?```text\n(.*?)```", PAGE, re.DOTALL)
ASIDE = ("tkv launch: the job is at", "still waiting")


def shape_of(line):
    """Return a line with its numbers, and the list behind a colon of what was recommended, left open."""
    return re.sub(r"[\d.,]*\d", "#", re.sub(r"(item-\d+(, )?)+", "ITEMS", line))


def test_every_script_of_a_section_has_at_most_a_hundred_lines():
    assert [name for name, _ in SECTIONS] == ["convnet", "jax_digits", "recommender", "service"]
    for name, _ in SECTIONS:
        assert len((ROOT / "examples" / f"{name}.py").read_text().splitlines()) <= 100, name


@pytest.mark.parametrize(
    "name, needs", [("convnet", "torch"), ("jax_digits", "jax"), ("recommender", "safetensors"), ("service", "numpy")]
)
@pytest.mark.framework
def test_a_script_runs_as_the_page_shows(processes, tmp_path, name, needs):
    pytest.importorskip(needs)
    commands, shown = [], []
    for line in dict(SECTIONS)[name].splitlines():
        (commands if line.startswith("$ ") else shown).append(line.removeprefix("$ "))
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    launch, python = f"{sys.executable} -m tensorkv launch", f"{sys.executable} examples/"
    script = "\n".join([f"cd {tmp_path}", *commands, "wait"])
    script = script.replace("tkv launch", launch).replace("python examples/", python)
    status, said = finish(processes.start(["bash", "-c", script]), 180)
    assert status == 0, said
    lines = [line for line in said.splitlines() if not any(text in line for text in ASIDE)]
    assert sorted(map(shape_of, lines)) == sorted(map(shape_of, shown)), said
    accuracy = re.search(r"test accuracy ([\d.]+)", said)
    assert accuracy is None or float(accuracy[1]) > 0.9, said
    if name == "recommender":
        assert re.search(r"000500: user-7 may like (item-\d*7, ){4}item-\d*7\n", said), said
    if name == "service":
        assert said.count("has 200 votes") == 3, said
