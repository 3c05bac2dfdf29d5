"""Server news: who waits for the next commit of a store behind a server, and is told of it.

    heard ──▶ a thread follows the seqs of /v1/follow, for all who wait ──▶ for a while nobody
              │                                                             waits: it ends
              └──lost, refused, or over after an hour──▶ all are told; who waits begins it anew

Register, then look whether the commit is there, then wait, for `patience_s` at most: where there is
no thread, one who waits looks by himself. The first event of each connection says what was missed.

Lock: one, held while there is a thread; no caller waits for it.
"""

from __future__ import annotations

import threading
import time
from _thread import allocate_lock
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from http.client import HTTPResponse
from typing import cast

from siltstone.api.following import LAST_PAUSE_S, WAIT_S
from siltstone.errors import SiltstoneError, UnavailableError
from siltstone.joined.connection import BROKEN, HttpOwnerConnection
from siltstone.joined.connection_pool import ConnectionPool
from siltstone.process import threads

RETRY_S = 1.0
"""The thread is begun at most so often."""
LINGER_S = 10.0
SILENCE_S = 60.0
"""A server says every 15 s that it is still there."""


class ServerNews:
    """See the module. Any thread; what is told must not wait, nor raise."""

    def __init__(self, pool: ConnectionPool) -> None:
        """Follow the server of `pool`, which ends the connection when it is closed."""
        self._pool = pool
        self._waiting: dict[object, Callable[[], object]] = {}
        self._is_at_work = allocate_lock()
        self._is_open = False
        self._begun_s = self._left_s = -LINGER_S

    @property
    def patience_s(self) -> float:
        """How long one who waits, and is not told, leaves the store alone."""
        return WAIT_S if self._is_open else LAST_PAUSE_S

    @contextmanager
    def heard(self, told: Callable[[], object]) -> Generator[None]:
        """Within the block `told` is called for each commit, or a few at once."""
        key = object()
        self._waiting[key] = told
        try:
            self._begin()
            yield
        finally:
            self._left_s = time.monotonic()
            del self._waiting[key]

    def _begin(self) -> None:
        is_early = time.monotonic() - self._begun_s < RETRY_S
        if is_early or not self._is_at_work.acquire(blocking=False):
            return
        self._begun_s = time.monotonic()
        thread = threading.Thread(target=self._work, name="siltstone-news", daemon=True)
        try:
            threads.start(thread)
        except UnavailableError:
            self._is_at_work.release()

    def _work(self) -> None:
        try:
            with suppress(SiltstoneError, *BROKEN):  # who waits looks, and hears what is wrong
                connection = cast("HttpOwnerConnection", self._pool.take())
                try:
                    connection.wait_at_most(SILENCE_S)
                    self._follow(connection.follow())
                finally:
                    connection.close()
        finally:
            self._is_open = False
            self._is_at_work.release()
            self._tell()

    def _follow(self, events: HTTPResponse) -> None:
        self._is_open = True
        while self._is_wanted() and (line := events.readline()):
            if line.startswith(b"id:"):
                self._tell()

    def _is_wanted(self) -> bool:
        return bool(self._waiting) or time.monotonic() - self._left_s < LINGER_S

    def _tell(self) -> None:
        for told in list(self._waiting.values()):
            told()
