"""Tickets: handles of operations under way, which the verbs return with ``async_op=True``."""

from __future__ import annotations

import atexit
import contextlib
import contextvars
import functools
import os
import select
import threading
import weakref
from collections.abc import Callable, Coroutine, Generator
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from . import _core, errors

if TYPE_CHECKING:
    import asyncio  # whose import is slow; who awaits a ticket has it

__all__ = ["Ticket"]


def __dir__() -> list[str]:
    """Return the public names."""
    return __all__


T = TypeVar("T")


class _Operation(Protocol):
    """The operation behind a ticket: one of a store, or a verb that runs on a thread."""

    def done(self) -> bool:
        """Return whether it has ended."""
        ...

    def wait(self, timeout: float | None = None) -> None:
        """Wait for its end; raise its failure."""

    def cancel(self) -> bool:
        """Cancel it; return False if it had already ended."""
        ...

    def on_end(self, waker: _core.Waker, id: int) -> None:
        """Add the id to the waker at its end."""

    def failure(self) -> tuple[str, str] | None:
        """Return code and message of its failure."""


class _Listener:
    """A listener that calls the callbacks of ended operations; each event loop has one, and so has a common thread."""

    END, NOTICE = 0, 1

    def __init__(self) -> None:
        self.waker = _core.Waker()
        self.waker.wake_for_notices(self.NOTICE)
        self.is_over = False
        self._calls: dict[int, Callable[[], object]] = {}
        self._next = self.NOTICE
        self._lock = threading.Lock()

    def listen(self, operation: _Operation, call: Callable[[], object]) -> int:
        """Have `call` called when the operation has ended; return a number for `forget`."""
        with self._lock:
            self._next += 1
            number = self._next
            self._calls[number] = call
        operation.on_end(self.waker, number)
        return number

    def forget(self, number: int) -> None:
        """Call nothing for it any more."""
        with self._lock:
            self._calls.pop(number, None)

    def take(self) -> list[Callable[[], object]]:
        """Return the callbacks of ended operations, and last the one that logs notices, if there are any."""
        with self._lock:
            numbers = self.waker.take()
            self.is_over = self.is_over or self.END in numbers
            has_notices = self.NOTICE in numbers
            calls: list[Callable[[], object] | None] = [self._calls.pop(number, None) for number in numbers]
        if has_notices:  # which nobody who waits in a call of a store would tell
            from ._store.log import tell_notices

            calls.append(tell_notices)
        return [call for call in calls if call is not None]

    def wake(self) -> None:
        """Make these calls."""
        for call in self.take():
            call()


_of_loop: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _Listener] = weakref.WeakKeyDictionary()
_of_thread: _Listener | None = None
_lock = threading.Lock()


def _listener_of_loop(loop: asyncio.AbstractEventLoop) -> _Listener:
    """Return the listener of a loop, which watches its file; only the loop's own thread comes here."""
    listener = _of_loop.get(loop)
    if listener is None:
        listener = _of_loop[loop] = _Listener()
        loop.add_reader(listener.waker.fileno(), listener.wake)
    return listener


def _listener_of_thread() -> _Listener:
    """Return the listener of the thread that serves callbacks added outside of an event loop; one for the process."""
    global _of_thread
    with _lock:
        if _of_thread is None:
            _of_thread = _Listener()
            thread = threading.Thread(target=_serve, args=(_of_thread,), name="tensorkv-callbacks", daemon=True)
            thread.start()
            atexit.register(_end_thread, thread, _of_thread.waker, os.getpid())
        return _of_thread


def _serve(listener: _Listener) -> None:
    poll = select.poll()
    poll.register(listener.waker.fileno(), select.POLLIN)
    while not listener.is_over:
        poll.poll()
        for call in listener.take():
            _try(call)
            del call  # and with it the last reference to its ticket


def _try(call: Callable[[], object]) -> None:
    """Make a call of the user's on the thread that all tickets share, which nothing may end: SystemExit does not either."""
    try:
        call()
    except BaseException:
        with contextlib.suppress(BaseException):  # of a handler of the user's
            from ._store.log import logger

            logger.exception("a callback of a ticket raised")


