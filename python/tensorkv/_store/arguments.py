"""Keys and values as a caller gives them: lists for several keys, priorities, and their names in messages."""

from __future__ import annotations

import operator
from typing import Any

from ..errors import InvalidArgumentError


def title(verb: str, key: object) -> str:
    """Return verb and key as a ticket shows them; of a list the first key."""
    if not isinstance(key, (list, tuple)):
        return f"{verb} {key!r}"
    return f"{verb} of {len(key)} keys, the first is {key[0]!r}" if key else verb


def check_priority(verb: str, key: object, priority: object) -> None:
    """Raise if a priority is none; asked after a TypeError, so that calls that are right do not pay for it."""
    try:
        if -(2**31) <= operator.index(priority) < 2**31:  # type: ignore[arg-type]  # what is no whole number raises
            return
    except TypeError:
        pass
    raise InvalidArgumentError(
        f"{title(verb, key)}: priority {priority!r}; a whole number from -2147483648 to 2147483647 is needed"
    ) from None


def one_or_all(keys: list[Any]) -> Any:
    return keys[0] if len(keys) == 1 else keys


def as_list(value: Any) -> list[Any]:
    return list(value) if isinstance(value, (list, tuple)) else [value]


def pairs_of(verb: str, key: Any, value: Any) -> tuple[list[Any], list[list[Any]]]:
    """Return the keys, and for each the list of what was given for it."""
    if not isinstance(key, (list, tuple)):
        return [key], [as_list(value)]
    is_list = isinstance(value, (list, tuple))
    if not is_list or len(value) != len(key):
        found = f"one of {len(value)}" if is_list else "no list"
        raise InvalidArgumentError(f"{verb}: {len(key)} keys need a list of {len(key)} values, here is {found}")
    return list(key), [as_list(one) for one in value]


def grouped(keys: list[Any], values: list[list[Any]]) -> dict[Any, list[Any]]:
    """Return all values of each key, in the order of the keys."""
    groups: dict[Any, list[Any]] = {}
    for key, given in zip(keys, values, strict=True):
        groups.setdefault(key, []).extend(given)
    return groups


def columns_of(verb: str, key: Any, *given: Any) -> tuple[list[Any], list[list[Any]]]:
    """Return keys, and for each argument its values by key."""
    if not isinstance(key, (list, tuple)):
        return [key], [[one] for one in given]
    for one in given:
        if not isinstance(one, (list, tuple)) or len(one) != len(key):
            found = f"one of {len(one)}" if isinstance(one, (list, tuple)) else "no list"
            raise InvalidArgumentError(f"{verb}: {len(key)} keys need a list of {len(key)}, here is {found}")
    return list(key), [list(one) for one in given]
