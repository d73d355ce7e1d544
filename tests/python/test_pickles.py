"""Pickles of earlier versions load: modules may have moved since, and public names stay."""

import base64
import json
import pathlib
import pickle

import numpy as np
import pytest
import tensorkv as mx

OLD = json.loads((pathlib.Path(__file__).parent / "old_pickles.json").read_text())


def load(name):
    return pickle.loads(base64.b64decode(OLD[name]))


@pytest.mark.parametrize("name", sorted(OLD))
def test_a_pickle_from_before_the_wings_loads_and_makes_another_one(name):
    first = load(name)
    assert type(first).__name__ == name.rpartition(".")[2]
    assert type(pickle.loads(pickle.dumps(first))) is type(first)


def test_arrays_have_their_values():
    assert load("NDArray").asnumpy().tolist() == load("np.ndarray").asnumpy().tolist() == [1, 2]
    assert load("RowSparseNDArray").asnumpy().tolist() == [[0, 0], [1, 1], [0, 0]]


def test_an_updater_has_its_states():
    updater, weight = load("Updater"), mx.nd.zeros((2,))
    updater(0, mx.nd.zeros((2,)), weight)  # momentum of the first update: -0.5, half of it now
    np.testing.assert_allclose(weight.asnumpy(), [-0.25, -0.25])


def test_names_of_modules_stay():
    import tensorkv.metric
    import tensorkv.ndarray.sparse
    import tensorkv.sparse

    assert tensorkv.sparse.RowSparseNDArray is tensorkv.ndarray.sparse.RowSparseNDArray is mx.sparse.RowSparseNDArray
    assert tensorkv.metric.Accuracy is mx.metric.Accuracy


class OwnError(mx.errors.FileError):
    """An error of a script."""


@pytest.mark.parametrize("first", [mx.errors.FileError("gone"), OwnError(2, "none", "w"), OwnError()], ids=repr)
def test_errors_of_files_that_a_script_makes_are_pickled(first):
    again = pickle.loads(pickle.dumps(first))
    assert type(again) is type(first) and again.args == first.args
    assert (again.errno, again.filename) == (first.errno, first.filename)


def test_an_error_of_a_file_keeps_its_notes(tmp_path):
    with pytest.raises(mx.errors.FileError) as caught:
        mx.nd.load(tmp_path / "none")
    caught.value.__notes__ = ["on worker 3"]  # as add_note of Python 3.11
    assert pickle.loads(pickle.dumps(caught.value)).__notes__ == ["on worker 3"]
