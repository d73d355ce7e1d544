"""Dicts of an optimizer or an updater that report each change, such as `states`."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from ..errors import InvalidArgumentError


class Owner(Protocol):
    """The object that has such a dict, and learns of its changes."""

    def _is_watched(self) -> bool:
        """Return whether a store has to learn of changes."""
        ...

    def _changed(self, name: str) -> None:
        """Pass a change of the attribute on, or raise."""


def _reporting(change: Callable[..., Any]) -> Callable[..., Any]:
    """Return a method of dict that reports to the owner, and takes the change back if the owner refuses."""

    @functools.wraps(change)
    def method(self: ReportingDict, *args: Any, **kwargs: Any) -> Any:
        owner = self._owner()
        if owner is None or not owner._is_watched():
            return change(self, *args, **kwargs)
        before = dict(self)
        try:
            result = change(self, *args, **kwargs)
            owner._changed(self._name)
        except BaseException:
            dict.clear(self)
            dict.update(self, before)
            raise
        return result

    return method


class ReportingDict(dict[Any, Any]):
    """A dict that is an attribute of an optimizer or an updater, and reports each change to it."""

    __slots__ = ("__weakref__", "_name", "_owner")

    def __init__(self, owner: Owner, name: str, content: Mapping[Any, Any]) -> None:
        """Copy the content; later changes of `content` itself change nothing."""
        if not isinstance(content, Mapping):
            raise InvalidArgumentError(f"{name}: type {type(content).__name__}, a dict is needed")
        super().__init__(content)
        self._owner = weakref.ref(owner)
        self._name = name

    def __reduce__(self) -> tuple[type[dict[Any, Any]], tuple[dict[Any, Any]]]:
        """Pickle and copy as a plain dict, whose changes are not reported."""
        return dict, (dict(self),)


for _method in ("__setitem__", "__delitem__", "__ior__", "clear", "pop", "popitem", "setdefault", "update"):
    setattr(ReportingDict, _method, _reporting(getattr(dict, _method)))
