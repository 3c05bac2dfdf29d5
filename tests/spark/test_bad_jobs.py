"""A job that cannot go on says why on its first words, and leaves nothing of it visible."""

from __future__ import annotations

import contextlib
import re
import signal
import subprocess
import sys
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

import siltstone as st
from siltstone.spark import transaction
from siltstone.spark.context import workers
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


def hiding(frame: DataFrame, path: Path) -> DataFrame:
    """Have the stage below the write take the store away."""
    source, target = str(path), str(path.with_name("elsewhere"))

    def moved(batches: Iterator[Any]) -> Iterator[Any]:
        Path(source).rename(target)
        yield from batches

    return frame.coalesce(1).mapInArrow(moved, frame.schema).repartition(1)


@contextmanager
def put_back(path: Path) -> Generator[None]:
    yield
    path.with_name("elsewhere").rename(path)


UNSEEN = "UnavailableError: the executor on .* sees no store at .*; driver and executors need"


def test_an_executor_that_does_not_see_the_store_says_so_first(
    spark: SparkSession, path: Path
) -> None:
    said = []
    gone = pytest.raises(st.RequestError, match="there is no such directory")
    with put_back(path), gone, transaction(path) as tx:  # and its commit makes no store there
        said += [first_words(lambda: tx.write(hiding(rows(spark), path), "t"))]
    for words in said:
        assert re.search(UNSEEN, words)
        assert "Traceback" not in words
    assert len(said) == 1


def test_executors_of_another_version_refuse_the_work_first(
    spark: SparkSession, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = f"has siltstone {workers.version()}, the one that sent it work has 0.0.1"
    monkeypatch.setattr(workers, "version", lambda: "0.0.1")
    said = []
    with contextlib.suppress(KeyError), transaction(path) as tx:
        said += [first_words(lambda: tx.write(rows(spark), "t"))]
        raise KeyError  # nothing is to be committed
    for words in said:
        assert wanted in words
        assert "Traceback" not in words
    assert len(said) == 1
