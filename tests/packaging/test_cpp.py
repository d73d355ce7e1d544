"""The C++ library as a user installs and finds it."""

import pathlib
import subprocess

ROOT = pathlib.Path(__file__).parents[2]


def run(*arguments):
    result = subprocess.run([str(a) for a in arguments], capture_output=True, text=True, timeout=110)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


def test_the_example_builds_against_the_installed_library(tmp_path):
    run("cmake", "--install", ROOT / "build" / "release", "--component", "cpp", "--prefix", tmp_path / "prefix")
    run(
        "cmake", "-S", ROOT / "examples" / "cpp", "-B", tmp_path / "build", f"-DCMAKE_PREFIX_PATH={tmp_path / 'prefix'}"
    )
    run("cmake", "--build", tmp_path / "build")
    assert run(tmp_path / "build" / "hello") == (
        "w[0] = -1.5\nInvalidArgument: push 'w': shape (3, 2), the key has (2, 3)\n"
    )
