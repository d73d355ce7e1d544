"""Things that training scripts do, with two workers of a store beside DistributedDataParallel.

`torch_scripts` has the scripts. Each one has the same result through a store, or every worker gets an error that says what to
write instead. If the store has the parameters, a script that writes into them calls `assign`, and is refused without.
"""

import contextlib
import copy
import io
import pathlib
import pickle
import re

import numpy as np
import pytest
import tensorkv as mx

torch = pytest.importorskip("torch")
jax = pytest.importorskip("jax")
import tensorkv.jax  # noqa: E402
import tensorkv.torch  # noqa: E402
from torch_scripts import (  # noqa: E402
    LR,
    MOMENTUM,
    SCRIPTS,
    STEPS,
    WORKERS,
    WRITES,
    Run,
    batch_of,
    loss_of,
    mlp,
    result_of,
    truth_of,
)

pytestmark = pytest.mark.framework

OURS = {
    "momentum": lambda: mx.optimizer.SGD(learning_rate=LR, momentum=MOMENTUM),
    "plain": lambda: mx.optimizer.SGD(learning_rate=LR),
    "decay": lambda: mx.optimizer.SGD(learning_rate=LR, momentum=MOMENTUM, wd=0.05),
    "adam": lambda: mx.optimizer.Adam(learning_rate=0.02),
    "clipping": lambda: mx.optimizer.SGD(learning_rate=LR, momentum=MOMENTUM, clip_gradient=0.03),
}


class OnStore(Run):
    """A training whose store runs the optimizer."""

    has_store = True
    overlap = True

    def __init__(self, script, kv, assigns=True):
        self.kv, self.assigns, self.made = kv, assigns, 0
        super().__init__(script, kv.rank)

    def optimizer(self):
        return OURS[self.script.optimizer]()

    def make(self):
        super().make()
        self.made += 1
        self.kv.set_updater(None)
        self.opt = self.of(self.script.groups(self.model), self.optimizer(), f"{self.made}.")

    def of(self, groups, optimizer, prefix):
        return mx.torch.KVOptimizer(groups, self.kv, optimizer, overlap=self.overlap, prefix=prefix)

    def no_sync(self):
        return self.opt.no_sync()

    def reduce(self):
        self.opt.reduce()

    def wrote(self):
        if self.assigns:
            self.opt.assign()

    def beside(self, model):
        return model, self.of(model.named_parameters(), None, "beside.")


class OnStoreInStep(OnStore):
    """The same that pushes in the step."""

    overlap = False


class OnWorkers(OnStore):
    """A training whose workers run torch.optim on means that the store makes."""

    has_store = False

    def optimizer(self):
        return self.torchs()

    def wrote(self):
        pass

    def beside(self, model):
        return model, self.of(model.named_parameters(), torch.optim.SGD(model.parameters(), LR, MOMENTUM), "beside.")


class OnWorkersInStep(OnWorkers):
    """The same that pushes in the step."""

    overlap = False


class WithTrainer(OnStore):
    """A training by `Trainer`."""

    def of(self, groups, optimizer, prefix):
        params = {f"{prefix}{name}": p for name, p in groups}
        return mx.torch.Trainer(params, optimizer, kvstore=self.kv, update_on_kvstore=self.has_store)

    def zero_grad(self, **how):
        self.model.zero_grad(**how)

    def step(self):
        self.opt.step(WORKERS, ignore_stale_grad=True)

    def no_sync(self):
        return contextlib.nullcontext()

    def reduce(self):
        self.opt.allreduce_grads()

    def set_rate(self, rate):
        self.opt.set_learning_rate(rate)


class WithTrainerOnWorkers(WithTrainer):
    """A training by a `Trainer` that runs the optimizer on each worker."""

    has_store = False
    is_reduced = False

    def wrote(self):
        pass

    def reduce(self):
        self.opt.allreduce_grads()
        for parameter in self.model.parameters():
            parameter.grad /= WORKERS
        self.is_reduced = True

    def zero_grad(self, **how):
        self.is_reduced = False
        super().zero_grad(**how)

    def step(self):
        if self.is_reduced:
            self.opt.update(1)
        else:
            super().step()
        self.is_reduced = False


