"""Rank 0 decides the hyperparameters of a distributed store; other ranks may only set the same ones."""

import math

import numpy as np
import pytest
import tensorkv as mx


def sgd(**options):
    return mx.optimizer.SGD(**{"learning_rate": 0.5, "wd": 0, **options})


def step(kv, key=0):
    """Push a gradient of 1 and pull."""
    out = mx.nd.zeros((1,))
    kv.pushpull(key, mx.nd.ones((1,)), out=out)
    return out.asscalar()


def test_a_change_that_every_worker_makes_is_taken():
    def act(kv):
        kv.init(0, mx.nd.zeros((1,)))
        optimizer = sgd()
        kv.set_optimizer(optimizer)
        seen = [step(kv)]
        optimizer.set_learning_rate(0.25)
        return [*seen, step(kv)]

    with mx.testing.cluster(workers=2) as job:
        assert job.run(act) == [[-1.0, -1.5]] * 2


def test_a_change_of_another_rank_is_an_error_that_says_who_may():
    def act(kv):
        kv.init(0, mx.nd.zeros((1,)))
        optimizer = sgd()
        kv.set_optimizer(optimizer)
        if kv.rank == 1:
            optimizer.set_learning_rate(0.1)
        with pytest.raises(mx.errors.InvalidArgumentError) as caught:
            step(kv)
        optimizer.set_learning_rate(0.25)
        return str(caught.value), step(kv)

    with mx.testing.cluster(workers=2) as job:
        for text, value in job.run(act):
            assert "pushpull 0: learning_rate is 0.5 on worker 0 and 0.1 on worker 1; worker 0 decides for all" in text
            assert value == -0.5, "the round that failed has updated nothing"


def test_another_optimizer_of_another_rank_is_an_error_at_its_first_push():
    def act(kv):
        kv.init(0, mx.nd.zeros((1,)))
        kv.set_optimizer(sgd() if kv.rank == 0 else sgd(learning_rate=0.125))
        with pytest.raises(mx.errors.InvalidArgumentError, match=r"0\.5 on worker 0 and 0\.125 on worker 1"):
            step(kv)

    def act_of_another_kind(kv):
        kv.init(0, mx.nd.zeros((1,)))
        kv.set_optimizer(sgd() if kv.rank == 0 else mx.optimizer.Adam())
        with pytest.raises(mx.errors.InvalidArgumentError, match="worker 1 has an optimizer of . hyperparameters"):
            step(kv)

    with mx.testing.cluster(workers=2) as job:
        job.run(act)
    with mx.testing.cluster(workers=2) as job:
        job.run(act_of_another_kind)


def test_another_optimizer_with_the_same_hyperparameters_is_an_error_too():
    def act(kv):
        kv.init(0, mx.nd.zeros((1,)))
        kv.set_optimizer((mx.optimizer.SGD if kv.rank == 0 else mx.optimizer.NAG)(learning_rate=0.5, momentum=0.9))
        with pytest.raises(mx.errors.InvalidArgumentError, match="worker 1 has another optimizer than worker 0"):
            step(kv)
        if kv.rank == 1:
            kv.set_optimizer(mx.optimizer.SGD(learning_rate=0.5, momentum=0.9))
        return step(kv)

    with mx.testing.cluster(workers=2) as job:
        assert job.run(act) == [-1.0, -1.0]


@pytest.mark.parametrize("is_set_by_all", [False, True])
def test_only_rank_0_has_to_set_the_optimizer_or_to_change_it(is_set_by_all):
    def act(kv):
        kv.init(0, mx.nd.zeros((1,)))
        optimizer = sgd()
        if kv.rank == 0 or is_set_by_all:
            kv.set_optimizer(optimizer)
        if kv.rank == 0:
            optimizer.set_learning_rate(1)
        seen = [step(kv)]
        if kv.rank == 0:
            optimizer.set_learning_rate(0.25)
        return [*seen, step(kv)]

    with mx.testing.cluster(workers=2) as job:
        assert job.run(act) == [[-2.0, -2.5]] * 2


class Own(mx.optimizer.SGD):
    """An optimizer with an update of its own."""

    def update(self, index, weight, grad, state):
        weight[:] = weight - self._get_lr(index) * grad


