"""Ids of rows, and row-sparse values of other packages, for row-sparse arrays and the verbs of rows."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from .. import _core
from ..errors import InvalidArgumentError, OutOfRangeError
from .elements import Elements, is_row_sparse

ROWS_MAX = 1 << 63  # ids are below it


def _elements_of(who: str, given: object) -> np.ndarray[Any, Any]:
    """Return ids as a NumPy array of any numbers."""
    if isinstance(given, np.ma.MaskedArray) and np.ma.is_masked(given):
        raise InvalidArgumentError(f"{who}: masked ids; ids.compressed() has the others")
    if not isinstance(given, (np.ndarray, Elements)) and hasattr(given, "__dlpack__"):
        try:
            given = _core._view_of(Elements, given, False)
        except InvalidArgumentError as error:
            raise InvalidArgumentError(f"{who}: ids: {error}") from None
    if isinstance(given, Elements):
        return given._host()
    if isinstance(given, (list, tuple)):
        given = [x._host() if isinstance(x, Elements) else x for x in given]
        if not given:
            return np.zeros(0, np.int64)
    try:
        values = np.asarray(given)
        if values.ndim == 0 and values.dtype.kind in "OSU" and not isinstance(given, (int, np.ndarray)):
            raise InvalidArgumentError(
                f"{who}: ids of type {type(given).__name__}; an array of any framework, a list, a tuple, a range or a number is needed"
            )
        # A list of whole numbers of several types would become float64, which has not all of them.
        if values.dtype.kind == "f" and isinstance(given, list) and not any(isinstance(x, np.ndarray) for x in given):
            return np.asarray(given, object)
        return values
    except (TypeError, ValueError) as error:
        if isinstance(error, InvalidArgumentError):
            raise
        raise InvalidArgumentError(f"{who}: ids: {error}") from None


def _no_id(who: str, one: object) -> InvalidArgumentError:
    return InvalidArgumentError(f"{who}: {one!r} is no id of a row; whole numbers are needed")


def _exact_end(dtype: np.dtype[Any]) -> int:
    """Return the bound that ids given as floats are below: from it on, two whole numbers may be the same float."""
    return 1 << min(int(np.finfo(dtype).nmant) + 1, 53)


def _check_float(who: str, one: Any, end: int, dtype: str) -> None:
    """Raise unless a float is a whole number below `end`."""
    one = float(one)
    if not (np.isfinite(one) and one == np.trunc(one)):
        raise _no_id(who, one)
    if abs(one) >= ROWS_MAX:
        raise OutOfRangeError(f"{who}: row {int(one)}; ids are below 2**63")
    if abs(one) >= end:
        raise InvalidArgumentError(
            f"{who}: row {int(one)} is {dtype}, which has not every whole number from {end} on; give ids as int64"
        )


def ids_of(who: str, given: object) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Return ids as a new int64 array of the same shape; floats that are whole numbers are ids, as far as they are exact.

    Raises:
        InvalidArgumentError: something else than whole numbers; floats that may have been other whole numbers.
        OutOfRangeError: one that an int64 does not hold.
    """
    values = _elements_of(who, given)
    kind = values.dtype.kind
    if kind == "f":
        end = _exact_end(values.dtype)
        odd = ~(np.isfinite(values) & (values == np.trunc(values)) & (np.abs(values) < end))
        if odd.any():
            _check_float(who, values[odd].flat[0], end, values.dtype.name)
        return np.array(values, np.int64, order="C")
    if kind == "O":
        for one in values.flat:
            if isinstance(one, (float, np.floating)):
                dtype = np.asarray(one).dtype
                _check_float(who, one, _exact_end(dtype), dtype.name)
                continue
            if isinstance(one, bool) or not isinstance(one, (int, np.integer)):
                raise _no_id(who, one)
            if not -ROWS_MAX <= one < ROWS_MAX:
                raise OutOfRangeError(f"{who}: row {one}; ids are below 2**63")
    elif kind == "u":
        if values.size and int(values.max()) >= ROWS_MAX:
            raise OutOfRangeError(f"{who}: row {int(values.max())}; ids are below 2**63")
    elif kind != "i":
        raise _no_id(who, values.flat[0].item() if values.size else values.dtype.name)
    return np.array(values, np.int64, order="C")


