"""The wheel: one for every Python, self-contained, works where there is nothing but Python and NumPy."""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import zipfile

import pytest
from pods import run

ROOT = pathlib.Path(__file__).parents[2]


def test_one_wheel_for_all_and_what_is_in_it(wheel):
    assert "-cp310-abi3-linux_" in wheel.name
    names = zipfile.ZipFile(wheel).namelist()
    for wanted in (
        "tensorkv/py.typed",
        "tensorkv/_core.pyi",
        "tensorkv/_core.abi3.so",
        "tensorkv/bin/tkv",
        "tensorkv/libtbb.so.12",
    ):
        assert wanted in names
    assert any(name.endswith(".data/data/share/man/man1/tkv-launch.1") for name in names)
    assert not [n for n in names if "test" in n and not n.endswith(("test_utils.py", "testing.py"))]


def test_the_pretended_driver_is_not_in_it(wheel):
    contents = zipfile.ZipFile(wheel)
    assert not [name for name in contents.namelist() if "libcuda" in name or b"fake_" in contents.read(name)]


def test_it_names_no_folder_of_the_machine_that_built_it(wheel):
    contents = zipfile.ZipFile(wheel)
    for name in ("tensorkv/_core.abi3.so", "tensorkv/bin/tkv"):
        assert str(ROOT).encode() not in contents.read(name), name


def test_the_extension_shows_its_entry_alone(wheel, tmp_path):
    library = zipfile.ZipFile(wheel).extract("tensorkv/_core.abi3.so", tmp_path)
    shown = run("nm", "-DC", "--defined-only", library)
    assert "PyInit__core" in shown and "tkv::" not in shown


def test_it_needs_only_glibc_and_libstdcpp(wheel):
    shown = run(sys.executable, "-m", "auditwheel", "show", wheel)
    external = set(re.findall(r"(lib[\w+.-]+\.so[\d.]*)", shown))
    allowed = r"(libc|libm|libdl|librt|libpthread|libgcc_s|libstdc\+\+)\.so[\d.]*"
    # auditwheel names every library with versioned symbols, also those that the wheel carries itself.
    carried = {pathlib.Path(name).name for name in zipfile.ZipFile(wheel).namelist()}
    assert not [name for name in external - carried if not re.fullmatch(allowed, name)], shown


def find_python(version):
    candidates = sorted(
        pathlib.Path(os.environ.get("PYENV_ROOT", pathlib.Path.home() / ".pyenv")).glob(
            f"versions/{version}.*/bin/python"
        )
    )
    on_path = shutil.which(f"python{version}")
    for candidate in [*candidates, *([on_path] if on_path else [])]:
        if subprocess.run([candidate, "-c", "import venv, ensurepip"], capture_output=True).returncode == 0:
            return candidate
    return None


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "version",
    ["3.10", pytest.param("3.11", marks=pytest.mark.slow), pytest.param("3.12", marks=pytest.mark.slow), "3.13"],
)
def test_it_works_on_every_python(wheel, version, tmp_path):
    python = find_python(version)
    if python is None:
        pytest.skip(f"no Python {version} on this machine")
    run(python, "-m", "venv", tmp_path / "venv")
    python = tmp_path / "venv" / "bin" / "python"
    run(python, "-m", "pip", "install", "-q", wheel, "pytest", "pytest-timeout", "hypothesis", "ml_dtypes")
    files = [
        "test_seeds.py",
        "test_kvstore.py",
        "test_kvstore_options.py",
        "test_kvstore_process.py",
        "test_ndarray.py",
        "test_optimizer.py",
        "test_interop.py",
        "test_mxnet_name.py",
    ]
    output = run(
        python,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "-m",
        "not framework",
        *[ROOT / "tests" / "python" / f for f in files],
        cwd=ROOT,
    )
    assert "leaked" not in output and "100%" in output
    assert run(tmp_path / "venv" / "bin" / "tkv", "--version").startswith("tkv ")


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_it_works_in_a_bare_chroot(wheel, tmp_path):
    """Debian 12 with its Python, NumPy and nothing else."""
    assert os.geteuid() == 0, "making a chroot needs root"
    root = tmp_path / "root"
    run("debootstrap", "--variant=minbase", "--include=python3-minimal,libpython3-stdlib", "bookworm", root)
    site = root / "opt" / "site"
    python = find_python("3.11")
    assert python is not None, "Debian 12 has Python 3.11; the same is needed to fetch NumPy for it"
    run(python, "-m", "venv", tmp_path / "fetch")
    run(tmp_path / "fetch" / "bin" / "python", "-m", "pip", "install", "-q", "--target", site, "numpy", wheel)
    code = (
        "import tensorkv as mx; kv = mx.kv.create('local'); kv.init('w', mx.nd.ones((1000000,)));"
        "kv.push('w', [mx.nd.ones((1000000,))] * 3); print(int(kv.pull('w').asnumpy().sum()))"
    )
    run("mount", "-t", "proc", "proc", root / "proc")  # the loader finds a program's own folder there
    try:
        out = run("chroot", root, "env", "PYTHONPATH=/opt/site", "python3", "-c", code)
        assert out == "3000000\n"
        assert run("chroot", root, "/opt/site/tensorkv/bin/tkv", "--version").startswith("tkv ")
    finally:
        run("umount", root / "proc")
