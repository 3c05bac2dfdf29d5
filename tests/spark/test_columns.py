"""A query of a snapshot's frame reads the columns that it uses; the rows are those of a scan."""

from __future__ import annotations

import gc
import pickle
from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import DecimalType, LongType, StructField, StructType

import siltstone as st
from siltstone.errors import InvariantError
from siltstone.spark import columns, schemas, snapshot
from siltstone.spark.application import Read
from siltstone.spark.columns import STEP_MAX, ColumnValues, NumberedRows, frame_by_columns, step_of
from siltstone.spark.short_decimals import as_integers, is_short
from siltstone.spark.snapshots import STORED_BYTES_MAX
from siltstone.spark.task_rows import Told
from tests.maintenance.stores import Clock, open_store
from tests.spark.test_types import ROWS, SCHEMA

FIELDS = {"id": "int64", "v": "float64", "name": "string"}


def rows(ids: np.ndarray, v: float) -> pa.Table:
    names = pa.array([None if n % 7 == 0 else f"n{n % 10}" for n in ids.tolist()], pa.string())
    return pa.table({"id": ids, "v": np.full(len(ids), v), "name": names})


def grown(db: st.Store) -> None:
    """Put rows into base, its hidden ones too, history and the log."""
    table = db.create_table("t", FIELDS, primary_key="id")
    for low in (0, 4_000, 8_000):
        table.upsert(rows(np.arange(low, low + 4_000), 1))
        db.checkpoint()
        db.merge()
    table.upsert(rows(np.arange(3_900, 4_200), 2))
    db.checkpoint()
    table.delete(list(range(100, 1_100)))
    db.checkpoint()
    db.merge()
    table.upsert(rows(np.arange(7_990, 8_300), 3))
    db.checkpoint()
    table.delete([0, 5_000, 8_100])
    table.upsert(rows(np.arange(11_990, 12_400), 4))
    table.add_column("note", "string")
    table.upsert([{"id": n, "v": 5.0, "note": "new"} for n in (1, 3_950, 20_000)], "null")


@pytest.fixture(scope="module")
def db(tmp_path_factory: pytest.TempPathFactory) -> Iterator[st.Store]:
    path = tmp_path_factory.mktemp("columns") / "store"
    with st.connect(path, background=False) as store:
        grown(store)
        store.create_table("other", FIELDS, primary_key="id").upsert(rows(np.arange(5), 0))
        store.create_table("empty", FIELDS)
        yield store


def in_order(table: pa.Table) -> list[dict[str, Any]]:
    return table.sort_by("id").to_pylist()


def plan_of(frame: DataFrame) -> str:
    text: str = frame._jdf.queryExecution().executedPlan().toString()
    return text


def numbered(
    now: st.Snapshot, partitions: int, rows_max: int = 1 << 20, step: int = 1
) -> NumberedRows:
    schema = now["t"].schema
    tasks = now.scan_tasks("t", rows_max=rows_max)
    told = Told(Read("", 0, "t", now.seq), None, is_local=True)
    ends = tuple(accumulate(task.rows for task in tasks))
    packed = tuple(pickle.dumps(task) for task in tasks)
    return NumberedRows("1", schemas.to_spark(schema), told, None, partitions, step, ends, packed)


# --- what is read


def test_a_query_reads_the_columns_that_it_uses_however_it_is_written(
    spark: SparkSession, db: st.Store
) -> None:
    with snapshot(spark, db) as now:
        now.create_views(["t"])
        asked = [
            now["t"].select("v").where("v > 2"),
            now["t"].where("v > 2").groupBy("v").count(),
            spark.sql("select sum(v) from t"),
            spark.sql("select id.v from (select * from t) id order by v limit 3"),
        ]
        for frame in asked:
            plan = plan_of(frame)
            assert "v of siltstone: t at seq" in plan
            assert "name of siltstone" not in plan
            assert "id of siltstone" not in plan


