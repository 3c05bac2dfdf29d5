"""Owner turns: the turns of the owner's tables, as the runs of a process that joined take them.

    take      the turn of this process first: one of its threads at a time asks the owner
              ─▶ the owner's, which lives with its own connection, for what is left of 1 s
    give up   the owner's, by a request on that connection; if that fails, by ending it

Each answer says whether tables are closed. While some are, transactions begin at the owner, and so
a first try hears which these are (`ConnectionPool.closed`). One that did not hear of it begins here
(`UNHEARD`), and is sent back by its commit. Turns are advice: an owner that refuses one, or is
gone, gives none, and the next try hears why.
"""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass

from siltstone.errors import SiltstoneError
from siltstone.joined.connection import Message
from siltstone.joined.connection_pool import ConnectionPool, OwnerConnection
from siltstone.process.turns import LOSSES_MAX, WAIT_S, TableTurn, TableTurns

UNHEARD = frozenset({""})
"""No table: but some may be closed of which this process did not hear."""


@dataclass(frozen=True, slots=True)
class OwnerTurn:
    """A turn of this process, and the connection that the owner's turn lives with, if it came."""

    here: TableTurn
    home: OwnerConnection | None


class OwnerTurns:
    """See the module. Any thread; the locks are those of the turns here, and of the pool."""

    def __init__(self, pool: ConnectionPool) -> None:
        self._pool, self._here = pool, TableTurns()

    @property
    def closed(self) -> frozenset[str]:
        """The tables that the owner said last are closed."""
        return self._pool.closed if self._pool.has_closed else UNHEARD

    def take(self, table: str, *, thread: int | None = None) -> OwnerTurn | None:
        """Take the turn of a table; None: it did not come here in time.

        `thread`: As for `TableTurns.take_all`.
        """
        end_s = time.monotonic() + WAIT_S
        here = self._here.take(table, thread=thread)
        if here is None:
            return None
        try:
            home = self._asked("take", table, max(0.0, end_s - time.monotonic()))
        except BaseException:  # a signal's handler raised it
            self._here.give_up(here)
            raise
        return OwnerTurn(here, home)

    def note_loss(self, turn: OwnerTurn) -> bool:
        """Hear that the holder lost again; return whether it keeps the turn."""
        is_held = self._here.note_loss(turn.here)
        if is_held and turn.home is not None and turn.here.losses == LOSSES_MAX:
            with suppress(SiltstoneError):  # `give_up` ends the connection
                self._pool.within(turn.home, self._message("close", turn.here.table))
        return is_held

    def give_up(self, turn: OwnerTurn) -> None:
        """End a turn, here and at the owner."""
        try:
            if turn.home is not None:
                self._asked("end", turn.here.table, home=turn.home)
        finally:
            self._here.give_up(turn.here)

    def wait_open(self, table: str) -> None:
        """Wait until a table is not closed: for the first try of work that names it."""
        if not self._here.holds():
            self._asked("wait", table)

    def _asked(
        self, what: str, table: str, wait_s: float = WAIT_S, home: OwnerConnection | None = None
    ) -> OwnerConnection | None:
        """Ask the owner on a connection; return it if a turn lives with it then."""
        try:
            home = self._pool.take() if home is None else home
            if self._pool.within(home, self._message(what, table, wait_s)):
                return home
            self._pool.give(home)
        except BaseException as error:
            if home is not None:
                home.close()
            if not isinstance(error, SiltstoneError):
                raise
        return None

    def _message(self, what: str, table: str, wait_s: float = WAIT_S) -> Message:
        named = {"what": what, "table": table, "wait_s": wait_s}
        return self._pool.message("turn", (), named)
