"""tensorkv.torch: models that train through the store are models that train in one process on the joined batch."""

import contextlib
import doctest
import functools
import threading
import types

import numpy as np
import pytest
import tensorkv as mx
from optimizer_cases import CASES, CLIP, WHOLE, whole_steps, whole_truth

torch = pytest.importorskip("torch")
import tensorkv.torch  # noqa: E402
from tensorkv._frameworks import torch_watch as _torch_watch  # noqa: E402

pytestmark = pytest.mark.framework
STEPS = 50
SEEDING = threading.Lock()  # PyTorch's generator is the process's
WORKERS = 2


def mlp():
    return torch.nn.Sequential(torch.nn.Linear(6, 16), torch.nn.Tanh(), torch.nn.Linear(16, 3))


def convnet():
    return torch.nn.Sequential(
        torch.nn.Conv2d(1, 4, 3, padding=1),
        torch.nn.GroupNorm(2, 4),
        torch.nn.ReLU(),
        torch.nn.Flatten(),
        torch.nn.Linear(4 * 36, 3),
    )


class Transformer(torch.nn.Module):
    """Two layers whose embedding is also the output's weight."""

    def __init__(self):
        super().__init__()
        self.embedding = torch.nn.Embedding(11, 8)
        layer = torch.nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
        self.layers = torch.nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = torch.nn.Linear(8, 11, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, tokens):
        return self.head(self.layers(self.embedding(tokens))).mean(1)


def batch_of(make, step, part=None):
    """Return inputs and labels of a step; of all workers together where `part` is None."""
    generator = torch.Generator().manual_seed(step)
    count = 4 * WORKERS
    if make is Transformer:
        x = torch.randint(0, 11, (count, 5), generator=generator)
        y = x[:, 0]
    else:
        x = torch.randn((count, 6) if make is mlp else (count, 1, 6, 6), generator=generator)
        y = torch.randint(0, 3, (count,), generator=generator)
    chosen = slice(None) if part is None else slice(part * 4, part * 4 + 4)
    return x[chosen], y[chosen]


def model_of(make, seed=0):
    with SEEDING, torch.random.fork_rng():
        torch.manual_seed(seed)
        return make()


def loss_of(model, batch, reduction="mean"):
    x, y = batch
    return torch.nn.functional.cross_entropy(model(x), y, reduction=reduction)


def train(make, part, step_of, model=None, steps=STEPS):
    """Train a model and return its parameters."""
    model = model or model_of(make)
    step = step_of(model)
    for number in range(steps):
        step(number, lambda number=number: loss_of(model, batch_of(make, number, part)))
    return {name: p.detach().clone() for name, p in model.named_parameters()}


def alone(make, optimizer):
    """Train in one process, on the batches of all workers, with PyTorch's optimizer."""

    def step_of(model):
        torchs = optimizer(model.parameters())

        def step(number, loss):
            torchs.zero_grad()
            loss().backward()
            torchs.step()

        return step

    return train(make, None, step_of)


def close(found, wanted, tolerance=2e-5):
    assert found.keys() == wanted.keys()
    for name in wanted:
        torch.testing.assert_close(found[name], wanted[name], rtol=tolerance, atol=tolerance)


def together(function, mode="dist_sync", workers=WORKERS, servers=2, **options):
    with mx.testing.cluster(workers, servers, mode, patience=60, **options) as job:
        return job.run(function)


PAIRS = {
    "sgd": (lambda: mx.optimizer.SGD(learning_rate=0.1), lambda p: torch.optim.SGD(p, lr=0.1)),
    "momentum": (
        lambda: mx.optimizer.SGD(learning_rate=0.05, momentum=0.9, wd=0.01),
        lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, weight_decay=0.01),
    ),
    "adam": (
        lambda: mx.optimizer.Adam(learning_rate=0.01, epsilon=0),
        lambda p: torch.optim.Adam(p, lr=0.01, eps=0),
    ),
    "adagrad": (
        lambda: mx.optimizer.AdaGrad(learning_rate=0.05, eps=1e-14),
        lambda p: torch.optim.Adagrad(p, lr=0.05, eps=1e-7),
    ),
}


@pytest.mark.parametrize("overlap", [True, False])
@pytest.mark.parametrize(
    ("make", "pair"),
    [
        (mlp, "sgd"),
        (mlp, "momentum"),
        (mlp, "adagrad"),
        (convnet, "momentum"),
        (Transformer, "momentum"),
        (mlp, "adam"),
    ],
)
@pytest.mark.parametrize("who", ["store", "worker"])
def test_training_together_is_training_alone(make, pair, who, overlap):
    ours, torchs = PAIRS[pair]

    def work(kv):
        def step_of(model):
            optimizer = ours() if who == "store" else torchs(model.parameters())
            opt = mx.torch.KVOptimizer(model.named_parameters(), kv, optimizer, overlap=overlap)

            def step(number, loss):
                opt.zero_grad()
                loss().backward()
                opt.step()

            return step

        return train(make, kv.rank, step_of, model_of(make, seed=kv.rank))  # rank 0's parameters count

    results = together(work)
    wanted = alone(make, torchs)
    for found in results:
        close(found, wanted, 2e-4 if pair in ("adam", "adagrad") else 2e-5)
    for name in wanted:
        assert torch.equal(results[0][name], results[1][name])


@pytest.mark.parametrize("case", [*WHOLE, "clip"])
@pytest.mark.parametrize("who", ["backward", "step", "trainer"])
def test_a_program_that_needs_a_value_whole_has_the_norm_of_all_workers(who, case):
    if (who, case) == ("trainer", "clip"):
        with pytest.raises(mx.errors.KVError, match="Trainer: optimizer of type Program"):
            mx.torch.Trainer([("w", torch.nn.Parameter(torch.zeros(1)))], mx.Program(CLIP), kvstore="local")
        return
    first, gradients = whole_steps(WORKERS)

    def work(kv):
        model = {name: torch.nn.Parameter(torch.tensor(value)) for name, value in first.items()}
        kind, arguments = CASES.get(case, (None, None))
        ours = getattr(mx.optimizer, kind)(**arguments) if kind else mx.Program(CLIP)
        if who == "trainer":
            trainer = mx.torch.Trainer(model, ours, kvstore=kv)
        else:
            opt = mx.torch.KVOptimizer(model, kv, ours, overlap=who == "backward")
        for workers in gradients:
            grads = workers[kv.rank]
            sum((p * torch.tensor(grads[name])).sum() for name, p in model.items()).backward()
            if who == "trainer":
                trainer.step(WORKERS)
            else:
                opt.step()
                opt.zero_grad()
        return {name: p.detach() for name, p in model.items()}

    results = together(work)
    for name, wanted in whole_truth(case, first, gradients).items():
        np.testing.assert_allclose(results[0][name], wanted, rtol=2e-5, atol=2e-6)
        assert torch.equal(results[0][name], results[1][name])


