"""No value that a table takes keeps its store from opening; if one did, the error would say whose.

A value is checked when it comes. `tests/formats/test_accepted_values.py` has all types and values.
"""

# ruff: noqa: DTZ001 (columns without a zone hold moments without one)

from __future__ import annotations

import datetime as dt
import enum
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import siltstone as st
from siltstone.formats import rows
from siltstone.formats.conversion.row_codec import RowCodec
from siltstone.formats.schema import new_schema

FAR = dt.datetime(2299, 12, 31)  # nanoseconds end in 2262
WAYS: dict[str, Callable[[st.Store, st.Table], object]] = {
    "a row": lambda _, t: t.upsert({"id": 1, "until": FAR}),
    "rows": lambda _, t: t.upsert([{"id": 1, "until": FAR}, {"id": 2}]),
    "an update": lambda _, t: t.update(0, until=FAR),
    "a transaction": lambda db, _: (
        db.transaction().__enter__()["t"].upsert({"id": 1, "until": FAR})
    ),
}


@pytest.mark.parametrize("write", WAYS.values(), ids=WAYS)
def test_a_moment_beyond_the_nanoseconds_is_refused_and_the_store_opens(
    tmp_path: Path, write: Callable[[st.Store, st.Table], object]
) -> None:
    with st.connect(tmp_path / "s") as db:
        table = db.create_table("t", {"id": "int64", "until": "timestamp[ns]"}, primary_key="id")
        table.insert({"id": 0, "until": dt.datetime(2262, 4, 11)})
        with pytest.raises(st.SchemaMismatchError, match=r"'until' is timestamp\[ns\], not dateti"):
            write(db, table)
    with st.connect(tmp_path / "s") as db:
        assert db["t"].count() == 1


def test_a_plain_table_refuses_such_a_moment_too(tmp_path: Path) -> None:
    with st.connect(tmp_path / "s") as db:
        table = db.create_table("p", {"until": "timestamp[ns]"})
        with pytest.raises(st.SchemaMismatchError, match="'until'"):
            table.append({"until": FAR})


def test_decimals_of_any_scale_survive_all_levels(tmp_path: Path) -> None:
    row = {"id": 1, "a": Decimal(99999000), "b": Decimal("0." + "9" * 18)}
    columns = {"id": "int64", "a": "decimal128(5, -3)", "b": "decimal128(18, 18)"}
    with st.connect(tmp_path / "s", background=False) as db:
        db.create_table("t", columns, primary_key="id").insert(row)
    for move in ("checkpoint", "merge", None):
        with st.connect(tmp_path / "s", background=False) as db:
            assert db["t"].get(1) == row
            assert db["t"].to_arrow().to_pylist() == [row]
            if move is not None:
                getattr(db, move)()


