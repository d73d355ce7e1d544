"""Gradient compression as users write it: dicts of MXNet's form."""

from __future__ import annotations

import fnmatch
import numbers
import operator
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from .. import _core
from ..errors import InvalidArgumentError

_VERB = "set_gradient_compression"
_TAKES = {  # what each type takes beside itself
    "none": (),
    "fp16": (),
    "bf16": (),
    "int8": (),
    "2bit": ("threshold",),
    "1bit": ("threshold",),
    "topk": ("ratio",),
}


def look(params: Any) -> tuple[str, dict[str, float]]:
    """Return the type and the numbers of a compression.

    Raises:
        InvalidArgumentError: no dict, an unknown type or parameter, a value that is no number.
    """
    if not isinstance(params, Mapping):
        raise InvalidArgumentError(
            f"{_VERB}: type {type(params).__name__}; a dict is needed, such as {{'type': '2bit', 'threshold': 0.5}}"
        )
    rest = dict(params)
    kind = rest.pop("type", None)
    if not isinstance(kind, str) or not _is_unicode(kind):
        raise InvalidArgumentError(f"{_VERB}: 'type' is {kind!r}; there are {', '.join(_TAKES)}")
    if kind not in _TAKES:
        return kind, {}  # the core says what there is
    found: dict[str, float] = {}
    for name, value in rest.items():
        if name not in _TAKES[kind]:
            nearest = _core.nearest(str(name), list(_TAKES[kind])) if _is_unicode(str(name)) else ""
            hint = f", did you mean {nearest!r}?" if nearest else ""
            takes = f"; it takes {', '.join(_TAKES[kind])}" if _TAKES[kind] else "; it takes none"
            raise InvalidArgumentError(f"{_VERB}: {kind} has no parameter {name!r}{hint}{takes}")
        found[name] = _number(name, value)
    return kind, found


def pattern_of(keys: Any) -> str:
    """Return the pattern of the keys that a compression is for.

    Raises:
        InvalidArgumentError: neither text nor an int, such as a list of keys.
    """
    if isinstance(keys, str):
        if _is_unicode(keys):
            return keys
    elif not isinstance(keys, bool):
        try:
            return str(operator.index(keys))
        except TypeError:
            pass
    raise InvalidArgumentError(
        f"{_VERB}: keys is {keys!r}; a pattern such as '*.weight' or an int key is needed, in a call for each"
    )


def check_meets(pattern: str, keys: Iterable[Any]) -> None:
    """Raise InvalidArgumentError if a pattern is the name of a key and does not match it."""
    if "[" in pattern and any(str(key) == pattern for key in keys) and not fnmatch.fnmatchcase(pattern, pattern):
        import glob

        raise InvalidArgumentError(
            f"{_VERB}: keys={pattern!r} is a pattern, which the key of that name does not match; {glob.escape(pattern)!r} matches it"
        )


def check_has_dense(pattern: str, keys: Iterable[Any], is_by_rows: Callable[[Any], bool]) -> None:
    """Warn if all keys that a pattern matches are kept by rows, which are not compressed.

    Raises:
        InvalidArgumentError: the pattern is the name of such a key, so that it is for no other.
    """
    matched = [key for key in keys if fnmatch.fnmatchcase(str(key), pattern)]
    if not matched or not all(map(is_by_rows, matched)):
        return
    if str(matched[0]) == pattern:
        raise InvalidArgumentError(
            f"{_VERB}: keys={pattern!r} is a key that is kept by rows, whose pushes travel as they are; dense keys can be compressed"
        )
    from .log import logger

    logger.warning(
        "%s: keys=%r matches only keys that are kept by rows so far, such as %r, whose pushes travel as they are; it counts for "
        "dense keys that come later",
        _VERB,
        pattern,
        matched[0],
    )


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _number(name: str, value: object) -> float:
    try:
        if isinstance(value, (numbers.Real, str)) and not isinstance(value, bool):  # MXNet takes texts of numbers
            return float(value)
    except (ValueError, OverflowError):
        pass
    raise InvalidArgumentError(f"{_VERB}: {name} is {value!r}, a number is needed")
