"""Types of arguments, for type checkers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal, Protocol, SupportsFloat, SupportsIndex, TypeAlias, TypedDict, TypeVar

if TYPE_CHECKING:
    from os import PathLike
    from types import EllipsisType

    import numpy as np
    from typing_extensions import Buffer

    from . import _core, optimizer
    from ._array.ndarray import NDArray
    from .context import Context
    from .ndarray.sparse import RowSparseNDArray


class SupportsDLPack(Protocol):
    """An array that speaks DLPack: NDArray, and those of NumPy, PyTorch, JAX, CuPy."""

    @property
    def __dlpack__(self) -> Callable[..., Any]: ...


class SupportsCSR(Protocol):
    """A sparse matrix of SciPy."""

    def tocsr(self) -> Any:
        """Return it by rows."""


class FrameworkDType(Protocol):
    """An element type of another framework, such as ``torch.bfloat16``."""

    @property
    def itemsize(self) -> int: ...

    @property
    def is_floating_point(self) -> bool: ...


class ScalarType(Protocol):
    """A type of scalars that knows its element type, such as ``jax.numpy.bfloat16``."""

    @property
    def dtype(self) -> np.dtype[Any]: ...


class Rendezvous(Protocol):
    """A store through which the processes of a job find each other, such as a ``torch.distributed.TCPStore``."""

    def set(self, key: str, value: str, /) -> object:
        """Set a key for all processes."""

    def get(self, key: str, /) -> object:
        """Return the value of a key, bytes or str."""

    def wait(self, keys: list[str], timeout: timedelta, /) -> object:
        """Wait until the keys are set; raise if that takes longer than `timeout`."""


class NamedFields(Protocol):
    """A NamedTuple."""

    def _asdict(self) -> dict[str, Any]: ...


# ---- keys and values of the verbs

K = TypeVar("K", bound="int | str | SupportsIndex")
Key: TypeAlias = "int | str | SupportsIndex"
Keys: TypeAlias = "list[K] | tuple[K, ...]"
DenseArray: TypeAlias = "SupportsDLPack | Buffer"
Array: TypeAlias = "DenseArray | RowSparseNDArray | SupportsCSR"
Arrays: TypeAlias = "Array | Sequence[Array]"
# Whole numbers that name rows.
RowIds: TypeAlias = "Array | SupportsIndex | Sequence[Any]"
# Dicts and NamedTuples of arrays, which may nest; one of each device.
Tree: TypeAlias = "Mapping[Any, Any] | NamedFields | Sequence[Mapping[Any, Any]] | Sequence[NamedFields]"
ArraysOfKeys: TypeAlias = "Sequence[Array | Sequence[Array]]"
# Arrays that can take a result themselves.
Target: TypeAlias = "NDArray | np.ndarray[Any, Any]"
Targets: TypeAlias = "Target | Sequence[Target | Sequence[Target]]"

# ---- arrays

DType: TypeAlias = "str | type[Any] | np.dtype[Any] | FrameworkDType | ScalarType | None"
DTypeName: TypeAlias = "type[Any] | Literal['bfloat16', 'float8_e4m3fn', 'float8_e5m2']"
Shape: TypeAlias = "SupportsIndex | Sequence[SupportsIndex]"
Scalar: TypeAlias = "float | np.number[Any] | np.bool_"
Operand: TypeAlias = "Scalar | np.ndarray[Any, Any] | _core.Array"
Nested: TypeAlias = "SupportsFloat | _core.Array | Sequence[Nested]"
Elements: TypeAlias = "Nested | SupportsDLPack | Buffer"
Index: TypeAlias = (
    "SupportsIndex | slice | EllipsisType | np.ndarray[Any, Any] | _core.Array | Sequence[int] | None | tuple[Any, ...]"
)
Where: TypeAlias = "Context | Literal['cpu', 'gpu'] | None"

# ---- options of create()

Mode: TypeAlias = Literal["sync", "async"]
OnDeath: TypeAlias = Literal["fail", "continue", "wait"]
Transport: TypeAlias = Literal["auto", "unix", "tcp"]
Tls: TypeAlias = Literal["auto", "on", "off"]
LogLevel: TypeAlias = Literal["off", "error", "warning", "info", "debug"]
Bootstrap: TypeAlias = "Rendezvous | Literal['self']"


class ClusterOptions(TypedDict, total=False):
    """The options of `testing.cluster`."""

    threads: int | None
    patience_ms: int | None
    patience: float | None
    server_patience_ms: int | None
    server_patience: float | None
    staleness: int | None
    on_death: OnDeath | None
    deterministic: bool | None
    window_bytes: int | None
    snapshots: str | PathLike[str] | None
    snapshot_every: str | int | None
    transport: Transport | None
    insecure_network: bool | None
    tls: Tls | None
    check_values: bool | None
    silence_ms: int | None
    silence: float | None
    failpoints: str | None
    rows_dir: str | PathLike[str] | None
    log: LogLevel | None


class StoreOptions(ClusterOptions, total=False):
    """The options of `create`."""

    url: str | None
    token_file: str | PathLike[str] | None
    bootstrap: Bootstrap | None
    rank: int | None
    num_workers: int | None
    servers: int | None


# ---- optimizers


class OtherHyperparametersBesideLazy(TypedDict, total=False):
    """The arguments of `Optimizer` but the learning rate and `lazy_update`."""

    rescale_grad: float
    param_idx2name: Mapping[int, str] | None
    wd: float
    clip_gradient: float | None
    lr_scheduler: Callable[[int], float] | None
    sym: object
    begin_num_update: int
    multi_precision: bool
    param_dict: Mapping[Any, Any] | None


class HyperparametersBesideLazy(OtherHyperparametersBesideLazy, total=False):
    """The arguments of `Optimizer` but `lazy_update`."""

    learning_rate: float | None


class OtherHyperparameters(OtherHyperparametersBesideLazy, total=False):
    """The arguments of `Optimizer` but the learning rate."""

    lazy_update: bool


class Hyperparameters(OtherHyperparameters, total=False):
    """The arguments of `Optimizer`."""

    learning_rate: float | None


# ---- what a store calls

UpdateFunction: TypeAlias = "Callable[[Any, NDArray, NDArray], object]"
AnyUpdater: TypeAlias = "UpdateFunction | optimizer.Optimizer | optimizer.Updater | _core.Program | _core.Optimizer"