class WithJax(OnStore):
    """A training by JAX, whose parameters are shown to the script as those of a model of PyTorch."""

    def make(self):
        self.kv.set_updater(None)
        self.ours = self.optimizer()
        self.opt = mx.jax.KVOptimizer(self.tree(), self.kv, self.ours)
        self.show(self.opt.params)
        self.grads = None

    def tree(self):
        return {name: jax.numpy.array(p.detach().numpy()) for name, p in self.model.named_parameters()}

    def show(self, tree):
        with torch.no_grad():
            for name, parameter in self.model.named_parameters():
                parameter.copy_(torch.from_numpy(np.array(tree[name])))

    def zero_grad(self, **how):
        self.grads = None

    def backward(self, scale=1.0):
        x = jax.numpy.array(batch_of(self.number, self.rank).numpy())
        self.number += 1

        def loss(tree):
            hidden = jax.numpy.tanh(x @ tree["0.weight"].T + tree["0.bias"])
            return scale * ((hidden @ tree["2.weight"].T + tree["2.bias"] - x[:, :2]) ** 2).mean()

        grads = jax.grad(loss)(self.tree())
        self.grads = grads if self.grads is None else jax.tree_util.tree_map(jax.numpy.add, self.grads, grads)

    def step(self):
        self.show(self.opt.step(self.grads))

    def no_sync(self):
        return contextlib.nullcontext()

    def wrote(self):
        self.opt.assign(self.tree())

    def set_rate(self, rate):
        self.ours.set_learning_rate(rate)


KINDS = {
    "store": OnStore,
    "store in step": OnStoreInStep,
    "workers": OnWorkers,
    "workers in step": OnWorkersInStep,
    "trainer": WithTrainer,
    "trainer on workers": WithTrainerOnWorkers,
    "jax": WithJax,
}
CASES = [
    pytest.param(script, kind, id=f"{script.name}-{kind.replace(' ', '-')}")
    for script in SCRIPTS.values()
    for kind in KINDS
    if kind not in script.without
]


def together(work, **options):
    with mx.testing.cluster(WORKERS, 2, patience=30, **options) as job:
        return job.run(work)


def ends_of(script, kind):
    """Return the result of each worker: its parameters, or the error that its script has met."""

    def work(kv):
        run = None
        try:
            run = KINDS[kind](script, kv)
            script.body(run)
        except mx.errors.KVError as error:
            kv.barrier()  # the error is each worker's own, not that of one that has left
            return error
        return result_of(run)

    return together(work)


@pytest.mark.parametrize(("script", "kind"), CASES)
def test_a_script_does_the_same_as_under_ddp_or_says_what_to_write(script, kind):
    ends = ends_of(script, kind)
    if kind in script.refused:
        for end in ends:
            with pytest.raises(mx.errors.KVError, match=script.refused[kind]):
                raise end if isinstance(end, BaseException) else AssertionError(f"a result: {end}")
        return
    for end in ends:
        if isinstance(end, BaseException):
            raise end
    truth = truth_of(script.name)
    for name, wanted in truth.items():
        torch.testing.assert_close(ends[0][name], wanted, rtol=script.tolerance, atol=script.tolerance)
        if name in ends[1]:
            assert torch.equal(ends[0][name], ends[1][name])


