"""The diff of a table without a key: whole rows, of equal ones as many as there are more."""

from __future__ import annotations

import datetime as dt
import random
from collections import Counter
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import siltstone as st
from siltstone.query.diff import plain_diff


@pytest.fixture
def db(tmp_path: Path) -> Iterator[st.Store]:
    with st.connect(tmp_path / "s", background=False) as made:
        yield made


def told(found: Any) -> tuple[list[Any], list[Any]]:
    """Return the rows that are gone and those that came, as tuples."""
    rows = found.to_pylist()
    gone = [tuple(r["_old"].values()) for r in rows if r["_change"] == "removed"]
    came = [tuple(r["_new"].values()) for r in rows if r["_change"] == "added"]
    assert len(gone) + len(came) == len(rows) == len(found)
    assert (len(gone), len(came)) == (found.removed, found.added)
    assert not any(r["_new"] for r in rows if r["_change"] == "removed")
    return gone, came


def test_rows_that_came_and_are_gone_are_told(db: st.Store) -> None:
    table = db.create_table("p", {"a": "int64", "b": "string"})
    table.append([{"a": n, "b": str(n)} for n in range(5)])
    before = db.seq
    table.append({"a": 9, "b": "new"})
    table.delete_where("a < 2")
    assert told(db.diff(before)["p"]) == ([(0, "0"), (1, "1")], [(9, "new")])
    assert told(db.diff(db.seq, before)["p"]) == ([(9, "new")], [(0, "0"), (1, "1")])
    assert db.diff(db.seq)["p"].to_pylist() == []


def test_equal_rows_are_counted(db: st.Store) -> None:
    table = db.create_table("p", {"a": "int64"}, data=[{"a": n} for n in (1, 1, 1, 2)])
    before = db.seq
    table.overwrite([{"a": n} for n in (1, 2, 2, 3)])
    assert told(db.diff(before)["p"]) == ([(1,), (1,)], [(2,), (3,)])


def test_a_row_that_was_changed_is_one_gone_and_one_new(db: st.Store) -> None:
    table = db.create_table("p", {"a": "int64", "b": "string"})
    table.append([{"a": 1, "b": "x"}, {"a": 2, "b": "y"}])
    before = db.seq
    table.update_where("a = 2", {"b": "z"})
    assert told(db.diff(before)["p"]) == ([(2, "y")], [(2, "z")])


def test_rows_that_an_optimize_moved_are_no_difference(db: st.Store) -> None:
    table = db.create_table("p", {"a": "int64"})
    for start in range(0, 50, 10):
        table.append([{"a": n} for n in range(start, start + 10)])
    before = db.seq
    table.append({"a": 99})
    db.optimize("p")
    assert told(db.diff(before)["p"]) == ([], [(99,)])


VALUES = {
    "float64": [1.5, -0.0, 0.0, float("nan"), None],
    "float16": [1.5, -0.0, None],
    "decimal128(10, 2)": [Decimal("1.20"), None],
    "decimal256(60, 2)": [Decimal("1.20"), None],
    "bool": [True, False, None],
    "date64": [dt.date(2026, 1, 2), None],
    "timestamp[us, tz=UTC]": [dt.datetime(2026, 1, 2, tzinfo=dt.UTC), None],
    "time64[us]": [dt.time(1), None],
    "duration[us]": [dt.timedelta(1), None],
    "large_string": ["", "a", None],
    "binary": [b"", b"\xff", None],
    "fixed_size_binary[2]": [b"ab", None],
    "list<int32>": [[], [1, None], None],
    "uuid": [b"\0" * 16, None],
    "json": ['{"a": 1}', None],
}


@pytest.mark.parametrize("kind", VALUES)
def test_values_of_each_type_are_compared(db: st.Store, kind: str) -> None:
    values = VALUES[kind]
    table = db.create_table("p", {"a": "int64", "v": kind})
    table.append([{"a": n, "v": value} for n, value in enumerate(values)])
    before = db.seq
    rows = table.to_arrow()
    table.overwrite(rows)
    assert told(db.diff(before)["p"]) == ([], [])
    table.overwrite(rows.slice(1))
    gone, came = told(db.diff(before)["p"])
    assert ([row[0] for row in gone], came) == ([0], [])
    if kind == "float64":  # the two zeros are two values
        table.overwrite([{"a": 1, "v": 0.0}])
        gone, came = told(db.diff(before)["p"])
        assert came == [(1, 0.0)]


