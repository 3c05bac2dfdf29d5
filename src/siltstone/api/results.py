"""Results: the values that the calls of a store return, in one place."""

from siltstone.engine.past import LogEntry
from siltstone.engine.write_set import Receipt
from siltstone.formats.backup import Backup
from siltstone.formats.manifest import Record
from siltstone.maintenance.backup import BackedUp, Progress
from siltstone.maintenance.compaction_job import Optimized
from siltstone.maintenance.drift import Adopted
from siltstone.maintenance.index_plan import IndexStatus
from siltstone.maintenance.merge import Deferred, Merged
from siltstone.maintenance.repair import Repaired
from siltstone.maintenance.restore import Restored
from siltstone.maintenance.status import JobStatus, Status
from siltstone.maintenance.vacuum import Vacuumed
from siltstone.maintenance.verify import Verified

__all__ = [
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
