"""Systemd: what a service tells the process that started it, by datagrams of text (sd_notify(3)).

    READY=1       the server answers; after RELOADING=1: with what it read, or with the old
    RELOADING=1   it reads again what an operator changed, since MONOTONIC_USEC
    WATCHDOG=1    the store answered, twice in each $WATCHDOG_USEC
    STOPPING=1    requests that run are answered, then the store is closed

$NOTIFY_SOCKET is a path, or an abstract name that begins with "@"; without it nothing is sent. A
service that cannot say how it is goes on, and says so on stderr, once.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from collections.abc import Callable, Generator, Mapping

from siltstone.process import threads

SEND_TIMEOUT_S = 1.0
"""Systemd reads at once; one that does not is not waited for."""


class Systemd:
    """See the module. One thread calls all but `watching`, which makes another."""

    def __init__(self, environ: Mapping[str, str], warn: Callable[[str], object]) -> None:
        """Read where to send what, and how often.

        Args:
            environ: $NOTIFY_SOCKET, $WATCHDOG_USEC and $WATCHDOG_PID count.
            warn: Gets one sentence about what is wrong.
        """
        self._named, self._warn = environ.get("NOTIFY_SOCKET", ""), warn
        self._has_warned = False
        self.watchdog_s: float | None = None
        """The time in which it waits for a sign of life; None: it does not."""
        usec, pid = environ.get("WATCHDOG_USEC", ""), environ.get("WATCHDOG_PID", "")
        if not self._named or pid not in {"", str(os.getpid())}:  # it is for a parent
            return
        if usec.isascii() and usec.isdigit() and int(usec):
            self.watchdog_s = int(usec) / 1e6
        elif usec:
            self._tell(f"WATCHDOG_USEC must be a number of microseconds from 1; got {usec!r:.64}")

    def ready(self, status: str) -> None:
        """Say that the service answers; `status` is one line, for `systemctl status`."""
        self._send(f"READY=1\nSTATUS={status}")

    def reloading(self) -> None:
        """Say that it begins to reload; `ready` says that it is over."""
        self._send(f"RELOADING=1\nMONOTONIC_USEC={time.monotonic_ns() // 1000}")

    def stopping(self) -> None:
        """Say that it ends."""
        self._send("STOPPING=1\nSTATUS=finishing running requests")

    @contextlib.contextmanager
    def watching(self, answers: Callable[[], bool]) -> Generator[None]:
        """Say in a thread of its own that the store lives, while the block runs.

        Args:
            answers: Says whether it does. While it hangs nothing is said.
        """
        if self.watchdog_s is None:
            yield
            return
        every_s, over = self.watchdog_s / 2, threading.Event()

        def watch() -> None:
            while True:
                if answers():
                    self._send("WATCHDOG=1")
                if over.wait(every_s):
                    return

        threads.start(threading.Thread(target=watch, name="siltstone-watchdog", daemon=True))
        try:
            yield
        finally:
            over.set()  # not waited for: it may hang

    def _send(self, text: str) -> None:
        if not self._named:
            return
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
                sender.settimeout(SEND_TIMEOUT_S)
                sender.sendto(text.encode(), _address_of(self._named))
        except (OSError, ValueError) as error:
            self._tell(f"cannot tell systemd at {self._named!r:.128} how the service is: {error}")

    def _tell(self, sentence: str) -> None:
        if not self._has_warned:
            self._has_warned = True
            self._warn(sentence)


def _address_of(named: str) -> bytes:
    """Return the address of a socket by its name.

    Raises:
        ValueError: It is none of this machine (`vsock:...`), or no name.
    """
    if named[0] not in "/@" or len(named) == 1:
        raise ValueError("NOTIFY_SOCKET must be an absolute path, or begin with '@'")
    return os.fsencode("\0" + named[1:] if named[0] == "@" else named)
