"""Columns of a plain table come, go and change their names in any order; no row is lost by it.

A column that was added lies in no file until rows are written. Lance keeps no rows of which no
file has a column, so what would be left without one is written anew before the last one goes.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

import siltstone as st
from tests.engine.seams import fake_env
from tests.engine.seams import open_store as open_fake
from tests.maintenance.stores import open_store

Rows = list[dict[str, Any]]


def rows_of(source: Any) -> Rows:
    return in_order(source["p"].to_arrow().to_pylist())


def in_order(rows: Rows) -> Rows:
    """Rows of a plain table have no order: what is written anew may come last."""
    return sorted(rows, key=lambda row: [(value is None, value) for value in row.values()])


def test_the_only_stored_column_is_dropped_after_another_was_added(tmp_path: Path) -> None:
    with open_store(tmp_path / "s", real_lance=True) as db:
        table = db.create_table("p", {"a": "int64"})
        table.append([{"a": 1}, {"a": 2}])
        before = db.seq
        table.add_column("b", "string")
        table.drop_column("a")
        assert rows_of(db) == [{"b": None}] * 2
        assert db.snapshot(seq=before)["p"].to_arrow().to_pylist() == [{"a": 1}, {"a": 2}]
        table.append({"b": "x"})
        assert rows_of(db) == [{"b": "x"}, {"b": None}, {"b": None}]
        assert table.delete_where("b = 'x'").rows == 1
        db.checkpoint()
        assert db.verify(deep=True).findings == ()
    with open_store(tmp_path / "s", real_lance=True) as again:
        assert rows_of(again) == [{"b": None}] * 2


def test_only_parts_without_another_stored_column_are_written_anew(tmp_path: Path) -> None:
    with open_store(tmp_path / "s", real_lance=True) as db:
        table = db.create_table("p", {"a": "int64"})
        table.append([{"a": 1}, {"a": 2}, {"a": 3}])
        table.delete_where("a = 2")
        table.add_column("b", "string")
        table.append([{"a": 4, "b": "x"}])
        files = data_files(tmp_path / "s")
        table.drop_column("a")
        assert rows_of(db) == [{"b": "x"}, {"b": None}, {"b": None}]
        assert len(data_files(tmp_path / "s") - files) == 1


def data_files(root: Path) -> set[Path]:
    return set(root.glob("tables/p-*/data/*"))


def test_all_is_done_in_one_transaction_or_not_at_all(tmp_path: Path) -> None:
    with open_store(tmp_path / "s", real_lance=True) as db:
        db.create_table("p", {"a": "int64"}).append([{"a": 1}])
        tx = db.transaction()
        tx["p"].add_column("b", "int64")
        tx["p"].drop_column("a")
        assert rows_of(tx) == [{"b": None}]
        tx.rollback()
        assert rows_of(db) == [{"a": 1}]
        with db.transaction() as tx:
            tx["p"].append([{"a": 2}])
            tx["p"].add_column("b", "int64")
            tx["p"].drop_column("a")
            tx["p"].rename_column("b", "a")
            tx["p"].append([{"a": 3}])
        assert rows_of(db) == [{"a": 3}, {"a": None}, {"a": None}]


def test_an_optimize_meanwhile_takes_no_row_along(tmp_path: Path) -> None:
    with open_store(tmp_path / "s", real_lance=True) as db:
        table = db.create_table("p", {"a": "int64"})
        for n in range(3):
            table.append([{"a": n}])
        table.add_column("b", "int64")
        tx = db.transaction()
        tx["p"].drop_column("a")
        db.optimize("p")
        tx.commit()
        assert rows_of(db) == [{"b": None}] * 3


def test_an_append_meanwhile_is_a_conflict(tmp_path: Path) -> None:
    with open_store(tmp_path / "s", real_lance=True) as db:
        table = db.create_table("p", {"a": "int64"})
        table.append([{"a": 1}])
        table.add_column("b", "int64")
        tx = db.transaction()
        tx["p"].drop_column("a")
        table.append([{"a": 2, "b": 2}])
        with pytest.raises(st.ConflictError):
            tx.commit()
        assert rows_of(db) == [{"a": 1, "b": None}, {"a": 2, "b": 2}]


def test_a_table_without_rows_changes_its_columns_too(tmp_path: Path) -> None:
    with open_store(tmp_path / "s", real_lance=True) as db:
        table = db.create_table("p", {"a": "int64"})
        table.add_column("b", "int64")
        table.drop_column("a")
        table.append([{"b": 1}])
        table.delete_where("b = 1")
        table.add_column("c", "int64")
        table.drop_column("b")
        assert rows_of(db) == []
        with pytest.raises(st.RequestError, match="only one"):
            table.drop_column("c")


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("lance", ["fake", "real"])
def test_any_order_of_changes_keeps_the_rows(tmp_path: Path, seed: int, lance: str) -> None:
    draw = random.Random(seed)
    opened = (
        open_store(tmp_path / "s", real_lance=True)
        if lance == "real"
        else open_fake(tmp_path / "s", fake_env())
    )
    with opened as db:
        db.create_table("p", {"c0": "int64"})
        rows: Rows = []
        names, seen, versions = ["c0"], {}, 1
        for step in range(20):
            rows, names, versions = changed(db, draw, rows, names, versions, step)
            assert rows_of(db) == in_order(rows), (seed, step)
            assert db["p"].schema.names == names
            seen[db.seq] = rows
        for seq, then in seen.items():
            assert rows_of(db.snapshot(seq=seq)) == in_order(then)
        db.checkpoint()
        assert db.verify(deep=True).findings == ()


def changed(
    db: st.Store, draw: random.Random, rows: Rows, names: list[str], made: int, step: int
) -> tuple[Rows, list[str], int]:
    table = db["p"]
    do = draw.choice(["append", "append", "add", "drop", "drop", "rename", "delete", "optimize"])
    name = draw.choice(names)
    if do == "append":
        row = {n: step if draw.random() < 0.7 else None for n in names}
        table.append([row])
        return [*rows, row], names, made
    if do == "add":
        table.add_column(f"c{made}", "int64")
        new = f"c{made}"
        return [{**row, new: None} for row in rows], [*names, new], made + 1
    if do == "drop" and len(names) > 1:
        table.drop_column(name)
        left = [n for n in names if n != name]
        return [{n: row[n] for n in left} for row in rows], left, made
    if do == "rename":
        new = f"c{made}"
        table.rename_column(name, new)
        left = [new if n == name else n for n in names]
        return [dict(zip(left, row.values(), strict=True)) for row in rows], left, made + 1
    if do == "delete":
        table.delete_where(f"{name} = {step - 2}")
        return [row for row in rows if row[name] != step - 2], names, made
    if do == "optimize":
        db.optimize("p")
    return rows, names, made
