"""Results: the values that the calls of a store return, in one place.

Those that no open store needs are imported when they are asked for.
"""

from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING

from siltstone.engine.commit.write_set import Receipt
from siltstone.engine.read.past import UNKNOWN, LogEntry
from siltstone.formats.backup import Backup
from siltstone.formats.manifest import TokenApp
from siltstone.maintenance.compaction.compaction import Optimized
from siltstone.maintenance.gc.vacuum import Vacuumed
from siltstone.maintenance.index.index_plan import IndexStatus
from siltstone.maintenance.merge.merge import Deferred, Merged

if TYPE_CHECKING:
    from siltstone.maintenance.backup.backup import BackedUp, Progress
    from siltstone.maintenance.backup.restore import Restored
    from siltstone.maintenance.repair.external_appends import Adopted
    from siltstone.maintenance.repair.repair_plan import Repaired
    from siltstone.maintenance.repair.verify import Verified
    from siltstone.maintenance.schedule.status import JobStatus, Status
    from siltstone.query.changes.followed import Change, commits_of
    from siltstone.query.diff.diff import Diff, TableDiff

_LATE = {
    "Adopted": "siltstone.maintenance.repair.external_appends",
    **dict.fromkeys(("BackedUp", "Progress"), "siltstone.maintenance.backup.backup"),
    **dict.fromkeys(("Change", "commits_of"), "siltstone.query.changes.followed"),
    **dict.fromkeys(("Diff", "TableDiff"), "siltstone.query.diff.diff"),
    **dict.fromkeys(("JobStatus", "Status"), "siltstone.maintenance.schedule.status"),
    "Repaired": "siltstone.maintenance.repair.repair_plan",
    "Restored": "siltstone.maintenance.backup.restore",
    "Verified": "siltstone.maintenance.repair.verify",
}


@dataclass(frozen=True, slots=True)
class Checkpointed:
    """A checkpoint: the `number` of its record, and the seq up to which Lance has all commits.

    Examples:
        >>> db.checkpoint().flushed_seq == db.seq
        True
    """

    number: int
    flushed_seq: int


def __getattr__(name: str) -> object:
    """Import a result when it is first asked for."""
    home = _LATE.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(home), name)
    return value


__all__ = [
    "UNKNOWN",
    "Adopted",
    "BackedUp",
    "Backup",
    "Change",
    "Checkpointed",
    "Deferred",
    "Diff",
    "IndexStatus",
    "JobStatus",
    "LogEntry",
    "Merged",
    "Optimized",
    "Progress",
    "Receipt",
    "Repaired",
    "Restored",
    "Status",
    "TableDiff",
    "TokenApp",
    "Vacuumed",
    "Verified",
    "commits_of",
]
