"""Rules of the source tree."""

import pathlib
import subprocess
import sys

import pytest
import tensorkv as mx

ROOT = pathlib.Path(__file__).parents[2]


def test_include_edges_and_calls():
    run = subprocess.run([sys.executable, str(ROOT / "tools" / "tidy.py")], capture_output=True, text=True, timeout=60)
    assert run.returncode == 0, run.stdout


def test_generated_documents_are_current():
    run = subprocess.run(
        [sys.executable, str(ROOT / "tools" / "docs.py"), "--check"], capture_output=True, text=True, timeout=100
    )
    assert run.returncode == 0, run.stdout


def test_python_and_the_core_have_one_version_and_one_table_of_codes():
    run = subprocess.run(
        [str(pathlib.Path(sys.executable).parent / "tkv"), "--version"], capture_output=True, text=True, timeout=60
    )
    assert run.stdout == f"tkv {mx.__version__}\n"
    codes = {cls.code for cls in mx.errors.KVError.__subclasses__()}
    assert codes == set(mx._core._error_codes().values())


def test_the_command(monkeypatch):
    tkv = str(pathlib.Path(sys.executable).parent / "tkv")
    run = subprocess.run([tkv, "config"], capture_output=True, text=True, timeout=60)
    assert run.returncode == 0 and "instruction_set = " in run.stdout
    assert subprocess.run([tkv], capture_output=True, timeout=60).returncode != 0
    monkeypatch.setenv("TKV_THREADS", "many")
    wrong = subprocess.run([tkv, "config"], capture_output=True, text=True, timeout=60)
    message = "tkv: TKV_THREADS='many': a whole number from 0 to 65536 (cores) is needed\n"
    assert (wrong.returncode, wrong.stderr) == (2, message)
    with pytest.raises(ValueError, match="TKV_THREADS='many'"):
        mx.kv.create("local")


def test_the_import_is_light():
    """Modules that cost more than a millisecond and are rarely needed are imported only when they are needed."""
    program = "import sys, numpy; before = set(sys.modules); import tensorkv; print(*(set(sys.modules) - before))"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    heavy = {
        "asyncio",
        "tempfile",
        "inspect",
        "typing_extensions",
        "ml_dtypes",
        "torch",
        "jax",
        "logging",
        "json",
        "socket",
    }
    ours = {"initializer", "metric", "numpy", "optimizer", "profiler", "_types", "_update.base", "_update.functions"}
    loaded = run.stdout.split()
    assert "tensorkv.kvstore" in loaded and not (heavy | {f"tensorkv.{name}" for name in ours}) & set(loaded)