@pytest.mark.parametrize("who", ["optimizer", "trainer"])
def test_a_program_that_needs_a_value_whole_is_refused_beside_a_key_in_parts(who):
    parameter = torch.nn.Parameter(torch.ones(2))
    with mx.kv.create("dist_sync", bootstrap="self") as kv:
        kv.init("big", np.zeros(600_000, np.float32))
        with pytest.raises(
            mx.errors.FailedPreconditionError, match="'big' lies in 3 parts.*made after set_optimizer are"
        ):
            if who == "optimizer":
                mx.torch.KVOptimizer([("w", parameter)], kv, mx.optimizer.LAMB())
            else:
                mx.torch.Trainer([("w", parameter)], "lamb", kvstore=kv)
        assert kv.keys() == ["big"]
        kv.push("big", np.ones(600_000, np.float32))
        assert kv.pull("big").asnumpy().max() == 1 and parameter.tolist() == [1, 1]


class TestSteps:
    """Actions that a script may take between steps."""

    def run(self, body, workers=1, mode="dist_sync", **options):
        return together(body, mode, workers, 1, **options)

    def test_gradients_add_up_without_sync(self):
        def work(kv):
            model = model_of(mlp)
            opt = mx.torch.KVOptimizer(model.named_parameters(), kv, mx.optimizer.SGD(learning_rate=1))
            with opt.no_sync():
                loss_of(model, batch_of(mlp, 0)).backward()
            loss_of(model, batch_of(mlp, 1)).backward()
            wanted = {n: p.detach() - p.grad for n, p in model.named_parameters()}
            opt.step()
            close(dict(model.named_parameters()), wanted)

        self.run(work)

    def test_a_second_backward_is_refused_before_it_adds(self):
        model = model_of(mlp)
        opt = mx.torch.KVOptimizer(model.named_parameters(), mx.kv.create(), mx.optimizer.SGD())
        loss_of(model, batch_of(mlp, 0)).backward()
        before = [p.grad.clone() for p in model.parameters()]
        with pytest.raises(mx.errors.FailedPreconditionError, match=r"second backward pass before step.*no_sync"):
            loss_of(model, batch_of(mlp, 1)).backward()
        assert all(torch.equal(p.grad, g) for p, g in zip(model.parameters(), before, strict=True))
        with pytest.raises(mx.errors.FailedPreconditionError, match=r"zero_grad\(\) between"):
            opt.zero_grad()
        opt.step()
        opt.zero_grad()

    @pytest.mark.parametrize("change", ["clip", "another", "none"])
    def test_a_pushed_gradient_that_changes_is_an_error(self, change):
        model = model_of(mlp)
        opt = mx.torch.KVOptimizer(model.named_parameters(), mx.kv.create(), mx.optimizer.SGD())
        loss_of(model, batch_of(mlp, 0)).backward()
        if change == "clip":
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1e-3)
        else:
            first = next(model.parameters())
            first.grad = None if change == "none" else first.grad.clone()
        with pytest.raises(mx.errors.FailedPreconditionError, match=r"has been changed .* overlap=False"):
            opt.step()

    @pytest.mark.parametrize("who", ["store", "worker"])
    def test_clipped_gradients_count_without_overlap(self, who):
        model = model_of(mlp)
        ours = mx.optimizer.SGD(learning_rate=1) if who == "store" else torch.optim.SGD(model.parameters(), lr=1)
        opt = mx.torch.KVOptimizer(model.named_parameters(), mx.kv.create(), ours, overlap=False)
        loss_of(model, batch_of(mlp, 0)).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1e-3)
        wanted = {n: p.detach() - p.grad for n, p in model.named_parameters()}
        opt.step()
        close(dict(model.named_parameters()), wanted, 1e-6)

    @pytest.mark.parametrize("overlap", [True, False])
    @pytest.mark.parametrize("who", ["store", "worker"])
    def test_a_gradient_that_only_another_worker_has_counts(self, who, overlap):
        def work(kv):
            w, v = (torch.nn.Parameter(torch.ones(3)) for _ in range(2))
            optimizer = mx.optimizer.SGD(learning_rate=1) if who == "store" else torch.optim.SGD([w, v], lr=1)
            opt = mx.torch.KVOptimizer([("w", w), ("v", v)], kv, optimizer, overlap=overlap, average=False)
            (w.sum() if kv.rank == 0 else (w + v).sum()).backward()
            opt.step()
            return w.tolist(), v.tolist()

        assert together(work) == [([-1.0] * 3, [0.0] * 3)] * 2

    def test_frozen_parameters_take_no_part(self):
        def work(kv):
            model = model_of(mlp)
            model[0].weight.requires_grad_(False)
            opt = mx.torch.KVOptimizer(model.named_parameters(), kv, mx.optimizer.SGD(learning_rate=0.1, wd=0.5))
            assert "0.weight" not in kv
            loss_of(model, batch_of(mlp, 0)).backward()
            opt.step()
            opt.zero_grad()
            model[0].bias.requires_grad_(False)  # freezes it from now on
            before = model[0].bias.detach().clone()
            loss_of(model, batch_of(mlp, 1)).backward()
            opt.step()
            assert torch.equal(model[0].bias, before)
            assert kv.round("0.bias") == 1 and kv.round("2.bias") == 2

        self.run(work, workers=2)

    def test_half_precision_parameters_have_a_master(self):
        def work(kv):
            w = torch.nn.Parameter(torch.ones(8, dtype=torch.bfloat16))
            optimizer = mx.optimizer.SGD(learning_rate=1e-3, multi_precision=True)
            opt = mx.torch.KVOptimizer([("w", w)], kv, optimizer)
            for _ in range(100):
                opt.zero_grad()
                w.sum().backward()
                opt.step()
            return w.detach().float().tolist()

        (found,) = self.run(work)
        np.testing.assert_allclose(found, 0.9, atol=0.004)  # without one, 1 - 1e-3 is 1 in bfloat16

    def test_strided_parameters(self):
        model = model_of(convnet).to(memory_format=torch.channels_last)
        opt = mx.torch.KVOptimizer(model.named_parameters(), mx.kv.create(), mx.optimizer.SGD(learning_rate=1))
        loss_of(model, batch_of(convnet, 0)).backward()
        wanted = {n: p.detach() - p.grad for n, p in model.named_parameters()}
        opt.step()
        close(dict(model.named_parameters()), wanted, 1e-6)

    def test_a_closure_computes_the_gradients(self):
        model = model_of(mlp)
        opt = mx.torch.KVOptimizer(model.named_parameters(), mx.kv.create(), mx.optimizer.SGD(learning_rate=0.1))

        def closure():
            opt.zero_grad()
            loss = loss_of(model, batch_of(mlp, 0))
            loss.backward()
            return loss

        losses = [opt.step(closure).item() for _ in range(20)]
        assert losses[-1] < losses[0]

    @pytest.mark.parametrize("overlap", [True, False])
    @pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit, MemoryError])
    def test_an_interrupted_closure_leaves_the_step_to_be_repeated(self, kind, overlap):
        w = torch.nn.Parameter(torch.ones(3))
        kv, error = mx.kv.create(), kind()
        opt = mx.torch.KVOptimizer([("w", w)], kv, mx.optimizer.SGD(learning_rate=1), overlap=overlap)

        def closure(raises):
            if raises:
                raise error
            w.sum().backward()
            return "the loss"

        with pytest.raises(kind) as caught:
            opt.step(lambda: closure(True))
        assert caught.value is error and kv.round("w") == 0 and w.tolist() == [1.0] * 3
        assert opt.step(lambda: closure(False)) == "the loss" and w.tolist() == [0.0] * 3

    def test_autograd_sees_that_a_step_has_changed_the_parameters(self):
        w = torch.nn.Parameter(torch.ones(3))
        opt = mx.torch.KVOptimizer([("w", w)], mx.kv.create(), mx.optimizer.SGD())
        loss = (w * w).sum()
        loss.backward(retain_graph=True)
        opt.step()
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            loss.backward()

    def test_async_pushes_are_updates_of_their_own(self):
        def work(kv):
            w = torch.nn.Parameter(torch.zeros(3))
            opt = mx.torch.KVOptimizer([("w", w)], kv, mx.optimizer.SGD(learning_rate=1))
            kv.barrier()
            w.sum().backward()
            opt.step()
            kv.barrier()
            return kv.pull("w", like=w.detach()).tolist()

        assert self.run(work, workers=2, mode="dist_async") == [[-2.0] * 3] * 2

    def test_a_store_outlives_its_optimizer_and_hooks_do_nothing(self):
        w = torch.nn.Parameter(torch.zeros(3))
        kv = mx.kv.create()
        opt = mx.torch.KVOptimizer([("w", w)], kv, mx.optimizer.SGD())
        del opt
        w.sum().backward()
        w.sum().backward()
        assert kv.round("w") == 0


