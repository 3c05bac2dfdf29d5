"""One store that has the same ten rows in every level, and in tables with a changed schema."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa

import siltstone as st
from tests.query.filter_cases import UNTAKEN, VALUES, rows

ADDED = pa.field("added", pa.int64())
KEYED = ("active", "flushed", "base", "mixed", "altered", "indexed")
PLAIN = ("plain", "plain_altered")
# Beside a column of these types Lance takes nothing as Substrait, so two tables alone have them.
APART = ("t_us", "vec")
TIMED = ("timed", "plain_timed")
TABLES = (*KEYED, *PLAIN, *TIMED)
INDEXED = [
    name for name in VALUES if not name.startswith(("ts_ms", "t_us"))
]  # a table has 32 at most
RENAMED = ("u8", "i64", "s", "ls", "ts_us", "dec")
# Below 16,384 rows of base no index is asked; these match nothing but IS NULL.
FILLER_IDS = range(1_000, 1_000 + 16_384)


def expected(table: str = "") -> pa.Table:
    """Return the rows of a table."""
    found = rows() if table in TIMED else rows().drop_columns([*APART])
    found = found.append_column(ADDED, pa.nulls(found.num_rows, ADDED.type))
    if table != "indexed":
        return found
    filler = pa.table({"id": pa.array(FILLER_IDS, pa.int64())})
    return pa.concat_tables([found, filler], promote_options="default").combine_chunks()


@contextmanager
def opened(path: Path) -> Iterator[st.Store]:
    with st.connect(path, background=False) as db:
        _make_merged(db)
        db.checkpoint()
        db.merge()
        _change(db)
        _make(db, "flushed", expected())
        db.checkpoint()
        _make(db, "active", expected())
        yield db


def _make(db: st.Store, name: str, table: pa.Table, key: str | None = "id") -> None:
    made = db.create_table(name, table.schema, primary_key=key)
    (made.upsert if key else made.append)(table)


def _old(table: pa.Table) -> pa.Table:
    """Return the rows as they were before columns were renamed, added and dropped."""
    names = {name: f"old_{name}" for name in RENAMED}
    found = table.drop_columns([ADDED.name])
    found = found.rename_columns([names.get(name, name) for name in found.column_names])
    for name, kind in UNTAKEN.items():
        found = found.add_column(1, pa.field(name, kind), pa.nulls(found.num_rows, kind))
    return found


def _make_merged(db: st.Store) -> None:
    table = expected()
    _make(db, "base", table)
    shuffled = table.drop_columns(["id"]).take(pa.array([*range(5, 10), *range(5)]))
    stale = shuffled.add_column(0, "id", table["id"])
    _make(
        db,
        "mixed",
        pa.concat_tables(
            [stale, stale.slice(0, 1).set_column(0, "id", pa.array([77], pa.int64()))]
        ),
    )
    _make(db, "altered", _old(table))
    _make(db, "plain", table, None)
    _make(db, "plain_altered", _old(table), None)
    for name in ("indexed", "timed"):
        _make(db, name, expected(name))
    _make(db, "plain_timed", expected("plain_timed"), None)


def _change(db: st.Store) -> None:
    table = expected()
    db["mixed"].upsert(table.slice(0, 8))
    db["mixed"].upsert(table.slice(8))
    db["mixed"].delete([77])
    for name in ("altered", "plain_altered"):
        for dropped in UNTAKEN:
            db[name].drop_column(dropped)
        for renamed in RENAMED:
            db[name].rename_column(f"old_{renamed}", renamed)
        db[name].add_column(ADDED.name, ADDED.type)
    for name in INDEXED:
        db["indexed"].create_index(name, "bitmap" if name == "b" else "btree", build=False)
    db.optimize("indexed")
