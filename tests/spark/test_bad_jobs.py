"""A job that cannot go on says why on its first words, and leaves nothing of it visible."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

import siltstone as st
from tests.spark import faults
from tests.spark.test_bad_input import first_words

_OWNER = """
import signal, sys
import siltstone as st

with st.connect(sys.argv[1], background=False) as db:
    print(db.serve(port=0).url, flush=True)
    signal.pause()
"""


@pytest.fixture
def path(spark: SparkSession, tmp_path: Path) -> Iterator[Path]:
    """A store with a table of five rows; what is seen of it is the same after each test."""
    faults.register(spark)
    with st.connect(tmp_path / "store", background=False, retention="0s") as db:
        db.create_table("t", {"id": "int64", "v": "string"}, "id")
        db["t"].upsert([{"id": n, "v": "old"} for n in range(5)])
        db.checkpoint()
    before = seen(tmp_path / "store")
    yield tmp_path / "store"
    assert seen(tmp_path / "store") == before
    with st.connect(tmp_path / "store", background=False) as db:
        assert db.verify(deep=True).is_sound


def seen(path: Path) -> tuple[int, list[str], list[dict[str, object]]]:
    with st.connect(path, read_only=True) as db:
        return db.seq, db.tables(), db["t"].to_arrow().sort_by("id").to_pylist()


def rows(spark: SparkSession) -> DataFrame:
    return spark.range(0, 90, 1, 3).selectExpr("id", "concat('new ', id) v")


def save(frame: DataFrame, source: str, mode: str = "append", **options: object) -> None:
    given = {"table": "t", **{name: str(value) for name, value in options.items()}}
    frame.write.format(source).mode(mode).options(**given).save()


@contextmanager
def owned(path: Path) -> Generator[str]:
    """Own and serve a store in another process; return its URL."""
    process = subprocess.Popen(
        [sys.executable, "-c", _OWNER, str(path)], stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        faults.pid_file(path).write_text(str(process.pid))
        yield url
    finally:
        process.kill()
        assert process.wait(timeout=60) == -signal.SIGKILL
        if process.stdout is not None:
            process.stdout.close()


@pytest.mark.parametrize("mode", ["append", "overwrite"])
@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"uri": "/nowhere"}, "RequestError: /nowhere is not a store: there is no such directory"),
        ({"table": "x"}, "TableNotFoundError: there is no table 'x'; the tables are t"),
        ({"table": "x", "primaryKey": "nr"}, "SchemaMismatchError: table 'x' has no column 'nr'"),
        ({"primaryKey": "v"}, "RequestError: 't' has the key ('id',), not ('v',)"),
        ({"sequ": 1}, "RequestError: a write has no option 'sequ'"),
        ({"token": "17"}, "RequestError: option 'token' must be like 'nightly:17'"),
    ],
)
def test_a_bad_write_is_said_on_the_first_words_and_makes_nothing(
    spark: SparkSession, path: Path, mode: str, options: dict[str, object], said: str
) -> None:
    assert said in first_words(
        lambda: save(rows(spark), "siltstone", mode, **{"uri": path, **options})
    )


def test_an_overwrite_of_a_seq_that_is_none_yet_replaces_nothing(
    spark: SparkSession, path: Path
) -> None:
    said = first_words(lambda: save(rows(spark), "siltstone", "overwrite", uri=path, expectSeq=99))
    assert "RequestError: expectSeq 99 is in the future: the store is at seq" in said


def test_an_owner_that_stops_before_the_commit_is_said_first_and_nothing_is_visible(
    spark: SparkSession, path: Path
) -> None:
    with owned(path) as url:
        words = first_words(lambda: save(rows(spark), "stopping", uri=url))
    assert f"UnavailableError: the owner of {url} does not answer" in words
    assert "Traceback" not in words
