"""A table of Spark's catalog has the options of its CREATE TABLE, or a query of it is refused.

Over 400 lines: all that Spark's catalog can do to one table, over the same store.
"""

from __future__ import annotations

import json
import threading
import zoneinfo
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import LongType, StructField, StructType

import siltstone as st
from siltstone.errors import RequestError, UnavailableError
from siltstone.spark import catalog_search, catalog_tables, register, session_answers
from siltstone.spark.catalog_search import Frames
from siltstone.spark.session_answers import Address
from siltstone.spark.session_zone import zone_at
from siltstone.spark.sessions import ANSWERS

VIEW = "CREATE TEMPORARY VIEW .. USING siltstone OPTIONS"
SEVERAL = "of Spark's catalog have exactly the columns of this query"
GONE = "no table of Spark's catalog has the columns of this query"
ONLY_READ = "a table of Spark's catalog is only read; to write it, use CREATE TEMPORARY VIEW"
TOO_OLD = "!this frame is older than one of the 2 that were used last; make the frame anew"
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
    assert rows(catalog, "SELECT id FROM orders WITH (FILTER = 'v > 1.5')") == [(2,)]
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


def test_a_table_of_another_schema_of_the_catalog_is_another_one(
    catalog: SparkSession, db: st.Store
) -> None:
    catalog.sql("CREATE SCHEMA elsewhere")
    make(catalog, db, "other", "elsewhere.plain")
    query = "SELECT * FROM plain UNION ALL SELECT * FROM elsewhere.plain"
    assert rows(catalog, query) == [("other",), ("plain",)]
    catalog.sql("DROP SCHEMA elsewhere CASCADE")
    assert db["other"].count() == 1


