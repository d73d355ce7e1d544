"""What the verbs take, for type checkers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol, SupportsIndex, TypeAlias

if TYPE_CHECKING:
    from typing_extensions import Buffer


class SupportsDLPack(Protocol):
    """An array that speaks DLPack: NDArray, and those of NumPy, PyTorch, JAX, CuPy."""

    @property
    def __dlpack__(self) -> Callable[..., Any]: ...


Key: TypeAlias = int | str | SupportsIndex
Keys: TypeAlias = list[int] | list[str] | list[Key] | tuple[Key, ...]
Array: TypeAlias = "SupportsDLPack | Buffer"
Arrays: TypeAlias = "Array | Sequence[Array]"
ArraysOfKeys: TypeAlias = "Sequence[Array] | Sequence[Sequence[Array]]"
