"""Arrays in files of MXNet: the format of its `tkv.nd.save`, with names such as ``resnet-0000.params``.

A file has a list of arrays and, for a dict, their names. Each array has a number that tells the version of its header:
1.9 writes the second version, and the third under ``npx.set_np()``; releases before 1.0 wrote the first, or none. The
source of truth is ``src/ndarray/ndarray.cc`` of MXNet 1.9.1.

The bytes of a file are not trusted: no more memory is allocated than the file has bytes.
"""

from __future__ import annotations

import math
import os
import struct
from collections.abc import Mapping
from typing import IO, TYPE_CHECKING, Any, TypeAlias

import numpy as np

from .. import _core
from ..errors import InvalidArgumentError
from .elements import Elements, is_row_sparse
from .files import MXNET

if TYPE_CHECKING:
    from ..ndarray.sparse import RowSparseNDArray
    from .ndarray import NDArray

    AnyArray: TypeAlias = NDArray | RowSparseNDArray

_V1, _V2, _V3 = 0xF993FAC8, 0xF993FAC9, 0xF993FACA
_DENSE, _ROW_SPARSE, _CSR = 0, 1, 2
_HOST = struct.pack("<ii", 1, 0)  # the context cpu(0)
_AXES_MAX = 64
_DTYPES = {
    0: "float32",
    1: "float64",
    2: "float16",
    3: "uint8",
    4: "int32",
    5: "int8",
    6: "int64",
    7: "bool",
    8: "int16",
    9: "uint16",
    10: "uint32",
    11: "uint64",
    12: "bfloat16",
}
_FLAGS = {name: flag for flag, name in _DTYPES.items() if flag <= 7 or flag == 12}  # those that MXNet 1.9.1 knows


class _Reader:
    """The bytes of a file, each read once and only if there are as many.

    Attributes:
        left: the number of bytes that are not read yet.
    """

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.left = os.fstat(file.fileno()).st_size

    def take(self, count: int) -> bytes:
        """Return the next bytes."""
        self._need(count)
        taken = self._file.read(count)
        if len(taken) < count:
            raise EOFError("cut off")
        self.left -= count
        return taken

    def fill(self, array: NDArray) -> NDArray:
        """Fill an array with the next bytes, and return it."""
        place = array._numpy_for_writing().reshape(-1).view(np.uint8)
        self._need(place.size)
        if self._file.readinto(place.data) < place.size:  # type: ignore[attr-defined]
            raise EOFError("cut off")
        self.left -= place.size
        return array

    def number(self, code: str) -> int:
        """Return the next number, of a code of `struct`."""
        found: int = struct.unpack(f"<{code}", self.take(struct.calcsize(f"<{code}")))[0]
        return found

    def shape(self, count: int | None = None, code: str = "q") -> tuple[int, ...] | None:
        """Return the next shape, whose number of extents may be known; None if it is that of an array without values."""
        count = self.number("i") if count is None else count
        if count == -1:
            return None
        if not 0 <= count <= _AXES_MAX:
            raise InvalidArgumentError(f"an array of {count} axes")
        extents = struct.unpack(f"<{count}{code}", self.take(count * struct.calcsize(f"<{code}")))
        if any(extent < 0 for extent in extents):
            raise InvalidArgumentError(f"an array of shape {extents}")
        return extents

    def empty(self, shape: tuple[int, ...], flag: int) -> NDArray:
        """Return an array without values, for which the file has bytes."""
        from .ndarray import NDArray

        if flag not in _DTYPES:
            raise InvalidArgumentError(f"an array with the type number {flag}")
        itemsize = _core._empty(NDArray, [0], _DTYPES[flag], "cpu", 0)._numpy_for_reading().dtype.itemsize
        self._need(math.prod(shape) * itemsize)
        return _core._empty(NDArray, list(shape), _DTYPES[flag], "cpu", 0)

    def _need(self, count: int) -> None:
        """Raise unless the file has as many bytes."""
        if count > self.left:
            raise EOFError(f"cut off: {count} bytes are needed, {self.left} are left")


