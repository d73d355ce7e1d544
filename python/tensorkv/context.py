"""Contexts: the devices on which arrays live."""

from __future__ import annotations

import sys
import threading
from typing import TYPE_CHECKING, ClassVar, Literal, NoReturn, SupportsIndex

from . import _core
from .errors import InvalidArgumentError

__all__ = ["Context", "cpu", "current_context", "gpu", "gpu_memory_info", "num_gpus"]


def __dir__() -> list[str]:
    """Return the public names."""
    return __all__


if not TYPE_CHECKING:  # checkers say themselves that a name is not here

    def __getattr__(name: str) -> NoReturn:
        """Say what to use in the place of what MXNet has."""
        from .mxnet import elsewhere

        elsewhere.missing("mx.context", name, sys.modules[__name__])


_TYPEIDS = {"cpu": 1, "gpu": 2}


class _Defaults(threading.local):
    """The contexts whose with blocks the thread is in, outermost first."""

    def __init__(self) -> None:
        self.entered: list[Context] = []


_defaults = _Defaults()


def _missing(found: object, name: str) -> NoReturn:
    """Say what to use in the place of a member of MXNet's Context."""
    from .mxnet import elsewhere

    elsewhere.missing("Context", name, found)


class _ContextMeta(type):
    """Refuses MXNet's `Context.default_ctx`: code that sets it would find that nothing has changed."""

    @property
    def default_ctx(cls) -> NoReturn:
        _missing(cls, "default_ctx")

    @default_ctx.setter
    def default_ctx(cls, value: object) -> NoReturn:
        _missing(cls, "default_ctx")


class Context(metaclass=_ContextMeta):
    """A device: ``Context('cpu', 0)``. Every ``cpu(i)`` is host memory; the index only says which worker it stands for.

    Args:
        device_type: ``'cpu'`` or ``'gpu'``, or another Context to copy.
        device_id: its number, from 0.

    Raises:
        InvalidArgumentError: another device type, a negative number.

    Example:
        >>> tkv.Context('cpu', 2) == tkv.cpu(2)
        True
        >>> tkv.gpu(1)
        gpu(1)
        >>> with tkv.cpu(1):
        ...     tkv.nd.ones((2,)).context
        cpu(1)
    """

    __slots__ = ("device_id", "device_type")

    devstr2type: ClassVar[dict[str, int]] = _TYPEIDS
    devtype2str: ClassVar[dict[int, str]] = {number: name for name, number in _TYPEIDS.items()}
    device_id: int
    device_type: Literal["cpu", "gpu"]

    def __init__(self, device_type: Literal["cpu", "gpu"] | Context, device_id: SupportsIndex = 0) -> None:
        """Name a device; whether the machine has it is checked when an array is made there."""
        if isinstance(device_type, Context):
            device_id = device_type.device_id
            device_type = device_type.device_type
        if device_type not in _TYPEIDS:
            raise InvalidArgumentError(f"context: device type {device_type!r}; cpu and gpu are possible")
        if isinstance(device_id, bool) or not hasattr(device_id, "__index__") or int(device_id) < 0:
            raise InvalidArgumentError(
                f"context {device_type}: device number {device_id!r}, a whole number from 0 is needed"
            )
        object.__setattr__(self, "device_type", device_type)
        object.__setattr__(self, "device_id", int(device_id))

    def __setattr__(self, name: str, value: object) -> NoReturn:
        """Refuse: contexts are values."""
        raise AttributeError("a Context cannot be changed")

    if not TYPE_CHECKING:  # checkers say themselves that a name is not here

        def __getattr__(self, name: str) -> NoReturn:
            """Say what to use in the place of what MXNet has."""
            _missing(self, name)

    @property
    def device_typeid(self) -> int:
        """1 for cpu, 2 for gpu."""
        return _TYPEIDS[self.device_type]

    def __eq__(self, other: object) -> bool:
        """Compare type and number."""
        if not isinstance(other, Context):
            return NotImplemented
        return (self.device_type, self.device_id) == (other.device_type, other.device_id)

    def __hash__(self) -> int:
        """Hash type and number."""
        return hash((self.device_type, self.device_id))

    def __repr__(self) -> str:
        """Return ``cpu(0)``."""
        return f"{self.device_type}({self.device_id})"

    def __enter__(self) -> Context:
        """Make this the context that arrays of this thread get by default, until the end of the with block."""
        _defaults.entered.append(self)
        return self

    def __exit__(self, *exception: object) -> None:
        """Make the context that was the default before the default again."""
        _defaults.entered.pop()

    def __reduce__(self) -> tuple[type[Context], tuple[str, int]]:
        """Pickle by type and number."""
        return Context, (self.device_type, self.device_id)


def cpu(device_id: SupportsIndex = 0) -> Context:
    """Return the context of host memory that stands for worker `device_id`.

    Example:
        >>> tkv.nd.ones((2,), tkv.cpu(1)).context
        cpu(1)
    """
    return Context("cpu", device_id)


def gpu(device_id: SupportsIndex = 0) -> Context:
    """Return the context of GPU `device_id`. The machine need not have it: that is checked when an array is made there.

    Example:
        >>> tkv.gpu(1).device_type
        'gpu'
    """
    return Context("gpu", device_id)


def num_gpus() -> int:
    """Return how many GPUs arrays can live on: 0 if there is no NVIDIA driver that can be used.

    Example:
        >>> tkv.context.num_gpus() >= 0
        True
    """
    return _core._num_gpus()


def gpu_memory_info(device_id: SupportsIndex = 0) -> tuple[int, int]:
    """Return the free and the total memory of GPU `device_id`, in bytes.

    The driver reports the free bytes. Memory of arrays that are gone is kept for the next ones, and is not free.

    Raises:
        UnimplementedError: no NVIDIA driver that can be used.
        InvalidArgumentError: there are fewer GPUs.
        UnavailableError: the GPU is lost.

    Example:
        >>> tkv.context.gpu_memory_info(0)  # doctest: +SKIP
        (84122402816, 85017755648)
    """
    return _core._gpu_memory(gpu(device_id).device_id)


def current_context() -> Context:
    """Return the context that arrays get by default: that of the innermost with block, else ``cpu(0)``.

    Example:
        >>> tkv.current_context()
        cpu(0)
    """
    return _defaults.entered[-1] if _defaults.entered else Context("cpu", 0)
