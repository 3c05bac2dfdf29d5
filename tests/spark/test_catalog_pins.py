"""All tables of a statement have one seq, which is kept for as long as a frame of it is there."""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import siltstone as st
from siltstone.spark import register
from tests.children import with_pandas
from tests.nightly import by_day
from tests.spark.bank_driver import made, move
from tests.spark.daemons import daemons

STATEMENTS = by_day(40, 1_000)
COMMITS_PER_STATEMENT = 5
ROOT = Path(__file__).parents[2]


@pytest.fixture
def bank(tmp_path: Path) -> Iterator[st.Store]:
    with st.connect(tmp_path / "bank", background=False, retention="0s") as db:
        made(db)
        db.serve_local()
        yield db


@pytest.fixture
def shop(spark: SparkSession, bank: st.Store) -> SparkSession:
    return register(spark.newSession(), stores={"shop": bank})


def _forget(db: st.Store) -> None:
    """Keep nothing of the past that nobody has a lease of."""
    for x in (900, 901):
        move(db, x)
        db["a"].delete_where("id > 50")
        db.checkpoint()
        db.merge()
    db.vacuum(dry_run=False, grace_s=0)


@contextlib.contextmanager
def _busy(path: Path) -> Iterator[None]:
    """Let another process commit to both tables, each time in one transaction."""
    command = [sys.executable, "-m", "tests.spark.bank_driver", str(path)]
    with subprocess.Popen(
        command, cwd=ROOT, env=with_pandas(), stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as writer:
        assert writer.stdin is not None
        assert writer.stdout is not None
        try:
            assert writer.stdout.readline() == b"ready\n"
            yield
            assert writer.poll() is None
        finally:
            writer.stdin.close()
            assert writer.wait(60) == 0


def _x(spark: SparkSession, table: str) -> int:
    return spark.sql(f"SELECT max(x) x FROM {table}").collect()[0].x


def test_a_statement_over_two_tables_sees_one_seq(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "busy"
    with st.connect(path, background=False) as db:
        made(db)
    both = "SELECT (SELECT max(x) FROM shop.a) a, (SELECT max(x) FROM shop.b) b"
    joined = "SELECT a.x a, b.x b FROM shop.a a JOIN shop.b b USING (id) WHERE id = 0"
    shop = register(spark.newSession(), stores={"shop": path})
    with _busy(path):
        seen = [shop.sql(each).collect()[0] for each in (both, joined) * (STATEMENTS // 2)]
    assert [(row.a, row.b) for row in seen if row.a != row.b] == []
    assert len({row.a for row in seen}) > STATEMENTS * 3 // 4
    with st.connect(path, read_only=True) as db:
        assert db.seq > STATEMENTS * COMMITS_PER_STATEMENT


def test_a_frame_has_the_seq_of_its_analysis(shop: SparkSession, bank: st.Store) -> None:
    move(bank, 1)
    frame = shop.sql("SELECT a.x a, b.x b FROM shop.a a JOIN shop.b b USING (id) WHERE id = 0")
    move(bank, 2)
    assert tuple(frame.collect()[0]) == (1, 1)
    assert frame.where("a = 1").count() == 1
    assert frame.unionAll(frame).count() == 2
    assert _x(shop, "shop.a") == 2


def test_frames_made_apart_have_seqs_of_their_own(shop: SparkSession, bank: st.Store) -> None:
    move(bank, 1)
    before = shop.table("shop.a")
    move(bank, 2)
    joined = before.alias("a").join(shop.table("shop.b").alias("b"), "id").where("id = 0")
    assert [tuple(row) for row in joined.selectExpr("a.x", "b.x").collect()] == [(1, 2)]


def test_only_a_view_of_a_version_is_pinned(shop: SparkSession, bank: st.Store) -> None:
    move(bank, 1)
    pinned = f"SELECT * FROM shop.a VERSION AS OF {bank.seq}"
    shop.sql(pinned).createOrReplaceTempView("pinned")
    shop.table("shop.a").createOrReplaceTempView("of_frame")
    shop.sql("CREATE OR REPLACE TEMPORARY VIEW of_text AS SELECT * FROM shop.a")
    move(bank, 2)
    assert [_x(shop, name) for name in ("pinned", "of_frame", "of_text")] == [1, 2, 2]


def test_a_frame_keeps_its_files_from_vacuum(shop: SparkSession, bank: st.Store) -> None:
    frame = shop.sql("SELECT * FROM shop.a")
    _forget(bank)
    assert frame.agg({"x": "max"}).collect()[0][0] == 0
    assert len(frame.collect()) == 100


def test_a_frame_that_is_gone_keeps_nothing(shop: SparkSession, bank: st.Store) -> None:
    frame = shop.sql("SELECT * FROM shop.a")
    assert len(frame.collect()) == 100
    _forget(bank)
    kept = _files(bank)
    assert len(frame.collect()) == 100
    del frame
    until = time.monotonic() + 60
    while time.monotonic() < until and _files(bank) == kept:  # and no other statement comes
        gc.collect()
        shop._jvm.System.gc()
        bank.vacuum(dry_run=False, grace_s=0)
    assert _files(bank) < kept
    assert _x(shop, "shop.a") == 901


def _files(db: st.Store) -> int:
    return sum(each.suffix == ".lance" for each in Path(db.path).rglob("*"))


# --- the process that reads


def _daemon(shop: SparkSession) -> int:
    """Return the one process that answers, after a statement."""
    assert shop.sql("SHOW TABLES IN shop").count() == 2
    (found,) = daemons()
    return found


def test_sessions_share_one_process(
    shop: SparkSession, spark: SparkSession, bank: st.Store
) -> None:
    assert _x(shop, "shop.a") == 0
    other = register(spark.newSession(), stores={"again": bank})
    assert _x(other, "again.a") == 0
    assert len(daemons()) == 1


def test_a_process_that_was_killed_is_started_again(shop: SparkSession, bank: st.Store) -> None:
    frame = shop.sql("SELECT * FROM shop.a")
    assert len(frame.collect()) == 100
    killed = _daemon(shop)
    os.kill(killed, signal.SIGKILL)
    assert _x(shop, "shop.a") == 0
    (again,) = daemons()
    assert again != killed
    _forget(bank)
    assert len(frame.collect()) == 100, "the seq of the frame was leased again"


def test_a_frame_whose_seq_is_gone_with_the_process_says_so(
    shop: SparkSession, bank: st.Store
) -> None:
    frame = shop.sql("SELECT * FROM shop.a")
    frame.explain()
    killed = _daemon(shop)
    os.kill(killed, signal.SIGKILL)
    _wait_for_end(killed)
    _forget(bank)
    with pytest.raises(Exception, match="the store keeps seq"):
        frame.where("x = 0").collect()
    assert _x(shop, "shop.a") == 901


def test_a_process_that_is_killed_in_a_read_fails_the_task_and_no_later_one(
    shop: SparkSession, bank: st.Store
) -> None:
    killed = _daemon(shop)

    def kill(batches):
        for batch in batches:
            with contextlib.suppress(ProcessLookupError):  # it was killed at the batch before
                os.kill(killed, signal.SIGKILL)
            yield batch

    many = range(3_000_000, 6_000_000)  # several times what lies in the slots of a read
    bank["a"].upsert(pa.table({"id": many, "x": many}))
    frame = shop.sql("SELECT id, x FROM shop.a UNION ALL SELECT id, x FROM shop.b")
    with pytest.raises(Exception, match="the Python process of siltstone ended"):
        frame.mapInArrow(kill, "id bigint, x bigint").collect()
    assert frame.count() == 3_000_200


def _wait_for_end(pid: int) -> None:
    until = time.monotonic() + 30
    while time.monotonic() < until:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return
        if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
            return
        time.sleep(0.05)
    pytest.fail("it did not end")
