"""Updaters and optimizers of a store, and functions that servers run as programs."""

from __future__ import annotations

from collections.abc import Callable
from types import MethodType
from typing import TYPE_CHECKING, Any

from .. import _core
from .._array.ndarray import NDArray
from .._array.rows import is_rows
from .._part import part_of
from ..errors import InvalidArgumentError, UnimplementedError
from .values import shape_and_dtype
from .verbs import KVStoreVerbs

if TYPE_CHECKING:
    from .._types import AnyUpdater, Key
    from .._update.functions import Called, Read, UpdaterSteps
    from .._update.running import Running
    from ..optimizer import Optimizer, Program, Updater


@part_of("KVStore")
class KVStoreUpdating(KVStoreVerbs):
    """The part of KVStore that combines a pushed sum with the stored value."""

    _updater: AnyUpdater | None  # keeps the updater alive
    _function: Called | Read | UpdaterSteps | None
    _native: _core.Optimizer | None  # of a Program

    def set_updater(self, updater: AnyUpdater | None) -> None:
        """Replace how a push combines the sum with the stored value.

        Args:
            updater: ``f(key, input, stored)``, which changes the NDArray `stored` in place; or a `Program`; or an optimizer;
                or None, which restores assignment.

        A store of one process calls a function at each push; there it may use other keys of the store.

        The servers of a distributed store run no Python: each rank reads its function as a program, and that of rank 0
        counts. Reading calls the function twice for each key, of later keys at their init, with arrays that have no
        elements. Reading then calls the function on a few elements and compares the results with those of the program.
        The first call of rank 0 may print; what the other calls print is thrown away. A function that changes
        something outside of itself, such as a counter, is refused; `state` keeps arrays from one update to the next.

        Numbers from outside of the function get into the program with their values at that time. A later change of such
        a number counts in a store of one process at once, and on servers when the function is set again (a `Program`
        has `set_param`). If another rank has set a function and rank 0 has not, a round with a push of that rank is an
        error, as with `set_optimizer`. `explain` on rank 0 shows the program that the servers run; docs/programs.md
        says what a function may do.

        A store of one process also takes an object of a class derived from `tkv.optimizer.Updater` and calls it, and the
        object keeps the states. A distributed store takes an `tkv.optimizer.Updater` itself, and refuses derived classes.
        A function that is called runs on the thread that pushes, once per key, in the order in which the keys first appear
        in the call. If it raises, the exception reaches the caller of push and no key of that call has changed.

        Raises:
            InvalidArgumentError: a function that cannot be read, with the line and the reason; a later init raises it for
                its keys. An async function or a generator function, which updates nothing. The updater before stays.
            UnimplementedError: in a distributed store, an `tkv.optimizer.Updater` that has states or is of a derived class, or an
                optimizer that cannot run without Python.

        Example:
            >>> kv = tkv.kv.create('local')
            >>> kv.init(3, tkv.nd.ones((2,)))
            >>> def update(key, input, stored):
            ...     stored += input * 2
            >>> kv.set_updater(update)
            >>> kv.push(3, tkv.nd.ones((2,)))
            >>> kv.pull(3).asnumpy()
            array([3., 3.], dtype=float32)
        """
        from .. import optimizer

        if isinstance(updater, optimizer.Optimizer):
            self.set_optimizer(updater)
        elif isinstance(updater, optimizer.Updater):
            self._run_updater(updater)
        elif isinstance(updater, _core.Program):
            self._run_native(updater._native if isinstance(updater, optimizer.Program) else _core.Optimizer(updater))
        elif isinstance(updater, _core.Optimizer):
            self._run_native(updater)
        elif updater is None:
            self._set_function(None)
            self._holds(None, None)
        elif callable(updater):
            from .._update.functions import check_arguments

            check_arguments(updater)
            self._run_function(updater)
        else:
            raise InvalidArgumentError(
                f"set_updater: type {type(updater).__name__}; a function, a Program, an optimizer or None is needed"
            )

    def _holds(
        self, updater: AnyUpdater | None, running: Running | None, function: Called | Read | UpdaterSteps | None = None
    ) -> None:
        """Keep the updater that the store calls or runs from now on."""
        if self._running not in (None, running):
            self._running.optimizer.num_update = self._running.optimizer.num_update  # a copy of the store's count
        self._updater, self._running, self._function, self._native = updater, running, function, None

    def _run_native(self, optimizer: _core.Optimizer) -> None:
        """Run a program."""
        self._set_optimizer(optimizer)
        self._holds(None, None)
        self._native = optimizer

    def _run_function(self, updater: Callable[..., Any]) -> None:
        """Call a function at each push. A distributed store reads it as a program instead; servers run that of rank 0."""
        from .._update.functions import Called, Read

        now = self._function
        called = now if isinstance(now, Called) and _is_same(now.function, updater) else Called(updater)
        try:
            self._set_function(called)
            self._holds(updater, None, called)
            return
        except UnimplementedError:
            pass
        read = Read(updater, prints=self.rank == 0)
        with read.binding():
            for key in self._keys():
                if key in self._own:
                    continue
                form = self._info("set_updater", key)
                if form.rows is None:
                    read.meet(key, form.shape, form.dtype)
                else:
                    read.meet(key, (1, *form.shape), form.dtype, is_table=True)
        if read.program is not None:
            self._set_optimizer(_core.Optimizer(read.program, lazy=False))
        self._holds(updater, None, read)

    def _read(self) -> Read | None:
        """Return the function that servers run as a program, or None if there is none."""
        if self._function is None:
            return None
        from .._update.functions import Read

        return self._function if isinstance(self._function, Read) else None

    def _meets(self, key: Any, value: Any) -> None:
        """Read the function that servers run for keys that are about to be made."""
        read = self._read()
        if read is None:
            return
        is_list = isinstance(key, (list, tuple))
        keys, values = (key, value) if is_list else ([key], [value])
        if not isinstance(values, (list, tuple)) or len(keys) != len(values):
            return  # init says what is wrong
        if not self._keys():
            read.free()
        forms: list[tuple[tuple[int, ...], str, bool]] = []
        plain = [self._new_key(one) for one in keys]
        if None in plain:
            return  # init says what is wrong
        for array in values:
            alone = array[0] if isinstance(array, (list, tuple)) and array else array
            if is_rows(alone):
                shape, dtype = shape_and_dtype(alone)
                forms.append(((1, *shape[1:]), dtype, True))
                continue
            try:
                view = _core._view_of(NDArray, alone, False)
            except InvalidArgumentError:
                return  # init says what is wrong
            forms.append((view.shape, view.dtype_name, False))
        self._meets_forms(read, plain, forms)

    def _new_key(self, key: Any) -> Any:
        """Return a key as functions get it, or None if there is such a key, or can be none."""
        from .._update.functions import plain_key

        plain = plain_key(key)
        return None if plain is None or self._contains(plain) else plain

    def _meets_forms(self, read: Read, keys: Any, forms: list[tuple[tuple[int, ...], str, bool]]) -> None:
        was_read = read.program is not None
        with read.binding():
            for one, (shape, dtype, is_table) in zip(keys, forms, strict=True):
                read.meet(one, shape, dtype, is_table)
        if read.program is not None and not was_read:
            self._set_optimizer(_core.Optimizer(read.program, lazy=False))

    def _meets_table(self, key: Any, row_shape: list[int], dtype: str) -> None:
        """Read the function that servers run for a table that is about to be made."""
        read, plain = self._read(), self._new_key(key)
        if read is not None and plain is not None:
            if not self._keys():
                read.free()
            self._meets_forms(read, [plain], [((1, *row_shape), dtype, True)])

    def state(self, name: str) -> NDArray:
        """Return an array that a function of `set_updater` keeps for the key that it is called for: zeros at first.

        The array has the key's shape and dtype. For 16-bit floats it is float32, as are the key's arrays that the
        function gets. The function changes it in place. If a push fails because the function raises, the array is as
        before the push. Another updater begins with new states; servers keep them if its program is the same. `save`, `load`
        and the verbs of optimizer states handle them like those of an optimizer.

        Args:
            name: a letter, then letters, digits and ``_``, 64 characters at most. Programs reserve ``sum``, ``value``, ``t``,
                ``n``, ``program``, ``param``, ``state`` and ``scalar``, and in upper and lower case ``inf``, ``infinity`` and
                ``nan``.

        Raises:
            FailedPreconditionError: no function of `set_updater` runs in this thread.
            InvalidArgumentError: a name that is reserved or has other characters.

        Example:
            >>> kv = tkv.kv.create('local')
            >>> kv.init(3, tkv.nd.zeros((2,)))
            >>> def momentum(key, grad, weight):
            ...     m = kv.state('m')
            ...     m *= 0.5
            ...     m += grad
            ...     weight -= m
            >>> kv.set_updater(momentum)
            >>> kv.push(3, tkv.nd.ones((2,)))
            >>> kv.push(3, tkv.nd.ones((2,)))
            >>> kv.pull(3).asnumpy()
            array([-2.5, -2.5], dtype=float32)
        """
        from .._update.functions import state

        return state(name)  # type: ignore[no-any-return]  # an array without elements while the function is read

    def explain(self, key: Key) -> None:
        """Print the effect of a push on the key's value, in words and as an update program.

        Ranks other than 0, restarted workers and observers ask the server of the key. The server reports its program
        and the hyperparameters of its last update of the key.

        Raises:
            KeyNotFoundError: no such key.
            DeadlineExceededError, UnavailableError: that server does not answer.

        Example:
            >>> kv = tkv.kv.create('local')
            >>> kv.init(3, tkv.nd.zeros((2,)))
            >>> kv.explain(3)
            key 3: assignment
              value becomes sum
            where sum is the sum of what was pushed, and value the stored value
        """
        from .._update.explain import explanation

        self._describe("explain", key)
        store: Any = self  # a KVStore, whose part this is
        print(explanation(store, key), end="")

    def _run_updater(self, updater: Updater) -> None:
        """Call an updater, which keeps its states. A distributed store runs its optimizer, if it has no states yet."""
        from .. import optimizer as opt
        from .._update.functions import UpdaterSteps

        try:
            steps = UpdaterSteps(updater)
            self._set_function(steps)
            self._holds(updater, None, steps)
            return
        except UnimplementedError:
            if type(updater) is not opt.Updater:
                why = f"the updater {type(updater).__name__} is Python code; a tkv.Program can say it as data"
            elif updater._held:
                why = "the updater has states, which stay in Python; a new one has none"
            else:
                why = ""
        if why:
            raise UnimplementedError(f"set_updater: {why}. The servers run optimizers without Python")
        self._run_optimizer("set_updater", updater)

    def _run_optimizer(self, verb: str, updater: Updater) -> None:
        """Run the optimizer of an updater: without Python, or, where that cannot be, call the updater."""
        from .._update.functions import UpdaterSteps

        optimizer = updater.optimizer
        store: Any = self  # a KVStore, whose part this is
        running = optimizer._run_in(store)
        if running is not None:
            updater._belongs_to(running)
            self._holds(updater, running)
            return
        steps = UpdaterSteps(updater)
        try:
            self._set_function(steps)
        except UnimplementedError:
            why = optimizer._why_not_native()
            raise UnimplementedError(f"{verb}: {why}. The servers run optimizers without Python") from None
        self._holds(updater, None, steps)

    _set_updater = set_updater

    def set_optimizer(self, optimizer: Optimizer | Program) -> None:
        """Run an optimizer in the store at each push: the stored value is the weight, the sum is the gradient.

        Later changes of its hyperparameters count from the next push on, in each store that runs it. A change is an
        error if a store has no states for it, or cannot run it without Python. A new optimizer starts with empty states,
        unless its program and hyperparameters equal those of the running one.

        In a distributed store rank 0 defines it for all workers. Another rank may leave the call out, or make the same
        one. If its hyperparameters differ from those of rank 0, now or later, or if rank 0 has set no optimizer, a
        round of ``dist_sync`` fails on every worker. The error names both workers, and the round updates nothing. In
        ``dist_async`` each push is applied with the hyperparameters of the worker that pushes.

        The rounds of ``dist_sync`` wait for rank 0 by themselves. In ``dist_async`` a push that arrives before the
        optimizer of rank 0 replaces the stored value, or is an error if its rank has called `set_optimizer` too. Therefore
        call `barrier` after `set_optimizer`, or `init` or `init_table`, in which the other ranks wait for rank 0.

        A learning-rate schedule that is Python code is called before each push of this worker, once for each key. Its
        argument is the number of the coming update: the rounds of the key (`round`) since this call, plus
        `begin_num_update`. In a restarted worker, and in a job that continues from a snapshot, all rounds of the key
        count. Pushing threads call the schedule one after the other.

        Args:
            optimizer: of `tkv.optimizer`, or a `Program`; in a store of one process also a subclass with an `update` of its own.

        Example:
            >>> kv = tkv.kv.create('local')
            >>> kv.init('w', tkv.nd.ones((2,)))
            >>> kv.set_optimizer(tkv.optimizer.SGD(learning_rate=0.5))
            >>> kv.push('w', tkv.nd.ones((2,)))
            >>> kv.pull('w').asnumpy()
            array([0.5, 0.5], dtype=float32)
        """
        from .. import optimizer as opt
        from .._update.base import instance_hint

        if isinstance(optimizer, opt.Program):
            self.set_updater(optimizer)
            return
        if not isinstance(optimizer, opt.Optimizer):
            kind = type(optimizer)
            found = kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
            raise InvalidArgumentError(
                f"set_optimizer: type {found}, one of tkv.optimizer is needed{instance_hint(optimizer)}"
            )
        self._run_optimizer("set_optimizer", opt.get_updater(optimizer))

    @staticmethod
    def is_capable(capability: str) -> bool:
        """Return whether stores have a capability; ``'optimizer'`` is the only one defined.

        Example:
            >>> tkv.kv.KVStore.is_capable('optimizer')
            True
        """
        if str(capability).lower() == "optimizer":
            return True
        raise InvalidArgumentError(f"is_capable: unknown capability {capability!r}; there is 'optimizer'")


def _is_same(one: Any, other: Any) -> bool:
    """Return whether two functions are one; a method is made anew at each use of its name."""
    if isinstance(one, MethodType) and isinstance(other, MethodType):
        return one.__self__ is other.__self__ and one.__func__ is other.__func__
    return one is other
