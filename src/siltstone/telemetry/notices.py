"""Notices: lines of the log that tell what a store does, written without waiting for the target.

Commits, and the background that they wait for, hand their lines to a thread (`aside.py`). So a
handler of the application that blocks keeps no commit; what it cannot take is dropped, and the
number of dropped lines is logged in their place.
"""

from __future__ import annotations

import logging
from functools import partial

from siltstone.telemetry.aside import Aside

END_TIMEOUT_S = 1.0
"""So long the end of a store waits for its last lines."""


def _tell_lost(lines: int) -> None:
    logging.getLogger("siltstone").warning(
        "%d lines of the log were dropped: their target was too slow", lines
    )


_aside = Aside("siltstone-notices", _tell_lost)


def tell(log: logging.Logger, text: str, *arguments: object, level: int = logging.INFO) -> None:
    """Log a line soon, at most once; `arguments` must never change."""
    if log.isEnabledFor(level):
        path, line, function, _ = log.findCaller(stacklevel=2)
        _aside.add(
            partial(
                log.handle,
                log.makeRecord(log.name, level, path, line, text, arguments, None, function),
            )
        )


def settle(timeout_s: float = END_TIMEOUT_S) -> bool:
    """Wait until all lines so far are written; False: the target is too slow."""
    return _aside.drain(timeout_s)
