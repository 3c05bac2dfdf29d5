"""DuckDB: its own file and WAL, one cursor per thread, conflicts are run again."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import duckdb
import pyarrow as pa

from bench.data import Move, Row


class Duck:
    name = "duckdb"
    is_durable = True
    takes = frozenset({"W1", "W2", "W3", "W4", "W5", "W6", "W7", "W8"})

    def __init__(self, path: Path, *, keep_log: bool = False) -> None:
        path.mkdir(parents=True, exist_ok=True)
        self._db = duckdb.connect(str(path / "bench.duckdb"))
        self._local = threading.local()
        if keep_log:
            self._db.execute("set checkpoint_threshold = '100GB'")
        self._db.execute(
            "create table if not exists accounts"
            " (id bigint primary key, balance bigint, name varchar, updated timestamp)"
        )
        self._db.execute(
            "create table if not exists ledger"
            " (id bigint primary key, account bigint, delta bigint, note varchar)"
        )

    def _cursor(self) -> duckdb.DuckDBPyConnection:
        if not hasattr(self._local, "cursor"):
            self._local.cursor = self._db.cursor()
        return self._local.cursor

    def _commit(self, body: Callable[[duckdb.DuckDBPyConnection], object]) -> int:
        cursor, retries = self._cursor(), 0
        while True:
            cursor.execute("begin")
            try:
                body(cursor)
                cursor.execute("commit")
            except (duckdb.TransactionException, duckdb.ConstraintException) as error:
                if "onflict" not in str(error):
                    raise
                _roll_back(cursor)
                retries += 1
            else:
                return retries

    def load(self, rows: pa.Table) -> None:
        cursor = self._cursor()
        cursor.register("fresh", rows)
        cursor.execute("insert into accounts select * from fresh")
        cursor.unregister("fresh")

    def upsert_one(self, row: Row) -> None:
        self._commit(
            lambda c: c.execute("insert or replace into accounts values (?, ?, ?, ?)", row[:4])
        )

    def upsert_batch(self, rows: pa.Table) -> None:
        cursor = self._cursor()
        cursor.register("fresh", rows)
        self._commit(lambda c: c.execute("insert or replace into accounts select * from fresh"))
        cursor.unregister("fresh")

    def transfer(self, move: Move) -> int:
        def body(cursor: duckdb.DuckDBPyConnection) -> None:
            change = "update accounts set balance = balance + ? where id = ?"
            cursor.execute(change, (-move.amount, move.source))
            cursor.execute(change, (move.amount, move.target))
            cursor.execute(
                "insert into ledger values (?, ?, ?, 'sent'), (?, ?, ?, 'received')",
                (
                    *(move.entry, move.source, -move.amount),
                    *(move.entry + 1, move.target, move.amount),
                ),
            )

        return self._commit(body)

    def get(self, key: int) -> object:
        return self._cursor().execute("select * from accounts where id = ?", (key,)).fetchone()

    def scan_sum(self) -> int:
        found = self._cursor().execute("select sum(balance)::bigint from accounts").fetchone()
        return int(found[0]) if found else 0

    def scan_all(self) -> int:
        reader = self._cursor().execute("select * from accounts").to_arrow_reader(100_000)
        return sum(batch.num_rows for batch in reader)

    def settle(self) -> None:
        self._cursor().execute("checkpoint")

    def close(self) -> None:
        self._db.close()


def _roll_back(cursor: duckdb.DuckDBPyConnection) -> None:
    try:
        cursor.execute("rollback")
    except duckdb.TransactionException:
        return  # a failed commit has rolled back already
