"""A table of Spark's catalog has the options of its CREATE TABLE, or a query of it is refused."""

from __future__ import annotations

import json
import zoneinfo
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import LongType, StructField, StructType

import siltstone as st
from siltstone.errors import RequestError
from siltstone.spark import catalog_search, catalog_tables, register
from siltstone.spark.catalog_search import FrameSeqs, options_of
from siltstone.spark.session_answers import serve

VIEW = "CREATE TEMPORARY VIEW .. USING siltstone OPTIONS"
SEVERAL = "of Spark's catalog have exactly the columns of this query"
GONE = "no table of Spark's catalog has the columns of this query"
ONLY_READ = "a table of Spark's catalog is only read; to write it, use CREATE TEMPORARY VIEW"
HAS_ROWS = "a table of Spark's catalog has the rows of a table; for its changes, use"


@pytest.fixture
def db(tmp_path: Path) -> Iterator[st.Store]:
    """A store with a keyed table and two that have the same columns and no key."""
    with st.connect(tmp_path / "a shop", background=False) as found:
        found.create_table("orders", {"id": "int64", "v": "float64"}, primary_key="id")
        found["orders"].upsert([{"id": 1, "v": 1.0}, {"id": 2, "v": 2.0}])
        for name in ("plain", "other"):
            found.create_table(name, {"s": "string"})
            found[name].append({"s": name})
        found.serve_local()
        yield found


@pytest.fixture
def catalog(spark: SparkSession, db: st.Store) -> Iterator[SparkSession]:
    """A catalog with a table for each of the two kinds."""
    register(spark)
    make(spark, db, "orders")
    make(spark, db, "plain")
    yield spark
    for table in spark.catalog.listTables():
        spark.sql(f"DROP {'VIEW' if table.tableType == 'VIEW' else 'TABLE'} {table.name}")


def make(spark: SparkSession, db: st.Store, table: str, name: str = "") -> None:
    spark.sql(
        f"CREATE TABLE {name or table} USING siltstone OPTIONS (uri '{db.path}', Table '{table}')"
    )


def rows(spark: SparkSession, query: str) -> list[tuple[Any, ...]]:
    return sorted(tuple(row) for row in spark.sql(query).collect())


def of_java(spark: SparkSession) -> Any:
    return cast("Any", spark.sparkContext)._jvm.java


def test_each_query_reads_the_newest_rows(catalog: SparkSession, db: st.Store) -> None:
    assert rows(catalog, "SELECT * FROM orders") == [(1, 1.0), (2, 2.0)]
    db["orders"].upsert({"id": 3, "v": 3.0})
    assert rows(catalog, "SELECT v FROM orders WHERE id > 1") == [(2.0,), (3.0,)]
    assert rows(catalog, "SELECT a.id FROM orders a JOIN orders b ON a.id = b.id - 1") == [
        (1,),
        (2,),
    ]
    assert catalog.table("orders").count() == 3


def test_a_query_adds_options_to_those_of_the_table(catalog: SparkSession, db: st.Store) -> None:
    seq = db.seq
    db["orders"].delete(1)
    assert rows(catalog, f"SELECT id FROM orders WITH (seq = {seq})") == [(1,), (2,)]
    assert rows(catalog, f"SELECT id FROM orders WITH (seq = {seq + 1})") == [(2,)]
    other = f"SELECT * FROM plain WITH (uri = '{db.path}', table = 'other')"
    assert rows(catalog, other) == [("other",)]


def test_a_time_without_an_offset_goes_by_the_zone_of_the_session(
    catalog: SparkSession, db: st.Store
) -> None:
    zone = catalog.conf.get("spark.sql.session.timeZone")
    at = next(entry.time for entry in db.log(9) if entry.seq == db.seq)
    db["orders"].delete(1)
    local = at.astimezone(zoneinfo.ZoneInfo(str(zone))).replace(tzinfo=None)
    query = f"SELECT id FROM orders WITH (at = '{local}')"
    assert rows(catalog, query) == [(1,), (2,)]


