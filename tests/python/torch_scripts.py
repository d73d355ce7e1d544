"""Training scripts of two workers, and their results under PyTorch's DistributedDataParallel with Gloo.

A script trains a `Run`: a model, an optimizer and this worker's share of the data. Its result is the model's parameters.
``python torch_scripts.py RANK FOLDER`` is one of two processes that run all scripts under DistributedDataParallel; `truth_of`
starts both, once, and returns what a script has computed there.
"""

import contextlib
import copy
import datetime
import functools
import io
import os
import pathlib
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
import torch.utils.checkpoint
from torch.nn.utils import parametrizations

WORKERS = 2
STEPS = 3
LR, MOMENTUM = 0.1, 0.9
SEEDING = threading.RLock()  # the generator of torch is the process's, and workers of a test are threads
DDP_SECONDS = 120


# ------------------------------------------------------------------------------------------------------------------- models


def filled(model, seed=0):
    """Give a model parameters that depend on the seed alone."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) / 2)
    return model


def mlp(seed=0):
    return filled(torch.nn.Sequential(torch.nn.Linear(4, 5), torch.nn.Tanh(), torch.nn.Linear(5, 2)), seed)


def normed():
    """A model with running statistics."""
    return filled(torch.nn.Sequential(torch.nn.Linear(4, 5), torch.nn.BatchNorm1d(5), torch.nn.Linear(5, 2)))


def dropping():
    return filled(torch.nn.Sequential(torch.nn.Linear(4, 5), torch.nn.Dropout(0.5), torch.nn.Linear(5, 2)))


def frozen():
    """A model whose first layer is not trained."""
    model = mlp()
    model[0].requires_grad_(False)
    return model


def parametrized(norm):
    model = mlp()
    with SEEDING:
        torch.manual_seed(0)
        norm(model[0], "weight")
    return model


def narrow():
    return mlp().to(torch.bfloat16)


class Tied(torch.nn.Module):
    """An encoder and a decoder with one weight."""

    def __init__(self):
        super().__init__()
        self.encoder = torch.nn.Linear(4, 2, bias=False)
        self.decoder = torch.nn.Linear(4, 2, bias=False)
        self.decoder.weight = self.encoder.weight
        filled(self)

    def forward(self, x):
        return self.decoder(self.encoder(x) @ self.encoder.weight)


class Branches(torch.nn.Module):
    """A model of which each worker uses another part."""

    def __init__(self):
        super().__init__()
        self.parts = torch.nn.ModuleList(torch.nn.Linear(4, 2) for _ in range(WORKERS))
        self.used = 0
        filled(self)

    def forward(self, x):
        return self.parts[self.used](x)


class Recomputing(torch.nn.Module):
    """A model whose backward pass computes a layer again."""

    def __init__(self):
        super().__init__()
        self.layers = mlp()

    def forward(self, x):
        return torch.utils.checkpoint.checkpoint(self.layers, x, use_reentrant=False)


class Table(torch.nn.Module):
    """An embedding with sparse gradients."""

    def __init__(self):
        super().__init__()
        self.rows = torch.nn.Embedding(6, 2, sparse=True)
        filled(self)

    def forward(self, x):
        return self.rows((x[:, :2].abs() * 10).long() % 6).sum(1)


def batch_of(step, worker, count=6):
    return torch.randn(count, 4, generator=torch.Generator().manual_seed(100 * step + worker))


def loss_of(model, step, worker):
    x = batch_of(step, worker)
    return ((model(x) - x[:, :2]) ** 2).mean()


def loss_with_seed(model, step, worker):
    with SEEDING:
        torch.manual_seed(1000 * step + worker)
        return loss_of(model, step, worker)


def loss_in_bfloat16(model, step, worker):
    with torch.autocast("cpu", torch.bfloat16):
        return loss_of(model, step, worker)


def loss_of_narrow(model, step, worker):
    x = batch_of(step, worker).to(torch.bfloat16)
    return ((model(x) - x[:, :2]) ** 2).mean()


def loss_with_penalty(model, step, worker):
    """The penalty is the norm of the gradient with respect to the input, so that the backward pass is a double one."""
    x = batch_of(step, worker).requires_grad_()
    loss = ((model(x) - x[:, :2].detach()) ** 2).mean()
    (grad,) = torch.autograd.grad(loss, x, create_graph=True)
    return loss + grad.square().sum()


# --------------------------------------------------------------------------------------------------------------------- runs


class Run:
    """A training on one worker: a model, an optimizer, and what differs between DistributedDataParallel and stores."""

    has_store = False  # the parameters are in a store

    def __init__(self, script, rank):
        self.script, self.rank, self.number = script, rank, 0
        with SEEDING:  # layers draw their first weights, which `filled` replaces
            self.model = script.model(rank) if script.is_ranked else script.model()
        self.make()

    def make(self):
        """Make the optimizer, and again where the script has changed what it trains."""
        self.wrap()

    def wrap(self):
        self.net = self.script.compiled(self.model)

    def torchs(self):
        """Return the script's optimizer of PyTorch."""
        return TORCHS[self.script.optimizer](self.script.groups(self.model))

    def loss(self):
        self.number += 1
        return self.script.loss(self.net, self.number - 1, self.rank)

    def backward(self, scale=1.0):
        (self.loss() * scale).backward()

    def zero_grad(self, **how):
        self.opt.zero_grad(**how)

    def step(self, *closure):
        return self.opt.step(*closure)

    def train(self, steps=STEPS):
        for _ in range(steps):
            self.zero_grad()
            self.backward()
            self.step()

    def no_sync(self):
        return contextlib.nullcontext()

    def reduce(self):
        """Give each worker the mean of all gradients."""

    def wrote(self):
        """Tell that parameters have been written."""

    def save(self):
        return self.opt.state_dict()

    def load(self, saved):
        self.opt.load_state_dict(saved)

    def set_rate(self, rate):
        for group in self.opt.param_groups:
            group["lr"] = rate