@pytest.mark.parametrize(
    "make", [lambda params: mx.optimizer.SGD(learning_rate=1), lambda params: torch.optim.SGD(params, lr=1)]
)
def test_a_step_whose_gradient_is_refused_does_not_count(make):
    embedding = torch.nn.Embedding(3, 1, sparse=True)
    kv = mx.kv.create()
    opt = mx.torch.KVOptimizer(embedding.named_parameters(), kv, make(embedding.parameters()), overlap=False)
    embedding(torch.tensor([1])).sum().backward()
    with pytest.raises(mx.errors.UnimplementedError):
        opt.step()
    assert opt.steps == 0 and kv.round("weight") == 0
    with torch.no_grad():
        embedding.weight.fill_(5)
    embedding.weight.grad = torch.ones(3, 1)
    if isinstance(make([embedding.weight]), torch.optim.Optimizer):
        opt.step()
        assert embedding.weight.flatten().tolist() == [4, 4, 4]
    else:
        with pytest.raises(mx.errors.FailedPreconditionError, match="assign"):  # the write is not lost
            opt.step()
        opt.assign()
        opt.step()
        assert embedding.weight.flatten().tolist() == [4, 4, 4] and opt.steps == 1


@pytest.mark.parametrize("overlap", [True, False])
@pytest.mark.parametrize(
    "make", [lambda params: mx.optimizer.SGD(learning_rate=1), lambda params: torch.optim.SGD(params, lr=1)]
)
def test_a_gradient_that_a_failed_step_has_pushed_is_not_pushed_again(make, overlap, monkeypatch):
    model = torch.nn.Linear(1, 1, bias=False)
    kv = mx.kv.create()
    torch.nn.init.constant_(model.weight, 8)
    opt = mx.torch.KVOptimizer(model.named_parameters(), kv, make(model.parameters()), overlap=overlap)

    def backward():
        model(torch.ones(1, 1)).sum().backward()

    def late(call, *args, **kwargs):
        """Fail after the call has been made: what it pushed counts."""
        call(*args, **kwargs)
        raise mx.errors.DeadlineExceededError("planted")

    backward()
    with monkeypatch.context() as patch, pytest.raises(mx.errors.DeadlineExceededError):
        if overlap and opt._local:
            opt._pushed[model.weight] = types.SimpleNamespace(
                wait=functools.partial(late, opt._pushed[model.weight].wait)
            )
        else:
            name = "pull" if overlap else "pushpull"
            patch.setattr(kv, name, functools.partial(late, getattr(kv, name)))
        opt.step()
    assert kv.round("weight") == 1
    with pytest.raises(mx.errors.FailedPreconditionError, match="'weight' had been pushed.*zero_grad"):
        opt.step()
    with pytest.raises(mx.errors.FailedPreconditionError, match="'weight' had been pushed.*zero_grad"):
        backward()
    with pytest.raises(mx.errors.FailedPreconditionError, match="'weight' had been pushed.*zero_grad"), opt.no_sync():
        backward()
    assert kv.round("weight") == 1
    before = model.weight.item() if opt._local else kv.pull("weight").item()
    opt.zero_grad()
    backward()
    opt.step()
    assert kv.round("weight") == 2 and model.weight.item() == before - 1


