"""The manual pages of the command `tkv`, which are made from its help."""

import re
import shutil
import subprocess
import sys

import pytest
from jobs import finish

TKV = [sys.executable, "-m", "tensorkv"]


@pytest.fixture
def pages(processes, tmp_path):
    """Return {name: text} of all pages."""
    status, said = finish(processes.start([*TKV, "manual", str(tmp_path / "made" / "man1")]))
    assert status == 0 and said == ""
    return {path.name: path.read_text() for path in (tmp_path / "made" / "man1").iterdir()}


def plain(page):
    """Return the text of a page without the signs of roff."""
    return re.sub(r"\\f[BIR]|\\&", "", page).replace("\\-", "-").replace("\\e", "\\")


def test_the_pages_have_every_subcommand_option_and_exit_status_of_the_help(processes, pages):
    _, said = finish(processes.start([*TKV, "--help"]))
    commands = re.findall(r"^  (\w+) ", said.partition("\nRun a job:\n")[2].partition("\n`tkv launch")[0], re.MULTILINE)
    assert set(pages) == {"tkv.1", *(f"tkv-{command}.1" for command in commands)}
    for status, meaning in re.findall(r"^  (\S+) +(.+)$", said.partition("Exit status:\n")[2], re.MULTILINE):
        assert all(f"{status}\n{meaning}\n" in plain(page) for page in pages.values())
    for command in commands:
        assert f"tkv-{command}(1)" in plain(pages["tkv.1"])
        _, said = finish(processes.start([*TKV, command, "--help"]))
        options = re.findall(r"^ +(?:-\w,)?(--[\w-]+)", said, re.MULTILINE)
        tags = " ".join(re.findall(r"^\.TP\n(.*)$", pages[f"tkv-{command}.1"], re.MULTILINE))
        assert options and set(options) == set(re.findall(r"--[\w-]+", plain(tags))), command


def test_an_option_has_its_value_words_and_default(pages):
    page = plain(pages["tkv-launch.1"])
    assert ".TP\n-n, --workers INT\nWorkers (default 1)\n" in page
    assert re.search(r"\n--on-death WORD\nThe fate of a round .*: one of fail, continue, wait", page)
    assert ".SH SYNOPSIS\ntkv launch [OPTIONS] COMMAND ...\n" in page


def test_groff_has_nothing_to_say_about_the_pages(pages):
    if shutil.which("groff") is None:
        pytest.skip("no groff is installed")
    for name, page in pages.items():
        made = subprocess.run(
            ["groff", "-man", "-Tascii", "-P-c", "-ww"],
            input=page,
            capture_output=True,
            text=True,
            timeout=30,
            check=True,
        )
        assert made.stderr == "", name
        assert re.sub(".\b", "", made.stdout).lstrip().startswith(name.replace(".", "(") + ")")


def test_a_folder_that_cannot_be_made_is_an_error(processes):
    status, said = finish(processes.start([*TKV, "manual", "/dev/null/man1"]))
    assert status == 2 and said == "tkv: manual '/dev/null/man1': Not a directory\n"
