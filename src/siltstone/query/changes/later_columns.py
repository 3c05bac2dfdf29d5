"""Later columns: the changes of a range in the columns that the name has at a later seq.

    the same table    columns go by id: renamed ones follow, those that came later have their
                      initial value, else null, those that are gone by then are left out
    another table     columns go by name, and what the other lacks is null; the keys must be equal

A follower that is behind reads all its batches in the columns of one seq. The plan stays as it is:
of its finished tasks only the columns that they show are others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa

from siltstone.engine.catalog.table_schema import TableSchema
from siltstone.errors import SchemaMismatchError
from siltstone.formats.types.defaults import plain_of
from siltstone.query.changes.change_feed import Feeds, feed_fields, key_types
from siltstone.query.changes.change_task import ChangeTask


def in_columns_of(
    feeds: Feeds, name: str, tasks: Sequence[ChangeTask], until: int, columns_at: int
) -> list[ChangeTask]:
    """Return the tasks of a plan that ends at `until` in the columns of the name at `columns_at`.

    Raises:
        SchemaMismatchError: Another table has the name then, with another key or with a column of
            another type; the message names both.
        TableNotFoundError, RequestError: No keyed table has the name at `columns_at`.
    """
    if not tasks:
        return []
    table, planned = feeds.keyed(name, until)
    later, wanted = feeds.keyed(name, columns_at)
    if table.id == later.id:
        names = tuple(planned.names.get(column.id) for column in wanted.schema.columns)
    else:
        _require_alike(name, until, planned, columns_at, wanted)
        names = tuple(n if n in planned.ids else None for n in wanted.arrow.names)
    at = [None if name is None else planned.arrow.names.index(name) for name in names]
    fields = feed_fields(wanted)
    if table.id != later.id:
        fields = plain_of(fields)
    stored = [tuple(None if n is None else task.stored[n] for n in at) for task in tasks]
    pairs = zip(tasks, stored, strict=True)
    return [replace(task, fields=fields, stored=each) for task, each in pairs]


def _require_alike(
    name: str, until: int, planned: TableSchema, columns_at: int, wanted: TableSchema
) -> None:
    changes = f"changes of {name!r} until seq {until}: at seq {columns_at} another table has the"
    again = "empty the copy and read the changes since seq 0"
    if key_types(planned) != key_types(wanted):
        raise SchemaMismatchError(
            f"{changes} name, with the key {key_types(wanted)}, not {key_types(planned)}; {again}"
        )
    for field in wanted.arrow:
        if field.name in planned.ids and not _type_of(planned, field.name).equals(field.type):
            raise SchemaMismatchError(
                f"{changes} name, with the column {field.name!r} of type {field.type}, not"
                f" {_type_of(planned, field.name)}; {again}"
            )


def _type_of(table_schema: TableSchema, name: str) -> pa.DataType:
    return table_schema.arrow.field(name).type
