"""Cursor: one statement of a connection after the other, and the rows of the last one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Self

from siltstone.arguments import count_of
from siltstone.dbapi.fetched_rows import FetchedRows, Row
from siltstone.dbapi.pep_errors import ProgrammingError
from siltstone.dbapi.store_session import Parameters, StoreSession
from siltstone.dbapi.type_objects import Column
from siltstone.process.context_exits import close_on_exit


class Cursor:
    """See the module; `Connection.cursor` makes it. A context manager, which closes it.

    `description` has the columns of the rows, and is None if the statement gives none; `rowcount`
    is how many rows it wrote, and -1 if it read.
    """

    lastrowid: None = None
    """Rows have no ids but their keys."""

    def __init__(self, connection: Any, session: StoreSession) -> None:
        self.connection = connection
        self.arraysize = 1
        self.description: list[Column] | None = None
        self.rowcount = -1
        self._session = session
        self._rows: FetchedRows | None = None
        self._is_closed = False

    def close(self) -> None:
        """Forget the rows, and refuse all that follows. Again: nothing."""
        self._is_closed = True
        rows, self._rows = self._rows, None
        if rows is not None:
            rows.close()

    def __enter__(self) -> Self:
        return self

    __exit__ = close_on_exit

    # statements

    def execute(self, operation: str, parameters: Parameters | None = None) -> Self:
        """Run one statement, and return this cursor.

        Args:
            operation: SQL (docs/sql.md), or BEGIN, COMMIT, ROLLBACK.
            parameters: For `?` and `$1` a sequence, for `$name` a mapping.

        Raises:
            Error: See `pep_errors`; the rows of the statement before are gone.
        """
        with self._session:
            self._forget()
            ran = self._session.execute(_text(operation), _given(parameters))
            self._rows, self.rowcount = ran.rows, ran.count
            self.description = None if ran.rows is None else ran.rows.description
        return self

    def executemany(self, operation: str, seq_of_parameters: Iterable[Parameters]) -> Self:
        """Run a statement that writes for each of many rows of parameters, in one transaction.

        An INSERT of one row of parameters is run for hundreds of rows at once. The rows may be an
        iterator, of any length: the transaction holds what one commit may.

        Raises:
            Error: As `execute`. What it wrote before is left to the transaction, if that was open.
        """
        with self._session:
            self._forget()
            self.rowcount = self._session.execute_many(_text(operation), seq_of_parameters)
        return self

    def _forget(self) -> None:
        self._require_open()
        rows, self._rows = self._rows, None
        self.description, self.rowcount = None, -1
        if rows is not None:
            rows.close()

    # rows

    def fetchone(self) -> Row | None:
        """Return the next row as a tuple; None after the last one."""
        with self._session:
            return next(iter(self._found().take(1)), None)

    def fetchmany(self, size: int | None = None) -> list[Row]:
        """Return the next rows, at most `size`, or `arraysize`; none after the last one."""
        with self._session:
            count = count_of("size", self.arraysize if size is None else size, 0)
            return self._found().take(count)

    def fetchall(self) -> list[Row]:
        """Return all rows that are left."""
        with self._session:
            return self._found().take(None)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Row:
        row = self.fetchone()
        if row is None:
            raise StopIteration
        return row

    def _found(self) -> FetchedRows:
        self._require_open()
        if self._rows is None:
            raise ProgrammingError("there are no rows: the last statement gives none, or none ran")
        return self._rows

    # sizes

    def setinputsizes(self, sizes: Sequence[object]) -> None:
        """Do nothing: values have the types that they have."""

    def setoutputsize(self, size: int, column: int | None = None) -> None:
        """Do nothing: values come whole."""

    def _require_open(self) -> None:
        if self._is_closed:
            raise ProgrammingError("the cursor is closed: make another one")


def _text(operation: object) -> str:
    if not isinstance(operation, str):
        raise ProgrammingError(f"a statement must be a string; got {operation!r:.80}")
    return operation


def _given(parameters: object) -> Parameters | None:
    """Return parameters; no parameters are None.

    Raises:
        ProgrammingError: They are neither a sequence nor a mapping.
    """
    if parameters is None:
        return None
    is_text = isinstance(parameters, str | bytes)
    if is_text or not isinstance(parameters, Sequence | Mapping):
        raise ProgrammingError(f"parameters are a sequence or a mapping; got {parameters!r:.80}")
    return parameters or None