def test_structs_and_maps_are_compared(db: st.Store) -> None:
    kinds = [("s", pa.struct([("x", pa.int64()), ("y", pa.string())])),
             ("m", pa.map_(pa.string(), pa.int64()))]  # fmt: skip
    table = db.create_table("p", pa.schema([("a", pa.int64()), *kinds]))
    row = {"a": 1, "s": {"x": 1, "y": "'"}, "m": [("k", 1)]}
    table.append([row, {**row, "a": 2, "s": None}])
    before = db.seq
    table.append(row)
    assert [came[0] for came in told(db.diff(before)["p"])[1]] == [1]


def test_columns_go_by_their_ids(db: st.Store) -> None:
    table = db.create_table("p", {"a": "int32", "b": "string"}, data=[{"a": 1, "b": "x"}])
    before = db.seq
    table.rename_column("b", "c")
    assert db.diff(before)["p"].to_pylist() == []
    table.add_column("d", "int64")
    assert db.diff(before)["p"].to_pylist() == []  # it is null, as where it is not there
    table.alter_column("a", type="float64")
    assert db.diff(before)["p"].to_pylist() == []  # the same value
    table.drop_column("c")
    assert db.diff(before)["p"].to_pylist() == [
        {"_change": "removed", "_old": {"a": 1, "b": "x"}, "_new": None},
        {"_change": "added", "_old": None, "_new": {"a": 1.0, "d": None}},
    ]


def test_a_table_that_comes_or_goes_or_gets_a_key_has_all_its_rows(db: st.Store) -> None:
    start = db.seq
    db.create_table("p", {"a": "int64"}, data=[{"a": 1}])
    made = db.seq
    assert told(db.diff(start)["p"]) == ([], [(1,)])
    db["p"].truncate()
    assert told(db.diff(made)["p"]) == ([(1,)], [])
    db.drop_table("p")
    assert told(db.diff(made)["p"]) == ([(1,)], [])
    db.create_table("p", {"a": "int64"}, "a", data=[{"a": 1}, {"a": 2}])
    assert told(db.diff(made)["p"]) == ([], [(2,)])  # another table: by name
    assert db.diff(start, made, "p")["p"].added == 1


def test_a_table_without_a_version_has_no_difference(db: st.Store) -> None:
    db.create_table("p", {"a": "int64"})
    before = db.seq
    db.create_table("q", {"a": "int64"})
    assert db.diff(before)["p"].to_pylist() == db.diff(before)["q"].to_pylist() == []


def test_files_that_both_have_are_not_read(db: st.Store, monkeypatch: pytest.MonkeyPatch) -> None:
    table = db.create_table("p", {"a": "int64"}, data=[{"a": n} for n in range(100_000)])
    before = db.seq
    table.append({"a": -1})
    monkeypatch.setattr(plain_diff, "HELD_BYTES_MAX", 100)
    assert told(db.diff(before)["p"]) == ([], [(-1,)])
    table.overwrite([{"a": n} for n in range(100)])
    with pytest.raises(st.LimitError, match="'p' has no key, and more than 100 bytes"):
        db.diff(before)


def test_columns_of_blobs_are_not_compared(db: st.Store) -> None:
    db.create_table("p", {"a": "int64"})
    db.create_table("b", {"a": "int64", "v": "blob"})
    assert list(db.diff(1)) == ["p"]
    with pytest.raises(st.RequestError, match="'v' is one of blobs"):
        db.diff(1, tables=["b"])


def test_any_life_is_told_as_two_bags_tell_it(db: st.Store) -> None:
    table, drawn = db.create_table("p", {"a": "int64", "b": "string"}), random.Random(5)
    states: dict[int, Counter[Any]] = {}

    def row() -> dict[str, object]:
        return {"a": drawn.choice([None, 1, 2, 3]), "b": drawn.choice([None, "x", "y"])}

    for _ in range(12):
        step = drawn.randrange(6)
        if step < 3:
            table.append([row() for _ in range(drawn.randrange(1, 5))])
        elif step == 3:
            table.delete_where(f"a = {drawn.randrange(4)}")
        elif step == 4:
            table.update_where("a = 1", {"b": drawn.choice(["x", "z"])})
        else:
            db.optimize("p")
        states[db.seq] = Counter(tuple(r.values()) for r in table.to_arrow().to_pylist())
    for one, before in states.items():
        for other, after in states.items():
            gone, came = told(db.diff(one, other)["p"])
            assert (Counter(gone), Counter(came)) == (before - after, after - before)


def test_a_joined_process_is_told_the_same(tmp_path: Path) -> None:
    with st.connect(tmp_path / "s", background=False) as db:
        table = db.create_table("p", {"a": "int64"}, data=[{"a": 1}])
        before = db.seq
        table.append({"a": 2})
        with st.connect(tmp_path / "s", read_only=True) as reader:
            assert told(reader.diff(before)["p"]) == ([], [(2,)])