def test_spark_counts_the_rows_without_reading_any(spark: SparkSession, db: st.Store) -> None:
    with snapshot(spark, db) as now:
        frame = now["t"].groupBy().count()
        assert "of siltstone" not in plan_of(frame)
        assert frame.first() == (db["t"].count(),)
        assert now["empty"].count() == 0


def test_a_step_reads_its_columns_in_one_scan_and_starts_anew_where_one_joins_late(
    db: st.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    scans: list[list[str]] = []
    read = NumberedRows.read

    def counted(self: NumberedRows, first: int, wanted: list[str]) -> Iterator[pa.RecordBatch]:
        scans.append(list(wanted))
        return read(self, first, wanted)

    monkeypatch.setattr(NumberedRows, "read", counted)
    with db.snapshot() as now:
        plan, whole = numbered(now, 2, step=3), in_order(now["t"].to_arrow())
        ids, names = (ColumnValues("f", plan, name) for name in ("id", "name"))
        found: list[tuple[int, str | None]] = []
        for first in range(0, plan.rows, 1_000):
            numbers = pa.array(range(3 * first, min(3 * (first + 1_000), plan.numbers), 3))
            found += zip(ids(numbers).to_pylist(), names(numbers).to_pylist(), strict=True)
        assert sorted(found) == [(row["id"], row["name"]) for row in whole]
        assert scans == [["id", "name"]]
        late = ColumnValues("f", plan, "v")
        again = pa.array(range(150, 180, 3))
        assert len(late(again)) == len(ids(again)) == 10
        assert scans[1:] == [["id", "name", "v"]]
        del ids, names, late
        gc.collect()
        assert "1" not in columns._readers


def test_a_large_table_is_not_broadcast_and_a_small_one_is(
    spark: SparkSession, db: st.Store
) -> None:
    with snapshot(spark, db) as now, db.snapshot() as here:
        plan = replace(numbered(here, 8, step=step_of(60)), ends=(10**9,))
        huge = frame_by_columns(spark, plan, "many rows")  # planned, and not read
        assert "SortMergeJoin" in plan_of(huge.join(huge.where("v >= 0").select("id"), "id"))
        assert "BroadcastHashJoin" in plan_of(huge.join(now["t"], "id"))
        assert [step_of(width) for width in (8, 44, 100, 1 << 20)] == [1, 2, 6, STEP_MAX]


# --- which rows


@pytest.mark.parametrize("rows_max", [700, 5_000, 1 << 20])
def test_rows_from_any_number_on_are_those_of_the_scan_in_one_order(
    db: st.Store, rows_max: int
) -> None:
    with db.snapshot() as now:
        whole = pa.Table.from_batches(numbered(now, 1).read(0, ["id", "v", "name", "note"]))
        assert in_order(whole) == in_order(now["t"].to_arrow())
        for partitions in (1, 3, 64):
            plan = numbered(now, partitions, rows_max, step=partitions % 5 + 1)
            ids = [n for b in plan.read(0, ["id"]) for n in b["id"].to_pylist()]
            assert len(ids) == len(set(ids)) == plan.rows == db["t"].count()
            for first in (1, 2_999, 3_000, plan.rows - 412, plan.rows - 1):
                notes = [n for b in plan.read(first, ["note"]) for n in b["note"].to_pylist()]
                assert len(notes) == plan.rows - first
                rest = pa.Table.from_batches(plan.read(first, ["name", "id"]))
                assert rest.column_names == ["name", "id"]
                assert rest["id"].to_pylist() == ids[first:]


@pytest.mark.parametrize("rows_at_once", [7, 10_000])
def test_a_frame_has_the_rows_of_the_scan_however_many_spark_asks_for_at_once(
    spark: SparkSession, db: st.Store, rows_at_once: int
) -> None:
    setting = "spark.sql.execution.arrow.maxRecordsPerBatch"
    before = spark.conf.get(setting)
    spark.conf.set(setting, rows_at_once)
    try:
        with snapshot(spark, db) as now, db.snapshot() as wanted:
            found = now["t"].toArrow()
            assert in_order(found) == in_order(wanted["t"].to_arrow())
            assert now["t"].coalesce(1).select("id").distinct().count() == len(found)
            assert len(now["t"].limit(5).collect()) == 5
            assert len(now["t"].orderBy("id").offset(len(found) - 3).collect()) == 3
    finally:
        spark.conf.set(setting, before)


def test_queries_of_any_form_answer_as_they_do_over_rows_in_hand(
    spark: SparkSession, db: st.Store
) -> None:
    with snapshot(spark, db) as now, db.snapshot() as wanted:
        now.create_views(["t", "other"])
        for name in ("t", "other"):
            spark.createDataFrame(wanted[name].to_arrow()).createOrReplaceTempView(f"hand_{name}")
        asked = [
            "select count(*), sum(id), max(name), count(note) from {t}",
            "select a.id, b.v from {t} a join {t} b on a.id = b.id + 1 where a.v > 1 order by 1",
            "select id from {t} where exists (select 1 from {o} where {o}.id = {t}.id) order by id",
            "select id from {t} where id not in (select id from {o}) order by id limit 20",
            "select id, (select max(v) from {o} where {o}.name = {t}.name) m from {t} order by id",
            (
                "select v, count(*) from (select v from {t} union all select v from {o}) group by v"
                " order by v"
            ),
            "select id, row_number() over (partition by v order by id desc) n from {t} order by id",
            (
                "select * from (select v, name from {t}) pivot (count(1) for name in ('n1', 'n2'))"
                " order by v"
            ),
        ]
        for text in asked:
            ours = spark.sql(text.format(t="t", o="other")).collect()
            assert ours == spark.sql(text.format(t="hand_t", o="hand_other")).collect(), text
        kept = now["t"].where("v > 1").cache()
        assert kept.count() == kept.select("name").count() == wanted["t"].count("v > 1")
        kept.unpersist()
        for name in ("hand_t", "hand_other"):
            spark.catalog.dropTempView(name)


REFUSED = [
    "select o.id, s.n from {o} o, lateral (select count(*) n from {t} t where t.id < o.id) s",
    "select sum(v / (select max(id) from {t})) from {o}",
    "select a.id from {o} a join {o} b on a.id = b.id and a.id < (select avg(id) from {t})",
]
"""Forms of subqueries that Spark takes over deterministic expressions alone."""


@pytest.mark.parametrize("text", REFUSED)
def test_what_spark_refuses_of_such_a_view_it_takes_of_one_with_named_columns(
    spark: SparkSession, db: st.Store, text: str
) -> None:
    with snapshot(spark, db) as now, db.snapshot() as wanted:
        now.create_views(["t", "other"])
        now.create_views(["t", "other"], "named_", columns={"t": ["id"], "other": ["id", "v"]})
        for name in ("t", "other"):
            spark.createDataFrame(wanted[name].to_arrow()).createOrReplaceTempView(f"hand_{name}")
        with pytest.raises(Exception, match=r"(?i)non-?_?deterministic"):
            spark.sql(text.format(t="t", o="other")).collect()
        found = spark.sql(text.format(t="named_t", o="named_other")).collect()
        assert sorted(found) == sorted(spark.sql(text.format(t="hand_t", o="hand_other")).collect())
        for name in ("t", "other"):
            spark.catalog.dropTempView(f"hand_{name}")


# --- of which types


def test_all_types_come_as_they_do_by_named_columns_and_say_whether_they_have_nulls(
    spark: SparkSession, tmp_path: Path
) -> None:
    never = [field.with_nullable(False).with_name(f"{field.name}_") for field in SCHEMA]
    kinds: dict[str, pa.DataType] = {
        "truth": pa.bool_(), "tiny": pa.int8(), "single": pa.float32(), "at": pa.timestamp("us"),
        "then": pa.timestamp("us", "UTC"), "time": pa.time64("us"), "price": pa.decimal128(5, 5),
        "text": pa.string(), "big": pa.uint64(),
    }  # fmt: skip
    more = [pa.field(name, kind, nullable=False) for name, kind in kinds.items()]
    with st.connect(tmp_path / "s", background=False) as db:
        db.create_table("t", SCHEMA, "id").upsert(ROWS)
        whole = pa.schema([*never, *more])
        db.create_table("never", whole)
        given = [
            {**{f"{n}_": v for n, v in row.items()}, **values}
            for row in ROWS[:2]
            for values in [
                {
                    "truth": True, "tiny": -1, "single": 0.5, "at": 1, "then": 2, "time": 3,
                    "price": Decimal("0.12345"), "text": "x", "big": 1 << 63,
                }
            ]
        ]  # fmt: skip
        db["never"].append(pa.Table.from_pylist(given, whole))
        with snapshot(spark, db) as now:
            for name in ("t", "never"):
                frame, named = now[name], now.read(name)
                assert frame.schema == named.schema == schemas.to_spark(db[name].schema)
                key = frame.columns[0]
                assert frame.orderBy(key).collect() == named.orderBy(key).collect()
                assert frame.select(key).count() == len(given) + (name == "t")


def test_short_decimals_are_integers_on_their_way(spark: SparkSession, tmp_path: Path) -> None:
    kinds = [(1, 0), (9, 4), (15, 2), (17, 0), (16, 1), (8, 8), (18, 0), (12, 6), (38, 10)]
    assert [is_short(DecimalType(*kind)) for kind in kinds] == [True] * 6 + [False] + [False] * 2
    assert is_short(DecimalType(11, 6))
    assert not is_short(LongType())
    names = {f"d{p}_{s}": Decimal((0, (9,) * p, -s)) for p, s in kinds}
    fields = [pa.field(f"d{p}_{s}", pa.decimal128(p, s)) for p, s in kinds]
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), *fields])
    tiny = {f"d{p}_{s}": Decimal((0, (1,), -s)) for p, s in kinds}
    given = [
        {"id": 0} | names,
        {"id": 1} | {name: most.copy_negate() for name, most in names.items()},
        {"id": 2} | dict.fromkeys(names),
        {"id": 3} | tiny,
        {"id": 4} | dict.fromkeys(names, Decimal(0)),
    ]
    with st.connect(tmp_path / "s", background=False) as db:
        db.create_table("t", schema, "id").upsert(pa.Table.from_pylist(given, schema))
        with snapshot(spark, db) as now:
            frame = now["t"].orderBy("id")
            assert frame.schema == now.read("t").schema
            assert frame.collect() == now.read("t").orderBy("id").collect()
            assert [row.asDict() for row in frame.collect()] == given
            for name, most in names.items():
                is_most = f"{name} = cast('{most:f}' as decimal({name[1:].replace('_', ',')}))"
                assert [row.id for row in now["t"].where(is_most).collect()] == [0]
                assert now["t"].agg({name: "sum"}).first()[0] == tiny[name]


