"""Partitions: the scan tasks of a read, put together as the tasks of Spark.

    rows of a partition    as many as make one partition for each task that Spark can run at once,
                           but at least `BYTES_MIN` and at most `BYTES_MAX` bytes of them
    parallelism            Spark's default; in a Python process that plans a query for Spark, which
                           does not know it, the number of the machine's cores

A large file is several tasks, and small files and the rows of the log are one together.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from siltstone.api.snapshot import Snapshot
from siltstone.api.tasks import ScanTask

BYTES_MIN, BYTES_MAX = 4 << 20, 128 << 20
_VARIABLE_BYTES = 20
"""What a text, or a list, takes as Spark estimates it."""
_BINARY_BYTES = 100

Partition = tuple[ScanTask, ...]


@dataclass(frozen=True, slots=True)
class Cut:
    """How reads are cut: for how many tasks at once; a caller's own bound of rows in a task."""

    parallelism: int
    rows_max: int | None = None

    def partitions(
        self,
        snapshot: Snapshot,
        table: str,
        columns: Sequence[str],
        filter: str | None,  # noqa: A002 - the contract's name
    ) -> list[Partition]:
        """Return the tasks of a read of a table; none if it is empty.

        Raises:
            TableNotFoundError, RequestError: As `Snapshot.scan_tasks`.
        """
        source = snapshot[table]
        stored = pa.schema([source.schema.field(name) for name in columns])
        rows = self.rows_max
        if rows is None:
            rows = self._rows(source.count(), row_bytes(stored))
        tasks = snapshot.scan_tasks(table, columns, filter, rows_max=rows)
        return list(_together(list(tasks), rows))

    def _rows(self, rows: int, width: int) -> int:
        share = -(-rows // self.parallelism)
        return max(1, min(max(share, BYTES_MIN // width), BYTES_MAX // width))


def row_bytes(schema: pa.Schema) -> int:
    """Return about how many bytes a row has in Spark, as Spark estimates it: 8, and its columns."""
    return 8 + sum(_bytes(field.type) for field in schema)


def _together(tasks: Sequence[ScanTask], rows_max: int) -> Iterator[Partition]:
    together: list[ScanTask] = []
    rows = 0
    for task in tasks:
        if together and rows + task.rows > rows_max:
            yield tuple(together)
            together, rows = [], 0
        together.append(task)
        rows += task.rows
    if together:
        yield tuple(together)


def _bytes(given: pa.DataType) -> int:
    kind: Any = given.storage_type if isinstance(given, pa.BaseExtensionType) else given
    if pa.types.is_struct(kind):
        return sum(_bytes(field.type) for field in kind)
    if pa.types.is_fixed_size_list(kind):
        return kind.list_size * _bytes(kind.value_type)
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return _BINARY_BYTES
    try:
        return max(1, kind.bit_width // 8)
    except ValueError:  # a text, a list, a map
        return _VARIABLE_BYTES