class TestRates:
    """Param groups and PyTorch's schedulers."""

    def test_groups_and_schedulers_count(self):
        def run(make_optimizer):
            model = model_of(mlp)
            groups = [
                {"params": list(model[0].parameters()), "lr": 0.5},
                {"params": list(model[2].parameters()), "weight_decay": 0.1},
            ]
            opt = make_optimizer(groups)
            schedule = torch.optim.lr_scheduler.StepLR(opt, 3, 0.5)
            for number in range(10):
                opt.zero_grad()
                loss_of(model, batch_of(mlp, number)).backward()
                opt.step()
                schedule.step()
            return dict(model.named_parameters())

        wanted = run(lambda groups: torch.optim.SGD(groups, lr=0.1))

        def work(kv):
            return run(lambda groups: mx.torch.KVOptimizer(groups, kv, mx.optimizer.SGD(learning_rate=0.1)))

        close(together(work, workers=1)[0], wanted)
        close(work(mx.kv.create()), wanted)

    def test_a_rate_of_zero_stops_and_goes_on(self):
        w, v = (torch.nn.Parameter(torch.zeros(2)) for _ in range(2))
        opt = mx.torch.KVOptimizer(
            [{"params": [("w", w)]}, {"params": [("v", v)], "lr": 0.0}],
            mx.kv.create(),
            mx.optimizer.SGD(learning_rate=1),
        )
        for rates in ((1.0, 0.0), (0.0, 0.0), (0.0, 2.0)):
            for group, rate in zip(opt.param_groups, rates, strict=True):
                group["lr"] = rate
            opt.zero_grad()
            (w + v).sum().backward()
            opt.step()
        assert w.tolist() == [-1, -1] and v.tolist() == [-2, -2]

    @pytest.mark.parametrize("name", ["sgd", "adam"])
    def test_the_first_rate_is_the_base_of_the_schedule(self, name):
        schedule = lambda: mx.lr_scheduler.FactorScheduler(step=2, factor=0.5, base_lr=0.25)  # noqa: E731
        w = torch.nn.Parameter(torch.ones(3))
        opt = mx.torch.KVOptimizer([("w", w)], mx.kv.create(), mx.optimizer.create(name, lr_scheduler=schedule()))
        trainer = mx.torch.Trainer([("w", w)], name, {"lr_scheduler": schedule()})
        assert (opt.param_groups[0]["lr"], trainer.learning_rate) == (0.25, 0.25)

    def test_a_schedule_of_the_optimizer_decides(self):
        w = torch.nn.Parameter(torch.zeros(2))
        schedule = mx.lr_scheduler.FactorScheduler(step=1, factor=0.5, base_lr=1)
        opt = mx.torch.KVOptimizer([("w", w)], mx.kv.create(), mx.optimizer.SGD(lr_scheduler=schedule))
        found = []
        for _ in range(3):
            opt.zero_grad()
            w.sum().backward()
            opt.step()
            found.append(w[0].item())
        assert found == [-1, -1.5, -1.75]
        late = torch.nn.Parameter(torch.zeros(1))
        opt.add_param_group({"params": [("late", late)], "weight_decay": 0.5})  # the schedule has gone on meanwhile
        opt.zero_grad()
        (w.sum() + late.sum()).backward()
        opt.step()
        assert w[0].item() == -1.875 and late.item() == -1
        opt.param_groups[0]["lr"] = 7
        with pytest.raises(mx.errors.InvalidArgumentError, match="lr_scheduler, which decides"):
            w.sum().backward()

    def test_a_rate_that_changes_too_late_is_an_error(self):
        w = torch.nn.Parameter(torch.zeros(2))
        opt = mx.torch.KVOptimizer([("w", w)], mx.kv.create(), mx.optimizer.SGD(learning_rate=1))
        w.sum().backward()
        opt.param_groups[0]["lr"] = 2
        with pytest.raises(mx.errors.FailedPreconditionError, match="lr or weight_decay of a group has been changed"):
            opt.step()

    def test_state_dict_keeps_the_groups(self):
        model = model_of(mlp)
        opt = mx.torch.KVOptimizer(model.named_parameters(), mx.kv.create(), mx.optimizer.SGD(learning_rate=0.5))
        saved = opt.state_dict()
        opt.param_groups[0]["lr"] = 0.1
        opt.load_state_dict(saved)
        assert opt.param_groups[0]["lr"] == 0.5
        loss_of(model, batch_of(mlp, 0)).backward()
        wanted = {n: p.detach() - 0.5 * p.grad for n, p in model.named_parameters()}
        opt.step()
        close(dict(model.named_parameters()), wanted, 1e-6)

    @pytest.mark.parametrize("who", ["mx", "torch"])
    def test_a_schedule_goes_on_behind_a_load(self, who):
        """Under a schedule of the optimizer, `lr` of a group is the first rate before the load and behind it."""

        def start(value):
            w = torch.nn.Parameter(torch.full((1,), value))
            schedule = mx.lr_scheduler.FactorScheduler(step=2, factor=0.5, base_lr=1)
            sgd = mx.optimizer.SGD(lr_scheduler=schedule) if who == "mx" else mx.optimizer.SGD(learning_rate=1)
            opt = mx.torch.KVOptimizer([("w", w)], mx.kv.create(), sgd)
            return w, sgd, opt, torch.optim.lr_scheduler.StepLR(opt, 2, 0.5) if who == "torch" else None

        def go(w, sgd, opt, schedule):
            moves = []
            for _ in range(3):
                before = w.item()
                opt.zero_grad()
                w.sum().backward()
                opt.step()
                if schedule is not None:
                    schedule.step()
                moves.append(before - w.item())
            return moves, opt.param_groups[0]["lr"], sgd.learning_rate, sgd.num_update

        first = start(0.0)
        moves, rate, _, _ = go(*first)
        assert moves == [1, 1, 0.5] and rate == (1 if who == "mx" else 0.5)
        later = start(first[0].item())
        later[2].load_state_dict(first[2].state_dict())
        assert later[2].param_groups[0]["lr"] == rate
        if who == "torch":
            later[3].load_state_dict(first[3].state_dict())
        else:
            assert later[1].learning_rate == first[1].learning_rate and later[1].num_update == 3
        wanted = go(*first)
        assert wanted[0] == [0.5, 0.25, 0.25] and go(*later)[:3] == wanted[:3]

    def test_what_a_script_sets_in_the_optimizer_stays_when_groups_change(self):
        w, v, late = (torch.nn.Parameter(torch.zeros(1), requires_grad=name != "late") for name in ("w", "v", "late"))
        sgd = mx.optimizer.SGD(learning_rate=1)
        groups = [{"params": [("w", w), ("late", late)]}, {"params": [("v", v)], "lr": 0.5}]
        opt = mx.torch.KVOptimizer(groups, mx.kv.create(), sgd)

        def moves():
            before = [p.item() for p in (w, v, late)]
            (w + v + late).sum().backward()
            opt.step()
            opt.zero_grad()
            return [b - p.item() for b, p in zip(before, (w, v, late), strict=True)]

        assert moves() == [1, 0.5, 0]
        sgd.set_lr_mult({"w": 0})
        assert moves() == [0, 0.5, 0]  # and the group's factor of v stays
        sgd.set_learning_rate(4)
        assert moves() == [0, 2, 0]
        late.requires_grad_()
        assert moves() == [0, 2, 4]
        opt.param_groups[1]["lr"] = 0.25
        assert moves() == [0, 1, 4]
        opt.param_groups[0]["lr"] = 2
        assert moves() == [0, 0.25, 2]
        sgd.set_lr_mult({})
        assert moves() == [2, 0.25, 2]

    def test_rates_that_a_schedule_forbids_make_no_key(self):
        kv = mx.kv.create()
        schedule = mx.lr_scheduler.FactorScheduler(step=5, base_lr=0.1)
        with pytest.raises(mx.errors.InvalidArgumentError, match="lr_scheduler, which decides"):
            mx.torch.KVOptimizer(
                [{"params": [("w", torch.nn.Parameter(torch.zeros(1)))], "lr": 0.5}],
                kv,
                mx.optimizer.SGD(lr_scheduler=schedule),
            )
        assert kv.keys() == []

    def test_a_scheduler_counts_when_the_torch_optimizer_itself_has_loaded(self):
        w = torch.nn.Parameter(torch.zeros(1))
        sgd = torch.optim.SGD([w], lr=1)
        opt = mx.torch.KVOptimizer([("w", w)], mx.kv.create(), sgd)
        schedule = torch.optim.lr_scheduler.StepLR(opt, 1, gamma=0.5)
        sgd.load_state_dict(sgd.state_dict())
        w.sum().backward()
        opt.step()
        schedule.step()
        opt.step()
        assert w.item() == -1.5 and opt.param_groups is sgd.param_groups

    def test_a_parameter_whose_key_has_gone_is_no_missing_snapshot(self, tmp_path):
        model = torch.nn.Linear(2, 1)
        opt = mx.torch.KVOptimizer(model.named_parameters(), kv := mx.kv.create(), mx.optimizer.SGD(learning_rate=1))
        kv.delete("bias")
        kv.save(tmp_path / "saved")
        with pytest.raises(mx.errors.KeyNotFoundError, match="'bias'") as caught:
            kv.load(tmp_path / "saved")
        assert not isinstance(caught.value, mx.errors.SnapshotNotFoundError) and opt.steps == 0

    def test_a_load_that_fails_changes_nothing(self):
        model = torch.nn.Linear(2, 1)
        sgd = mx.optimizer.SGD(learning_rate=1, momentum=0.5)
        opt = mx.torch.KVOptimizer(model.named_parameters(), kv := mx.kv.create(), sgd)
        saved = opt.state_dict()
        saved["param_groups"][0]["lr"] = 7
        model(torch.ones(2)).sum().backward()
        opt.step()
        before = opt.state_dict()
        model.double()
        with pytest.raises(mx.errors.InvalidArgumentError, match="float64"):
            opt.load_state_dict(saved)
        assert opt.param_groups[0]["lr"] == 1
        assert torch.equal(opt.state_dict()["store"], before["store"]) and kv.round("weight") == 1

    def test_a_group_that_comes_later(self):
        w, v = (torch.nn.Parameter(torch.zeros(2)) for _ in range(2))
        opt = mx.torch.KVOptimizer([("w", w)], mx.kv.create(), mx.optimizer.SGD(learning_rate=1))
        opt.add_param_group({"params": [("v", v)], "lr": 0.5})
        (w + v).sum().backward()
        opt.step()
        assert w.tolist() == [-1, -1] and v.tolist() == [-0.5, -0.5]
        with pytest.raises(mx.errors.InvalidArgumentError, match="name 'w'"):
            opt.add_param_group({"params": [("w", torch.nn.Parameter(torch.zeros(1)))]})
        assert len(opt.param_groups) == 2


