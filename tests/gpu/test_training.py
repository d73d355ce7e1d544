"""Models on a real GPU that train through a store. `./dev gpu check` runs it if there are a GPU and a framework."""

import copy
import io

import numpy as np
import pytest
import tensorkv as mx
import tensorkv.testing

STEPS = 5
STORES = ["local", "device", "dist_sync"]


def store_of(kind):
    return mx.kv.create(kind, **({"bootstrap": "self"} if kind.startswith("dist") else {}))


def model_of(torch, seed=0):
    torch.manual_seed(seed)
    return torch.nn.Sequential(
        torch.nn.Linear(64, 512), torch.nn.Tanh(), torch.nn.Linear(512, 512), torch.nn.Tanh(), torch.nn.Linear(512, 8)
    ).cuda()


def loss_of(torch, model, step, part=None):
    generator = torch.Generator("cuda").manual_seed(step)
    x = torch.randn(128, 64, generator=generator, device="cuda")
    x = x if part is None else x[part::2]
    return ((model(x) - x[:, :8]) ** 2).mean()


def train(torch, model, opt, steps):
    for step in steps:
        opt.zero_grad()
        loss_of(torch, model, step).backward()
        opt.step()


OPTIMIZERS = {
    "sgd": (lambda: mx.optimizer.SGD(learning_rate=0.1, momentum=0.9), lambda torch, p: torch.optim.SGD(p, 0.1, 0.9)),
    "adam": (
        lambda: mx.optimizer.Adam(learning_rate=0.01, epsilon=0),
        lambda torch, p: torch.optim.Adam(p, 0.01, eps=0),
    ),
}


@pytest.mark.parametrize("overlap", [True, False])
@pytest.mark.parametrize("who", ["store", "worker"])
@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("kind", STORES)
def test_a_model_on_a_gpu_trains_as_with_torch_optim(torch, kind, name, who, overlap):
    ours, theirs = OPTIMIZERS[name]
    wanted = model_of(torch)
    train(torch, wanted, theirs(torch, wanted.parameters()), range(STEPS))
    model = model_of(torch)
    with store_of(kind) as kv:
        optimizer = ours() if who == "store" else theirs(torch, model.parameters())
        opt = mx.torch.KVOptimizer(model.named_parameters(), kv, optimizer, overlap=overlap)
        train(torch, model, opt, range(STEPS))
    for parameter, other in zip(model.parameters(), wanted.parameters(), strict=True):
        assert parameter.is_cuda
        torch.testing.assert_close(parameter, other, rtol=1e-3, atol=2e-4)


@pytest.mark.parametrize("overlap", [True, False])
def test_workers_of_a_job_train_on_the_mean_of_their_gradients(torch, overlap):
    wanted = model_of(torch)
    sgd = torch.optim.SGD(wanted.parameters(), 0.1, 0.9)
    for step in range(STEPS):
        sgd.zero_grad()
        ((loss_of(torch, wanted, step, 0) + loss_of(torch, wanted, step, 1)) / 2).backward()
        sgd.step()
    models = [model_of(torch, seed) for seed in (0, 1)]

    def work(kv):
        model = models[kv.rank]
        opt = mx.torch.KVOptimizer(
            model.named_parameters(), kv, mx.optimizer.SGD(learning_rate=0.1, momentum=0.9), overlap=overlap
        )
        for step in range(STEPS):
            opt.zero_grad()
            loss_of(torch, model, step, kv.rank).backward()
            opt.step()
        torch.cuda.synchronize()

    with mx.testing.cluster(workers=2, servers=2, patience=60) as job:
        job.run(work)
    for one, two, other in zip(models[0].parameters(), models[1].parameters(), wanted.parameters(), strict=True):
        assert torch.equal(one, two)
        torch.testing.assert_close(one, other, rtol=1e-3, atol=2e-4)


@pytest.mark.parametrize("kind", STORES)
def test_a_trainer_takes_parameters_on_a_gpu(torch, kind):
    wanted, model = model_of(torch), model_of(torch)
    sgd = torch.optim.SGD(wanted.parameters(), 0.1, 0.9)
    with store_of(kind) as kv:
        trainer = mx.torch.Trainer(
            model.named_parameters(), mx.optimizer.SGD(learning_rate=0.1, momentum=0.9), kvstore=kv
        )
        for step in range(STEPS):
            loss_of(torch, model, step).backward()
            trainer.step(1)
            sgd.zero_grad()
            loss_of(torch, wanted, step).backward()
            sgd.step()
    for parameter, other in zip(model.parameters(), wanted.parameters(), strict=True):
        torch.testing.assert_close(parameter, other, rtol=1e-3, atol=2e-4)


def clamps(torch, model):
    for parameter in model.parameters():
        parameter.data.clamp_(-0.01, 0.01)


def loads(torch, model):
    model.load_state_dict(model_of(torch, seed=7).state_dict())


def replaces(torch, model):
    model[4].bias.data = torch.ones(8, device="cuda")


