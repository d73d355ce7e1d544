"""The library as users of C++ and of C install, find and link it, static and shared."""

import pathlib
import re
import subprocess

import pytest

ROOT = pathlib.Path(__file__).parents[2]
EXPORTS = pathlib.Path(__file__).parent / "exports.txt"


def run(*arguments, cwd=ROOT):
    result = subprocess.run([str(a) for a in arguments], capture_output=True, text=True, timeout=900, cwd=cwd)
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
    """Return [(kind, name)] of the exported symbols of a shared library."""
    lines = run("nm", "-DC", "--defined-only", library).splitlines()
    return [tuple(re.fullmatch(r"[0-9a-f]+ (\w) (.+)", line).groups()) for line in lines]


KINDS = pytest.mark.parametrize("kind", ["static", pytest.param("shared", marks=pytest.mark.slow)])
pytestmark = pytest.mark.timeout(900)


def installed(build, prefix):
    """Install the files for users of C++ and C, and return the folder."""
    run("cmake", "--install", build, "--component", "cpp", "--prefix", prefix)
    return prefix


def build_by_cmake(source, build, prefix):
    run("cmake", "-S", source, "-B", build, f"-DCMAKE_PREFIX_PATH={prefix}")
    run("cmake", "--build", build, "--parallel", "2")


def flags(prefix):
    """Return the flags of pkg-config for the installed library, and one with which a program finds it when it runs."""
    (folder,) = prefix.glob("**/pkgconfig")
    said = run("env", f"PKG_CONFIG_PATH={folder}", "pkg-config", "--cflags", "--libs", "tensorkv")
    return [*said.split(), f"-Wl,-rpath,{folder.parent}"]


def blocks(document, language):
    """Return the code blocks of a document in that language."""
    return re.findall(rf"```{language}\n(.*?)```", (ROOT / "docs" / document).read_text(), re.DOTALL)


@KINDS
def test_the_examples_build_against_the_installed_library(kind, request, tmp_path):
    prefix = installed(request.getfixturevalue(kind), tmp_path / "prefix")
    assert list(prefix.glob(f"**/libtkv.{'a' if kind == 'static' else 'so'}"))
    for language in ("cpp", "c"):
        build_by_cmake(ROOT / "examples" / language, tmp_path / language, prefix)
        assert (tmp_path / language / "worker").exists()
    assert run(tmp_path / "cpp" / "hello") == (
        "w[0] = -1.5\nInvalidArgument: push 'w': shape (3, 2), the key has (2, 3)\n"
    )
    assert run(tmp_path / "c" / "hello") == "w[0] = -1.5\nNotFound: push 'v': no such key, init it first\n"


@KINDS
def test_the_document_of_c_builds_as_it_says(kind, request, tmp_path):
    prefix = installed(request.getfixturevalue(kind), tmp_path / "prefix")
    (project,) = blocks("c.md", "cmake")
    programs, said = blocks("c.md", "c"), blocks("c.md", "text")
    (tmp_path / "CMakeLists.txt").write_text(project)
    (tmp_path / "hello.c").write_text(programs[0])
    build_by_cmake(tmp_path, tmp_path / "build", prefix)
    assert run(tmp_path / "build" / "hello") == said[0]
    strict = ["-std=c11", "-pedantic", "-Wall", "-Wextra", "-Werror"]
    for number, (text, expected) in enumerate(zip(programs, said, strict=True)):
        program = tmp_path / f"program{number}"
        program.with_suffix(".c").write_text(text)
        run("cc", *strict, program.with_suffix(".c"), *flags(prefix), "-o", program)
        assert run(program, cwd=tmp_path) == expected


