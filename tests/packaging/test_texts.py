"""The texts that go along with a release: their links, and the files, tests and versions that they name."""

import json
import pathlib
import re
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tools"))
import notices  # noqa: E402

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


def metadata():
    """Return the table `project` of pyproject.toml."""
    try:
        import tomllib
    except ModuleNotFoundError:  # Python 3.10, where pytest brings the same code
        import tomli as tomllib

    return tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def test_the_metadata_have_an_extra_for_each_framework():
    project = metadata()
    assert {"torch", "jax", "ray"} <= set(project["optional-dependencies"])
    for extra, needed in project["optional-dependencies"].items():
        assert [name for name in needed if re.match(rf"{extra}\b", name)], extra
    for document in tracked("*.md"):
        for extra in re.findall(r"pip install '\.\[(\w+)\]'", document.read_text()):
            assert extra in project["optional-dependencies"], document
    oldest = project["requires-python"].removeprefix(">=")
    pythons = [c.rpartition(" ")[2] for c in project["classifiers"] if re.search(r"Python :: 3\.\d+$", c)]
    assert min(pythons, key=lambda v: int(v.split(".")[1])) == oldest
    assert set(project["license-files"]) == {"LICENSE", "THIRD_PARTY_NOTICES.txt"}


def test_each_project_whose_headers_are_included_has_a_notice():
    assert not notices.unknown_headers()
    text = notices.NOTICES.read_text()
    sections = re.findall(rf"^{notices.RULE}(\w+): ", text, re.MULTILINE)
    assert sections == [part.name for part in notices.PARTS]
    for part in notices.PARTS:
        assert f"License: {part.license}\n" in text


def test_a_header_and_a_library_of_another_project_are_noticed(monkeypatch):
    monkeypatch.setattr(notices, "PARTS", [part for part in notices.PARTS if part.name != "xxHash"])
    assert any("<xxhash.h>" in line for line in notices.unknown_headers())
    assert any(re.match(r"libpython|libz|libexpat", name) for name in notices.unknown_libraries(a_program_of_others()))


def a_program_of_others():
    """Return a library of Python's, which needs others than those of the C runtime."""
    import _elementtree
    import pyexpat
    import zlib

    for module in (zlib, pyexpat, _elementtree):
        if getattr(module, "__file__", None) and notices.unknown_libraries(module.__file__):
            return module.__file__
    return sys.executable


@pytest.mark.skipif(not pathlib.Path("/usr/share/doc/libhwy1/copyright").exists(), reason="not Debian's packages")
def test_the_bill_of_materials_names_each_part_once_with_its_version():
    bill = json.loads(json.dumps(notices.bill()))
    assert bill["bomFormat"] == "CycloneDX" and bill["metadata"]["component"]["version"] == VERSION
    names = [component["name"] for component in bill["components"]]
    assert names == [part.name for part in notices.PARTS]
    assert all(re.fullmatch(r"\d+(\.\d+)+\w*", component["version"]) for component in bill["components"])
    refs = {component["bom-ref"] for component in bill["components"]}
    assert set(bill["dependencies"][0]["dependsOn"]) == refs
    assert "nanobind" not in {component["name"] for component in notices.bill("cpp")["components"]}
    assert notices.bill() == notices.bill()
