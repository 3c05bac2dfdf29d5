"""UPDATE, MERGE and DELETE change rows by their keys, in one commit that loses no other's."""

from __future__ import annotations

import itertools
import os
import shutil
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn

import siltstone as st
from siltstone.spark import register
from tests.spark.daemons import daemons

_numbers = itertools.count()
ORDERS = {"id": "int64", "c": "int32", "s": "string"}
RULES = (
    "WHEN MATCHED THEN UPDATE SET c = x.c WHEN NOT MATCHED THEN INSERT (id, c) VALUES (x.id, x.c)"
)


@pytest.fixture
def db(tmp_path: Path) -> Iterator[st.Store]:
    with st.connect(tmp_path / "s", background=False, retention="0s") as db:
        rows = [{"id": n, "c": n % 5, "s": f"x{n}"} for n in range(20)]
        db.create_table("o", ORDERS, "id").upsert(rows)
        db.create_table("copy", ORDERS, "id").upsert(rows)
        db.create_table("p", {"a": "int64", "b": "string"}).append([{"a": 1, "b": "one"}])
        db.serve_local()
        yield db


class Shop:
    """A catalog of a store that another process owns, and the store."""

    def __init__(self, spark: SparkSession, db: st.Store) -> None:
        self.spark, self.db, self.name = spark, db, f"u{next(_numbers)}"
        register(spark, stores={self.name: db})

    def sql(self, text: str) -> DataFrame:
        self.spark.sql(f"USE {self.name}")
        try:
            return self.spark.sql(text)
        finally:
            self.spark.sql("USE spark_catalog")

    def one(self, key: int, table: str = "o") -> dict[str, Any] | None:
        return self.db[table].get(key)

    def refuses(self, text: str, said: str) -> None:
        """Check that a statement says `said`, and changes nothing."""
        before = self.db.seq
        with pytest.raises(Exception, match=said):
            self.sql(text).collect()
        assert self.db.seq == before

    def during(self, change: Callable[[], object]) -> str:
        """Return SQL that is 0, after `change` was made while the statement runs."""
        name = f"during{next(_numbers)}"

        path = Path(self.db.path).parent / name
        watcher = threading.Thread(target=_when, args=(path, change))
        watcher.start()
        self.spark.udf.register(name, fn.udf(_toucher(str(path)), "int"))
        return f"{name}()"


def _toucher(path: str) -> Callable[[], int]:
    def touch() -> int:
        begun, ended = Path(path), Path(path + ".done")
        begun.touch()
        while not ended.exists():
            threading.Event().wait(0.02)
        return 0

    return touch


def _when(path: Path, change: Callable[[], object]) -> None:
    for _ in range(3000):
        if path.exists():
            break
        threading.Event().wait(0.02)
    try:
        change()
    finally:
        Path(f"{path}.done").touch()


@pytest.fixture
def shop(spark: SparkSession, db: st.Store) -> Shop:
    return Shop(spark, db)


# --- what they mean


def test_an_update_changes_what_it_names_in_one_commit(shop: Shop) -> None:
    before = shop.db.seq
    shop.sql("UPDATE o SET c = c + 10, s = concat(s, '!') WHERE id % 7 = 2")
    assert shop.db.seq == before + 1
    assert shop.one(9) == {"id": 9, "c": 14, "s": "x9!"}
    assert shop.one(8) == {"id": 8, "c": 3, "s": "x8"}


def test_a_delete_by_what_the_store_does_not_know_goes_by_key(shop: Shop) -> None:
    before = shop.db.seq
    shop.sql("DELETE FROM o WHERE id % 2 = 1")
    shop.sql("DELETE FROM o WHERE id IN (SELECT a * 4 FROM p)")
    assert shop.db.seq == before + 2
    assert shop.db["o"].to_arrow().column("id").to_pylist() == [0, 2, *range(6, 20, 2)]


