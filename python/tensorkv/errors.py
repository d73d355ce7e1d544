"""The exceptions of TensorKV: one base class, one subclass per code.

Each is also the built-in exception that fits, so that ``except KeyError`` or ``except TimeoutError`` work. The codes are
those of gRPC. Messages read ``verb key: what was found, what was wanted``.

Example:
    >>> try:
    ...     tkv.kv.create('local').pull(7)
    ... except KeyError as error:
    ...     print(error.code, error)
    5 pull 7: no such key, init it first
"""

from __future__ import annotations

import errno
import functools
import os
from typing import cast

from ._core import _code_of_system_error, _error_codes

__all__ = [
    "AbortedError",
    "AlreadyExistsError",
    "CancelledError",
    "DataLossError",
    "DeadlineExceededError",
    "FailedPreconditionError",
    "FileError",
    "FolderNotFoundError",
    "InternalError",
    "InvalidArgumentError",
    "KVError",
    "KeyNotFoundError",
    "MXNetError",
    "OutOfRangeError",
    "ResourceExhaustedError",
    "SnapshotNotFoundError",
    "UnauthenticatedError",
    "UnavailableError",
    "UnimplementedError",
]


def __dir__() -> list[str]:
    """Return the public names."""
    return __all__


_CODES = _error_codes()


class KVError(RuntimeError):
    """Base class; ``code`` is the number of the error's code."""

    code: int = 0

    def __init__(self, *args: object) -> None:
        """Keep the message."""
        super().__init__(*args)

    def __str__(self) -> str:
        """Return the message, also where another base class would quote it."""
        return str(self.args[0]) if len(self.args) == 1 else super().__str__()


class CancelledError(KVError):
    """The operation was cancelled."""

    code: int = _CODES["Cancelled"]


class InvalidArgumentError(KVError, ValueError, TypeError):
    """A wrong shape, dtype, key, length, context or type."""

    code: int = _CODES["InvalidArgument"]


class DeadlineExceededError(KVError, TimeoutError):
    """A wait ended with its deadline."""

    code: int = _CODES["DeadlineExceeded"]


class KeyNotFoundError(KVError, KeyError):
    """A key, or an optimizer, that does not exist."""

    code: int = _CODES["NotFound"]


class SnapshotNotFoundError(KVError, FileNotFoundError):
    """There is no snapshot at a path."""

    code: int = _CODES["NotFound"]


class FolderNotFoundError(KVError, FileNotFoundError):
    """There is no folder for a file that is to be written."""

    code: int = _CODES["NotFound"]


class AlreadyExistsError(KVError, ValueError):
    """A key that was initialised before."""

    code: int = _CODES["AlreadyExists"]


class ResourceExhaustedError(KVError, MemoryError):
    """The machine has no such memory."""

    code: int = _CODES["ResourceExhausted"]


class FailedPreconditionError(KVError):
    """The store is closed, was made before a fork, or is already running the requested operation."""

    code: int = _CODES["FailedPrecondition"]


class AbortedError(KVError):
    """This process was fenced off."""

    code: int = _CODES["Aborted"]


class OutOfRangeError(KVError, IndexError):
    """An index beyond an array."""

    code: int = _CODES["OutOfRange"]


class UnimplementedError(KVError, NotImplementedError):
    """A feature that this build does not have; the message names it."""

    code: int = _CODES["Unimplemented"]


class InternalError(KVError):
    """A bug in TensorKV."""

    code: int = _CODES["Internal"]


class UnavailableError(KVError, ConnectionError):
    """A peer is gone."""

    code: int = _CODES["Unavailable"]


class DataLossError(KVError):
    """Bytes that were stored are damaged."""

    code: int = _CODES["DataLoss"]


class UnauthenticatedError(KVError, PermissionError):
    """A peer that could not prove who it is."""

    code: int = _CODES["Unauthenticated"]


class FileError(KVError, OSError):
    """A file or folder cannot be read or written; ``errno`` has the system's number.

    Each instance is also one of its code's class, whose name it has, and of the built-in class of its number. A full disk
    gives a `ResourceExhaustedError`, a folder of another user a `FailedPreconditionError` and PermissionError. A missing
    file gives a FileNotFoundError, and no `KeyNotFoundError`.
    """

    code: int = _CODES["Unavailable"]

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle what makes the error anew, with its class."""
        if self.errno is None or type(self) is not _file_class(self.code, self.errno):  # made by a script
            return cast("tuple[object, ...]", super().__reduce__())
        return _file_error, (self.code, self.errno, str(self)), {**self.__dict__, "filename": self.filename}


_BY_CODE = {cls.code: cls for cls in KVError.__subclasses__() if not issubclass(cls, (FileNotFoundError, FileError))}


@functools.cache
def _file_class(code: int, number: int) -> type[FileError]:
    bases: list[type] = [FileError] if code == KeyNotFoundError.code else [FileError, _BY_CODE[code]]
    name = bases[-1].__name__
    builtin = type(OSError(number, ""))
    if not any(issubclass(base, builtin) for base in bases):
        bases.append(builtin)
    return cast("type[FileError]", type(name, tuple(bases), {"code": code, "__module__": __name__}))


def _file_error(code: int, number: int, message: str) -> FileError:
    """Return the error of a call on a file that has failed."""
    error = _file_class(code, number)(message)
    error.errno, error.strerror = number, os.strerror(number)
    return error


def _from_os_error(verb: str, path: str, error: OSError) -> FileError:
    """Return the error of a verb whose call on a file, made by Python, has failed."""
    number = error.errno or errno.EIO
    made = _file_error(_code_of_system_error(number), number, f"{verb}: {path}: {error.strerror}")
    made.filename = path
    return made


MXNetError = KVError
