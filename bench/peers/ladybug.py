"""LadybugDB: WAL, several writers at once, one connection per thread, conflicts are run again."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ladybug
import pyarrow as pa

from bench.data import Move, Row

_UPSERT = "merge (a:accounts {id: $id}) set a.balance = $balance, a.name = $name, a.updated = $at"
_UPSERT_MANY = (
    "unwind $rows as r merge (a:accounts {id: r.id})"
    " set a.balance = r.balance, a.name = r.name, a.updated = r.updated"
)


class Ladybug:
    name = "ladybug"
    is_durable = True
    takes = frozenset({"W1", "W3", "W4"})

    def __init__(self, path: Path, *, keep_log: bool = False) -> None:
        path.mkdir(parents=True, exist_ok=True)
        self._db = ladybug.Database(
            path / "bench.lbug",
            buffer_pool_size=2 << 30,
            enable_multi_writes=True,
            auto_checkpoint=not keep_log,
        )
        self._local = threading.local()
        self._execute(
            "create node table if not exists accounts"
            " (id int64 primary key, balance int64, name string, updated timestamp)"
        )
        self._execute(
            "create node table if not exists ledger"
            " (id int64 primary key, account int64, delta int64, note string)"
        )

    def _execute(self, query: str, parameters: dict[str, Any] | None = None) -> Any:
        if not hasattr(self._local, "connection"):
            self._local.connection = ladybug.Connection(self._db, num_threads=1)
        return self._local.connection.execute(query, parameters)

    def _commit(self, body: Callable[[], None]) -> int:
        retries = 0
        while True:
            try:
                body()
            except RuntimeError as error:
                if "conflict" not in str(error).lower():
                    raise
                retries += 1
            else:
                return retries

    def load(self, rows: pa.Table) -> None:
        self._execute("copy accounts from $rows", {"rows": rows})

    def upsert_one(self, row: Row) -> None:
        values = {"id": row.id, "balance": row.balance, "name": row.name, "at": row.updated}
        self._commit(lambda: self._execute(_UPSERT, values))

    def upsert_batch(self, rows: pa.Table) -> None:
        values = {"rows": rows.to_pylist()}
        self._commit(lambda: self._execute(_UPSERT_MANY, values))

    def transfer(self, move: Move) -> int:
        return self._commit(lambda: self._transfer(move))

    def _transfer(self, move: Move) -> None:
        sides = ((move.source, -move.amount, "sent"), (move.target, move.amount, "received"))
        self._execute("begin transaction")
        try:
            for offset, (account, delta, note) in enumerate(sides):
                self._execute(
                    "match (a:accounts) where a.id = $id set a.balance = a.balance + $delta",
                    {"id": account, "delta": delta},
                )
                self._execute(
                    "create (:ledger {id: $id, account: $account, delta: $delta, note: $note})",
                    {"id": move.entry + offset, "account": account, "delta": delta, "note": note},
                )
            self._execute("commit")
        except RuntimeError:
            self._roll_back()
            raise

    def _roll_back(self) -> None:
        try:
            self._execute("rollback")
        except RuntimeError:
            return  # the failure has rolled back already

    def get(self, key: int) -> object:
        found = self._execute("match (a:accounts) where a.id = $id return a.*", {"id": key})
        return found.get_next() if found.has_next() else None

    def scan_sum(self) -> int:
        return int(self._execute("match (a:accounts) return sum(a.balance)").get_next()[0])

    def scan_all(self) -> int:
        return self._execute("match (a:accounts) return a.*").get_as_arrow().num_rows

    def settle(self) -> None:
        self._execute("checkpoint")

    def close(self) -> None:
        self._db.close()