def test_a_merge_inserts_updates_and_deletes_in_one_commit(shop: Shop) -> None:
    before = shop.db.seq
    shop.sql(
        "MERGE INTO o USING (SELECT id, 'm' AS s FROM range(0, 30, 6)) x ON o.id = x.id"
        " WHEN MATCHED AND o.id = 0 THEN DELETE WHEN MATCHED THEN UPDATE SET s = x.s"
        " WHEN NOT MATCHED THEN INSERT (id, s) VALUES (x.id, x.s)"
        " WHEN NOT MATCHED BY SOURCE AND o.id > 18 THEN UPDATE SET c = 77"
    )
    assert shop.db.seq == before + 1
    assert shop.one(0) is None
    assert shop.one(6) == {"id": 6, "c": 1, "s": "m"}
    assert shop.one(24) == {"id": 24, "c": None, "s": "m"}
    assert shop.one(19) == {"id": 19, "c": 77, "s": "x19"}


def test_a_frame_merges_into_a_table(shop: Shop) -> None:
    frame = shop.spark.createDataFrame([(3, 33), (40, 44)], "id bigint, c int").alias("x")
    name = f"{shop.name}.o"
    frame.mergeInto(name, fn.expr(f"{name}.id = x.id")).whenMatched().update(
        {"c": fn.expr("x.c")}
    ).whenNotMatched().insert({"id": fn.expr("x.id"), "c": fn.expr("x.c")}).merge()
    assert (shop.one(3), shop.one(40)) == (
        {"id": 3, "c": 33, "s": "x3"},
        {"id": 40, "c": 44, "s": None},
    )


def test_statements_that_match_nothing_commit_nothing(shop: Shop) -> None:
    before = shop.db.seq
    shop.sql("UPDATE o SET c = 1 WHERE id % 2 = 5")
    shop.sql("DELETE FROM o WHERE id % 2 = 5")
    shop.sql(
        f"MERGE INTO o USING (SELECT id, 1 c FROM range(5) WHERE id > 8) x ON o.id = x.id {RULES}"
    )
    assert shop.db.seq == before


def test_many_rows_of_many_tasks_are_changed_in_one_commit(shop: Shop) -> None:
    shop.db["o"].upsert([{"id": n, "c": 0, "s": "y" * 40} for n in range(40_000)])
    before = shop.db.seq
    shop.sql(
        "MERGE INTO o USING (SELECT id, 1 c FROM range(20000, 60000, 1, 8)) x ON o.id = x.id"
        f" {RULES} WHEN NOT MATCHED BY SOURCE AND o.id % 3 = 0 THEN DELETE"
    )
    assert shop.db.seq == before + 1
    found = shop.db["o"].to_arrow().sort_by("id").to_pydict()
    wanted = [n for n in range(60_000) if n >= 20_000 or n % 3]
    assert found["id"] == wanted
    assert found["c"] == [int(n >= 20_000) for n in wanted]


def test_a_merge_may_delete_a_row_that_two_source_rows_match(shop: Shop) -> None:
    shop.sql(
        "MERGE INTO o USING (SELECT 2L id UNION ALL SELECT 2L) x ON o.id = x.id"
        " WHEN MATCHED THEN DELETE"
    )
    assert shop.one(2) is None


def test_a_key_of_several_columns_says_which_row(shop: Shop) -> None:
    columns = {"k": "string", "day": "date32", "v": "int64"}
    shop.db.create_table("m", columns, ["k", "day"])
    shop.sql("INSERT INTO m VALUES ('a', date'2026-01-01', 1), ('a', date'2026-01-02', 2)")
    shop.sql("UPDATE m SET v = v * 10 WHERE length(k) + day(day) = 3")
    shop.refuses("UPDATE m SET day = date'2026-02-01' WHERE v = 20", "would get the key")
    assert shop.db["m"].to_arrow().sort_by("v").column("v").to_pylist() == [1, 20]


# --- what they refuse


def test_a_key_does_not_change_its_value(shop: Shop) -> None:
    shop.refuses(
        "UPDATE o SET id = id + 100000 WHERE id = 4", "key id = 4 would get the key 100004"
    )
    shop.sql("UPDATE o SET id = id + 0, c = 9 WHERE id = 4")
    assert shop.one(4) == {"id": 4, "c": 9, "s": "x4"}
    shop.refuses(
        "MERGE INTO o USING (SELECT 5L id, 6L other) x ON o.id = x.id"
        " WHEN MATCHED THEN UPDATE SET id = x.other",
        "key id = 5 would get the key 6",
    )


