"""Trees of arrays as keys and values: a name for each array, and the same form for a result.

A tree is made of dicts, NamedTuples, tuples, and the containers that JAX knows if it is loaded. A list is no part of a
tree: it has one array, or one whole tree, for each device.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..errors import InvalidArgumentError

Form = Callable[[list[Any]], Any]
_DEPTH_MAX = 64


class _Node(NamedTuple):
    """A container: its names, its members, and a function that makes a container of its kind from other members."""

    names: list[Any]
    members: list[Any]
    form: Form


def _node(value: Any) -> _Node | None:
    """Return a container of a tree as a node; None for an array, a list, or anything else."""
    if isinstance(value, tuple):
        names = getattr(type(value), "_fields", None)
        if names is None:
            return _Node(list(range(len(value))), list(value), tuple)
        return _Node(list(names), list(value), type(value)._make)  # type: ignore[attr-defined]  # a NamedTuple has it
    if isinstance(value, MutableMapping):
        kept = copy.copy(value)  # another thread may add to the dict itself
        names = list(kept)
        return _Node(names, list(kept.values()), lambda members: _dict_like(kept, names, members))
    if _is_of_jax(value):
        return _node_of_jax(value)
    if isinstance(value, Mapping):
        items = dict(value)
        return _Node(list(items), list(items.values()), lambda members: dict(zip(items, members, strict=True)))
    return None


def _dict_like(value: MutableMapping[Any, Any], names: list[Any], members: list[Any]) -> MutableMapping[Any, Any]:
    """Return a dict of the same kind with other members."""
    made = copy.copy(value)
    made.update(zip(names, members, strict=True))
    return made


def _is_of_jax(value: object) -> bool:
    """Return whether JAX is loaded and knows a container that Python does not have."""
    jax = sys.modules.get("jax")
    if jax is None or value is None or isinstance(value, (str, int, list, tuple)) or hasattr(value, "__dlpack__"):
        return False
    return not jax.tree_util.all_leaves([value])


def _node_of_jax(value: Any) -> _Node:
    import jax

    entries, form = jax.tree_util.tree_flatten_with_path(value, is_leaf=lambda inner: inner is not value)
    return _Node([_name_of(path[0]) for path, _ in entries], [member for _, member in entries], form.unflatten)


def _name_of(entry: Any) -> Any:
    """Return the name in an entry of one of JAX's paths."""
    return next(getattr(entry, field) for field in ("key", "idx", "name") if hasattr(entry, field))


def _are_keys(value: tuple[Any, ...]) -> bool:
    return all(isinstance(one, (str, int, np.integer)) for one in value)


def _is_one(value: object) -> bool:
    """Return whether a value is a whole tree; a tuple of keys, or of anything without names, is none."""
    if isinstance(value, tuple):
        return hasattr(value, "_fields") and not _are_keys(value)
    return isinstance(value, Mapping) or _is_of_jax(value)


def is_tree(key: object) -> bool:
    """Return whether a verb's first argument is a tree of arrays, or a list of them: one of each device."""
    if _is_one(key):
        return True
    return isinstance(key, (list, tuple)) and bool(key) and all(_is_one(one) for one in key)


def _join(verb: str, path: tuple[Any, ...]) -> int | str:
    """Return the key of an array: the names on the way to it with dots between them; one whole number stays one."""
    for name in path:
        if isinstance(name, bool) or not isinstance(name, (int, str, np.integer)):
            raise InvalidArgumentError(f"{verb}: {name!r} in a dict; names are strings or whole numbers")
    if len(path) == 1:
        one: int | str = int(path[0]) if isinstance(path[0], np.integer) else path[0]
        return one
    return ".".join(str(name) for name in path)


def flatten_pytree(verb: str, tree: Any) -> tuple[list[int | str], list[Any], Form]:
    """Return the keys and the arrays of a pytree of JAX, lists included, and a function that gives arrays its form."""
    import jax

    leaves, form = jax.tree_util.tree_flatten_with_path(tree)
    keys = [_join(verb, tuple(_name_of(entry) for entry in path)) for path, _ in leaves]
    return keys, [leaf for _, leaf in leaves], lambda values: jax.tree_util.tree_unflatten(form, values)


class _Walk:
    """The keys and the leaves of one tree."""

    def __init__(self, verb: str, tree: Any) -> None:
        """Go through the tree."""
        self.verb = verb
        self.keys: list[int | str] = []
        self.leaves: list[Any] = []
        self._refill = self._walk(tree, ())

    def form(self, values: list[Any]) -> Any:
        """Return values in the form of the tree."""
        return self._refill(iter(values))

    def _walk(self, value: Any, path: tuple[Any, ...]) -> Callable[[Iterator[Any]], Any]:
        """Add the keys and leaves of a part of the tree; return a function that makes such a part from values."""
        if len(path) > _DEPTH_MAX:
            raise InvalidArgumentError(f"{self.verb}: dicts nest deeper than {_DEPTH_MAX}")
        node = _node(value)
        if node is not None:
            parts = [self._walk(member, (*path, name)) for name, member in zip(node.names, node.members, strict=True)]
            return lambda values: node.form([part(values) for part in parts])
        self.keys.append(_join(self.verb, path))
        if isinstance(value, list) and any(isinstance(one, list) or _node(one) is not None for one in value):
            raise InvalidArgumentError(
                f"{self.verb} {self.keys[-1]!r}: a list of containers in a tree; a list has one array for each device, "
                f"a tuple has parts of its own ({'.'.join(map(str, path))}.0 and so on), a list of whole trees is one of each device"
            )
        self.leaves.append(value)
        return next


def flatten(verb: str, tree: Any) -> tuple[list[int | str], list[Any], Form]:
    """Return the keys and the leaves of a tree, and a function that gives values its form.

    A list of trees is one for each device: each key has the list of their values.
    """
    if isinstance(tree, tuple) and not hasattr(tree, "_fields"):
        raise InvalidArgumentError(
            f"{verb}: a tuple of {len(tree)} trees; a list of trees is one of each device, a dict gives names to parts"
        )
    if not isinstance(tree, list):
        walk = _Walk(verb, tree)
        keys, values = walk.keys, walk.leaves
    else:
        walks = [_Walk(verb, one) for one in tree]
        walk, keys = walks[0], walks[0].keys
        for number, other in enumerate(walks):
            _check_same(verb, keys, other.keys, f"tree {number} of the list")
        columns = [dict(zip(other.keys, other.leaves, strict=True)) for other in walks]
        values = [[column[key] for column in columns] for key in keys]
    if not keys:
        raise InvalidArgumentError(f"{verb}: the tree has no arrays")
    seen: set[int | str] = set()
    for key in keys:
        if key in seen:
            raise InvalidArgumentError(f"{verb}: two arrays of the tree have the name {key!r}")
        seen.add(key)
    return keys, values, walk.form


def examples(leaves: list[Any]) -> list[Any]:
    """Return an array of each leaf, whose framework is that of a result."""
    return [leaf[0] if isinstance(leaf, list) and leaf else leaf for leaf in leaves]


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
            f"{verb}: the keys are a tree; a tree is needed as `out`, type {type(out).__name__} was given"
        )
    names, leaves, _ = flatten(verb, out)
    _check_same(verb, keys, names, "`out`")
    by_name = dict(zip(names, leaves, strict=True))
    return [by_name[key] for key in keys]


def alone(verb: str, value: object) -> None:
    """Raise if a value is given beside a tree, because the tree holds the values."""
    if value is not None:
        raise InvalidArgumentError(f"{verb}: a tree has the values in itself; a second argument was given")
