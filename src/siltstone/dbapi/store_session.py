"""Store session: the store of one connection, and the transaction that is open, if one is.

    none ──a statement that begins one, BEGIN──▶ open ──commit, rollback──▶ none
                                                  └──error──▶ over ──rollback──▶ none

Which statements begin one `autocommit` says:

    LEGACY_TRANSACTION_CONTROL   those that write; what reads before that reads the newest snapshot
    False                        the first one, whatever it is
    True                         BEGIN alone; each other statement is its own transaction

A transaction that an error ended takes no more statements: none is committed by itself that was
meant as a part of it.
"""

from __future__ import annotations

import threading
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, cast
from weakref import WeakSet

from siltstone.api.snapshot import Snapshot
from siltstone.api.store import Store
from siltstone.api.transaction import Transaction
from siltstone.choices import Isolation
from siltstone.dbapi.control import Control, control_of, refuse_catalog_of_sqlite
from siltstone.dbapi.fetched_rows import FetchedRows
from siltstone.dbapi.pep_errors import OperationalError, ProgrammingError, error_of
from siltstone.errors import SiltstoneError
from siltstone.query.sql.result import Result
from siltstone.query.sql.writes.many import ROWS_MAX, many_rows
from siltstone.query.sql.writes.parse import write_of
from siltstone.query.sql.writes.statements import IndexStatement, Returning, Write

LEGACY_TRANSACTION_CONTROL = -1
"""What `sqlite3` calls its default; see the module."""
_PART_BYTES_MAX = 16 << 20
"""Of texts and bytes, in the rows that executemany writes at once."""
Parameters = Sequence[Any] | Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Ran:
    """What became of a statement: its rows, if it gives any, and how many it wrote (else -1)."""

    rows: FetchedRows | None = None
    count: int = -1


