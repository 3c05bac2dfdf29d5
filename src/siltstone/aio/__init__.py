"""Siltstone for asyncio: the names of `siltstone`, awaited. See docs/asyncio.md."""

from siltstone.aio.snapshot import AsyncSnapshot as Snapshot
from siltstone.aio.store import AsyncStore as Store
from siltstone.aio.store import connect
from siltstone.aio.streams import ChangeStream, RowStream
from siltstone.aio.tables import AsyncSnapshotTable as SnapshotTable
from siltstone.aio.tables import AsyncTable as Table
from siltstone.aio.tables import AsyncTransactionTable as TransactionTable
from siltstone.aio.transaction import AsyncTransaction as Transaction

__all__ = [
    "ChangeStream",
    "RowStream",
    "Snapshot",
    "SnapshotTable",
    "Store",
    "Table",
    "Transaction",
    "TransactionTable",
    "connect",
]