def _array(source: _Reader) -> AnyArray:
    """Return the next array of a file."""
    magic = source.number("I")
    kind = source.number("i") if magic in (_V2, _V3) else _DENSE
    if kind == _CSR:
        raise InvalidArgumentError(
            "an array of the storage type csr, which is not here; save it dense by tostype('default')"
        )
    if kind not in (_DENSE, _ROW_SPARSE):
        raise InvalidArgumentError(f"an array with the storage number {kind}")
    stored = source.shape() if kind == _ROW_SPARSE else None
    if magic in (_V1, _V2, _V3):
        shape = source.shape()
    else:  # the oldest format: the number of extents comes first
        shape = source.shape(magic, "I") if magic <= _AXES_MAX else None
    if shape is None or (shape == () and magic != _V3):
        raise InvalidArgumentError("an array without a shape")
    source.take(len(_HOST))  # arrays are read into memory of the host, wherever they were
    flag = source.number("i")
    if kind == _DENSE:
        return source.fill(source.empty(shape, flag))
    from .row_sparse import checked

    ids_flag, ids_shape = source.number("i"), source.shape()
    if stored is None or ids_shape is None or len(ids_shape) != 1 or stored[:1] != ids_shape:
        raise InvalidArgumentError(f"{stored} rows with ids of shape {ids_shape}")
    rows = source.fill(source.empty(stored, flag))
    ids = source.fill(source.empty(ids_shape, ids_flag)).asnumpy()
    return checked("indices", rows, ids.astype(np.int64), shape)


def read(file: IO[bytes]) -> list[AnyArray] | dict[str, AnyArray]:
    """Return the arrays of a file that begins with `MXNET`: a list, or a dict if they have names.

    Raises:
        InvalidArgumentError, EOFError: the file is damaged or cut off, or has an array that is not here.
    """
    source = _Reader(file)
    source.take(len(MXNET))
    arrays = [_array(source) for _ in range(source.number("Q"))]
    names = [source.take(source.number("Q")).decode() for _ in range(source.number("Q"))]
    if source.take(source.left):
        raise InvalidArgumentError("there are bytes behind its end")
    if not names:
        return arrays
    if len(names) != len(arrays) or len(set(names)) < len(names):
        raise InvalidArgumentError(f"{len(arrays)} arrays with {len(set(names))} names")
    return dict(zip(names, arrays, strict=True))


def _shape(extents: tuple[int, ...]) -> bytes:
    """Return the bytes of a shape."""
    return struct.pack(f"<i{len(extents)}q", len(extents), *extents)


def _flag(name: object, dtype: str) -> bytes:
    """Return the bytes of an array's dtype."""
    if dtype not in _FLAGS:
        raise InvalidArgumentError(f"save: MXNet has no {dtype}, the dtype of {name!r}")
    return struct.pack("<i", _FLAGS[dtype])


def write(out: IO[bytes], data: Any) -> None:
    """Write an array, a list or a dict of such.

    Raises:
        InvalidArgumentError: as parts_of; nothing has been written.
    """
    for part in parts_of(data):
        out.write(part if isinstance(part, bytes) else np.ascontiguousarray(part).reshape(-1).view(np.uint8).data)


def parts_of(data: Any) -> list[bytes | np.ndarray[Any, Any]]:
    """Return the contents of a file with an array, a list or a dict of such.

    Raises:
        InvalidArgumentError: something that is no NDArray, a name that is no str, a dtype that MXNet lacks.
    """
    if isinstance(data, Elements) or is_row_sparse(data):
        data = [data]
    pairs: list[tuple[object, Any]] = list(data.items() if isinstance(data, Mapping) else enumerate(data))
    # MXNet takes a shape with a 0, or without axes, for an unknown one, unless set_np() is in force. Under set_np() MXNet
    # reads files whose arrays are all of the third version, and else those of the second.
    has_unknown = any(not value.shape or 0 in value.shape for _, value in pairs if isinstance(value, Elements))
    magic = _V3 if has_unknown else _V2
    parts: list[bytes | np.ndarray[Any, Any]] = [MXNET, struct.pack("<Q", len(pairs))]
    for name, value in pairs:
        if is_row_sparse(value):
            rows, ids = value._data, value._ids.astype(np.int64)
            parts.append(
                struct.pack("<Ii", magic, _ROW_SPARSE) + _shape(tuple(rows.shape)) + _shape(tuple(value.shape))
            )
            parts.append(_HOST + _flag(name, value.dtype_name) + struct.pack("<i", _FLAGS["int64"]) + _shape(ids.shape))
            parts += [rows._numpy_for_reading(), ids]
        elif isinstance(value, Elements):
            parts.append(
                struct.pack("<Ii", magic, _DENSE) + _shape(tuple(value.shape)) + _HOST + _flag(name, value.dtype_name)
            )
            parts.append(value._numpy_for_reading())
        else:
            raise InvalidArgumentError(f"save: {name!r} has type {type(value).__name__}, an NDArray is needed")
    names = [name for name, _ in pairs] if isinstance(data, Mapping) else []
    parts.append(struct.pack("<Q", len(names)))
    for name in names:
        if not isinstance(name, str):
            raise InvalidArgumentError(
                f"save: the name {name!r} has type {type(name).__name__}, MXNet has names of type str"
            )
        text = name.encode()
        parts.append(struct.pack("<Q", len(text)) + text)
    return parts
