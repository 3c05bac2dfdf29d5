"""Siltstone: by its public names alone, with its defaults."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

import siltstone as st
from bench.data import ACCOUNTS, DOCUMENTS, LEDGER, Move, Row, as_dict

_ATTEMPTS = 10_000  # a hot account must end by winning, however long it takes


class Siltstone:
    name = "siltstone"
    is_durable = True
    takes = frozenset(
        {*(f"W{number}" for number in range(1, 15)), "CPU", "memory", "http", "start"}
        | {"versions", "index", "sql", "writes", "many", "ranges", "large"}
        | {"processes", "loop", "reach"}
    )

    def __init__(self, path: Path, *, keep_log: bool = False, **options: Any) -> None:
        if keep_log:
            limits = {"memtable_bytes_max": 2 << 30, "memory_bytes_max": 8 << 30}
            options = {"background": False, **limits, **options}
        self._path = path
        self._db = st.connect(path, **options)
        if "accounts" not in self._db.tables():
            self._db.create_table("accounts", ACCOUNTS, primary_key="id")
            self._db.create_table("ledger", LEDGER, primary_key="id")
        self._accounts = self._db["accounts"]
        self._indexed = bool(self._accounts.indexes())

    def load(self, rows: pa.Table) -> None:
        self._accounts.upsert(rows)

    def upsert_one(self, row: Row) -> None:
        self._accounts.upsert(as_dict(row))

    def upsert_batch(self, rows: pa.Table) -> None:
        self._accounts.upsert(rows)

    def transfer(self, move: Move) -> int:
        attempts = 0

        def body(tx: Any) -> None:
            nonlocal attempts
            attempts += 1
            accounts = tx["accounts"]
            source, target = accounts.get(move.source), accounts.get(move.target)
            accounts.update(move.source, balance=source["balance"] - move.amount)
            accounts.update(move.target, balance=target["balance"] + move.amount)
            tx["ledger"].insert(
                [
                    _entry(move.entry, move.source, -move.amount, "sent"),
                    _entry(move.entry + 1, move.target, move.amount, "received"),
                ]
            )

        self._db.run(body, attempts=_ATTEMPTS)
        return attempts - 1

    def get(self, key: int) -> object:
        return self._accounts.get(key)

    def scan_sum(self) -> int:
        reader = self._accounts.scan(columns=["balance"])
        return sum(pc.sum(batch.column(0)).as_py() or 0 for batch in reader)

    def scan_all(self) -> int:
        return sum(batch.num_rows for batch in self._accounts.scan())

    def upsert_documents(self, rows: pa.Table) -> None:
        if "documents" not in self._db.tables():
            self._db.create_table("documents", DOCUMENTS, primary_key="id")
        self._db["documents"].upsert(rows)

    def scan_documents(self) -> int:
        """Read every document; return the bytes of the largest batch."""
        return max(batch.nbytes for batch in self._db["documents"].scan())

    def index(self, column: str) -> None:
        """Declare an index; who settles next builds it, and later what it lacks."""
        self._accounts.create_index(column, build=False)
        self._indexed = True

    def let_join(self) -> None:
        self._db.serve_local()

    def sql_count(self) -> object:
        return self._db.sql("select count(*), sum(balance) from accounts").fetchall()

    def settle(self) -> None:
        """Checkpoint, then merge the way the scheduler does: in a child at nice 19 (ADR 7)."""
        self._db.checkpoint()
        for work in ("merge", "optimize") if self._indexed else ("merge",):
            command = [sys.executable, "-m", "siltstone", work, "--db", str(self._path), "--quiet"]
            subprocess.run(["nice", "-n", "19", *command], check=True)
        self._db.merge()  # nothing is left to do: the owner takes over what the child published

    def close(self) -> None:
        self._db.close()


def _entry(key: int, account: int, delta: int, note: str) -> dict[str, object]:
    return {"id": key, "account": account, "delta": delta, "note": note}
