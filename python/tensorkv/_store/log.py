"""The logger ``tensorkv``, which reports events of stores. Imported with the package if TKV_LOG is set, else with the first store."""

from __future__ import annotations

import collections
import logging
import os

from .. import _core

logger = logging.getLogger("tensorkv")
_handler = logging.StreamHandler()
_who = "".join(
    f" {field}={os.environ['TKV_' + field.upper()]}"
    for field in ("role", "rank")
    if "TKV_" + field.upper() in os.environ
)
_handler.setFormatter(
    logging.Formatter(
        "%(asctime)s.%(msecs)03d %(level)s tensorkv pid=%(process)d" + _who.replace("%", "%%") + ": %(message)s",
        "%Y-%m-%dT%H:%M:%S",
    )
)


def _lower_level(record: logging.LogRecord) -> bool:
    """Give a record its level in lower case, as the options write it."""
    record.level = record.levelname.lower()
    return True


_handler.addFilter(_lower_level)


def set_level(level: str) -> None:
    """Tell on standard error what is at least of this level, 'error' to 'debug'; nothing at all with 'off'."""
    logger.setLevel(logging.CRITICAL + 1 if level == "off" else level.upper())
    if level != "off" and _handler not in logger.handlers:
        logger.addHandler(_handler)
        logger.propagate = False  # once is enough


if os.environ.get("TKV_LOG") in ("off", "error", "warning", "info", "debug"):  # what is none of these, create refuses
    set_level(os.environ["TKV_LOG"])

_untold: collections.deque[tuple[int, str]] = collections.deque()


def tell_notices() -> None:
    """Hand what the stores' threads have to say to the logger `tensorkv`; if a handler raises, the next call goes on."""
    _untold.extend(_core._take_notices())
    while _untold:
        try:
            level, text = _untold.popleft()
        except IndexError:  # another thread has told the last one
            return
        logger.log((level + 1) * 10, text)