def are_below(ids: np.ndarray[Any, np.dtype[np.int64]], rows: int) -> bool:
    """Return whether all ids are from 0 to below `rows`."""
    return not ids.size or (int(ids.min()) >= 0 and int(ids.max()) < rows)


def check_ids(who: str, ids: np.ndarray[Any, np.dtype[np.int64]], rows: int, what: str) -> None:
    """Raise OutOfRangeError, with the first bad one, unless all ids are from 0 to below `rows`."""
    if not are_below(ids, rows):
        first = int(ids[(ids < 0) | (ids >= rows)].flat[0]) if rows < ROWS_MAX else int(ids[ids < 0].flat[0])
        raise OutOfRangeError(f"{who}: row {first}; {what}")


def sorted_unique(who: str, ids: np.ndarray[Any, np.dtype[np.int64]]) -> np.ndarray[Any, Any] | None:
    """Return the order that sorts ids, or None if they are sorted; raise if one stands twice."""
    if (ids[1:] > ids[:-1]).all():
        return None
    order = np.argsort(ids, kind="stable")
    ordered = ids[order]
    twice = ordered[1:] == ordered[:-1]
    if twice.any():
        raise InvalidArgumentError(f"{who}: row {int(ordered[1:][twice][0])} stands twice; each row has one place")
    return order


# ------------------------------------------------------------------------------------------------ of other packages


def is_of_torch(value: Any) -> bool:
    """Return whether a value is a sparse tensor of PyTorch, of any layout."""
    torch = sys.modules.get("torch")
    tensor = getattr(torch, "Tensor", None)  # none while the module is being imported
    return tensor is not None and isinstance(value, tensor) and value.layout != torch.strided  # type: ignore[union-attr]


def is_of_scipy(value: object) -> bool:
    """Return whether a value is a sparse matrix or array of SciPy."""
    module = type(value).__module__
    return isinstance(module, str) and module.startswith("scipy.sparse") and hasattr(value, "tocsr")


def is_rows(value: object) -> bool:
    """Return whether a value is row-sparse: of this package, of SciPy, a sparse tensor of PyTorch."""
    return is_row_sparse(value) or is_of_torch(value) or is_of_scipy(value)


def rows_of_torch(who: str, tensor: Any, is_unique: bool = False) -> tuple[np.ndarray[Any, Any], Any, tuple[int, ...]]:
    """Return ids, which may repeat unless `is_unique`, a dense tensor of rows, and the shape of a sparse tensor of PyTorch."""
    import torch

    if tensor.layout != torch.sparse_coo or tensor.sparse_dim() != 1:
        found = f"layout {tensor.layout}" if tensor.layout != torch.sparse_coo else f"{tensor.sparse_dim()} sparse axes"
        raise InvalidArgumentError(
            f"{who}: a tensor with {found}; one of torch.sparse_coo whose first axis alone is sparse has rows"
        )
    if tensor.is_meta:
        raise InvalidArgumentError(f"{who}: a tensor on the device meta, which keeps no elements; give one on the CPU")
    tensor = tensor.detach()
    if is_unique:
        tensor = summed(tensor, lambda one: one.coalesce())
    ids = tensor._indices()[0].contiguous()
    return ids_of(who, ids), tensor._values(), tuple(tensor.shape)


def summed(tensor: Any, make: Callable[[Any], Any]) -> Any:
    """Return the result of `make` for a sparse PyTorch tensor; repeated ids are summed, 16-bit values in float32."""
    import torch

    if tensor.dtype not in (torch.float16, torch.bfloat16) or tensor.is_coalesced():
        return make(tensor)
    return make(tensor.to(torch.float32)).to(tensor.dtype)


def rows_of_scipy(who: str, matrix: Any) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any], tuple[int, ...]]:
    """Return sorted ids, their rows and the shape of a sparse matrix of SciPy."""
    if len(matrix.shape) != 2:
        raise InvalidArgumentError(f"{who}: a sparse array of SciPy of {len(matrix.shape)} axes; two are needed")
    csr = matrix.tocsr()
    ids = np.flatnonzero(np.diff(csr.indptr)).astype(np.int64)
    return ids, csr[ids].toarray(), tuple(int(extent) for extent in matrix.shape)
