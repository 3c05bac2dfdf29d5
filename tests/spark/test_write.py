"""A write of Spark is one commit: all rows at one seq, or none, and nothing wrong gets in."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import xxhash
from pyspark.sql import DataFrame, SparkSession

import siltstone as st
from siltstone.formats.store_format import STORE_FORMAT
from siltstone.spark import transaction
from tests.spark.stores import SCHEMA, owner


@pytest.fixture
def path(tmp_path: Path) -> Iterator[Path]:
    """A store with a keyed and a plain table; nobody owns it."""
    with st.connect(tmp_path / "store", background=False, segment_bytes=65_536) as db:
        db.create_table("t", SCHEMA, primary_key="id")
        db.create_table("events", {"n": "int64", "kind": "string"})
    yield tmp_path / "store"
    with st.connect(tmp_path / "store", background=False) as db:
        assert db.verify(deep=True).is_sound


def rows(spark: SparkSession, first: int, last: int, name: str = "new") -> DataFrame:
    text = f"concat('{name} ', id) name"
    return spark.range(first, last, 1, 3).selectExpr("id", text, "cast(id as double) v")


def save(frame: DataFrame, path: Path, table: str = "t", mode: str = "append", **options: str):
    frame.write.format("siltstone").options(uri=str(path), table=table, **options).mode(mode).save()


def names(path: Path, table: str = "t") -> dict[int, str]:
    with st.connect(path, read_only=True) as db:
        return {row["id"]: row["name"] for row in db[table].to_arrow().to_pylist()}


def seq_of(path: Path) -> int:
    with st.connect(path, read_only=True) as db:
        return db.seq


def test_rows_are_inserted_upserted_and_deleted_in_one_commit_each(
    spark: SparkSession, path: Path
) -> None:
    before = seq_of(path)
    save(rows(spark, 0, 100, "old"), path, op="insert")
    save(rows(spark, 50, 120), path, op="upsert")
    save(rows(spark, 0, 10), path, op="delete")
    assert seq_of(path) == before + 3
    wanted = {n: f"old {n}" for n in range(10, 50)} | {n: f"new {n}" for n in range(50, 120)}
    assert names(path) == wanted


def test_overwrite_replaces_all_rows_and_keeps_the_past(spark: SparkSession, path: Path) -> None:
    save(rows(spark, 0, 20, "old"), path)
    past = seq_of(path)
    save(rows(spark, 15, 30), path, mode="overwrite")
    assert names(path) == {n: f"new {n}" for n in range(15, 30)}
    with st.connect(path, read_only=True) as db, db.snapshot(seq=past) as snap:
        assert snap["t"].count() == 20


def test_a_plain_table_is_appended_to_and_overwritten(spark: SparkSession, path: Path) -> None:
    frame = spark.range(3).selectExpr("id as n")  # the other column is null
    save(frame, path, "events")
    save(frame, path, "events")
    save(frame.selectExpr("n + 7 as n", "'x' as kind"), path, "events", mode="overwrite")
    with st.connect(path, read_only=True) as db:
        found = sorted(map(str, db["events"].to_arrow().to_pylist()))
    assert found == [str({"n": n, "kind": "x"}) for n in (7, 8, 9)]


def test_of_equal_keys_the_last_by_a_column_counts(spark: SparkSession, path: Path) -> None:
    frame = spark.range(0, 90, 1, 3).selectExpr(
        "id % 10 as id", "concat('turn ', id) name", "cast(id as double) v"
    )
    save(frame, path, order_by="v")
    assert names(path) == {n: f"turn {80 + n}" for n in range(10)}
    with pytest.raises(Exception, match=r"DuplicateKeyError: t\[\d\] is twice among the rows"):
        save(frame, path)


def test_a_token_applies_a_write_once(spark: SparkSession, path: Path) -> None:
    save(rows(spark, 0, 5), path, token="nightly:1")
    first = seq_of(path)
    save(rows(spark, 0, 9, "again"), path, token="nightly:1")
    assert seq_of(path) == first
    assert names(path) == {n: f"new {n}" for n in range(5)}


def test_a_token_applies_an_overwrite_once(spark: SparkSession, path: Path) -> None:
    save(rows(spark, 0, 5), path, mode="overwrite", token="nightly:1")
    save(rows(spark, 7, 9), path)
    save(rows(spark, 0, 5), path, mode="overwrite", token="nightly:1")
    assert sorted(names(path)) == [0, 1, 2, 3, 4, 7, 8]


def test_a_store_is_named_by_a_url_too(spark: SparkSession, path: Path) -> None:
    url = f"file://{path}"
    frame = rows(spark, 0, 5)
    frame.write.format("siltstone").options(uri=url, table="t").mode("append").save()
    read = spark.read.format("siltstone").options(uri=url, table="t").load()
    assert read.count() == len(names(path)) == 5
    with pytest.raises(Exception, match="s3://bucket/shop"):
        frame.write.format("siltstone").options(uri="s3://bucket/shop", table="t").mode(
            "append"
        ).save()


def test_sql_inserts_through_a_view(spark: SparkSession, path: Path) -> None:
    spark.sql(
        f"create or replace temporary view target using siltstone"
        f" options (uri '{path}', table 't', op 'insert')"
    )
    spark.sql("insert into target values (1, 'one', 1.0), (2, 'two', null)")
    spark.sql("drop view target")
    assert names(path) == {1: "one", 2: "two"}


def test_an_empty_frame_is_written_as_nothing(spark: SparkSession, path: Path) -> None:
    save(rows(spark, 0, 5), path)
    save(rows(spark, 0, 0), path)
    assert len(names(path)) == 5
    save(rows(spark, 0, 0), path, mode="overwrite")
    assert names(path) == {}


def test_an_empty_frame_spends_its_token(spark: SparkSession, path: Path) -> None:
    save(rows(spark, 0, 0), path, token="nightly:1")
    first = seq_of(path)
    save(rows(spark, 0, 9), path, token="nightly:1")  # another frame, the same batch
    assert seq_of(path) == first
    assert names(path) == {}
    with st.connect(path, read_only=True) as db:
        assert [entry.token for entry in db.log() if entry.token] == [("nightly", 1)]
    save(rows(spark, 0, 9), path, token="nightly:2")
    assert len(names(path)) == 9


def test_a_store_of_another_format_is_refused_and_not_a_byte_is_changed(
    spark: SparkSession, tmp_path: Path
) -> None:
    with st.connect(tmp_path / "s", background=False) as db:
        db.create_table("t", SCHEMA, primary_key="id")
    newest = max((tmp_path / "s" / "manifest").glob("*.json"))
    head, body = b"siltstone-manifest 11 ", b"what no other siltstone reads\n"
    newest.write_bytes(head + xxhash.xxh3_64_hexdigest(head + body).encode() + b"\n" + body)
    before = tree(tmp_path)
    said = rf"UnsupportedFormatError: .* has format 11, .* opens format {STORE_FORMAT} alone"
    frame = rows(spark, 0, 5)
    with pytest.raises(Exception, match=said):
        save(frame, tmp_path / "s")
    with pytest.raises(Exception, match=said):
        spark.read.format("siltstone").options(uri=str(tmp_path / "s"), table="t").load()
    with pytest.raises(st.UnsupportedFormatError), transaction(tmp_path / "s") as tx:
        tx.write(frame, "t")
    assert tree(tmp_path) == before


def tree(folder: Path) -> dict[str, bytes]:
    files = (file for file in folder.rglob("*") if file.is_file())
    return {str(file.relative_to(folder)): file.read_bytes() for file in files}


def test_spark_writes_through_an_owner_in_another_process(spark: SparkSession, path: Path) -> None:
    with owner(path, "serve"):
        save(rows(spark, 0, 50), path)
        assert len(names(path)) == 50
    with owner(path), pytest.raises(Exception, match=r"OwnedError: .* serve_local"):
        save(rows(spark, 50, 60), path)
    assert len(names(path)) == 50


def test_spark_writes_through_the_owner_in_this_process(spark: SparkSession, path: Path) -> None:
    with st.connect(path, background=False) as db:
        db.serve_local()
        save(rows(spark, 0, 50), path)
        assert db["t"].count() == 50
        db["t"].upsert({"id": 7, "name": "small"}, missing="null")
        assert db["t"].get(7) == {"id": 7, "name": "small", "v": None}


@pytest.mark.parametrize(
    ("select", "options", "said"),
    [
        (["id"], {"uri": ""}, "option 'uri' is missing"),
        (["id"], {"table": "x"}, "no table 'x'"),
        (["id"], {"op": "merge"}, "option 'op' must be one of"),
        (["id"], {"opp": "upsert"}, "a write has no option 'opp'"),
        (["id"], {"op": "append"}, "'t' is a keyed table: op must be one of"),
        (["id"], {"order_by": "v"}, "have no column 'v' to order by"),
        (["id", "id as more"], {}, "table 't' has no column 'more'"),
        (["id as ID"], {}, "no column 'ID'; did you mean 'id'. The columns are id, name, v"),
        (["cast(id as string) id"], {}, "column 'id' of 't' has type int64, the rows have string"),
        (["name"], {}, r"have no column 'id' \(int64\), which may not be null"),
        (["if(id = 3, null, id) id"], {"missing": "null"}, "column 'id'"),
        (["id % 2 as id"], {"missing": "null"}, "DuplicateKeyError"),
        (["id"], {"op": "insert"}, r"DuplicateKeyError: t\[1\] exists already"),
        (["id"], {"token": "17"}, "option 'token' must be like 'nightly:17'"),
    ],
)
def test_bad_input_is_named_and_nothing_is_written(
    spark: SparkSession, path: Path, select: list[str], options: dict[str, str], said: str
) -> None:
    with st.connect(path, background=False) as db:
        db["t"].insert({"id": 1, "name": "one"})
        before = db.seq
    given = {"uri": str(path), "table": "t", **options}
    frame = rows(spark, 0, 6).selectExpr(*select)
    with pytest.raises(Exception, match=said):
        frame.write.format("siltstone").options(**given).mode("append").save()
    assert seq_of(path) == before
    assert names(path) == {1: "one"}


def test_the_modes_that_there_are_are_named(spark: SparkSession, path: Path) -> None:
    for mode in ("error", "ignore"):
        with pytest.raises(Exception, match='use either the "Append" or "Overwrite" mode'):
            save(rows(spark, 0, 5), path, mode=mode)
    with pytest.raises(Exception, match="mode 'overwrite' replaces all rows"):
        save(rows(spark, 0, 5), path, mode="overwrite", op="delete")
    assert names(path) == {}


def test_a_job_that_fails_leaves_nothing_that_is_seen(spark: SparkSession, path: Path) -> None:
    frame = rows(spark, 0, 90).selectExpr("id", "if(id = 80, raise_error('boom'), name) name", "v")
    with pytest.raises(Exception, match="boom"):
        save(frame, path)
    assert names(path) == {}
    with st.connect(path, background=False) as db:
        db["t"].insert({"id": 1, "name": "one"})
        db.checkpoint()
        db.vacuum(dry_run=False, grace_s=0)
        assert db.vacuum(grace_s=0).files == ()
