"""SQL writes a store through its catalog: each statement is one commit, or changes nothing."""

from __future__ import annotations

import datetime as dt
import itertools
import os
import signal
import time
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyspark import InheritableThread
from pyspark.sql import DataFrame, SparkSession, functions

import siltstone as st
from siltstone.spark import register
from tests.spark.daemons import daemons, siblings
from tests.spark.stores import owner

_numbers = itertools.count()
ORDERS = {"id": "int64", "c": "int32", "total": "decimal128(10,2)", "s": "string", "d": "date32"}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    with st.connect(tmp_path / "s", background=False) as db:
        db.create_table("o", ORDERS, "id").upsert(
            [{"id": n, "c": n % 5, "total": n, "s": f"x{n}", "d": None} for n in range(20)]
        )
        db.create_table("p", {"a": "int64", "b": "string"}).append([{"a": 1, "b": "one"}])
    return tmp_path / "s"


class Shop:
    """A catalog of a store, and the store itself."""

    def __init__(self, spark: SparkSession, path: Path) -> None:
        self.spark, self.path, self.name = spark, path, f"w{next(_numbers)}"
        register(spark, stores={self.name: path})

    def sql(self, text: str, **names: str) -> DataFrame:
        spark = self.spark
        spark.sql(f"USE {self.name}")
        try:
            return spark.sql(text.format(**names))
        finally:
            spark.sql("USE spark_catalog")

    def seq(self) -> int:
        with st.connect(self.path, read_only=True) as db:
            return db.seq

    def rows(self, table: str, order: str = "") -> list[dict[str, Any]]:
        with st.connect(self.path, read_only=True) as db:
            found = db[table].to_arrow()
        return (found.sort_by(order) if order else found).to_pylist()

    def refuses(self, text: str, said: str) -> None:
        """Check that a statement says `said`, and changes nothing."""
        before = self.seq()
        with pytest.raises(Exception, match=said):
            self.sql(text).collect()
        assert self.seq() == before


@pytest.fixture
def shop(spark: SparkSession, path: Path) -> Shop:
    return Shop(spark, path)


# --- INSERT


def test_an_insert_is_one_commit_and_refuses_a_key_that_exists(shop: Shop) -> None:
    before = shop.seq()
    shop.sql("INSERT INTO o VALUES (50, 1, 1.5, 'new', date'2026-01-01'), (51, 2, 2.5, 'n', null)")
    assert shop.seq() == before + 1
    assert [row["s"] for row in shop.rows("o", "id")[-2:]] == ["new", "n"]
    shop.refuses("INSERT INTO o VALUES (50, 1, 9.5, 'again', null)", r"o\[50\] exists already")
    shop.refuses("INSERT INTO o VALUES (60, 1, 1, 'a', null), (60, 1, 1, 'b', null)", "60")


def test_an_upsert_by_sql_says_what_becomes_of_columns_that_are_not_named(shop: Shop) -> None:
    values = "VALUES (3, 1, 9.5, 'again', null)"
    shop.refuses(f"INSERT INTO o WITH (op = 'upsert') {values}", "missing = 'null'")
    shop.sql(f"INSERT INTO o WITH (op = 'upsert', missing = 'null') {values}")
    shop.sql("INSERT INTO o WITH (op = 'upsert', missing = 'null') (id, s) VALUES (4, 'part')")
    assert [(r["s"], r["c"]) for r in shop.rows("o", "id")[3:5]] == [("again", 1), ("part", None)]
    setting = f"spark.sql.catalog.{shop.name}.insert"
    shop.spark.conf.set(setting, "upsert")
    shop.sql(f"INSERT INTO o WITH (missing = 'null') {values}")
    shop.refuses(f"INSERT INTO o {values}", "missing = 'null'")
    shop.spark.conf.set(setting, "insert")
    shop.refuses(f"INSERT INTO o {values}", "exists already")
    shop.spark.conf.set(setting, "replace")
    shop.refuses(f"INSERT INTO o {values}", "insert must be one of insert, upsert; got 'replace'")


