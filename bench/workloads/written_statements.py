"""writes: statements of SQL that write, beside the method that each of them ends in.

Processor time of all threads, in turns with the method. "again" is a text that was run before,
with other parameters; "new" one with other literals. "more ms" is what a statement takes above its
method, of the slowest kind: an INSERT, an UPDATE and a DELETE of one row by its key. 100,000 rows
come out of a frame; "through DuckDB" is the same with an expression that DuckDB evaluates. Of many
rows the quickest quarter counts: a call that needs memory which the process has not had yet, or
that a checkpoint follows, takes several times as long, whichever it is.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator

import numpy as np
import pyarrow as pa

import siltstone as st
from bench.measure import median
from bench.workload import Metrics, Place

_COLUMNS = {"id": "int64", "g": "int64", "price": "float64", "name": "string"}
_ROWS, _MANY = 10_000, 100_000
_REPEATS, _WARM = 200, 20
_TURNS = 24


class WrittenStatements:
    name = "writes"
    title = "statements of SQL that write, beside their methods"

    def prepare(self, peer: Place) -> None:
        with st.connect(peer.path, background=False) as db:
            db.create_table("t", _COLUMNS, primary_key="id").upsert(_frame(0, _ROWS))
            db.checkpoint()
            db.merge()

    def measure(self, peer: Place, turn: int) -> Metrics:
        with st.connect(peer.path, background=False) as db:
            return _one_row(db, itertools.count((turn + 1) << 40)) | _many_rows(db, turn)


def _one_row(db: st.Store, ids: Iterator[int]) -> Metrics:
    table, row = db["t"], {"g": 1, "price": 2.5, "name": "x"}
    calls: dict[str, tuple[Callable[[int], object], str, str]] = {
        "insert": (
            lambda n: table.insert({"id": n, **row}),
            "insert into t values (?, 1, 2.5, 'x')",
            "insert into t values ({0}, 1, 2.5, 'x')",
        ),
        "update": (
            lambda n: table.update(n % _ROWS, price=float(n)),
            "update t set price = ? where id = 7",
            "update t set price = {0}.5 where id = 7",
        ),
        "delete": (table.delete, "delete from t where id = ?", "delete from t where id = {0}"),
    }
    found: Metrics = {}
    for label, (method, text, new) in calls.items():
        times = _in_turns(
            [
                method,
                lambda n, text=text: db.sql(text, [n]),
                lambda n, new=new: db.sql(new.format(n)),
            ],
            ids,
        )
        found[f"{label}: method ms"] = times[0]
        found[f"{label}: again, more ms"] = times[1] - times[0]
        found[f"{label}: new, more ms"] = times[2] - times[0]
    for kind in ("again", "new"):
        found[f"{kind}: more ms"] = max(found[f"{each}: {kind}, more ms"] for each in calls)
    return found


def _in_turns(calls: list[Callable[[int], object]], ids: Iterator[int]) -> list[float]:
    """Return the median milliseconds of each of some calls, which are made one after the other."""
    times: list[list[float]] = [[] for _ in calls]
    for number in range(_REPEATS + _WARM):
        for call, found in zip(calls, times, strict=True):
            seconds = _cpu_s(lambda call=call: call(next(ids)))
            if number >= _WARM:
                found.append(1e3 * seconds)
    return [median(found) for found in times]


def _many_rows(db: st.Store, turn: int) -> Metrics:
    table = db["t"]

    def copied(frame: pa.Table) -> None:
        assert frame.num_rows  # the statement names it
        db.sql("insert or replace into t select * from frame")

    def queried(frame: pa.Table) -> None:
        assert frame.num_rows
        db.sql("insert or replace into t select id, g + 1, price, name from frame")

    calls: list[Callable[[pa.Table], object]] = [table.upsert, copied, queried]
    times: list[list[float]] = [[] for _ in calls]
    firsts = (number << 24 for number in itertools.count((turn + 1) << 10))
    for number in range(_TURNS):  # each with rows that the table has not: they change the work
        for place in range(len(calls)):
            which = (place + number) % len(calls)
            frame = _frame(next(firsts), _MANY)
            times[which].append(_cpu_s(lambda call=calls[which], rows=frame: call(rows)))
    method, copy, query = (sorted(each)[_TURNS // 4] for each in times)
    return {
        "100,000 rows: method ms": 1e3 * method,
        "100,000 rows: x upsert": method / copy,
        "100,000 rows through DuckDB: x upsert": method / query,
    }


def _frame(first: int, rows: int) -> pa.Table:
    ids = np.arange(first, first + rows)
    return pa.table(
        {
            "id": pa.array(ids),
            "g": pa.array(ids % 50),
            "price": pa.array(ids / 8),
            "name": pa.array(np.char.add("customer ", (ids % 5_000).astype(str))),
        }
    )


def _cpu_s(call: Callable[[], object]) -> float:
    begin = time.process_time()
    call()
    return time.process_time() - begin
