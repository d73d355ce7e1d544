"""Workers in C, C++, Java and Python train in one job with a server in C; tests of the C interface that need a job."""

import pathlib
import re
import sys

import pytest
from jobs import finish, read_until

ROOT = pathlib.Path(__file__).parents[2]
PROGRAMS = ROOT / "build" / "release" / "tests"
JARS = ROOT / "jvm" / "target" / "repository" / "org" / "tensorkv" / "tensorkv"
DEPENDENCIES = pathlib.Path.home() / ".m2" / "repository"
PYTHON = """
rng = np.random.default_rng(7)
truth = np.array([1, -2, 3, 0.5])
x = rng.uniform(-1, 1, (64, 4))
y = x @ truth
kv = mx.kv.create("dist_sync")
w = mx.nd.zeros((4,))
kv.init("w", w)
kv.set_optimizer(mx.optimizer.SGD(learning_rate=0.5, rescale_grad=1 / kv.num_workers))
for step in range(200):
    grad = 2 * (x @ w.asnumpy().astype(float) - y) @ x / 64
    kv.pushpull("w", grad.astype(np.float32), out=w)
print("worker %d of %d: w = %.4f %.4f %.4f %.4f" % (kv.rank, kv.num_workers, *w.asnumpy()), flush=True)
kv.close()
"""
JAVA = """
import java.util.Map;
import java.util.Random;
import org.tensorkv.*;

final class Worker {
  public static void main(String[] arguments) {
    float[] truth = {1, -2, 3, 0.5f};
    float[][] samples = new float[64][truth.length];
    Random random = new Random(7);
    for (float[] x : samples) {
      for (int i = 0; i < x.length; i++) {
        x[i] = 2 * random.nextFloat() - 1;
      }
    }
    try (KVStore kv = KVStore.create("dist_sync")) {
      NDArray w = NDArray.zeros(Shape.of(truth.length));
      kv.init("w", w);
      kv.setOptimizer(
          Optimizer.create("sgd", Map.of("learning_rate", 0.5, "rescale_grad", 1.0 / kv.numWorkers())));
      for (int step = 0; step < 200; step++) {
        float[] weights = w.toArray();
        float[] grad = new float[truth.length];
        for (float[] x : samples) {
          float error = 0;
          for (int i = 0; i < x.length; i++) {
            error += (weights[i] - truth[i]) * x[i];
          }
          for (int i = 0; i < x.length; i++) {
            grad[i] += 2 * error * x[i] / samples.length;
          }
        }
        kv.pushPull("w", NDArray.array(grad, w.shape()), w);
      }
      float[] found = w.toArray();
      System.out.printf(
          "worker %d of %d: w = %.4f %.4f %.4f %.4f%n",
          kv.rank(), kv.numWorkers(), found[0], found[1], found[2], found[3]);
    }
  }
}
"""
LEARNT = "w = 1.0000 -2.0000 3.0000 0.5000"


def program(name):
    path = PROGRAMS / name
    assert path.exists(), f"{path} is missing: ./dev build makes it"
    return str(path)


def in_java(processes, text):
    """The command that runs a source file with the jars of this tree."""
    jars = [p for p in JARS.glob("*/*.jar") if not p.name.endswith(("-sources.jar", "-javadoc.jar"))]
    assert len(jars) == 2, f"{JARS} has {jars}: ./dev jvm makes the jar and that of the platform"
    (version,) = re.findall(r"<javacpp.version>(.*)</javacpp.version>", (ROOT / "jvm" / "pom.xml").read_text())
    jars.append(DEPENDENCIES / "org" / "bytedeco" / "javacpp" / version / f"javacpp-{version}.jar")
    path = processes.folder / "Worker.java"
    path.write_text(text)
    cache = f"-Dorg.bytedeco.javacpp.cachedir={processes.folder / 'javacpp'}"
    return ["java", "-Duser.language=en", cache, "-cp", ":".join(map(str, jars)), str(path)]


def by_rank(processes, commands):
    """A command for all workers that becomes another one in each rank."""
    text = f"import os, sys\ncommand = {commands!r}[int(os.environ['TKV_RANK'])]\nos.execvp(command[0], command)\n"
    path = processes.folder / "by_rank.py"
    path.write_text(text)
    return [sys.executable, str(path)]


def launch(processes, command, workers, servers=2):
    options = ["launch", "-n", str(workers), "-s", str(servers)]
    return processes.start([sys.executable, "-m", "tensorkv", *options, *command])


def learnt(said, workers):
    """The ranks that say that they have learnt the weights."""
    return sorted(int(rank) for rank in re.findall(rf"worker (\d) of {workers}: {re.escape(LEARNT)}", said))


def test_workers_in_three_languages_train_the_same_weights(processes):
    python = [sys.executable, "-u", processes.script(PYTHON)]
    command = by_rank(processes, [[program("worker_in_c")], [program("worker_in_cpp")], python])
    status, said = finish(launch(processes, command, workers=3))
    assert status == 0, said
    assert learnt(said, 3) == [0, 1, 2], said


@pytest.mark.parametrize("first", ["java", "python"])
def test_workers_in_java_and_python_train_the_same_weights(processes, first):
    commands = [in_java(processes, JAVA), [sys.executable, "-u", processes.script(PYTHON)]]
    command = by_rank(processes, commands if first == "java" else commands[::-1])
    status, said = finish(launch(processes, command, workers=2))
    assert status == 0, said
    assert learnt(said, 2) == [0, 1], said


@pytest.mark.parametrize("name", ["worker_in_c", "worker_in_cpp"])
def test_workers_in_one_language_train(processes, name):
    status, said = finish(launch(processes, [program(name)], workers=2))
    assert status == 0, said
    assert learnt(said, 2) == [0, 1], said


@pytest.mark.parametrize("name", ["worker_in_c", "worker_in_cpp"])
def test_a_worker_without_a_job_says_how_to_start_one(processes, name):
    status, said = finish(processes.start([program(name)]))
    assert status == 1 and "tkv launch" in said, said


def test_a_program_in_c_serves(processes):
    worker = program("worker_in_c")
    head = processes.start([sys.executable, "-u", "-m", "tensorkv", "head", "--workers", "1", "--servers", "1"])
    address = read_until(head, "head listens at").split()[-1]
    job = {"TKV_HEAD": address}
    server = processes.start([worker], TKV_ROLE="server", TKV_RANK=0, **job)
    status, said = finish(processes.start([worker], TKV_ROLE="worker", TKV_RANK=0, **job))
    assert status == 0 and learnt(said, 1) == [0], said
    status, said = finish(server)
    assert status == 0, said


def test_tickets_and_waits_of_the_c_interface_in_a_job(processes):
    status, said = finish(launch(processes, [program("job_in_c")], workers=2))
    assert status == 0, said
    assert said.count("5 tests, 0 failed") == 2, said
