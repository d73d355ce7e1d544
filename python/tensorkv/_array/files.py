"""Arrays in files: NumPy's ``.npz``, a zip archive of ``.npy`` members that are not compressed. MXNet's own format is in
params.py.

The names of members tell their kinds. An array of a list is ``item:DTYPE:PLACE``. An array of a dict is
``key:DTYPE:NAME``, or ``int:DTYPE:NUMBER`` if the name is an int, or ``quoted:DTYPE:NAME`` with %XX if a zip archive
cannot hold the name. A dict without arrays has one member, ``dict``. A row-sparse array has two members, one after the
other. The first has the dtype ``rows-ids`` and holds its first extent and its indices, in uint64; the second has
``rows-DTYPE`` and holds its rows.

The bytes of a file are not trusted. Any other content is an error, always the same one, and no more memory is allocated
than the file has bytes.
"""

from __future__ import annotations

import contextlib
import errno
import math
import operator
import os
import re
import stat
from collections.abc import Iterable, Iterator, Mapping
from typing import IO, TYPE_CHECKING, Any, Literal, SupportsIndex, TypeAlias

import numpy as np

from .. import _core
from ..errors import InvalidArgumentError, KVError, OutOfRangeError, _from_os_error
from .elements import Elements, is_row_sparse
from .rows import ROWS_MAX

if TYPE_CHECKING:
    import zipfile

    from ..ndarray.sparse import RowSparseNDArray
    from .ndarray import NDArray

    AnyArray: TypeAlias = NDArray | RowSparseNDArray

_NOT_OURS = "not written by tkv.nd.save"
PICKLE = "it looks like a pickle. A pickle is code, and is never read: read it where it was written, and save its arrays again"
SAFETENSORS = (
    "it is a safetensors file: kv.load reads those of kv.save, and safetensors.numpy.load_file reads the arrays of any"
)
MXNET = b"\x12\x01" + bytes(14)  # the first bytes of a file of MXNet's
_ROWS = "rows-"  # before the dtype of a part of a row-sparse array
_EMPTY_DICT = "dict"  # the only name in the file of a dict without arrays
_LONGEST_NAME = 60_000  # bytes; a zip archive has 65,535 for a name
_PIECE = 1 << 20  # bytes that are read at a time
_NPY = b"\x93NUMPY\x01\x00"
_HEADER = re.compile(
    rb"\{'descr': '([^']{1,16})', 'fortran_order': (True|False), 'shape': \(((?:\d{1,19},? ?){0,64})\), \} *\n"
)


# ---------------------------------------------------------------------------------------------------------------- writing


def _tag(name: object, dtype: str) -> str:
    """Return the member's name for the name of an array in a dict."""
    from urllib.parse import quote

    if isinstance(name, str):
        text = str.__str__(name)
        if not text.isprintable() or text.endswith(".npy"):
            text = quote(text, safe="", errors="surrogatepass").replace(".", "%2E")
            kind = "quoted"
        else:
            kind = "key"
        if len(text.encode()) > _LONGEST_NAME:
            raise InvalidArgumentError(f"save: the name {text[:32]!r}... is longer than {_LONGEST_NAME} bytes")
        return f"{kind}:{dtype}:{text}"
    if isinstance(name, SupportsIndex) and not isinstance(name, (bool, Elements, np.ndarray)):
        return f"int:{dtype}:{operator.index(name)}"
    raise InvalidArgumentError(f"save: the name {name!r} has type {type(name).__name__}, a str or an int is needed")


def _tagged(data: Any) -> dict[str, np.ndarray[Any, Any]]:
    """Return the arrays by the names of their members."""
    if isinstance(data, Elements) or is_row_sparse(data):
        data = [data]
    is_dict = isinstance(data, Mapping)
    arrays: dict[str, np.ndarray[Any, Any]] = {_EMPTY_DICT: np.zeros(0)} if is_dict and not data else {}
    for name, value in data.items() if isinstance(data, Mapping) else enumerate(data):
        if is_row_sparse(value):
            of_rows: Any = value
            ids = np.concatenate([[np.uint64(of_rows.shape[0])], of_rows._ids.astype(np.uint64)])
            parts = {f"{_ROWS}ids": ids, f"{_ROWS}{of_rows.dtype_name}": of_rows._data._numpy_for_reading()}
        elif isinstance(value, Elements):
            parts = {value.dtype_name: value._numpy_for_reading()}
        else:
            raise InvalidArgumentError(f"save: {name!r} has type {type(value).__name__}, an NDArray is needed")
        for dtype, raw in parts.items():
            arrays[_tag(name, dtype) if is_dict else f"item:{dtype}:{name}"] = raw
    return arrays