W = torch.nn.Parameter(torch.zeros(2))
BAD = {
    "no optimizer": (
        lambda: mx.torch.KVOptimizer([W], mx.kv.create()),
        mx.errors.FailedPreconditionError,
        "assigns what",
    ),
    "a name": (lambda: mx.torch.KVOptimizer([W], mx.kv.create(), "sgd"), mx.errors.InvalidArgumentError, "type str"),
    "a model": (
        lambda: mx.torch.KVOptimizer(mlp(), mx.kv.create(), mx.optimizer.SGD()),
        mx.errors.InvalidArgumentError,
        r"model.named_parameters\(\)",
    ),
    "nothing": (lambda: mx.torch.KVOptimizer([], mx.kv.create(), mx.optimizer.SGD()), Exception, "empty|no parameter"),
    "no tensor": (
        lambda: mx.torch.KVOptimizer([("w", 3)], mx.kv.create(), mx.optimizer.SGD()),
        mx.errors.InvalidArgumentError,
        "'w' has type int",
    ),
    "an option": (
        lambda: mx.torch.KVOptimizer([{"params": [W], "momentum": 0.9}], mx.kv.create(), mx.optimizer.SGD()),
        mx.errors.InvalidArgumentError,
        "'momentum'.*lr, weight_decay",
    ),
    "other parameters": (
        lambda: mx.torch.KVOptimizer([W], mx.kv.create(), torch.optim.SGD(mlp().parameters(), lr=1)),
        mx.errors.InvalidArgumentError,
        "the same are needed",
    ),
    "on no CPU": (
        lambda: mx.torch.KVOptimizer(
            [torch.nn.Parameter(torch.zeros(2, device="meta"))], mx.kv.create(), mx.optimizer.SGD()
        ),
        mx.errors.UnimplementedError,
        "on meta",
    ),
}


def test_an_option_of_a_group_that_the_stores_optimizer_has_itself_is_refused_when_it_is_set():
    def stepped(change):
        weight = torch.nn.Parameter(torch.zeros(1))
        sgd = mx.optimizer.SGD(learning_rate=0.1, momentum=0.9)
        opt = mx.torch.KVOptimizer([("w", weight)], mx.kv.create(), sgd)
        for step in range(3):
            if step == 2:
                change(opt.param_groups[0], sgd)
            weight.sum().backward()
            opt.step()
            opt.zero_grad()
        return weight.item()

    with pytest.raises(
        mx.errors.InvalidArgumentError, match=r"'momentum' of a group has been set.* change 'momentum' of"
    ):
        stepped(lambda group, sgd: group.update(momentum=0.5))
    assert stepped(lambda group, sgd: setattr(sgd, "momentum", 0.5)) == pytest.approx(-0.1 - 0.19 - 0.195)


@pytest.mark.parametrize("what", BAD)
def test_what_is_wrong_is_said(what):
    call, error, text = BAD[what]
    with pytest.raises(error, match=text):
        call()


def on_meta(*shape, dtype=torch.float32):
    return torch.empty(shape, dtype=dtype, device="meta")


WITHOUT_MEMORY = {
    "values": lambda kv: kv.push_rows("t", [0, 1], on_meta(2, 2)),
    "ids": lambda kv: kv.push_rows("t", on_meta(2, dtype=torch.int64), np.ones((2, 2), np.float32)),
    "an output": lambda kv: kv.pull_rows("t", [0, 1], out=on_meta(2, 2)),
    "a dense value": lambda kv: kv.push("d", on_meta(2, 2)),
    "a sparse value": lambda kv: kv.init(
        "s", torch.sparse_coo_tensor(on_meta(1, 2, dtype=torch.int64), on_meta(2, 2), (5, 2))
    ),
}


@pytest.mark.parametrize("what", WITHOUT_MEMORY)
def test_tensors_without_memory_are_refused_in_words(what):
    kv = mx.kv.create()
    kv.init("d", torch.zeros(2, 2))
    kv.init_table("t", 2)
    with pytest.raises(
        mx.errors.InvalidArgumentError, match=r"^\w+ '\w': .*on the device meta, which keeps no elements.*$"
    ):
        WITHOUT_MEMORY[what](kv)


def test_where_dense_tensors_are_needed_sparse_ones_say_where_they_go():
    kv = mx.kv.create()
    kv.init_table("t", 2)
    sparse = torch.sparse_coo_tensor(torch.tensor([[0, 1]]), torch.ones(2, 2), (2, 2))
    with pytest.raises(mx.errors.InvalidArgumentError, match=r"push_rows 't': .*row-sparse.*push\(key, value\)"):
        kv.push_rows("t", [0, 1], sparse)
    with pytest.raises(mx.errors.InvalidArgumentError, match=r"ids: .*layout is torch\.sparse_coo; to_dense\(\)"):
        kv.push_rows("t", sparse, np.ones((2, 2), np.float32))
    with pytest.raises(mx.errors.InvalidArgumentError, match=r"push 't': dtype float64.*values\.to\(torch\.float32\)"):
        kv.push("t", sparse.double())
    with pytest.raises(mx.errors.InvalidArgumentError, match="PyTorch has fewer"):
        mx.torch.sparse_tensor(kv.row_sparse_pull("t", row_ids=[0]))


