"""What fails behind a commit is no failed job: a user would write its rows again."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql.types import LongType, StructField, StructType

import siltstone as st
from siltstone.errors import UnavailableError
from siltstone.spark.options import WriteOptions
from siltstone.spark.staging import commit, plan
from siltstone.storage.files.files import RealFiles

ROWS = StructType([StructField(name, LongType()) for name in ("id", "v")])


def test_a_job_whose_files_cannot_be_tidied_after_its_commit_is_committed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with st.connect(tmp_path / "s", background=False) as db:
        db.create_table("t", {"id": "int64", "v": "int64"}, "id")
        given = WriteOptions.parse({"uri": str(db.path), "table": "t"})
        piece = plan(db, given, ROWS, None, is_overwrite=False)
        job = piece.job([piece.stage.run(pa.table({"id": [1], "v": [2]}))])
        rename = RealFiles.rename

        def refused(self: RealFiles, old: Path, new: Path) -> None:
            if new.name == "DISCARDED":
                raise OSError(5, os.strerror(5), str(old))
            rename(self, old, new)

        monkeypatch.setattr(RealFiles, "rename", refused)
        with pytest.raises(UnavailableError):
            job.discard()
        receipt = commit(db, [job], None)
        assert receipt.seq == db.seq
        assert "the rows are committed" in caplog.text
        assert db["t"].get(1) == {"id": 1, "v": 2}
