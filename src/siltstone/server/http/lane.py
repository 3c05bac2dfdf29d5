"""Lane: turns for SQL statements: they leave the threads that all other requests share alone.

    asked ─▶ waits, in order ─▶ runs, in a thread of the lane ─▶ its rows were sent ─▶ left
      └──too many wait──▶ BusyError

A client that has as many running as it may is passed by. The event loop's thread uses it, and
nobody else but its own threads.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from siltstone.errors import BusyError
from siltstone.server.http.policy import LanePolicy


@dataclass(eq=False, frozen=True, slots=True)
class Turn:
    """One statement; `may_run` is done when it may run."""

    client: str | None
    may_run: asyncio.Future[None]


class Lane:
    """See the module."""

    def __init__(self, policy: LanePolicy) -> None:
        self.policy = policy
        self.executor = ThreadPoolExecutor(policy.running_max, "siltstone-statement")
        self._running: Counter[str | None] = Counter()
        self._waiting: list[Turn] = []

    @property
    def running(self) -> int:
        """How many run, or send their rows."""
        return self._running.total()

    @property
    def waiting(self) -> int:
        """How many wait."""
        return len(self._waiting)

    def ask(self, client: str | None) -> Turn:
        """Ask for a turn; `leave` must follow. `client` None has no share of its own.

        Raises:
            BusyError: As many wait as may.
        """
        turn = Turn(client, asyncio.get_running_loop().create_future())
        if self._has_room(client):
            self._let_in(turn)
            return turn
        policy = self.policy
        mine = sum(client is not None and other.client == client for other in self._waiting)
        for count, most in (
            (mine, policy.waiting_per_client_max),
            (len(self._waiting), policy.waiting_max),
        ):
            if count >= most:
                raise BusyError(f"{count} statements wait for their turn; try again later")
        self._waiting.append(turn)
        return turn

    def leave(self, turn: Turn) -> None:
        """End a turn, or give up to wait for it."""
        if turn in self._waiting:
            self._waiting.remove(turn)
            turn.may_run.cancel()
            return
        self._running[turn.client] -= 1
        for other in list(self._waiting):
            if self._has_room(other.client):
                self._waiting.remove(other)
                self._let_in(other)

    def _has_room(self, client: str | None) -> bool:
        policy = self.policy
        has_share = client is None or self._running[client] < policy.running_per_client_max
        return has_share and self.running < policy.running_max

    def _let_in(self, turn: Turn) -> None:
        self._running[turn.client] += 1
        turn.may_run.set_result(None)
