"""Real models that two processes train through the store end where one process ends that trains on the joined batch."""

import pathlib
import re

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
        if kv.rank == int(os.environ["DIES"]) and number == 7 and not kv.rejoined:
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
