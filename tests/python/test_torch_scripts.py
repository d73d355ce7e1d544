"""Things that training scripts do with parameters, gradients and states, beside the same with torch.optim alone.

Each script runs through a store with two workers, and in one process with torch.optim on the mean of both workers' gradients,
which is what DistributedDataParallel computes. Where the store has the parameters, a script that writes into them calls
`assign`, and is refused without.
"""

import copy
import io

import numpy as np
import pytest
import tensorkv as mx

torch = pytest.importorskip("torch")
import tensorkv.torch  # noqa: E402

pytestmark = pytest.mark.framework
WORKERS = 2
STEPS = 3
LR, MOMENTUM = 0.1, 0.9


def model_of(seed=0):
    generator = torch.Generator().manual_seed(seed)
    model = torch.nn.Sequential(torch.nn.Linear(4, 5), torch.nn.Tanh(), torch.nn.Linear(5, 2))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) / 2)
    return model


def loss_of(model, step, worker):
    generator = torch.Generator().manual_seed(100 * step + worker)
    x = torch.randn(6, 4, generator=generator)
    return ((model(x) - x[:, :2]) ** 2).mean()


class Alone:
    """A training in one process with torch.optim, on the mean of all workers' gradients."""

    has_store = False

    def __init__(self, seed=0):
        self.model = model_of()
        self.number = 0
        self.make()

    def optimizer(self):
        return torch.optim.SGD(self.model.parameters(), lr=LR, momentum=MOMENTUM)

    def make(self):
        self.opt = self.optimizer()

    def backward(self, scale=1.0):
        params = [p for p in self.model.parameters() if p.requires_grad]
        sums = None
        for worker in range(WORKERS):
            grads = torch.autograd.grad(loss_of(self.model, self.number, worker) * scale, params, allow_unused=True)
            grads = [torch.zeros_like(p) if g is None else g for g, p in zip(grads, params, strict=True)]
            sums = grads if sums is None else [a + b for a, b in zip(sums, grads, strict=True)]
        for parameter, total in zip(params, sums, strict=True):
            mean = total / WORKERS
            parameter.grad = mean if parameter.grad is None else parameter.grad + mean
        self.number += 1

    def reduce(self):
        pass

    def step(self):
        self.opt.step()

    def train(self, steps=STEPS):
        for _ in range(steps):
            self.opt.zero_grad()
            self.backward()
            self.step()

    def wrote(self):
        pass


class OnStore(Alone):
    """The same of one worker of a store that runs the optimizer."""

    has_store = True
    overlap = True

    def __init__(self, kv, assigns=True):
        self.kv, self.assigns, self.made = kv, assigns, 0
        super().__init__()

    def make(self):
        self.made += 1
        optimizer = mx.optimizer.SGD(learning_rate=LR, momentum=MOMENTUM)
        self.kv.set_updater(None)
        self.opt = mx.torch.KVOptimizer(
            self.model.named_parameters(), self.kv, optimizer, overlap=self.overlap, prefix=f"{self.made}."
        )

    def backward(self, scale=1.0):
        (loss_of(self.model, self.number, self.kv.rank) * scale).backward()
        self.number += 1

    def wrote(self):
        if self.assigns:
            self.opt.assign()


class OnStoreInStep(OnStore):
    """The same that pushes in the step."""

    overlap = False


class OnWorkers(OnStore):
    """The same of one worker that runs torch.optim on means that the store makes."""

    has_store = False

    def make(self):
        self.made += 1
        self.opt = mx.torch.KVOptimizer(
            self.model.named_parameters(), self.kv, self.optimizer(), overlap=self.overlap, prefix=f"{self.made}."
        )

    def wrote(self):
        pass

    def reduce(self):
        self.opt.reduce()


class WithTrainer(OnStore):
    """The same by `Trainer`."""

    def make(self):
        self.made += 1
        self.kv.set_updater(None)
        self.opt = mx.torch.Trainer(
            {f"{self.made}.{name}": p for name, p in self.model.named_parameters()},
            mx.optimizer.SGD(learning_rate=LR, momentum=MOMENTUM),
            kvstore=self.kv,
        )
        self.opt.zero_grad = lambda: None  # a step of a Trainer takes gradients away
        self.opt.param_groups = None

    def step(self):
        self.opt.step(WORKERS)


