"""A write of Spark may create its table, add columns, or replace a part, in its one commit."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

import siltstone as st
from siltstone.spark import snapshot, transaction


@pytest.fixture
def path(tmp_path: Path) -> Iterator[Path]:
    """A store with a keyed and a plain table of the same rows; nobody owns it."""
    with st.connect(tmp_path / "store", background=False) as db:
        for name, key in (("t", "id"), ("p", ())):
            db.create_table(name, {"id": "int64", "day": "string", "v": "float64"}, key)
            (db[name].upsert if key else db[name].append)(
                [{"id": n, "day": f"d{n // 10}", "v": 0.0} for n in range(40)]
            )
    yield tmp_path / "store"
    with st.connect(tmp_path / "store", background=False) as db:
        assert db.verify(deep=True).is_sound


def frame(spark: SparkSession, first: int, last: int, *more: str) -> DataFrame:
    columns = ["id", "concat('d', cast(id div 10 as string)) day", "1.5d v", *more]
    return spark.range(first, last, 1, 3).selectExpr(*columns)


def save(rows: DataFrame, path: Path, table: str, mode: str = "append", **options: str) -> None:
    given = {"uri": str(path), "table": table, **options}
    rows.write.format("siltstone").options(**given).mode(mode).save()


def rows(path: Path, table: str) -> list[dict]:
    with st.connect(path, read_only=True) as db:
        return db[table].to_arrow().sort_by("id").to_pylist()


def newest(path: Path) -> tuple[int, list[str]]:
    with st.connect(path, read_only=True) as db:
        return db.seq, db.tables()


@pytest.mark.parametrize("mode", ["append", "overwrite"])
def test_a_write_creates_its_table_with_a_key(spark: SparkSession, path: Path, mode: str) -> None:
    before, _ = newest(path)
    given = frame(
        spark, 0, 30, "date'2026-11-25' d", "array(1, 2) a", "timestamp'2026-11-25 10:00:00' at",
        "named_struct('x', 1, 'y', 'z') s", "time'10:00:01' t", "1.25bd n", "map('k', 2) m",
    )  # fmt: skip
    save(given, path, "new", mode, primaryKey="day,id", op="insert")
    assert newest(path) == (before + 1, ["new", "p", "t"])
    with st.connect(path, read_only=True) as db:
        assert db["new"].primary_key == ("day", "id")
        assert [field.name for field in db["new"].schema if not field.nullable] == ["id", "day"]
        assert db["new"].count() == 30
        assert db["new"].get(("d0", 3)) == {
            "id": 3, "day": "d0", "v": 1.5, "d": dt.date(2026, 11, 25), "a": [1, 2],
            "at": dt.datetime(2026, 11, 25, 10, tzinfo=dt.UTC), "s": {"x": 1, "y": "z"},
            "t": dt.time(10, 0, 1), "n": Decimal("1.25"), "m": [("k", 2)],
        }  # fmt: skip
    back = spark.read.format("siltstone").load(f"{path}/new")
    assert sorted(back.collect()) == sorted(given.collect())
    save(frame(spark, 20, 40), path, "new", primaryKey="day,id", missing="null")  # it exists
    assert len(rows(path, "new")) == 40


def test_a_table_that_a_write_would_create_is_not_there_when_it_fails(
    spark: SparkSession, path: Path
) -> None:
    before = newest(path)
    failing = frame(spark, 0, 90).selectExpr("if(id = 80, raise_error('boom'), id) id", "day")
    doubled = frame(spark, 0, 90).selectExpr("id div 2 as id", "day")
    void = frame(spark, 0, 9, "null as nothing")
    bad = [
        (failing, {"primaryKey": "id"}, "boom"),
        (doubled, {"primaryKey": "id"}, "DuplicateKeyError"),
        (doubled, {"primaryKey": "ID"}, "no column 'ID'; did you mean 'id'"),
        (doubled, {"primaryKey": "id", "op": "delete"}, "op 'delete' creates no table"),
        (frame(spark, 0, 9), {"primaryKey": "v"}, "'v' of type double cannot be a key"),
        (void, {"primaryKey": "id"}, "column 'nothing' .* has no type, only nulls; cast it"),
        (doubled, {}, "no table 'new'"),
    ]
    for given, options, said in bad:
        with pytest.raises(Exception, match=said):
            save(given, path, "new", **options)
        assert newest(path) == before
    with pytest.raises(Exception, match=r"'t' has the key \('id',\), not \('day',\)"):
        save(frame(spark, 0, 9), path, "t", primaryKey="day")


@pytest.mark.parametrize("table", ["t", "p"])
def test_new_columns_of_a_frame_become_columns_of_the_table(
    spark: SparkSession, path: Path, table: str
) -> None:
    before, _ = newest(path)
    with pytest.raises(Exception, match=f"table '{table}' has no column 'w'"):
        save(frame(spark, 40, 50, "'new' w"), path, table)
    save(frame(spark, 40, 50, "'new' w", "id + 1 as n"), path, table, mergeSchema="true")
    assert newest(path)[0] == before + 1
    found = rows(path, table)
    assert [row["w"] for row in found] == [None] * 40 + ["new"] * 10
    assert [row["n"] for row in found[40:]] == list(range(41, 51))
    save(frame(spark, 0, 5, "'all' w", "0L n", "true b"), path, table, "overwrite",
         mergeSchema="true")  # fmt: skip
    assert rows(path, table)[0] == {"id": 0, "day": "d0", "v": 1.5, "w": "all", "n": 0, "b": True}
    assert len(rows(path, table)) == 5
    with st.connect(path, read_only=True) as db, db.snapshot(seq=before) as past:
        assert past[table].schema.names == ["id", "day", "v"]


def test_a_frame_that_lacks_columns_or_spells_them_otherwise_adds_none(
    spark: SparkSession, path: Path
) -> None:
    before = newest(path)
    with pytest.raises(Exception, match="table 't' has a column 'v', the rows have 'V'; rename it"):
        save(frame(spark, 0, 5).selectExpr("id", "day", "v V"), path, "t", mergeSchema="true")
    with pytest.raises(Exception, match="have no column 'v': an upsert replaces whole rows"):
        save(frame(spark, 0, 5, "1 w").drop("v"), path, "t", mergeSchema="true")
    with pytest.raises(Exception, match="'mergeSchema' must be one of true, false; got 'yes'"):
        save(frame(spark, 0, 5), path, "t", mergeSchema="yes")
    assert newest(path) == before


@pytest.mark.parametrize("table", ["t", "p"])
def test_replace_where_replaces_the_rows_that_match_and_no_others(
    spark: SparkSession, path: Path, table: str
) -> None:
    before, _ = newest(path)
    save(frame(spark, 13, 16), path, table, "overwrite", replaceWhere="day = 'd1'")
    assert newest(path)[0] == before + 1
    wanted = {n: 0.0 for n in range(40) if n // 10 != 1} | dict.fromkeys(range(13, 16), 1.5)
    assert {row["id"]: row["v"] for row in rows(path, table)} == wanted
    with pytest.raises(Exception, match=r"replaces only rows that match it; a row for .*'d2'"):
        save(frame(spark, 15, 25), path, table, "overwrite", replaceWhere="day = 'd1'")
    assert {row["id"]: row["v"] for row in rows(path, table)} == wanted
    save(frame(spark, 0, 0), path, table, "overwrite", replaceWhere="day = 'd1'")  # deletes
    assert {row["id"] for row in rows(path, table)} == {n for n in range(40) if n // 10 != 1}


def test_replace_where_loses_no_update_of_another_application(
    spark: SparkSession, path: Path
) -> None:
    read = spark.read.format("siltstone").load(f"{path}/t").where("day = 'd1'")
    assert read.count() == 10
    with st.connect(path, background=False) as db:
        db["t"].update(11, v=7.0)
    with pytest.raises(Exception, match="ConflictError: 't' was read at seq"):
        save(read, path, "t", "overwrite", replaceWhere="day = 'd1'")
    save(read, path, "t", "overwrite", replaceWhere="day = 'd1'", expectSeq=str(newest(path)[0]))


@pytest.mark.parametrize(
    ("mode", "options", "said"),
    [
        ("append", {"replaceWhere": "id > 3"}, "'replaceWhere' needs mode 'overwrite'"),
        ("overwrite", {"replaceWhere": "id >"}, "RequestError: .*id >"),
        ("overwrite", {"replaceWhere": "x > 3"}, "no column 'x'"),
        ("overwrite", {"replaceWhere": "id > 3", "op": "insert"}, "and no other op"),
        ("overwrite", {"replaceWhere": ""}, "option 'replaceWhere' is missing"),
        ("overwrite", {"replacewhere": "id > 3", "repalceWhere": ""}, "did you mean 'replaceWhere"),
    ],
)
def test_a_bad_replacement_is_one_sentence(
    spark: SparkSession, path: Path, mode: str, options: dict[str, str], said: str
) -> None:
    before = newest(path)
    with pytest.raises(Exception, match=said):
        save(frame(spark, 0, 5), path, "t", mode, **options)
    assert newest(path) == before


def test_versions_and_times_are_read_as_delta_names_them(spark: SparkSession, path: Path) -> None:
    with st.connect(path, background=False) as db:
        seq = db.seq
        db["t"].delete([0, 1])
        at = next(entry.time for entry in db.log(5) if entry.seq == seq)
    local = {"timestampAsOf": at.replace(tzinfo=None).isoformat(" "), "timeZone": "UTC"}
    for options in ({"versionAsOf": seq}, {"timestampAsOf": at.isoformat(" ")}, local):
        given = {name: str(value) for name, value in options.items()}
        found = spark.read.format("siltstone").options(**given).load(f"{path}/t")
        assert found.count() == 40
    assert spark.read.format("siltstone").load(f"{path}/t/").count() == 38
    late = {"timestampAsOf": "2099-01-01", "timeZone": "UTC"}
    with pytest.raises(Exception, match=r"at 2099.* in the future"):
        spark.read.format("siltstone").options(**late).load(f"{path}/t")


def test_a_stream_creates_its_table_and_adds_columns(
    spark: SparkSession, path: Path, tmp_path: Path
) -> None:
    changes = spark.readStream.format("siltstone").option("startingSeq", "earliest")
    for select in (["id", "day"], ["id", "day", "v"]):
        query = (
            changes.load(f"{path}/t").selectExpr(*select, "_seq as version")
            .writeStream.format("siltstone")
            .options(uri=str(path), table="copy", primaryKey="id", mergeSchema="true")
            .option("checkpointLocation", str(tmp_path / "-".join(select)))
            .trigger(availableNow=True).start()
        )  # fmt: skip
        query.awaitTermination()
    assert [row["v"] for row in rows(path, "copy")] == [0.0] * 40


# --- found by a stranger


@pytest.mark.parametrize("count", [1, 40_000], ids=["in the message", "in files"])
def test_a_replacement_may_bring_new_columns(spark: SparkSession, path: Path, count: int) -> None:
    new = spark.range(1000, 1000 + count).selectExpr("id", "'d1' day", "2.5d v", "7 n")
    for table in ("t", "p"):
        save(new, path, table, "overwrite", replaceWhere="day = 'd1'", mergeSchema="true")
        found = rows(path, table)
        assert [row["id"] for row in found if row["id"] < 1000] == [*range(10), *range(20, 40)]
        assert [row["n"] for row in found if row["n"] is not None] == [7] * count
    save(new, path, "t", "overwrite", replaceWhere="day = 'd1' and n = 7")
    assert len(rows(path, "t")) == 30 + count


def test_a_replacement_that_creates_its_table_checks_its_rows(
    spark: SparkSession, path: Path
) -> None:
    before = newest(path)
    given = frame(spark, 0, 30)
    for where, said in (("day = 'd9'", "replaces only rows that match"), ("no = 1", "no column")):
        with pytest.raises(Exception, match=said):
            save(given, path, "new", "overwrite", primaryKey="id", replaceWhere=where)
    assert newest(path) == before
    save(given, path, "new", "overwrite", primaryKey="id", replaceWhere="id < 30")
    assert len(rows(path, "new")) == 30


@pytest.mark.parametrize(
    ("column", "said"),
    [
        ("interval '1' year n", "column 'n' .* has type interval year, which no column"),
        ("array(interval '1' month) n", "column 'n' .* has type array<interval month>, which no"),
        ("parse_json('1') n", "column 'n' .* has type variant, which no column"),
        ("array(parse_json('1')) n", "column 'n' .* has type array<variant>, which no column"),
        ("'a' collate UNICODE_CI n", "column 'n' .* has type string collate UNICODE_CI, which no"),
        ("array(null) n", "column 'n' .* has no type, only nulls"),
        ("named_struct('x', null) n", "column 'n' .* has no type, only nulls"),
        ("1 V", "columns 'v' and 'V', which differ only in upper and lower case"),
    ],
)
def test_columns_that_no_table_can_have_are_one_sentence(
    spark: SparkSession, path: Path, column: str, said: str
) -> None:
    before = newest(path)
    spark.conf.set("spark.sql.caseSensitive", "true")
    try:
        given = frame(spark, 0, 3, column)
        with pytest.raises(Exception, match=f"SchemaMismatchError: .*{said}") as refused:
            save(given, path, "new", primaryKey="id")
    finally:
        spark.conf.unset("spark.sql.caseSensitive")
    assert "Traceback" not in str(refused.value)
    assert newest(path) == before


def test_an_upsert_of_a_key_twice_says_that_the_rows_have_it_twice(
    spark: SparkSession, path: Path
) -> None:
    given = spark.range(77, 79).selectExpr("77L id", "'x' day", "1.5d v")
    with pytest.raises(Exception, match=r"t\[77\] is twice among the rows: .* order_by"):
        save(given, path, "t")


def test_a_read_of_no_column_is_refused(spark: SparkSession, path: Path) -> None:
    none: list[str] = []
    with snapshot(spark, path) as shop:
        for columns in (none, "id"):
            with pytest.raises(st.RequestError, match="columns must be a list of at least one"):
                shop.read("t", columns)
            with pytest.raises(st.RequestError, match="columns must be a list of at least one"):
                shop.create_views(["t"], columns={"t": columns})
        with pytest.raises(st.RequestError, match="rows_max"):
            shop.read("t", rows_max=0)


def test_a_transaction_writes_frames_of_spark_alone(path: Path) -> None:
    rows: Any = [1]
    with transaction(path) as tx, pytest.raises(st.RequestError, match="writes frames of Spark"):
        tx.write(rows, "t")
