"""Turns: of the tries that lost a race for rows of one table, one tries again at a time.

    take ──▶ WAITING ──first of its line──▶ HELD ──given up, or 5 s──▶ OVER
                └──1 s, or the line is full──▶ OVER: who asked goes on without it

A turn is advice. Conflicts alone decide which commit wins, and no commit asks for a turn. So every
wait ends, and a try whose turn did not come begins without it. Each table has its own line;
the first place is the holder's. A thread that holds a turn never waits for another one, so no two
threads wait for each other. A holder that lost `LOSSES_MAX` times in its turn lost to first tries:
its table is *closed* until the turn is over, and first tries that name the table wait, too.

The holder gives its turn up. The server does that for a client whose connection ends. A finalizer
may not wait for a lock, so it only marks the turn as over. The next caller that looks at the line
removes such a turn, and one that was held for `HOLD_S`.

Lock: one, over all lines; no thread keeps it while it waits for a turn. The handler of a signal may
run while its own thread has the lock, and the child of a fork may have inherited it taken: to what
those ask the answer is that there is no turn.
"""

from __future__ import annotations

import os
import time
from _thread import LockType, allocate_lock, get_ident
from collections import deque
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from threading import Condition
from typing import Any

from siltstone.arguments import is_text
from siltstone.errors import RequestError, told

WAIT_S, HOLD_S = 1.0, 5.0
LOSSES_MAX = 3
"""After so many losses in one turn a table is closed to first tries."""
WAITING_MAX = 1024
"""So many tries wait for one table; the next go on without a turn."""
NOBODY = 0
"""The thread of turns that belong to a client of a server."""
NONE_CLOSED: frozenset[str] = frozenset()


class TableClosedError(Exception):
    """A first try ends here: it names a table that is closed. `run` waits, and begins it again."""

    def __init__(self, table: str) -> None:
        self.table = table
        super().__init__(f"{table!r} is busy: the run waits for its turn, and begins again")


def check_names(given: Any) -> None:
    """Check the names of the tables whose turns a caller wants.

    Raises:
        RequestError: It is no list of names.
    """
    is_list = isinstance(given, list | tuple | set | frozenset)
    for each in given if is_list else [given]:
        if not (is_list and is_text(each)):
            raise RequestError(f"turns must be a list of names of tables; got {told(each)}")


class TableTurn:
    """A place in the line of one table. `TableTurns` changes it; anyone may set `is_over`."""

    __slots__ = ("ends_s", "is_over", "losses", "table", "thread", "wake")

    def __init__(self, table: str, thread: int) -> None:
        self.table, self.thread = table, thread
        self.ends_s: float | None = None  # while it waits
        self.losses, self.is_over = 0, False
        self.wake: LockType = allocate_lock()
        self.wake.acquire()