def _mode_of(path: str) -> int | None:
    """Return the permissions of the file that is to be replaced; None if there is none."""
    try:
        status = os.stat(path)
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(status.st_mode):
        raise InvalidArgumentError(f"{path!r} is no regular file, and is not replaced by one")
    if not os.access(path, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)
    return stat.S_IMODE(status.st_mode)


def _path_of(caller: str, fname: str | bytes | os.PathLike[str] | os.PathLike[bytes]) -> str:
    """Return a path as text.

    Raises:
        InvalidArgumentError: a path with a zero byte, at which the system would end it.
    """
    path = os.fsdecode(fname)
    before, zero, _ = path.partition("\0")
    if zero:
        raise InvalidArgumentError(f"{caller}: the path {before!r} goes on behind a zero byte")
    return path


@contextlib.contextmanager
def _errors_of(verb: str, fname: str | bytes | os.PathLike[str] | os.PathLike[bytes]) -> Iterator[None]:
    """Make an error of the system a FileError that names the file that was asked for."""
    try:
        yield
    except KVError:
        raise
    except OSError as error:
        raise _from_os_error(verb, os.fsdecode(fname), error) from None


@contextlib.contextmanager
def replaced(
    fname: str | bytes | os.PathLike[str] | os.PathLike[bytes], mode: int | None = None
) -> Iterator[IO[bytes]]:
    """Write a file beside `fname`, which takes its place when all of it is on the disk; else `fname` is as it was.

    Args:
        fname: if it is a symbolic link, the file that it leads to is replaced.
        mode: permissions; default those of the file that is replaced, or those of a new one.

    Raises:
        InvalidArgumentError: a device, a pipe or a folder.
        OSError: the file cannot be written.
    """
    path = os.path.realpath(_path_of("save", fname))
    with _errors_of("save", fname):
        found = _mode_of(path)
        mode = found if mode is None else mode
        temporary = os.path.join(os.path.dirname(path), f".tensorkv-{os.urandom(8).hex()}")
        handle = os.open(
            temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666 if mode is None else 0o600
        )
        try:
            with os.fdopen(handle, "wb") as out:
                if mode is not None:
                    os.fchmod(handle, mode)
                yield out
                out.flush()
                os.fsync(handle)
            os.replace(temporary, path)
        except BaseException:
            os.unlink(temporary)
            raise


def save(
    fname: str | bytes | os.PathLike[str] | os.PathLike[bytes],
    data: AnyArray
    | Iterable[AnyArray]
    | Mapping[str, AnyArray]
    | Mapping[int, AnyArray]
    | Mapping[int | str, AnyArray]
    | Mapping[str, NDArray]
    | Mapping[int, NDArray]
    | Mapping[int | str, NDArray],
    format: Literal["npz", "mxnet"] = "npz",
) -> None:
    """Write an NDArray, dense or row-sparse, a list or a dict of such to a file, atomically.

    An existing file is replaced only by a complete one, and keeps its permissions; where `fname` is a symbolic link, the
    file that it leads to is replaced.

    Args:
        fname: path of the file.
        data: what to write. The names in a dict are str or int; for MXNet str alone.
        format: ``'npz'`` is NumPy's (no pickle). ``'mxnet'`` is that of ``.params`` files, which MXNet 1.x loads: it loads
            a file that has an array without elements, or of shape ``()``, under ``npx.set_np()`` alone.

    Raises:
        InvalidArgumentError: something that is no NDArray, a name of another type, another format, a dtype that MXNet
            lacks, a path of a device or pipe.
        OSError: the file cannot be written; it is as it was.

    Example:
        >>> path = os.path.join(tempfile.mkdtemp(), 'w')
        >>> tkv.nd.save(path, {'w': tkv.nd.ones((2,))})
        >>> tkv.nd.load(path)['w'].asnumpy()
        array([1., 1.], dtype=float32)
    """
    if format == "mxnet":
        from . import params

        with replaced(fname) as out:
            params.write(out, data)
        return
    if format != "npz":
        raise InvalidArgumentError(f"save: format={format!r}; there are 'npz' and 'mxnet'")
    arrays: dict[str, Any] = _tagged(data)
    with replaced(fname) as out:
        np.savez(out, **arrays)


