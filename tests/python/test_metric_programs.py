"""Random uses of `mx.metric` say what MXNet's measures say."""

import json
import math
import os
import pathlib

import pytest
import tensorkv as mx
from metric_programs import result, updates

FILE = os.environ.get("TKV_TEST_METRIC_PROGRAMS", pathlib.Path(__file__).with_name("metric_programs.json"))
MXNETS = json.loads(pathlib.Path(FILE).read_text())


def is_near(found, wanted):
    return (math.isnan(found) and math.isnan(wanted)) or math.isclose(found, wanted, rel_tol=2e-5, abs_tol=2e-6)


def difference(seed, wanted):
    """Return how the values of a measure differ from MXNet's, or None."""
    found = result(mx, seed)
    if updates(seed)[:2] == ("pearsonr", {"average": "micro"}):  # MXNet's global value of it is always 0
        found, wanted = ([step and step[:1] for step in steps] for steps in (found, wanted))
    for number, (mine, theirs) in enumerate(zip(found, wanted, strict=False)):
        if mine is None or theirs is None:
            return None if mine is theirs else f"seed {seed}: {updates(seed)}: step {number}: {mine}, MXNet {theirs}"
        if [name for name, _ in mine] != [name for name, _ in theirs]:
            return f"seed {seed}: {updates(seed)}: step {number}: {mine}, MXNet {theirs}"
        if not all(is_near(one, other) for (_, one), (_, other) in zip(mine, theirs, strict=True)):
            return f"seed {seed}: {updates(seed)}: step {number}: {mine}, MXNet {theirs}"
    return None if len(found) == len(wanted) else f"seed {seed}: {len(found)} steps, MXNet {len(wanted)}"


def all_found():
    return [why for seed, wanted in enumerate(MXNETS) if (why := difference(seed, wanted)) is not None]


@pytest.mark.filterwarnings("ignore")
def test_random_uses_of_measures_say_what_mxnets_say():
    assert all_found() == []


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ["MSE", "Accuracy", "MCC"])
def test_the_uses_find_a_measure_that_is_wrong(monkeypatch, name):
    kind = getattr(mx.metric, name)
    right = kind.update
    monkeypatch.setattr(kind, "update", lambda self, labels, preds: right(self, labels[:1], preds[:1]))
    assert all_found() != []
