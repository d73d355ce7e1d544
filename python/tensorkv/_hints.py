"""Names of arguments that a call does not know: the error proposes the nearest one there is."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from . import _core


def check_names(who: str, kind: str, names: Iterable[str], known: Collection[str]) -> None:
    """Raise a TypeError for the first name that is not known.

    Args:
        who: the name of the called function.
        kind: the kind of its names, for the error.
        names: the given names.
        known: the valid names.
    """
    for name in names:
        if name not in known:
            nearest = _core.nearest(name, list(known))
            raise TypeError(f"{who}() has no {kind} {name!r}" + (f"; did you mean {nearest!r}?" if nearest else ""))