def test_an_insert_reads_its_own_table_at_one_seq(shop: Shop) -> None:
    shop.sql("INSERT INTO o SELECT id + 100, c, total, s, d FROM o")
    assert len(shop.rows("o")) == 40
    shop.sql("INSERT INTO p SELECT id, s FROM o WHERE id < 5")
    shop.sql("INSERT INTO p SELECT a, b FROM p")
    assert len(shop.rows("p")) == 12


def test_an_insert_of_no_rows_and_one_of_many_partitions(shop: Shop) -> None:
    shop.sql("INSERT INTO p SELECT id, s FROM o WHERE id < 0")
    assert len(shop.rows("p")) == 1
    spark = shop.spark
    spark.range(0, 30_000, 1, 7).selectExpr("id a", "repeat('y', 50) b").writeTo(
        f"{shop.name}.p"
    ).append()
    found = shop.rows("p", "a")
    assert len(found) == 30_001
    assert found[-1] == {"a": 29_999, "b": "y" * 50}


def test_an_insert_takes_batches_of_several_pieces(shop: Shop) -> None:
    shop.sql("INSERT INTO p SELECT id, repeat('y', 90) FROM range(0, 40000, 1, 1)")
    assert len(shop.rows("p")) == 40_001


def test_frames_write_through_the_catalog(shop: Shop) -> None:
    spark, name = shop.spark, f"{shop.name}.p"
    frame = spark.createDataFrame([("two", 2)], "b string, a bigint")
    frame.writeTo(name).append()  # by name
    frame.select("a", "b").write.insertInto(name)  # by place
    assert shop.rows("p") == [{"a": 1, "b": "one"}, *[{"a": 2, "b": "two"}] * 2]
    frame.select("a", "b").write.mode("overwrite").insertInto(name)
    assert shop.rows("p") == [{"a": 2, "b": "two"}]


# --- OVERWRITE, TRUNCATE, DELETE


def test_an_overwrite_replaces_all_rows_in_one_commit(shop: Shop) -> None:
    before = shop.seq()
    shop.sql("INSERT OVERWRITE o SELECT id, c, total, 'new', d FROM o WHERE id < 3")
    assert [row["s"] for row in shop.rows("o")] == ["new"] * 3
    shop.sql("INSERT OVERWRITE p SELECT 7, 'seven'")
    assert shop.rows("p") == [{"a": 7, "b": "seven"}]
    assert shop.seq() == before + 2


def test_an_overwrite_of_some_rows_takes_rows_that_match_alone(shop: Shop) -> None:
    shop.sql("INSERT INTO o REPLACE WHERE c = 1 SELECT id, 1, total, 'r', d FROM o WHERE id = 6")
    assert [(r["id"], r["s"]) for r in shop.rows("o", "id") if r["c"] == 1] == [(6, "r")]
    assert len(shop.rows("o")) == 17
    shop.refuses("INSERT INTO o REPLACE WHERE c = 1 VALUES (70, 2, 0, 'r', null)", "match")


def _by_sql(frame: DataFrame, name: str) -> None:
    rows = frame.sparkSession.createDataFrame(frame.collect(), "a bigint, b string")
    rows.createOrReplaceTempView("rows_that_were_read")
    frame.sparkSession.sql(f"INSERT OVERWRITE {name} SELECT a, b FROM rows_that_were_read")


def _by_condition(frame: DataFrame, name: str) -> None:
    frame.writeTo(name).overwrite(functions.lit(True))


def _by_place(frame: DataFrame, name: str) -> None:
    frame.write.insertInto(name, overwrite=True)