def test_two_source_rows_for_one_row_are_refused(shop: Shop) -> None:
    twice = "(SELECT 2L AS id, 1 AS c UNION ALL SELECT 2L, 2) x"
    shop.refuses(
        f"MERGE INTO o USING {twice} ON o.id = x.id {RULES}", "MERGE_CARDINALITY_VIOLATION"
    )
    twice = "(SELECT 50L AS id, 1 AS c UNION ALL SELECT 50L, 2) x"
    shop.refuses(f"MERGE INTO o USING {twice} ON o.id = x.id {RULES}", "50")


def test_an_insert_of_a_merge_does_not_replace_a_row(shop: Shop) -> None:
    shop.refuses(
        f"MERGE INTO o USING (SELECT 3L id, 1 c) x ON o.id = x.id AND o.c = 99 {RULES}",
        r"o\[3\] exists already",
    )


def test_rows_of_a_table_without_a_key_change_by_what_the_store_answers(shop: Shop) -> None:
    shop.refuses("UPDATE p SET b = 'q' WHERE a = 2", "has none")
    shop.refuses("DELETE FROM p WHERE a % 2 = 0", "DELETE of rows of 'p' goes by their key")
    for never in ("a = CAST(NULL AS BIGINT)", "a > 1 AND a = NULL"):  # Spark scans nothing
        shop.refuses(f"DELETE FROM p WHERE {never}", "DELETE of rows of 'p' goes by their key")
    shop.refuses(
        "MERGE INTO p USING (SELECT 1L a) x ON p.a = x.a WHEN MATCHED THEN UPDATE SET b = 'z'",
        "MERGE of rows of 'p' goes by their key",
    )
    shop.sql("DELETE FROM p WHERE b = 'one'")
    assert shop.db["p"].count() == 0


def test_wrong_settings_and_options_are_refused_before_the_work(shop: Shop) -> None:
    setting = f"spark.sql.catalog.{shop.name}.isolation"
    shop.spark.conf.set(setting, "loose")
    shop.refuses("UPDATE o SET c = 1 WHERE id % 2 = 1", "isolation must be")
    shop.spark.conf.unset(setting)


def test_a_delete_by_a_condition_that_the_store_answers_has_the_options_of_others(
    shop: Shop,
) -> None:
    shop.refuses("DELETE FROM o WITH (isolation = 'loose') WHERE id = 3", "isolation must be")
    shop.refuses("DELETE FROM o WITH (nonsense = 'x') WHERE id = 3", "no option 'nonsense'")
    statement = "DELETE FROM o WITH (token = 'etl:1') WHERE id = 3"
    shop.sql(statement)
    assert shop.one(3) is None
    _replaces(shop, 3)()
    shop.sql(statement)
    assert shop.one(3) == {"id": 3, "c": 20, "s": "theirs"}


def test_a_column_of_the_source_that_the_table_lacks_is_refused(shop: Shop) -> None:
    shop.refuses(
        "MERGE WITH SCHEMA EVOLUTION INTO o USING (SELECT 9L id, 1 c, 'n' s, 1 extra) x"
        " ON o.id = x.id WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *",
        "no WITH SCHEMA EVOLUTION: add the columns that o lacks by ALTER TABLE first",
    )
    before = shop.db.seq
    shop.sql(
        "EXPLAIN MERGE WITH SCHEMA EVOLUTION INTO o USING (SELECT 9L id, 1 extra) x"
        " ON o.id = x.id WHEN MATCHED THEN UPDATE SET *"
    ).collect()
    assert shop.db.seq == before


def test_a_script_says_and_handles_what_a_statement_in_it_refuses(shop: Shop) -> None:
    insert = f"INSERT INTO {shop.name}.o VALUES (1, 1, 'again')"
    shop.refuses(f"BEGIN {insert}; END", r"o\[1\] exists already")
    handler = "DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN SELECT 'handled' AS said; END;"
    assert shop.sql(f"BEGIN {handler} {insert}; END").collect()[0]["said"] == "handled"


# --- beside other writers


