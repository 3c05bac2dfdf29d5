"""Runs: `Store.run`: transactions that are tried until one commits, losers one at a time.

    first try ──▶ committed
        ├──it names a closed table──▶ wait until that is open, begin it again
        └──conflict──▶ give up the turn, take that of the table where it lost ──▶ next try

A try holds one turn at most: that of the table of its last conflict, which it keeps as long as it
loses there. See `turns` for what a turn is; here is when a run takes one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from siltstone.api.transaction import Transaction
from siltstone.errors import RequestError, told
from siltstone.process.retry import Retry
from siltstone.process.turns import NONE_CLOSED, TableClosedError

T = TypeVar("T")
_UNKNOWN = "*"
"""The table of a conflict that is of no single table."""


class TurnsTaken(Protocol):
    """Where losers take turns: `turns.TableTurns`, or those that a server takes for clients."""

    def take(self, table: str) -> Any | None: ...

    def note_loss(self, turn: Any) -> bool: ...

    def give_up(self, turn: Any, /) -> None: ...


class TurnLines(TurnsTaken, Protocol):
    """Where a run takes turns: `turns.TableTurns`, or those of an owner in another process."""

    def take(self, table: str, *, thread: int | None = None) -> Any | None: ...

    @property
    def closed(self) -> frozenset[str]: ...

    def wait_open(self, table: str) -> None: ...


class TurnHolder:
    """The turn of one run. One call at a time."""

    def __init__(self, turns: TurnsTaken, **whose: Any) -> None:
        """`whose`: `thread=NOBODY`, where each call may be made in another thread."""
        self._turns, self._whose, self._table = turns, whose, _UNKNOWN
        self._held: Any | None = None

    def lost(self, error: Exception) -> None:
        """Keep the turn after a loss, or give it up and take that of another table."""
        table: str = getattr(error, "table", _UNKNOWN)
        held = self._held
        if held is not None and table == self._table and self._turns.note_loss(held):
            return
        self.end()
        if table != _UNKNOWN:
            self._held, self._table = self._turns.take(table, **self._whose), table

    def end(self) -> None:
        """Give the turn up."""
        held, self._held = self._held, None
        if held is not None:
            self._turns.give_up(held)


def run(
    begin: Callable[[], Transaction],
    turns: TurnLines,
    work: Callable[[Transaction], T],
    attempts: int,
) -> T:
    """Run `work` as `Store.run` does, in transactions that `begin` begins."""
    if not callable(work):
        raise RequestError(f"run() calls a function with a transaction; got {told(work)}")
    holder, is_first = TurnHolder(turns), True

    def once() -> T:
        nonlocal is_first
        if not is_first:
            return tried(NONE_CLOSED)
        is_first = False
        try:
            return tried(None)
        except TableClosedError as closed:
            table = closed.table
        turns.wait_open(table)
        return tried(NONE_CLOSED)

    def tried(closed: frozenset[str] | None) -> T:
        with begin() as tx, ClosedTables(tx, turns.closed if closed is None else closed):
            return work(tx)

    try:
        return Retry(attempts).run(once, on_loss=holder.lost)
    finally:
        holder.end()


class ClosedTables:
    """A block with the work of a run: if it named one of these tables, the run begins again.

    That is so whatever the work made of the error.

    Raises:
        TableClosedError: It named one.
    """

    __slots__ = ("_tx",)

    def __init__(self, tx: Transaction, closed: frozenset[str]) -> None:
        self._tx = tx
        tx.closed = closed

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if self._tx.closed_at and (error is None or isinstance(error, Exception)):
            raise TableClosedError(self._tx.closed_at) from error
