"""Transaction: the public names of a transaction over the engine's one."""

from __future__ import annotations

import sys
from collections.abc import Generator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa

from siltstone.api.transaction import Transaction
from siltstone.engine.catalog import catalog as catalogs
from siltstone.engine.catalog import definitions
from siltstone.engine.catalog.new_table import defined, schema_and_rows
from siltstone.engine.read.past import changed_since
from siltstone.engine.read.read_union import KeyedReader
from siltstone.engine.read.reader import Reader
from siltstone.engine.read.view import State
from siltstone.engine.write.transaction import EngineTransaction
from siltstone.engine.write.transaction_rows import view_of
from siltstone.errors import ConflictError, RequestError, TableNotFoundError
from siltstone.local.readable import LocalReadable
from siltstone.local.snapshot import seen_by, table_of_then
from siltstone.local.transaction_table import LocalTransactionTable
from siltstone.process.turns import TableClosedError

if TYPE_CHECKING:
    from siltstone.lance_versions.version_statements import VersionStatements
    from siltstone.local.past.put_back import PutBack
    from siltstone.local.statements.running import Running, Written
    from siltstone.local.statements.written import Answer
    from siltstone.query.sql import sql as queries
    from siltstone.query.sql.frames import Variables
    from siltstone.query.sql.writes.constants import Given
    from siltstone.query.sql.writes.statements import Write

_NOTHING = nullcontext()


class WrittenSinceError(Exception):
    """What others wrote since would be undone: to run it again does not help."""

    def __init__(self, error: ConflictError) -> None:
        self.error = error
        super().__init__(str(error))


class _ReadWholeTable(LocalReadable):
    """A table of one SQL statement, which reads the whole of it, whatever DuckDB asks for.

    It is read as it was when it was found: DuckDB reads it in its own threads, which must touch
    nothing that the transaction goes on with.
    """

    __slots__ = ("_found",)
    _is_of_statement = True

    def __init__(self, found: Reader) -> None:
        self._found = found
        if isinstance(found, KeyedReader) and found.own is not None:
            found.own.whole()

    def _reader(self) -> Reader:
        return self._found