class StoreSession:
    """See the module. One thread at a time: a second one is refused.

    A context manager, which each call of the user is within. It raises:
        ProgrammingError: The connection is closed, or is another thread's.
        Error: That of PEP 249 for one of siltstone; see `pep_errors`.
    """

    def __init__(
        self, db: Store, *, isolation: Isolation, autocommit: int, check_same_thread: bool
    ) -> None:
        self.isolation: Isolation = isolation
        self.autocommit = autocommit
        """See the module."""
        self._db, self.is_closed = db, False
        self._open: Transaction | Snapshot | None = None
        self._fetched = WeakSet[FetchedRows]()
        self._thread = threading.get_ident() if check_same_thread else None
        self._turn = threading.RLock()  # its own thread may fetch rows while it passes them on

    def __enter__(self) -> None:
        if self.is_closed:
            raise ProgrammingError("the connection is closed: make another one")
        here = threading.get_ident()
        if self._thread != here and self._thread is not None:
            raise ProgrammingError(
                f"the connection was made in thread {self._thread}, and this is thread {here}: make"
                " one in each thread, or pass it on with check_same_thread=False"
            )
        if not self._turn.acquire(blocking=False):
            raise ProgrammingError("another thread uses the connection now: only one may at a time")

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self._turn.release()
        if isinstance(error, SiltstoneError):
            raise error_of(error) from error

    def close(self) -> None:
        """Roll back what is open, and refuse all that follows."""
        self.is_closed = True
        for rows in list(self._fetched):
            rows.end("the connection is closed")
        self.rollback()

    # transactions

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction is open, or was until an error ended it."""
        return self._open is not None

    def set_autocommit(self, given: object) -> None:
        """Change it; True commits what is open.

        Raises:
            ProgrammingError: It is not one of the three values.
        """
        found = autocommit_of(given)
        if found is True:
            self.commit()
        self.autocommit = found

    def begin(self) -> None:
        """Begin a transaction; on a store that is only read, one snapshot for all that follows."""
        if self._db.is_read_only:
            self._open = self._db.snapshot()
        else:
            self._open = self._db.transaction(isolation=self.isolation)

    def commit(self) -> None:
        """Commit what is open; if that fails, it is rolled back."""
        found = self._left()
        if isinstance(found, Snapshot):
            found.close()
        elif found is not None:
            try:
                found.commit()
            except BaseException:
                found.rollback()
                raise

    def rollback(self) -> None:
        """Roll back what is open."""
        found = self._left()
        if isinstance(found, Snapshot):
            found.close()
        elif found is not None:
            found.rollback()

    def _left(self) -> Transaction | Snapshot | None:
        """Leave the transaction that is open, with the rows that were not fetched of it."""
        found, self._open = self._open, None
        for rows in list(self._fetched):
            if rows.is_of_transaction:
                rows.end(
                    "the transaction that read these rows has ended: fetch them before it does"
                )
        return found

    def _control(self, kind: Control) -> None:
        if kind is Control.BEGIN:
            if self.in_transaction or self.autocommit is False:
                raise ProgrammingError(
                    "a transaction is open already: commit() or rollback() first"
                )
            self.begin()
        elif not self.in_transaction and self.autocommit is not False:
            raise ProgrammingError(f"{kind.name}: no transaction is open")
        elif kind is Control.COMMIT:
            self.commit()
        else:
            self.rollback()

    @contextmanager
    def _within(self) -> Generator[Transaction | Snapshot]:
        """Do something in the transaction that is open, or in one that begins; then all or nothing.

        Raises:
            OperationalError: An error ended the transaction.
        """
        if self._open is not None:
            if isinstance(self._open, Transaction) and not self._open.is_open:
                raise OperationalError(
                    "the transaction was rolled back by an error; call rollback(), and run all of"
                    " it again"
                )
            yield self._open
            return
        self.begin()
        assert self._open is not None
        try:
            yield self._open
        except BaseException:
            self.rollback()
            raise

    # statements

    def execute(self, sql: str, parameters: Parameters | None) -> Ran:
        """Run one statement.

        Raises:
            SiltstoneError: As `Store.sql`.
            NotSupportedError, ProgrammingError: It is refused by name, or has no place here.
        """
        control = control_of(sql)
        if control is not None:
            self._control(control)
            return Ran()
        refuse_catalog_of_sqlite(sql)
        write = write_of(sql)
        if write is None:
            return Ran(self._read(sql, parameters))
        result = self._written(write, sql, parameters)
        count = -1 if result.rows is None else result.rows
        if not _returns(write):
            return Ran(count=count)
        return Ran(FetchedRows(result.to_arrow().to_reader(max_chunksize=8_192)), count)

    def _read(self, sql: str, parameters: Parameters | None) -> FetchedRows:
        if self._open is None and self.autocommit is not False:
            found = FetchedRows(self._db.sql_reader(sql, parameters))
        else:
            with self._within() as open_:
                found = FetchedRows(open_.sql_reader(sql, parameters), is_of_transaction=True)
        if not found.is_read:
            self._fetched.add(found)
        return found

    def _written(self, write: Write, sql: str, parameters: Parameters | None) -> Result:
        is_alone = self.autocommit is True or isinstance(write.statement, IndexStatement)
        if self._open is None and (is_alone or self._db.is_read_only):
            return self._db.sql(sql, parameters)
        with self._within() as open_:
            return open_.sql(sql, parameters)

    def execute_many(self, sql: str, rows: Iterable[Parameters]) -> int:
        """Run a statement for each of many rows of parameters; return how many rows it wrote.

        All of it is in one transaction, which is committed if each statement is its own one.

        Raises:
            ProgrammingError: The statement gives rows, or writes none.
            SiltstoneError: As `Store.sql`.
        """
        write = write_of(sql)
        if write is None or not isinstance(write.statement, Returning) or _returns(write):
            raise ProgrammingError(
                "executemany() runs INSERT, UPDATE, DELETE and MERGE, without RETURNING"
            )
        is_alone = self.autocommit is True and not self.in_transaction
        if self._db.is_read_only:
            self._db.sql(sql, ())  # which refuses it
        with self._within() as open_:
            count = _repeated(cast("Transaction", open_), sql, rows)
            if is_alone:
                self.commit()
        return count


def _repeated(tx: Transaction, sql: str, rows: Iterable[Parameters]) -> int:
    before, count = 0, 0
    try:
        for before, text, given in _statements(sql, rows):  # noqa: B007 - told if it fails
            count += tx.sql(text, given).rows or 0
    except SiltstoneError as error:
        also = f" (its row 1 is row {before + 1} of executemany)" if before else ""
        raise error_of(error, also) from error
    return count


def _statements(sql: str, rows: Iterable[Parameters]) -> Iterator[tuple[int, str, Parameters]]:
    """Yield the statements for rows of parameters, and which row is the first one of each."""
    many = many_rows(sql)
    if many is None:
        for place, row in enumerate(rows):
            yield place, sql, row
        return
    before = 0
    for part in _parts(rows):
        for place, text, given in many.statements(part):
            yield before + place, text, given
        before += len(part)


def _parts(rows: Iterable[Parameters]) -> Iterator[list[Parameters]]:
    """Yield the rows in lists: of so many, and of large ones so many bytes."""
    part, weight = list[Parameters](), 0
    for row in rows:
        part.append(row)
        weight += _weight(row)
        if len(part) == ROWS_MAX or weight > _PART_BYTES_MAX:
            yield part
            part, weight = [], 0
    if part:
        yield part


def _weight(row: object) -> int:
    """Return the bytes of the texts and bytes in a row; of what is no row, which is refused, 0."""
    values = row.values() if isinstance(row, Mapping) else row
    if not isinstance(values, Iterable):
        return 0
    return sum(len(value) for value in values if isinstance(value, str | bytes))


def _returns(write: Write) -> bool:
    return bool(getattr(write.statement, "returning", ()))


def autocommit_of(given: object) -> int:
    """Return how transactions begin.

    Raises:
        ProgrammingError: It is not one of the three values.
    """
    if given is True or given is False:
        return given
    if given == LEGACY_TRANSACTION_CONTROL:
        return LEGACY_TRANSACTION_CONTROL
    raise ProgrammingError(
        f"autocommit must be True, False or LEGACY_TRANSACTION_CONTROL (-1); got {given!r:.80}"
    )