# ------------------------------------------------------------------------------------------ what scripts write into parameters


def loads_weights(run):
    run.model.load_state_dict(model_of(seed=5).state_dict())


def clamps(run):
    for parameter in run.model.parameters():
        parameter.data.clamp_(-0.2, 0.2)


def clamps_one_element(run):
    with torch.no_grad():
        run.model[0].weight[1, 2] = 0.25


def copies_an_average(run):
    with torch.no_grad():
        for parameter, other in zip(run.model.parameters(), model_of(seed=6).parameters(), strict=True):
            parameter.lerp_(other, 0.5)


def initializes_a_layer_anew(run):
    torch.nn.init.constant_(run.model[2].weight, 0.125)


def prunes(run):
    run.model[0].weight.data *= torch.arange(20).reshape(5, 4) % 3 != 0


def normalizes_rows(run):
    with torch.no_grad():
        run.model[0].weight /= run.model[0].weight.norm(dim=1, keepdim=True)


def replaces_data(run):
    run.model[2].bias.data = torch.full((2,), 0.5)


def takes_a_vector(run):
    vector = torch.nn.utils.parameters_to_vector(model_of(seed=7).parameters())
    torch.nn.utils.vector_to_parameters(vector, run.model.parameters())


def negates(run):
    run.model[0].bias.data.neg_()


def adds_noise(run):
    with torch.no_grad():
        for parameter in run.model.parameters():
            parameter += torch.randn(parameter.shape, generator=torch.Generator().manual_seed(3)) / 10


WRITES = [
    loads_weights,
    clamps,
    clamps_one_element,
    copies_an_average,
    initializes_a_layer_anew,
    prunes,
    normalizes_rows,
    replaces_data,
    takes_a_vector,
    negates,
    adds_noise,
]


def writing(write):
    def script(run):
        run.train()
        write(run)
        run.wrote()
        run.train()
        write(run)
        run.wrote()
        run.train(1)

    script.__name__ = write.__name__
    return script


# --------------------------------------------------------------------------------------------------------- what else they do


def writes_before_the_first_step(run):
    run.model.load_state_dict(model_of(seed=4).state_dict())
    run.wrote()
    run.train()


def evaluates_with_other_weights(run):
    """The script writes other weights and takes them back, so that the store's values are right."""
    run.train()
    kept = copy.deepcopy(run.model.state_dict())
    run.model.load_state_dict(model_of(seed=8).state_dict())
    run.model.load_state_dict(kept)
    run.train()


def freezes_a_layer(run):
    run.train()
    for parameter in run.model[0].parameters():
        parameter.requires_grad_(False)
        parameter.grad = None
    run.train()


def unfreezes_a_layer(run):
    for parameter in run.model[0].parameters():
        parameter.requires_grad_(False)
    run.make()
    run.train()
    for parameter in run.model[0].parameters():
        parameter.requires_grad_(True)
    run.train()


def makes_no_gradient_none(run):
    run.train(1)
    run.opt.zero_grad()
    run.backward()
    run.step()
    run.train()


SCRIPTS = [
    *(writing(write) for write in WRITES),
    writes_before_the_first_step,
    evaluates_with_other_weights,
    freezes_a_layer,
    unfreezes_a_layer,
    makes_no_gradient_none,
]


def together(work, **options):
    with mx.testing.cluster(WORKERS, 2, patience=30, **options) as job:
        return job.run(work)


def run_of(kind, script, **options):
    def work(kv):
        run = kind(kv, **options)
        script(run)
        return {name: p.detach().clone() for name, p in run.model.named_parameters()}

    return together(work)


def check(kind, script):
    alone = Alone()
    script(alone)
    results = run_of(kind, script)
    for name, wanted in alone.model.named_parameters():
        torch.testing.assert_close(results[0][name], wanted.detach(), rtol=2e-5, atol=2e-5)
        assert torch.equal(results[0][name], results[1][name])


def names(value):
    return getattr(value, "__name__", None)


@pytest.mark.parametrize("kind", [OnStore, OnStoreInStep, OnWorkers, WithTrainer], ids=names)
@pytest.mark.parametrize("script", SCRIPTS, ids=names)
def test_a_script_does_the_same_as_with_torch_optim(script, kind):
    check(kind, script)