def _replaces(shop: Shop, key: int) -> Callable[[], object]:
    return lambda: shop.db["o"].upsert({"id": key, "c": 20, "s": "theirs"})


def test_a_row_that_changed_since_it_was_read_is_a_conflict(shop: Shop) -> None:
    for text in (
        "UPDATE o SET c = c + {0} + 1 WHERE id % 7 = 1",
        "DELETE FROM o WHERE id % 7 = 1 + {0}",
        "MERGE INTO o USING (SELECT 8L + {0} id, 3 c) x ON o.id = x.id " + RULES,
    ):
        zero = shop.during(_replaces(shop, 8))
        with pytest.raises(Exception, match=r"o\[8\]|'o'"):
            shop.sql(text.format(zero))
        assert shop.one(8) == {"id": 8, "c": 20, "s": "theirs"}
        assert shop.one(1) == {"id": 1, "c": 1, "s": "x1"}


def test_other_rows_may_change_meanwhile(shop: Shop) -> None:
    zero = shop.during(_replaces(shop, 9))
    shop.sql(f"UPDATE o SET c = c + {zero} + 1 WHERE id = 8 + {zero}")
    assert (shop.one(8), shop.one(9)) == (
        {"id": 8, "c": 4, "s": "x8"},
        {"id": 9, "c": 20, "s": "theirs"},
    )


def test_a_key_that_came_meanwhile_is_a_conflict_of_an_insert(shop: Shop) -> None:
    zero = shop.during(_replaces(shop, 80))
    with pytest.raises(Exception, match="80"):
        shop.sql(f"MERGE INTO o USING (SELECT 80L + {zero} id, 3 c) x ON o.id = x.id {RULES}")
    assert shop.one(80) == {"id": 80, "c": 20, "s": "theirs"}


def test_what_the_store_does_meanwhile_changes_nothing(shop: Shop) -> None:
    def upkeep() -> None:
        shop.db["o"].upsert([{"id": n, "c": 1, "s": "more"} for n in range(100, 200)])
        shop.db.checkpoint()
        shop.db.merge()
        shop.db.optimize()
        shop.db.vacuum()

    zero = shop.during(upkeep)
    shop.sql(f"UPDATE o SET c = c + {zero} + 1 WHERE id % 7 = 1")
    assert shop.one(15) == {"id": 15, "c": 1, "s": "x15"}
    assert shop.db["o"].count() == 120


@pytest.mark.parametrize(
    "change",
    [
        lambda db: db["o"].truncate(),
        lambda db: db["o"].add_column("z", "int64"),
        lambda db: db["o"].drop_column("s"),
        lambda db: db.drop_table("o"),
    ],
    ids=["truncate", "add a column", "drop a column", "drop"],
)
def test_a_change_of_the_whole_table_is_a_conflict(
    shop: Shop, change: Callable[[st.Store], object]
) -> None:
    zero = shop.during(lambda: change(shop.db))
    before = shop.db.seq
    with pytest.raises(Exception, match=r"'o'|column|o\["):
        shop.sql(f"UPDATE o SET c = c + {zero} + 1 WHERE id % 7 = 1")
    assert shop.db.seq == before + 1


def test_a_frame_of_an_earlier_seq_does_not_lose_what_came_since(shop: Shop) -> None:
    name = f"{shop.name}.o"
    frame = shop.spark.table(name).where("id = 8").selectExpr("id", "c + 1 AS c").alias("x")
    frame.explain()
    _replaces(shop, 8)()
    merge = frame.mergeInto(name, fn.expr(f"{name}.id = x.id"))
    with pytest.raises(Exception, match=r"o\[8\] was written"):
        merge.whenMatched().update({"c": fn.expr("x.c")}).merge()
    nested = shop.spark.createDataFrame([(9,)], "k int").join(frame, fn.col("c") > 0).alias("y")
    merge = nested.mergeInto(name, fn.expr(f"{name}.id = y.id"))
    with pytest.raises(Exception, match=r"o\[8\] was written"):
        merge.whenMatched().update({"c": fn.expr("y.c")}).merge()
    assert shop.one(8) == {"id": 8, "c": 20, "s": "theirs"}