@pytest.mark.parametrize("write", [clamps, loads, replaces], ids=lambda write: write.__name__)
@pytest.mark.parametrize("kind", STORES)
def test_a_write_counts_with_assign_and_is_refused_without(torch, kind, write):
    momentum = lambda: mx.optimizer.SGD(learning_rate=0.1, momentum=0.9)  # noqa: E731
    wanted, model, other = model_of(torch), model_of(torch), model_of(torch)
    sgd = torch.optim.SGD(wanted.parameters(), 0.1, 0.9)
    train(torch, wanted, sgd, range(3))
    write(torch, wanted)
    train(torch, wanted, sgd, range(3, 6))
    with store_of(kind) as kv:
        opt = mx.torch.KVOptimizer(model.named_parameters(), kv, momentum())
        train(torch, model, opt, range(3))
        write(torch, model)
        opt.assign()
        train(torch, model, opt, range(3, 6))
        for parameter, value in zip(model.parameters(), wanted.parameters(), strict=True):
            torch.testing.assert_close(parameter, value, rtol=1e-3, atol=2e-4)
        opt = mx.torch.KVOptimizer(other.named_parameters(), kv, opt._optimizer, prefix="other.", average=False)
        train(torch, other, opt, range(3))
        write(torch, other)
        with pytest.raises(mx.errors.FailedPreconditionError, match=r"changed since the last step.*call assign\(\)"):
            train(torch, other, opt, range(3, 5))  # a write through `.data` is detected one step late


def test_mixed_precision_skips_what_is_not_finite(torch):
    wanted, model = model_of(torch), model_of(torch)
    results = []
    with mx.kv.create("device") as kv:
        for net in (wanted, model):
            opt = torch.optim.SGD(net.parameters(), 0.1, 0.9)
            reduces = net is model
            if reduces:
                opt = mx.torch.KVOptimizer(net.named_parameters(), kv, opt)
            scaler = torch.amp.GradScaler("cuda", init_scale=2.0**10)
            for step in range(6):
                opt.zero_grad()
                with torch.autocast("cuda", dtype=torch.float16):
                    loss = loss_of(torch, net, step) * (float("inf") if step == 2 else 1.0)
                scaler.scale(loss).backward()
                if reduces:
                    opt.reduce()
                scaler.unscale_(opt)
                torch.nn.utils.clip_grad_norm_(net.parameters(), 0.1)
                scaler.step(opt)
                scaler.update()
            results.append((scaler.get_scale(), [p.detach().clone() for p in net.parameters()]))
    assert results[0][0] == results[1][0] == 2.0**9
    for one, two in zip(results[0][1], results[1][1], strict=True):
        torch.testing.assert_close(one, two, rtol=1e-3, atol=2e-4)


@pytest.mark.parametrize("kind", STORES)
def test_a_checkpoint_of_a_model_on_a_gpu_resumes(torch, kind, tmp_path):
    momentum = lambda: mx.optimizer.SGD(learning_rate=0.1, momentum=0.9)  # noqa: E731
    model = model_of(torch)
    with store_of(kind) as kv:
        opt = mx.torch.KVOptimizer(model.named_parameters(), kv, momentum())
        train(torch, model, opt, range(3))
        file = io.BytesIO()
        torch.save({"model": model.state_dict(), "opt": opt.state_dict()}, file)
        kv.save(tmp_path)
        train(torch, model, opt, range(3, 6))
        wanted = [p.detach().clone() for p in model.parameters()]
        kv.load(tmp_path)
        train(torch, model, opt, range(3, 6))
        for parameter, value in zip(model.parameters(), wanted, strict=True):
            torch.testing.assert_close(parameter, value, rtol=0, atol=1e-6)
    found = torch.load(io.BytesIO(file.getvalue()), weights_only=True)
    other = model_of(torch, seed=3)
    with store_of(kind) as kv:
        opt = mx.torch.KVOptimizer(other.named_parameters(), kv, momentum())
        other.load_state_dict(found["model"])
        opt.load_state_dict(found["opt"])
        train(torch, other, opt, range(3, 6))
        for parameter, value in zip(other.parameters(), wanted, strict=True):
            torch.testing.assert_close(parameter, value, rtol=0, atol=1e-6)


@pytest.mark.parametrize("kind", STORES)
def test_jax_parameters_on_a_gpu_train(jax, kind):
    jnp = jax.numpy
    tree = {"a": jnp.zeros((64, 64)), "b": (jnp.ones(3), jnp.zeros((2, 5)))}
    grads = jax.jit(jax.grad(lambda p: sum(((leaf - 2) ** 2).sum() for leaf in jax.tree_util.tree_leaves(p))))
    with store_of(kind) as kv:
        opt = mx.jax.KVOptimizer(tree, kv, mx.optimizer.SGD(learning_rate=0.1))
        params = opt.params
        for _ in range(40):
            params = opt.step(grads(params))
        for leaf in jax.tree_util.tree_leaves(params):
            np.testing.assert_allclose(np.asarray(leaf), 2, atol=1e-2)
        assert {leaf.device.platform for leaf in jax.tree_util.tree_leaves(params)} == {"gpu"}
        params = opt.assign(copy.copy(tree))
        assert float(params["b"][0][0]) == 1.0