class WithDDP(Run):
    """The truth."""

    def wrap(self):
        unused = self.script.has_unused
        self.net = torch.nn.parallel.DistributedDataParallel(
            self.script.compiled(self.model), find_unused_parameters=unused
        )

    def make(self):
        self.wrap()
        self.opt = self.torchs()

    def no_sync(self):
        return self.net.no_sync()

    def beside(self, model):
        """Return another model to call, and the optimizer of its parameters."""
        return torch.nn.parallel.DistributedDataParallel(model), torch.optim.SGD(model.parameters(), LR, MOMENTUM)


TORCHS: dict[str, Callable] = {
    "momentum": lambda groups: torch.optim.SGD(groups, lr=LR, momentum=MOMENTUM),
    "plain": lambda groups: torch.optim.SGD(groups, lr=LR),
    "decay": lambda groups: torch.optim.SGD(groups, lr=LR, momentum=MOMENTUM, weight_decay=0.05),
    "adam": lambda groups: torch.optim.Adam(groups, lr=0.02),
    "clipping": lambda groups: torch.optim.SGD(groups, lr=LR, momentum=MOMENTUM),
}


def whole(model):
    return list(model.named_parameters())


def biases_apart(model):
    """Biases have another rate, and no weight decay."""
    biases = [(name, p) for name, p in model.named_parameters() if name.endswith("bias")]
    weights = [(name, p) for name, p in model.named_parameters() if not name.endswith("bias")]
    return [{"params": weights}, {"params": biases, "lr": 3 * LR, "weight_decay": 0.0}]


def first_layer(model):
    return list((f"0.{name}", p) for name, p in model[0].named_parameters())