def with_multiplier(optimizer, value):
    optimizer.set_lr_mult({0: value})
    return optimizer


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: sgd(learning_rate=math.nan), "learning_rate: nan"),
        (lambda: sgd(momentum=math.nan), "momentum: nan"),
        (lambda: sgd(lr_scheduler=lambda count: math.nan), "learning_rate: nan"),
        (lambda: sgd(lr_scheduler=mx.lr_scheduler.FactorScheduler(2, base_lr=math.nan)), "base_lr: nan"),
        (lambda: Own(learning_rate=np.float32("nan")), "learning_rate: nan"),
        (lambda: with_multiplier(sgd(param_idx2name={0: "w"}), math.nan), "lr_mult of 0: nan"),
    ],
)
def test_a_hyperparameter_that_is_nan_is_an_error_that_names_it(make, said):
    with mx.kv.create() as kv:
        kv.init(0, mx.nd.ones((1,)))
        with pytest.raises(mx.errors.InvalidArgumentError, match=f"{said}.*, a number is needed"):
            kv.set_optimizer(make())
            kv.push(0, mx.nd.ones((1,)))
        assert kv.pull(0).asscalar() == 1


def program():
    """Return one that has no hyperparameters."""
    return mx.Program("program add\nw = add value sum\nvalue <- w")


def traced(key, grad, value):
    """Add, as a function that becomes a program."""
    value[:] = value + grad


@pytest.mark.parametrize("make", [program, lambda: traced], ids=["program", "function"])
def test_a_program_without_hyperparameters_that_rank_0_has_not_set_is_an_error_of_the_round(make):
    updater = make()

    def act(kv):
        kv.init(0, mx.nd.ones((1,)))
        if kv.rank == 1:
            kv.set_updater(updater)
        for _ in range(2):
            with pytest.raises(
                mx.errors.InvalidArgumentError, match="worker 1 has set an optimizer, and worker 0, .* has set none"
            ):
                step(kv)
        kv.barrier()
        kv.set_updater(updater)
        return step(kv)

    with mx.testing.cluster(workers=2) as job:
        assert job.run(act) == [3.0] * 2


def test_a_program_without_hyperparameters_beside_one_that_has_some_is_an_error_of_the_round():
    def act(kv):
        kv.init(0, mx.nd.zeros((1,)))
        kv.set_optimizer(program() if kv.rank == 1 else sgd())
        with pytest.raises(mx.errors.InvalidArgumentError, match="worker 1 has an optimizer of 0 hyperparameters"):
            step(kv)

    with mx.testing.cluster(workers=2) as job:
        job.run(act)


@pytest.mark.parametrize("make", [program, mx.optimizer.Adam], ids=["none", "other"])
def test_an_asynchronous_push_under_another_program_than_that_of_rank_0_is_an_error(make):
    with mx.testing.cluster(workers=2, mode="dist_async") as job:
        stores = [job.store(rank) for rank in range(2)]
        for ticket in [kv.init(0, mx.nd.ones((1,)), async_op=True) for kv in stores]:
            ticket.wait()
        stores[0].set_optimizer(sgd())
        stores[1].set_optimizer(make())
        with pytest.raises(mx.errors.InvalidArgumentError, match=r"worker 1 has an optimizer of \d+ hyperparameters"):
            stores[1].push(0, mx.nd.full((1,), 7), async_op=True).wait()
        assert stores[0].pull(0).asscalar() == 1


@pytest.mark.parametrize("is_late", [False, True])
def test_an_optimizer_that_rank_0_has_not_set_is_an_error_of_the_round(is_late):
    def act(kv):
        kv.init(0, mx.nd.zeros((1,)))
        seen = [step(kv)] if is_late else []
        kv.barrier()
        if kv.rank == 1:
            kv.set_optimizer(sgd())
        with pytest.raises(
            mx.errors.InvalidArgumentError, match="worker 1 has set an optimizer, and worker 0, .* has set none"
        ):
            step(kv)
        return [*seen, kv.round(0)]

    with mx.testing.cluster(workers=2) as job:
        assert job.run(act) == [[2.0, 2], [2.0, 2]] if is_late else [[1], [1]]


def test_an_optimizer_that_rank_0_has_not_set_is_an_error_of_an_asynchronous_push():
    with mx.testing.cluster(workers=2, mode="dist_async") as job:
        stores = [job.store(rank) for rank in range(2)]
        for ticket in [kv.init(0, mx.nd.ones((1,)), async_op=True) for kv in stores]:
            ticket.wait()
        stores[1].set_optimizer(sgd())
        with pytest.raises(mx.errors.InvalidArgumentError, match="push 0: worker 1 has set an optimizer"):
            stores[1].push(0, mx.nd.full((1,), 7), async_op=True).wait()
        assert stores[0].pull(0).asscalar() == 1
        stores[0].set_optimizer(sgd())
        stores[1].push(0, mx.nd.ones((1,)), async_op=True).wait()
        assert stores[1].pull(0).asscalar() == 0.5
