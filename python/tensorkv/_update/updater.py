"""Updaters: an optimizer with the states that it keeps, called for each key."""

from __future__ import annotations

import copy
import weakref
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from .._array import nd
from ..errors import FailedPreconditionError, InvalidArgumentError, UnimplementedError
from .base import Optimizer
from .reporting_dict import ReportingDict

if TYPE_CHECKING:
    from ..context import Context
    from .running import Running


def _restore(state: Any) -> Callable[[], None]:
    """Return a function that restores the present content of a state, also of its lists, tuples and dicts."""
    if isinstance(state, (nd.NDArray, np.ndarray)):
        content = state.copy()
        return lambda: state.__setitem__(..., content)
    if isinstance(state, (list, tuple, dict)):
        inner = [_restore(item) for item in (state.values() if isinstance(state, dict) else state)]
        kept = copy.copy(state)

        def undo() -> None:
            if isinstance(state, list):
                state[:] = kept
            elif isinstance(state, dict):
                state.clear()
                state.update(kept)
            for restore in inner:
                restore()

        return undo
    return lambda: None


class Updater:
    """An updater, as `get_updater` returns it: call it as ``updater(index, grad, weight)``.

    Attributes:
        optimizer: the optimizer.
        states: dict from key to state. A store that runs the optimizer without Python keeps the states itself; then reading
            and setting them here is an error, and `KVStore.save_optimizer_states` saves them.

    Example:
        >>> updater = tkv.optimizer.Updater(tkv.optimizer.SGD(learning_rate=1, momentum=0.9))
        >>> updater(0, tkv.nd.ones((2,)), tkv.nd.ones((2,)))
        >>> len(updater.states)
        1
    """

    def __init__(self, optimizer: Optimizer) -> None:
        """Keep the optimizer; states are made at the first update of each key."""
        self.optimizer = optimizer
        self.states = {}

    @property
    def states(self) -> dict[Any, Any]:
        """The states by key."""
        self._changed("states")
        return self._held

    @states.setter
    def states(self, states: Mapping[Any, Any]) -> None:
        self._held = ReportingDict(self, "states", states)

    @property
    def states_synced(self) -> dict[Any, bool]:
        """True for each key that has a state: states are in the context of their weights."""
        return dict.fromkeys(self.states, True)

    def __setattr__(self, name: str, value: object) -> None:
        """Set an attribute, unless a store runs the optimizer without Python and would not see it."""
        self._changed(name)
        object.__setattr__(self, name, value)

    def _is_watched(self) -> bool:
        """Return whether a store runs the optimizer without this object."""
        running = self.__dict__.get("_running")
        return running is not None and running() is not None

    def _changed(self, name: str) -> None:
        """Raise if a store runs the optimizer without this object."""
        if self._is_watched():
            raise FailedPreconditionError(
                f"{name}: a store runs the optimizer of this updater without Python, and keeps the states itself; "
                "save_optimizer_states of the store saves them"
            )

    def _belongs_to(self, running: Running) -> None:
        """Refuse changes as long as a store runs the optimizer itself."""
        self.__dict__["_running"] = weakref.ref(running)

    def __getstate__(self) -> dict[str, Any]:
        """Return the attributes for pickle and copy."""
        return {name: value for name, value in self.__dict__.items() if name != "_running"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Take the attributes, with a dict of states of its own."""
        for name, value in state.items():
            self.__dict__[name] = ReportingDict(self, "states", value) if name == "_held" else value

    def _undo_of(self, index: Any) -> Callable[[], None]:
        """Return a function that restores the present counts and state of a key."""
        optimizer = self.optimizer
        count = optimizer._count_of(index) if isinstance(optimizer, Optimizer) else None
        is_new = index not in self.states
        state = self.states.get(index)
        restore = None if is_new else _restore(state)

        def undo() -> None:
            if count is not None:
                optimizer._set_count(index, count)
            if restore is None:
                self.states.pop(index, None)
            else:
                restore()
                self.states[index] = state

        return undo

    def _keeps_master(self, weight: Any) -> bool:
        """Return whether the optimizer keeps a float32 master of a weight."""
        optimizer = self.optimizer
        return isinstance(optimizer, Optimizer) and optimizer._has_master(weight)

    def _forget(self, index: Any) -> None:
        """Drop the state of a key and its count of updates."""
        self.states.pop(index, None)
        optimizer = self.optimizer
        if isinstance(optimizer, Optimizer):
            optimizer._set_count(index, (optimizer._count_of(index)[0], None))

    def _pack(self) -> bytes:
        """Return the states, and the optimizer's counts of updates, for a snapshot."""
        from . import states as _states

        optimizer = self.optimizer
        counts = optimizer._counts() if isinstance(optimizer, Optimizer) else {}
        states = self.__dict__.get("_held", {})  # a subclass may have none
        kept = {key: (states.get(key), key in states, counts.get(key)) for key in {**states, **counts}}
        return _states.pack(kept, "save")

    def _unpack(self, content: bytes | None) -> None:
        """Replace both by the content that `_pack` returned; None: by none."""
        from . import states as _states

        kept = {} if content is None else _states.unpack(content, "load")
        if any(not isinstance(entry, tuple) or len(entry) != 3 for entry in kept.values()):
            raise InvalidArgumentError(
                "load: the states are those of a function, not of an optimizer; set_updater with it comes first"
            )
        self.states = {key: state for key, (state, is_there, _) in kept.items() if is_there}
        if isinstance(self.optimizer, Optimizer):
            self.optimizer._set_counts({key: count for key, (*_, count) in kept.items() if count is not None})

    def __call__(self, index: Any, grad: Any, weight: Any) -> None:
        """Change `weight` in place by `grad`; keys and arrays may be lists.

        A call that fails counts no update and keeps no new state; of lists, the keys before the one that fails are updated.
        A store that calls the updater gives all keys of a push that fails the counts and the states of before, in arrays and
        in lists, tuples and dicts of arrays.
        """
        if isinstance(index, (list, tuple)):
            if not len(index) == len(grad) == len(weight):
                raise InvalidArgumentError(
                    f"updater: {len(index)} keys, {len(grad)} gradients and {len(weight)} weights; as many are needed"
                )
            for one in zip(index, grad, weight, strict=True):
                self(*one)
            return
        optimizer = self.optimizer
        if not isinstance(optimizer, Optimizer):
            raise InvalidArgumentError(f"updater: type {type(optimizer).__name__}, one of tkv.optimizer is needed")
        is_new = index not in self.states
        count = optimizer._count_of(index)
        try:
            if is_new:
                self.states[index] = optimizer.create_state_multi_precision(index, weight)
            optimizer.update_multi_precision(index, weight, grad, self.states[index])
        except BaseException:
            optimizer._set_count(index, count)
            if is_new:
                self.states.pop(index, None)
            raise

    def get_states(self, dump_optimizer: bool = False) -> bytes:
        """Return the states as bytes, which `set_states` takes; of MXNet they are a pickle, and here they are data.

        Args:
            dump_optimizer: MXNet pickles the optimizer too if it is True; an error here.

        Raises:
            UnimplementedError: a state that is no array, number, text, None, or list, tuple or dict of them.
            FailedPreconditionError: a store runs the optimizer without Python, and keeps the states itself.

        Example:
            >>> updater = tkv.optimizer.Updater(tkv.optimizer.SGD(momentum=0.9))
            >>> updater(0, tkv.nd.ones((2,)), tkv.nd.ones((2,)))
            >>> other = tkv.optimizer.Updater(tkv.optimizer.SGD(momentum=0.9))
            >>> other.set_states(updater.get_states())
            >>> list(other.states)
            [0]
        """
        from . import states as _states

        if dump_optimizer:
            raise UnimplementedError(
                "get_states: dump_optimizer=True; an optimizer is code, and whoever loads makes one"
            )
        self._changed("get_states")
        return _states.pack(self._held)

    def set_states(self, states: bytes) -> None:
        """Replace the states by those that `get_states` returned. Counts of updates stay those of the optimizer.

        Raises:
            InvalidArgumentError: other bytes, such as a pickle of MXNet's; the states are as they were.
        """
        from . import states as _states

        self.states = _states.unpack(states)

    def sync_state_context(self, state: Any, context: Context) -> Any:
        """Return a state, an array or lists and tuples of arrays, in a context."""
        from . import states as _states

        return _states.in_context(state, context)


def get_updater(optimizer: Optimizer) -> Updater:
    """Return a function ``updater(index, grad, weight)`` that runs `optimizer` and keeps its state.

    Example:
        >>> updater = tkv.optimizer.get_updater(tkv.optimizer.SGD(learning_rate=1))
        >>> w = tkv.nd.ones((2,))
        >>> updater(0, tkv.nd.ones((2,)), w)
        >>> w.asnumpy()
        array([0., 0.], dtype=float32)
    """
    return Updater(optimizer)
