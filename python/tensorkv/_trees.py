"""Dicts of arrays, and JAX's pytrees, as keys and values: a name for each array, and the same form for a result."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from .errors import InvalidArgumentError

Form = Callable[[list[Any]], Any]


def is_tree(key: object) -> bool:
    """Return whether a verb's first argument is a tree of arrays, or a list of them: one of each device."""
    if isinstance(key, (list, tuple)) and key and all(isinstance(one, Mapping) for one in key):
        return True
    return isinstance(key, Mapping) or _is_pytree(key)


def _is_pytree(value: object) -> bool:
    """Return whether JAX is loaded and knows a container that Python does not have."""
    jax = sys.modules.get("jax")
    if jax is None or value is None or isinstance(value, (str, int, list, tuple)) or hasattr(value, "__dlpack__"):
        return False
    return not jax.tree_util.all_leaves([value])


def _join(verb: str, path: tuple[Any, ...]) -> int | str:
    """Return the key of an array: the names on the way to it with dots between them; one whole number stays one."""
    for name in path:
        if isinstance(name, bool) or not isinstance(name, (int, str)):
            raise InvalidArgumentError(f"{verb}: {name!r} in a dict; names are strings or whole numbers")
    if len(path) == 1:
        one: int | str = path[0]
        return one
    return ".".join(str(name) for name in path)


def _walk(verb: str, tree: Mapping[Any, Any], path: tuple[Any, ...]) -> list[tuple[tuple[Any, ...], Any]]:
    leaves: list[tuple[tuple[Any, ...], Any]] = []
    for name, value in tree.items():
        if len(path) > 64:
            raise InvalidArgumentError(f"{verb}: dicts nest deeper than 64")
        here = (*path, name)
        leaves += _walk(verb, value, here) if isinstance(value, Mapping) else [(here, value)]
    return leaves


def _refill(tree: Mapping[Any, Any], values: list[Any]) -> Any:
    """Return dicts of the same form whose leaves are taken from the front of a list."""
    return {
        name: _refill(value, values) if isinstance(value, Mapping) else values.pop(0) for name, value in tree.items()
    }


def flatten_pytree(verb: str, tree: Any) -> tuple[list[int | str], list[Any], Form]:
    """Return the keys and the arrays of a pytree, and what gives arrays its form."""
    import jax

    leaves, form = jax.tree_util.tree_flatten_with_path(tree)

    def name_of(entry: Any) -> Any:
        return next(getattr(entry, field) for field in ("key", "idx", "name") if hasattr(entry, field))

    keys = [_join(verb, tuple(name_of(entry) for entry in path)) for path, _ in leaves]
    return keys, [leaf for _, leaf in leaves], lambda values: jax.tree_util.tree_unflatten(form, values)


def _flatten_one(verb: str, tree: Any) -> tuple[list[int | str], list[Any], Form]:
    if isinstance(tree, Mapping):
        leaves = _walk(verb, tree, ())
        keys = [_join(verb, path) for path, _ in leaves]
        values = [value for _, value in leaves]
        return keys, values, lambda filled: _refill(tree, list(filled))
    return flatten_pytree(verb, tree)


def flatten(verb: str, tree: Any) -> tuple[list[int | str], list[Any], Form]:
    """Return the keys and the leaves of a tree, and what gives values its form.

    A list of dicts is one for each device: each key has the list of their values.
    """
    if not isinstance(tree, (list, tuple)):
        keys, values, form = _flatten_one(verb, tree)
    else:
        parts = [_flatten_one(verb, one) for one in tree]
        keys, _, form = parts[0]
        for number, (others, _, _) in enumerate(parts):
            _check_same(verb, keys, others, f"dict {number} of the list")
        columns = [dict(zip(part[0], part[1], strict=True)) for part in parts]
        values = [[column[key] for column in columns] for key in keys]
    if not keys:
        raise InvalidArgumentError(f"{verb}: the dict is empty")
    seen: set[int | str] = set()
    for key in keys:
        if key in seen:
            raise InvalidArgumentError(f"{verb}: two arrays of the dict have the name {key!r}")
        seen.add(key)
    return keys, values, form


def _check_same(verb: str, keys: Sequence[int | str], others: Sequence[int | str], what: str) -> None:
    missing = [key for key in keys if key not in set(others)]
    extra = [key for key in others if key not in set(keys)]
    if missing:
        raise InvalidArgumentError(f"{verb}: {what} has no {missing[0]!r}")
    if extra:
        raise InvalidArgumentError(f"{verb}: {what} has {extra[0]!r}, which is not pushed or pulled")


def outputs(verb: str, keys: Sequence[int | str], out: Any) -> list[Any]:
    """Return the outputs of a tree in the order of keys: `out` is a tree with the same names."""
    if not is_tree(out):
        raise InvalidArgumentError(
            f"{verb}: the keys are a dict; a dict is needed as `out`, type {type(out).__name__} was given"
        )
    names, leaves, _ = flatten(verb, out)
    _check_same(verb, keys, names, "`out`")
    by_name = dict(zip(names, leaves, strict=True))
    return [by_name[key] for key in keys]


def alone(verb: str, value: object) -> None:
    """Raise where a value stands beside a dict, which has the values in itself."""
    if value is not None:
        raise InvalidArgumentError(f"{verb}: a dict has the values in itself; a second argument was given")