@dataclass
class Script:
    """A script, the model it trains, and the kinds of runs that refuse it.

    `refused` has for each such kind what the error of every worker says. `without` has the kinds that have no such thing, and why.
    """

    body: Callable
    model: Callable = mlp
    loss: Callable = loss_of
    optimizer: str = "momentum"
    groups: Callable = whole
    compiled: Callable = staticmethod(lambda model: model)
    is_ranked: bool = False
    has_unused: bool = False
    refused: dict[str, str] = field(default_factory=dict)
    without: dict[str, str] = field(default_factory=dict)
    tolerance: float = 2e-5

    @property
    def name(self):
        return self.body.__name__


SCRIPTS: dict[str, Script] = {}


def script(**options):
    def enter(body):
        SCRIPTS[body.__name__] = Script(body, **options)
        return body

    return enter


ON_STORE = ("store", "store in step")
NOT_MLP = {"jax": "its model is another one"}


def on_store(text):
    """Return what `refused` has where the store runs the optimizer of a KVOptimizer."""
    return dict.fromkeys(ON_STORE, text)


NO_REDUCE = "give KVOptimizer a torch.optim.Optimizer"
TRAINER_REDUCE = {"trainer": r"update_on_kvstore=False\) is needed"}
NO_JAX = {"jax": "gradients are the caller's: average(kv) and optax"}


# -------------------------------------------------------------------------------------------------- writing into parameters


def loads_weights(run):
    run.model.load_state_dict(mlp(seed=5).state_dict())


def clamps(run):
    for parameter in run.model.parameters():
        parameter.data.clamp_(-0.2, 0.2)


def clamps_one_element(run):
    with torch.no_grad():
        run.model[0].weight[1, 2] = 0.25


def copies_an_average(run):
    with torch.no_grad():
        for parameter, other in zip(run.model.parameters(), mlp(seed=6).parameters(), strict=True):
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
    vector = torch.nn.utils.parameters_to_vector(mlp(seed=7).parameters())
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
    def body(run):
        run.train()
        write(run)
        run.wrote()
        run.train()
        write(run)
        run.wrote()
        run.train(1)

    body.__name__ = write.__name__
    return body


for one in WRITES:
    script()(writing(one))


@script()
def writes_before_the_first_step(run):
    run.model.load_state_dict(mlp(seed=4).state_dict())
    run.wrote()
    run.train()


@script()
def evaluates_with_averaged_weights(run):
    """The script writes other weights and takes them back, so that the store's values are right."""
    averages = [p.detach().clone() for p in run.model.parameters()]
    for _ in range(3):
        run.train(1)
        for average, parameter in zip(averages, run.model.parameters(), strict=True):
            average.lerp_(parameter.detach(), 0.1)
        kept = [p.detach().clone() for p in run.model.parameters()]
        for values in (averages, kept):
            for parameter, value in zip(run.model.parameters(), values, strict=True):
                parameter.data.copy_(value)


@script()
def goes_on_with_averaged_weights(run):
    average = torch.optim.swa_utils.AveragedModel(run.model)
    for _ in range(3):
        run.train(1)
        average.update_parameters(run.model)
    run.model.load_state_dict(average.module.state_dict())
    run.wrote()
    run.train()


# ---------------------------------------------------------------------------------------------------------- models, layers


@script()
def trains(run):
    run.train(2 * STEPS)


@script(optimizer="adam")
def trains_with_adam(run):
    run.train(2 * STEPS)


@script(model=lambda rank: mlp(seed=rank), is_ranked=True)
def begins_with_another_seed_on_each_worker(run):
    run.train()


@script(model=Tied, without=NOT_MLP)
def ties_two_weights(run):
    run.train()


@script(model=frozen, without={"jax": "the tree has what is trained"})
def trains_beside_frozen_parameters(run):
    run.train()


@script(without={"jax": "the tree has what is trained"})
def freezes_a_layer(run):
    run.train()
    for parameter in run.model[0].parameters():
        parameter.requires_grad_(False)
        parameter.grad = None
    run.wrap()
    run.train()


