"""Siltstone: a transactional, multi-table store for Python and Spark over open Lance tables."""

from importlib import import_module
from typing import TYPE_CHECKING

from siltstone.api import serving as _serving
from siltstone.errors import (
    AccessError,
    BusyError,
    ClosedError,
    ConflictError,
    CorruptionError,
    DuplicateKeyError,
    FencedError,
    InDoubtError,
    InvariantError,
    LanceRefusedError,
    LimitError,
    NotShippedError,
    OwnedError,
    PoisonedError,
    ReadOnlyError,
    ReplacedError,
    RequestError,
    SchemaMismatchError,
    SiltstoneError,
    SnapshotExpiredError,
    TableExistsError,
    TableNotFoundError,
    UnavailableError,
    UnsupportedFormatError,
)
from siltstone.open import closing as _closing

if TYPE_CHECKING:
    __version__: str

    from siltstone.admin import backups, repair, restore
    from siltstone.api.results import (
        BackedUp,
        Backup,
        Change,
        Checkpointed,
        Deferred,
        IndexStatus,
        Merged,
        Optimized,
        Receipt,
        Repaired,
        Restored,
        Status,
        Vacuumed,
        Verified,
    )
    from siltstone.api.snapshot import Snapshot
    from siltstone.api.store import Store
    from siltstone.api.tables import SnapshotTable, Table
    from siltstone.api.transaction import Transaction
    from siltstone.engine.write.stage_task import Staged, StageTask
    from siltstone.joined.store import JoinedStore
    from siltstone.query.scan.scan_task import ScanTask
    from siltstone.store import connect

_closing.register()  # now: exit hooks that a program registers from here on still find its stores


# The server is an extra, imported when it is asked for.
_serving.attach("serve_local", lambda: import_module("siltstone.server.rpc.server").LocalServer)
_serving.attach("serve", lambda: import_module("siltstone.server.rest.server").RestServer)

# Lance and Arrow take 0.7 s to import; the command line answers --help without them.
_LATE = {
    **dict.fromkeys(("SnapshotTable", "Table"), "siltstone.api.tables"),
    **dict.fromkeys(("StageTask", "Staged"), "siltstone.engine.write.stage_task"),
    **dict.fromkeys(("backups", "repair", "restore"), "siltstone.admin"),
    "JoinedStore": "siltstone.joined.store",
    "ScanTask": "siltstone.query.scan.scan_task",
    "Snapshot": "siltstone.api.snapshot",
    "Store": "siltstone.api.store",
    "Transaction": "siltstone.api.transaction",
    "connect": "siltstone.store",
}
"""Where they come from; all others are results."""


def __getattr__(name: str) -> object:
    """Import a public name when it is first asked for."""
    if name == "__version__":
        from importlib.metadata import version  # noqa: PLC0415 - it takes 30 ms

        return version("siltstone")
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home = _LATE.get(name, "siltstone.api.results")
    value = globals()[name] = getattr(import_module(home), name)
    return value


def __dir__() -> list[str]:
    """Return the public names, imported or not."""
    return sorted({*globals(), *__all__})


__all__ = [
    "AccessError",
    "BackedUp",
    "Backup",
    "BusyError",
    "Change",
    "Checkpointed",
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
    "LanceRefusedError",
    "LimitError",
    "Merged",
    "NotShippedError",
    "Optimized",
    "OwnedError",
    "PoisonedError",
    "ReadOnlyError",
    "Receipt",
    "Repaired",
    "ReplacedError",
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