@pytest.mark.parametrize("overwrite", [_by_sql, _by_condition, _by_place])
def test_an_overwrite_conflicts_with_a_commit_after_its_read(
    shop: Shop, overwrite: Callable[[DataFrame, str], None]
) -> None:
    name = f"{shop.name}.p"
    frame = shop.spark.table(name).selectExpr("a + 1 AS a", "b")
    with st.connect(shop.path, background=False) as db:
        db["p"].append([{"a": 100, "b": "theirs"}])
    with pytest.raises(Exception, match="an overwrite would lose that"):
        overwrite(frame, name)
    assert {"a": 100, "b": "theirs"} in shop.rows("p")


def test_truncate_and_delete_are_one_commit_each(shop: Shop) -> None:
    before = shop.seq()
    shop.sql("DELETE FROM o WHERE id = 3 OR s = 'x7'")
    assert len(shop.rows("o")) == 18
    shop.sql("DELETE FROM o WHERE (c = 1 OR c = 2) AND s <> 'x1' AND id < 10")
    assert len(shop.rows("o")) == 16
    shop.sql("DELETE FROM p WHERE b = 'one'")
    assert shop.rows("p") == []
    shop.sql("TRUNCATE TABLE o")
    assert shop.rows("o") == []
    assert shop.seq() == before + 4
    shop.sql("INSERT INTO p VALUES (1, 'a')")
    shop.sql("DELETE FROM p")
    assert shop.rows("p") == []


# --- tables


def test_tables_are_made_with_and_without_a_key(shop: Shop) -> None:
    shop.sql("CREATE TABLE k (id BIGINT NOT NULL PRIMARY KEY, s STRING)")
    shop.sql(
        "CREATE TABLE eu.k (a INT, b STRING, s STRING NOT NULL, CONSTRAINT k PRIMARY KEY (a, b))"
    )
    shop.sql("CREATE TABLE q (n DECIMAL(10,2), at TIMESTAMP) USING siltstone")
    shop.sql("CREATE TABLE IF NOT EXISTS k (id BIGINT)")
    shop.refuses("CREATE TABLE k (id BIGINT)", "(?i)already")
    with st.connect(shop.path, read_only=True) as db:
        assert db["k"].primary_key == ("id",)
        assert db["eu.k"].primary_key == ("a", "b")
        assert [f.nullable for f in db["eu.k"].schema] == [False, False, False]
        assert db["q"].primary_key == ()
    shop.sql("INSERT INTO k VALUES (1, 'a')")
    assert shop.rows("k") == [{"id": 1, "s": "a"}]


def test_a_table_appears_with_the_rows_of_its_select_in_one_commit(shop: Shop) -> None:
    before = shop.seq()
    shop.sql("CREATE TABLE made AS SELECT id, s FROM o")
    assert shop.seq() == before + 1
    assert len(shop.rows("made")) == 20
    shop.sql("CREATE TABLE keyed TBLPROPERTIES ('primaryKey' = 'id') AS SELECT id, s FROM o")
    assert shop.seq() == before + 2
    shop.sql("CREATE TABLE none_yet AS SELECT id, s FROM o WHERE id < 0")
    assert shop.rows("none_yet") == []
    shop.refuses("CREATE TABLE made AS SELECT 1 AS x", "(?i)already")
    shop.refuses("CREATE TABLE wrong AS SELECT raise_error('no') AS x FROM o", "no")
    shop.spark.range(3).write.saveAsTable(f"{shop.name}.saved")
    shop.spark.range(3, 4).write.mode("append").saveAsTable(f"{shop.name}.saved")
    assert [row["id"] for row in shop.rows("saved", "id")] == [0, 1, 2, 3]
    with st.connect(shop.path, read_only=True) as db:
        assert db["keyed"].primary_key == ("id",)
        assert "wrong" not in db.tables()


