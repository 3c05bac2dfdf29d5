"""Siltstone: a transactional, multi-table store for Python and Spark over open Lance tables."""

from siltstone.engine.transaction import Transaction
from siltstone.engine.write_set import Receipt
from siltstone.errors import (
    BusyError,
    ClosedError,
    ConflictError,
    CorruptionError,
    DuplicateKeyError,
    FencedError,
    InDoubtError,
    InvariantError,
    OwnedError,
    PoisonedError,
    ReadOnlyError,
    RequestError,
    SchemaMismatchError,
    SiltstoneError,
    SnapshotExpiredError,
    TableExistsError,
    TableNotFoundError,
    UnavailableError,
    UnsupportedFormatError,
)
from siltstone.handles import Snapshot, SnapshotTable, Table
from siltstone.maintenance.merge import Deferred, Merged
from siltstone.store import Store, connect

__all__ = [
    "BusyError",
    "ClosedError",
    "ConflictError",
    "CorruptionError",
    "Deferred",
    "DuplicateKeyError",
    "FencedError",
    "InDoubtError",
    "InvariantError",
    "Merged",
    "OwnedError",
    "PoisonedError",
    "ReadOnlyError",
    "Receipt",
    "RequestError",
    "SchemaMismatchError",
    "SiltstoneError",
    "Snapshot",
    "SnapshotExpiredError",
    "SnapshotTable",
    "Store",
    "Table",
    "TableExistsError",
    "TableNotFoundError",
    "Transaction",
    "UnavailableError",
    "UnsupportedFormatError",
    "connect",
]
