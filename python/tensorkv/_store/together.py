"""Remedies in the errors of calls that every worker makes, for a worker that waits for the others."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator

from ..errors import DeadlineExceededError, UnavailableError

# How messages name workers that have not made a call and may live; a dead worker or server has another remedy.
_MISSING = re.compile(
    r"waited [\d.]+ s for (worker 0$|the worker that creates the key$|.*\((alive|left)\))"
    r"|worker \d+ (left|closed) |, which creates keys, has "
)
_PROBLEM = "_problem"  # attribute of an error with a remedy: its message without the remedy


def lacks_remedy(error: Exception) -> bool:
    """Return true if a call has waited in vain for other workers, and its error does not say what they have to do."""
    return not hasattr(error, _PROBLEM) and _MISSING.search(str(error)) is not None


@contextlib.contextmanager
def called_by_all(remedy: str, why: str = "") -> Iterator[None]:
    """Add a remedy to the error of a block that has waited in vain for other workers; it replaces that of an inner block.

    Args:
        remedy: the action that every worker has to take.
        why: the call that the other workers have not made, if they have not left.
    """
    try:
        yield
    except (DeadlineExceededError, UnavailableError) as error:
        problem = getattr(error, _PROBLEM, None)
        if problem is None:
            if not lacks_remedy(error):
                raise
            has_left = isinstance(error, UnavailableError)
            problem = f"{error}; {why}" if why and not has_left else str(error)
        told = type(error)(f"{problem}; {remedy}")
        setattr(told, _PROBLEM, problem)
        raise told from None


def created_by_all(verb: str) -> contextlib.AbstractContextManager[None]:
    """Return `called_by_all` for a verb with which rank 0 creates keys, and for which the others wait."""
    return called_by_all(
        f"every worker calls {verb}",
        f"it has not created the key, because it has not called {verb}, or its call has failed",
    )