def test_a_view_of_a_frame_reads_anew(shop: Shop) -> None:
    frame = shop.spark.table(f"{shop.name}.o").where("id = 8").selectExpr("id", "c + 1 AS c")
    frame.createOrReplaceTempView("anew")
    _replaces(shop, 8)()
    shop.sql("MERGE INTO o USING anew y ON o.id = y.id WHEN MATCHED THEN UPDATE SET c = y.c")
    assert shop.one(8) == {"id": 8, "c": 21, "s": "theirs"}


def test_a_cached_frame_does_not_lose_what_came_since(shop: Shop) -> None:
    name = f"{shop.name}.o"
    frame = shop.spark.table(name).where("id = 8").selectExpr("id", "c + 1 AS c").cache()
    again = frame.selectExpr("id", "c + 0 AS c").cache()
    assert (frame.count(), again.count()) == (1, 1)
    _replaces(shop, 8)()
    merge = again.alias("x").mergeInto(name, fn.expr(f"{name}.id = x.id"))
    with pytest.raises(Exception, match=r"o\[8\] was written"):
        merge.whenMatched().update({"c": fn.expr("x.c")}).merge()
    assert shop.one(8) == {"id": 8, "c": 20, "s": "theirs"}
    frame.unpersist()
    again.unpersist()


def _without(shop: Shop) -> DataFrame:
    """Return row 8, if no row has the text 'theirs': Spark finds none, and forgets the table."""
    none = shop.spark.table(f"{shop.name}.o").where("s = 'theirs'").select("id")
    return shop.spark.range(8, 9).join(none, "id", "anti").selectExpr("id", "77 AS c")


def _counted(shop: Shop) -> DataFrame:
    return shop.spark.sql(f"SELECT 8L AS id, 50 + int(count(*)) AS c FROM {shop.name}.o")


@pytest.mark.parametrize("made", [_without, _counted])
def test_a_cached_frame_knows_tables_of_which_it_has_no_row(
    shop: Shop, made: Callable[[Shop], DataFrame]
) -> None:
    name = f"{shop.name}.o"
    frame = made(shop).cache()
    assert frame.count() == 1
    _replaces(shop, 8)()
    merge = frame.alias("x").mergeInto(name, fn.expr(f"{name}.id = x.id"))
    with pytest.raises(Exception, match=r"o\[8\] was written"):
        merge.whenMatched().update({"c": fn.expr("x.c")}).merge()
    frame.unpersist()


@pytest.mark.parametrize("is_cached", [False, True])
def test_rows_of_the_same_table_by_load_are_refused(shop: Shop, is_cached: bool) -> None:
    name, path = f"{shop.name}.o", str(shop.db.path)
    loading = shop.spark.read.format("siltstone").option("uri", path)
    frame = loading.option("table", "o").load().where("id = 8").selectExpr("id", "c + 1 AS c")
    if is_cached:
        assert frame.cache().count() == 1
    _replaces(shop, 8)()
    merge = frame.alias("x").mergeInto(name, fn.expr(f"{name}.id = x.id"))
    with pytest.raises(Exception, match="does not tell at which seq"):
        merge.whenMatched().update({"c": fn.expr("x.c")}).merge()
    assert shop.one(8) == {"id": 8, "c": 20, "s": "theirs"}
    frame.unpersist()
    other = loading.option("table", "copy").load().alias("y")
    merge = other.mergeInto(name, fn.expr(f"{name}.id = y.id"))
    merge.whenMatched(fn.expr("y.id = 8")).update({"c": fn.expr("y.c")}).merge()
    assert shop.one(8) == {"id": 8, "c": 3, "s": "theirs"}


def _merge_batches(shop: Shop, static: DataFrame, folder: Path) -> list[str]:
    """Add 1 to a column of a static frame in two batches, and merge each; return what they say."""
    name, source, said = f"{shop.name}.o", str(folder / "source"), list[str]()
    for _ in range(2):
        shop.spark.sql("SELECT 8L AS id, 1 AS v").write.mode("append").parquet(source)

    def add(batch: DataFrame, number: int) -> None:
        merge = batch.alias("x").mergeInto(name, fn.expr(f"{name}.id = x.id"))
        try:
            merge.whenMatched().update({"c": fn.expr("x.c")}).merge()
        except Exception as error:  # noqa: BLE001 - what it says is looked at
            said.append(str(error))

    stream = shop.spark.readStream.schema("id bigint, v int").option("maxFilesPerTrigger", 1)
    sums = stream.parquet(source).join(static, "id").selectExpr("id", "old + v AS c")
    writing = sums.writeStream.foreachBatch(add).trigger(availableNow=True)
    writing.option("checkpointLocation", str(folder / "progress")).start().awaitTermination()
    return said


