"""Writes: what one process of several does, with siltstone and with SQLite."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

import siltstone as st

Works = dict[str, Callable[[], object]]
KEYS = 1_000
"""Each process writes so many rows of its own."""


@contextmanager
def of_siltstone(path: Path, seed: int) -> Generator[Works]:
    """Yield what a process that joined a store may do, by name."""
    chance, first = random.Random(seed), seed * KEYS
    with st.connect(path, join=True) as db:
        table = db["t"]

        def upsert() -> object:
            return table.upsert({"id": first + chance.randrange(KEYS), "v": 1})

        def transaction() -> object:
            key = first + chance.randrange(KEYS)
            with db.transaction() as tx:
                rows = tx["t"]
                row = rows.get(key)
                assert row is not None
                return rows.update(key, v=row["v"] + 1)

        yield {"upsert": upsert, "transaction": transaction}


@contextmanager
def of_sqlite(path: Path, seed: int) -> Generator[Works]:
    """Yield the same with a connection to SQLite."""
    chance, first = random.Random(seed), seed * KEYS
    connection = sqlite3.connect(path / "bench.sqlite", timeout=60, isolation_level=None)
    connection.execute("pragma journal_mode = wal")
    connection.execute("pragma synchronous = full")

    def upsert() -> object:
        row = (first + chance.randrange(KEYS), 1)
        return connection.execute("insert or replace into t values (?, ?)", row)

    def transaction() -> object:
        key = first + chance.randrange(KEYS)
        connection.execute("begin immediate")
        (value,) = connection.execute("select v from t where id = ?", (key,)).fetchone()
        connection.execute("update t set v = ? where id = ?", (value + 1, key))
        return connection.execute("commit")

    try:
        yield {"upsert": upsert, "transaction": transaction}
    finally:
        connection.close()


def fill_siltstone(db: st.Store, processes: int) -> None:
    """Make the table, and the rows of some processes."""
    table = db.create_table("t", {"id": "int64", "v": "int64"}, primary_key="id")
    table.upsert([{"id": number, "v": 0} for number in range(processes * KEYS)])


def fill_sqlite(path: Path, processes: int) -> None:
    """Do the same for SQLite."""
    path.mkdir(parents=True, exist_ok=True)
    connection = sqlite3.connect(path / "bench.sqlite")
    connection.execute("pragma journal_mode = wal")
    connection.execute("create table t (id integer primary key, v integer)")
    rows = [(number, 0) for number in range(processes * KEYS)]
    connection.executemany("insert into t values (?, ?)", rows)
    connection.commit()
    connection.close()