def test_integers_of_decimals_are_those_of_a_part_of_an_array() -> None:
    values = [Decimal("1.25"), None, Decimal("-99.99"), Decimal("0.01"), None]
    array = pa.array(values, pa.decimal128(4, 2))
    expected = [125, None, -9999, 1, None]
    for first in range(6):
        for end in range(first, 6):
            found = as_integers(array.slice(first, end - first))
            assert found.type == pa.int64()
            assert found.to_pylist() == expected[first:end]


# --- what is refused


def test_a_plan_whose_files_are_gone_is_an_expired_snapshot(tmp_path: Path) -> None:
    clock = Clock()
    with open_store(tmp_path / "s", clock, real_lance=True, retention_s=86_400) as db:
        table = db.create_table("t", FIELDS, primary_key="id")
        table.upsert(rows(np.arange(1_000), 1))
        db.checkpoint()
        db.merge()
        with db.snapshot() as now:
            plan = numbered(now, 2)
        for v in (2, 3):
            clock.move(days=2)
            table.upsert(rows(np.arange(1_000), v))
            db.checkpoint()
            db.merge()
        db.vacuum(dry_run=False, grace_s=0)
        with pytest.raises(st.SnapshotExpiredError, match="a part of 't' that was planned earlier"):
            list(plan.read(0, ["id"]))