@script(model=frozen, without={"jax": "the tree has what is trained"})
def unfreezes_a_layer(run):
    run.train()
    run.model[0].requires_grad_(True)
    run.wrap()
    run.train()


@script(
    model=frozen,
    groups=lambda model: list(model[2].named_parameters("2")),
    without={
        "jax": "the tree is that of the beginning",
        "trainer": "has no groups",
        "trainer on workers": "has no groups",
    },
)
def adds_a_group(run):
    run.train()
    run.model[0].requires_grad_(True)
    run.opt.add_param_group({"params": first_layer(run.model), "lr": 0.02})
    run.wrap()
    run.train()


@script(
    model=normed,
    without=NOT_MLP,
)
def has_running_statistics(run):
    """Training uses each batch's own statistics; the running ones of rank 0 are part of the result."""
    run.train()
    if run.rank == 0:
        run.result = {
            "running_mean": run.model[1].running_mean.clone(),
            "running_var": run.model[1].running_var.clone(),
        }


@script(model=dropping, loss=loss_with_seed, without=NOT_MLP)
def drops_out_by_seed(run):
    run.train()


@script(model=lambda: parametrized(parametrizations.weight_norm), without=NOT_MLP)
def has_a_weight_norm(run):
    run.train()


@script(model=lambda: parametrized(parametrizations.spectral_norm), without=NOT_MLP)
def has_a_spectral_norm(run):
    run.train()


@script(model=Recomputing, without=NOT_MLP)
def recomputes_in_the_backward_pass(run):
    run.train()


@script(model=Branches, has_unused=True, without=NOT_MLP)
def uses_another_branch_on_each_worker(run):
    run.model.used = run.rank
    run.train()
    run.model.used = 1 - run.rank
    run.train()


@script(compiled=lambda model: torch.compile(model, backend="eager"), without=NOT_MLP)
def compiles_the_model(run):
    run.train()


@script(loss=loss_in_bfloat16, without=NOT_MLP, tolerance=1e-3)
def computes_in_bfloat16(run):
    run.train()


@script(model=narrow, loss=loss_of_narrow, without=NOT_MLP, optimizer="plain", tolerance=0.02)
def has_bfloat16_parameters(run):
    run.train()


def loss_of_any_width(model, step, worker):
    x = batch_of(step, worker).to(next(p.dtype for p in model.parameters()))
    return ((model(x) - x[:, :2]) ** 2).mean()


@script(
    loss=loss_of_any_width,
    refused=dict.fromkeys(
        (*ON_STORE, "workers", "workers in step", "trainer", "trainer on workers"),
        r"'1\.0\.weight' is float64 now, and its key float32; make a new (KVOptimizer|Trainer)",
    ),
    without=NOT_MLP,
)
def converts_the_model(run):
    run.train()
    run.model.double()
    run.wrap()
    run.train()


@script(without={"jax": "the tree is that of the beginning"})
def replaces_a_parameter(run):
    """The script makes an optimizer of the parameters that the model has now."""
    run.train()
    run.model[2].weight = torch.nn.Parameter(torch.full((2, 5), 0.25))
    run.make()
    run.train()


CRITICS = {
    "jax": "gradients are the caller's",
    "trainer": "as a KVOptimizer that pushes in the step",
    "trainer on workers": "as a KVOptimizer that pushes in the step",
}


def plays_against_a_critic(run, aside):
    critic, opt = run.beside(
        filled(torch.nn.Sequential(torch.nn.Linear(2, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1)), 9)
    )
    for step in range(STEPS):
        x = batch_of(step, run.rank)
        opt.zero_grad()
        (critic(run.net(x).detach()).mean() - critic(x[:, :2]).mean()).backward()
        opt.step()
        run.zero_grad()
        with aside(opt, critic):
            (-critic(run.net(x)).mean()).backward()
        run.step()
    run.result = {f"critic.{name}": p.detach().clone() for name, p in enumerate(critic.parameters())}


