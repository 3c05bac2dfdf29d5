"""No merge begins, and no writer waits, for rows of a table that was dropped or truncated."""

from __future__ import annotations

import pytest

from siltstone.maintenance.gc.superseded import Superseded
from siltstone.maintenance.merge.merge_child import MergeChild
from siltstone.open.background import Background
from tests.maintenance.stores import open_store


@pytest.mark.parametrize("change", ["drop", "truncate"])
def test_rows_that_no_merge_would_fold_start_none(tmp_path, monkeypatch, change):
    started: list[MergeChild] = []
    monkeypatch.setattr(MergeChild, "start", lambda child: started.extend([child]))
    with open_store(tmp_path / "s", memory_bytes_max=64 << 20) as db:
        db._owner().checkpointer._resident_bytes_max = 0  # what is flushed is history at once
        reader = db._parts.site.tables.reader
        background = Background(db._owner(), reader, 1 << 16, Superseded(reader))
        db.create_table("t", {"id": "int64", "v": "string"}, primary_key="id")
        db["t"].upsert([{"id": n, "v": "x"} for n in range(2_000)])
        db.checkpoint()
        background.merge()
        assert len(started) == 1
        db.drop_table("t") if change == "drop" else db["t"].truncate()
        db.checkpoint()
        db.merge()
        background.merge()
        assert len(started) == 1, "it would begin again and again"
