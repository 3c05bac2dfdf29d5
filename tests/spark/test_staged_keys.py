"""Tasks of Spark sort the keys of their rows; the commit merges them, and leaves one copy."""

# pyright: reportOptionalSubscript=false

from __future__ import annotations

import pickle
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.types import LongType, StringType, StructField, StructType

import siltstone as st
from siltstone.engine.write.bulk import COVERED_ROWS_MIN
from siltstone.spark.context.options import WriteOptions
from siltstone.spark.writes.staging import commit
from siltstone.spark.writes.writer import BatchWriter

COUNT = COVERED_ROWS_MIN - 1
ROWS = StructType([StructField("id", StringType()), StructField("n", LongType())])


def store(path: Path) -> Path:
    with st.connect(path, background=False) as db:
        db.create_table("t", {"id": "string", "n": "int64"}, primary_key="id")
        db["t"].upsert([{"id": "k1", "n": -1}])
    return path


def keys_in(path: Path) -> list[Path]:
    """Return staged keys, and the key runs of loads."""
    return [*path.glob("tables/*/.attached/*/**/*.run")]


def test_a_task_reports_the_keys_of_its_rows_and_the_commit_takes_them_away(tmp_path: Path) -> None:
    path = store(tmp_path / "s")
    given = WriteOptions.parse({"uri": str(path), "table": "t"})
    writer = BatchWriter.plan(given, ROWS, is_overwrite=False)
    keys = [f"key {n}" for n in range(COUNT)]  # too many to travel in the report
    rows = [pa.record_batch({"id": keys, "n": [*range(COUNT)]})]
    written = pickle.loads(pickle.dumps(pickle.loads(pickle.dumps(writer)).write(iter(rows))))
    (sorted_keys,) = written.staged.files.keys
    assert keys_in(path) == [path / sorted_keys.run.path]
    with st.connect(path, background=False) as db:
        commit(db, [writer.job([written])], None)
        assert db["t"].count() == COUNT + 1
        assert db["t"].get("key 1") == {"id": "key 1", "n": 1}
    assert keys_in(path) == []  # so few rows get no run of their own


def test_after_a_write_each_key_is_in_one_file(spark: SparkSession, tmp_path: Path) -> None:
    path, count = store(tmp_path / "s"), COVERED_ROWS_MIN + 100
    frame = spark.range(0, count, 1, 3).selectExpr("concat('k', id) id", "id n")
    frame.write.format("siltstone").options(uri=str(path), table="t").mode("append").save()
    assert len(keys_in(path)) == 1
    with st.connect(path, background=False) as db:
        assert db["t"].count() == count
        assert [db["t"].get(f"k{n}")["n"] for n in (0, 1, count - 1)] == [0, 1, count - 1]
        assert db.verify(deep=True).is_sound
        db.checkpoint()
        db.merge()
        assert db["t"].count() == count