def test_rows_of_the_log_that_do_not_fit_are_named_at_the_opening(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched, st.connect(tmp_path / "s", background=False) as db:
        table = db.create_table("t", {"id": "int64", "until": "timestamp[ns]"}, primary_key="id")
        patched.setattr(rows, "_INT64", 1 << 70)  # as if nobody had checked
        seq = table.upsert({"id": 1, "until": FAR}).seq
    with pytest.raises(st.InvariantError, match=rf"table 't', of seq {seq} to {seq}, that do not"):
        st.connect(tmp_path / "s")


@pytest.mark.parametrize("value", [1 << 7, 1.5, "1", b"1"])
def test_few_rows_of_the_log_are_looked_at_one_by_one(value: object) -> None:
    made = new_schema(pa.schema([("id", pa.string()), ("n", pa.int8())]), ["id"], schema_id=1)
    codec = RowCodec(made)
    assert codec.is_checkable
    codec.check_stored([("a", 127), ("b", None)])
    with pytest.raises(rows.UnfitError):
        codec.check_stored([("a", 1), ("b", value)])


@pytest.mark.parametrize(
    ("kind", "fits", "wrong"),
    [
        (pa.timestamp("us", "UTC"), -(1 << 63), 1 << 63),
        (pa.timestamp("ns"), 0, 0.0),
        (pa.time32("s"), 86_399, 1 << 31),
        (pa.duration("ms"), -1, dt.timedelta(1)),
        (pa.date32(), 1, dt.date(2020, 1, 1)),
        (pa.date64(), 86_400_000, "2020-01-01"),
    ],
    ids=str,
)
def test_times_of_the_log_are_looked_at_as_the_numbers_that_they_are(
    kind: pa.DataType, fits: object, wrong: object
) -> None:
    made = new_schema(pa.schema([("id", pa.string()), ("at", kind)]), ["id"], schema_id=1)
    codec = RowCodec(made)
    assert codec.is_checkable
    codec.check_stored([("a", fits), ("b", None)])
    with pytest.raises(rows.UnfitError):
        codec.check_stored([("a", wrong)])


@pytest.mark.parametrize("kind", [pa.decimal128(5, 2), pa.list_(pa.int8())], ids=str)
def test_what_only_arrow_can_check_is_left_to_it(kind: pa.DataType) -> None:
    made = new_schema(pa.schema([("id", pa.string()), ("v", kind)]), ["id"], schema_id=1)
    assert not RowCodec(made).is_checkable


MIXED: dict[str, list[Any]] = {
    "a date and a time of day": [dt.date(2020, 1, 1), dt.datetime(2020, 1, 1, 15, 30)],
    "with a zone and without": [FAR, FAR.replace(tzinfo=dt.UTC)],
    "a time of day with a zone": [dt.time(1, tzinfo=dt.UTC)],
    "more digits than Arrow takes": [pd.Timestamp("2020-01-01T00:00:00.123456789")],
    "text and bytes": ["x", b"y"],
    "inside of structs": [{"a": dt.date(2020, 1, 1)}, {"a": dt.datetime(2020, 1, 1, 5)}],
}


@pytest.mark.parametrize("values", MIXED.values(), ids=MIXED)
def test_a_table_of_rows_takes_no_type_in_which_a_value_is_another(
    tmp_path: Path, values: list[Any]
) -> None:
    with st.connect(tmp_path / "s") as db:
        with pytest.raises(st.SchemaMismatchError, match="'v' have no common type; give a schema"):
            db.create_table("t", data=[{"v": value} for value in values])
        assert db.tables() == []
        db.create_table("t", data=[{"v": 1}, {"v": 2.5}, {"v": None}, {"v": np.float32(0.5)}])
        assert db["t"].to_arrow().column("v").to_pylist() == [1.0, 2.5, None, 0.5]


class Red(str, enum.Enum):  # noqa: UP042 - StrEnum has a `str()` of its own
    RED = "red"


class Named(str):
    __slots__ = ()

    def __str__(self) -> str:
        return "another text"


@pytest.mark.parametrize("given", [Red.RED, Named("red")])
def test_a_text_of_a_class_of_its_own_is_the_text_that_it_equals(
    tmp_path: Path, given: str
) -> None:
    with st.connect(tmp_path / "s") as db:
        columns = pa.schema([("k", pa.string()), ("v", pa.list_(pa.string()))])
        table = db.create_table("t", columns, primary_key="k")
        table.upsert({"k": given, "v": [given]})
        table.upsert(pa.table({"k": ["red"], "v": [["red"]]}))
        table.upsert({"k": given, "v": [given]})
        assert table.to_arrow().to_pylist() == [{"k": "red", "v": ["red"]}]
        assert table.get(given) == table.get("red")
        assert table.delete(given).rows == 1
        assert table.count() == 0


@pytest.mark.parametrize("nothing", [pd.NaT, pd.NA, np.datetime64("NaT")])
@pytest.mark.parametrize("kind", ["timestamp[us]", "timestamp[us, tz=UTC]", "date32", "int64"])
def test_a_missing_value_of_pandas_is_refused_by_the_columns_name(
    tmp_path: Path, nothing: object, kind: str
) -> None:
    with st.connect(tmp_path / "s") as db:
        table = db.create_table("t", {"id": "int64", "v": kind}, primary_key="id")
        with pytest.raises(st.SchemaMismatchError, match="column 'v' is"):
            table.upsert({"id": 1, "v": nothing})
