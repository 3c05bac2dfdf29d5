"""Signals: what an operator tells a service that runs.

    SIGTERM, SIGINT   it ends
    SIGHUP            it reads again what it may read again; but if its terminal has gone, it ends

A terminal that closes sends SIGHUP, and a server should not live on where nobody sees it; one that
was started by `nohup` does. Each signal writes its number into a pipe, whichever thread gets it: a
wait for a lock may begin just after the signal that is to end it, and then go on for ever.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

_ENDS = frozenset((signal.SIGTERM, signal.SIGINT))
_READ_BYTES = 4096
_TERMINAL = "/dev/tty"


class Signals:
    """See the module. The main thread makes it, and waits."""

    def __init__(self) -> None:
        """Take the signals from now on, those of before `reloads` is called, too."""
        is_detached = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
        self._ends_with_terminal = not is_detached and _has_terminal()
        self._told, self._tell = os.pipe()
        os.set_blocking(self._tell, False)
        self._before = {number: signal.getsignal(number) for number in (*_ENDS, signal.SIGHUP)}
        # Full: it will be awake.
        self._woken = signal.set_wakeup_fd(self._tell, warn_on_full_buffer=False)
        self._is_over = False  # what comes when the pipe is full is not in it
        signal.signal(signal.SIGHUP, lambda *_: None)
        for number in _ENDS:
            signal.signal(number, self._end)

    def _end(self, *_: object) -> None:
        self._is_over = True

    def close(self) -> None:
        """Give the signals back to the handlers that had them before."""
        signal.set_wakeup_fd(self._woken)
        for number, before in self._before.items():
            signal.signal(number, before)
        os.close(self._told)
        os.close(self._tell)

    def reloads(self) -> Iterator[None]:
        """Yield each time that a reload is asked for, until the end is; several may be one."""
        while True:
            numbers = set(os.read(self._told, _READ_BYTES))
            if self._is_over or numbers & _ENDS:
                return
            if signal.SIGHUP in numbers:
                if self._ends_with_terminal and not _has_terminal():
                    return
                yield


def _has_terminal() -> bool:
    try:
        os.close(os.open(_TERMINAL, os.O_RDONLY | os.O_NOCTTY | os.O_CLOEXEC))
    except OSError:
        return False
    return True
