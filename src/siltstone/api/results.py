"""Results: the values that the calls of a store return, in one place."""

from siltstone.engine.commit.write_set import Receipt
from siltstone.engine.read.past import UNKNOWN, LogEntry
from siltstone.formats.backup import Backup
from siltstone.formats.manifest import Record
from siltstone.maintenance.backup.backup import BackedUp, Progress
from siltstone.maintenance.backup.restore import Restored
from siltstone.maintenance.compaction.compaction import Optimized
from siltstone.maintenance.gc.vacuum import Vacuumed
from siltstone.maintenance.index.index_plan import IndexStatus
from siltstone.maintenance.merge.merge import Deferred, Merged
from siltstone.maintenance.repair.external_appends import Adopted
from siltstone.maintenance.repair.repair_plan import Repaired
from siltstone.maintenance.repair.verify import Verified
from siltstone.maintenance.schedule.status import JobStatus, Status

__all__ = [
    "UNKNOWN",
    "Adopted",
    "BackedUp",
    "Backup",
    "Deferred",
    "IndexStatus",
    "JobStatus",
    "LogEntry",
    "Merged",
    "Optimized",
    "Progress",
    "Receipt",
    "Record",
    "Repaired",
    "Restored",
    "Status",
    "Vacuumed",
    "Verified",
]
