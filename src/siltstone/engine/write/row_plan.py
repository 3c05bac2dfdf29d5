"""Row plan: how one row of a keyed table becomes a write set, found once for each catalog.

What a commit of one row must know of its table never changes while the catalog is the same value:
then admission has nothing left to check but the row.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from siltstone.engine.catalog import catalog as catalogs
from siltstone.engine.catalog.table_schema import TableSchema
from siltstone.engine.commit.recent_writes import Keys
from siltstone.engine.commit.write_set import BLIND, ROW_BYTES, SIZED, FewRows, RowPart, WriteSet
from siltstone.formats.keys import Key
from siltstone.formats.log.group import RowsEntry
from siltstone.formats.manifest import Catalog, TableDefinition
from siltstone.formats.rows import Row


class RowPlan(msgspec.Struct, frozen=True):
    """See the module. It holds no view: that would keep its files from vacuum."""

    catalog: Catalog
    table: int
    incarnation: int
    table_schema: TableSchema
    encode: Callable[[Mapping[str, object]], Row]
    encode_lacking: Callable[[Mapping[str, object]], Row]
    key_of: Callable[[Row], Key]
    code: Callable[[Key], int]

    def upsert(
        self, given: Mapping[str, object], number: int, *, is_whole: bool = True
    ) -> WriteSet:
        """Return the write set of one row that replaces another, or is new.

        `is_whole`: a row that lacks a column is refused; else it has null there.

        Raises:
            SchemaMismatchError: A column or value does not fit.
        """
        row = self.encode(given) if is_whole else self.encode_lacking(given)
        nbytes = ROW_BYTES
        for value in row:
            if type(value) in SIZED:
                nbytes += len(value)  # type: ignore[arg-type]
        incarnation, upserts, keys = self.incarnation, [row], [self.key_of(row)]
        part = RowPart(self.table, incarnation, self.table_schema, upserts, keys, [])
        few = FewRows(
            ((incarnation, Keys(keys), self.code),),
            [RowsEntry(incarnation, self.table_schema.id, upserts, [])],
        )
        return WriteSet(
            number, BLIND, (part,), rows=1, nbytes=nbytes, planned=self.catalog, few=few
        )


def row_plan(
    catalog: Catalog, definition: TableDefinition, table_schema: TableSchema
) -> RowPlan | None:
    """Return the plan for a table; None if its rows do not travel as tuples, or have no key."""
    if table_schema.keys is None or not table_schema.rows.is_packable:
        return None
    incarnation = catalogs.incarnation_of(definition).id
    rows, keys = table_schema.rows, table_schema.keys
    return RowPlan(
        catalog, definition.id, incarnation, table_schema,
        rows.whole, rows.from_user, keys.key_of, keys.code,
    )  # fmt: skip
