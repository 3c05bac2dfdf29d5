"""Lane: turns for SQL statements: they leave the threads that all other requests share alone.

    asked ─▶ waits, in order ─▶ runs, in a thread of the lane ─▶ its rows were sent ─▶ left
      └──too many wait──▶ BusyError       └──rows left unread, others wait──▶ must end ─▶ left

A client that has as many running as it may is passed by. Unread rows keep their turn, as they may
hold as much memory as a statement that runs, until another statement waits for it. The event loop's
thread uses it, and its own threads.
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
    """One statement; `may_run` is done when it may run, `must_end` when others need its turn."""

    client: str | None
    may_run: asyncio.Future[None]
    must_end: asyncio.Future[None]


class Lane:
    """See the module."""

    def __init__(self, policy: LanePolicy) -> None:
        self.policy = policy
        self.executor = ThreadPoolExecutor(policy.running_max, "siltstone-statement")
        self._running: Counter[str | None] = Counter()
        self._waiting: list[Turn] = []
        self._unread: list[Turn] = []
        """Turns whose rows are left unread, the longest first."""
        self._ending: set[Turn] = set()

    @property
    def running(self) -> int:
        """How many run, or send their rows."""
        return self._running.total()

    @property
    def waiting(self) -> int:
        """How many wait."""
        return len(self._waiting)

    def ask(self, client: str | None) -> Turn:
        """Ask for a turn; `leave` must follow. `client` None has no share.

        Raises:
            BusyError: As many wait as may.
        """
        loop = asyncio.get_running_loop()
        turn = Turn(client, loop.create_future(), loop.create_future())
        if self._fits(client, self._running):
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
        self._end_unread()
        return turn

    def leave(self, turn: Turn) -> None:
        """End a turn, or give up to wait for it."""
        if turn in self._waiting:
            self._waiting.remove(turn)
            turn.may_run.cancel()
            return
        self.note_read(turn)
        self._ending.discard(turn)
        self._running[turn.client] -= 1
        for other in list(self._waiting):
            if self._fits(other.client, self._running):
                self._waiting.remove(other)
                self._let_in(other)

    def note_unread(self, turn: Turn) -> None:
        """Hear that the rows of a turn are left unread: it must end once another one needs it."""
        self._unread.append(turn)
        self._end_unread()

    def note_read(self, turn: Turn) -> None:
        """Hear that its rows are read again."""
        if turn in self._unread:
            self._unread.remove(turn)

    def _end_unread(self) -> None:
        """End as many unread turns as those that wait need, the longest unread first."""
        left = self._running - Counter(turn.client for turn in self._ending)
        for other in self._waiting:
            if not self._fits(other.client, left):
                helps = (t for t in self._unread if self._fits(other.client, left - _one(t)))
                turn = next(helps, None)
                if turn is None:
                    continue
                self._unread.remove(turn)
                self._ending.add(turn)
                turn.must_end.set_result(None)
                left -= _one(turn)
            left += _one(other)

    def _fits(self, client: str | None, running: Counter[str | None]) -> bool:
        policy = self.policy
        has_share = client is None or running[client] < policy.running_per_client_max
        return has_share and running.total() < policy.running_max

    def _let_in(self, turn: Turn) -> None:
        self._running[turn.client] += 1
        turn.may_run.set_result(None)


def _one(turn: Turn) -> Counter[str | None]:
    return Counter([turn.client])
