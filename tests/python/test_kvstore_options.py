"""Options of a store and its optimizer that cannot be taken are errors that name the remedy."""

import re

import pytest
import tensorkv as mx


def test_a_misspelt_option_is_an_error_that_names_the_nearest():
    with pytest.raises(TypeError, match="'treads'; did you mean 'threads'"):
        mx.kv.KVStore("local", treads=4)
    with pytest.raises(TypeError, match="'stalenes'; did you mean 'staleness'"):
        mx.testing.cluster(stalenes=3)
    with pytest.raises(TypeError, match="'colour'$"):
        mx.kv.KVStore("local", colour=None)


@pytest.mark.parametrize(
    "options",
    [{"bootstrap": "self"}, {"rank": 0}, {"num_workers": 1}, {"url": "tkv://h:1/j"}, {"token_file": "t"}],
    ids=str,
)
def test_how_processes_find_each_other_is_refused_by_a_store_of_one(options):
    with pytest.raises(mx.errors.InvalidArgumentError, match="create 'local': .*an option of distributed stores"):
        mx.kv.create("local", **options)


@pytest.mark.parametrize("options", [{}, {"staleness": 3}, {"bootstrap": "self"}], ids=str)
def test_a_misspelt_type_is_named_whatever_options_stand_beside_it(options):
    with pytest.raises(mx.errors.InvalidArgumentError, match="create 'dist_synch': no such type; .*'dist_sync'?"):
        mx.kv.create("dist_synch", **options)


@pytest.mark.parametrize(
    "options, needed",
    [
        ({"staleness": "x"}, "staleness='x': an int"),
        ({"patience": "x"}, "patience='x': a number of seconds"),
        ({"deterministic": 1}, "deterministic=1: True or False"),
        ({"on_death": 3}, "on_death=3: a str"),
        ({"rank": "x"}, "rank='x': an int"),
        (
            {"bootstrap": "tcp://h:1"},
            "bootstrap='tcp://h:1': 'self' is needed, or an object that all processes share",
        ),
        (
            {"rank": 0, "num_workers": 2},
            "rank=0, num_workers=2: these go with a bootstrap object; here there is none",
        ),
    ],
    ids=str,
)
def test_an_option_of_another_type_is_told_what_it_needs(options, needed):
    with pytest.raises(mx.errors.InvalidArgumentError) as caught:
        mx.kv.create("dist_sync", **options)
    assert needed in str(caught.value)


def test_create_documents_every_type():
    with pytest.raises(mx.errors.InvalidArgumentError) as caught:
        mx.kv.create("no such type")
    names = re.search(r"there are ([^;]*)", str(caught.value)).group(1).split(", ")
    assert len(names) == 18
    assert [name for name in names if f"``'{name}'``" not in mx.kv.create.__doc__] == []


def test_an_optimizer_of_another_make_is_named_with_its_module():
    foreign = type("SGD", (), {"__module__": "torch.optim.sgd"})()
    with (
        mx.kv.create("local") as kv,
        pytest.raises(mx.errors.InvalidArgumentError, match="type torch.optim.sgd.SGD"),
    ):
        kv.set_optimizer(foreign)


def test_an_optimizer_by_name_says_what_to_write():
    with mx.kv.create("local") as kv, pytest.raises(mx.errors.InvalidArgumentError) as caught:
        kv.set_optimizer("sgd")
    assert "tkv.optimizer.create('sgd')" in str(caught.value)


def test_servers_say_why_they_cannot_run_an_optimizer():
    class Own(mx.optimizer.SGD):
        def update(self, index, weight, grad, state):
            weight -= grad

    with mx.kv.create("dist_sync", bootstrap="self") as kv:
        with pytest.raises(mx.errors.UnimplementedError, match="the update of Own is Python code"):
            kv.set_optimizer(Own())
