"""`CREATE TABLE .. USING siltstone` makes a table of Spark's catalog that shows the newest rows."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import siltstone as st
from siltstone.errors import RequestError
from siltstone.spark.catalog_tables import options_of_create

DDL = {"owner": "ann", "provider": "siltstone"}  # what Spark adds to the options of a new table
ONLY_READ = "reads of a table of Spark's catalog .* WITH \\(uri = "


@pytest.fixture
def path(tmp_path: Path, spark: SparkSession) -> Iterator[Path]:
    """A store of two tables in a folder with a name that paths in URIs would spell otherwise."""
    root = tmp_path / "a b%20c ü" / "store"
    with st.connect(root, background=False) as db:
        db.create_table("t", {"id": "int64", "v": "float64"}, "id")
        db.create_table("names", {"id": "int64", "name": "string"}, "id")
        db["t"].upsert([{"id": n, "v": float(n)} for n in range(40)])
        db["names"].upsert([{"id": n, "name": f"n{n}"} for n in range(40)])
    yield root
    for name in ("shop_t", "shop_names", "copy"):
        spark.sql(f"DROP TABLE IF EXISTS {name}")
    with st.connect(root, background=False) as db:
        assert db.verify(deep=True).is_sound


def create(spark: SparkSession, path: Path, **more: str) -> None:
    given = {"uri": str(path), "table": "t", **more}
    options = ", ".join(f"`{name}` '{text}'" for name, text in given.items())
    spark.sql(f"CREATE TABLE shop_t USING siltstone OPTIONS ({options})")


def values(spark: SparkSession, query: str) -> list[Any]:
    return [tuple(row) if len(row) > 1 else row[0] for row in spark.sql(query).collect()]


def commit(path: Path, *rows: dict[str, Any]) -> int:
    with st.connect(path, background=False) as db:
        db["t"].upsert(list(rows))
        return db.seq


def test_each_query_of_it_reads_the_newest_rows_or_those_of_the_seq_it_names(
    spark: SparkSession, path: Path
) -> None:
    create(spark, path)
    assert values(spark, "SELECT count(*), sum(v) FROM shop_t") == [(40, 780.0)]
    before = commit(path, {"id": 0, "v": 1.0}, {"id": 40, "v": 40.0}) - 1
    assert values(spark, "SELECT sum(v) FROM shop_t") == [821.0]
    assert values(spark, f"SELECT sum(v) FROM shop_t WITH (seq = {before})") == [780.0]
    assert values(spark, "SELECT a.v FROM shop_t a JOIN shop_t b ON a.id = b.id + 40") == [40.0]
    spark.sql(f"CREATE TABLE shop_names USING siltstone LOCATION '{path}/names'")
    joined = "SELECT v, name FROM shop_t JOIN shop_names USING (id) WHERE id IN (0, 7)"
    assert sorted(values(spark, joined)) == [(1.0, "n0"), (7.0, "n7")]


def test_a_frame_of_it_keeps_the_seq_of_its_first_query(spark: SparkSession, path: Path) -> None:
    create(spark, path)
    frame = spark.table("shop_t")
    assert frame.count() == 40
    commit(path, {"id": 40, "v": 40.0})
    assert frame.count() == 40
    assert spark.table("shop_t").count() == 41


def test_it_is_created_by_the_catalog_api_too_and_keeps_what_it_was_given(
    spark: SparkSession, path: Path
) -> None:
    seq = commit(path, {"id": 0, "v": 5.0})
    given = {"uri": str(path), "table": "t", "versionAsOf": str(seq), "columns": "v"}
    spark.catalog.createTable("shop_t", source="siltstone", schema=None, description=None, **given)
    commit(path, {"id": 0, "v": 9.0})
    assert values(spark, "SELECT * FROM shop_t WHERE v < 6 ORDER BY v") == [1.0, 2, 3, 4, 5, 5]


def test_dropping_it_leaves_the_store(spark: SparkSession, path: Path) -> None:
    spark.sql(f"CREATE TABLE shop_t USING siltstone LOCATION '{path}/t'")
    create_too = f"CREATE TABLE shop_names USING siltstone OPTIONS (path '{path}/names')"
    spark.sql(create_too)
    assert values(spark, "SELECT count(*) FROM shop_t JOIN shop_names USING (id)") == [40]
    before = sorted(path.rglob("*"))
    for name in ("shop_t", "shop_names"):
        spark.sql(f"DROP TABLE {name}")
    assert sorted(path.rglob("*")) == before


def test_columns_that_the_store_adds_later_are_left_out_until_spark_is_told(
    spark: SparkSession, path: Path
) -> None:
    create(spark, path)
    with st.connect(path, background=False) as db:
        db["t"].add_column("n", "int32")
        db["t"].update(3, n=7)
    assert values(spark, "SELECT * FROM shop_t WHERE id = 3") == [(3, 3.0)]
    spark.sql("ALTER TABLE shop_t ADD COLUMN n int")
    assert values(spark, "SELECT * FROM shop_t WHERE id = 3") == [(3, 3.0, 7)]
    with st.connect(path, background=False) as db:
        db["t"].drop_column("n")
    with pytest.raises(Exception, match="SchemaMismatchError: table 't' has no column 'n'"):
        spark.table("shop_t").count()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("TBLPROPERTIES ('uri' = '{path}', 'table' = 't')", r"OPTIONS \(uri '..', table '..'\)"),
        ("OPTIONS (uri '{path}')", "option 'table' is missing"),
        ("OPTIONS (uri '{path}', tabel 't')", "no option 'tabel'; did you mean 'table'"),
        ("OPTIONS (uri '{path}', table 'x')", "there is no table 'x'"),
        ("OPTIONS (uri '{path}/no', table 't')", "is not a store"),
        ("OPTIONS (uri '{path}', table 't') LOCATION '/other/t'", "the store is given twice"),
        ("OPTIONS (uri '{path}', table 't', startingSeq '0')", "'startingSeq' is for streams"),
        ("OPTIONS (uri '{path}', table 't', readChangeFeed 'true')", "'readChangeFeed' is for"),
        ("OPTIONS (uri '{path}', table 't', pushdown 'single_use')", "'pushdown' is a promise"),
        ("LOCATION 's3://bucket/store/t'", "s3://bucket/store"),
        ("LOCATION '{path}/no/t'", "is not a store"),
    ],
)
def test_what_could_not_be_read_is_not_created(
    spark: SparkSession, path: Path, given: str, said: str
) -> None:
    with pytest.raises(Exception, match=said):
        spark.sql(f"CREATE TABLE shop_t USING siltstone {given.replace('{path}', str(path))}")
    assert not spark.catalog.tableExists("shop_t")
    assert not (path / "no").exists()


def test_it_is_read_only_for_what_names_no_store_also_where_a_copy_would_go_to_the_original(
    spark: SparkSession, path: Path
) -> None:
    create(spark, path)
    for statement in (
        "INSERT INTO shop_t VALUES (50L, 1.0d)",
        "INSERT OVERWRITE shop_t SELECT id + 1, v FROM shop_t",
        "CREATE TABLE copy USING siltstone AS SELECT id + 100 AS id, v FROM shop_t",
        f"CREATE TABLE copy USING siltstone LOCATION '{path}/u' AS SELECT * FROM shop_t",
    ):
        with pytest.raises(Exception, match=ONLY_READ):
            spark.sql(statement)
    with pytest.raises(Exception, match=ONLY_READ):
        spark.table("shop_t").write.format("siltstone").mode("overwrite").save()
    changes = spark.readStream.option("startingSeq", "earliest").table("shop_t")
    with pytest.raises(Exception, match=ONLY_READ):
        changes.writeStream.format("noop").start().processAllAvailable()
    assert not spark.catalog.tableExists("copy")
    assert values(spark, "SELECT count(*), sum(v), max(id) FROM shop_t") == [(40, 780.0, 39)]


def test_rows_of_it_are_written_where_the_options_say(spark: SparkSession, path: Path) -> None:
    create(spark, path)
    other = {"uri": str(path), "table": "other", "primaryKey": "id"}
    rows = spark.table("shop_t").where("id < 3")
    rows.write.format("siltstone").options(**other).mode("append").save()
    here = f"uri = '{path}', table = 't'"
    spark.sql(f"INSERT INTO shop_t WITH ({here}) VALUES (40L, 0.5d)")
    with st.connect(path, read_only=True) as db:
        assert (db["other"].count(), db["t"].count()) == (3, 41)
        assert db["other"].primary_key == ("id",)


def test_a_query_of_it_is_a_read_that_an_overwrite_heeds(spark: SparkSession, path: Path) -> None:
    create(spark, path)
    assert values(spark, "SELECT count(*) FROM shop_t") == [40]
    commit(path, {"id": 41, "v": 0.0})
    rows = spark.range(3).selectExpr("id", "0.5d v").write.format("siltstone")
    with pytest.raises(Exception, match="ConflictError"):
        rows.mode("overwrite").options(uri=str(path), table="t").save()


def test_options_of_other_frames_are_not_those_of_a_new_table() -> None:
    assert options_of_create({"uri": "/shop", "table": "t"}) is None
    assert options_of_create({"uri": "/shop", "table": "t", "owner": "me"}) is None
    found = options_of_create({**DDL, "option.uri": "/shop", "uri": "/shop", "option.table": "t"})
    assert found == {"uri": "/shop", "table": "t"}
    found = options_of_create({"owner": "ann", "location": "file:/a b/t", "path": "file:/a b/t"})
    assert found == {"path": "/a b/t"}
    with pytest.raises(RequestError, match="OPTIONS"):
        options_of_create({**DDL, "uri": "/shop", "table": "t"})
