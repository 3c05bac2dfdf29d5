"""many: statements of SQL that write a part of a large table, beside methods, DuckDB and Delta.

A tenth of the rows is deleted in a transaction that commits, by `delete_where`, by a DELETE whose
WHERE is a filter, and by one of which DuckDB finds the rows; they are written again between. The
MERGE has rows of which half are in the table, all over it. DuckDB has a file with a primary key and
as many threads, Delta a directory: each does what it does by itself to make the change durable.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa

import siltstone as st
from bench.measure import timed
from bench.workload import Metrics, Place

_COLUMNS = {"id": "int64", "g": "int64", "price": "float64"}
_ROWS, _MERGED, _TENTHS, _THREADS = 10_000_000, 100_000, 10, 2
_MERGE = (
    "merge into t using given as s on t.id = s.id"
    " when matched then update set price = s.price"
    " when not matched then insert (id, g, price) values (s.id, s.g, s.price)"
)


class WrittenMany:
    name = "many"
    title = "statements of SQL that write many rows of a large table"

    def prepare(self, peer: Place) -> None:
        rows = _rows(np.arange(peer.sizes.rows(_ROWS, 100_000)))
        with st.connect(peer.path, background=False) as db:
            db.create_table("t", _COLUMNS, primary_key="id").upsert(rows)
            db.checkpoint()
            db.merge()
        with duckdb.connect(str(_beside(peer, "duckdb"))) as native:
            native.execute("create table t (id bigint primary key, g bigint, price double)")
            native.execute("insert into t from rows")
        from deltalake import write_deltalake

        shutil.rmtree(_beside(peer, "delta"), ignore_errors=True)
        write_deltalake(_beside(peer, "delta"), rows)

    def measure(self, peer: Place, turn: int) -> Metrics:
        rows = peer.sizes.rows(_ROWS, 100_000)
        given = _merged(rows, peer.sizes.rows(_MERGED), turn)
        with st.connect(peer.path, background=False, sql_threads_max=_THREADS) as db:
            db.sql("merge into t using (select 0 as id) s using (id) when matched then do nothing")
            found = _deletes(db, rows)
            found["merge s"] = timed(lambda: _merge(db, given))
        with duckdb.connect(str(_beside(peer, "duckdb")), config={"threads": _THREADS}) as native:
            native.register("given", given)
            duck = timed(lambda: native.execute(_MERGE))
        delta = timed(lambda: _merge_delta(_beside(peer, "delta"), given))
        return found | {
            "merge, DuckDB s": duck,
            "merge, Delta s": delta,
            "merge: x DuckDB": found["merge s"] / duck,
            "merge: x Delta": found["merge s"] / delta,
        }


def _deletes(db: st.Store, rows: int) -> Metrics:
    """Return the seconds of deletes of a tenth of the rows, which are there again behind each."""
    table, tenth = db["t"], _rows(np.arange(0, rows, _TENTHS))
    calls = {
        "the first": lambda: table.delete_where("g = 0"),  # it reads what the others have in memory
        "delete_where": lambda: table.delete_where("g = 0"),
        "a filter": lambda: db.sql("delete from t where g = 0").rows,
        "through DuckDB": lambda: db.sql("delete from t where g + 0 = 0").rows,
    }
    found: Metrics = {}
    for label, call in calls.items():
        found[f"{label} s"] = timed(call)
        assert table.count() == table.count("g > 0")
        table.upsert(tenth)
        db.checkpoint()
        db.merge()
    ways = ("a filter", "through DuckDB")
    for label in ways:
        found[f"{label}: x delete_where"] = found[f"{label} s"] / found["delete_where s"]
    found["delete: x delete_where"] = max(found[f"{label}: x delete_where"] for label in ways)
    return found


def _merge(db: st.Store, given: pa.Table) -> None:
    assert given.num_rows == db.sql(_MERGE).rows


def _merge_delta(path: Path, given: pa.Table) -> None:
    from deltalake import DeltaTable

    merge = DeltaTable(path).merge(given, "t.id = s.id", source_alias="s", target_alias="t")
    merge.when_matched_update({"price": "s.price"}).when_not_matched_insert_all().execute()


def _rows(ids: np.ndarray) -> pa.Table:
    """Return rows with these keys, of which each tenth one has `g` 0."""
    columns = [pa.array(ids), pa.array(ids % _TENTHS), pa.array(ids / 8)]
    return pa.table(columns, names=list(_COLUMNS))


def _merged(rows: int, size: int, turn: int) -> pa.Table:
    """Return rows of which half are in the table, and the others, of no tenth, are not."""
    random, half = np.random.default_rng(turn), size // 2
    there = np.sort(random.choice(rows, half, replace=False))
    new = rows + _TENTHS * (np.arange(half) + half * turn) + 1
    return _rows(np.concatenate([there, new]))


def _beside(peer: Place, kind: str) -> Path:
    return peer.path.with_name(f"{peer.path.name}.{kind}")
