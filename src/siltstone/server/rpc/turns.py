"""Session turns: the turn of a run in another process, which lives with one of its connections.

    take ──▶ close (its holder lost too often) ──▶ end        or the connection ends, or 5 s passed
    wait     until a table is not closed any more

Each request waits in a thread of the server, and `Served` bounds how many do.
"""

from __future__ import annotations

from siltstone.arguments import seconds_from
from siltstone.errors import RequestError, not_one_of
from siltstone.process.turns import LOSSES_MAX, WAIT_S
from siltstone.server.served import Served
from siltstone.server.sessions import Session

ASKED = ("take", "close", "end", "wait")


class SessionTurns:
    """See the module. Any thread; one request of a session at a time."""

    def __init__(self, served: Served) -> None:
        self._served = served

    def turn(self, session: Session, what: str, table: str, wait_s: float = WAIT_S) -> bool:
        """Do one of `ASKED`; return whether the session holds the turn of the table then.

        Raises:
            RequestError: `what` is something else.
            TableNotFoundError: There is no such table.
        """
        wait_s = min(seconds_from("wait_s", wait_s), WAIT_S)
        if what not in ASKED:
            raise RequestError(not_one_of("what is done with a turn", what, ASKED))
        if what == "wait":
            self._served.wait_open(table, wait_s)
            return False
        if what == "close":
            return self._close(session)
        session.give_up()
        return what == "take" and self._take(session, table, wait_s)

    def _take(self, session: Session, table: str, wait_s: float) -> bool:
        taken = self._served.take_turns([table], wait_s)
        if not taken:
            return False
        session.turn, turns = taken[0], self._served.turns
        session.end_turn = lambda: turns.give_up(*taken)
        if session.is_closed:  # its client went away meanwhile
            session.give_up()
        return not taken[0].is_over

    def _close(self, session: Session) -> bool:
        turn = session.turn
        if turn is None:
            return False
        return all(self._served.turns.note_loss(turn) for _ in range(LOSSES_MAX))