def test_two_models_share_a_store_by_prefix():
    kv = mx.kv.create()
    opts = [
        mx.torch.KVOptimizer(model_of(mlp).named_parameters(), kv, torch_optimizer, prefix=prefix)
        for prefix, torch_optimizer in (("g.", mx.optimizer.SGD()), ("d.", None))
    ]
    assert len(opts) == 2 and "g.0.weight" in kv and "d.0.weight" in kv
    with pytest.raises(mx.errors.AlreadyExistsError, match=r"g\.0\.weight"):
        mx.torch.KVOptimizer(model_of(mlp).named_parameters(), kv, prefix="g.")


def test_sparse_gradients_are_refused_by_name():
    table = torch.nn.Embedding(5, 2, sparse=True)
    mx.torch.KVOptimizer(table.named_parameters(), mx.kv.create(), mx.optimizer.SGD())
    opt = mx.torch.KVOptimizer(table.named_parameters(), mx.kv.create(), mx.optimizer.SGD(), overlap=False)
    table(torch.tensor([1])).sum().backward()
    with pytest.raises(mx.errors.UnimplementedError, match="'weight' is sparse"):
        opt.step()


def test_what_fails_half_way_leaves_store_and_optimizer_as_they_were():
    def work(kv):
        kv.init("w", mx.nd.zeros((1,)))
        optimizer = mx.optimizer.SGD(learning_rate=1)
        params = [("v", torch.nn.Parameter(torch.zeros(1))), ("w", torch.nn.Parameter(torch.zeros(1)))]
        for trainer in (
            mx.torch.KVOptimizer,
            lambda params, kv, optimizer: mx.torch.Trainer(params, optimizer, kvstore=kv),
        ):
            with pytest.raises(mx.errors.AlreadyExistsError, match="'w'"):
                trainer(params, kv, optimizer)
            assert optimizer.rescale_grad == 1
        kv.barrier()
        kv.push("w", mx.nd.ones((1,)))
        assert kv.pull("w").asnumpy() == WORKERS, "assigned"
        opt = mx.torch.KVOptimizer([("u", params[0][1])], kv, optimizer)
        params[0][1].sum().backward()
        opt.step()
        assert params[0][1].item() == -1, "the mean counts"

    together(work)


@pytest.mark.parametrize(
    "make",
    [
        lambda params: mx.torch.KVOptimizer(params, mx.kv.create(), mx.optimizer.SGD()),
        lambda params: mx.torch.Trainer(params, "sgd"),
    ],
)
def test_a_parameter_with_two_names_is_refused(make):
    """Tied weights, of which each name would be a key and each step two updates."""
    one = torch.nn.Parameter(torch.ones(2))
    with pytest.raises(mx.errors.InvalidArgumentError, match="'decoder' and 'encoder' are the same parameter"):
        make([("decoder", one), ("encoder", one)])
    frozen = torch.nn.Parameter(torch.ones(2), requires_grad=False)
    with pytest.raises(mx.errors.InvalidArgumentError, match="'a' and 'b' are the same parameter"):
        make([("a", frozen), ("w", one), ("b", frozen)])
    with pytest.raises(mx.errors.InvalidArgumentError, match="two parameters have the name 'w'"):
        make([("w", one), ("w", torch.nn.Parameter(torch.ones(2)))])


def test_another_optimizer_of_one_store_is_refused():
    kv = mx.kv.create()
    first = mx.optimizer.SGD()
    mx.torch.KVOptimizer([("a", W)], kv, first)
    for other in (mx.optimizer.Adam(), mx.optimizer.SGD()):
        for call in (
            lambda other=other: mx.torch.KVOptimizer([("b", W)], kv, other),
            lambda other=other: mx.torch.Trainer([("b", W)], other, kvstore=kv),
        ):
            with pytest.raises(mx.errors.FailedPreconditionError, match="the store has an updater.*optimizer=None"):
                call()
    assert "b" not in kv
    mx.torch.KVOptimizer([("b", W)], kv)
    mx.torch.KVOptimizer([("c", W)], kv, first)  # the very one
    kv.set_updater(None)
    mx.torch.KVOptimizer([("d", W)], kv, mx.optimizer.Adam())


def test_local_optimizers_need_sums():
    def work(kv):
        for call in (
            lambda: mx.torch.KVOptimizer([("w", W)], kv, torch.optim.SGD([W], lr=1)),
            lambda: mx.torch.Trainer([("w", W)], "sgd", kvstore=kv, update_on_kvstore=False),
        ):
            with pytest.raises(mx.errors.FailedPreconditionError, match="dist_async has no sums of all workers"):
                call()
        assert "w" not in kv

    together(work, "dist_async")


def test_an_optimizer_belongs_to_one():
    def work(kv):
        optimizer = mx.optimizer.SGD()
        mx.torch.KVOptimizer([("w", torch.nn.Parameter(torch.zeros(1)))], kv, optimizer)
        assert optimizer.rescale_grad == 1 / 2
        with pytest.raises(mx.errors.FailedPreconditionError, match="another KVOptimizer"):
            mx.torch.KVOptimizer([("v", torch.nn.Parameter(torch.zeros(1)))], kv, optimizer)

    together(work)


