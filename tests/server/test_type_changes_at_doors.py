"""A column gets another type through every door, and every door shows it."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import siltstone as st
from tests.server.stores import DOORS, behind

COLUMNS = {"id": "int64", "n": "int32", "s": "string", "d": "date"}
DAY = dt.date(2026, 1, 2)


@pytest.fixture(params=DOORS)
def db(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[st.Store]:
    with behind(request.param, tmp_path / "shop") as found:
        found.create_table("t", COLUMNS, primary_key="id")
        found["t"].insert([{"id": 1, "n": 5, "s": "7", "d": DAY}, {"id": 2}])
        found.create_table("p", COLUMNS, data=[{"id": 1, "n": 5, "s": "7", "d": DAY}])
        yield found


def rows_of(table: Any) -> list[Any]:
    return sorted(tuple(row.values()) for row in table.to_arrow().to_pylist())


@pytest.mark.parametrize("name", ["t", "p"])
def test_types_change(db: st.Store, name: str) -> None:
    before, table = db.seq, db[name]
    table.alter_column("n", type="int64")
    table.alter_column("s", type=pa.int16())
    with db.transaction() as tx:
        tx[name].alter_column("d", type="timestamp[s]")
        (tx[name].insert if name == "t" else tx[name].append)(
            {"id": 3, "n": 2**40, "s": 8, "d": None}
        )
    found = {row["id"]: row for row in table.to_arrow().to_pylist()}
    assert found[1] == {"id": 1, "n": 5, "s": 7, "d": dt.datetime(2026, 1, 2)}  # noqa: DTZ001
    assert found[3] == {"id": 3, "n": 2**40, "s": 8, "d": None}
    with db.snapshot(seq=before) as past:
        rows = past[name].to_arrow().to_pylist()
        assert {"id": 1, "n": 5, "s": "7", "d": DAY} in rows
        assert len(rows) == len(found) - 1
    with pytest.raises(st.RequestError, match="does not become"):
        table.alter_column("n", type="bool")
    with pytest.raises(st.SchemaMismatchError, match="change it first"):
        table.alter_column("n", type="int8")


def test_sql_changes_types(db: st.Store) -> None:
    db.sql("alter table t alter column n type bigint")
    db.sql("alter table p alter column s set data type integer")
    assert db["t"].schema.field("n").type == pa.int64()
    assert db.sql("select s + 1 from p").fetchall() == [(8,)]


def test_rows_without_a_key_differ(db: st.Store) -> None:
    before = db.seq
    db["p"].append({"id": 2, "n": None, "s": None, "d": None})
    db["p"].delete_where("id = 1")
    found = db.diff(before)["p"]
    assert (found.added, found.removed, found.changed) == (1, 1, 0)
    assert [row["_change"] for row in found.to_pylist()] == ["removed", "added"]


def test_a_transaction_from_before_comes_in_the_wider_type_or_conflicts(db: st.Store) -> None:
    tx = db.transaction()
    tx["t"].update(1, n=6)
    tx["t"].upsert(pa.table({"id": [9], "n": pa.array([9], pa.int32())}), missing="null")
    db["t"].alter_column("n", type="decimal128(12, 2)")
    found = {1: 6, 2: None, 9: 9}
    try:  # its owner may widen the rows, as those of its own transactions
        tx.commit()
    except st.ConflictError:
        found = {1: 5, 2: None}
    assert {row[0]: row[1] for row in rows_of(db["t"])} == found
