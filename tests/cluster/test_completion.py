"""The completions that shells offer after the command `tkv`."""

import contextlib
import os
import pty
import re
import shutil
import signal
import subprocess
import sys

import pytest
from jobs import finish

TKV = [sys.executable, "-m", "tensorkv"]


@pytest.fixture
def script(processes, tmp_path):
    """Return a function that writes the script for a shell and returns its path."""

    def write(shell):
        status, said = finish(processes.start([*TKV, "completion", shell]))
        assert status == 0, said
        path = tmp_path / f"completion.{shell}"
        path.write_text(said)
        return path

    return write


def offered(path, words, folder):
    """Return the completions of bash for the last of these words, split as bash splits a line: at `=` too."""
    line = " ".join(f"'{word}'" for word in ["tkv", *words])
    text = f'source {path}; COMP_WORDS=({line}); COMP_CWORD={len(words)}; _tkv; printf "%s\\n" "${{COMPREPLY[@]}}"'
    done = subprocess.run(
        ["bash", "--norc", "-uc", text], cwd=folder, capture_output=True, text=True, timeout=30, check=False
    )
    assert done.returncode == 0 and done.stderr == "", done.stderr
    return set(done.stdout.split("\n")) - {""}


@pytest.mark.parametrize(
    "words, expected",
    [
        (["co"], {"completion", "config"}),
        (["agen"], set()),  # nobody calls it
        (["--v"], {"--version"}),
        (["launch", "--work"], {"--workers"}),
        (["launch", "--rest"], {"--restart", "--restore"}),
        (["launch", "--on-death", ""], {"fail", "continue", "wait"}),
        (["launch", "--on-death", "=", "c"], {"continue"}),
        (["launch", "--on-death", "="], {"fail", "continue", "wait"}),
        (["launch", "-n", "4", "--transport", "t"], {"tcp"}),
        (["launch", "-n", ""], set()),  # any number
        (["launch", "--log", ""], {"a folder"}),
        (["launch", "--hosts", "a"], {"a folder", "a file"}),
        (["launch", "-n", "2", "--tcp", "mkfif"], {"mkfifo"}),
        (["launch", "-n", "2", "python", "a f"], {"a folder", "a file"}),
        (["launch", "python", "--on-death", ""], {"a folder", "a file"}),  # of the command, not of tkv
        (["launch", "--", "mkfif"], {"mkfifo"}),
        (["explain", "--optimizer", "ada"], {"adadelta", "adagrad", "adam", "adamax", "adamw"}),
        (["explain", "a fi"], {"a file"}),
        (["completion", ""], {"bash", "zsh", "fish"}),
        (["explain", "a file", "--opt"], {"--optimizer"}),
        (["nothing", ""], set()),
    ],
    ids=lambda words: " ".join(sorted(words)),
)
def test_bash_offers_subcommands_options_and_values(script, tmp_path, words, expected):
    folder = tmp_path / "here"
    (folder / "a folder").mkdir(parents=True)
    (folder / "a file").touch()
    assert offered(script("bash"), words, folder) == expected


def test_bash_offers_every_subcommand_and_option_of_the_help(processes, script, tmp_path):
    path = script("bash")
    _, said = finish(processes.start([*TKV, "--help"]))
    subcommands = set(
        re.findall(r"^  (\w+) ", said.partition("\nRun a job:\n")[2].partition("\n`tkv launch")[0], re.MULTILINE)
    )
    assert {"launch", "explain"} <= subcommands <= offered(path, [""], tmp_path)
    for subcommand in subcommands:
        _, said = finish(processes.start([*TKV, subcommand, "--help"]))
        options = set(re.findall(r"^ +(?:-\w,)?(--[\w-]+)", said, re.MULTILINE))
        assert {"--json", "--help"} <= options <= offered(path, [subcommand, "--"], tmp_path), subcommand


@pytest.mark.timeout(60)
def test_a_tab_in_bash_completes_what_is_typed(script, tmp_path):
    typed = "tkv expla\t--optim\tadag\t\ntkv launch --on-d\tc\tmkfif\t\ntkv launch --on-death=c\t\nexit\n"
    begin = f'source {script("bash")}\ntkv() {{ echo "$*" >> {tmp_path}/got; }}\n'
    pid, terminal = pty.fork()
    if pid == 0:
        environment = {"TERM": "dumb", "PATH": os.environ["PATH"], "HOME": str(tmp_path)}
        os.execvpe("bash", ["bash", "--norc", "--noprofile", "-i"], environment)
    try:
        os.write(terminal, (begin + typed).encode())
        with contextlib.suppress(OSError):  # the shell has ended
            while os.read(terminal, 65536):
                pass
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(terminal)
    assert (tmp_path / "got").read_text().splitlines() == [
        "explain --optimizer adagrad",
        "launch --on-death continue mkfifo",
        "launch --on-death=continue",
    ]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shells_can_read_their_script(script, shell):
    if shutil.which(shell) is None:
        pytest.skip(f"no {shell} is installed")
    done = subprocess.run([shell, "-n", script(shell)], capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 0 and done.stderr == "", done.stderr


def test_fish_offers_subcommands_options_and_values(script):
    if shutil.which("fish") is None:
        pytest.skip("no fish is installed")
    path = script("fish")
    for line, expected in {
        "tkv co": ["completion", "config"],
        "tkv launch --rest": ["--restart", "--restore"],
        "tkv launch --on-death ": ["continue", "fail", "wait"],
        "tkv completion ": ["bash", "fish", "zsh"],
    }.items():
        said = subprocess.run(
            ["fish", "--no-config", "-c", f"source {path}; complete -C '{line}'"],
            capture_output=True,
            text=True,
            timeout=30,
            check=True,
        ).stdout
        assert [one.split("\t")[0] for one in said.splitlines()] == expected


def test_another_shell_is_an_error_that_lists_those_there_are(processes):
    status, said = finish(processes.start([*TKV, "completion", "tcsh"]))
    assert status == 2 and said == "tkv: completion: there is no shell 'tcsh'; there are bash, zsh, fish\n"
