"""Real models that two processes train through the store end where one process ends that trains on the joined batch."""

import pathlib

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