# Rows of the table in docs/torch.md, and their scripts.
ROWS = {
    "loads, clamps, prunes, averages, re-initialises, replaces `.data`": WRITES,
    "evaluates with other weights and puts the old ones back": ["evaluates_with_averaged_weights"],
    "begins with another seed on each worker": ["begins_with_another_seed_on_each_worker"],
    "has frozen parameters and buffers": ["trains_beside_frozen_parameters", "has_running_statistics"],
    "freezes or unfreezes layers later": ["freezes_a_layer", "unfreezes_a_layer"],
    "`add_param_group`": ["adds_a_group"],
    "`lr` and `weight_decay` for each group": ["has_rates_for_each_group"],
    "schedulers of `torch.optim`": ["has_a_schedule"],
    "closure in `step`": ["gives_the_step_a_closure"],
    "tied weights, weight norm, spectral norm, checkpointed layers": [
        "ties_two_weights",
        "has_a_weight_norm",
        "has_a_spectral_norm",
        "recomputes_in_the_backward_pass",
    ],
    "BatchNorm layers": ["has_running_statistics"],
    "dropout with a seed for each worker": ["drops_out_by_seed"],
    "`torch.compile`": ["compiles_the_model"],
    "`torch.autocast` with bfloat16": ["computes_in_bfloat16"],
    "parameters of bfloat16": ["has_bfloat16_parameters"],
    "converts or resizes parameters later": ["converts_the_model"],
    "replaces a `Parameter` and makes the optimizer anew": ["replaces_a_parameter"],
    "`copy.deepcopy` of the model": ["copies_the_model"],
    "copies or pickles the optimizer": ["copies_the_optimizer"],
    "`torch.save` and `load_state_dict`": ["goes_back_to_a_checkpoint"],
    "accumulates gradients": ["accumulates_gradients"],
    "a second backward pass, gradient penalties, `retain_graph`": [
        "keeps_the_graph_for_a_second_backward",
        "penalizes_gradients",
    ],
    "never calls `zero_grad`, calls `step` twice": ["never_calls_zero_grad", "steps_twice"],
    "throws gradients away (the critic of a GAN)": ["trains_an_adversary_and_says_so"],
    "changes gradients in hooks of parameters": ["changes_gradients_in_hooks"],
    "uses another branch of the model on each worker": ["uses_another_branch_on_each_worker"],
    "clips each element": ["clips_in_the_optimizer", "clips_by_value"],
    "clips by the norm of all parameters": ["clips_by_norm"],
    "uses `GradScaler`": ["scales_its_loss", "clips_what_the_scaler_has_unscaled"],
    "skips steps that are not finite": ["skips_gradients_that_are_not_finite"],
    "perturbs parameters within a step (SAM)": ["minimizes_sharpness"],
    "has sparse gradients": ["has_sparse_gradients"],
}
COLUMNS = {"store": ("store", "store in step"), "workers": ("workers", "workers in step"), "`Trainer`": ("trainer",)}


def test_each_row_of_the_docs_has_scripts_that_end_as_its_cells_say():
    page = (pathlib.Path(__file__).parents[2] / "docs" / "torch.md").read_text()
    part = page[page.index("### Scripts compared") :].partition("\n### ")[0]
    assert re.search(r"has (\d+) scripts", part)[1] == str(len(SCRIPTS))
    head, _, *lines = [line.strip("| ").split(" | ") for line in part.splitlines() if line.startswith("|")]
    assert head == ["a script", *COLUMNS]
    table = {line[0]: line[1:] for line in lines}
    assert list(table) == list(ROWS) and all(ROWS.values())
    for row, cells in table.items():
        scripts = [SCRIPTS[one if isinstance(one, str) else one.__name__] for one in ROWS[row]]
        for place, (column, kinds) in enumerate(COLUMNS.items()):
            cell = cells[0] if cells[place] == "the same" else cells[place]
            for one in scripts:
                is_refused = [kind in one.refused for kind in kinds]
                if cell.startswith("an error"):
                    assert all(is_refused), (row, column, one.name)
                elif cell.startswith(("works", "call `assign`", "inside `no_sync`", "equal within")):
                    assert not any(is_refused), (row, column, one.name)
                elif cell.startswith("has no"):
                    assert all(kind in one.without for kind in kinds), (row, column, one.name)


TRAINS = SCRIPTS["trains"]


def names(value):
    return getattr(value, "__name__", None)


# ------------------------------------------------------------------------------------------------------ writes, checkpoints


@pytest.mark.parametrize("kind", [OnStore, OnStoreInStep, WithTrainer], ids=names)
@pytest.mark.parametrize("write", WRITES, ids=names)
def test_a_write_without_assign_is_refused_by_the_next_step_on_every_rank(write, kind):
    def work(kv):
        run = kind(TRAINS, kv, assigns=False)
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


@pytest.mark.parametrize("kind", [OnStore, OnStoreInStep], ids=names)
def test_a_write_between_backward_and_step_is_refused_on_every_rank(kind):
    """torch.optim would change the written values; the store has others."""

    def work(kv):
        run = kind(TRAINS, kv, assigns=False)
        run.train(1)
        run.zero_grad()
        run.backward()
        with torch.no_grad():
            for parameter in run.model.parameters():
                parameter.mul_(0.5)  # weight decay by hand
        wanted = {name: p.detach().clone() for name, p in run.model.named_parameters()}
        with pytest.raises(mx.errors.FailedPreconditionError, match=r"changed since the last step.*call assign\(\)"):
            run.step()
        for name, parameter in run.model.named_parameters():
            assert torch.equal(parameter, wanted[name])
        run.opt.assign()
        run.zero_grad()
        run.train()

    together(work)