class TestTrainer:
    """MXNet's names."""

    @pytest.mark.parametrize("update_on_kvstore", [True, False])
    @pytest.mark.parametrize("pair", ["momentum", "adam"])
    def test_a_trainer_trains_as_torch_does(self, pair, update_on_kvstore):
        _, torchs = PAIRS[pair]
        name, params = {
            "momentum": ("sgd", {"learning_rate": 0.05, "momentum": 0.9, "wd": 0.01}),
            "adam": ("adam", {"learning_rate": 0.01, "epsilon": 0}),
        }[pair]

        def work(kv):
            def step_of(model):
                trainer = mx.torch.Trainer(
                    model.named_parameters(), name, params, kvstore=kv, update_on_kvstore=update_on_kvstore
                )

                def step(number, loss):
                    (loss() * 4).backward()  # a sum over the samples of this worker
                    trainer.step(4 * WORKERS)

                return step

            return train(mlp, kv.rank, step_of, model_of(mlp, seed=kv.rank))

        for found in together(work):
            close(found, alone(mlp, torchs), 2e-4)

    @pytest.mark.parametrize("update_on_kvstore", [True, False])
    def test_states_come_back(self, tmp_path, update_on_kvstore):
        def start(model):
            return mx.torch.Trainer(
                model.named_parameters(), "adam", {"learning_rate": 0.1}, update_on_kvstore=update_on_kvstore
            )

        def go(model, trainer, numbers):
            for number in numbers:
                loss_of(model, batch_of(mlp, number)).backward()
                trainer.step(1)

        model = model_of(mlp)
        trainer = start(model)
        go(model, trainer, range(5))
        trainer.save_states(tmp_path / "states")
        later = model_of(mlp, seed=5)
        later.load_state_dict(model.state_dict())
        go(model, trainer, range(5, 8))
        again = start(later)
        again.load_states(tmp_path / "states")
        go(later, again, range(5, 8))
        for name, wanted in model.named_parameters():
            assert torch.equal(dict(later.named_parameters())[name], wanted)
        if not update_on_kvstore:
            other = mx.torch.Trainer([W], "adam", update_on_kvstore=False)
            with pytest.raises(mx.errors.InvalidArgumentError, match="others"):
                other.load_states(tmp_path / "states")
            double = start(model_of(mlp).double())
            with pytest.raises(
                mx.errors.InvalidArgumentError, match=r"is float32 of shape .*, float64 of .* is needed"
            ):
                double.load_states(tmp_path / "states")

    @pytest.mark.parametrize("way", ["states", "dict"])
    @pytest.mark.parametrize("update_on_kvstore", [True, False])
    def test_the_rate_of_a_schedule_goes_on_behind_a_load(self, tmp_path, update_on_kvstore, way):
        def start(value):
            w = torch.nn.Parameter(torch.full((1,), value))
            schedule = mx.lr_scheduler.FactorScheduler(step=2, factor=0.5, base_lr=1)
            params = {"lr_scheduler": schedule, "momentum": 0.5}
            return w, mx.torch.Trainer([("w", w)], "sgd", params, update_on_kvstore=update_on_kvstore)

        def go(w, trainer):
            found = []
            for _ in range(3):
                w.sum().backward()
                trainer.step(1)
                found.append((w.item(), trainer.learning_rate))
            return found

        w, trainer = start(0.0)
        assert [rate for _, rate in go(w, trainer)] == [1, 1, 0.5]
        trainer.save_states(tmp_path / "states")
        later, again = start(w.item())
        if way == "states":
            again.load_states(tmp_path / "states")
        else:
            again.load_state_dict(trainer.state_dict())
        assert again.learning_rate == trainer.learning_rate == 0.5
        assert go(later, again) == go(w, trainer)
        assert again.optimizer.num_update == 6 and again.learning_rate == 0.25

    def test_what_gluon_refuses_is_refused(self):
        model = model_of(mlp)
        on_store = mx.torch.Trainer(model.named_parameters(), "sgd", {"learning_rate": 0.5})
        with pytest.raises(mx.errors.FailedPreconditionError, match="'0.weight' has no gradient"):
            on_store.step(1)
        on_store.step(1, ignore_stale_grad=True)
        for name, call in (("allreduce_grads", on_store.allreduce_grads), ("update", lambda: on_store.update(1))):
            with pytest.raises(mx.errors.FailedPreconditionError, match=f"{name}: the store runs"):
                call()
        assert on_store.learning_rate == 0.5
        on_store.set_learning_rate(0.25)
        assert on_store.optimizer.lr == 0.25
        with pytest.raises(mx.errors.InvalidArgumentError, match="beside an optimizer"):
            mx.torch.Trainer([W], mx.optimizer.SGD(), {"learning_rate": 1})
        with pytest.raises(mx.errors.InvalidArgumentError, match="without a store"):
            mx.torch.Trainer([W], "sgd", kvstore=None, update_on_kvstore=True)
        with pytest.raises(mx.errors.InvalidArgumentError, match="batch_size"):
            on_store.step(0, ignore_stale_grad=True)

    @pytest.mark.parametrize("update_on_kvstore", [True, False])
    def test_gradients_are_compressed(self, update_on_kvstore):
        w = torch.nn.Parameter(torch.zeros(2))
        params = {"learning_rate": 1}, {"type": "2bit", "threshold": 0.5}
        with mx.kv.create("dist_sync", bootstrap="self") as kv:
            trainer = mx.torch.Trainer([("w", w)], "sgd", params[0], kv, params[1], update_on_kvstore)
            for wanted in ([-0.5, 0], [-1, -0.5]):  # what was not sent is owed, and goes with the next step
                w.grad = torch.tensor([0.75, 0.25])
                trainer.step(1)
                assert w.tolist() == wanted
        with pytest.raises(mx.errors.FailedPreconditionError, match="sends nothing"):
            mx.torch.Trainer([W], "sgd", kvstore="local", compression_params=params[1])
        with pytest.raises(mx.errors.InvalidArgumentError, match="without a store"):
            mx.torch.Trainer([W], "sgd", kvstore=None, compression_params=params[1])

    @pytest.mark.parametrize("kvstore", [None, "local"])
    def test_gradients_can_be_changed_between_sum_and_update(self, kvstore):
        w = torch.nn.Parameter(torch.zeros(2))
        trainer = mx.torch.Trainer([("w", w)], "sgd", {"learning_rate": 1}, kvstore=kvstore, update_on_kvstore=False)
        w.sum().backward()
        trainer.allreduce_grads()
        w.grad.mul_(4)
        trainer.update(2)
        assert w.tolist() == [-2, -2] and w.grad is None


def fail_next_pull(kv, monkeypatch):
    pull = kv.pull

    def fails(*args, **options):
        monkeypatch.setattr(kv, "pull", pull)
        raise mx.errors.UnavailableError("pull: server 1 is out of reach")

    monkeypatch.setattr(kv, "pull", fails)


HELPERS = {
    "optimizer": lambda params, kv: mx.torch.KVOptimizer(params, kv, mx.optimizer.SGD(learning_rate=1)),
    "torch optimizer": lambda params, kv: mx.torch.KVOptimizer(
        params, kv, torch.optim.SGD([p for _, p in params], lr=1)
    ),
    "trainer": lambda params, kv: mx.torch.Trainer(params, "sgd", {"learning_rate": 1}, kv),
    "trainer that sums": lambda params, kv: mx.torch.Trainer(
        params, "sgd", {"learning_rate": 1}, kv, update_on_kvstore=False
    ),
}


@pytest.mark.parametrize("who", HELPERS)
def test_a_step_that_fails_after_the_init_of_an_unfrozen_parameter_can_be_repeated(who, monkeypatch):
    kv, w, v = mx.kv.create(), torch.nn.Parameter(torch.zeros(2)), torch.nn.Parameter(torch.zeros(2), False)
    opt = HELPERS[who]([("w", w), ("v", v)], kv)
    v.requires_grad_(True)
    (w + v).sum().backward()
    step = (lambda: opt.step(1)) if isinstance(opt, mx.torch.Trainer) else opt.step
    fail_next_pull(kv, monkeypatch)
    with pytest.raises(mx.errors.UnavailableError):
        step()
    assert "v" in kv and v.tolist() == [0, 0]
    step()
    assert w.tolist() == v.tolist() == [-1, -1] and kv.round("w") == kv.round("v") == 1


