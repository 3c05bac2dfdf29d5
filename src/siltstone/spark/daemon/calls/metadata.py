"""Metadata: what a store knows of its tables and of itself, as tables that are only read.

    <table>.history   the commits that wrote or changed the table, as `siltstone log` shows them
    <table>.files     the data files that a read of the table reads
    <table>.indexes   its indexes, as `siltstone index ls` shows them
    system.log        the newest commits of the store
    system.tags       its tags

A table of the store that has such a name is what a statement finds. History and files are those of
the statement's seq; indexes and tags are those of now, as the store keeps no past of them. So none
of these tables is read at a version.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import pyarrow as pa

from siltstone.api.store import Store
from siltstone.errors import RequestError
from siltstone.local.snapshot import LocalSnapshot
from siltstone.spark.context.kept_stores import kept

SYSTEM = "system"
COMMITS_MAX = 10_000
"""How many of the newest commits of the store are looked at for a log or a history."""
FILES_MAX = 100_000

_COMMITS = pa.schema(
    {
        "seq": pa.int64(),
        "time": pa.timestamp("us", "UTC"),
        "transaction": pa.string(),
        "tables": pa.list_(pa.string()),
        "rows": pa.int64(),
        "token": pa.string(),
        "changes": pa.list_(pa.string()),
    }
)
_FILES = pa.schema(
    {"path": pa.string(), "level": pa.string(), "rows": pa.int64(), "bytes": pa.int64()}
)
_INDEXES = pa.schema(
    {
        "index": pa.string(),
        "column": pa.string(),
        "kind": pa.string(),
        "options": pa.string(),
        "segments": pa.int64(),
        "bytes": pa.int64(),
        "indexed_rows": pa.int64(),
        "lagging_rows": pa.int64(),
        "encoding": pa.string(),
        "recall": pa.float64(),
    }
)
_TAGS = pa.schema({"tag": pa.string(), "seq": pa.int64()})

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class MetadataTable:
    """A kind of metadata: its columns, and its rows of a snapshot, for a table (or for none)."""

    schema: pa.Schema
    rows: Callable[[LocalSnapshot, str], Sequence[Row]]


def _commits(snapshot: LocalSnapshot, table: str | None = None) -> list[Row]:
    return [
        {**asdict(entry), "token": None if entry.token is None else ":".join(map(str, entry.token))}
        for entry in snapshot.log(COMMITS_MAX, table)
    ]


def _files(snapshot: LocalSnapshot, table: str) -> list[Row]:
    found = snapshot.stored_files(snapshot[table].definition)
    if len(found) > FILES_MAX:
        raise RequestError(
            f"{table}.files has {len(found)} rows, more than {FILES_MAX}: optimize the table"
        )
    return [
        {"path": file.path, "level": file.level, "rows": file.rows, "bytes": file.nbytes}
        for file in found
    ]


def _indexes(snapshot: LocalSnapshot, table: str) -> list[Row]:
    root, _, _ = snapshot.place()
    with kept(root) as store:
        found = store.table(snapshot[table].id).indexes()
    return [
        {
            **asdict(each),
            "index": each.name,
            "options": json.dumps(each.options),
            "bytes": each.nbytes,
        }
        for each in found
    ]


def _tags(snapshot: LocalSnapshot, _: str) -> list[Row]:
    return [{"tag": name, "seq": seq} for name, seq in sorted(snapshot.tags().items())]


OF_TABLES: Mapping[str, MetadataTable] = {
    "history": MetadataTable(_COMMITS, _commits),
    "files": MetadataTable(_FILES, _files),
    "indexes": MetadataTable(_INDEXES, _indexes),
}
OF_STORE: Mapping[str, MetadataTable] = {
    "log": MetadataTable(_COMMITS, lambda snapshot, _: _commits(snapshot)),
    "tags": MetadataTable(_TAGS, _tags),
}


def find(tables: Sequence[str], name: str) -> tuple[MetadataTable, str] | None:
    """Return the metadata table with a name, and the table it is of; `tables`: the store's own.

    None: it is a table of the store, or nothing.
    """
    of, _, kind = name.rpartition(".")
    if name in tables:
        return None
    if of in tables and kind in OF_TABLES:
        return OF_TABLES[kind], of
    return (OF_STORE[kind], of) if of == SYSTEM and kind in OF_STORE else None


def read(snapshot: LocalSnapshot, name: str, *, is_past: bool, with_rows: bool) -> pa.Table | None:
    """Return a metadata table, with its rows or only its columns; None: no such name.

    Raises:
        RequestError: The past of one is asked for; or it has more than `FILES_MAX` rows.
    """
    found = find(snapshot.tables(), name)
    if found is None:
        return None
    if is_past:
        raise RequestError(
            f"{name} is metadata of now, and has no versions; a history and a log have each seq"
        )
    table, of = found
    rows = table.rows(snapshot, of) if with_rows else ()
    return pa.Table.from_pylist(list(rows), table.schema)


def refuse_change(db: Store, name: str) -> None:
    """Refuse a statement that makes, changes or drops a metadata table.

    Raises:
        RequestError: The name is that of one.
    """
    if find(db.tables(), name) is not None:
        raise RequestError(f"{name} is metadata of the store: it is only read")
