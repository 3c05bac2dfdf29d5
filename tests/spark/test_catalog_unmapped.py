"""Where a JVM cannot map the memory of its Python process, each answer is the same."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import siltstone as st
from siltstone.spark import register
from siltstone.spark.catalog.settings import PYTHON
from tests.spark import unmapped_daemon
from tests.spark.daemons import daemons, memory_files
from tests.spark.test_catalog_tasks import is_cancelled, nothing_left, slow
from tests.spark.test_catalog_types import FLAT_SCHEMA, flat_rows
from tests.spark.test_types import ROWS, SCHEMA

BIG_ROWS = 300_000
QUERIES = (
    "SELECT * FROM shop.flat ORDER BY n",
    "SELECT * FROM shop.nested ORDER BY id",
    "SELECT n, s FROM shop.flat WHERE i32 IS NULL AND n > 7 ORDER BY n",
    "SELECT count(*), count(s), sum(id), sum(x), max(s), min(s) FROM shop.big WHERE id >= 0",
    "SELECT count(*) FROM shop.big WHERE id % 3 = 1",
    "SELECT count(*) FROM (SELECT * FROM shop.big LIMIT 70000)",
    "SELECT id, length(s), left(s, 1) FROM shop.row ORDER BY id",
    "SELECT * FROM shop.none",
    "SELECT count(*) FROM shop.big a JOIN shop.big b USING (id) WHERE a.x = b.x",
)


@contextmanager
def unmapped(spark: SparkSession, folder: Path) -> Iterator[int]:
    """Let another process serve the session, whose memory it cannot map; yield its number."""
    context: Any = spark.sparkContext
    conf = context._jsc.sc().conf()
    mine = conf.get(PYTHON, sys.executable)
    conf.set(PYTHON, str(unmapped_daemon.executable(folder)))
    try:
        _kill()
        assert spark.sql("SELECT count(id) FROM shop.row WHERE id > 0").collect()[0][0] == 2
        (found,) = daemons()
        yield found
    finally:
        conf.set(PYTHON, mine)
        _kill()


def _kill() -> None:
    for each in daemons():
        os.kill(each, signal.SIGKILL)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("unmapped") / "shop"
    with st.connect(found, background=False) as db:
        db.create_table("flat", FLAT_SCHEMA).append(flat_rows())
        db.create_table("nested", SCHEMA, "id").upsert(ROWS)
        db.create_table("none", {"id": "int64", "s": "string"})
        db.create_table("row", {"id": "int64", "s": "string"}).append(
            [{"id": n, "s": "abc"[n] * (9_000_000 if n == 1 else 3)} for n in range(3)]
        )
        numbers = range(BIG_ROWS)
        columns = {"id": numbers, "s": [f"text {n}" * 3 for n in numbers]}
        big = pa.table({**columns, "x": [float(n) for n in numbers]})
        db.create_table("big", big.schema).append(big)
        db.create_table("keyed", {"id": "int64", "s": "string"}, "id")
        db.checkpoint()
    return found


@pytest.fixture
def shop(spark: SparkSession, path: Path) -> SparkSession:
    return register(spark.newSession(), stores={"shop": path})


def test_each_answer_is_that_of_memory_that_is_mapped(shop: SparkSession, tmp_path: Path) -> None:
    mapped = [repr(shop.sql(each).collect()) for each in QUERIES]
    (daemon,) = daemons()
    assert memory_files(daemon)
    with unmapped(shop, tmp_path):
        for query, wanted in zip(QUERIES, mapped, strict=True):
            assert repr(shop.sql(query).collect()) == wanted, query
        shop.sql("INSERT INTO shop.keyed SELECT id, s FROM shop.big WHERE id < 50000")
        shop.sql(
            "MERGE INTO shop.keyed k USING shop.big b ON k.id = b.id + 25000 AND b.id < 50000"
            " WHEN MATCHED THEN UPDATE SET s = b.s WHEN NOT MATCHED AND b.id >= 299000"
            " THEN INSERT (id, s) VALUES (b.id, 'new')"
        )
    found = {row.id: row.s for row in shop.table("shop.keyed").collect()}
    wanted = {n: f"text {n if n < 25_000 else n - 25_000}" * 3 for n in range(50_000)}
    assert found == wanted | dict.fromkeys(range(299_000, BIG_ROWS), "new")


def test_a_read_that_is_cancelled_leaves_nothing_also_as_a_stream(
    shop: SparkSession, tmp_path: Path
) -> None:
    with unmapped(shop, tmp_path) as daemon:
        frame = shop.sql("SELECT * FROM shop.big")
        frame.write.format("noop").mode("overwrite").save()
        with nothing_left(daemon):
            for after_s in (0.0, 0.3, 0.8):
                read = slow(frame).write.format("noop").mode("overwrite")
                assert is_cancelled(shop, read.save, after_s)
        assert daemons() == [daemon]
        assert frame.count() == BIG_ROWS
