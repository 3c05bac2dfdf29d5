"""A filter that names one key finds the row that a scan finds, whatever it holds and where."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import siltstone as st
from siltstone.engine.catalog.table_schema import table_schema_of
from siltstone.engine.read.read_arguments import key_named, key_pushed
from siltstone.formats import schema as schemas

COLUMNS = {
    "i8": (pa.int8(), [-128, 127, None]),
    "u64": (pa.uint64(), [0, 2**64 - 1, None]),
    "f16": (pa.float16(), [0.5, -0.0, None]),
    "f32": (pa.float32(), [0.1, float("inf"), None]),
    "f64": (pa.float64(), [0.1, float("nan"), None]),
    "b": (pa.bool_(), [True, False, None]),
    "s": (pa.string(), ["", "ä'\\\0", None]),
    "bin": (pa.binary(), [b"", b"\xff\0", None]),
    "d": (pa.date32(), [dt.date(1, 1, 1), dt.date(9999, 12, 31), None]),
    "us": (pa.timestamp("us"), [1, -(2**40), None]),
    "utc": (pa.timestamp("us", "UTC"), [1, -(2**40), None]),
    "ns": (pa.timestamp("ns"), [1, 2**60 + 1, None]),
    "t": (pa.time64("us"), [dt.time(1, 2, 3, 4), dt.time(0), None]),
    "dec": (pa.decimal128(20, 3), [Decimal("1.500"), Decimal("-12345678901234567.891"), None]),
    "l": (pa.list_(pa.int64()), [[1, None], [], None]),
    "v": (pa.list_(pa.float32(), 2), [[0.1, 0.2], [1, 2], None]),
    "st": (pa.struct([("a", pa.int64()), ("b", pa.string())]), [{"a": 1, "b": None}, {}, None]),
}
ROWS = pa.table(
    {"id": pa.array([1, 2, 3], pa.int64())}
    | {name: pa.array(values, kind) for name, (kind, values) in COLUMNS.items()}
)


@pytest.fixture(scope="module", params=["memory", "history", "base"])
def db(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[st.Store]:
    path = tmp_path_factory.mktemp("point") / "shop"
    with st.connect(path, segment_bytes=65536, background=False) as db:
        db.create_table("t", ROWS.schema, primary_key="id")
        db["t"].upsert(ROWS)
        if request.param != "memory":
            db.checkpoint()
        if request.param == "base":
            db.merge()
        yield db


@pytest.mark.parametrize("key", [1, 2, 3, 4, -1])
def test_it_finds_what_a_scan_finds(db: st.Store, key: int) -> None:
    by_scan = db["t"].to_arrow(filter=f"id = {key} AND TRUE")
    by_key = db["t"].to_arrow(filter=f" id= {key} ")
    assert by_key.schema == by_scan.schema
    assert str(by_key.to_pylist()) == str(by_scan.to_pylist())  # NaN is not equal to itself
    assert db["t"].to_arrow(["s", "id"], f"id = {key}").schema.names == ["s", "id"]
    assert db["t"].scan(filter=f"id = {key}", limit=0).read_all().num_rows == 0


def test_a_transaction_finds_its_own_rows(db: st.Store) -> None:
    tx = db.transaction()
    tx["t"].upsert({"id": 9, "s": "own"}, missing="null")
    tx["t"].delete([1])
    assert tx["t"].to_arrow(["s"], "id = 9").to_pylist() == [{"s": "own"}]
    assert tx["t"].to_arrow(["s"], "id = 1").num_rows == 0
    tx.rollback()


def test_a_serializable_transaction_remembers_the_key_that_it_asked_for(db: st.Store) -> None:
    tx = db.transaction(isolation="serializable")
    assert tx["t"].to_arrow(filter="id = 50").num_rows == 0
    tx["t"].upsert({"id": 51}, missing="null")
    db["t"].upsert({"id": 50}, missing="null")
    with pytest.raises(st.ConflictError):
        tx.commit()
    db["t"].delete([50])


@pytest.mark.parametrize(
    "text",
    ["id = 1 or true", "id = '1'", "ID = 1", "id = 1.0", "id = 99999999999999999999", "s = 'x'",
     "id >= 1", "1 = id", "id = 1;", "id == 1", '"id" = 1', "", None, "id = 9999999999999999999"],
)  # fmt: skip
def test_what_may_mean_something_else_is_left_to_the_parser(text: str | None) -> None:
    arrow = pa.schema([("id", pa.int64()), ("s", pa.string())])
    codec = table_schema_of(schemas.new_schema(arrow, ("id",), schema_id=1)).codec
    assert key_named("id = -7", codec) == -7
    assert key_named(text, codec) is None


def test_a_whole_number_of_an_expression_is_a_key_too() -> None:
    arrow = pa.schema([("id", pa.int64()), ("s", pa.string())])
    codec = table_schema_of(schemas.new_schema(arrow, ("id",), schema_id=1)).codec
    key, other = pc.field("id"), pc.field("s")
    assert key_pushed(key == -7, codec) == -7
    for expression in (key == "1", key >= 1, (key == 1) | (other == "x"), other == "1", key == 1.5):
        assert key_pushed(expression, codec) is None
    assert key_pushed(key == pa.scalar(None, pa.int64()), codec) is None
    assert key_pushed("id = 7", codec) is None
    of_two = table_schema_of(schemas.new_schema(arrow, ("id", "s"), schema_id=1)).codec
    assert key_pushed(key == 1, of_two) is None
    texts = table_schema_of(schemas.new_schema(arrow, ("s",), schema_id=1)).codec
    assert key_pushed(other == 1, texts) is None


def test_strings_are_keys_too(tmp_path: Path) -> None:
    with st.connect(tmp_path / "shop", segment_bytes=65536, background=False) as db:
        table = db.create_table("t", {"name": "string", "n": "int64"}, primary_key="name")
        names = ["a", "ä", "it's", "a\\b", "'", "", "1"]
        table.upsert([{"name": name, "n": n} for n, name in enumerate(names)])
        for n, name in enumerate(names):
            quoted = name.replace("'", "''")
            found = table.to_arrow(filter=f"name = '{quoted}'").to_pylist()
            assert found == table.to_arrow(filter=f"name IN ('{quoted}')").to_pylist()
            assert found == [{"name": name, "n": n}]