def _end_thread(thread: threading.Thread, waker: _core.Waker, process: int) -> None:
    """End the thread of callbacks with the process; a callback that blocks is not waited for."""
    if process == os.getpid():
        waker.add(_Listener.END)
        thread.join(1)


def _end(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def _forget_thread() -> None:
    """In a child of fork() the thread is not there."""
    global _of_thread, _lock
    _of_thread, _lock = None, threading.Lock()


os.register_at_fork(after_in_child=_forget_thread)


class Ticket(Coroutine[Any, Any, T], Generic[T]):
    """A handle of an operation under way, which a verb returns with `async_op=True`.

    ``await ticket`` waits for it without blocking the event loop and without a thread; ``asyncio.create_task``, ``gather``
    and ``wait_for`` take it as they take a coroutine. A task that is cancelled while it waits cancels the operation;
    ``asyncio.shield`` keeps it. Several tasks may await one ticket. If no caller waits, a failure is raised by the next
    call on its key and by `KVStore.close`.

    Example:
        >>> kv = tkv.kv.create('local')
        >>> kv.init(3, tkv.nd.ones((2,)))
        >>> ticket = kv.pull(3, async_op=True)
        >>> ticket.wait().asnumpy()
        array([1., 1.], dtype=float32)
        >>> ticket
        <Ticket pull 3: done>
        >>> import asyncio
        >>> async def main():
        ...     return await asyncio.create_task(kv.pull(3, async_op=True))
        >>> asyncio.run(main()).asnumpy()
        array([1., 1.], dtype=float32)
    """

    __slots__ = ("__weakref__", "_needs", "_operation", "_result", "_steps", "_title")

    def __init__(self, operation: _Operation, title: str, result: Callable[[], T], needs: object = None) -> None:
        """Hold an operation, and until its end the objects that it needs; only the verbs of a store make tickets."""
        self._operation = operation
        self._title = title
        self._result = result
        self._needs = needs
        self._steps: dict[int, Coroutine[Any, Any, T]] = {}

    @property
    def __name__(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]  # asyncio shows it for a task
        """Verb and key."""
        return self._title

    def __repr__(self) -> str:
        """Return verb, key and how far it is."""
        if not self.done():
            return f"<Ticket {self._title}: under way>"
        failure = self._operation.failure()
        return f"<Ticket {self._title}: {'done' if failure is None else ': '.join(failure)}>"

    def done(self) -> bool:
        """Return whether the operation has ended, well or not."""
        if not self._operation.done():
            return False
        self._needs = None
        return True

    def wait(self, timeout: float | None = None) -> T:
        """Wait until the operation is done and return its result.

        Args:
            timeout: in seconds; the operation continues after it. Default: as long as the operation takes, which has
                its own deadline.

        Raises:
            DeadlineExceededError: not done in time.
            CancelledError: it was cancelled.
            KVError: the failure of the operation.
        """
        try:
            self._operation.wait(timeout)
        finally:
            if self._needs is not None:
                self.done()
        return self._result()

    def cancel(self) -> bool:
        """Cancel the operation; return False if it had already ended.

        A cancelled operation ends with CancelledError. From here on, its outputs are not written to. The part of a push
        that has already left for a server still counts.
        """
        return self._operation.cancel()

    def cancelled(self) -> bool:
        """Return whether the operation was cancelled, by `cancel` or because its store was closed."""
        failure = self._operation.failure() if self.done() else None
        return failure is not None and failure[0] == "Cancelled"

    def add_done_callback(
        self, callback: Callable[[Ticket[T]], object], *, context: contextvars.Context | None = None
    ) -> None:
        """Call ``callback(ticket)`` once when the operation has ended, also if it has already.

        In an event loop it is called by that loop, elsewhere by a thread that all tickets share; never from inside this
        call.
        """
        import asyncio

        own = context or contextvars.copy_context()
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            _listener_of_thread().listen(self._operation, lambda: own.run(callback, self))
            return

        _listener_of_loop(loop).listen(self._operation, lambda: loop.call_soon(callback, self, context=own))

    async def _wait_in_loop(self) -> T:
        import asyncio

        if not self._operation.done():
            loop = asyncio.get_running_loop()
            listener = _listener_of_loop(loop)
            ended = loop.create_future()
            number = listener.listen(self._operation, functools.partial(_end, ended))
            try:
                await ended
            except asyncio.CancelledError:
                self.cancel()
                raise
            finally:
                listener.forget(number)
        return self.wait(0)

    def __await__(self) -> Generator[Any, None, T]:
        """Wait without blocking the event loop; a task that is cancelled meanwhile cancels the operation."""
        return self._wait_in_loop().__await__()

    # ---- a coroutine for asyncio.create_task and its like; each task that drives the ticket has a coroutine of its own

    def send(self, value: Any) -> Any:
        """Go on, for the task that runs."""
        import asyncio

        task = id(asyncio.current_task())
        if task not in self._steps:
            self._steps[task] = self._wait_in_loop()
        try:
            return self._steps[task].send(value)
        except BaseException:
            self._steps.pop(task, None)
            raise

    def throw(self, kind: Any, value: BaseException | object = None, traceback: TracebackType | None = None) -> Any:
        """Continue with an exception, for the task that runs; asyncio.CancelledError cancels the operation."""
        import asyncio

        error = kind if isinstance(kind, BaseException) else (value if isinstance(value, BaseException) else kind())
        if isinstance(error, asyncio.CancelledError):
            self.cancel()
        task = id(asyncio.current_task())
        step = self._steps.pop(task, None)
        if step is None:
            raise error
        yielded = step.throw(error)
        self._steps[task] = step
        return yielded

    def close(self) -> None:
        """Stop waiting; the operation continues."""
        steps, self._steps = self._steps, {}
        for step in steps.values():
            step.close()


class _ThreadOperation:
    """A verb that blocks, on a thread of its own: making and closing stores and keys, which is rare."""

    def __init__(self, function: Callable[[], object], title: str, undo: Callable[[Any], object] | None) -> None:
        self._undo = undo
        self._is_cancelled = False
        self._interruption = _core.Interruption()
        self._ended = threading.Event()
        self._lock = threading.Lock()
        self._listening: list[tuple[_core.Waker, int]] = []
        self._error: BaseException | None = None
        self.result: Any = None
        self._title = title
        threading.Thread(target=self._run, args=(function,), name=f"tensorkv-{title}", daemon=True).start()

    def _run(self, function: Callable[[], object]) -> None:
        self._interruption.enter()
        try:
            self.result = function()
            if self._is_cancelled and self._undo is not None:
                self._undo(self.result)
                raise errors.CancelledError(f"{self._title}: cancelled by its caller")
        except BaseException as error:
            self._error = error
        finally:
            _core.Interruption.leave()
            with self._lock:
                self._ended.set()
                listening, self._listening = self._listening, []
            for waker, number in listening:
                waker.add(number)

    def done(self) -> bool:
        return self._ended.is_set()

    def wait(self, timeout: float | None = None) -> None:
        longest = None if timeout is None else _core.seconds(timeout, "wait", "timeout")
        if not self._ended.wait(None if longest is None else min(longest, threading.TIMEOUT_MAX)):
            raise errors.DeadlineExceededError(f"{self._title}: not done after {timeout} s")
        if self._error is not None:
            raise self._error

    def cancel(self) -> bool:
        if self.done():
            return False
        self._is_cancelled = True
        self._interruption.ask()
        return True

    def on_end(self, waker: _core.Waker, id: int) -> None:
        with self._lock:
            if not self._ended.is_set():
                self._listening.append((waker, id))
                return
        waker.add(id)

    def failure(self) -> tuple[str, str] | None:
        if self._error is None:
            return None
        return type(self._error).__name__.removesuffix("Error"), str(self._error)


def in_thread(function: Callable[[], T], title: str, undo: Callable[[T], object] | None = None) -> Ticket[T]:
    """Return the ticket of a call that runs on its own thread; `undo` reverts a result that comes after a cancel."""
    operation = _ThreadOperation(function, title, undo)
    return Ticket(operation, title, lambda: operation.result)