@pytest.mark.parametrize("order", ["model first", "optimizer first"])
@pytest.mark.parametrize("kind", [OnStore, OnStoreInStep, OnWorkers, WithTrainer], ids=names)
def test_a_checkpoint_of_torch_resumes_in_another_job(kind, order):
    def begins(kv):
        run, file = kind(TRAINS, kv), io.BytesIO()
        run.train()
        torch.save({"model": run.model.state_dict(), "opt": run.opt.state_dict()}, file)
        return file.getvalue()

    saved = together(begins)[0]

    def goes_on(kv):
        run, found = kind(TRAINS, kv), torch.load(io.BytesIO(saved), weights_only=True)
        if order == "model first":
            run.model.load_state_dict(found["model"])
            run.opt.load_state_dict(found["opt"])
        else:
            run.opt.load_state_dict(found["opt"])
            run.model.load_state_dict(found["model"])
            run.wrote()
        run.number = STEPS
        run.train()
        return result_of(run)

    found = together(goes_on)
    for name, wanted in truth_of("trains").items():
        torch.testing.assert_close(found[0][name], wanted, rtol=2e-5, atol=2e-5)
        assert torch.equal(found[0][name], found[1][name])


def narrow_training(kind, kv, dtype):
    """Return a parameter of 16 bits, its optimizer, and a function that makes steps smaller than the rounding of the parameter."""
    w = torch.nn.Parameter(torch.ones(3, dtype=dtype))
    v = torch.nn.Parameter(torch.ones(2))
    sgd = mx.optimizer.SGD(learning_rate=1.0, momentum=0.5, multi_precision=True)
    params = [("w", w), ("v", v)]
    opt = mx.torch.KVOptimizer(params, kv, sgd) if kind == "optimizer" else mx.torch.Trainer(params, sgd, kvstore=kv)

    def go(count):
        for _ in range(count):
            w.grad, v.grad = torch.full((3,), -(2.0**-12), dtype=dtype), torch.ones(2)
            opt.step(*([] if kind == "optimizer" else [kv.num_workers]))

    return w, opt, go


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("kind", ["optimizer", "trainer"])
@pytest.mark.parametrize("workers", [0, 2])
def test_the_masters_of_a_checkpoint_come_back(workers, kind, dtype):
    def job(body):
        return together(body)[0] if workers else body(mx.kv.create())

    def at_once(kv):
        w, _, go = narrow_training(kind, kv, dtype)
        go(20)
        return w.tolist()

    def from_saved(saved, factor=1):
        def body(kv):
            w, opt, go = narrow_training(kind, kv, dtype)
            if saved is not None:
                found = torch.load(io.BytesIO(saved), weights_only=True)
                w.data.copy_(found["w"] * factor)
                opt.load_state_dict(found["opt"])
            go(2)
            file = io.BytesIO()
            torch.save({"w": w.data, "opt": opt.state_dict()}, file)
            return w.tolist(), file.getvalue()

        return job(body)

    wanted, (found, saved) = job(at_once), from_saved(None)
    for _ in range(9):
        found, saved = from_saved(saved)
    assert found == wanted and found[0] > 1
    assert from_saved(saved, factor=2)[0][0] > 1.9  # other parameters than those of the states: they count


def test_a_trainers_own_states_are_those_of_its_parameters_alone():
    model = mlp()
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
    model = mlp()
    opt = mx.torch.KVOptimizer(model.named_parameters(), mx.kv.create(), mx.optimizer.SGD(momentum=0.9))
    with pytest.raises(mx.errors.InvalidArgumentError, match="no entry 'store'"):
        opt.load_state_dict(torch.optim.SGD(model.parameters(), lr=1).state_dict())
    found = opt.state_dict()
    found["store"] = None
    with pytest.raises(mx.errors.InvalidArgumentError, match="another rank than 0 made it"):
        opt.load_state_dict(found)


