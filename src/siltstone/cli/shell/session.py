"""Session: the store of a shell, its open transaction, and the moment that it reads.

    NOW ──begin──▶ IN A TRANSACTION ──commit, rollback, an error that ends it──▶ NOW
     └──a moment──▶ IN THE PAST ──no moment──▶ NOW

A path is owned, or joined if another process owns it; without the right to write there it is only
read. When its owner is gone, or this process owns it no more, the next use opens the store again.
"""

from __future__ import annotations

import os
import re
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self, cast

from siltstone import errors
from siltstone.api.snapshot import Snapshot
from siltstone.api.store import Store
from siltstone.api.transaction import Transaction
from siltstone.choices import Isolation
from siltstone.cli.arguments import AsOf, Db
from siltstone.cli.exits import UsageError
from siltstone.cli.files import rows_named
from siltstone.cli.progress import progress_bar
from siltstone.cli.sessions import is_in_bucket, is_remote, past, served
from siltstone.cli.shell.stopping import Interrupted
from siltstone.errors import SiltstoneError
from siltstone.joined.remote import is_write
from siltstone.local.snapshot import sql_with
from siltstone.local.store import LocalStore
from siltstone.local.transaction import LocalTransaction
from siltstone.paths import only_read, root_of
from siltstone.store import connect, own_or_join

if TYPE_CHECKING:
    import pyarrow as pa

_TURN = re.compile(
    r"(?P<begin>(?:begin|start)(?:\s+(?:transaction|work))?"
    r"(?:\s+isolation\s+level\s+(?P<isolation>snapshot|serializable))?)"
    r"|(?P<commit>(?:commit|end)(?:\s+(?:transaction|work))?)"
    r"|(?P<rollback>(?:rollback|abort)(?:\s+(?:transaction|work))?)",
    re.IGNORECASE,
)
_OF_TURNS = re.compile(
    r"(begin|start|commit|end|rollback|abort|savepoint|release)\b", re.IGNORECASE
)
_COMMENT = re.compile(r"--[^\n\r]*|/\*(?:[^*]|\*(?!/))*+\*/")
_LOST = (errors.ClosedError, errors.FencedError, errors.InDoubtError, errors.PoisonedError)
"""After these this handle of the store is of no more use."""


@dataclass(frozen=True, slots=True)
class Said:
    """What a statement gives: rows, if it asks for some, and what to say of it."""

    rows: pa.Table | None
    said: str = ""


