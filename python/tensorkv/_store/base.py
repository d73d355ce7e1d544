"""Stores of other makes, and the names under which `create` finds them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from .. import _core
from ..errors import InvalidArgumentError

if TYPE_CHECKING:
    from os import PathLike

    from .._array.ndarray import NDArray
    from ..optimizer import Optimizer

C = TypeVar("C", bound="type[Any]")
_registry: dict[str, type[Any]] = {}


def registered(name: str) -> type[Any] | None:
    """Return the class that is registered under a name, in any case."""
    return _registry.get(name.lower())


class _StoreMeta(type):
    """Makes every store an instance of KVStoreBase, also without that base class."""

    def __instancecheck__(cls, instance: object) -> bool:
        return super().__instancecheck__(instance) or (cls is KVStoreBase and isinstance(instance, _core.Store))

    def __subclasscheck__(cls, subclass: type) -> bool:
        return super().__subclasscheck__(subclass) or (cls is KVStoreBase and issubclass(subclass, _core.Store))


class KVStoreBase(metaclass=_StoreMeta):
    """The interface that stores of other makes implement: broadcast, pushpull, set_optimizer and a few properties.

    Example:
        >>> @tkv.kv.KVStoreBase.register
        ... class MyStore(tkv.kv.KVStoreBase):
        ...     pass
        >>> type(tkv.kv.create('mystore')).__name__
        'MyStore'
    """

    OPTIMIZER = "optimizer"
    kv_registry: ClassVar[dict[str, type[Any]]] = _registry

    def broadcast(self, key: Any, value: Any, out: Any, priority: int = 0) -> None:
        """Give every output the initial value."""
        raise NotImplementedError

    def pushpull(self, key: Any, value: Any, out: Any = None, priority: int = 0) -> None:
        """Sum the values and give every output the result."""
        raise NotImplementedError

    def set_optimizer(self, optimizer: Optimizer) -> None:
        """Run `optimizer` in the store at each push."""
        raise NotImplementedError

    @staticmethod
    def is_capable(capability: str) -> bool:
        """Return whether the store has a capability; the only one defined is ``'optimizer'``."""
        raise NotImplementedError

    def save_optimizer_states(self, fname: str | PathLike[str], dump_optimizer: bool = False) -> None:
        """Write the optimizer's states to a file."""
        raise NotImplementedError

    def load_optimizer_states(self, fname: str | PathLike[str]) -> None:
        """Read the optimizer's states from a file."""
        raise NotImplementedError

    @property
    def type(self) -> str:
        """The name of the store's type."""
        raise NotImplementedError

    @property
    def rank(self) -> int:
        """The number of this worker."""
        raise NotImplementedError

    @property
    def num_workers(self) -> int:
        """The number of workers."""
        raise NotImplementedError

    @staticmethod
    def register(klass: C) -> C:
        """Make `create` find the class `klass` by its name in lower case; return it. A decorator."""
        if not isinstance(klass, type):
            raise InvalidArgumentError(f"register: {klass!r} is no class")
        _registry[klass.__name__.lower()] = klass
        return klass


@KVStoreBase.register
class TestStore(KVStoreBase):
    """``create('teststore')``: broadcast and pushpull without any state, for tests of code that uses a store.

    Example:
        >>> a = tkv.nd.ones((2,))
        >>> tkv.kv.create('teststore').pushpull(3, [a, a])
        >>> a.asnumpy()
        array([2., 2.], dtype=float32)
    """

    __test__ = False  # not a test class for pytest

    def broadcast(self, key: object, value: Any, out: Any, priority: int = 0) -> None:
        """Copy `value` into every output."""
        for target in out if isinstance(out, (list, tuple)) else [out]:
            target[:] = value

    def pushpull(self, key: object, value: Any, out: Any = None, priority: int = 0) -> None:
        """Sum the values into the outputs, or back into the values."""
        values: list[NDArray] = list(value) if isinstance(value, (list, tuple)) else [value]
        total = values[0].copy()
        for other in values[1:]:
            total += other
        out = value if out is None else out
        for target in out if isinstance(out, (list, tuple)) else [out]:
            target[:] = total

    @staticmethod
    def is_capable(capability: str) -> bool:
        """Return False for ``'optimizer'``."""
        if str(capability).lower() == "optimizer":
            return False
        raise InvalidArgumentError(f"is_capable: unknown capability {capability!r}; there is 'optimizer'")

    @property
    def type(self) -> str:
        """``'teststore'``."""
        return "teststore"

    @property
    def rank(self) -> int:
        """0."""
        return 0

    @property
    def num_workers(self) -> int:
        """1."""
        return 1