def test_a_place_may_have_any_letters(catalog: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "a#1 b%20c?d e\u00e9"
    with st.connect(path, background=False) as db:
        db.create_table("t", {"id": "int64"}, "id").insert({"id": 7})
    catalog.sql(f"CREATE TABLE placed USING siltstone LOCATION '{path}/t'")
    catalog.sql(f"CREATE TABLE named USING siltstone OPTIONS (uri '{path}', table 't')")
    assert rows(catalog, "SELECT * FROM placed UNION ALL SELECT * FROM named") == [(7,), (7,)]


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


def test_a_frame_whose_table_is_placed_elsewhere_is_refused(
    catalog: SparkSession, db: st.Store
) -> None:
    catalog.sql(f"CREATE TABLE placed USING siltstone LOCATION '{db.path}/plain'")
    frame = catalog.table("placed")
    assert frame.count() == 1
    catalog.sql(f"ALTER TABLE placed SET LOCATION '{db.path}/other'")
    with pytest.raises(Exception, match=r"not the one that it was .*; make the frame anew"):
        frame.filter("s > ''").count()
    assert rows(catalog, "SELECT * FROM placed") == [("other",)]


def test_a_table_that_spark_would_delete_with_its_store_is_refused(
    catalog: SparkSession, db: st.Store, tmp_path: Path
) -> None:
    """Spark manages a table without a LOCATION, also if it gets one later."""
    catalog.sql(f"ALTER TABLE orders SET LOCATION '{db.path}/orders'")
    with pytest.raises(Exception, match=r"orders was made without a LOCATION .* DROP TABLE would"):
        catalog.table("orders").count()
    catalog.sql(f"ALTER TABLE orders SET LOCATION '{tmp_path / 'nothing'}'")


def test_a_table_that_spark_would_delete_with_its_store_is_refused_whoever_placed_it(
    catalog: SparkSession, db: st.Store
) -> None:
    """A Spark that does not know the format notes such a place nowhere else."""
    of_jvm = cast("Any", catalog)._jsparkSession
    external = of_jvm.sharedState().externalCatalog()
    table = external.getTable("default", "orders")
    parts = [table.productElement(number) for number in range(table.productArity())]
    names = [table.productElementName(number) for number in range(table.productArity())]
    storage = parts[names.index("storage")]
    some = cast("Any", catalog)._jvm.scala.Option.apply
    place = some(of_java(catalog).net.URI(f"file:{db.path}/orders".replace(" ", "%20")))
    kept = [storage.productElement(number) for number in range(1, storage.productArity())]
    parts[names.index("storage")] = storage.copy(place, *kept)
    external.alterTable(table.copy(*parts))
    with pytest.raises(Exception, match=r"orders was made without a LOCATION .* DROP TABLE would"):
        catalog.table("orders").count()
    parts[names.index("storage")] = storage
    external.alterTable(table.copy(*parts))
    assert rows(catalog, "SELECT id FROM orders") == [(1,), (2,)]


def test_a_table_that_is_renamed_while_the_driver_looks_is_found_again(
    catalog: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    each, renamed = catalog_search._each, threading.Event()

    def look(of_scala: Any) -> Iterator[Any]:
        for found in each(of_scala):
            if isinstance(found, str) or renamed.is_set():  # the name of a schema, or a later look
                yield found
        if of_scala.size() and not isinstance(of_scala.apply(0), str):
            renamed.set()

    monkeypatch.setattr(catalog_search, "_each", look)
    assert rows(catalog, "SELECT id FROM orders") == [(1,), (2,)]


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
        (
            "OPTIONS (uri '{}', table 'orders', timestampAsOf '2026-11-20 10:00')",
            "give the zone of such times as option 'timeZone'",
        ),
        ("LOCATION 's3a://b{}/orders'", "the full path of a directory; got the location s3a://b"),
        ("LOCATION 'file://host{}/orders'", "got the location file://host"),
        ("LOCATION 'shop/orders'", "got the location shop/orders"),
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
        ("SELECT * FROM orders WITH (seq = 9999)", "cannot read at seq 9999"),
        ("SELECT * FROM orders WITH (columns = 'id')", "select the columns by name"),
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


def copy_columns(catalog: SparkSession, db: st.Store) -> None:
    """Make a table `copied` that has the columns of `plain` and shows `other`."""
    schema = catalog.table("plain").schema
    options = {"uri": str(db.path), "table": "other"}
    catalog.catalog.createTable("copied", source="siltstone", schema=schema, **options)


def test_a_copy_of_its_columns_with_other_options_is_never_read_for_it(
    catalog: SparkSession, db: st.Store
) -> None:
    copy_columns(catalog, db)
    for name in ("plain", "copied"):
        with pytest.raises(Exception, match=f"default.copied and .*default.plain {SEVERAL}"):
            catalog.table(name).count()
    assert rows(catalog, "SELECT id FROM orders") == [(1,), (2,)]
    catalog.sql("DROP TABLE copied")
    assert rows(catalog, "SELECT * FROM plain") == [("plain",)]


def test_a_frame_that_was_refused_is_refused_also_after_the_copy_is_gone(
    catalog: SparkSession, db: st.Store
) -> None:
    copy_columns(catalog, db)
    frame = catalog.table("copied")
    with pytest.raises(Exception, match=SEVERAL):
        frame.count()
    catalog.sql("DROP TABLE copied")
    with pytest.raises(Exception, match=r"not the one that it was .*; make the frame anew"):
        frame.count()


def test_an_option_of_the_table_is_not_changed_by_a_query(
    catalog: SparkSession, db: st.Store
) -> None:
    given = f"uri '{db.path}', table 'orders', filter 'id = 1'"
    catalog.sql(f"CREATE TABLE some USING siltstone OPTIONS ({given})")
    assert rows(catalog, "SELECT id FROM some") == [(1,)]
    with pytest.raises(Exception, match=r"option 'filter' is 'id = 1' in the table .*got 'id > 1'"):
        catalog.sql("SELECT * FROM some WITH (filter = 'id > 1')").collect()


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
        patch.setattr(catalog_search, "MARGIN_S", 60.0)
        with pytest.raises(Exception, match="more tables than the driver looks through in time"):
            catalog.table("orders").count()

    def failing(wrong: str) -> None:
        of_wrong = getattr(of_java(catalog).lang, wrong)
        (of_wrong.parseInt if wrong == "Integer" else of_wrong.forName)("no.such")

    for wrong, said in (("Integer", "For input string"), ("Class", "ClassNotFoundException")):
        monkeypatch.setattr(catalog_search, "_each", _Failing(failing, wrong))
        with pytest.raises(Exception, match=f"the schema default .* cannot be read: .*{said}"):
            catalog.table("orders").count()


def test_a_catalog_that_does_not_answer_is_named(
    catalog: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    def down(*_: object) -> None:
        of_java(catalog).lang.Class.forName("no.such")

    with monkeypatch.context() as patch:
        patch.setattr(catalog_search, "_each", down)
        with pytest.raises(Exception, match=r"catalog cannot be read: .*ClassNotFound"):
            catalog.table("orders").count()
    assert rows(catalog, "SELECT id FROM orders") == [(1,), (2,)]


class _Failing:
    """Reads the schemas of a catalog, and of its tables only an error."""

    def __init__(self, fail: Callable[[str], None], wrong: str) -> None:
        self._fail, self._wrong = fail, wrong

    def __call__(self, of_scala: Any) -> Iterator[Any]:
        for number in range(of_scala.size()):
            if not isinstance(of_scala.apply(number), str):
                self._fail(self._wrong)
            yield of_scala.apply(number)


def test_a_long_look_through_the_catalog_holds_up_no_other_question(
    catalog: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks, goes_on = threading.Semaphore(0), threading.Event()

    def slow(*_: object) -> dict[str, str]:
        looks.release()
        goes_on.wait(60)
        return {}

    monkeypatch.setattr(catalog_search, "_found", slow)
    address, schema = address_of(catalog), catalog.table("orders").schema

    def ask() -> None:
        catalog_tables.options_at(address, schema, {}, catalog_tables.new_frame())

    try:
        with monkeypatch.context() as patch:
            patch.setattr(session_answers, "ANSWER_S_MAX", 2.0)
            for _ in range(5):  # one more than look at once
                with pytest.raises(UnavailableError, match=r"the driver did not answer within"):
                    ask()
        assert all(looks.acquire(timeout=60) for _ in range(4))
        assert zone_at(address) == catalog.conf.get("spark.sql.session.timeZone")
    finally:
        goes_on.set()
    ask()  # after the fifth, at the same socket
    assert looks.acquire(timeout=60)
    assert not looks.acquire(blocking=False)  # for the fifth, who had left, nobody looked


def address_of(spark: SparkSession) -> Address:
    found = ANSWERS.serve(spark)
    assert found is not None
    return found[0]


def test_an_answer_that_is_too_long_for_its_line_is_refused(
    catalog: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(catalog_search, "_found", lambda *_: {"filter": "x" * 70_000})
    with pytest.raises(RequestError, match="options of a table have more than 65536 characters"):
        catalog_tables.options_at(
            address_of(catalog), catalog.table("orders").schema, {}, catalog_tables.new_frame()
        )


def test_options_of_any_text_reach_the_planner_as_they_are(
    catalog: SparkSession, db: st.Store
) -> None:
    text = "s != 'a\n\u00e4\u2028\"b'"
    quoted = text.replace("'", "\\'").replace("\n", "\\n")
    given = f"uri '{db.path}', table 'other', filter '{quoted}'"
    catalog.sql(f"CREATE TABLE told USING siltstone OPTIONS ({given})")
    schema = catalog.table("told").schema
    frame = catalog_tables.new_frame()
    options = catalog_tables.options_at(address_of(catalog), schema, {}, frame)
    assert options == {"uri": str(db.path), "table": "other", "filter": text}
    assert rows(catalog, "SELECT * FROM told") == [("other",)]


def test_of_too_many_frames_the_one_that_is_not_used_is_refused(
    catalog: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(catalog_search, "FRAMES_MAX", 2)
    monkeypatch.setattr(catalog_search, "_found", lambda *_: {})
    frames, names = Frames(), [catalog_tables.new_frame() for _ in range(4)]
    assert names == sorted(names)

    def told(number: int) -> str:
        return frames.options_of(catalog, f"digest {names[number]}", 0.0)

    def seq(number: int, newest: int) -> str:
        return frames.seq_of(catalog, f"{names[number]} {newest}", 0.0)

    assert [told(0), seq(0, 1), told(1), seq(1, 2), told(0), seq(0, 3)] == [
        "{}", "1", "{}", "2", "{}", "1",
    ]  # fmt: skip
    assert told(2) == "{}"
    assert (told(1), seq(1, 4)) == (TOO_OLD, TOO_OLD)
    assert [seq(0, 4), seq(2, 4), told(3), seq(3, 4)] == ["1", "4", "{}", "4"]


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
