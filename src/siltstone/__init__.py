"""Siltstone: a transactional, multi-table store for Python and Spark over open Lance tables."""

from importlib import import_module
from typing import TYPE_CHECKING

from siltstone import closing as _closing
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

if TYPE_CHECKING:
    from siltstone.admin import backups, repair, restore
    from siltstone.engine.commit.write_set import Receipt
    from siltstone.engine.write.stage_task import Staged, StageTask
    from siltstone.engine.write.transaction import Transaction
    from siltstone.formats.backup import Backup
    from siltstone.handles import Snapshot, SnapshotTable, Table
    from siltstone.joined.store import JoinedStore
    from siltstone.maintenance.backup.backup import BackedUp
    from siltstone.maintenance.backup.restore import Restored
    from siltstone.maintenance.compaction.compaction_job import Optimized
    from siltstone.maintenance.gc.vacuum import Vacuumed
    from siltstone.maintenance.index.index_plan import IndexStatus
    from siltstone.maintenance.merge.merge import Deferred, Merged
    from siltstone.maintenance.repair.repair_plan import Repaired
    from siltstone.maintenance.repair.verify import Verified
    from siltstone.maintenance.schedule.status import Status
    from siltstone.query.scan.scan_task import ScanTask
    from siltstone.store import Store, connect

_closing.register()  # now: exit hooks that a program registers from here on still find its stores

# Lance and Arrow take 0.7 s to import; the command line answers --help without them.
_LATE = {
    "BackedUp": "siltstone.maintenance.backup.backup",
    "Backup": "siltstone.formats.backup",
    "Deferred": "siltstone.maintenance.merge.merge",
    "IndexStatus": "siltstone.maintenance.index.index_plan",
    "JoinedStore": "siltstone.joined.store",
    "Merged": "siltstone.maintenance.merge.merge",
    "Optimized": "siltstone.maintenance.compaction.compaction_job",
    "Receipt": "siltstone.engine.commit.write_set",
    "Repaired": "siltstone.maintenance.repair.repair_plan",
    "Restored": "siltstone.maintenance.backup.restore",
    "ScanTask": "siltstone.query.scan.scan_task",
    "StageTask": "siltstone.engine.write.stage_task",
    "Staged": "siltstone.engine.write.stage_task",
    "Snapshot": "siltstone.handles",
    "SnapshotTable": "siltstone.handles",
    "Status": "siltstone.maintenance.schedule.status",
    "Store": "siltstone.store",
    "Table": "siltstone.handles",
    "Transaction": "siltstone.engine.write.transaction",
    "Vacuumed": "siltstone.maintenance.gc.vacuum",
    "Verified": "siltstone.maintenance.repair.verify",
    "backups": "siltstone.admin",
    "connect": "siltstone.store",
    "repair": "siltstone.admin",
    "restore": "siltstone.admin",
}


def __getattr__(name: str) -> object:
    """Import a public name when it is first asked for."""
    home = _LATE.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(home), name)
    return value


def __dir__() -> list[str]:
    """Return the public names, imported or not."""
    return sorted({*globals(), *__all__})


__all__ = [
    "BackedUp",
    "Backup",
    "BusyError",
    "ClosedError",
    "ConflictError",
    "CorruptionError",
    "Deferred",
    "DuplicateKeyError",
    "FencedError",
    "InDoubtError",
    "IndexStatus",
    "InvariantError",
    "JoinedStore",
    "Merged",
    "Optimized",
    "OwnedError",
    "PoisonedError",
    "ReadOnlyError",
    "Receipt",
    "Repaired",
    "RequestError",
    "Restored",
    "ScanTask",
    "SchemaMismatchError",
    "SiltstoneError",
    "Snapshot",
    "SnapshotExpiredError",
    "SnapshotTable",
    "StageTask",
    "Staged",
    "Status",
    "Store",
    "Table",
    "TableExistsError",
    "TableNotFoundError",
    "Transaction",
    "UnavailableError",
    "UnsupportedFormatError",
    "Vacuumed",
    "Verified",
    "backups",
    "connect",
    "repair",
    "restore",
]