# --------------------------------------------------------------------------------------------------- decisions about gradients


def clips_in_place(run):
    torch.nn.utils.clip_grad_norm_(run.model.parameters(), 0.05)


def replaces_gradients(run):
    for parameter in run.model.parameters():
        parameter.grad = parameter.grad / 2


@pytest.mark.parametrize("kind", [OnStoreInStep, OnWorkers], ids=names)
def test_a_scaler_that_sees_one_workers_gradients_is_refused(kind):
    def work(kv):
        run = kind(TRAINS, kv)
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
        run = OnWorkers(TRAINS, kv)
        run.backward()
        run.opt.reduce()
        with pytest.raises(mx.errors.FailedPreconditionError, match="mean of all workers already"):
            run.opt.reduce()
        with pytest.raises(mx.errors.FailedPreconditionError, match=r"between reduce\(\) and step\(\)"):
            run.backward()
        run.opt.zero_grad()
        run.train(1)

    together(work)
    model = mlp()
    opt = mx.torch.KVOptimizer(model.named_parameters(), mx.kv.create(), mx.optimizer.SGD())
    with pytest.raises(mx.errors.FailedPreconditionError, match="the store changes the parameters"):
        opt.reduce()


def clips_through_data(run):
    for parameter in run.model.parameters():
        parameter.grad.data.clamp_(-1e-3, 1e-3)


def clips_in_numpy(run):
    for parameter in run.model.parameters():
        values = parameter.grad.numpy()
        values.clip(-1e-3, 1e-3, out=values)


@pytest.mark.parametrize("change", [clips_in_place, replaces_gradients, clips_through_data, clips_in_numpy], ids=names)
@pytest.mark.parametrize("kind", [OnStore, OnStoreInStep, OnWorkers, OnWorkersInStep], ids=names)
def test_a_change_of_one_workers_gradients_is_refused_on_every_rank(kind, change):
    """DistributedDataParallel has averaged them at this place; here each worker would change its own."""
    if kind is OnWorkers and change in (clips_through_data, clips_in_numpy):
        pytest.skip("the sum is written into the same memory meanwhile")
    remedy = "clip_gradient=" if kind.has_store else r"call opt\.reduce\(\) before the change"

    def work(kv):
        run = kind(TRAINS, kv)
        run.train(1)
        before = result_of(run)
        run.zero_grad()
        run.backward()
        change(run)
        with pytest.raises(mx.errors.FailedPreconditionError, match=f"has been changed between backward.*{remedy}"):
            run.step()
        kv.barrier()
        after = result_of(run)
        assert all(torch.equal(after[name], before[name]) for name in before)

    together(work)


@pytest.mark.parametrize("kind", [OnStoreInStep, OnWorkersInStep], ids=names)
def test_one_worker_changes_its_gradients_as_with_torch_optim(kind):
    alone = mlp()
    opt = torch.optim.SGD(alone.parameters(), LR, MOMENTUM)
    run = kind(TRAINS, mx.kv.create())
    for step in range(STEPS):
        opt.zero_grad()
        loss_of(alone, step, 0).backward()
        torch.nn.utils.clip_grad_norm_(alone.parameters(), 0.05)
        opt.step()
        run.zero_grad()
        run.backward()
        clips_in_place(run)
        run.step()
    for found, wanted in zip(run.model.parameters(), alone.parameters(), strict=True):
        torch.testing.assert_close(found, wanted, rtol=2e-5, atol=2e-5)


def test_each_push_of_an_asynchronous_store_is_an_update_of_its_own_and_may_be_clipped():
    def work(kv):
        run = OnStoreInStep(TRAINS, kv)
        kv.barrier()
        run.zero_grad()
        run.backward()
        clips_in_place(run)
        run.step()

    together(work, mode="dist_async")


def test_a_gradient_that_no_backward_pass_has_made_is_taken():
    def work(kv):
        run = OnStoreInStep(SCRIPTS["decays_weights"], kv)
        for parameter in run.model.parameters():
            parameter.grad = torch.full_like(parameter, kv.rank + 1.0)
            parameter.grad /= 3
        run.step()
        return result_of(run)

    wanted = mlp()
    for parameter in wanted.parameters():
        parameter.grad = torch.full_like(parameter, 0.5)
    torch.optim.SGD(wanted.parameters(), LR, weight_decay=0.05).step()
    for name, parameter in wanted.named_parameters():
        torch.testing.assert_close(together(work)[0][name], parameter.detach())