def test_a_frame_has_one_seq_from_its_first_query_on(catalog: SparkSession, db: st.Store) -> None:
    frame = catalog.table("orders")
    db["orders"].upsert({"id": 3, "v": 3.0})
    assert frame.count() == 3
    db["orders"].upsert({"id": 4, "v": 4.0})
    assert (frame.count(), frame.filter("id > 2").count()) == (3, 1)
    assert catalog.table("orders").count() == 4


def test_views_of_the_catalog_and_of_the_session_read_it(
    catalog: SparkSession, db: st.Store
) -> None:
    catalog.sql("CREATE VIEW kept AS SELECT id FROM orders WHERE v < 2.5")
    catalog.table("orders").createOrReplaceTempView("passing")
    for number in (3, 4):
        assert len(rows(catalog, "SELECT * FROM kept")) == 2
        assert len(rows(catalog, "SELECT * FROM passing JOIN orders USING (id)")) == number - 1
        db["orders"].upsert({"id": number, "v": 3.0})


def test_another_session_that_is_registered_reads_it(catalog: SparkSession) -> None:
    assert rows(register(catalog.newSession()), "SELECT id FROM orders") == [(1,), (2,)]


@pytest.mark.parametrize("place", ["LOCATION '{}'", "OPTIONS (path '{}')", "LOCATION 'file:{}'"])
def test_a_location_names_the_store_and_the_table(
    catalog: SparkSession, db: st.Store, place: str
) -> None:
    catalog.sql(f"CREATE TABLE placed USING siltstone {place.format(f'{db.path}/orders')}")
    assert rows(catalog, "SELECT id FROM placed") == [(1,), (2,)]
    catalog.sql("DROP TABLE placed")
    assert db["orders"].count() == 2


def test_a_table_that_is_renamed_or_placed_elsewhere_is_read_as_it_is_now(
    catalog: SparkSession, db: st.Store
) -> None:
    catalog.sql("ALTER TABLE orders RENAME TO renamed")
    assert rows(catalog, "SELECT id FROM renamed") == [(1,), (2,)]
    catalog.sql(f"CREATE TABLE placed USING siltstone LOCATION '{db.path}/plain'")
    catalog.sql(f"ALTER TABLE placed SET LOCATION '{db.path}/other'")
    assert rows(catalog, "SELECT * FROM placed") == [("other",)]


def test_dropping_it_leaves_the_rows_and_creating_it_again_reads_them(
    catalog: SparkSession, db: st.Store
) -> None:
    catalog.sql("DROP TABLE orders")
    make(catalog, db, "orders")
    assert rows(catalog, "SELECT id FROM orders") == [(1,), (2,)]


def test_a_read_of_it_counts_for_overwrites(catalog: SparkSession, db: st.Store) -> None:
    frame = catalog.table("orders")
    read, found = db.seq, frame.collect()
    db["orders"].upsert({"id": 3, "v": 3.0})
    writer = catalog.createDataFrame(found, frame.schema).write.format("siltstone")
    with pytest.raises(Exception, match=f"'orders' was read at seq {read}"):
        writer.mode("overwrite").save(f"{db.path}/orders")
    assert db["orders"].count() == 3


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("OPTIONS (uri '{}', table 'none')", "there is no table 'none'"),
        ("OPTIONS (uri '{}', tabel 'orders')", "no option 'tabel'; did you mean 'table'"),
        ("OPTIONS (uri '{}/none', table 'orders')", "is not a store"),
        ("OPTIONS (uri '{}', table 'orders', columns 'w')", "no column 'w'"),
        ("OPTIONS (uri '{}', table 'orders', live 'true')", "no option 'live'"),
        ("OPTIONS (uri '{}', table 'orders', readChangeFeed 'true')", HAS_ROWS),
        ("OPTIONS (uri '{}', table 'orders', startingSeq 'earliest')", HAS_ROWS),
        ("TBLPROPERTIES ('uri' = '{}', 'table' = 'orders')", "option 'uri' is missing"),
        ("", "option 'uri' is missing"),
        ("LOCATION 's3a://b{}/orders'", "a directory on a file system; got the location s3a://b"),
    ],
)
def test_wrong_options_are_refused_when_it_is_created(
    catalog: SparkSession, db: st.Store, options: str, said: str
) -> None:
    with pytest.raises(Exception, match=said):
        catalog.sql(f"CREATE TABLE wrong USING siltstone {options.format(db.path)}")
    assert not catalog.catalog.tableExists("wrong")


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("SELECT * FROM orders WITH (tabel = 'x')", "no option 'tabel'; did you mean 'table'"),
        ("SELECT * FROM orders WITH (table = 'other')", "option 'uri' is missing"),
        ("SELECT * FROM orders WITH (readChangeFeed = 'true', startingVersion = 0)", HAS_ROWS),
        ("SELECT * FROM orders WITH (seq = 9999)", "9999"),
        ("INSERT INTO orders VALUES (9, 9.0)", ONLY_READ),
        ("INSERT OVERWRITE orders SELECT id + 1, v FROM orders", ONLY_READ),
        ("DELETE FROM orders WHERE id = 1", "does not support deletes"),
        ("TRUNCATE TABLE orders", "does not support truncates"),
    ],
)
def test_what_it_cannot_do_is_refused_and_changes_nothing(
    catalog: SparkSession, db: st.Store, query: str, said: str
) -> None:
    before = db.seq
    with pytest.raises(Exception, match=said):
        catalog.sql(query).collect()
    assert db.seq == before


