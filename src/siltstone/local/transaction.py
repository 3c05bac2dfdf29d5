"""Transaction: the public names of a transaction over the engine's one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from siltstone.api.tables import TransactionTable
from siltstone.api.transaction import Transaction
from siltstone.engine.catalog import catalog as catalogs
from siltstone.engine.catalog import definitions
from siltstone.engine.catalog.new_table import schema_and_rows
from siltstone.engine.read.past import changed_since
from siltstone.engine.read.read_union import KeyedReader, Row, beyond_python
from siltstone.engine.read.view import State
from siltstone.engine.write.definition_statements import DefiningTransaction
from siltstone.engine.write.transaction_rows import view_of
from siltstone.engine.write.transaction_table import EngineTransactionTable
from siltstone.errors import RequestError
from siltstone.query.search.searchable import Searchable
from siltstone.turns import TableClosedError

if TYPE_CHECKING:
    from siltstone.engine.write.merge_insert import Merge, MergeInserted
    from siltstone.lance_namespace.version_statements import VersionStatements


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
        if self.closed and name in self.closed:
            self.closed_at = name
            raise TableClosedError(name)
        return LocalTransactionTable(self, found)

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
