"""An overwrite from Spark replaces what its application has read, never what others wrote since."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

import siltstone as st
from siltstone.spark import snapshot, transaction

CONFLICT = r"ConflictError: '{}' was read at seq {} and has changed at seq {}"


class Shop:
    """A store with a keyed and a plain table of the same rows; other hands write through `db`."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark = spark
        self.db = st.connect(folder / "shop", background=False)
        self.db.create_table("o", {"id": "int64", "v": "int64"}, primary_key="id").insert(
            [{"id": n, "v": 0} for n in range(3)]
        )
        self.db.create_table("e", {"id": "int64", "v": "int64"}).append(
            [{"id": n, "v": 0} for n in range(3)]
        )
        self.db.serve_local()

    @property
    def options(self) -> dict[str, str]:
        return {"uri": str(self.db.path)}

    def load(self, table: str, **options: object) -> DataFrame:
        reader = self.spark.read.format("siltstone").options(**self.options, table=table)
        return reader.options(**{name: str(value) for name, value in options.items()}).load()

    def overwrite(self, frame: DataFrame, table: str, **options: object) -> None:
        writer = frame.write.format("siltstone").options(**self.options, table=table)
        more = {name: str(value) for name, value in options.items()}
        writer.options(**more).mode("overwrite").save()

    def append(self, frame: DataFrame, table: str, **options: str) -> None:
        writer = frame.write.format("siltstone").options(**self.options, table=table)
        writer.options(**options).mode("append").save()

    def foreign(self, table: str, key: int) -> int:
        """Another application commits a row; return the seq."""
        row = {"id": key, "v": 9}
        handle = self.db[table]
        (handle.append if table == "e" else handle.upsert)(row)
        return self.db.seq

    def ids(self, table: str) -> list[int]:
        return sorted(self.db[table].to_arrow()["id"].to_pylist())


@pytest.fixture
def shop(spark: SparkSession, tmp_path: Path) -> Iterator[Shop]:
    found = Shop(spark, tmp_path)
    with found.db:
        yield found


@pytest.mark.parametrize("table", ["o", "e"])
def test_an_overwrite_from_a_view_keeps_what_others_committed_since_the_view_was_made(
    shop: Shop, table: str
) -> None:
    view = f"view_{table}"
    shop.load(table).createOrReplaceTempView(view)
    read = shop.db.seq
    changed = shop.foreign(table, 100)
    assert shop.load(table).count() == 4  # at the newest seq; the view is older
    with pytest.raises(Exception, match=CONFLICT.format(table, read, changed)):
        shop.spark.sql(f"insert overwrite {view} select id, v + 1 from {view}")
    assert shop.ids(table) == [0, 1, 2, 100]
    shop.spark.catalog.dropTempView(view)


def test_a_frame_that_is_read_overwrites_nothing_newer(shop: Shop) -> None:
    frame = shop.load("o")
    read = shop.db.seq
    assert frame.count() == 3
    changed = shop.foreign("o", 100)
    with pytest.raises(Exception, match=CONFLICT.format("o", read, changed)):
        shop.overwrite(frame, "o")
    with (
        pytest.raises(st.ConflictError, match="'o' was read at seq"),
        transaction(shop.db) as tx,
    ):
        tx.write(frame, "o", mode="overwrite")
    assert shop.ids("o") == [0, 1, 2, 100]


def test_a_read_of_a_snapshot_counts_as_one(shop: Shop) -> None:
    with snapshot(shop.spark, shop.db) as taken:
        rows = taken["e"].collect()
    shop.foreign("e", 100)
    frame = shop.spark.createDataFrame(rows, "id long, v long")
    with pytest.raises(Exception, match=CONFLICT.format("e", taken.seq, shop.db.seq)):
        shop.overwrite(frame, "e")
    assert shop.ids("e") == [0, 1, 2, 100]


def test_a_frame_of_a_snapshot_counts_as_read_when_it_is_made(shop: Shop) -> None:
    """Spark counts its rows without a task that could tell."""
    with snapshot(shop.spark, shop.db) as taken:
        assert taken["e"].count() == 3
        changed = shop.foreign("e", 100)
        with pytest.raises(Exception, match=CONFLICT.format("e", taken.seq, changed)):
            shop.overwrite(shop.spark.range(3).selectExpr("id", "id v"), "e")
    assert shop.ids("e") == [0, 1, 2, 100]


def test_a_frame_of_named_columns_counts_whenever_it_is_used_and_not_before(shop: Shop) -> None:
    with snapshot(shop.spark, shop.db) as taken:
        frame, unread = taken.read("o"), taken.read("e")
        shop.overwrite(frame.where("id > 0"), "o")
        changed = shop.foreign("o", 100)
        with pytest.raises(Exception, match=CONFLICT.format("o", taken.seq, changed)):
            shop.overwrite(frame, "o")
        shop.foreign("e", 100)
        shop.overwrite(shop.spark.range(2).selectExpr("id", "id v"), "e")
        assert unread.count() == 3
    assert shop.ids("o") == [1, 2, 100]
    assert shop.ids("e") == [0, 1]


