"""The example pipelines do what they say, also when they run again."""

import datetime as dt
import runpy
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import siltstone as st

PIPELINES = Path(__file__).parents[2] / "examples" / "pipelines"

pytestmark = pytest.mark.usefixtures("spark")  # which the scripts find by themselves


def run(script: str, *arguments: object) -> None:
    main = SimpleNamespace(**runpy.run_path(str(PIPELINES / script))).main
    main(*map(str, arguments))


def raw_sales(folder: Path) -> None:
    moment = dt.datetime(2026, 11, 20, 12, tzinfo=dt.UTC)
    rows = [
        (1, 7, Decimal("1.50"), moment),
        (2, 7, Decimal("2.25"), moment),
        (2, 7, Decimal("2.25"), moment),  # came twice
        (3, 8, Decimal("9.00"), moment),
        (4, 8, Decimal("5.00"), moment + dt.timedelta(days=1)),
    ]
    names = ["id", "customer", "amount", "sold_at"]
    types = [pa.int64(), pa.int64(), pa.decimal128(12, 2), pa.timestamp("us", "UTC")]
    table = pa.Table.from_arrays(
        [
            pa.array(column, kind)
            for column, kind in zip(zip(*rows, strict=True), types, strict=True)
        ],
        names=names,
    )
    pq.write_table(table, folder / "sales.parquet")


def test_a_day_that_is_loaded_again_leaves_the_same_rows(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    raw, store = tmp_path / "raw", tmp_path / "shop"
    raw.mkdir()
    raw_sales(raw)
    for _ in range(2):
        run("batch_etl.py", raw, store, "2026-11-20")
    assert "|       8|2026-11-20|    1|  9.00|" in capsys.readouterr().out
    with st.connect(store, read_only=True) as db:
        assert sorted(db["sales"].to_arrow()["id"].to_pylist()) == [1, 2, 3]
        totals = db["totals"].to_arrow().sort_by("customer").to_pylist()
        assert [(row["customer"], row["sales"], row["amount"]) for row in totals] == [
            (7, 2, Decimal("3.75")),
            (8, 1, Decimal("9.00")),
        ]
        log = [(entry.tables, entry.rows) for entry in db.log(limit=2)]
        assert log == [(("sales", "totals"), 5)] * 2


def test_changes_of_one_store_go_into_another_exactly_once(
    tmp_path: Path, spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    source, target, checkpoint = (tmp_path / name for name in ("source", "target", "checkpoint"))
    with st.connect(source) as db:
        schema = {"id": "int64", "customer": "int64", "total": "float64"}
        orders = db.create_table("orders", schema, primary_key="id")
        orders.insert([{"id": n, "customer": n % 3, "total": float(n)} for n in range(20)])
    run("stream_copy.py", source, target, checkpoint)
    with st.connect(source) as db:
        db["orders"].delete([3, 4])
        db["orders"].upsert({"id": 5, "customer": 1, "total": -1.0})
        db["orders"].upsert({"id": 5, "customer": 1, "total": -2.0})
        rows = db["orders"].to_arrow().sort_by("id")
    for _ in range(2):
        run("stream_copy.py", source, target, checkpoint)
        with st.connect(target, read_only=True) as db:
            assert db["orders"].to_arrow().sort_by("id").equals(rows)
    assert "18 orders at seq" in capsys.readouterr().out
