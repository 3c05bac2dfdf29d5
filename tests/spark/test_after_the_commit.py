"""What fails behind a commit, or behind a failure, is told and changes nothing.

A user would write the rows of a commit again, and would look for another reason of the failure.
"""

# pyright: reportPrivateUsage=false

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql.types import LongType, StructField, StructType

import siltstone as st
from siltstone.errors import UnavailableError
from siltstone.spark import transaction
from siltstone.spark.context.options import WriteOptions
from siltstone.spark.writes.staging import StageJob, commit, plan
from siltstone.storage.files.files import RealFiles

ROWS = StructType([StructField(name, LongType()) for name in ("id", "v")])


def job_of(db: st.Store, key: int) -> StageJob:
    given = WriteOptions.parse({"uri": str(db.path), "table": "t"})
    piece = plan(db, given, ROWS, None, is_overwrite=False)
    return piece.job([piece.stage.run(pa.table({"id": [key], "v": [2]}))])


@pytest.fixture
def db(tmp_path: Path) -> Iterator[st.Store]:
    with st.connect(tmp_path / "s", background=False) as store:
        store.create_table("t", {"id": "int64", "v": "int64"}, "id")
        yield store


def refuse_marks(patch: pytest.MonkeyPatch, folder: str = "") -> None:
    """Let the disk refuse to mark jobs as discarded: all, or those whose folder has this name."""
    rename = RealFiles.rename

    def refused(self: RealFiles, old: Path, new: Path) -> None:
        if new.name == "DISCARDED" and folder in str(new):
            raise OSError(5, os.strerror(5), str(old))
        rename(self, old, new)

    patch.setattr(RealFiles, "rename", refused)


def test_a_job_whose_files_cannot_be_tidied_after_its_commit_is_committed(
    db: st.Store, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    job = job_of(db, 1)
    refuse_marks(monkeypatch)
    with pytest.raises(UnavailableError):
        job.discard()
    receipt = commit(db, [job], None)
    assert receipt.seq == db.seq
    assert "the rows are committed" in caplog.text
    assert db["t"].get(1) == {"id": 1, "v": 2}


def test_an_error_of_the_caller_stays_the_error_if_a_job_cannot_be_tidied_behind_it(
    db: st.Store, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    jobs = [job_of(db, 1), job_of(db, 2)]
    refuse_marks(monkeypatch, jobs[0].piece.stage.job)
    tx = transaction(db)
    tx._jobs += jobs
    with pytest.raises(KeyError, match="the caller's"), tx:
        raise KeyError("the caller's")
    assert "nothing was committed" in caplog.text
    assert db["t"].count() == 0
    with pytest.raises(st.RequestError, match="discarded"):  # the second one, all the same
        commit(db, jobs[1:], None)