@pytest.mark.parametrize("kind", [OnStore, OnStoreInStep, WithTrainer], ids=names)
@pytest.mark.parametrize("write", WRITES, ids=names)
def test_a_write_without_assign_is_refused_by_the_next_step_on_every_rank(write, kind):
    def work(kv):
        run = kind(kv, assigns=False)
        run.train()
        write(run)
        wanted = {name: p.detach().clone() for name, p in run.model.named_parameters()}
        with pytest.raises(mx.errors.FailedPreconditionError, match=r"changed since the last step.*call assign\(\)"):
            run.train(1)
        for name, parameter in run.model.named_parameters():
            assert torch.equal(parameter, wanted[name])
        run.opt.assign()  # goes on
        for parameter in run.model.parameters():
            parameter.grad = None
        run.train()

    together(work)


@pytest.mark.parametrize("order", ["model first", "optimizer first"])
@pytest.mark.parametrize("kind", [OnStore, OnStoreInStep, OnWorkers, WithTrainer], ids=names)
def test_a_checkpoint_of_torch_resumes_in_another_job(kind, order):
    alone = Alone()
    alone.train(2 * STEPS)

    def begins(kv):
        run, file = kind(kv), io.BytesIO()
        run.train()
        torch.save({"model": run.model.state_dict(), "opt": run.opt.state_dict()}, file)
        return file.getvalue()

    saved = together(begins)[0]

    def goes_on(kv):
        run, found = kind(kv), torch.load(io.BytesIO(saved), weights_only=True)
        if order == "model first":
            run.model.load_state_dict(found["model"])
            run.opt.load_state_dict(found["opt"])
        else:
            run.opt.load_state_dict(found["opt"])
            run.model.load_state_dict(found["model"])
            run.wrote()
        run.number = STEPS
        run.train()
        return dict(run.model.named_parameters())

    found = together(goes_on)
    for name, wanted in alone.model.named_parameters():
        torch.testing.assert_close(found[0][name], wanted, rtol=2e-5, atol=2e-5)
        assert torch.equal(found[0][name], found[1][name])


def test_a_trainers_own_states_are_those_of_its_parameters_alone():
    model = model_of()
    trainer = mx.torch.Trainer(model.named_parameters(), "adam", kvstore=None)
    loss_of(model, 0, 0).backward()
    trainer.step(1)
    found = trainer.state_dict()
    assert all(isinstance(tensor, torch.Tensor) for tensor in found.values())
    trainer.load_state_dict(found)
    other = mx.torch.Trainer(torch.nn.Linear(1, 1).named_parameters(), "adam", kvstore=None)
    with pytest.raises(mx.errors.InvalidArgumentError, match="load_state_dict: has 'count.0.bias.0'"):
        other.load_state_dict(found)


def test_a_state_dict_without_states_is_refused():
    model = model_of()
    opt = mx.torch.KVOptimizer(model.named_parameters(), mx.kv.create(), mx.optimizer.SGD(momentum=0.9))
    with pytest.raises(mx.errors.InvalidArgumentError, match="no entry 'store'"):
        opt.load_state_dict(torch.optim.SGD(model.parameters(), lr=1).state_dict())
    found = opt.state_dict()
    found["store"] = None
    with pytest.raises(mx.errors.InvalidArgumentError, match="another rank than 0 made it"):
        opt.load_state_dict(found)


# --------------------------------------------------------------------------------------------------- decisions about gradients


def clips_by_norm(run):
    for _ in range(STEPS):
        run.opt.zero_grad()
        run.backward()
        run.reduce()
        torch.nn.utils.clip_grad_norm_(run.model.parameters(), 0.05)
        run.step()


def scales_its_loss(run, bad_steps=(1,)):
    """One worker meets an infinite gradient: all skip the step, and go on with half of the scale."""
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
    for step in range(4):
        run.opt.zero_grad()
        run.backward(scale=float(scaler.get_scale()) * (float("inf") if bad(run, step, bad_steps) else 1.0))
        run.reduce()
        scaler.scale(torch.ones(()))  # tells it the device
        scaler.step(run.opt)
        scaler.update()
    assert scaler.get_scale() == 8.0 * 0.5 ** len(bad_steps)


def bad(run, step, bad_steps):
    return step in bad_steps and (isinstance(run, OnStore) is False or run.kv.rank == 1)


