"""Real models that two processes train through the store end where one process ends that trains on the joined batch."""

import pathlib
import re
import signal

import pytest
from jobs import finish

pytestmark = pytest.mark.framework
HERE = pathlib.Path(__file__).resolve().parents[1] / "python"

TORCH = """
sys.path.insert(0, {tests!r})
import torch
torch.set_num_threads(1)
import tensorkv.torch
import test_torch as models

kv = mx.kv.create("dist_sync", server_patience=30)
for make, pair in ((models.mlp, "adam"), (models.convnet, "momentum"), (models.Transformer, "momentum")):
    for who in ("store", "worker"):
        ours, torchs = models.PAIRS[pair]

        def step_of(model):
            optimizer = ours() if who == "store" else torchs(model.parameters())
            prefix = f"{{make.__name__}}.{{who}}."
            if who == "worker":
                kv.set_updater(None)
            opt = mx.torch.KVOptimizer(model.named_parameters(), kv, optimizer, prefix=prefix)

            def step(number, loss):
                opt.zero_grad()
                loss().backward()
                opt.step()

            return step

        found = models.train(make, kv.rank, step_of, models.model_of(make, seed=kv.rank))
        models.close(found, models.alone(make, torchs), 2e-4)
        print(f"worker {{kv.rank}} has trained {{make.__name__}} by the {{who}}", flush=True)
kv.close()
"""

JAX = """
sys.path.insert(0, {tests!r})
import tensorkv.jax
import test_jax as models

kv = mx.kv.create("dist_sync", server_patience=30)
opt = mx.jax.KVOptimizer(models.start(seed=kv.rank), kv, mx.optimizer.SGD(learning_rate=0.1, momentum=0.9))
params = opt.params
for step in range(models.STEPS):
    params = opt.step(models.gradient(params, models.batch_of(step, kv.rank)))
models.close(params, models.alone(0.9))
print(f"worker {{kv.rank}} has trained", flush=True)
kv.close()
"""


def test_pytorch_models_in_two_processes(processes):
    job = processes.launch(TORCH.format(tests=str(HERE)), workers=2, servers=2)
    status, said = finish(job, timeout=100)
    assert status == 0, said
    for model in ("mlp", "convnet", "Transformer"):
        for who in ("store", "worker"):
            assert said.count(f"has trained {model} by the {who}") == 2, said


def test_jax_trees_in_two_processes(processes):
    job = processes.launch(JAX.format(tests=str(HERE)), workers=2, servers=2)
    status, said = finish(job, timeout=100)
    assert status == 0 and said.count("has trained") == 2, said


UNFREEZES = """
import torch, tensorkv.torch
torch.set_num_threads(1)
with mx.kv.create("dist_sync") as kv:
    torch.manual_seed(7)
    model = torch.nn.Sequential(torch.nn.Linear(4, 5), torch.nn.Tanh(), torch.nn.Linear(5, 1))
    model[0].requires_grad_(False)
    sgd = mx.optimizer.SGD(learning_rate=0.1, momentum=0.5)
    if os.environ["HELPER"] == "Trainer":
        trainer = mx.torch.Trainer(model.named_parameters(), sgd, kvstore=kv)
        step = lambda: trainer.step(2)
    else:
        step = mx.torch.KVOptimizer(model.named_parameters(), kv, sgd).step
    for number in range(kv.round("2.weight"), int(os.environ["STEPS"])):
        if number >= 3:
            model[0].requires_grad_(True)
        if kv.rank == int(os.environ["DIES"]) and number == int(os.environ.get("AT", 7)) and not kv.rejoined:
            os.kill(os.getpid(), signal.SIGKILL)
        model.zero_grad()
        x = torch.randn(6, 4, generator=torch.Generator().manual_seed(2 * number + kv.rank))
        (model(x) - x.sum(1, keepdim=True)).pow(2).mean().backward()
        step()
    print("weights", [p.detach().double().sum().item() for p in model.parameters()], flush=True)
"""


def weights_of(processes, helper, *options, dies=-1, steps=10):
    status, said = finish(processes.launch(UNFREEZES, *options, HELPER=helper, DIES=dies, STEPS=steps), timeout=100)
    found = set(re.findall(r"weights (.*)", said))
    assert status == 0 and len(found) == 1, said
    return found


@pytest.mark.timeout(400)  # five jobs, whose workers import PyTorch
@pytest.mark.parametrize("helper", ["KVOptimizer", "Trainer"])
def test_a_layer_that_was_unfrozen_goes_on_from_the_stores_values(processes, tmp_path, helper):
    """A script freezes the layer again before it makes its optimizer, and the first step unfreezes it."""
    wanted = weights_of(processes, helper)
    for rank in (0, 1):
        assert weights_of(processes, helper, "--restart", "1", dies=rank) == wanted
    saves = ("--restore", str(tmp_path), "--snapshot-every", "4")
    weights_of(processes, helper, *saves, steps=6)
    assert weights_of(processes, helper, *saves) == wanted