def test_a_frame_of_it_that_is_saved_without_a_place_is_refused(
    catalog: SparkSession, db: st.Store, tmp_path: Path
) -> None:
    before = db.seq
    with pytest.raises(Exception, match=ONLY_READ):
        catalog.table("plain").write.format("siltstone").mode("append").save()
    query = catalog.readStream.table("orders").writeStream.format("noop").start()
    with pytest.raises(Exception, match=HAS_ROWS):
        query.processAllAvailable()
    assert db.seq == before


def test_a_frame_of_it_is_saved_like_any_other(catalog: SparkSession, db: st.Store) -> None:
    catalog.table("plain").write.format("siltstone").mode("append").save(f"{db.path}/other")
    assert db["other"].count() == 2
    assert rows(catalog, "SELECT * FROM plain") == [("plain",)]


def test_a_copy_of_its_columns_with_other_options_is_never_read_for_it(
    catalog: SparkSession, db: st.Store
) -> None:
    schema = catalog.table("plain").schema
    options = {"uri": str(db.path), "table": "other"}
    catalog.catalog.createTable("copied", source="siltstone", schema=schema, **options)
    for name in ("plain", "copied"):
        with pytest.raises(Exception, match=f"default.copied and .*default.plain {SEVERAL}"):
            catalog.table(name).count()
    assert rows(catalog, "SELECT id FROM orders") == [(1,), (2,)]
    catalog.sql("DROP TABLE copied")
    assert rows(catalog, "SELECT * FROM plain") == [("plain",)]


def test_a_table_with_the_same_options_is_no_copy(catalog: SparkSession, db: st.Store) -> None:
    make(catalog, db, "plain", "twin")
    assert rows(catalog, "SELECT * FROM twin UNION ALL SELECT * FROM plain") == [("plain",)] * 2


def test_a_table_that_is_made_from_it_by_a_query_is_not_left_in_the_catalog(
    catalog: SparkSession, db: st.Store
) -> None:
    before = db.seq
    with pytest.raises(Exception, match=SEVERAL):
        catalog.sql(
            f"CREATE TABLE made USING siltstone OPTIONS (uri '{db.path}', table 'other')"
            " AS SELECT * FROM plain"
        )
    with pytest.raises(Exception, match=SEVERAL):
        saved(catalog.table("plain"), db, "other")
    assert not catalog.catalog.tableExists("made")
    assert db.seq == before


def saved(frame: DataFrame, db: st.Store, table: str) -> None:
    writer = frame.write.format("siltstone").mode("append")
    writer.options(uri=str(db.path), table=table).saveAsTable("made")


def test_a_table_of_another_kind_that_is_made_from_it_changes_nothing(
    catalog: SparkSession,
) -> None:
    catalog.sql("CREATE TABLE made USING parquet AS SELECT * FROM plain")
    assert rows(catalog, "SELECT * FROM made UNION ALL SELECT * FROM plain") == [("plain",)] * 2


