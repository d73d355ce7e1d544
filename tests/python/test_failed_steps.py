"""A step in which a server refuses some of the keys is made again for these keys alone."""

import itertools

import pytest
from tensorkv._frameworks.steps import Steps
from tensorkv.errors import ResourceExhaustedError

KEYS = ["a", "b", "c"]


class Store:
    """A synchronous store whose servers refuse the pushes of chosen keys."""

    rejoined = False
    type = "dist_sync"

    def __init__(self):
        self.rounds = dict.fromkeys(KEYS, 0)

    def __contains__(self, key):
        return key in self.rounds

    def round(self, key):
        return self.rounds[key]

    def _former_step(self, key):
        return (0, 0)

    def push(self, keys, refused):
        for key in keys:
            self.rounds[key] += key not in refused
        if refused.intersection(keys):
            raise ResourceExhaustedError("no memory")


SUBSETS = [frozenset(some) for size in range(4) for some in itertools.combinations(KEYS, size)]


@pytest.mark.parametrize("first", SUBSETS[1:])
@pytest.mark.parametrize("second", SUBSETS)
def test_each_key_is_pushed_once_in_each_step(first, second):
    kv = Store()
    steps = Steps(kv)

    def step(refused=frozenset()):
        with steps.one(KEYS) as lacking:
            kv.push([KEYS[place] for place in lacking], refused)

    step()
    for refused in (first, second & first):
        if refused:
            with pytest.raises(ResourceExhaustedError):
                step(refused)
            assert steps.made(KEYS) == 1
    step()
    assert steps.made(KEYS) == 2 and set(kv.rounds.values()) == {2}
    step()
    assert steps.made(KEYS) == 3 and set(kv.rounds.values()) == {3}