def test_a_worker_that_makes_fewer_steps_ends_the_others_with_words():
    """DistributedDataParallel pairs the gradients of different steps, and then waits."""
    errors = {}

    def work(kv):
        run = OnStore(TRAINS, kv)
        try:
            for step in range(4):
                run.zero_grad()
                loss = run.loss()
                if step == 1 and kv.rank == 1:  # if loss.isnan()
                    continue
                loss.backward()
                run.step()
        except mx.errors.UnavailableError as error:
            errors[kv.rank] = str(error)

    together(work)
    assert list(errors) == [0]
    assert re.search("worker 1 left after .* a worker that skips a step calls step\\(\\) without gradients", errors[0])


def test_an_optimizer_that_computes_gradients_by_itself_is_refused():
    model = mlp()
    with pytest.raises(mx.errors.UnimplementedError, match="LBFGS calls its closure .* kv.pushpull"):
        mx.torch.KVOptimizer(model.named_parameters(), mx.kv.create(), torch.optim.LBFGS(model.parameters()))


@pytest.mark.parametrize(
    ("optimizer", "words"),
    [
        (
            lambda model: mx.Program("program add\ny = add value sum\nvalue <- y\n"),
            "Program; .*KVOptimizer and kv.set_optimizer take",
        ),
        (lambda model: torch.optim.SGD(model.parameters()), "SGD; .*KVOptimizer takes it"),
        (lambda model: mx.optimizer.SGD, "type; a name or one of tkv.optimizer is needed"),
        (lambda model: None, "NoneType; a name or one of tkv.optimizer is needed"),
    ],
    ids=["a program", "one of PyTorch", "a class", "none"],
)
def test_a_trainer_refuses_an_optimizer_of_another_type(optimizer, words):
    model = mlp()
    with pytest.raises(mx.errors.InvalidArgumentError, match=f"Trainer: optimizer of type {words}"):
        mx.torch.Trainer(model.named_parameters(), optimizer(model))


@pytest.mark.parametrize("copies", [copy.copy, copy.deepcopy, pickle.dumps], ids=names)
@pytest.mark.parametrize("on_store", [True, False])
def test_an_optimizer_with_a_store_is_not_copied(copies, on_store):
    model, kv = mlp(), mx.kv.create()
    opt = mx.torch.KVOptimizer(
        model.named_parameters(), kv, mx.optimizer.SGD() if on_store else torch.optim.SGD(model.parameters())
    )
    with pytest.raises(mx.errors.UnimplementedError, match=r"a KVOptimizer .* cannot be copied; .*state_dict\(\)"):
        copies(opt)
    trainer = mx.torch.Trainer(mlp().named_parameters(), "sgd", kvstore=mx.kv.create(), update_on_kvstore=on_store)
    with pytest.raises(mx.errors.UnimplementedError, match=r"a Trainer .* cannot be copied; .*state_dict\(\)"):
        copies(trainer)


@pytest.mark.parametrize(
    "copies", [copy.deepcopy, lambda pair: pickle.loads(pickle.dumps(pair))], ids=["copy", "pickle"]
)
def test_a_trainer_without_a_store_is_copied_with_its_model(copies):
    model = mlp()
    trainer = mx.torch.Trainer(model.named_parameters(), "sgd", {"momentum": 0.9}, kvstore=None)

    def step(model, trainer):
        loss_of(model, 0, 0).backward()
        trainer.step(1)
        return [parameter.detach().clone() for parameter in model.parameters()]

    step(model, trainer)
    other, its_trainer = copies((model, trainer))
    for one, its in zip(step(model, trainer), step(other, its_trainer), strict=True):
        assert torch.equal(one, its)


@pytest.mark.parametrize("local", [True, False])
def test_a_second_optimizer_with_the_names_of_the_first_says_prefix(local):
    kv, model = mx.kv.create(), mlp()
    make = lambda ours: mx.torch.KVOptimizer(model.named_parameters(), kv, ours)  # noqa: E731
    keep = make(torch.optim.SGD(model.parameters(), 1) if local else mx.optimizer.SGD())
    with pytest.raises(mx.errors.AlreadyExistsError, match="'0.weight'.*prefix="):
        make(torch.optim.SGD(model.parameters(), 1) if local else None)
    del keep