@script(
    without=CRITICS, refused=dict.fromkeys(("store", "workers"), r"zero_grad\(\) between.*inside `with opt.no_sync")
)
def trains_an_adversary(run):
    """The generator's backward pass goes through the critic, whose gradients are then thrown away."""
    plays_against_a_critic(run, lambda opt, critic: contextlib.nullcontext())


@script(without=CRITICS)
def trains_an_adversary_and_says_so(run):
    plays_against_a_critic(run, lambda opt, critic: getattr(opt, "no_sync", contextlib.nullcontext)())


@script(without={"jax": "a tree has no hooks"})
def copies_the_model(run):
    """A copy is a teacher: the parameters' hooks do not go with it."""
    run.train()
    teacher = copy.deepcopy(run.model)
    for step in range(STEPS):
        run.zero_grad()
        loss_of(teacher, step, run.rank).backward()
        run.backward()
        run.step()


@script(
    refused={
        **dict.fromkeys(
            (*ON_STORE, "workers", "workers in step"), r"a KVOptimizer .*cannot be copied; .*state_dict\(\)"
        ),
        **dict.fromkeys(("trainer", "trainer on workers"), r"a Trainer .*cannot be copied; .*state_dict\(\)"),
    },
    without={"jax": "a script copies the tree"},
)
def copies_the_optimizer(run):
    run.train()
    copy.deepcopy(run.opt)


# --------------------------------------------------------------------------------------------------------------- optimizers


@script(optimizer="adam")
def sets_the_rate(run):
    for rate in (0.02, 0.02, 0.01, 0.005):
        run.set_rate(rate)
        run.train(1)


@script(
    optimizer="adam",
    without={"jax": "no torch.optim", "trainer": "set_learning_rate", "trainer on workers": "set_learning_rate"},
)
def has_a_schedule(run):
    warmup = torch.optim.lr_scheduler.LinearLR(run.opt, 0.25, 1.0, 2)
    decay = torch.optim.lr_scheduler.StepLR(run.opt, 2, 0.5)
    schedule = torch.optim.lr_scheduler.SequentialLR(run.opt, [warmup, decay], [2])
    for _ in range(6):
        run.train(1)
        schedule.step()


@script(optimizer="decay")
def decays_weights(run):
    run.train()


@script(
    optimizer="decay",
    groups=biases_apart,
    without={"jax": "lr_mult", "trainer": "lr_mult", "trainer on workers": "lr_mult"},
)
def has_rates_for_each_group(run):
    run.train()


@script(without={"jax": "no closure", "trainer": "no closure", "trainer on workers": "no closure"})
def gives_the_step_a_closure(run):
    for _ in range(STEPS):

        def closure():
            run.zero_grad()
            loss = run.loss()
            loss.backward()
            return loss

        assert run.step(closure) is not None


@script(without={"jax": "kv.save"})
def goes_back_to_a_checkpoint(run):
    """Within the same job, as a script does that has met a bad step."""
    run.train()
    file = io.BytesIO()
    torch.save({"model": run.model.state_dict(), "opt": run.save()}, file)
    run.train()
    found = torch.load(io.BytesIO(file.getvalue()), weights_only=True)
    run.model.load_state_dict(found["model"])
    run.load(found["opt"])
    run.number = STEPS
    run.train()


# ---------------------------------------------------------------------------------------------------------------- gradients


@script()
def makes_no_gradient_none(run):
    for _ in range(STEPS):
        run.zero_grad(set_to_none=False)
        run.backward()
        run.step()


@script(without={"trainer": "a step takes gradients away", "trainer on workers": "a step takes gradients away"})
def never_calls_zero_grad(run):
    for _ in range(STEPS):
        run.backward()
        run.step()