def test_wide_rows_are_read_in_batches_of_bounded_size(spark: SparkSession, tmp_path: Path) -> None:
    with st.connect(tmp_path / "s", background=False) as db:
        table = db.create_table("t", {"id": "int64", "body": "binary"}, "id")
        random = np.random.default_rng(1)
        for n in range(4):
            table.upsert({"id": n, "body": random.bytes(STORED_BYTES_MAX // 3)})
        for is_flushed in (False, True):
            if is_flushed:
                db.checkpoint()
                db.merge()
            with snapshot(spark, db) as now:
                assert "MapInArrow" in plan_of(now["t"])
                assert now["t"].where("length(body) > 10").count() == 4


def test_frames_that_spark_would_ask_for_too_much_are_read_with_all_columns(
    spark: SparkSession, tmp_path: Path
) -> None:
    setting = "spark.sql.execution.arrow.maxRecordsPerBatch"
    before = spark.conf.get(setting)
    with st.connect(tmp_path / "s", background=False) as db:
        db.create_table("t", FIELDS, "id").upsert(rows(np.arange(10), 1))
        many = {f"c{n}": "int64" for n in range(500)}
        db.create_table("many", {"id": "int64"} | many, "id").insert({"id": 1, "c7": 7})
        with snapshot(spark, db) as now:
            assert "MapInArrow" in plan_of(now["many"])
            assert now["many"].select("c7").collect() == [(7,)]
            assert "MapInArrow" not in plan_of(now["t"])
        spark.conf.set(setting, 0)  # a whole partition at a time
        try:
            with snapshot(spark, db) as now:
                assert "MapInArrow" in plan_of(now["t"])
                assert now["t"].count() == 10
        finally:
            spark.conf.set(setting, before)


def test_a_batch_that_is_too_large_and_a_null_where_there_is_none_are_errors(
    db: st.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    with db.snapshot() as now:
        plan = numbered(now, 1)
        monkeypatch.setattr(columns, "BATCH_BYTES_MAX", 1_000)
        with pytest.raises(st.SchemaMismatchError, match="Spark asks for 2000 rows at a time"):
            ColumnValues("f", plan, "v")(pa.array(range(2_000)))
        fields = [StructField(f.name, f.dataType, nullable=False) for f in plan.schema.fields]
        plan = replace(plan, token="2", schema=StructType(fields))
        with pytest.raises(InvariantError, match="column 'note' has nulls"):
            ColumnValues("f", plan, "note")(pa.array([0, 1]))
        assert len(ColumnValues("f", plan, "note")(pa.array([], pa.int64()))) == 0


def test_numbers_with_gaps_and_tasks_with_other_rows_than_planned_are_errors(db: st.Store) -> None:
    with db.snapshot() as now:
        plan = numbered(now, 1)
        values = ColumnValues("f", plan, "id")
        with pytest.raises(InvariantError, match="Spark asks for 2 of the rows 1 to 3"):
            values(pa.array([1, 3]))
        assert values(pa.array([], pa.int64())).to_pylist() == []
        first: st.ScanTask = pickle.loads(plan.tasks[0])
        short = pickle.dumps(replace(first, rows=first.rows + 1))
        ends = tuple(end + 1 for end in plan.ends)
        lying = replace(plan, tasks=(short, *plan.tasks[1:]), ends=ends)
        with pytest.raises(InvariantError, match=f"a task has {first.rows} rows, its plan says"):
            list(lying.read(0, ["id"]))