def test_columns_and_tables_are_changed_and_dropped(shop: Shop) -> None:
    before = shop.seq()
    shop.sql("ALTER TABLE p ADD COLUMNS (z DOUBLE, y INT)")
    assert shop.seq() == before + 1
    shop.sql("ALTER TABLE p RENAME COLUMN b TO t")
    shop.sql("ALTER TABLE p DROP COLUMN z")
    assert shop.rows("p") == [{"a": 1, "t": "one", "y": None}]
    shop.sql(f"ALTER TABLE p RENAME TO {shop.name}.eu.renamed")
    assert shop.rows("eu.renamed") == [{"a": 1, "t": "one", "y": None}]
    shop.sql("ALTER TABLE eu.renamed RENAME TO again")
    shop.sql("ALTER TABLE eu.again RENAME TO eu.renamed")
    shop.sql("DROP TABLE eu.renamed")
    shop.sql("DROP TABLE IF EXISTS eu.renamed")
    shop.refuses("DROP TABLE eu.renamed", "(?i)not.*found|cannot be found")


def test_columns_have_defaults_and_get_other_types(shop: Shop) -> None:
    shop.sql(
        "CREATE TABLE d (id BIGINT PRIMARY KEY, n INT NOT NULL DEFAULT 1 + 2,"
        " s STRING DEFAULT 'it''s', d DATE DEFAULT DATE '2026-01-02',"
        " t TIMESTAMP DEFAULT TIMESTAMP '2026-01-02 03:00:00Z',"
        " x DECIMAL(10, 2) DEFAULT 1.2, b BINARY DEFAULT X'00FF', f DOUBLE DEFAULT 0.5,"
        " z BOOLEAN DEFAULT true, u STRING DEFAULT NULL)"
    )
    shop.sql("INSERT INTO d (id) VALUES (1)")
    with st.connect(shop.path, background=False) as db:
        db["d"].insert({"id": 2})
        one, other = db["d"].get(1), db["d"].get(2)
        assert one is not None
        assert {**one, "id": 2} == other
        assert one == {
            "id": 1, "n": 3, "s": "it's", "d": dt.date(2026, 1, 2),
            "t": dt.datetime(2026, 1, 2, 3, tzinfo=dt.UTC), "x": Decimal("1.20"),
            "b": b"\0\xff", "f": 0.5, "z": True, "u": None,
        }  # fmt: skip
    shop.sql("ALTER TABLE d ADD COLUMN m INT DEFAULT 7")
    shop.sql("ALTER TABLE d ALTER COLUMN n SET DEFAULT 9")
    shop.sql("ALTER TABLE d ALTER COLUMN s DROP DEFAULT")
    shop.sql("ALTER TABLE d ALTER COLUMN n TYPE BIGINT")
    shop.sql("ALTER TABLE d ALTER COLUMN n DROP NOT NULL")
    shop.sql("INSERT INTO d (id) VALUES (3)")
    rows = {row["id"]: (row["n"], row["s"], row["m"]) for row in shop.rows("d")}
    assert rows == {1: (3, "it's", 7), 2: (3, "it's", 7), 3: (9, None, 7)}
    with st.connect(shop.path, read_only=True) as db:
        field = db["d"].schema.field("n")
        assert (str(field.type), field.nullable) == ("int64", True)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("CREATE TABLE x (a INT) PARTITIONED BY (a)", "has no PARTITIONED BY"),
        ("CREATE TABLE x (a INT) USING parquet", "has no USING parquet"),
        ("CREATE TABLE x (a INT) TBLPROPERTIES ('b' = 'c')", "has no the property b"),
        ("CREATE TABLE x (a INT) COMMENT 'c'", "has no the property comment"),
        ("CREATE TABLE x (a INT COMMENT 'c')", "has no the comment of column a"),
        ("ALTER TABLE o ADD COLUMN z INT COMMENT 'c'", "comment"),
        (
            "CREATE TABLE x (a INT PRIMARY KEY, b INT) TBLPROPERTIES ('primaryKey' = 'b')",
            "no second primary key",
        ),
        ("CREATE TABLE x (a INT, b DATE DEFAULT current_date())", "(?i)no constant|default"),
        ("ALTER TABLE o ALTER COLUMN s SET DEFAULT uuid()", "(?i)no constant|default"),
        ("CREATE TABLE x (a INTERVAL YEAR)", "which no column of a table has"),
        ("CREATE NAMESPACE n", "has no CREATE NAMESPACE"),
        ("ALTER TABLE o ADD COLUMN z INT NOT NULL", "NOT NULL"),
        ("ALTER TABLE o ADD COLUMN z INT FIRST", "position"),
        ("ALTER TABLE o DROP COLUMN id", "key"),
        ("ALTER TABLE o ALTER COLUMN s TYPE INT", "(?i)type"),
        ("ALTER TABLE o SET TBLPROPERTIES ('a' = 'b')", "SetProperty"),
        ("INSERT INTO o VERSION AS OF 1 VALUES (1, 1, 1, 'a', null)", "(?i)version|syntax"),
        ("INSERT INTO o WITH (op = 'none') VALUES (90, 1, 1, 'a', null)", "'op' must be one of"),
        ("INSERT INTO o WITH (opp = 'x') VALUES (90, 1, 1, 'a', null)", "no option 'opp'"),
        ("INSERT INTO o WITH (table = 'p') VALUES (90, 1, 1, 'a', null)", "the catalog knows it"),
        ("INSERT INTO o VALUES (null, 1, 1, 'a', null)", "(?i)null"),
        (
            "INSERT INTO o REPLACE WHERE id % 2 = 1 SELECT * FROM o WHERE id = 1",
            "not support overwrite by expression: o",
        ),
        ("INSERT INTO o VALUES (1)", "(?i)column"),
    ],
)
def test_what_a_statement_cannot_say_is_refused(shop: Shop, text: str, said: str) -> None:
    shop.refuses(text, said)


