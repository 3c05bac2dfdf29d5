"""Listings: the tables, columns and commits of a store, as rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from siltstone.cli.output import Row

if TYPE_CHECKING:
    from siltstone.api.snapshot import Snapshot
    from siltstone.api.store import Store
    from siltstone.api.transaction import Transaction

TABLE_FACTS = ("table", "primary_key", "columns", "rows")
COLUMN_FACTS = ("column", "type", "nullable", "key")
COMMIT_FACTS = ("seq", "time", "transaction", "tables", "rows", "token", "changes")


def tables_of(read: Snapshot | Transaction) -> list[Row]:
    """Return the `TABLE_FACTS` of all tables."""
    found = [read[name] for name in read.tables()]
    return [(t.name, ",".join(t.primary_key), len(t.schema), t.count()) for t in found]


def columns_in(read: Snapshot | Transaction, table: str) -> list[Row]:
    """Return the `COLUMN_FACTS` of a table.

    Raises:
        TableNotFoundError: There is none of that name.
    """
    found = read[table]
    key = found.primary_key
    return [
        (f.name, str(f.type), f.nullable, key.index(f.name) + 1 if f.name in key else None)
        for f in found.schema
    ]


def commits_of(store: Store, limit: int) -> list[Row]:
    """Return the `COMMIT_FACTS` of the newest commits, at most `limit`."""
    return [
        (
            *(e.seq, e.time, e.transaction, ",".join(e.tables), e.rows),
            *(e.token and ":".join(map(str, e.token)), "; ".join(e.changes)),
        )
        for e in store.log(limit)
    ]