@script(without={"trainer": "a step takes gradients away", "trainer on workers": "a step takes gradients away"})
def steps_twice(run):
    run.zero_grad()
    run.backward()
    run.step()
    run.step()


@script()
def accumulates_gradients(run):
    for _ in range(STEPS):
        run.zero_grad()
        with run.no_sync():
            run.backward(0.5)
        run.backward(0.5)
        run.step()


@script(refused={"store": "inside `with opt.no_sync", "workers": "inside `with opt.no_sync"})
def accumulates_without_no_sync(run):
    for _ in range(STEPS):
        run.zero_grad()
        run.backward(0.5)
        run.backward(0.5)
        run.step()


@script(without=NOT_MLP)
def keeps_the_graph_for_a_second_backward(run):
    for _ in range(STEPS):
        run.zero_grad()
        with run.no_sync():
            loss = run.loss()
            loss.backward(retain_graph=True)
        loss = loss + run.loss()
        loss.backward()
        run.step()


@script(loss=loss_with_penalty, without=NOT_MLP)
def penalizes_gradients(run):
    run.train()


@script(without=NOT_MLP)
def changes_gradients_in_hooks(run):
    for parameter in run.model.parameters():
        parameter.register_hook(lambda grad: grad.clamp(-0.05, 0.05))
    run.train()


@script(
    model=Table,
    optimizer="plain",
    refused=dict.fromkeys(
        (*ON_STORE, "workers", "workers in step", "trainer", "trainer on workers"),
        r"is sparse.*Embedding\(sparse=False\)",
    ),
    without=NOT_MLP,
)
def has_sparse_gradients(run):
    run.train()


# --------------------------------------------------------------------------------------------------- decisions by gradients


@script(refused={**on_store(NO_REDUCE), **TRAINER_REDUCE}, without=NO_JAX)
def clips_by_norm(run):
    for _ in range(STEPS):
        run.zero_grad()
        run.backward()
        run.reduce()
        torch.nn.utils.clip_grad_norm_(run.model.parameters(), 0.05)
        run.step()


@script(refused={**on_store(NO_REDUCE), **TRAINER_REDUCE}, without=NO_JAX)
def clips_by_value(run):
    for _ in range(STEPS):
        run.zero_grad()
        run.backward()
        run.reduce()
        torch.nn.utils.clip_grad_value_(run.model.parameters(), 0.03)
        run.step()


@script(optimizer="clipping", without={"workers": "clip_grad_value_", "workers in step": "clip_grad_value_"})
def clips_in_the_optimizer(run):
    for _ in range(STEPS):
        run.zero_grad()
        run.backward()
        if isinstance(run, WithDDP):
            torch.nn.utils.clip_grad_value_(run.model.parameters(), 0.03)
        run.step()


def is_bad(run, step, bad_steps):
    return step in bad_steps and run.rank == 1


@script(
    refused={**on_store(NO_REDUCE), **TRAINER_REDUCE},
    without={**NO_JAX, "trainer on workers": "no torch.optim.Optimizer"},
)
def scales_its_loss(run, bad_steps=(1,)):
    """A worker has an infinite gradient: all workers skip the step and continue with half of the scale."""
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
    for step in range(4):
        run.zero_grad()
        run.backward(scale=float(scaler.get_scale()) * (float("inf") if is_bad(run, step, bad_steps) else 1.0))
        run.reduce()
        scaler.scale(torch.ones(()))  # tells it the device
        scaler.step(run.opt)
        scaler.update()
    assert scaler.get_scale() == 8.0 * 0.5 ** len(bad_steps)


@script(
    refused={**on_store(NO_REDUCE), **TRAINER_REDUCE},
    without={**NO_JAX, "trainer on workers": "no torch.optim.Optimizer"},
)
def clips_what_the_scaler_has_unscaled(run):
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
    for _ in range(3):
        run.zero_grad()
        run.backward(scale=float(scaler.get_scale()))
        run.reduce()
        scaler.scale(torch.ones(()))
        scaler.unscale_(run.opt)
        torch.nn.utils.clip_grad_norm_(run.model.parameters(), 0.05)
        scaler.step(run.opt)
        scaler.update()