class TableTurns:
    """See the module. Any thread. `closed`, the closed tables, is read without the lock."""

    def __init__(self, *, hold_s: float = HOLD_S, waiting_max: int = WAITING_MAX) -> None:
        self._hold_s, self._waiting_max = hold_s, waiting_max
        self._lines: dict[str, deque[TableTurn]] = {}
        self._lock = Condition()  # notified when a table is not closed any more
        self._within: set[int] = set()  # the threads that ask for it, have it, or wait for news
        self._pid = os.getpid()
        self._at_the_door: dict[str, int] = {}
        self.closed = NONE_CLOSED

    def take(
        self, table: str, wait_s: float = WAIT_S, *, thread: int | None = None
    ) -> TableTurn | None:
        """Take the turn of a table; None: it did not come, or the thread holds it already."""
        found = self.take_all((table,), wait_s, thread=thread)
        return found[0] if found else None

    def take_all(
        self, tables: Iterable[str], wait_s: float = WAIT_S, *, thread: int | None = None
    ) -> tuple[TableTurn, ...]:
        """Take the turns of several tables; return those that came.

        Args:
            tables: Their names, in any order: they are taken by name.
            wait_s: For all of them. A thread that holds a turn before does not wait.
            thread: Whose turns they are; by default this one's.
        """
        mine = get_ident() if thread is None else thread
        if self._interrupts():
            return ()
        with self._locked():
            if mine != NOBODY and self._holds(mine):
                wait_s = 0
        end_s = time.monotonic() + wait_s
        found: list[TableTurn] = []
        try:
            for table in sorted(set(tables)):
                turn = self._take(TableTurn(table, mine), end_s)
                if turn is not None:
                    found.append(turn)
        except BaseException:
            self.give_up(*found)
            raise
        return tuple(found)

    def _take(self, turn: TableTurn, end_s: float) -> TableTurn | None:
        with self._locked():
            self._advance(turn.table)
            line = self._lines.get(turn.table)
            if line and (len(line) > self._waiting_max or time.monotonic() >= end_s):
                return None
            self._lines.setdefault(turn.table, deque()).append(turn)
            self._advance(turn.table)
        try:
            self._wait(turn, end_s)
        except BaseException:  # a signal's handler raised it
            self.give_up(turn)
            raise
        if turn.ends_s is None:
            self.give_up(turn)
        return None if turn.is_over else turn

    def _wait(self, turn: TableTurn, end_s: float) -> None:
        """Wait until it is held, or for as long as its caller may; see who else is gone."""
        while turn.ends_s is None:
            with self._locked():
                self._advance(turn.table)
                line = self._lines.get(turn.table)
                next_s = (line[0].ends_s if line else None) or end_s
            now_s = time.monotonic()
            if now_s >= end_s or turn.wake.acquire(timeout=max(0.0, min(end_s, next_s) - now_s)):
                return

    def give_up(self, *turns: TableTurn) -> None:
        """End turns, held or waited for; what is over already stays so."""
        for turn in turns:
            turn.is_over = True
            if self._interrupts():  # the next caller removes it
                continue
            with self._locked():
                self._advance(turn.table)

    def note_loss(self, turn: TableTurn) -> bool:
        """Hear that its holder lost again; return whether it is still the holder's turn."""
        if self._interrupts():
            return False
        with self._locked():
            self._advance(turn.table)
            line = self._lines.get(turn.table)
            if not line or line[0] is not turn:
                return False
            turn.losses += 1
            if turn.losses >= LOSSES_MAX:
                self.closed |= {turn.table}
            return True

    def wait_open(self, table: str, wait_s: float = WAIT_S) -> None:
        """Wait until a table is not closed: for the first try of work that names it."""
        if self._interrupts():
            return
        with self._locked():
            self._advance(table)
            waiting = self._at_the_door.get(table, 0)
            if waiting >= self._waiting_max or self._holds(get_ident()):
                return
            self._at_the_door[table] = waiting + 1
            try:
                self._lock.wait_for(lambda: table not in self.closed, wait_s)
            finally:
                self._at_the_door[table] -= 1
                if not self._at_the_door[table]:
                    del self._at_the_door[table]

    def holds(self) -> bool:
        """Return whether this thread holds a turn."""
        if self._interrupts():
            return False
        with self._locked():
            return self._holds(get_ident())

    def is_held(self, table: str) -> bool:
        """Return whether a try has the turn of a table."""
        with self._locked():
            self._advance(table)
            return table in self._lines

    def counts(self) -> tuple[int, int]:
        """Return how many turns are held, and how many tries wait for one or for its end."""
        with self._locked():
            tables = {*self._lines, *self._at_the_door}
        held = sum(self.is_held(table) for table in tables)
        return held, sum(self.waiting(table) for table in tables)

    def waiting(self, table: str) -> int:
        """Return how many wait for the turn of a table, or for its end."""
        with self._locked():
            self._advance(table)
            line = self._lines.get(table, ())
            return (
                sum(not turn.is_over for turn in line)
                - bool(line)
                + self._at_the_door.get(table, 0)
            )

    @contextmanager
    def _locked(self) -> Generator[None]:
        """Have the lock, and let what interrupts this thread know."""
        mine = get_ident()
        try:
            self._within.add(mine)
            with self._lock:
                yield
        finally:
            self._within.discard(mine)

    def _interrupts(self) -> bool:
        """Return whether no turn can be asked for now, because the lock may never come.

        The handler of a signal calls, which interrupts a call of this object; or the child of a
        fork, whose parent's threads may have had the lock.
        """
        return get_ident() in self._within or os.getpid() != self._pid

    def _holds(self, thread: int) -> bool:
        now_s = time.monotonic()
        firsts = (line[0] for line in self._lines.values())
        return any(turn.thread == thread and not _is_past(turn, now_s) for turn in firsts)

    def _advance(self, table: str) -> None:
        """Remove what is over from the head of a line, and tell the next that it holds the turn."""
        line = self._lines.get(table)
        if line is None:
            return
        now_s, before = time.monotonic(), line[0]
        while line and _is_past(line[0], now_s):
            line.popleft().is_over = True
        if line and line[0].ends_s is None:
            line[0].ends_s = now_s + self._hold_s
            line[0].wake.release()
        if not line:
            del self._lines[table]
        if table in self.closed and (not line or line[0] is not before):
            self.closed -= {table}
            self._lock.notify_all()


def _is_past(turn: TableTurn, now_s: float) -> bool:
    return turn.is_over or (turn.ends_s is not None and now_s >= turn.ends_s)
