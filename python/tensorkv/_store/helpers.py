"""Optimizers of frameworks that train through a store, and have to know of its loads and saves."""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from .. import _core


class Helper(Protocol):
    """An optimizer that trains parameters through a store."""

    def _check_disk(self, verb: str) -> None:
        """Raise where the store may not save or load now."""
        ...

    def _loaded(self) -> None:
        """Take the values that the store has loaded."""
        ...


def helpers_of(kv: _core.Store) -> weakref.WeakSet[Any]:
    """Return the helpers that train through a store."""
    found: weakref.WeakSet[Any] = kv.__dict__.setdefault("_helpers", weakref.WeakSet())
    return found


@contextlib.contextmanager
def loading(kv: _core.Store) -> Iterator[None]:
    """Have the helpers of a store take its values when the block has loaded them."""
    helpers: list[Helper] = list(helpers_of(kv))
    for helper in helpers:
        helper._check_disk("load")
    yield
    for helper in helpers:
        helper._loaded()


def check_disk(kv: _core.Store, verb: str) -> None:
    """Raise where a helper's parameters are not in the store, which would save or load without them."""
    for helper in helpers_of(kv):
        helper._check_disk(verb)