def test_a_batch_of_a_stream_does_not_lose_what_came_since_its_table_was_read(
    shop: Shop, tmp_path: Path
) -> None:
    static = shop.spark.table(f"{shop.name}.o").selectExpr("id", "c AS old")
    (said,) = _merge_batches(shop, static, tmp_path)
    assert "o[8] was written" in said
    assert shop.one(8) == {"id": 8, "c": 4, "s": "x8"}


def test_batches_of_a_stream_with_another_table_do_not_conflict_with_each_other(
    shop: Shop, tmp_path: Path
) -> None:
    before = shop.db.seq
    static = shop.spark.table(f"{shop.name}.copy").selectExpr("id", "c AS old")
    assert _merge_batches(shop, static, tmp_path) == []
    assert shop.db.seq == before + 2


def test_a_serializable_statement_conflicts_with_changes_of_its_sources(shop: Shop) -> None:
    setting = f"spark.sql.catalog.{shop.name}.isolation"
    text = "UPDATE o SET c = {0} + (SELECT max(c) FROM copy) WHERE id % 7 = 1"

    def change() -> None:
        shop.db["copy"].upsert({"id": 500, "c": 500, "s": ""})

    shop.sql(text.format(shop.during(change)))
    assert shop.one(8) == {"id": 8, "c": 4, "s": "x8"}
    shop.spark.conf.set(setting, "serializable")
    try:
        with pytest.raises(Exception, match="copy"):
            shop.sql(text.format(shop.during(change)))
        shop.sql("UPDATE o SET c = (SELECT max(c) FROM copy) WHERE id % 7 = 1")
    finally:
        shop.spark.conf.unset(setting)
    assert shop.one(8) == {"id": 8, "c": 500, "s": "x8"}


def test_statements_of_two_tables_read_one_seq(shop: Shop) -> None:
    def both() -> None:
        with shop.db.transaction() as tx:
            tx["p"].append({"a": 900, "b": "new"})
            tx["copy"].upsert({"id": 1, "c": 900, "s": ""})

    zero = shop.during(both)
    shop.sql(
        f"UPDATE o SET c = {zero} + (SELECT max(a) FROM p) + (SELECT max(c) FROM copy)"
        " WHERE id % 7 = 1"
    )
    assert shop.one(8) == {"id": 8, "c": 5, "s": "x8"}


def test_a_serializable_statement_conflicts_with_changes_since_a_cached_count(shop: Shop) -> None:
    setting, name = f"spark.sql.catalog.{shop.name}.isolation", f"{shop.name}.o"
    frame = shop.sql("SELECT 8L AS id, int(count(*)) AS c FROM copy").cache()
    assert frame.count() == 1
    shop.db["copy"].upsert({"id": 500, "c": 500, "s": ""})
    shop.spark.conf.set(setting, "serializable")
    try:
        merge = frame.alias("x").mergeInto(name, fn.expr(f"{name}.id = x.id"))
        with pytest.raises(Exception, match="copy"):
            merge.whenMatched().update({"c": fn.expr("x.c")}).merge()
    finally:
        shop.spark.conf.unset(setting)
        frame.unpersist()


def test_an_upsert_of_rows_of_its_own_table_does_not_lose_what_came_since(shop: Shop) -> None:
    zero = shop.during(_replaces(shop, 8))
    with pytest.raises(Exception, match=r"o\[8\] was written"):
        shop.sql(
            "INSERT INTO o WITH (op = 'upsert', missing = 'null')"
            f" SELECT id, c + {zero} + 1, s FROM o WHERE id = 8"
        )


