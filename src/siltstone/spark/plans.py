"""Plans: reads that the driver has planned itself, under a lease that it holds.

A process that plans for Spark opens the store itself, and can read only the retained past, not all
that a snapshot in the driver's process keeps. So a snapshot plans its own reads and leaves them in
a file on the driver's machine, where those processes run; the internal option `plan` names the
file.
"""

from __future__ import annotations

import os
import pickle
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from siltstone.api.tasks import ScanTask
from siltstone.errors import ClosedError
from siltstone.spark import application
from siltstone.spark.application import Read
from siltstone.spark.reader import ScanTaskReader, Told

PLAN = "plan"


@dataclass(frozen=True, slots=True)
class Plan:
    """The columns of a read, its tasks, and the read to record."""

    schema: StructType
    tasks: tuple[ScanTask, ...]
    read: Read

    def save(self, path: Path) -> None:
        """Write the plan to a file that only this user reads."""
        path.touch(mode=0o600, exist_ok=False)
        path.write_bytes(pickle.dumps(self))

    @classmethod
    def load(cls, path: str) -> Plan:
        """Return the plan at `path`.

        Raises:
            ClosedError: The snapshot is closed, its plans are deleted.
        """
        try:
            return pickle.loads(Path(path).read_bytes())  # noqa: S301 - `save` wrote it
        except FileNotFoundError:
            raise ClosedError("the snapshot of this frame is closed; open another one") from None


class PlannedReader(ScanTaskReader):
    """A plan as a reader of Spark's API."""

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan.schema, Told(plan.read, application.of_process(os.environ)))
        self._tasks = plan.tasks

    def partitions(self) -> Sequence[InputPartition]:
        """Return a partition for each scan task."""
        self._told.tell()
        return [InputPartition(task) for task in self._tasks]