@KINDS
def test_the_programs_of_the_document_of_cpp_run(kind, request, tmp_path):
    prefix = installed(request.getfixturevalue(kind), tmp_path / "prefix")
    programs = blocks("cpp.md", "cpp")
    assert len(programs) == 5
    for number, text in enumerate(programs):
        program = tmp_path / f"program{number}"
        program.with_suffix(".cc").write_text(text)
        run(
            "c++",
            "-std=c++20",
            "-Wall",
            "-Wextra",
            "-Werror",
            program.with_suffix(".cc"),
            *flags(prefix),
            "-o",
            program,
        )
    said = run(tmp_path / "program0")
    assert said == "-1.5\npush 'w': shape (3, 2), the key has (2, 3)\n"
    assert run(tmp_path / "program1", cwd=tmp_path) == "weight 4\n2 rows\n3 keys, weight 4\n"
    run(tmp_path / "program2")
    run(tmp_path / "program3")
    command = ROOT / "build" / "release" / "cli" / "tkv"
    job = run(command, "launch", "-n", "2", "-s", "2", tmp_path / "program4")
    assert sorted(job.splitlines()) == [f"[worker {rank}] worker {rank} of 2: 3" for rank in range(2)]


@KINDS
def test_the_c_interface_of_the_installed_library_does_what_it_says(kind, request, tmp_path):
    prefix = installed(request.getfixturevalue(kind), tmp_path / "prefix")
    sources = [path for path in sorted((ROOT / "tests" / "c_api").glob("*.c")) if path.name != "job.c"]
    strict = ["-std=c11", "-D_XOPEN_SOURCE=700", "-pedantic", "-Wall", "-Wextra", "-Werror"]
    run("cc", *strict, *sources, *flags(prefix), "-pthread", "-o", tmp_path / "abi")
    assert re.search(r"^\d{2,} tests, 0 failed$", run(tmp_path / "abi"), re.MULTILINE)


@pytest.mark.slow
def test_the_shared_library_has_the_name_of_its_version(shared, tmp_path):
    (library,) = installed(shared, tmp_path / "prefix").glob("**/libtkv.so")
    name = library.readlink().name
    assert re.fullmatch(r"libtkv\.so\.\d+\.\d+", name), "releases of one minor version are compatible"
    assert (library.parent / name).readlink().name == library.resolve().name
    assert re.fullmatch(re.escape(name) + r"\.\d+", library.resolve().name)
    assert f"Library soname: [{name}]" in run("readelf", "-d", library)


def test_the_command_is_installed_with_its_manual_pages(static, tmp_path):
    run("cmake", "--install", static, "--component", "cli", "--prefix", tmp_path)
    assert run(tmp_path / "bin" / "tkv", "--version").startswith("tkv ")
    pages = {path.name for path in (tmp_path / "share" / "man" / "man1").iterdir()}
    assert {"tkv.1", "tkv-launch.1"} <= pages


@pytest.mark.slow
def test_the_shared_library_shows_what_the_headers_promise_and_nothing_else(shared):
    found = symbols(shared / "libtkv.so")
    # Weak functions are those of class bodies; which of them the compiler keeps is its business.
    strong = sorted({name for kind, name in found if kind != "W"})
    assert strong, "the library shows nothing"
    foreign = [name for _, name in found if not re.match(r"(vtable for |typeinfo (name )?for )?tkv::|tkv_", name)]
    assert not foreign, foreign
    header = (ROOT / "include" / "tkv" / "tkv.h").read_text()
    promised = re.findall(r"^TKV_API [^;(]*?(tkv_\w+)\(", header, re.MULTILINE)
    assert sorted(promised) == [name for name in strong if name.startswith("tkv_")]
    text = "".join(f"{name}\n" for name in strong)
    (ROOT / "out").mkdir(exist_ok=True)
    (ROOT / "out" / "exports.txt").write_text(text)
    assert text == EXPORTS.read_text(), "where the change is meant: cp out/exports.txt tests/packaging/exports.txt"


@KINDS
def test_no_library_names_the_folder_that_it_was_built_in(kind, request):
    build = request.getfixturevalue(kind)
    (library,) = [path for path in (build / "libtkv.a", build / "libtkv.so") if path.exists()]
    content = library.read_bytes()
    assert re.search(rb"\bsrc/server/\w+\.cc\b", content), "files are named relative to the tree"
    assert str(ROOT).encode() not in content
