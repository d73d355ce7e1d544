"""Arrays in files."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from ._elements import Elements
from .errors import InvalidArgumentError

if TYPE_CHECKING:
    from .ndarray import NDArray

_NOT_OURS = "not written by mx.nd.save; files of MXNet are not read"
_EMPTY_DICT = "dict"  # the only name in the file of a dict without arrays


def _tagged(data: NDArray | Iterable[NDArray] | Mapping[str, NDArray]) -> dict[str, np.ndarray[Any, Any]]:
    """Return the arrays by the names that they get in the file, which say dtype and place."""
    if isinstance(data, Elements):
        data = [data]
    prefix, named = ("key", data.items()) if isinstance(data, Mapping) else ("item", enumerate(data))
    arrays: dict[str, np.ndarray[Any, Any]] = (
        {_EMPTY_DICT: np.zeros(0)} if isinstance(data, Mapping) and not data else {}
    )
    for name, value in named:
        if not isinstance(value, Elements):
            raise InvalidArgumentError(f"save: {name!r} has type {type(value).__name__}, an NDArray is needed")
        arrays[f"{prefix}:{value.dtype_name}:{name}"] = value._numpy_for_reading()
    return arrays


def save(fname: str | os.PathLike[str], data: NDArray | Iterable[NDArray] | Mapping[str, NDArray]) -> None:
    """Write an NDArray, a list or a dict of NDArrays to a file, atomically.

    The format is NumPy's ``.npz`` (no pickle). An existing file is replaced only by a complete one.

    Raises:
        InvalidArgumentError: something that is no NDArray.

    Example:
        >>> path = os.path.join(tempfile.mkdtemp(), 'w')
        >>> mx.nd.save(path, {'w': mx.nd.ones((2,))})
        >>> mx.nd.load(path)['w'].asnumpy()
        array([1., 1.], dtype=float32)
    """
    import tempfile

    arrays: dict[str, Any] = _tagged(data)
    folder = os.path.dirname(os.path.abspath(os.fspath(fname)))
    handle, temporary = tempfile.mkstemp(dir=folder, prefix=".tensorkv-")
    try:
        with os.fdopen(handle, "wb") as out:
            np.savez(out, **arrays)
            out.flush()
            os.fsync(out.fileno())
        os.replace(temporary, fname)
    except BaseException:
        os.unlink(temporary)
        raise


def load(fname: str | os.PathLike[str]) -> Any:
    """Read what `save` wrote: a list, or a dict with the names.

    Raises:
        InvalidArgumentError: a file that `save` did not write; MXNet's own format (``.params``) is not read.

    Example:
        >>> path = os.path.join(tempfile.mkdtemp(), 'list')
        >>> mx.nd.save(path, [mx.nd.ones((2,))])
        >>> len(mx.nd.load(path))
        1
    """
    import zipfile

    from .ndarray import NDArray, _rebuild

    try:
        with np.load(fname, allow_pickle=False) as files:
            parts = [(tag.split(":", 2), files[tag]) for tag in files.files]
    except (ValueError, zipfile.BadZipFile, EOFError) as error:
        why = "" if "pickled" in str(error) else f": {error}"
        raise InvalidArgumentError(f"load {os.fspath(fname)!r}: {_NOT_OURS}{why}") from None
    if [tag for tag, _ in parts] == [[_EMPTY_DICT]]:
        return {}
    if any(len(tag) != 3 or tag[0] not in ("key", "item") for tag, _ in parts):
        raise InvalidArgumentError(f"load {os.fspath(fname)!r}: {_NOT_OURS}")
    arrays = {tag[2]: _rebuild(NDArray, raw, tag[1], "cpu", 0) for tag, raw in parts}
    if parts and parts[0][0][0] == "key":
        return arrays
    return [arrays[str(i)] for i in range(len(arrays))]