def test_a_statement_commits_through_the_owner_in_another_process(
    spark: SparkSession, path: Path
) -> None:
    shop = Shop(spark, path)
    with owner(path, "serve"):
        shop.sql("INSERT INTO p VALUES (2, 'two')")
        assert len(shop.sql("SELECT * FROM p").collect()) == 2


def test_a_token_applies_a_statement_once(shop: Shop) -> None:
    for _ in range(2):
        shop.sql("INSERT INTO p WITH (token = 'etl:7') VALUES (2, 'two')")
    assert len(shop.rows("p")) == 2


def test_members_of_structs_that_may_not_be_null_stay_so(shop: Shop) -> None:
    shop.sql(
        "CREATE TABLE q (id BIGINT, s STRUCT<a: INT NOT NULL, b: STRING>,"
        " l ARRAY<STRUCT<x: INT NOT NULL>>, m MAP<STRING, STRUCT<y: DATE NOT NULL>>)"
    )
    shop.sql("ALTER TABLE q ADD COLUMN more STRUCT<z: DOUBLE NOT NULL>")
    with st.connect(shop.path, read_only=True) as db:
        said = str(db["q"].schema)
    for name in ("a: int32", "x: int32", "y: date32[day]", "z: double"):
        assert f"{name} not null" in said
    assert "b: string not null" not in said
    row = "SELECT 1, named_struct('a', {}, 'b', 'x'), array(), map(), null"
    shop.refuses(f"INSERT INTO q {row.format('CAST(NULL AS INT)')}", "(?i)null")
    shop.sql(f"INSERT INTO q {row.format('1')}")


@pytest.mark.parametrize("retries", ["many", "-1", "1001"])
def test_how_often_a_commit_is_tried_again_is_a_number(shop: Shop, retries: str) -> None:
    shop.spark.conf.set("spark.siltstone.retries", retries)
    try:
        shop.refuses(
            "INSERT INTO p VALUES (2, 'two')",
            f"spark.siltstone.retries must be a whole number up to 1000; got '{retries}'",
        )
        shop.spark.conf.set("spark.siltstone.retries", "0")
        shop.sql("INSERT INTO p VALUES (2, 'two')")
    finally:
        shop.spark.conf.unset("spark.siltstone.retries")