@pytest.mark.parametrize("who", ["optimizer", "trainer"])
def test_the_key_of_another_is_no_key_of_an_unfrozen_parameter(who):
    kv, w, v = mx.kv.create(), torch.nn.Parameter(torch.zeros(2)), torch.nn.Parameter(torch.zeros(2), False)
    opt = HELPERS[who]([("w", w), ("v", v)], kv)
    kv.init("v", mx.nd.zeros((2,)))
    v.requires_grad_(True)
    w.grad = v.grad = torch.ones(2)
    for _ in range(2):
        with pytest.raises(mx.errors.AlreadyExistsError, match="'v'"):
            opt.step(*[1] * (who == "trainer"))


def test_parameters_that_could_not_be_read_can_be_added_again(monkeypatch):
    kv, w, v = mx.kv.create(), torch.nn.Parameter(torch.zeros(2)), torch.nn.Parameter(torch.zeros(2))
    opt = mx.torch.KVOptimizer([("w", w)], kv, mx.optimizer.SGD(learning_rate=1))
    fail_next_pull(kv, monkeypatch)
    with pytest.raises(mx.errors.UnavailableError):
        opt.add_param_group({"params": [("v", v)]})
    with pytest.raises(mx.errors.AlreadyExistsError, match="prefix="):  # a parameter for which no key has been made
        opt.add_param_group({"params": [("v", torch.nn.Parameter(torch.zeros(3)))]})
    opt.add_param_group({"params": [("v", v)]})
    (w + v).sum().backward()
    opt.step()
    assert w.tolist() == v.tolist() == [-1, -1]


@pytest.mark.parametrize("takes_dtype", [True, False])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64])
def test_marks_of_parameters_on_gpus_show_a_small_write(dtype, takes_dtype, monkeypatch):
    """The norm and the largest element are float32, whose norm a 16-bit dtype would round or could not hold."""
    norm = torch._foreach_norm
    if not takes_dtype:
        monkeypatch.setattr(torch, "_foreach_norm", lambda tensors, ord=2: norm(tensors, ord))
    some = torch.full((64, 64), 1500.0, dtype=dtype)  # the norm is 96000
    some[0] = 2048
    before = _torch_watch._marks([some, torch.zeros(0, dtype=dtype)])
    some[1:9] *= 1.01
    after = _torch_watch._marks([some, torch.zeros(0, dtype=dtype)])
    assert all(mark.dtype == torch.float32 and mark.isfinite().all() for mark in before + after)
    assert before[0][1] == after[0][1] == 2048 and before[0][0] < after[0][0]
    real = torch.view_as_real(some) if some.is_complex() else some
    assert after[0][0].item() == pytest.approx(real.double().norm().item(), rel=1e-5)
    assert after[1].tolist() == [0, 0]


def test_a_small_write_into_a_parameter_on_a_gpu_is_found():
    values = torch.full((4096,), 0.5, dtype=torch.bfloat16)
    values[0] = 4
    parameter = torch.nn.Parameter(values)
    watch = _torch_watch.Watch()
    watch._gpu[parameter] = (parameter._version, parameter.data_ptr(), *_torch_watch._marks([parameter]))
    with torch.no_grad():
        parameter[7] += 0.25  # the norm grows by 0.015 %
    assert watch._written_on_gpus([parameter]) == [parameter]


def test_the_examples_of_the_docstrings_run():
    for module in (mx.torch, mx._frameworks.torch_trainer):
        failed, tried = doctest.testmod(module, globs={"tkv": mx, "torch": torch, "np": np})
        assert tried and not failed


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("who", ["KVOptimizer", "Trainer"])
def test_a_worker_that_unfreezes_alone_gets_an_error_that_says_so(who, rank):
    """Rank 0 makes the key and waits for the gradients of the others; another rank waits for rank 0 to make it."""
    has_ended = threading.Event()

    def work(kv):
        with SEEDING:
            model = mlp()
        late = model[2].bias
        late.requires_grad = False
        if who == "Trainer":
            trainer = mx.torch.Trainer(model.named_parameters(), "sgd", {"learning_rate": 0.1}, kv)
            step = functools.partial(trainer.step, 1)
        else:
            step = mx.torch.KVOptimizer(model.named_parameters(), kv, mx.optimizer.SGD(learning_rate=0.1)).step
        kv.barrier()
        late.requires_grad = kv.rank == rank
        model(torch.ones(6)).sum().backward()
        if kv.rank != rank:
            with contextlib.suppress(mx.errors.KVError):
                step()
            assert has_ended.wait(60)
            return
        missing = f"worker {1 - rank}"
        remedy = (
            "; every worker makes the same number of steps, and unfreezes the same parameters before the same step$"
        )
        with pytest.raises(mx.errors.DeadlineExceededError, match=rf"'2.bias': waited .* {missing}.*{remedy}"):
            step()

    def end(kv):
        try:
            work(kv)
        finally:
            if kv.rank == rank:
                has_ended.set()

    with mx.testing.cluster(WORKERS, 1, patience=2) as job:
        job.run(end)


@pytest.mark.parametrize("who", ["KVOptimizer", "Trainer"])
def test_a_step_that_another_worker_does_not_make_says_so_after_the_patience(who):
    has_ended = threading.Event()

    def work(kv):
        with SEEDING:
            model = mlp()
        if who == "Trainer":
            trainer = mx.torch.Trainer(model.named_parameters(), "sgd", {"learning_rate": 0.1}, kv)
            step = functools.partial(trainer.step, 1)
        else:
            step = mx.torch.KVOptimizer(model.named_parameters(), kv, mx.optimizer.SGD(learning_rate=0.1)).step
        if kv.rank == 1:
            assert has_ended.wait(60)
            return
        try:
            model(torch.ones(6)).sum().backward()
            remedy = "; every worker makes the same number of steps: a worker that skips a step calls step"
            with pytest.raises(mx.errors.DeadlineExceededError, match=rf"for worker 1 \(alive\), round 1{remedy}"):
                step()
        finally:
            has_ended.set()

    with mx.testing.cluster(WORKERS, 1, patience=2) as job:
        job.run(work)


@pytest.mark.parametrize("who", ["KVOptimizer", "Trainer"])
def test_the_error_of_a_worker_that_has_lived_before_is_true_also_after_a_restore(who):
    """In a job of --restore a helper process has taken the place of each worker, so that `rejoined` is true there, too."""
    with mx.testing.cluster(1, 1, patience=30) as job:
        first = job.store(0)
        first.init("other", np.zeros(1))
        first.push("other", np.ones(1))  # a life that pushes nothing is followed by one that begins anew
        first.pull("other")
        kv = job.restart(0)
        assert kv.rejoined
        model = mlp()
        sgd = torch.optim.SGD(model.parameters(), lr=0.1)
        lived = "has lived before in this job, because it was started again or the job goes on from a snapshot, and no server"
        with pytest.raises(mx.errors.FailedPreconditionError, match=lived):
            if who == "Trainer":
                mx.torch.Trainer(model.named_parameters(), "sgd", {}, kv, update_on_kvstore=False)
            else:
                mx.torch.KVOptimizer(model.named_parameters(), kv, sgd)