class LocalTransaction(EngineTransaction, Transaction):
    """A transaction of this process."""

    def _require_open(self) -> None:
        self.require_open()

    @property
    def lance(self) -> VersionStatements:
        """The transaction as other Lance clients see it, through the namespace."""
        from siltstone.lance_versions.version_statements import (  # noqa: PLC0415 - few need it
            VersionStatements,
        )

        return VersionStatements(self)

    def __getitem__(self, name: str) -> LocalTransactionTable:
        self.require_open()
        found = self.named(name).id
        if self.closed:
            self._refuse_closed(name)
        spans = self.core.works.spans
        kind = LocalTransactionTable if spans is None else spans.kind(LocalTransactionTable)
        return kind(self, found)

    def _refuse_closed(self, name: str) -> None:
        if name in self.closed:
            self.closed_at = name
            raise TableClosedError(name)

    def sql(self, statement: str, parameters: queries.Parameters = None) -> queries.Result:
        caller = sys._getframe(1)  # noqa: SLF001 # pyright: ignore[reportPrivateUsage] - documented
        return self.sql_with(statement, seen_by(caller), parameters)

    def sql_with(
        self,
        statement: str,
        variables: Variables,
        parameters: queries.Parameters = None,
        rows_max: int | None = None,
    ) -> queries.Result:
        """Run a statement that reads what `variables` returns for a name that no table has.

        Of a query the first rows, at most `rows_max`, are enough.
        """
        from siltstone.query.sql.writes.parse import write_of  # noqa: PLC0415 - few need it

        write = write_of(statement)
        if write is not None:
            return self._wrote(write, statement, parameters, variables)
        from siltstone.query.sql.sql import collected  # noqa: PLC0415 - brings pandas

        return collected(self.read_sql(statement, parameters, variables), rows_max)

    def write_sql(self, statement: str, parameters: queries.Parameters = None) -> Answer:
        """Run a statement that writes, for a server."""
        from siltstone.local.statements.written import answered  # noqa: PLC0415 - as in `sql`

        return answered(self._wrote, statement, parameters)

    def _wrote(
        self,
        write: Write,
        statement: str,
        parameters: queries.Parameters,
        variables: Variables,
    ) -> queries.Result:
        from siltstone.local.statements.written import result_of  # noqa: PLC0415 - as in `sql`
        from siltstone.query.sql.frames import read_once  # noqa: PLC0415

        _, written = self.run_sql(write, statement, parameters, read_once(variables))
        return result_of(write, written, None)

    def run_sql(
        self,
        write: Write,
        statement: str,
        parameters: queries.Parameters,
        variables: Variables,
        *,
        is_alone: bool = False,
    ) -> tuple[Running, Written]:
        """Run a statement that writes, of which all is done or nothing.

        `is_alone`: it is all of the transaction, and many rows may be staged.
        """
        from siltstone.local.statements.running import Running  # noqa: PLC0415 - as in `sql`
        from siltstone.local.statements.written import given_of, run_write  # noqa: PLC0415
        from siltstone.query.sql.frames import rows_of  # noqa: PLC0415
        from siltstone.query.sql.writes.checked import checked  # noqa: PLC0415

        self._require_open()
        checked(statement)
        given = given_of(write, parameters)

        def read(sql: str, given: Given, rows: Mapping[str, pa.Table]) -> pa.RecordBatchReader:
            return self.read_sql(sql, dict(given) or None, variables, rows=rows)

        frame = partial(rows_of, variables)
        run = Running(self, self.core, read, frame, given, is_alone)
        try:
            with self.core.works.sql.timed(), self.whole():
                return run, run_write(write, run)
        except BaseException:
            run.discard()
            raise

    def sql_reader(
        self, statement: str, parameters: queries.Parameters = None
    ) -> pa.RecordBatchReader:
        caller = sys._getframe(1)  # noqa: SLF001 # pyright: ignore[reportPrivateUsage] - documented
        return self.read_sql(statement, parameters, seen_by(caller))

    def read_sql(
        self,
        statement: str,
        parameters: queries.Parameters,
        variables: Variables,
        alone: AbstractContextManager[object] = _NOTHING,
        rows: Mapping[str, pa.Table] | None = None,
    ) -> pa.RecordBatchReader:
        """Return the rows of `sql_reader`, whose statement sees `variables` of its caller.

        `alone`: what is done within it is done while no other thread uses the transaction.
        """
        from siltstone.query.sql import sql as queries  # noqa: PLC0415 - as in `sql`
        from siltstone.query.sql.names import lists_tables  # noqa: PLC0415

        def table(name: str) -> _ReadWholeTable | None:
            with alone:
                self.require_open()
                try:
                    definition = self.named(name)
                except TableNotFoundError:
                    return None
                self._refuse_closed(name)
                reader = self.rows.reader(definition)
                if not lists_tables(statement):
                    self.rows.note(definition, reader, (), None)
                return _ReadWholeTable(reader)

        with alone:
            self.require_open()
            names = self.tables()
        is_whole = rows is None  # else it is a part of a statement that writes
        with self.core.works.sql.timed() if is_whole else _NOTHING:
            return queries.read(
                statement,
                table,
                names,
                parameters,
                check=self.require_open,
                bounds=self.core.sql,
                spares=self.core.spares,
                variables=variables,
                rows=rows,
                past=lambda named: table_of_then(self.core, self._committed(), named),
            )

    def put_back(self, table: str, *, to: object, until: object = None, force: bool = False) -> int:
        self._require_open()
        if self.is_applied:
            return 0
        with self.putting_back() as run:
            return run.run(table, to, until, force=force)

    @contextmanager
    def putting_back(self, *, is_alone: bool = False) -> Generator[PutBack]:
        """Yield what puts a table back, all of it or nothing.

        `is_alone`: it is all of the transaction, and many rows may be staged.
        """
        from siltstone.local.past.put_back import PutBack  # noqa: PLC0415 - few need it

        self._require_open()
        run = PutBack(self, self.core, self._committed(), self.has_written, is_alone)
        try:
            with self.whole():
                yield run
        except BaseException:
            run.discard()
            raise

    def _committed(self) -> State:
        """Return what the transaction reads, without what it wrote."""
        return State(view_of(self.rows), self.read_seq)

    def table(self, table_id: int) -> LocalTransactionTable:
        """Return the table with this id, for callers that have no name of it."""
        definitions.check_table_id(table_id)
        return LocalTransactionTable(self, table_id)

    def create_table(
        self,
        name: str,
        schema: object = None,
        primary_key: str | Sequence[str] = (),
        *,
        data: object = None,
        defaults: object = None,
        exist_ok: bool = False,
    ) -> LocalTransactionTable:
        self._require_open()
        if exist_ok and self.has_table(name, defined(schema, defaults), primary_key):
            return self[name]
        columns, rows = schema_and_rows(schema, data, defaults)
        with self.whole():
            self.define_table(name, columns, primary_key)
            made = self[name]
            if rows is not None:
                (made.insert if made.primary_key else made.append)(rows)
        return made

    def changed_since(
        self, table_id: int, since: int, own: Sequence[tuple[int, int]] = ()
    ) -> tuple[str, int]:
        definitions.check_table_id(table_id)
        definitions.check_own(since, own)
        table = self.definition(table_id)
        if self.is_applied:
            return catalogs.name_of(table), 0
        if since > self.read_seq:
            raise RequestError(f"seq {since} is in the future: the store is at seq {self.read_seq}")
        state = self._committed()
        touched = self.core.commits.touched(state, since)
        return catalogs.name_of(table), changed_since(state, table, since, own, touched)
