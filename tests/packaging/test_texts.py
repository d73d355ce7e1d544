"""The texts that go along with a release: their links, and the files, tests and versions that they name."""

import pathlib
import re
import subprocess

import pytest

ROOT = pathlib.Path(__file__).parents[2]
VERSION = re.search(r'^version = "(.+)"$', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)[1]


def tracked(*patterns):
    """Return the tracked files that match."""
    listed = subprocess.run(["git", "ls-files", *patterns], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    return [ROOT / name for name in listed.split("\n") if name]


def prose(path):
    """Return a document without its blocks of code."""
    text = re.sub(r"^```.*?^```$", "", path.read_text(), flags=re.DOTALL | re.MULTILINE)
    return re.sub(r"^    .*$", "", text, flags=re.MULTILINE)


def anchors(path):
    """Return the anchors of a document's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", prose(path), re.MULTILINE)
    plain = [re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading) for heading in headings]
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in plain}


DOCUMENTS = pytest.mark.parametrize("path", tracked("*.md"), ids=lambda path: str(path.relative_to(ROOT)))


@DOCUMENTS
def test_links_lead_somewhere(path):
    text = re.sub(r"`[^`\n]*`", "", prose(path))
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"\w+:", target):
            continue
        name, _, anchor = target.partition("#")
        file = (path.parent / name).resolve() if name else path
        assert file.exists(), f"{target}: no such file"
        assert not anchor or file.suffix != ".md" or anchor in anchors(file), f"{target}: no such heading"


@DOCUMENTS
def test_no_text_installs_this_package_from_an_index(path):
    for command in re.findall(r"pip install ([^\n`]*)", path.read_text()):
        assert not re.search(r"(?<![\w/.-])['\"]?tensorkv\b(?!/)", command), f"pip install {command}"


def test_what_the_text_on_security_names_exists():
    text = (ROOT / "SECURITY.md").read_text()
    named = re.findall(r"`([\w/.]+/[\w.]+)`", text)
    assert len(named) > 20
    assert not [name for name in named if not (ROOT / name).exists()]
    sources = "\n".join(path.read_text() for path in tracked("*_test.cc", "tests/**/*.py", "src/**/*.cc"))
    tests = re.findall(r"`((?:Tls\.)?[A-Z][a-z]+[A-Z]\w+|test_\w+)`", text)
    assert len(tests) > 10
    missing = [name for name in tests if not re.search(rf"\b{name.removeprefix('Tls.')}\b", sources)]
    assert not [name for name in missing if not name.endswith("Error")]


def test_every_text_has_the_same_version():
    for name, pattern in {
        "CMakeLists.txt": r"project\(tensorkv VERSION ([\d.]+)",
        "CITATION.cff": r"^version: (.+)$",
        "CHANGELOG.md": r"^## ([\d.]+)",
        "docs/versions.md": r"`tensorkv~=([\d.]+)`",
    }.items():
        found = re.search(pattern, (ROOT / name).read_text(), re.MULTILINE)
        assert found and found[1] == VERSION, name


def test_the_version_of_the_wire_and_of_snapshots_is_that_of_the_sources():
    text = (ROOT / "docs" / "versions.md").read_text()
    wire = re.search(r"kProtocolVersion = (\d+);", (ROOT / "src/wire/version.h").read_text())[1]
    index = (ROOT / "src/checkpoint/index.cc").read_text()
    first, last = (re.search(rf"{name} = (\d+);", index)[1] for name in ("kFormat", "kStoresFormat"))
    assert f"| wire | a number of its own, now {wire} |" in text
    assert f"| snapshots | a number of its own, now {first} to {last} |" in text
