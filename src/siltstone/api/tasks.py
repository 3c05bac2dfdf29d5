"""Tasks: parts of a scan, a change feed or a bulk commit that any process can do; all pickle."""

from siltstone.engine.write.stage_task import ATTACHED, Staged, StageTask
from siltstone.query.changes.change_task import ChangeTask
from siltstone.query.scan.scan_task import ScanTask

__all__ = ["ATTACHED", "ChangeTask", "ScanTask", "StageTask", "Staged"]