_RESTORE = (
    "MERGE INTO o WITH (expectSeq = {1}) USING (SELECT * FROM o VERSION AS OF {0}) y"
    " ON o.id = y.id WHEN MATCHED AND o.c <> y.c THEN UPDATE SET *"
)


def test_a_merge_that_only_inserts_takes_the_options_of_a_write(shop: Shop) -> None:
    insert = (
        "MERGE INTO o t WITH ({0}) USING (SELECT * FROM o WHERE id < 3) x ON t.id = x.id + 990"
        " WHEN NOT MATCHED THEN INSERT (id, c, s) VALUES (x.id + 990, 0, 'new')"
    )
    shop.refuses(insert.format("nope = 1"), "nope")
    shop.refuses(insert.format("token = 'a'"), "option 'token' must be like")
    for _ in range(2):
        shop.sql(insert.format(f"token = 'merge:1', expectSeq = {shop.db.seq}"))
    assert shop.one(991) == {"id": 991, "c": 0, "s": "new"}


def test_the_past_of_a_table_is_a_source_of_its_changes_if_they_say_what_is_known(
    shop: Shop,
) -> None:
    past, was = shop.db.seq, shop.one(8)
    _replaces(shop, 8)()
    shop.refuses(_RESTORE.replace(" WITH (expectSeq = {1})", "").format(past), "expectSeq")
    shop.sql(_RESTORE.format(past, shop.db.seq))
    assert shop.one(8) == was
    _replaces(shop, 8)()
    shop.sql(
        f"INSERT INTO o WITH (op = 'upsert', missing = 'null', expectSeq = {shop.db.seq})"
        f" SELECT * FROM o VERSION AS OF {past} WHERE id = 8"
    )
    assert shop.one(8) == was


def test_a_statement_that_names_a_seq_loses_no_row_that_came_after_it(shop: Shop) -> None:
    past = shop.db.seq
    _replaces(shop, 8)()
    known = shop.db.seq
    _replaces(shop, 8)()
    shop.refuses(_RESTORE.format(past, known), r"o\[8\] was written at seq")
    shop.refuses(
        f"INSERT INTO o WITH (op = 'upsert', missing = 'null', expectSeq = {known})"
        " VALUES (8, 1, 'other')",
        r"o\[8\] was written at seq",
    )


@pytest.mark.parametrize(
    ("seq", "said"), [("9999", "expectSeq 9999 is in the future"), ("soon", "a whole number")]
)
def test_a_statement_that_names_no_seq_there_was_changes_nothing(
    shop: Shop, seq: str, said: str
) -> None:
    shop.refuses(f"UPDATE o WITH (expectSeq = '{seq}') SET c = 1 WHERE id = 8", said)
    shop.refuses(
        f"INSERT INTO o WITH (op = 'upsert', missing = 'null', expectSeq = '{seq}')"
        " VALUES (8, 1, 'x')",
        said,
    )


def test_an_insert_may_be_serializable(shop: Shop) -> None:
    def change() -> None:
        shop.db["copy"].upsert({"id": 600, "c": 600, "s": ""})

    text = "INSERT INTO o WITH (isolation = '{0}') SELECT 100 + {1} + count(*), 1, 's' FROM copy"
    shop.sql(text.format("snapshot", shop.during(change)))
    with pytest.raises(Exception, match="copy"):
        shop.sql(text.format("serializable", shop.during(change)))


def test_a_cached_table_beside_the_changed_one_lets_a_statement_run_twice(shop: Shop) -> None:
    shop.sql("CACHE TABLE copy")
    try:
        for _ in range(2):
            shop.sql("UPDATE o SET c = c + (SELECT max(c) FROM copy) WHERE id % 20 = 8")
    finally:
        shop.sql("UNCACHE TABLE copy")


def test_a_key_that_was_deleted_since_a_frame_read_it_is_a_conflict(shop: Shop) -> None:
    name = f"{shop.name}.o"
    frame = shop.spark.table(name).where("id = 8").select("id", "c").alias("x")
    frame.explain()
    shop.db["o"].delete(8)
    merge = frame.mergeInto(name, fn.expr(f"{name}.id = x.id")).whenNotMatched()
    with pytest.raises(Exception, match="expectSeq"):
        merge.insert({"id": fn.expr("x.id"), "c": fn.expr("x.c")}).merge()