# --- what fails on the way


def test_a_task_that_fails_leaves_nothing(shop: Shop) -> None:
    shop.refuses(
        "INSERT INTO p SELECT id, if(id = 999, raise_error('no'), 'a') FROM range(1000)", "no"
    )
    wide = "SELECT id, 1, 1000000000 * id, 'a', null FROM range(100, 200)"
    shop.refuses(f"INSERT INTO o {wide}", "(?i)overflow|out of range|precision")
    assert len(shop.rows("p")) == 1


def _kills_at(number: int) -> int:
    if number == 40_000:  # rows before it were asked for: the writer is there
        for pid in siblings():
            os.kill(pid, signal.SIGKILL)
    return number


def test_a_process_that_dies_while_rows_are_staged_fails_the_statement_and_leaves_nothing(
    shop: Shop,
) -> None:
    kills = functions.udf(_kills_at, "bigint", useArrow=False)
    rows = shop.spark.range(0, 100_000, 1, 2).select(kills("id").alias("a"), functions.lit("b"))
    before = shop.seq()
    with pytest.raises(Exception, match=r"(?i)ended while it answered|closed|reset|pipe"):
        rows.toDF("a", "b").writeTo(f"{shop.name}.p").append()
    assert shop.seq() == before
    shop.sql("INSERT INTO p VALUES (2, 'two')")
    assert len(shop.rows("p")) == 2


def test_a_process_that_dies_in_a_commit_leaves_it_in_doubt_and_a_token_applies_it_once(
    shop: Shop,
) -> None:
    statement = "INSERT INTO p WITH (token = 'etl:1') SELECT 2, 'two' FROM range(1)"
    shop.sql("SELECT * FROM p").collect()
    group, said = f"in doubt {shop.name}", list[str]()

    def run() -> None:
        shop.spark.sparkContext.setJobGroup(group, group)
        try:
            shop.sql(statement)
        except Exception as error:  # noqa: BLE001 - what it says is looked at
            said.append(str(error))

    with owner(shop.path, "serve") as process:
        process.send_signal(signal.SIGSTOP)  # it holds the commit up
        try:
            working = InheritableThread(run)
            working.start()
            _wait_for_jobs(shop.spark, group)
            for pid in daemons():
                os.kill(pid, signal.SIGKILL)
            working.join(120)
            assert not working.is_alive()
        finally:
            process.send_signal(signal.SIGCONT)
        assert len(said) == 1
        assert "ended in the middle of a commit" in said[0].split("\n", maxsplit=1)[0]
        shop.sql(statement)
        assert [tuple(row) for row in shop.sql("SELECT * FROM p WHERE a = 2").collect()] == [
            (2, "two")
        ]


def _wait_for_jobs(spark: SparkSession, group: str) -> None:
    """Wait until a statement has run its tasks; what is left of it is the commit."""
    tracker, end = spark.sparkContext.statusTracker(), time.monotonic() + 120
    while time.monotonic() < end:
        found = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(group)]
        if found and all(info is not None and info.status == "SUCCEEDED" for info in found):
            return
        time.sleep(0.05)
    raise AssertionError("the statement ran no job")


def test_a_count_of_all_rows_is_written_to_a_column_that_may_not_be_null(shop: Shop) -> None:
    shop.sql("CREATE TABLE counts (n BIGINT PRIMARY KEY)")
    text = "INSERT INTO counts SELECT 100 + count(*) FROM counts"
    assert "error" not in shop.sql(f"EXPLAIN {text}").collect()[0][0].lower()
    for _ in range(2):
        shop.sql(text)
    assert [row["n"] for row in shop.rows("counts", "n")] == [100, 101]
