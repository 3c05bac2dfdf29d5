"""Siltstone for asyncio: the names of `siltstone`, awaited. See docs/asyncio.md."""

from siltstone.aio.snapshot import Snapshot
from siltstone.aio.store import Store, connect
from siltstone.aio.streams import ChangeStream, RowStream
from siltstone.aio.tables import SnapshotTable, Table, TransactionTable
from siltstone.aio.transaction import Transaction

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