@pytest.mark.parametrize("helper", ["KVOptimizer", "Trainer"])
def test_under_continue_a_layer_is_unfrozen_where_rank_0_is_dead(processes, helper):
    """Worker 1 makes the keys of the layer in place of rank 0, and trains it."""
    variables = {"HELPER": helper, "DIES": 0, "AT": 2}
    ends = []
    for steps in (3, 6):  # the layer is frozen for three steps
        status, said = finish(
            processes.launch(UNFREEZES, "--on-death", "continue", STEPS=steps, **variables), timeout=100
        )
        (end,) = re.findall(r"weights \[(.*)\]", said)
        assert status == 128 + signal.SIGKILL, said
        ends.append([float(number) for number in end.split(", ")])
    frozen, trained = ends
    assert all(before != after for before, after in zip(frozen, trained, strict=True)), ends


# The gradients do not depend on the parameters: each push adds a power of two that tells its step and rank.
DIES_WITHIN = """
HELPER, STEPS = os.environ["HELPER"], 5
value = lambda step: 2.0 ** step * (1 + 64 * kv.rank)
rests = lambda name, step: (name == "b" and step % 2) or (name == "c" and step < 2) or (name == "d" and step == 3)
with mx.kv.create("dist_sync", server_patience=30) as kv:
    sgd = mx.optimizer.SGD(learning_rate=-1.0)
    if HELPER == "jax":
        import jax, tensorkv.jax
        opt = mx.jax.KVOptimizer({name: np.zeros(3, np.float32) for name in "abcd"}, kv, sgd, average=False)
        params = opt.params
        if kv.rejoined:
            print("goes on with step", opt.steps, flush=True)
        for step in range(opt.steps, STEPS):
            params = opt.step({name: np.full(3, value(step), np.float32) for name in "abcd"})
        ends = {name: float(params[name][0]) for name in "abcd"}
    else:
        import torch, tensorkv.torch
        torch.set_num_threads(1)
        params = {name: torch.nn.Parameter(torch.zeros(3)) for name in "abcd"}
        for name in "abcd":
            params[name].requires_grad_(not rests(name, 0))
        if HELPER == "Trainer":
            opt = mx.torch.Trainer(params, sgd, kvstore=kv)
            make_step = lambda: opt.step(1)
        else:
            opt = mx.torch.KVOptimizer(params, kv, sgd, average=False, overlap=HELPER == "overlap")
            make_step = opt.step
        if kv.rejoined:
            print("goes on with step", opt.steps, flush=True)
        for step in range(opt.steps, STEPS):
            for name in "abcd":
                params[name].requires_grad_(not rests(name, step))
                params[name].grad = None
            sum((p * value(step)).sum() for p in params.values() if p.requires_grad).backward()
            make_step()
        ends = {name: kv.pull(name).asnumpy()[0].item() for name in "abcd"}
    print("ends", ends, {name: kv.round(name) for name in "abcd"}, flush=True)
"""


@pytest.mark.timeout(400)  # jobs whose workers import PyTorch or JAX
@pytest.mark.parametrize("helper", ["overlap", "step", "Trainer", "jax"])
def test_a_worker_that_dies_within_a_step_pushes_what_was_missing(processes, helper):
    def rests(name, step):
        rests = (name == "b" and step % 2) or (name == "c" and step < 2) or (name == "d" and step == 3)
        return rests and helper != "jax"

    trained = {name: [step for step in range(5) if not rests(name, step)] for name in "abcd"}
    values = {name: sum(2.0**step * (1 + 65) for step in trained[name]) for name in "abcd"}
    wanted = f"ends {values} { ({name: len(trained[name]) for name in 'abcd'}) }"
    for rank, count in ((0, 2), (1, 7), (1, 12)):
        options = ("--restart", "1", "--failpoints", f"worker {rank}:sent:PUSH:{count}:kill")
        status, said = finish(processes.launch(DIES_WITHIN, *options, HELPER=helper), timeout=100)
        assert status == 0 and said.count("goes on with step") == 1, said
        assert said.count(wanted) == 2, said


SUMS = """
import torch, tensorkv.torch
kv = mx.kv.create("dist_sync")
model = torch.nn.Linear(2, 1)
try:
    if os.environ["HELPER"] == "Trainer":
        mx.torch.Trainer(model.named_parameters(), "sgd", kvstore=kv, update_on_kvstore=False)
    else:
        mx.torch.KVOptimizer(model.named_parameters(), kv, torch.optim.SGD(model.parameters(), lr=1))
except mx.errors.FailedPreconditionError as error:
    print(error, flush=True)
"""


@pytest.mark.parametrize("helper", ["KVOptimizer", "Trainer"])
def test_snapshots_of_gradients_alone_are_refused_before_the_first_step(processes, tmp_path, helper):
    _, said = finish(processes.launch(SUMS, "--restore", str(tmp_path), "--snapshot-every", "4", HELPER=helper))
    assert (
        said.count("the store saves snapshots by itself, which would have sums of gradients and no parameters") == 2
    ), said