def test_a_table_whose_columns_are_named_is_refused_when_it_is_read(
    catalog: SparkSession, db: st.Store
) -> None:
    catalog.sql(
        f"CREATE TABLE named (s string) USING siltstone OPTIONS (uri '{db.path}', table 'plain')"
    )
    with pytest.raises(Exception, match=r"if CREATE TABLE .. USING names no columns"):
        catalog.table("named").count()


def test_a_frame_of_a_dropped_table_is_refused(catalog: SparkSession, db: st.Store) -> None:
    frame = catalog.table("plain")
    catalog.sql("DROP TABLE plain")
    make(catalog, db, "other", "plain")
    with pytest.raises(Exception, match=GONE):
        frame.count()


def test_without_a_driver_that_answers_it_is_neither_created_nor_read(
    catalog: SparkSession, db: st.Store
) -> None:
    alone = catalog.newSession()
    with pytest.raises(Exception, match=r"no driver answers .*siltstone.spark.register\(spark\)"):
        make(alone, db, "other")
    with pytest.raises(Exception, match="no driver answers for this session"):
        alone.table("orders").count()


def test_a_catalog_that_takes_too_long_or_fails_is_named(
    catalog: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(catalog_search, "SEARCH_S_MAX", -1.0)
        with pytest.raises(Exception, match="more tables than are searched in"):
            catalog.table("orders").count()

    for wrong, said in (("Integer", "For input string"), ("Class", "ClassNotFoundException")):

        def broken(*_: object, wrong: str = wrong) -> object:
            of_wrong = getattr(of_java(catalog).lang, wrong)
            return (of_wrong.parseInt if wrong == "Integer" else of_wrong.forName)("no.such")

        monkeypatch.setattr(catalog_search, "_found", broken)
        with pytest.raises(Exception, match=f"Spark's catalog does not answer: .*{said}"):
            catalog.table("orders").count()


def test_an_answer_that_is_too_long_for_its_line_is_refused(
    catalog: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(catalog_search, "_found", lambda *_: {"filter": "x" * 70_000})
    assert options_of(catalog, "0") == "!the options of the table have more than 65536 characters"


def test_options_of_any_text_reach_the_planner_as_they_are(
    catalog: SparkSession, db: st.Store
) -> None:
    text = "s != 'a\n\u00e4\u2028\"b'"
    quoted = text.replace("'", "\\'").replace("\n", "\\n")
    given = f"uri '{db.path}', table 'other', filter '{quoted}'"
    catalog.sql(f"CREATE TABLE told USING siltstone OPTIONS ({given})")
    found = serve(catalog, {})
    assert found is not None
    options = catalog_tables.options_at(found[0], catalog.table("told").schema)
    assert options == {"uri": str(db.path), "table": "other", "filter": text}
    assert rows(catalog, "SELECT * FROM told") == [("other",)]


def test_of_too_many_frames_the_one_that_is_not_used_is_forgotten(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(catalog_search, "FRAMES_MAX", 2)
    seqs = FrameSeqs()
    given = [seqs.seq_of(spark, about) for about in ("a 1", "b 2", "a 3", "c 4", "b 5", "a 6")]
    assert given == ["1", "2", "1", "4", "5", "6"]


def test_the_mark_of_columns_goes_by_all_options_and_leaves_their_metadata() -> None:
    field = StructField("id", LongType(), metadata={"comment": "a key"})
    schema = StructType([field, StructField("v", LongType())])
    first, second = (catalog_tables.marked(schema, {"seq": seq}) for seq in "12")
    assert first != second
    assert first[0].metadata["comment"] == "a key"
    assert "siltstone" not in json.dumps(schema.jsonValue())
    assert catalog_tables.digest_of(first) != catalog_tables.digest_of(second)
    with pytest.raises(RequestError, match=VIEW):
        catalog_tables.refuse_write(first, {"op": "upsert"})
    catalog_tables.refuse_write(first, {"URI": "/data/shop", "table": "t"})
