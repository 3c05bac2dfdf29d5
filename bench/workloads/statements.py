"""sql: statements over a small table, and four over 2 M rows in memory beside DuckDB's own table.

Processor time of all threads, in turns with DuckDB, which has as many threads, and its table in its
file, of which all pages are in its memory. No small statement has a text that was seen before.
"small ms" is that of the slower kind: one row by its key, and a group of all rows.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable

import duckdb
import numpy as np
import pyarrow as pa

import siltstone as st
from bench.measure import median
from bench.workload import Metrics, Place

_SMALL_ROWS, _SMALL_REPEATS = 1_000, 200
_ROWS, _REPEATS = 2_000_000, 9
_THREADS = 2
_SMALL = {
    "one row": "SELECT * FROM small WHERE id = {0} AND {0} >= 0",
    "a group": "SELECT g, count(*) AS n, sum(qty) + {0} AS s FROM small GROUP BY g",
    "a count": "SELECT count(*) AS n{0} FROM small",
}
_LARGE = {
    "sum": "SELECT sum(price) FROM large",
    "Q6": "SELECT sum(price * qty) FROM large WHERE qty < 24 AND price BETWEEN 5 AND 7",
    "group": "SELECT g, sum(price), avg(qty), count(*) FROM large GROUP BY g",
    "top 10": "SELECT * FROM large ORDER BY price DESC LIMIT 10",
}
_COLUMNS = {"id": "int64", "g": "int64", "price": "float64", "qty": "int64", "name": "string"}


class Statements:
    name = "sql"
    title = "statements of SQL over small tables and large ones in memory"

    def prepare(self, peer: Place) -> None:
        with st.connect(peer.path, background=False) as db:
            large = _orders(peer.sizes.rows(_ROWS, 100_000))
            for table, rows in (("small", large.slice(0, _SMALL_ROWS)), ("large", large)):
                db.create_table(table, _COLUMNS, primary_key="id").upsert(rows)
            db.checkpoint()
            db.merge()
        with _native(peer) as native:
            native.register("given", large)
            native.execute("CREATE TABLE large AS FROM given")

    def measure(self, peer: Place, turn: int) -> Metrics:
        del turn
        found: Metrics = {}
        with (
            st.connect(peer.path, background=False, sql_threads_max=_THREADS) as db,
            _native(peer) as native,
        ):
            for label, text in _SMALL.items():
                found[f"small: {label}, ms"] = 1e3 * _in_turns(db, None, text, _SMALL_REPEATS)[0]
            found["small ms"] = max(found[f"small: {label}, ms"] for label in _SMALL)
            for label, text in _LARGE.items():
                ours, duck = _in_turns(db, native, text, _REPEATS)
                found[f"{label} ms"], found[f"{label}: x DuckDB"] = 1e3 * ours, ours / duck
            found["large: x DuckDB"] = max(found[f"{label}: x DuckDB"] for label in _LARGE)
        return found


def _orders(rows: int) -> pa.Table:
    random, ids = np.random.default_rng(1), np.arange(rows)
    names = np.char.add("customer ", (ids % 5_000).astype(str))
    return pa.table(
        {
            "id": pa.array(ids),
            "g": pa.array(ids % 50),
            "price": pa.array(random.random(rows) * 100),
            "qty": pa.array(random.integers(1, 50, rows)),
            "name": pa.array(names),
        }
    )


def _native(peer: Place) -> duckdb.DuckDBPyConnection:
    file = peer.path.with_name(f"{peer.path.name}.duckdb")
    return duckdb.connect(str(file), config={"threads": _THREADS})


def _in_turns(
    db: st.Store, native: duckdb.DuckDBPyConnection | None, text: str, repeats: int
) -> tuple[float, float]:
    """Return the median seconds of processor time of a statement, here and in DuckDB."""
    numbers = itertools.count()
    ours, duck = list[float](), list[float]()
    for number in range(repeats + 5):
        ours.append(_cpu_s(lambda: db.sql(text.format(next(numbers)))))
        if native is not None:
            duck.append(_cpu_s(lambda: native.execute(text).to_arrow_table()))
        if number < 5:  # rows are read into memory, and caches filled
            ours.clear()
            duck.clear()
    return median(ours), median(duck) if duck else 0.0


def _cpu_s(call: Callable[[], object]) -> float:
    begin = time.process_time()
    call()
    return time.process_time() - begin
