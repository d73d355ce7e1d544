"""Random calls of `mx.random` and of initializers give the dtypes, shapes and moments of those of MXNet."""

import json
import math
import os
import pathlib

import pytest
import tensorkv as mx
from random_programs import program, result

FILE = os.environ.get("TKV_TEST_RANDOM_PROGRAMS", pathlib.Path(__file__).with_name("random_programs.json"))
MXNETS = json.loads(pathlib.Path(FILE).read_text())


def difference(seed, wanted):
    """Return how a call differs from MXNet's, or None."""
    found = result(mx, seed)
    if found is None or wanted is None:
        # MXNet knows moving statistics by texts alone, not by InitDesc, and no Orthogonal of one axis.
        has_sense_here = wanted is None and program(seed).startswith("filled(")
        return None if found is wanted or has_sense_here else f"{program(seed)}: {found}, MXNet {wanted}"
    if [one[:2] for one in found] != [one[:2] for one in wanted]:
        return f"{program(seed)}: {found}, MXNet {wanted}"
    for (_, shape, mean, deviation), (_, _, mean_there, deviation_there) in zip(found, wanted, strict=True):
        size = math.prod(shape)
        if size < 2000:  # too few for moments
            continue
        # Two means of `size` draws each are within seven standard errors; a deviation is less certain by the kurtosis.
        error = max(deviation, deviation_there) * math.sqrt(2 / size) + 1e-3
        if abs(mean - mean_there) > 7 * error or abs(deviation - deviation_there) > 14 * error:
            return f"{program(seed)}: mean {mean}, deviation {deviation}; MXNet {mean_there}, {deviation_there}"
    return None


def all_found():
    return [why for seed, wanted in enumerate(MXNETS) if (why := difference(seed, wanted)) is not None]


def test_random_calls_draw_as_mxnet_does():
    assert all_found() == []


@pytest.mark.parametrize("name", ["normal", "gamma", "multinomial"])
def test_the_calls_find_a_function_that_is_wrong(monkeypatch, name):
    right = getattr(mx.random, name)
    monkeypatch.setattr(mx.random, name, lambda *args, **options: right(*args, **options) * 2)
    assert any(why.startswith(f"random.{name}(") for why in all_found())


def test_the_calls_find_an_initializer_that_is_wrong(monkeypatch):
    monkeypatch.setattr(mx.init.Xavier, "_init_weight", lambda self, name, array: array.__setitem__(slice(None), 1))
    assert any(why.startswith("filled(mx.init.Xavier(") for why in all_found())
