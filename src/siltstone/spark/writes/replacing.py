"""Replacing: an overwrite of the rows that match a filter, in one commit; all other rows stay.

    on executors   each row of the frame must match the filter
    at the commit  the matching rows of the table are deleted, then the staged ones come

The commit is serializable: it conflicts if another commit changed a row that matches, or added one.
A row of the frame whose key another row has, outside of the filter, replaces that row: keys are
unique. So the frame has all columns, as an upsert, or `missing` says that they become null.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from siltstone.api.transaction import Transaction
from siltstone.engine.filter.filters import filter_of
from siltstone.errors import RequestError, SchemaMismatchError, no_such
from siltstone.store import Store


@dataclass(frozen=True, slots=True)
class Replaced:
    """The rows of a table that match a filter, and the columns of the rows that replace them."""

    filter: str
    columns: pa.Schema
    table: str

    @classmethod
    def plan(cls, text: str, schema: pa.Schema, columns: pa.Schema, table: str) -> Replaced:
        """Check the filter against the columns of the table and of the frame.

        Raises:
            RequestError: It does not parse.
            SchemaMismatchError: The frame lacks a column of the filter.
        """
        wanted = filter_of(text, schema)
        assert wanted is not None
        lacking = sorted(set(wanted.check().columns) - set(columns.names))
        if lacking:
            raise SchemaMismatchError(
                f"replaceWhere: the rows for {table!r} have"
                f" {no_such('column', lacking[0], columns.names)}"
            )
        return cls(text, columns, table)

    def check_rows(self, batch: pa.RecordBatch) -> None:
        """Check that rows of the frame match.

        Raises:
            RequestError: One does not; the message shows it.
        """
        wanted = filter_of(self.filter, self.columns)
        assert wanted is not None
        fits = wanted.mask(batch)
        if fits.true_count < batch.num_rows:
            place = fits.fill_null(False).index(False).as_py()
            row = batch.slice(place, 1).to_pylist()[0]
            raise RequestError(
                f"replaceWhere {self.filter!r} replaces only rows that match it; a row for"
                f" {self.table!r} does not: {row!r:.200}"
            )

    def delete(self, db: Store, tx: Transaction, table_id: int, *, is_widened: bool) -> None:
        """Delete the rows of the table that match, in the transaction that brings the new ones.

        `is_widened`: the transaction has given the table new columns.
        """
        table = tx.table(table_id)
        if not table.primary_key:
            table.delete_where(self.filter)
            return
        gone = db.stage(table.name, "delete", schema=table.schema if is_widened else None)
        keys = table.scan(columns=list(table.primary_key), filter=self.filter)
        tx.attach(gone, [gone.run(keys)])