def test_a_live_view_counts_at_the_seq_of_its_query(shop: Shop) -> None:
    with snapshot(shop.spark, shop.db) as taken:
        taken.create_views(["o"], live=True)
        shop.foreign("o", 50)
        rows = shop.spark.table("o").collect()
        read, changed = shop.db.seq, shop.foreign("o", 100)
        frame = shop.spark.createDataFrame(rows, "id long, v long")
        with pytest.raises(Exception, match=CONFLICT.format("o", read, changed)):
            shop.overwrite(frame, "o")
    assert shop.ids("o") == [0, 1, 2, 50, 100]


def test_commits_of_the_same_application_are_no_conflict(shop: Shop) -> None:
    frame = shop.load("o")
    assert frame.count() == 3
    shop.append(shop.spark.range(3, 5).selectExpr("id", "1 v"), "o")
    with transaction(shop.db) as tx:
        tx.write(shop.spark.range(5, 6).selectExpr("id", "1 v"), "o")
    shop.overwrite(frame, "o")
    assert shop.ids("o") == [0, 1, 2]
    shop.overwrite(frame.where("id > 0"), "o")
    assert shop.ids("o") == [1, 2]
    shop.foreign("o", 100)
    shop.overwrite(shop.load("o").where("id <> 1"), "o")  # read after its own last overwrite
    assert shop.ids("o") == [2, 100]


def test_a_frame_that_spark_planned_long_ago_is_read_whenever_it_is_used(shop: Shop) -> None:
    """Spark keeps the plan of a frame, so nothing is planned when it is read again."""
    old = shop.load("o")
    assert old.count() == 3
    shop.foreign("o", 100)
    now = shop.db.seq
    shop.overwrite(shop.load("o", seq=now), "o", expectSeq=now)
    assert shop.load("o").count() == 4
    with pytest.raises(Exception, match=CONFLICT.format("o", now - 1, now)):
        shop.overwrite(old, "o")
    assert shop.ids("o") == [0, 1, 2, 100]


def test_an_application_that_never_read_a_table_overwrites_it_whatever_it_holds(shop: Shop) -> None:
    rows = shop.spark.range(7, 9).selectExpr("id", "1 v")
    assert shop.load("e").count() == 3  # another table
    shop.foreign("o", 100)
    shop.overwrite(rows, "o")
    assert shop.ids("o") == [7, 8]
    shop.load("o").createOrReplaceTempView("target")  # to write to a view is not to read it
    shop.foreign("o", 100)
    shop.spark.sql("insert overwrite target values (5, 5)")
    shop.spark.catalog.dropTempView("target")
    assert shop.ids("o") == [5]


def test_an_overwrite_may_say_which_seq_it_expects(shop: Shop) -> None:
    rows = shop.spark.range(7, 9).selectExpr("id", "1 v")
    seq = shop.db.seq
    shop.foreign("o", 100)
    with pytest.raises(Exception, match=CONFLICT.format("o", seq, seq + 1)):
        shop.overwrite(rows, "o", expectSeq=seq)
    for bad, said in (
        (seq + 50, f"RequestError: .*expectSeq {seq + 50} is in the future.* seq {seq + 1}"),
        ("soon", "option 'expectSeq' must be a whole number; got 'soon'"),
    ):
        with pytest.raises(Exception, match=said):
            shop.overwrite(rows, "o", expectSeq=bad)
    with pytest.raises(Exception, match="option 'expectSeq' is only for overwrites"):
        shop.append(rows, "o", expectSeq=str(seq))
    assert shop.ids("o") == [0, 1, 2, 100]
    shop.overwrite(rows, "o", expectSeq=seq + 1)
    assert shop.ids("o") == [7, 8]
    with pytest.raises(Exception, match=CONFLICT.format("o", seq + 1, seq + 2)):
        shop.overwrite(rows, "o", expectSeq=seq + 1)  # its own commit counts here


def test_an_upsert_that_lacks_a_column_is_refused_unless_its_rows_are_to_lose_it(
    shop: Shop,
) -> None:
    rows = shop.spark.range(2, 5).select("id")
    said = r"SchemaMismatchError: .*'o'.* no column 'v'.*missing.*null"
    with pytest.raises(Exception, match=said):
        shop.append(rows, "o")
    with pytest.raises(st.SchemaMismatchError, match="no column 'v'"), transaction(shop.db) as tx:
        tx.write(rows, "o")
    assert shop.db["o"].get(2) == {"id": 2, "v": 0}
    shop.append(rows, "o", missing="null")
    assert shop.db["o"].get(2) == {"id": 2, "v": None}
    shop.append(shop.spark.range(7, 8).select("id"), "o", op="insert")  # they replace nothing
    shop.append(shop.spark.range(7, 8).select("id"), "o", op="delete")
    shop.append(shop.spark.range(7, 8).select("id"), "e")  # a row of a table without a key is new
    shop.db.create_table("empty", {"id": "int64", "v": "int64"}, primary_key="id")
    with pytest.raises(Exception, match=said.replace("'o'", "'empty'")):
        shop.append(shop.spark.range(7, 8).select("id"), "empty")  # it has no row to lose
    shop.append(rows, "o", missing="null")
    shop.db["o"].update(2, v=5)
    shop.append(shop.spark.range(2, 6).select("id"), "o", missing="keep")
    assert shop.db["o"].get(2) == {"id": 2, "v": 5}
    assert shop.db["o"].get(5) == {"id": 5, "v": None}
    shop.append(shop.spark.range(5, 6).select("id"), "o", op="delete")
    assert shop.ids("o") == [0, 1, 2, 3, 4]
