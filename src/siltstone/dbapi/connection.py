"""Connection: a store as PEP 249 knows databases, with one transaction at a time."""

from __future__ import annotations

import os
from typing import Any, Self, get_args

from siltstone.api.store import Store
from siltstone.choices import Isolation
from siltstone.dbapi import pep_errors
from siltstone.dbapi.cursor import Cursor
from siltstone.dbapi.pep_errors import ProgrammingError, told
from siltstone.dbapi.store_session import LEGACY_TRANSACTION_CONTROL, StoreSession, autocommit_of
from siltstone.errors import not_one_of
from siltstone.store import connect as open_store


def connect(
    database: str | os.PathLike[str] | Store,
    *,
    autocommit: bool | int = LEGACY_TRANSACTION_CONTROL,
    isolation: Isolation = "snapshot",
    check_same_thread: bool = True,
    **options: Any,
) -> StoreConnection:
    """Connect to a store.

    Args:
        database: A path or a URL, as for `siltstone.connect`; or an open store, which stays open.
        autocommit: When transactions begin, as in `sqlite3`: with -1 at the first statement that
            writes, with False at the first statement; with True each statement is its own one.
        isolation: Of its transactions: "snapshot" or "serializable".
        check_same_thread: False: other threads may use it, one at a time.
        options: Of `siltstone.connect`: `read_only`, `join`, `token`, `sql_memory_bytes_max`, ..

    Raises:
        Error: As `siltstone.connect`, by `pep_errors`.
    """
    begins = autocommit_of(autocommit)
    if isolation not in get_args(Isolation):
        raise ProgrammingError(not_one_of("isolation", isolation, get_args(Isolation)))
    is_given = isinstance(database, Store)
    if is_given and options:
        raise ProgrammingError(f"an open store has its options already; got {sorted(options)}")
    with told():
        db = database if is_given else open_store(database, **options)
    session = StoreSession(
        db, isolation=isolation, autocommit=begins, check_same_thread=check_same_thread
    )
    return StoreConnection(session, None if is_given else db)


class StoreConnection:
    """See the module; `connect` makes it.

    A context manager as that of `sqlite3`: at the end of the block it commits, or rolls back after
    an error, and stays open.
    """

    Warning = pep_errors.Warning
    Error = pep_errors.Error
    InterfaceError = pep_errors.InterfaceError
    DatabaseError = pep_errors.DatabaseError
    DataError = pep_errors.DataError
    OperationalError = pep_errors.OperationalError
    IntegrityError = pep_errors.IntegrityError
    InternalError = pep_errors.InternalError
    ProgrammingError = pep_errors.ProgrammingError
    NotSupportedError = pep_errors.NotSupportedError

    def __init__(self, session: StoreSession, own: Store | None) -> None:
        """`own`: the store, if it is closed with the connection."""
        self._session, self._own = session, own

    def cursor(self) -> Cursor:
        """Return a cursor. Those of one connection share its transaction."""
        with self._session:
            return Cursor(self, self._session)

    def commit(self) -> None:
        """Commit the transaction that is open; without one do nothing.

        Raises:
            OperationalError: Another commit won, or it is not known whether this one did (see the
                `__cause__`). No transaction is open any more.
        """
        with self._session:
            self._session.commit()

    def rollback(self) -> None:
        """Roll back the transaction that is open; without one do nothing."""
        with self._session:
            self._session.rollback()

    def close(self) -> None:
        """Roll back what is open, and close the store if it was opened here. Again: nothing."""
        if self._session.is_closed:
            return
        with self._session:
            try:
                self._session.close()
            finally:
                if self._own is not None:
                    self._own.close()

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction is open: commit() or rollback() ends it."""
        return self._session.in_transaction

    @property
    def autocommit(self) -> bool | int:
        """When transactions begin, see `connect`; set to True it commits the one that is open."""
        return self._session.autocommit

    @autocommit.setter
    def autocommit(self, given: bool | int) -> None:
        with self._session:
            self._session.set_autocommit(given)

    @property
    def isolation(self) -> Isolation:
        """That of its transactions."""
        return self._session.isolation

    def __enter__(self) -> Self:
        with self._session:
            return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._session.is_closed:
            return
        if kind is None:
            self.commit()
        else:
            self.rollback()