def clips_what_the_scaler_has_unscaled(run):
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
    for _ in range(3):
        run.opt.zero_grad()
        run.backward(scale=float(scaler.get_scale()))
        run.reduce()
        scaler.scale(torch.ones(()))
        scaler.unscale_(run.opt)
        torch.nn.utils.clip_grad_norm_(run.model.parameters(), 0.05)
        scaler.step(run.opt)
        scaler.update()


def skips_bad_steps(run):
    for step in range(4):
        run.opt.zero_grad()
        run.backward(scale=float("nan") if bad(run, step, (2,)) else 1.0)
        run.reduce()
        if all(torch.isfinite(p.grad).all() for p in run.model.parameters()):
            run.step()


@pytest.mark.parametrize("overlap", [True, False])
@pytest.mark.parametrize(
    "script", [clips_by_norm, scales_its_loss, clips_what_the_scaler_has_unscaled, skips_bad_steps], ids=names
)
def test_decisions_behind_reduce_are_those_of_all_workers(script, overlap):
    kind = type("OnWorkers", (OnWorkers,), {"overlap": overlap})
    check(kind, script)


@pytest.mark.parametrize("kind", [OnStoreInStep, OnWorkers], ids=names)
def test_a_scaler_that_sees_one_workers_gradients_is_refused(kind):
    def work(kv):
        run = kind(kv)
        run.overlap = False
        run.make()
        scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
        run.backward(scale=8.0)
        scaler.scale(torch.ones(()))
        with pytest.raises(mx.errors.FailedPreconditionError, match=r"call opt\.reduce\(\) before scaler\.step\(\)"):
            scaler.step(run.opt)

    together(work)


def test_reduce_is_refused_where_it_would_add_one_workers_gradients():
    def work(kv):
        run = OnWorkers(kv)
        run.backward()
        run.opt.reduce()
        with pytest.raises(mx.errors.FailedPreconditionError, match="mean of all workers already"):
            run.opt.reduce()
        with pytest.raises(mx.errors.FailedPreconditionError, match=r"between reduce\(\) and step\(\)"):
            run.backward()
        run.opt.zero_grad()
        run.train(1)

    together(work)
    model = model_of()
    opt = mx.torch.KVOptimizer(model.named_parameters(), mx.kv.create(), mx.optimizer.SGD())
    with pytest.raises(mx.errors.FailedPreconditionError, match="the store changes the parameters"):
        opt.reduce()


# ------------------------------------------------------------------------------------------------------------------ snapshots


@pytest.mark.parametrize("kind", [OnStore, OnStoreInStep, WithTrainer], ids=names)
def test_a_load_writes_the_parameters(kind, tmp_path):
    """The step behind a load is that of a training that has not stopped, bit for bit."""

    def work(kv):
        run = kind(kv)
        run.train()
        kv.save(tmp_path)
        kv.barrier()
        run.train(1)
        wanted = [p.detach().clone() for p in run.model.parameters()]
        run.train(2)
        kv.load(tmp_path)
        run.number = STEPS
        run.train(1)
        for parameter, value in zip(run.model.parameters(), wanted, strict=True):
            assert torch.equal(parameter, value)

    together(work)


@pytest.mark.parametrize("verb", ["save", "load"])
def test_a_store_of_sums_is_no_checkpoint(verb, tmp_path):
    kv = mx.kv.create()
    model = model_of()
    opt = mx.torch.KVOptimizer(model.named_parameters(), kv, torch.optim.SGD(model.parameters(), lr=1))
    with pytest.raises(mx.errors.FailedPreconditionError, match="only sums of gradients; torch.save"):
        getattr(kv, verb)(tmp_path)
    del opt


def test_a_load_between_backward_and_step_is_refused(tmp_path):
    kv = mx.kv.create()
    model = model_of()
    opt = mx.torch.KVOptimizer(model.named_parameters(), kv, mx.optimizer.SGD())
    kv.save(tmp_path)
    loss_of(model, 0, 0).backward()
    with pytest.raises(mx.errors.FailedPreconditionError, match=r"step\(\) has not been called"):
        kv.load(tmp_path)
    opt.step()
    kv.load(tmp_path)


# -------------------------------------------------------------------------------------------------------------------- details


