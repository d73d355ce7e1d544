"""The keys of a model's parameters in a store: their names, their forms, and parameters that are frozen."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from ..errors import InvalidArgumentError
from .torch_params import check_forms, check_place, form_of, make_keys, read_trained

if TYPE_CHECKING:
    from .._store.kvstore import KVStore


class ParameterKeys:
    """The keys of parameters. A parameter gets its key when it first requires a gradient; until then the key is reserved."""

    def __init__(self, who: str, kv: KVStore | None) -> None:
        """Begin without parameters.

        Args:
            who: the class that trains the parameters, for errors.
            kv: the store; None: none, and the keys are only names.
        """
        self.names: dict[Any, str] = {}  # by parameter
        self.params: dict[str, Any] = {}  # by key
        self.frozen: dict[Any, str] = {}  # reserved keys, by parameter
        self._who, self._kv = who, kv
        self._forms: dict[Any, tuple[Any, Any]] = {}  # dtypes and shapes of the keys
        self._unread: dict[str, Any] = {}  # parameters whose keys a failed call has made

    def every(self) -> list[str]:
        """Return all keys, with those that are reserved."""
        return [*self.params, *self.frozen.values()]

    def taking_part(self) -> dict[str, Any]:
        """Return the parameters that have keys and require a gradient, by key."""
        return {key: parameter for key, parameter in self.params.items() if parameter.requires_grad}

    def find_new(
        self, named: Iterable[tuple[str | None, Any]], prefix: str = ""
    ) -> tuple[dict[str, Any], dict[Any, str]]:
        """Return the parameters that are to have keys now, by key, and the keys of those that require no gradient yet.

        Args:
            named: names and parameters; a parameter without a name has its number as name.
            prefix: put before each name.

        Raises:
            InvalidArgumentError: two parameters have one name, or a parameter has two.
            UnimplementedError: a parameter is in memory that stores do not take.
        """
        new: dict[str, Any] = {}
        frozen: dict[Any, str] = {}
        seen = {key: parameter for parameter, key in (*self.names.items(), *self.frozen.items())}
        keys = {parameter: key for key, parameter in seen.items()}
        for number, (name, parameter) in enumerate(named, len(seen)):
            key = f"{prefix}{number if name is None else name}"
            check_place(self._who, key, parameter)
            if key in seen:
                raise InvalidArgumentError(f"{self._who}: two parameters have the name {key!r}")
            if parameter in keys:
                raise InvalidArgumentError(
                    f"{self._who}: {keys[parameter]!r} and {key!r} are the same parameter; give it once"
                )
            seen[key], keys[parameter] = parameter, key
            if parameter.requires_grad:
                new[key] = parameter
            else:
                frozen[parameter] = key
        return new, frozen

    def add(self, new: dict[str, Any]) -> None:
        """Take parameters whose keys are made."""
        for key, parameter in new.items():
            self.names[parameter], self.params[key], self._forms[parameter] = key, parameter, form_of(parameter)
            self.frozen.pop(parameter, None)

    def make(self, new: dict[str, Any]) -> None:
        """Make keys and give the parameters the values of rank 0. A call that fails can be repeated."""
        if self._kv is not None:
            make_keys(self._kv, new, self._unread)
        self.add(new)

    def reserve(self, frozen: dict[Any, str], reads_trained: bool) -> None:
        """Note parameters that require no gradient yet.

        Args:
            frozen: their keys.
            reads_trained: give them the store's values, if an earlier process has trained them.
        """
        self.frozen.update(frozen)
        if reads_trained and self._kv is not None:
            trained = {key: parameter for parameter, key in frozen.items()}
            read_trained(self._kv, trained, self.params, self._unread)

    def unfrozen(self) -> dict[str, Any]:
        """Return the parameters without keys that require a gradient now, by reserved key."""
        return {key: parameter for parameter, key in self.frozen.items() if parameter.requires_grad}

    def check_forms(self) -> None:
        """Raise if a script has given a parameter another dtype or shape than its key has."""
        check_forms(self._who, self.names, self._forms)
