"""Tables: what Spark's catalog learns of the tables of a pinned store, and how a scan is cut.

The table `t` in the namespace `a.b` is the store's table `a.b.t`.
"""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from siltstone.errors import TableNotFoundError
from siltstone.local.snapshot import LocalSnapshot
from siltstone.spark.context import schemas
from siltstone.spark.context.application import APPLICATION, Read, of_process, store_of
from siltstone.spark.context.defaults import with_defaults
from siltstone.spark.context.descriptions import name_of_read
from siltstone.spark.context.options import task_rows_of
from siltstone.spark.daemon.messages import AskFilters, PlanScan
from siltstone.spark.daemon.predicates import sql_of
from siltstone.spark.reads.partitions import Cut, Partition, row_bytes
from siltstone.spark.reads.task_rows import Told

LIMIT_TASK_ROWS = 1 << 20
_NO_COLUMN_BYTES = row_bytes(pa.schema([]))


def names_in(
    snapshot: LocalSnapshot, namespace: Sequence[str]
) -> tuple[list[str], list[str], bool]:
    """Return the tables and the namespaces that lie directly in a namespace; whether it exists."""
    prefix = "".join(f"{level}." for level in namespace)
    tables = [name for name in snapshot.tables() if name.startswith(prefix)]
    spaces = [name for name in snapshot.namespaces() if name.startswith(prefix)]
    below = {each[len(prefix) :].split(".")[0] for each in tables if "." in each[len(prefix) :]}
    below |= {each[len(prefix) :].split(".")[0] for each in spaces}
    is_there = bool(not namespace or tables or spaces or prefix[:-1] in snapshot.namespaces())
    here = sorted(each[len(prefix) :] for each in tables if "." not in each[len(prefix) :])
    return here, sorted(below), is_there


def describe(snapshot: LocalSnapshot, name: str) -> dict[str, object]:
    """Return the columns and the properties of a table; `missing` if there is none.

    `widths` are the bytes that Spark should assume of each column, `width` those of a row without.

    Raises:
        SchemaMismatchError: Spark has no type for a column.
    """
    try:
        table: Any = snapshot[name]
    except TableNotFoundError:
        return {"missing": True}
    widths = [row_bytes(pa.schema([field])) - _NO_COLUMN_BYTES for field in table.schema]
    return {
        "id": table.id,
        "schema": with_defaults(schemas.to_spark(table.schema), table.schema).json(),
        "key": table.primary_key,
        "width": _NO_COLUMN_BYTES,
        "widths": widths,
        "properties": {
            "provider": "siltstone",
            "primaryKey": ",".join(table.primary_key),
            "seq": str(snapshot.seq),
        },
    }


def measure(snapshot: LocalSnapshot, name: str, newest: int) -> dict[str, object]:
    """Return the number of rows of a table, and what Spark's pages call a read of it.

    It looks up what is hidden. `newest`: the newest seq of the store.
    """
    columns = [_narrowest(snapshot[name].schema)]
    tasks = list(snapshot.scan_tasks(name, columns, rows_max=LIMIT_TASK_ROWS))
    return {"said": name_of_read(snapshot, name, tasks, newest), "rows": snapshot[name].count()}


def answered(snapshot: LocalSnapshot, asked: AskFilters) -> dict[str, object]:
    """Return the SQL of each predicate that the store answers; None leaves one to Spark."""
    schema = snapshot[asked.table].schema
    return {"sql": [sql_of(each, schema) for each in asked.predicates]}


def told(snapshot: LocalSnapshot, name: str, application: str) -> Told:
    """Return the record of a read; `application` is the folder of the driver."""
    root, store_id, _ = snapshot.place()
    read = Read(store_of(root, store_id), snapshot[name].id, name, snapshot.seq)
    return Told(read, of_process({APPLICATION: application}))


def cut(snapshot: LocalSnapshot, asked: PlanScan) -> tuple[list[int], list[bytes]]:
    """Return of each partition of a scan how many rows it has at most, and its tasks, pickled.

    With them goes the record of the read.

    Without a filter the numbers of rows are exact; together they are at most the limit.

    Raises:
        TableNotFoundError, RequestError: As `Snapshot.scan_tasks`.
    """
    schema = snapshot[asked.table].schema
    columns = asked.columns or [_narrowest(schema)]
    wanted = " AND ".join(asked.filters) or None
    if asked.limit is None or wanted is not None:
        rows_max = None if asked.task_rows is None else task_rows_of(asked.task_rows)
        cut_by = Cut(asked.parallelism, rows_max)
        found = cut_by.partitions(snapshot, asked.table, columns, wanted)
    else:
        found = _first(snapshot, asked.table, columns, asked.limit)
    read = told(snapshot, asked.table, asked.application)
    rows = [sum(task.rows for task in each) for each in found]
    return rows, [pickle.dumps((read, each)) for each in found]


def _first(
    snapshot: LocalSnapshot, table: str, columns: Sequence[str], limit: int
) -> list[Partition]:
    """Return partitions with `limit` rows, or all."""
    found: list[Partition] = []
    for task in snapshot.scan_tasks(table, list(columns), rows_max=LIMIT_TASK_ROWS):
        rows = min(limit, task.rows)
        if rows:
            found.append((task.between(0, rows),))
        limit -= rows
    return found


def _narrowest(schema: pa.Schema) -> str:
    """Return the column to read where Spark wants none, but the number of rows."""
    return min(schema, key=lambda field: row_bytes(pa.schema([field]))).name