def test_parameters_of_another_shape_are_refused_by_name():
    model = mlp()
    opt = mx.torch.KVOptimizer(model.named_parameters(), mx.kv.create(), mx.optimizer.SGD())
    model[2].bias.data = torch.zeros(3)
    for call in (opt.assign, opt.step):
        with pytest.raises(mx.errors.InvalidArgumentError, match=r"'2.bias' has shape \(3,\) now.* \(2,\)"):
            call()


def test_frozen_parameters_stay_each_workers_own():
    """DistributedDataParallel gives those of rank 0 to all."""

    def work(kv):
        model = mlp(seed=kv.rank)
        model[0].requires_grad_(False)
        opt = mx.torch.KVOptimizer(model.named_parameters(), kv, mx.optimizer.SGD())
        assert sorted(kv.keys()) == ["2.bias", "2.weight"]
        del opt
        return model

    models = together(work)
    assert torch.equal(models[1][0].weight, mlp(seed=1)[0].weight)
    assert torch.equal(models[1][2].weight, mlp(seed=0)[2].weight)


# ------------------------------------------------------------------------------------------------------------------ snapshots


@pytest.mark.parametrize("kind", [OnStore, OnStoreInStep, WithTrainer], ids=names)
def test_a_load_writes_the_parameters(kind, tmp_path):
    """The step after a load is that of a training that has not stopped, bit for bit."""

    def work(kv):
        run = kind(TRAINS, kv)
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
    model = mlp()
    opt = mx.torch.KVOptimizer(model.named_parameters(), kv, torch.optim.SGD(model.parameters(), lr=1))
    with pytest.raises(mx.errors.FailedPreconditionError, match="only sums of gradients; torch.save"):
        getattr(kv, verb)(tmp_path)
    del opt


def test_a_load_between_backward_and_step_is_refused(tmp_path):
    kv = mx.kv.create()
    model = mlp()
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


@pytest.mark.parametrize(
    ("decays", "moved"), [((0.0, -0.1), (0.0, 0.05)), ((0.0, 0.0), (0.0, 0.0)), ((-0.2, 0.1), (0.1, -0.05))]
)
def test_groups_may_have_any_weight_decays(decays, moved):
    params = [torch.nn.Parameter(torch.ones(1)) for _ in decays]
    named = [("ab"[i], p) for i, p in enumerate(params)]
    groups = [{"params": [one], "weight_decay": decay} for one, decay in zip(named, decays, strict=True)]
    opt = mx.torch.KVOptimizer(groups, mx.kv.create(), mx.optimizer.SGD(learning_rate=0.5))
    for parameter in params:
        parameter.grad = torch.zeros(1)
    opt.step()
    np.testing.assert_allclose([p.item() - 1 for p in params], moved, atol=1e-7)
    theirs = [torch.nn.Parameter(torch.ones(1)) for _ in decays]
    for group, parameter, decay in zip(opt.param_groups, theirs, decays, strict=True):
        group["weight_decay"] = -decay  # a script changes it later
        sgd = torch.optim.SGD([parameter], lr=0.5)
        for rate in (decay, -decay):
            sgd.param_groups[0]["weight_decay"] = rate
            parameter.grad = torch.zeros(1)
            sgd.step()
    opt.step()
    np.testing.assert_allclose([p.item() for p in params], [p.item() for p in theirs], atol=1e-7)


def test_a_parameter_elsewhere_is_refused_by_name():
    parameter = torch.nn.Parameter(torch.empty(1, device="meta"))
    with pytest.raises(
        mx.errors.UnimplementedError, match=r"KVOptimizer: 'w' is on meta; .* on the CPU and on NVIDIA GPUs"
    ):
        mx.torch.KVOptimizer([("w", parameter)], mx.kv.create(), mx.optimizer.SGD())


@pytest.mark.parametrize("who", ["optimizer", "trainer"])
def test_a_step_that_has_failed_is_not_taken_for_a_write(who, monkeypatch):
    kv, model = mx.kv.create(), mlp()
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
    model = mlp()
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
