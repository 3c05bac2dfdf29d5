"""SQLite: WAL, synchronous=FULL, one connection per thread (one fdatasync per commit)."""

from __future__ import annotations

import sqlite3
import threading
from pathlib import Path

import pyarrow as pa

from bench.data import ACCOUNTS, Move, Row

_UPSERT = "insert or replace into accounts values (?, ?, ?, ?)"


class Sqlite:
    name = "sqlite"
    is_durable = True
    takes = frozenset({"W1", "W2", "W3", "W4", "W6", "W7", "W8", "W9", "large", "processes"})

    def __init__(self, path: Path, *, keep_log: bool = False) -> None:
        path.mkdir(parents=True, exist_ok=True)
        self._file, self._keep_log = path / "bench.sqlite", keep_log
        self._local, self._all = threading.local(), list[sqlite3.Connection]()
        connection = self._connection()
        connection.execute(
            "create table if not exists accounts"
            " (id integer primary key, balance integer, name text, updated integer)"
        )
        connection.execute(
            "create table if not exists ledger"
            " (id integer primary key, account integer, delta integer, note text)"
        )

    def _connection(self) -> sqlite3.Connection:
        found: sqlite3.Connection | None = getattr(self._local, "connection", None)
        if found is None:
            found = sqlite3.connect(
                self._file, timeout=60, isolation_level=None, check_same_thread=False
            )
            found.execute("pragma journal_mode = wal")
            found.execute("pragma synchronous = full")
            if self._keep_log:
                found.execute("pragma wal_autocheckpoint = 0")
            self._local.connection = found
            self._all.append(found)
        return found

    def load(self, rows: pa.Table) -> None:
        self.upsert_batch(rows)

    def upsert_one(self, row: Row) -> None:
        self._connection().execute(_UPSERT, (row.id, row.balance, row.name, row.updated_us))

    def upsert_batch(self, rows: pa.Table) -> None:
        connection = self._connection()
        columns = [*rows.columns[:3], rows.column("updated").cast(pa.int64())]
        connection.execute("begin immediate")
        connection.executemany(_UPSERT, zip(*(c.to_pylist() for c in columns), strict=True))
        connection.execute("commit")

    def transfer(self, move: Move) -> int:
        connection = self._connection()
        change = "update accounts set balance = balance + ? where id = ?"
        connection.execute("begin immediate")
        connection.execute(change, (-move.amount, move.source))
        connection.execute(change, (move.amount, move.target))
        connection.executemany(
            "insert into ledger values (?, ?, ?, ?)",
            [
                (move.entry, move.source, -move.amount, "sent"),
                (move.entry + 1, move.target, move.amount, "received"),
            ],
        )
        connection.execute("commit")
        return 0

    def get(self, key: int) -> object:
        return self._connection().execute("select * from accounts where id = ?", (key,)).fetchone()

    def scan_sum(self) -> int:
        return int(self._connection().execute("select sum(balance) from accounts").fetchone()[0])

    def scan_all(self) -> int:
        cursor = self._connection().execute("select * from accounts")
        seen = 0
        while chunk := cursor.fetchmany(65_536):
            columns = list(zip(*chunk, strict=True))
            seen += pa.table([pa.array(c) for c in columns], ACCOUNTS.names).num_rows
        return seen

    def let_join(self) -> None:
        """Any process may open the file."""

    def settle(self) -> None:
        self._connection().execute("pragma wal_checkpoint(truncate)")

    def close(self) -> None:
        for connection in self._all:
            connection.close()