@pytest.mark.parametrize(
    ("rates", "moved"), [((0.0, -0.1), (0.0, 0.1)), ((0.0, 0.0), (0.0, 0.0)), ((-0.2, 0.1), (0.2, -0.1))]
)
def test_groups_may_have_any_rates(rates, moved):
    params = [torch.nn.Parameter(torch.zeros(1)) for _ in rates]
    groups = [{"params": [("ab"[i], p)], "lr": rate} for i, (p, rate) in enumerate(zip(params, rates, strict=True))]
    opt = mx.torch.KVOptimizer(groups, mx.kv.create(), mx.optimizer.SGD(learning_rate=0.5))
    for parameter in params:
        parameter.grad = torch.ones(1)
    opt.step()
    np.testing.assert_allclose([p.item() for p in params], moved, atol=1e-7)


def test_a_parameter_elsewhere_is_refused_by_name():
    parameter = torch.nn.Parameter(torch.empty(1, device="meta"))
    with pytest.raises(
        mx.errors.UnimplementedError, match=r"KVOptimizer: 'w' is on meta; .* on the CPU and on NVIDIA GPUs"
    ):
        mx.torch.KVOptimizer([("w", parameter)], mx.kv.create(), mx.optimizer.SGD())


def test_a_compiled_model_trains():
    alone = Alone()
    alone.train()
    model = model_of()
    compiled = torch.compile(model, backend="eager")
    opt = mx.torch.KVOptimizer(
        compiled.named_parameters(), mx.kv.create(), mx.optimizer.SGD(learning_rate=LR, momentum=MOMENTUM)
    )
    for step in range(STEPS):
        opt.zero_grad()
        (sum(loss_of(compiled, step, worker) for worker in range(WORKERS)) / WORKERS).backward()
        opt.step()
    assert "_orig_mod.0.weight" in opt._kv.keys()
    for parameter, wanted in zip(model.parameters(), alone.model.parameters(), strict=True):
        torch.testing.assert_close(parameter, wanted, rtol=2e-5, atol=2e-5)


def test_running_statistics_stay_each_workers_own():
    def work(kv):
        model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 2))
        opt = mx.torch.KVOptimizer(model.named_parameters(), kv, mx.optimizer.SGD(learning_rate=LR))
        for step in range(STEPS):
            opt.zero_grad()
            loss_of(model, step, kv.rank).backward()
            opt.step()
        return model[1].running_mean.clone(), [p.detach().clone() for p in model.parameters()]

    (mean, params), (other_mean, other_params) = together(work)
    assert not torch.equal(mean, other_mean)
    assert all(torch.equal(p, q) for p, q in zip(params, other_params, strict=True))


@pytest.mark.parametrize("who", ["optimizer", "trainer"])
def test_a_step_that_has_failed_is_not_taken_for_a_write(who, monkeypatch):
    kv, model = mx.kv.create(), model_of()
    sgd = mx.optimizer.SGD(learning_rate=LR)
    if who == "optimizer":
        opt = mx.torch.KVOptimizer(model.named_parameters(), kv, sgd, overlap=False)
        step = opt.step
    else:
        opt = mx.torch.Trainer(model.named_parameters(), sgd, kvstore=kv)
        step = lambda: opt.step(1)  # noqa: E731

    def fails(keys, values, out, *rest):
        out[0].fill_(7)
        raise mx.errors.UnavailableError("pushpull: server 1 is out of reach")

    loss_of(model, 0, 0).backward()
    with monkeypatch.context() as patched:
        patched.setattr(kv, "pushpull", fails)
        with pytest.raises(mx.errors.UnavailableError):
            step()
    loss_of(model, 1, 0).backward()
    step()
    assert torch.equal(torch.from_dlpack(kv.pull("0.weight")), model[0].weight.detach())


def test_a_trainers_counts_of_each_parameter_come_back():
    model = model_of()
    model[0].requires_grad_(False)
    trainer = mx.torch.Trainer(model.named_parameters(), "adam", kvstore=None)
    for step in range(5):
        model[0].requires_grad_(step >= 3)
        loss_of(model, step, 0).backward()
        trainer.step(1)
    other = mx.torch.Trainer(model.named_parameters(), "adam", kvstore=None)
    other.load_state_dict(trainer.state_dict())
    for key, count in {"0.weight": 2, "2.weight": 5}.items():
        assert other.optimizer._count_of(key) == trainer.optimizer._count_of(key) == (5, count)