@script(refused={**on_store(NO_REDUCE), **TRAINER_REDUCE}, without=NO_JAX)
def skips_gradients_that_are_not_finite(run):
    for step in range(4):
        run.zero_grad()
        run.backward(scale=float("nan") if is_bad(run, step, (2,)) else 1.0)
        run.reduce()
        if all(torch.isfinite(p.grad).all() for p in run.model.parameters()):
            run.step()


@script(without=NO_JAX)
def takes_part_with_zeros(run):
    """A worker whose loss is NaN computes a backward pass of zeros, so that it takes part in each step."""
    for step in range(4):
        run.zero_grad()
        loss = run.loss() * (float("nan") if is_bad(run, step, (2,)) else 1.0)
        if loss.isnan():
            loss = sum((parameter * 0.0).sum() for parameter in run.model.parameters())
        loss.backward()
        run.step()


@script(without=NO_JAX)
def steps_without_a_backward_pass(run):
    """A worker whose loss is NaN only calls step; under DistributedDataParallel it needs the backward pass."""
    for step in range(4):
        run.zero_grad()
        loss = run.loss() * (float("nan") if is_bad(run, step, (2,)) else 1.0)
        if not loss.isnan():
            loss.backward()
        elif isinstance(run, WithDDP):
            sum((parameter * 0.0).sum() for parameter in run.model.parameters()).backward()
        run.step()


@script(
    refused={**on_store(NO_REDUCE), **TRAINER_REDUCE},
    without={**NO_JAX, "trainer on workers": "a step takes gradients away"},
)
def minimizes_sharpness(run):
    """Two backward passes for each step: the second one at the top of the neighbourhood."""
    for step in range(STEPS):
        run.zero_grad()
        run.backward()
        run.reduce()
        params = list(run.model.parameters())
        norm = torch.nn.utils.get_total_norm([p.grad for p in params])
        moves = [p.grad * (0.05 / norm) for p in params]
        with torch.no_grad():
            torch._foreach_add_(params, moves)
        run.zero_grad()
        run.number = step
        run.backward()
        run.reduce()
        with torch.no_grad():
            torch._foreach_sub_(params, moves)
        run.step()


# --------------------------------------------------------------------------------------------------------------- the truth


def result_of(run):
    found = {name: p.detach().clone() for name, p in run.model.named_parameters()}
    return {**found, **getattr(run, "result", {})}


@functools.cache
def truths():
    """Return the results of all scripts under DistributedDataParallel, by name; an error as its text."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, __file__]
        ranks = [subprocess.Popen([*command, str(rank), folder], stdin=subprocess.DEVNULL) for rank in range(WORKERS)]
        try:
            for process in ranks:
                process.wait(DDP_SECONDS)
        finally:
            for process in ranks:
                process.kill()
                process.wait()
        return torch.load(pathlib.Path(folder) / "0.pt", weights_only=True)


def truth_of(name):
    found = truths()[name]
    assert isinstance(found, dict), f"{name} under DistributedDataParallel: {found}"
    return found


def main(rank, folder):
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    torch.set_num_threads(1)
    folder = pathlib.Path(folder)
    torch.distributed.init_process_group(
        "gloo",
        init_method=f"file://{folder / 'meeting'}",
        rank=rank,
        world_size=WORKERS,
        timeout=datetime.timedelta(seconds=20),
    )
    found = {}
    for name, one in SCRIPTS.items():
        try:
            run = WithDDP(one, rank)
            one.body(run)
            found[name] = result_of(run)
        except Exception as error:
            found[name] = f"{type(error).__name__}: {error}"
    if rank == 0:
        torch.save(found, folder / "0.pt")
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