# --- kills


def test_a_process_that_is_killed_while_rows_are_staged_commits_nothing(shop: Shop) -> None:
    shop.sql("SELECT 1 FROM o LIMIT 1").collect()
    (pid,) = daemons()
    before = shop.db.seq
    zero = shop.during(lambda: os.kill(pid, signal.SIGKILL))
    with pytest.raises(Exception, match="ended"):
        shop.sql(f"UPDATE o SET c = c + {zero} + 1 WHERE id % 7 = 1")
    assert shop.db.seq == before
    shop.sql("UPDATE o SET c = c + 1 WHERE id % 7 = 1")
    assert shop.one(8) == {"id": 8, "c": 4, "s": "x8"}


# --- REPLACE TABLE


def test_a_table_is_replaced_with_its_rows_in_one_commit(shop: Shop) -> None:
    before, old = shop.db.seq, shop.db["o"].id
    shop.sql("CREATE OR REPLACE TABLE o AS SELECT id, s FROM o WHERE id < 3")
    assert shop.db.seq == before + 1
    assert shop.db["o"].id != old
    assert shop.db.tables() == ["copy", "o", "p"]
    assert shop.db["o"].to_arrow().num_rows == 3
    shop.sql("REPLACE TABLE o TBLPROPERTIES ('primaryKey'='id') AS SELECT 1L id, 'a' s")
    assert shop.one(1) == {"id": 1, "s": "a"}
    shop.sql("CREATE OR REPLACE TABLE fresh AS SELECT 1 AS x")
    shop.sql("CREATE OR REPLACE TABLE fresh (k BIGINT PRIMARY KEY, v STRING)")
    assert (shop.db["fresh"].primary_key, shop.db["fresh"].count()) == (("k",), 0)
    shop.refuses("REPLACE TABLE absent AS SELECT 1 AS x", "(?i)cannot be.*found|cannot replace")
    shop.spark.sql("SELECT 7L AS x").write.mode("overwrite").saveAsTable(f"{shop.name}.fresh")
    assert shop.db["fresh"].to_arrow().to_pylist() == [{"x": 7}]


def test_what_was_acknowledged_is_recovered_from_the_log(shop: Shop, tmp_path: Path) -> None:
    shop.sql("CREATE OR REPLACE TABLE copy AS SELECT id, s FROM o WHERE id < 3")
    shop.sql(f"MERGE INTO o USING (SELECT id, 9 c FROM range(15, 25)) x ON o.id = x.id {RULES}")
    shop.sql("DELETE FROM o WHERE id % 2 = 1")
    wanted = {name: shop.db[name].to_arrow().sort_by("id") for name in ("o", "copy")}
    image = tmp_path / "image"  # what a kill leaves: nothing is flushed, nothing closed
    shutil.copytree(shop.db.path, image)
    with st.connect(image, background=False) as again:
        assert {name: again[name].to_arrow().sort_by("id") for name in wanted} == wanted
        again.checkpoint()
        again.vacuum(dry_run=False, grace_s=0)
        assert {name: again[name].to_arrow().sort_by("id") for name in wanted} == wanted
        assert again.verify(deep=True).is_sound


def test_a_replaced_table_that_changed_since_it_was_read_is_a_conflict(shop: Shop) -> None:
    zero = shop.during(_replaces(shop, 80))
    with pytest.raises(Exception, match="'o'"):
        shop.sql(f"CREATE OR REPLACE TABLE o AS SELECT id + {zero} id FROM o")
    assert shop.one(80) == {"id": 80, "c": 20, "s": "theirs"}


def test_a_table_that_another_made_meanwhile_is_not_replaced(shop: Shop) -> None:
    for text in ("CREATE TABLE late", "CREATE OR REPLACE TABLE late"):
        zero = shop.during(lambda: shop.db.create_table("late", {"k": "int64"}, "k"))
        with pytest.raises(Exception, match="late"):
            shop.sql(f"{text} AS SELECT id + {zero} id FROM o")
        assert shop.db["late"].schema.names == ["k"]
        shop.db.drop_table("late")
