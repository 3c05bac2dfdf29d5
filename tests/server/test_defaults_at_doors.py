"""Defaults and NOT NULL are the same at every door: they are of the table, not of who writes."""

from __future__ import annotations

import datetime as dt
import subprocess
import sys
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import siltstone as st
from tests.server.rest import Rest, rest_of
from tests.server.stores import DOORS, behind

COLUMNS = {
    "id": "int64", "n": "int32 not null", "s": "string", "d": "date", "m": "decimal(10, 2)",
}  # fmt: skip
DEFAULTS = {"n": 3, "s": "new", "d": dt.date(2026, 1, 2), "m": Decimal("1.20")}


@pytest.fixture(params=DOORS)
def db(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[st.Store]:
    with behind(request.param, tmp_path / "shop") as found:
        found.create_table("t", COLUMNS, primary_key="id", defaults=DEFAULTS)
        yield found


def rows_of(db: st.Store, table: str = "t") -> list[dict[str, Any]]:
    return sorted(db[table].to_arrow().to_pylist(), key=lambda row: row["id"])


def test_rows_leave_columns_out(db: st.Store) -> None:
    db["t"].insert({"id": 1})
    db["t"].insert(pa.table({"id": [2]}))
    db["t"].upsert({"id": 3, "s": None}, missing="keep")
    with db.transaction() as tx:
        tx["t"].insert({"id": 4})
        tx["t"].upsert([{"id": 4, "n": 8}], "keep")
        assert tx["t"].get(4) == {"id": 4, **DEFAULTS, "n": 8}
    assert rows_of(db) == [
        {"id": 1, **DEFAULTS},
        {"id": 2, **DEFAULTS},
        {"id": 3, **DEFAULTS, "s": None},
        {"id": 4, **DEFAULTS, "n": 8},
    ]


def test_a_table_is_made_of_rows_with_defaults(db: st.Store) -> None:
    db.create_table("rows", data=[{"id": 1, "v": 5}], defaults={"v": 7})
    db["rows"].append({"id": 2})
    db.create_table("again", db["t"].schema, "id").insert({"id": 1})
    with db.transaction() as tx:
        tx.create_table("third", {"id": int, "v": int}, "id", defaults={"v": 9}).insert({"id": 1})
    assert rows_of(db, "rows") == [{"id": 1, "v": 5}, {"id": 2, "v": 7}]
    assert rows_of(db, "again") == [{"id": 1, **DEFAULTS}]
    assert rows_of(db, "third") == [{"id": 1, "v": 9}]
    with pytest.raises(st.SchemaMismatchError, match="is int64, not str 'x'"):
        db.create_table("bad", {"id": int, "v": int}, "id", defaults={"v": "x"})


def test_a_column_comes_with_its_default(db: st.Store) -> None:
    db["t"].insert({"id": 1})
    db["t"].add_column("at", "timestamp[us, tz=UTC]", dt.datetime(2026, 1, 2, tzinfo=dt.UTC))
    with db.transaction() as tx:
        tx["t"].add_column("k", "int64 not null", default=5)
        assert tx["t"].get(1)["k"] == 5  # type: ignore[index]
    assert db["t"].get(1) == {
        "id": 1, **DEFAULTS, "at": dt.datetime(2026, 1, 2, tzinfo=dt.UTC), "k": 5,
    }  # fmt: skip
    with pytest.raises(st.RequestError, match="or give a default"):
        db["t"].add_column("l", "int64 not null")


def test_a_column_is_altered(db: st.Store) -> None:
    db["t"].alter_column("s", default="other", nullable=False)
    db["t"].insert({"id": 1})
    with db.transaction() as tx:
        tx["t"].alter_column("s", default=None)
    with pytest.raises(st.SchemaMismatchError, match="'s' may not be null or missing"):
        db["t"].insert({"id": 2})
    db["t"].alter_column("s", nullable=True)
    db["t"].insert({"id": 2})
    assert [row["s"] for row in rows_of(db)] == ["other", None]
    with pytest.raises(st.SchemaMismatchError, match=r"a null in the row \{'id': 2\}"):
        db["t"].alter_column("s", nullable=False)


def test_a_transaction_of_a_joined_process_conflicts_with_the_change(tmp_path: Path) -> None:
    for door in ("socket", "http"):
        with behind(door, tmp_path / door) as db:
            db.create_table("t", {"id": int, "n": int}, "id", data=[{"id": 1, "n": 1}])
            tx = db.transaction()
            tx["t"].update(1, n=None)
            db["t"].alter_column("n", nullable=False)
            with pytest.raises(st.ConflictError):
                tx.commit()
            late = db.transaction()
            late["t"].insert({"id": 2, "n": 2})
            db["t"].add_column("more", "int64", 7)
            try:  # its owner may widen the rows, as those of its own transactions
                late.commit()
            except st.ConflictError:
                db["t"].insert({"id": 2, "n": 2})
            assert [row["more"] for row in rows_of(db)] == [7, 7]


def test_a_follower_reads_the_default_of_an_added_column(tmp_path: Path) -> None:
    with st.connect(tmp_path / "s") as db:
        db.create_table("t", {"id": int}, "id", data=[{"id": 1}])
        reader = st.connect(tmp_path / "s", read_only=True)
        with reader:
            assert reader["t"].get(1) == {"id": 1}
            db["t"].add_column("n", "int32", 7)
            db["t"].insert({"id": 2, "n": None})
            assert rows_of(reader) == [{"id": 1, "n": 7}, {"id": 2, "n": None}]
            db.checkpoint()
            db.merge()
            assert rows_of(reader) == [{"id": 1, "n": 7}, {"id": 2, "n": None}]


# REST


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[st.Store, Rest]]:
    with rest_of(tmp_path / "shop") as (db, _, rest):
        db.create_table("t", COLUMNS, primary_key="id", defaults=DEFAULTS)
        yield db, rest


