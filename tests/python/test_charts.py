"""The charts of README.md have the figures of docs/faults.md."""

import pathlib
import re
import sys
import xml.etree.ElementTree as ET

import pytest

ROOT = pathlib.Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tools"))

import charts  # noqa: E402

PAGE = charts.PAGE.read_text()
PICTURES = charts.pictures(PAGE)
SVG = "{http://www.w3.org/2000/svg}"


def test_the_charts_are_those_of_the_page():
    for name, content in PICTURES.items():
        assert (charts.PICTURES / name).read_text() == content, f"{name}: run tools/charts.py --write"


def test_the_charts_are_xml_with_every_cell():
    texts = {name: [text.text for text in ET.fromstring(svg).iter(f"{SVG}text")] for name, svg in PICTURES.items()}
    for row in charts.faults(PAGE).values():
        assert all(said in texts["faults.svg"] for _, said in row.values())
    assert all(f"{ms} ms" in texts["bandwidth.svg"] for *_, ms in charts.bandwidth(PAGE))


def test_readme_names_the_figures_of_the_charts():
    readme = (ROOT / "README.md").read_text()
    times = re.search(r"!\[64 MiB there and back: ([^\]]*)\]", readme)[1]
    assert [int(ms) for ms in re.findall(r"\d+", times)] == [ms for *_, ms in charts.bandwidth(PAGE)]
    hangs = re.search(r"!\[Fourteen faults and five systems: ([^\]]*)\]", readme)[1]
    words = {7: "seven", 3: "three", 2: "two"}
    table = charts.faults(PAGE)
    for system in charts.SHORT.values():
        count = sum(row[system][0] == "hangs" for row in table.values())
        if count:
            assert f"{system} in {words[count]}" in hangs or f"{system} hangs in {words[count]}" in hangs, system
    assert len(table) == 14 and hangs.endswith("TensorKV and Gloo in none")


@pytest.mark.parametrize(
    ("survivors", "expected"),
    [
        ("worker 0: goes on; worker 1: **hangs**", ("hangs", "hangs")),
        ("worker 0: UnavailableError after 0.0–0.4 s; worker 1: goes on", ("error", "error, 0.4 s")),
        ("stranger: UnauthenticatedError after 0.0 s; worker 0: goes on", ("error", "error, < 0.1 s")),
        ("worker 0: goes on after 20 s", ("goes", "goes on")),
        ("n/a: no server: peers talk to each other", ("none", "–")),
    ],
)
def test_a_cell_shows_the_worst_outcome(survivors, expected):
    assert charts.outcome(survivors) == expected


def test_a_cell_without_an_outcome_is_refused():
    with pytest.raises(ValueError, match="no outcome in 'worker 0: '"):
        charts.outcome("worker 0: ")
