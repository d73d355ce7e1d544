"""The C++ library as a user installs, finds and links it, static and shared."""

import pathlib
import re
import subprocess

import pytest

ROOT = pathlib.Path(__file__).parents[2]
EXPORTS = pathlib.Path(__file__).parent / "exports.txt"


def run(*arguments):
    result = subprocess.run([str(a) for a in arguments], capture_output=True, text=True, timeout=900, cwd=ROOT)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


@pytest.fixture(scope="session")
def static():
    return ROOT / "build" / "release"


@pytest.fixture(scope="session")
def shared():
    """A build of the shared library, as deep in the tree as the others: the compiler's cache knows its files."""
    build = ROOT / "build" / "shared"
    run(
        *("cmake", "-G", "Ninja", "-S", ROOT, "-B", build, "-DCMAKE_BUILD_TYPE=Release", "-DBUILD_SHARED_LIBS=ON"),
        "-DTKV_WARNINGS_AS_ERRORS=ON",
    )
    run("cmake", "--build", build)
    return build


def symbols(library):
    """Return [(kind, name)] of what a shared library shows."""
    lines = run("nm", "-DC", "--defined-only", library).splitlines()
    return [tuple(re.fullmatch(r"[0-9a-f]+ (\w) (.+)", line).groups()) for line in lines]


@pytest.mark.timeout(900)
@pytest.mark.parametrize("kind", ["static", pytest.param("shared", marks=pytest.mark.slow)])
def test_the_example_builds_against_the_installed_library(kind, request, tmp_path):
    build = request.getfixturevalue(kind)
    run("cmake", "--install", build, "--component", "cpp", "--prefix", tmp_path / "prefix")
    assert list(tmp_path.glob(f"prefix/**/libtkv.{'a' if kind == 'static' else 'so'}"))
    run(
        "cmake", "-S", ROOT / "examples" / "cpp", "-B", tmp_path / "build", f"-DCMAKE_PREFIX_PATH={tmp_path / 'prefix'}"
    )
    run("cmake", "--build", tmp_path / "build")
    assert run(tmp_path / "build" / "hello") == (
        "w[0] = -1.5\nInvalidArgument: push 'w': shape (3, 2), the key has (2, 3)\n"
    )


@pytest.mark.timeout(900)
@pytest.mark.slow
def test_the_shared_library_shows_what_the_headers_promise_and_nothing_else(shared):
    found = symbols(shared / "libtkv.so")
    # Weak functions are those of class bodies; which of them the compiler keeps is its business.
    strong = sorted({name for kind, name in found if kind != "W"})
    assert strong, "the library shows nothing"
    foreign = [name for _, name in found if not re.match(r"(vtable for |typeinfo (name )?for )?tkv::", name)]
    assert not foreign, foreign
    text = "".join(f"{name}\n" for name in strong)
    (ROOT / "out").mkdir(exist_ok=True)
    (ROOT / "out" / "exports.txt").write_text(text)
    assert text == EXPORTS.read_text(), "where the change is meant: cp out/exports.txt tests/packaging/exports.txt"


@pytest.mark.timeout(900)
@pytest.mark.parametrize("kind", ["static", pytest.param("shared", marks=pytest.mark.slow)])
def test_no_library_names_the_folder_that_it_was_built_in(kind, request):
    build = request.getfixturevalue(kind)
    (library,) = [path for path in (build / "libtkv.a", build / "libtkv.so") if path.exists()]
    content = library.read_bytes()
    assert b"src/base/" in content, "files are named relative to the tree"
    assert str(ROOT).encode() not in content