def test_rest_gives_rows_their_defaults(served: tuple[st.Store, Rest]) -> None:
    db, rest = served
    assert rest.post("/v1/table/t/insert", pa.table({"id": [1]})).status == 200
    ops = [
        {"table": "t", "op": "insert", "rows": [{"id": 2}]},
        {"table": "t", "op": "upsert", "rows": [{"id": 3, "n": 9}], "missing": "keep"},
    ]
    assert rest.post("/v1/transaction/apply", {"ops": ops}).status == 200
    merge = "when_matched_update_all=true&when_not_matched_insert_all=true"
    answer = rest.post(f"/v1/table/t/merge_insert?on=id&{merge}", pa.table({"id": [3, 4]}))
    assert answer.status == 200, answer.body
    assert rows_of(db) == [
        {"id": 1, **DEFAULTS}, {"id": 2, **DEFAULTS}, {"id": 3, **DEFAULTS, "n": 9},
        {"id": 4, **DEFAULTS},
    ]  # fmt: skip


def test_rest_makes_and_shows_defaults(served: tuple[st.Store, Rest]) -> None:
    db, rest = served
    answer = rest.post("/v1/table/t/describe", {"load_detailed_metadata": True})
    assert answer.json["schema"]["fields"][1]["metadata"] == {"siltstone:default": "3"}
    rows = pa.table({"id": [1], "n": [2]}, schema=pa.schema([
        pa.field("id", pa.int64()), pa.field("n", pa.int64(), metadata={"siltstone:default": "5"}),
    ]))  # fmt: skip
    assert rest.post("/v1/table/made/create?primary_key=id", rows).status == 200
    assert rest.post("/v1/table/made/insert", pa.table({"id": [2]})).status == 200
    assert rows_of(db, "made") == [{"id": 1, "n": 2}, {"id": 2, "n": 5}]


def test_rest_lets_a_column_be_null_or_not(served: tuple[st.Store, Rest]) -> None:
    db, rest = served
    strict = {"alterations": [{"path": "s", "nullable": False}]}
    assert rest.post("/v1/table/t/alter_columns", strict).status == 200
    assert not db["t"].schema.field("s").nullable
    assert rest.post("/v1/table/t/alter_columns", {
        "alterations": [{"path": "s", "nullable": True}]
    }).status == 200  # fmt: skip
    db["t"].insert({"id": 1, "s": None})
    answer = rest.post("/v1/table/t/alter_columns", strict)
    assert (answer.status, "has a null in the row" in answer.json["error"]) == (400, True)


# files


@pytest.mark.parametrize("name", ["rows.csv", "rows.ndjson", "rows.parquet"])
def test_files_leave_columns_out(tmp_path: Path, name: str) -> None:
    with st.connect(tmp_path / "s") as db:
        db.create_table("t", COLUMNS, primary_key="id", defaults=DEFAULTS)
    file = tmp_path / name
    if name.endswith("parquet"):
        import pyarrow.parquet as pq

        pq.write_table(pa.table({"id": [1, 2], "n": pa.array([8, 9], pa.int32())}), file)
    else:
        texts = {
            "rows.csv": "id,n\n1,8\n2,9\n",
            "rows.ndjson": '{"id": 1, "n": 8}\n{"id": 2, "n": 9}\n',
        }
        file.write_text(texts[name])
    command = [
        sys.executable,
        "-m",
        "siltstone",
        "insert",
        "t",
        str(file),
        "--db",
        str(tmp_path / "s"),
    ]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    with st.connect(tmp_path / "s") as db:
        assert rows_of(db) == [{"id": 1, **DEFAULTS, "n": 8}, {"id": 2, **DEFAULTS, "n": 9}]
