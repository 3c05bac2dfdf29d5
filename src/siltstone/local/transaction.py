"""Transaction: the public names of a transaction over the engine's one."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from types import FrameType
from typing import TYPE_CHECKING, Self

import pyarrow as pa

from siltstone.api.tables import TransactionTable
from siltstone.api.transaction import Transaction
from siltstone.engine.catalog import catalog as catalogs
from siltstone.engine.catalog import definitions
from siltstone.engine.catalog.new_table import schema_and_rows
from siltstone.engine.filter.filters import Filter
from siltstone.engine.read.past import changed_since
from siltstone.engine.read.read_union import KeyedReader, Row, beyond_python
from siltstone.engine.read.reader import Reader
from siltstone.engine.read.view import State
from siltstone.engine.write.definition_statements import DefiningTransaction
from siltstone.engine.write.transaction_rows import view_of
from siltstone.engine.write.transaction_table import EngineTransactionTable
from siltstone.errors import RequestError, TableNotFoundError
from siltstone.formats.keys import Key
from siltstone.formats.manifest import TableDefinition
from siltstone.process.turns import TableClosedError
from siltstone.query.search.searchable import Searchable

if TYPE_CHECKING:
    from siltstone.engine.write.merge_insert import Merge, MergeInserted
    from siltstone.lance_namespace.version_statements import VersionStatements
    from siltstone.query.sql import sql as queries

_NOTHING = nullcontext()


class LocalTransactionTable(Searchable, EngineTransactionTable, TransactionTable):
    """One table in a transaction of this process."""

    __slots__ = ()

    @property
    def id(self) -> int:
        return self._id

    def get(self, key: object) -> Row | None:
        tx = self._tx
        reader = tx.rows.readers.get(self._id)
        if type(reader) is not KeyedReader or not tx.is_open or tx.core.refusal is not None:
            return super().get(key)
        wanted = reader.table_schema.codec.from_user(key)
        if tx.rows.is_strict:
            self._note(reader, (wanted,), None)
        try:
            return reader.found(wanted)
        except OverflowError as error:
            raise beyond_python(wanted, error) from error


class _ReadWholeTable(LocalTransactionTable):
    """A table of one SQL statement, which reads the whole of it, whatever DuckDB asks for.

    It is read as it was when it was found: DuckDB reads it in threads of its own, which must touch
    nothing that the transaction goes on with.
    """

    __slots__ = ("_found", "_found_reader")

    def __init__(self, tx: LocalTransaction, table_id: int) -> None:
        super().__init__(tx, table_id)
        self._found = super()._table()
        self._found_reader = super()._reader()
        if isinstance(self._found_reader, KeyedReader) and self._found_reader.own is not None:
            self._found_reader.own.whole()

    def _table(self) -> TableDefinition:
        return self._found

    def _reader(self) -> Reader:
        return self._found_reader

    def read_whole(self) -> Self:
        """Count all rows as read."""
        super()._note(self._found_reader, (), None)
        return self

    def _note(self, reader: Reader, keys: Sequence[Key], wanted: Filter | None) -> None:
        pass


class LocalTransaction(DefiningTransaction, Transaction):
    """A transaction of this process."""

    def _require_open(self) -> None:
        self.require_open()

    @property
    def lance(self) -> VersionStatements:
        """The transaction as other Lance clients see it, through the namespace."""
        from siltstone.lance_namespace.version_statements import (  # noqa: PLC0415 - few need it
            VersionStatements,
        )

        return VersionStatements(self)

    def merge_insert(self, name: str, rows: pa.Table, how: Merge) -> MergeInserted:
        """Merge rows into a table; see `engine.write.merge_insert`."""
        from siltstone.engine.write.merge_insert import merge  # noqa: PLC0415 - as above

        return merge(self, name, rows, how)

    def __getitem__(self, name: str) -> LocalTransactionTable:
        self.require_open()
        found = self.named(name).id
        if self.closed:
            self._refuse_closed(name)
        return LocalTransactionTable(self, found)

    def _refuse_closed(self, name: str) -> None:
        if name in self.closed:
            self.closed_at = name
            raise TableClosedError(name)

    def sql(self, statement: str, parameters: queries.Parameters = None) -> queries.Result:
        from siltstone.query.sql.sql import collected  # noqa: PLC0415 - brings pandas

        caller = sys._getframe(1)  # noqa: SLF001 # pyright: ignore[reportPrivateUsage] - documented
        return collected(self._read_sql(statement, parameters, caller))

    def sql_reader(
        self,
        statement: str,
        parameters: queries.Parameters = None,
        *,
        alone: AbstractContextManager[object] = _NOTHING,
    ) -> pa.RecordBatchReader:
        """Return the rows of `sql` as they are read, for a server.

        `alone`: what is done within it is done while no other thread uses the transaction.
        """
        caller = sys._getframe()  # noqa: SLF001 # pyright: ignore[reportPrivateUsage] - no frames
        return self._read_sql(statement, parameters, caller, alone)

    def _read_sql(
        self,
        statement: str,
        parameters: queries.Parameters,
        caller: FrameType,
        alone: AbstractContextManager[object] = _NOTHING,
    ) -> pa.RecordBatchReader:
        from siltstone.query.sql import sql as queries  # noqa: PLC0415 - as in `sql`
        from siltstone.query.sql.frames import variables_of  # noqa: PLC0415
        from siltstone.query.sql.names import lists_tables  # noqa: PLC0415

        def table(name: str) -> _ReadWholeTable | None:
            with alone:
                try:
                    table_id = self.named(name).id
                except TableNotFoundError:
                    return None
                self._refuse_closed(name)
                found = _ReadWholeTable(self, table_id)
                return found if lists_tables(statement) else found.read_whole()

        with alone:
            self.require_open()
            names = self.tables()
        return queries.read(
            statement,
            table,
            names,
            parameters,
            check=self.require_open,
            bounds=self.core.sql,
            variables=variables_of(caller),
        )

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
        exist_ok: bool = False,
    ) -> LocalTransactionTable:
        self._require_open()
        if exist_ok and self.has_table(name, schema, primary_key):
            return self[name]
        columns, rows = schema_and_rows(schema, data)
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
        state = State(view_of(self.rows), self.read_seq)
        touched = self.core.touched(state, since)
        return catalogs.name_of(table), changed_since(state, table, since, own, touched)
