"""Unordered bases: those that lack ordered runs though their keys need some (ADR 103).

So is a base that was loaded into an empty table: its keys are not sorted in the commit, but by the
first merge, or a merge for just that.
"""

from __future__ import annotations

from siltstone.engine.catalog import catalog as catalogs
from siltstone.engine.catalog.table_schema import table_schema_of
from siltstone.formats.manifest import KeyedStorage, Pin, Record, TableDefinition

ORDERED_ROWS_MIN = 200_000
"""Of fewer rows a pass over all keys takes milliseconds, and no merge is begun for them alone."""


def lacks_order(table: TableDefinition, storage: KeyedStorage) -> bool:
    """Say whether a base has rows, and no ordered run though its keys need some."""
    if not _may_lack(storage.base):
        return False
    return not table_schema_of(catalogs.schema_by_id(table, storage.base_schema)).codec.exact


def unordered(record: Record) -> frozenset[int]:
    """Return the incarnations of the tables that a merge should give an order."""
    large = [
        storage
        for storage in record.keyed
        if storage.base is not None
        and storage.base.rows >= ORDERED_ROWS_MIN
        and _may_lack(storage.base)
    ]
    alive = (table for table in record.catalog.tables if large and catalogs.is_alive(table))
    tables = {catalogs.incarnation_of(table).id: table for table in alive}
    return frozenset(
        storage.incarnation
        for storage in large
        if storage.incarnation in tables and lacks_order(tables[storage.incarnation], storage)
    )


def _may_lack(base: Pin | None) -> bool:
    return base is not None and base.rows > 0 and not any(run.is_ordered for run in base.runs)
