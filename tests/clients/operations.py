"""Operations: what a client of a store may want, and how one sees in the store that it was done.

Plain tables `p` and `q` and a keyed one `k` have the rows 1, 2 and 3, which are merged; `k` has a
row 4 that was committed a moment ago.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa

import siltstone as st

ROWS = pa.table(
    {
        "id": [1, 2, 3],
        "v": ["a", "b", "c"],
        "e": pa.array([[1.0, 0.0], [2.0, 0.0], [3.0, 0.0]], pa.list_(pa.float32(), 2)),
    }
)
NEW = pa.table({"id": [9], "v": ["new"], "e": pa.array([[9.0, 0.0]], pa.list_(pa.float32(), 2))})
CHANGED = pa.table(
    {
        "id": [3, 9],
        "v": ["C", "new"],
        "e": pa.array([[3.0, 0.0], [9.0, 0.0]], pa.list_(pa.float32(), 2)),
    }
)
Check = Callable[[st.Store], bool]


def ids(db: st.Store, table: str) -> list[int]:
    return sorted(db[table].to_arrow(["id"])["id"].to_pylist())


def value(db: st.Store, table: str, key: int) -> str:
    return db[table].to_arrow(["v"], f"id = {key}")["v"].to_pylist()[0]


def _always(_: st.Store) -> bool:
    return True


@dataclass(frozen=True)
class Operation:
    """`name` is the method of a client that does it; `is_done` looks at the store behind it."""

    name: str
    title: str
    is_done: Check = _always

    @property
    def needs_base(self) -> bool:
        """Whether a client may open the keyed table, of which there is nothing before a merge."""
        return self.is_done is _always or self.name.endswith("_keyed")


def _has(table: str, *wanted: int) -> Check:
    return lambda db: ids(db, table) == list(wanted)


def _has_value(table: str, key: int, wanted: str) -> Check:
    return lambda db: value(db, table, key) == wanted


def _merged(table: str) -> Check:
    return lambda db: value(db, table, 3) == "C" and ids(db, table)[-1] == 9


def _appended_to_both(db: st.Store) -> bool:
    return ids(db, "p") == ids(db, "q") == [1, 2, 3, 9]


OPERATIONS = (
    Operation("list_tables", "list tables"),
    Operation("describe", "schema of a table"),
    Operation("create", "create a table with rows", _has("made", 1, 2, 3)),
    Operation(
        "create_keyed", "create a table with a key", lambda db: db["made"].primary_key == ("id",)
    ),
    Operation("drop", "drop a table", lambda db: "p" not in db.tables()),
    Operation("rename", "rename a table", lambda db: "other" in db.tables()),
    Operation("read_plain", "read a plain table"),
    Operation("read_keyed", "read a keyed table"),
    Operation("read_fresh", "read a keyed table, newest rows"),
    Operation("filter_keyed", "filter and columns, keyed"),
    Operation("nearest", "nearest to a vector, plain"),
    Operation("count", "count rows, plain"),
    Operation("read_past", "read an older version, plain"),
    Operation("append", "append, plain", _has("p", 1, 2, 3, 9)),
    Operation("insert_keyed", "insert, keyed", _has("k", 1, 2, 3, 4, 9)),
    Operation("overwrite", "overwrite, plain", _has("p", 9)),
    Operation("merge", "merge_insert, plain", _merged("p")),
    Operation("merge_keyed", "merge_insert, keyed", _merged("k")),
    Operation("update", "update, plain", _has_value("p", 2, "z")),
    Operation("update_keyed", "update, keyed", _has_value("k", 2, "z")),
    Operation("delete", "delete, plain", _has("p", 1, 3)),
    Operation("delete_keyed", "delete, keyed", _has("k", 1, 3, 4)),
    Operation("add_column", "add a column, plain", lambda db: "n" in db["p"].schema.names),
    Operation("drop_column", "drop a column, plain", lambda db: "v" not in db["p"].schema.names),
    Operation("index", "scalar index, plain"),
    Operation("index_keyed", "scalar index, keyed", lambda db: len(db["k"].indexes()) == 1),
    Operation("versions", "list versions, plain"),
    Operation("restore", "restore a version, plain", _has("p", 1, 2, 3)),
    Operation("tag", "tag a version, plain"),
    Operation("compact", "compact files, plain", _has("p", 1, 2, 3)),
    Operation("mem_wal", "MemWAL, plain; use `upsert`, whose log the store has"),
    Operation("batch", "commit versions of two tables at once", _appended_to_both),
    Operation("transaction", "write two tables in a transaction", _appended_to_both),
    Operation("snapshot", "read two tables at one seq"),
    Operation("branch", "list branches"),
)


class Tables:
    """Makes the tables as they were where an operation changed something.

    The keyed one stays the same table: its base is of the first merge, all the time.
    """

    def __init__(self, db: st.Store) -> None:
        self._db, self._seq = db, -1
        db.create_table("k", ROWS.schema, primary_key="id").upsert(ROWS)
        db.checkpoint()
        db.merge("k")

    def prepare(self) -> None:
        db = self._db
        for tag in db.tags():
            db.untag(tag)
        for index in db["k"].indexes():
            db["k"].drop_index(index.name)
        if db.seq == self._seq:
            return
        with db.transaction() as tx:
            for name in tx.tables():
                if name != "k":
                    tx.drop_table(name)
            for name in ("p", "q"):
                tx.create_table(name, ROWS.schema).append(ROWS)
            tx["k"].delete([9])
            tx["k"].upsert(ROWS)
            tx["k"].upsert({"id": 4, "v": "d", "e": [4.0, 0.0]})
        self._seq = db.seq
