"""Processes of different protocols do not work together, and say so at once: this build and one of protocol 1."""

import os
import pathlib
import shutil
import socket
import subprocess
import sys
import time

import pytest

pytestmark = pytest.mark.slow

ROOT = pathlib.Path(__file__).parents[2]
OLD = "bb6d34d"  # the last commit whose processes spoke protocol 1
JOB = "import tensorkv as mx; kv = mx.kv.create('dist_sync', server_patience=60); print('joined'); kv.close()"


def run(*arguments, **options):
    return subprocess.run([str(a) for a in arguments], capture_output=True, text=True, timeout=900, **options)


def install(tree, folder):
    """Make a wheel of a tree and unpack it."""
    made = run(
        sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", folder, tree, cwd=tree
    )
    assert made.returncode == 0, made.stdout + made.stderr
    (wheel,) = folder.glob("*.whl")
    shutil.unpack_archive(wheel, folder / "site", "zip")
    for program in (folder / "site" / "tensorkv" / "bin").iterdir():
        program.chmod(0o755)
    return folder / "site"


@pytest.fixture(scope="session")
def old(tmp_path_factory):
    """The folder of a package that speaks protocol 1; ``TKV_TEST_OLD_SITE`` names one that exists already."""
    if "TKV_TEST_OLD_SITE" in os.environ:
        return pathlib.Path(os.environ["TKV_TEST_OLD_SITE"])
    if run("git", "cat-file", "-e", f"{OLD}^{{commit}}", cwd=ROOT).returncode != 0:
        pytest.skip(f"this clone has no commit {OLD}: NOTHING has been tried against a build of protocol 1")
    folder = tmp_path_factory.mktemp("old")
    tree = folder / "tree"
    tree.mkdir()
    archive = folder / "tree.tar"
    assert run("git", "archive", "-o", archive, OLD, cwd=ROOT).returncode == 0
    shutil.unpack_archive(archive, tree)
    return install(tree, folder)


@pytest.fixture(scope="session")
def new(tmp_path_factory):
    """The folder of this package; ``TKV_TEST_NEW_SITE`` names one that exists already."""
    if "TKV_TEST_NEW_SITE" in os.environ:
        return pathlib.Path(os.environ["TKV_TEST_NEW_SITE"])
    return install(ROOT, tmp_path_factory.mktemp("new"))


def of(site):
    """The environment of a process that uses the package there."""
    return {**os.environ, "PYTHONPATH": str(site), "PYTHONDONTWRITEBYTECODE": "1"}


def job(head, worker, *options):
    """Start a job by one package whose only worker uses another one: seconds, output."""
    begin = time.monotonic()
    done = run(
        sys.executable, "-m", "tensorkv", "launch", "-n", "1", "-s", "1", *options,
        "env", f"PYTHONPATH={worker}", sys.executable, "-c", JOB,
        env=of(head),
    )  # fmt: skip
    assert done.returncode != 0, done.stdout + done.stderr
    assert "joined" not in done.stdout
    return time.monotonic() - begin, done.stdout + done.stderr


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("options", [(), ("--tcp",)], ids=["unix", "tcp"])
def test_an_old_worker_is_refused_by_a_new_head_and_told_to_be_upgraded(old, new, options):
    seconds, output = job(new, old, *options)
    assert "speaks protocol 1" in output and "protocol 2 (tensorkv " in output, output
    assert "upgrade tensorkv where worker 0 " in output, output
    assert seconds < 20, "the worker does not wait for its patience"


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("options", [(), ("--tcp",)], ids=["unix", "tcp"])
def test_a_new_worker_is_refused_by_an_old_head_and_says_what_to_upgrade(old, new, options):
    seconds, output = job(old, new, *options)
    assert "speaks protocol 1" in output and "protocol 2 (tensorkv " in output, output
    assert "create 'dist_sync'" in output and "upgrade tensorkv where" in output, output
    assert seconds < 20, "the worker does not wait for its patience"


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("direction", ["an old server", "a new server"])
def test_a_server_is_refused_too_and_ends(old, new, direction):
    head, server = (new, old) if direction == "an old server" else (old, new)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    environment = {
        "DMLC_PS_ROOT_URI": "127.0.0.1",
        "DMLC_PS_ROOT_PORT": port,
        "DMLC_NUM_WORKER": "1",
        "DMLC_NUM_SERVER": "1",
        "TKV_INSECURE_NETWORK": "1",
    }
    command = [sys.executable, "-m", "tensorkv", "server"]
    scheduler = subprocess.Popen(
        command, env={**of(head), **environment, "DMLC_ROLE": "scheduler"}, stderr=subprocess.PIPE, text=True
    )
    try:
        begin = time.monotonic()
        done = run(*command, env={**of(server), **environment, "DMLC_ROLE": "server"})
        assert done.returncode != 0, done.stdout + done.stderr
        assert "1" in done.stderr and "2" in done.stderr and "upgrade tensorkv" in done.stderr, done.stderr
        assert time.monotonic() - begin < 20
    finally:
        scheduler.kill()
        scheduler.communicate()