class ShellSession:
    """See the module. A context manager; one thread."""

    def __init__(self, db: Db, *, read_only: bool) -> None:
        self._db = db
        self.read_only = read_only or not _may_write(db)
        self._store: Store | None = None
        self._transaction: Transaction | None = None
        self._snapshot: Snapshot | None = None
        self.as_of = AsOf()
        """The moment that is read; without any: now."""

    def __enter__(self) -> Self:
        self.store()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Roll back, and close the store: with its upkeep, unless something went wrong."""
        with suppress(SiltstoneError):
            self._end_transaction()
        self._close(upkeep=None if kind is None else False)

    def _close(self, *, upkeep: bool | None) -> None:
        self._end_snapshot()
        store, self._store = self._store, None
        if store is not None:
            with progress_bar("upkeep") as told:
                store.close(upkeep, on_progress=told)

    def store(self) -> Store:
        """Return the store, which is opened if it is not open.

        Raises:
            SiltstoneError: It cannot be opened.
        """
        if self._store is None:
            self._store = self._opened()
        return self._store

    def _opened(self) -> Store:
        if is_remote(self._db):
            return served(self._db)
        if self.read_only:
            return connect(self._db.uri, read_only=True)
        return own_or_join(self._db.uri)

    @property
    def is_in_transaction(self) -> bool:
        """Whether a transaction is open."""
        return self._transaction is not None

    # statements

    def run(self, statement: str, rows_max: int | None) -> Said:
        """Run a statement; of the rows of a query at most `rows_max` are read (None: all).

        Raises:
            SiltstoneError: It is refused, or failed; `after_error` says what is left.
        """
        bare = _COMMENT.sub(" ", statement).strip()  # no word of these is in a text
        turn = _TURN.fullmatch(bare)
        if turn is not None:
            return Said(None, self._turn(turn))
        if _OF_TURNS.match(bare):
            raise UsageError(
                "transactions are BEGIN, or BEGIN ISOLATION LEVEL SERIALIZABLE, COMMIT and ROLLBACK"
            )
        if is_write(statement):
            return self._written(statement)
        return Said(self._rows(statement, rows_max))

    def _rows(self, statement: str, rows_max: int | None) -> pa.Table:
        transaction = self._transaction
        if transaction is None:
            with self.reading() as snapshot:
                assert isinstance(snapshot, Snapshot)
                return sql_with(snapshot, statement, rows_named, rows_max).arrow()
        if isinstance(transaction, LocalTransaction):
            return transaction.sql_with(statement, rows_named, rows_max=rows_max).arrow()
        found = transaction.sql(statement)
        return (found if rows_max is None else found.limit(rows_max)).arrow()

    def _written(self, statement: str) -> Said:
        self._refuse_write()
        at = self._transaction or self.store()
        if isinstance(at, LocalStore | LocalTransaction):
            found = at.sql_with(statement, rows_named)
        else:
            found = at.sql(statement)
        is_definition = found.columns == ["Count"] and not len(found)
        is_count = found.columns == ["Count"] and "returning" not in statement.lower()
        return Said(
            None if is_definition or is_count else found.arrow(),
            self._written_in_words(None if is_definition else found.rows, found.seq),
        )

    def _written_in_words(self, rows: int | None, seq: int | None) -> str:
        if rows == 0:
            return "0 rows"
        if self._transaction is not None:
            return f"{_counted(rows)}not committed yet"
        if seq is None:  # an index
            return "done"
        return f"{_counted(rows)}committed at seq {seq}"

    def _refuse_write(self) -> None:
        if self.as_of != AsOf():
            raise errors.ReadOnlyError(
                f"the shell reads {self.moment()}, and a write is of now: .now goes back there"
            )
        if self.read_only:
            why = "the store is open to be read alone: the shell writes nothing"
            why = only_read(self.store().path) if is_in_bucket(self._db) else why
            raise errors.ReadOnlyError(why)

    # transactions

    def _turn(self, turn: re.Match[str]) -> str:
        """Begin, commit or roll back; return what to say."""
        if turn["begin"]:
            return self._begin(cast("Isolation", (turn["isolation"] or "snapshot").lower()))
        transaction = self._transaction
        if transaction is None:
            raise UsageError("no transaction is open: BEGIN begins one")
        if turn["rollback"]:
            self._end_transaction()
            return "rolled back"
        receipt = transaction.commit()
        self._transaction = None
        return f"{_counted(receipt.rows or None)}committed at seq {receipt.seq}"

    def _begin(self, isolation: Isolation) -> str:
        self._refuse_write()
        if self._transaction is not None:
            raise UsageError("a transaction is open: COMMIT or ROLLBACK ends it")
        self._transaction = self.store().transaction(isolation=isolation)
        return f"a transaction at seq {self._transaction.read_seq}"

    def _end_transaction(self) -> None:
        transaction, self._transaction = self._transaction, None
        if transaction is not None:
            transaction.rollback()

    # the past

    def look_at(self, as_of: AsOf) -> str:
        """Read the store at a moment from now on, or now; return what to say.

        Raises:
            SiltstoneError: There is no such moment; nothing changed.
        """
        if self._transaction is not None:
            raise UsageError("a transaction is open: COMMIT or ROLLBACK ends it")
        found = None if as_of == AsOf() else past(self.store(), as_of)
        self._end_snapshot()
        self._snapshot, self.as_of = found, as_of
        return "now" if found is None else f"as of seq {found.seq}"

    def _end_snapshot(self) -> None:
        snapshot, self._snapshot = self._snapshot, None
        if snapshot is not None:
            with suppress(SiltstoneError):
                snapshot.close()

    @contextmanager
    def reading(self) -> Generator[Snapshot | Transaction]:
        """Yield what is read now: the transaction, the past, or a new snapshot."""
        if self._transaction is not None:
            yield self._transaction
        elif self.as_of == AsOf():
            with self.store().snapshot() as snapshot:
                yield snapshot
        else:
            if self._snapshot is None:  # the store was opened again
                self._snapshot = past(self.store(), self.as_of)
            yield self._snapshot

    def moment(self) -> str:
        """Return the moment that is read, in words; empty: now."""
        at, seq, tag = self.as_of.at, self.as_of.seq, self.as_of.tag
        if at is not None:
            return at
        return "" if seq is None and tag is None else f"seq {seq}" if tag is None else f"tag {tag}"

    # errors

    def after_error(self, error: BaseException) -> str:
        """Release what an error or an interrupt ended; return what to say of it."""
        said = self._left_of_transaction()
        if isinstance(error, errors.InDoubtError):
            said = ""  # it says itself what is known of the transaction
        if isinstance(error, Interrupted):
            error = error.__cause__ or error
        is_far = not isinstance(self._store, LocalStore)
        if isinstance(error, _LOST) or (is_far and isinstance(error, errors.UnavailableError)):
            with suppress(SiltstoneError):
                self._close(upkeep=False)
        return said

    def cut_off(self) -> None:
        """End what another process does for this one, from another thread than waits for it."""
        store = self._store
        if store is not None and not isinstance(store, LocalStore):
            store.close()

    def _left_of_transaction(self) -> str:
        transaction = self._transaction
        if transaction is None:
            return ""
        with suppress(SiltstoneError):
            if transaction.is_open:
                transaction.tables()  # asks the owner, which may have ended it
                return ""
        with suppress(SiltstoneError):
            self._end_transaction()
        return "the transaction was rolled back"


def _counted(rows: int | None) -> str:
    if rows is None:
        return ""
    return "1 row, " if rows == 1 else f"{rows} rows, "


def _may_write(db: Db) -> bool:
    return is_remote(db) or (not is_in_bucket(db) and os.access(root_of(db.uri), os.W_OK))