# ---------------------------------------------------------------------------------------------------------------- reading


def load(fname: str | bytes | os.PathLike[str] | os.PathLike[bytes]) -> Any:
    """Read a file of `save`, or of MXNet's (``.params``): a list, or a dict with the names.

    Arrays are on the host, wherever they were.

    Raises:
        InvalidArgumentError: a file that `save` did not write, or that is damaged or cut off; an array that is not here,
            such as MXNet's of the storage type csr; any pickle.
        ResourceExhaustedError: no memory for an array.
        OSError: there is no such file, or it cannot be read.

    Example:
        >>> path = os.path.join(tempfile.mkdtemp(), 'list')
        >>> tkv.nd.save(path, [tkv.nd.ones((2,))])
        >>> len(tkv.nd.load(path))
        1
    """
    import struct
    import zipfile

    path = _path_of("load", fname)
    problem = _NOT_OURS
    with (
        _errors_of("load", path),
        open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file,
    ):
        try:
            begin = _begin(file)
            if begin == MXNET:
                from . import params

                problem = "a file of MXNet that is damaged, or has an array that is not here"
                return params.read(file)
            return _read(file)
        except (InvalidArgumentError, OutOfRangeError) as error:
            why = str(error)
        except (zipfile.BadZipFile, ValueError, EOFError, NotImplementedError, OverflowError, struct.error) as error:
            why = str(error) or type(error).__name__
        except OSError as error:
            if error.errno != errno.EINVAL:  # a place before the start of the file
                raise
            why = "a place in it is none"
    raise InvalidArgumentError(f"load {path!r}: {problem}: {why[:200]}")


def is_pickle(begin: bytes) -> bool:
    """Return whether bytes begin as a pickle does, of the protocols that say so."""
    return begin[:1] == b"\x80" and b"\x02" <= begin[1:2] <= b"\x05"


def _is_safetensors(begin: bytes, size: int) -> bool:
    """Return whether the first bytes are those of a safetensors file: the length of a header, and the header."""
    return begin[8:9] == b"{" and 8 + int.from_bytes(begin[:8], "little") <= size


def _begin(file: IO[bytes]) -> bytes:
    """Return the first bytes of a file, and go back; refuse what is known and not read here."""
    status = os.fstat(file.fileno())
    if not stat.S_ISREG(status.st_mode):
        raise InvalidArgumentError("it is no regular file")
    begin = file.read(len(MXNET))
    file.seek(0)
    if is_pickle(begin):
        raise InvalidArgumentError(PICKLE)
    if _is_safetensors(begin, status.st_size):
        raise InvalidArgumentError(SAFETENSORS)
    return begin


def _read(file: IO[bytes]) -> Any:
    """Return the arrays of a file that `save` has written."""
    import zipfile

    status = os.fstat(file.fileno())
    with zipfile.ZipFile(file) as archive:
        members = archive.infolist()
        _check_that_nothing_is_lost(file, archive, status.st_size)
        if [member.orig_filename for member in members] == [_EMPTY_DICT + ".npy"]:
            with archive.open(members[0]) as source:
                while source.read(_PIECE):  # to the end, where the checksum is compared
                    pass
            return {}
        arrays: dict[tuple[str, int | str], NDArray | RowSparseNDArray] = {}
        ids: tuple[str, int | str, NDArray] | None = None  # of the array whose rows come next
        for member in members:
            kind, dtype, name = _parsed(member.orig_filename)
            if (kind, name) in arrays:
                raise InvalidArgumentError(f"the name {name!r} stands in it twice")
            is_rest = dtype.startswith(_ROWS) and dtype != f"{_ROWS}ids"
            if is_rest != (ids is not None) or (ids is not None and ids[:2] != (kind, name)):
                raise InvalidArgumentError(f"ids and rows of {name!r} do not stand together in it")
            if ids is not None:
                arrays[kind, name] = _row_sparse(ids[2], _array(archive, member, dtype.removeprefix(_ROWS)))
                ids = None
            elif dtype.startswith(_ROWS):
                ids = kind, name, _array(archive, member, "uint64")
            else:
                arrays[kind, name] = _array(archive, member, dtype)
        if ids is not None:
            raise InvalidArgumentError(f"the rows of {ids[1]!r} are not in it")
    if all(kind == "name" for kind, _ in arrays) and arrays:
        return {name: array for (_, name), array in arrays.items()}
    if list(arrays) != [("item", place) for place in range(len(arrays))]:
        raise InvalidArgumentError("the places of its list are not all there, in their order")
    return list(arrays.values())


