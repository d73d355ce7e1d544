"""A function of `set_updater` that changes tensors of PyTorch or draws its random numbers is refused.

PyTorch is imported by the tests: the comparison of all objects takes longer with it.
"""

import types

import pytest
import tensorkv as mx

pytestmark = pytest.mark.framework


@pytest.fixture
def torch():
    return pytest.importorskip("torch")


def refuses(update, match):
    with mx.kv.create("dist_sync", bootstrap="self") as kv:
        kv.init("w", mx.nd.ones((4,)))
        with pytest.raises(mx.errors.InvalidArgumentError, match=match):
            kv.set_updater(update)


def counting_in(get):
    def update(key, grad, weight):
        count = get(key)
        count.data += 1
        weight -= (1.0 if count.reshape(-1)[0].abs().item() < 150 else 0.5) * grad

    return update


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int64", "complex64"])
@pytest.mark.parametrize("size", [1, 600])
def test_a_counter_in_the_data_of_a_tensor_is_refused_by_name(torch, dtype, size):
    """PyTorch does not count a write to `data` as a new version."""
    count = torch.zeros(size, dtype=getattr(torch, dtype))
    refuses(counting_in(lambda key: count), "a call changes count")


def test_a_counter_in_a_parameter_is_refused_by_name(torch):
    count = torch.nn.Parameter(torch.zeros(()))
    refuses(counting_in(lambda key: count), "a call changes count")


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "bool"])
def test_a_counter_behind_a_computed_name_is_refused(torch, dtype):
    count = torch.zeros(512, dtype=getattr(torch, dtype))
    box = types.SimpleNamespace(count_w=torch.nn.Parameter(count) if dtype == "float32" else count)

    def update(key, grad, weight):
        found = getattr(box, f"count_{key}")
        if dtype == "bool":
            found.data[int(found.sum())] = True
        else:
            found.data += 1
        weight -= 0.5 * grad

    refuses(update, "a call changes")


def test_tensors_that_a_function_only_reads_are_numbers_of_the_program(torch):
    rate = torch.nn.Parameter(torch.tensor(0.5))
    others = [torch.zeros(()), torch.zeros(0), torch.ones(4).to_sparse(), torch.zeros(1000), torch.ones(2, 2).mT]

    def update(key, grad, weight):
        if len(others) == 5:
            weight -= rate.item() * grad

    with mx.kv.create("dist_sync", bootstrap="self") as kv:
        kv.init("w", mx.nd.ones((4,)))
        kv.set_updater(update)
        kv.push("w", mx.nd.ones((4,)))
        assert kv.pull("w").asnumpy().tolist() == [0.5] * 4


def test_random_numbers_of_the_process_are_refused(torch):
    def update(key, grad, weight):
        weight -= (1.0 if torch.rand(()).item() < 2 else 0.5) * grad

    refuses(update, "a call changes PyTorch's random numbers")


def test_a_seed_of_the_process_is_refused_by_the_name_of_its_call(torch):
    def update(key, grad, weight):
        torch.manual_seed(0)
        weight -= torch.rand(()).item() * grad

    refuses(
        update, r"'w': a call changes PyTorch's random numbers by torch.manual_seed \(torch.Generator\(\).manual_seed"
    )


def test_a_seed_of_the_system_is_refused(torch):
    def update(key, grad, weight):
        random = torch.Generator()
        random.seed()
        weight -= (0.5 if torch.rand((), generator=random).item() < 2 else 0.25) * grad

    refuses(update, r"Generator.seed\(\)")


def test_a_generator_that_each_call_makes_is_a_number_of_the_program(torch):
    def update(key, grad, weight):
        number = torch.rand((), generator=torch.Generator().manual_seed(3)).item()
        weight -= (0.5 if number < 2 else 0.25) * grad

    with mx.kv.create("dist_sync", bootstrap="self") as kv:
        kv.init("w", mx.nd.ones((4,)))
        kv.set_updater(update)
        kv.push("w", mx.nd.ones((4,)))
        assert kv.pull("w").asnumpy().tolist() == [0.5] * 4


def test_a_generator_is_refused_by_name(torch):
    random = torch.Generator().manual_seed(1)

    def update(key, grad, weight):
        weight -= (1.0 if torch.rand((), generator=random).item() < 2 else 0.5) * grad

    refuses(update, "a call changes random")


def test_a_generator_behind_a_computed_name_is_refused(torch):
    box = types.SimpleNamespace(random_w=torch.Generator().manual_seed(1))

    def update(key, grad, weight):
        number = torch.rand((), generator=getattr(box, f"random_{key}")).item()
        weight -= (1.0 if number < 2 else 0.5) * grad

    refuses(update, "a call changes")


def test_random_numbers_that_a_call_restores_are_no_change(torch):
    def update(key, grad, weight):
        state = torch.get_rng_state()
        weight -= (0.5 if torch.rand(()).item() < 2 else 1.0) * grad
        torch.set_rng_state(state)

    with mx.kv.create("dist_sync", bootstrap="self") as kv:
        kv.init("w", mx.nd.ones((4,)))
        kv.set_updater(update)
        kv.push("w", mx.nd.ones((4,)))
        assert kv.pull("w").asnumpy().tolist() == [0.5] * 4