def _row_sparse(ids: NDArray, rows: NDArray) -> RowSparseNDArray:
    """Return the array of two members."""
    from .row_sparse import checked

    found = ids.asnumpy()
    if found.ndim != 1 or not found.size or rows.ndim < 1:
        raise InvalidArgumentError("ids without the extent of their array")
    extent = int(found[0])
    if extent > ROWS_MAX or (found[1:] >= ROWS_MAX).any():
        raise InvalidArgumentError("ids that are none")
    return checked("ids", rows, found[1:].astype(np.int64), (extent, *rows.shape[1:]))


def _check_that_nothing_is_lost(file: IO[bytes], archive: zipfile.ZipFile, size: int) -> None:
    """Raise unless the members and their directory fill the file, so that no damage can hide one or make one large."""
    import zipfile

    at = 0
    for member in sorted(archive.infolist(), key=lambda member: member.header_offset):
        is_plain = member.compress_type == zipfile.ZIP_STORED and member.compress_size == member.file_size
        if member.header_offset != at or not is_plain or member.flag_bits & ~0x800:
            raise InvalidArgumentError(f"the member {member.orig_filename[:64]!r} is not as save writes it")
        file.seek(at)
        head = file.read(30)
        if len(head) < 30:
            raise EOFError("cut off")
        at += 30 + int.from_bytes(head[26:28], "little") + int.from_bytes(head[28:30], "little") + member.file_size
    is_whole = at == archive.start_dir
    for member in archive.infolist():
        name = member.orig_filename.encode("utf-8" if member.flag_bits & 0x800 else "cp437")
        at += 46 + len(name) + len(member.extra) + len(member.comment)
    end, large_end = 22, 22 + 20 + 56  # the latter in files of more than 4 GiB
    if not is_whole or size - at not in (end, large_end):
        raise InvalidArgumentError("its directory and its members do not fit")


def _parsed(filename: str) -> tuple[str, str, int | str]:
    """Return kind (item, name), dtype and place or name of a member."""
    kind, dtype, name, *_ = [*filename.removesuffix(".npy").split(":", 2), "", ""]
    if filename.endswith(".npy"):
        if kind == "key":
            return "name", dtype, name
        if kind == "quoted":
            from urllib.parse import unquote

            return "name", dtype, unquote(name, errors="surrogatepass")
        if kind in ("int", "item") and re.fullmatch(r"0|-?[1-9][0-9]{0,4000}", name):
            return "name" if kind == "int" else "item", dtype, int(name)
    raise InvalidArgumentError(f"there is {filename[:64]!r} in it")


def _array(archive: zipfile.ZipFile, member: zipfile.ZipInfo, dtype: str) -> NDArray:
    """Return the array of a member, whose bytes have the checksum of the directory."""
    from .ndarray import NDArray

    with archive.open(member) as source:
        head = source.read(len(_NPY) + 2)
        header = source.read(int.from_bytes(head[len(_NPY) :], "little"))
        found = _HEADER.fullmatch(header)
        if not head.startswith(_NPY) or found is None:
            raise InvalidArgumentError(f"the member {member.orig_filename[:64]!r} has no header of NumPy's")
        shape = [int(extent) for extent in found[3].replace(b",", b" ").split()]
        element = _core._empty(NDArray, [0], dtype, "cpu", 0)._numpy_for_reading().dtype
        byte_count = math.prod(shape) * element.itemsize
        is_shape = all(extent < 1 << 63 for extent in shape)
        if found[1].decode() != element.str or not is_shape or byte_count != member.file_size - len(head) - len(header):
            raise InvalidArgumentError(f"the member {member.orig_filename[:64]!r} has not the bytes of {shape} {dtype}")
        is_fortran = found[2] == b"True"
        result = _core._empty(NDArray, shape[::-1] if is_fortran else shape, dtype, "cpu", 0)
        place = result._numpy_for_writing().reshape(-1).view(np.uint8)
        at = 0
        while at < byte_count:  # the last read compares the checksum
            piece = source.read(min(_PIECE, byte_count - at))
            if not piece:
                raise EOFError("cut off")
            place[at : at + len(piece)] = np.frombuffer(piece, np.uint8)
            at += len(piece)
    if not is_fortran:
        return result
    turned = _core._empty(NDArray, shape, dtype, "cpu", 0)
    turned._numpy_for_writing()[...] = result._numpy_for_reading().T
    return turned
