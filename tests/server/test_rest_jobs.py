"""A job that lost a race and succeeded all the same says why it was planned again."""

from __future__ import annotations

from pathlib import Path

import pytest

from siltstone import admin
from siltstone.failpoints import Failpoint, Point
from siltstone.maintenance.merge import merge
from tests.server.rest import rest_of
from tests.server.stores import eventually


def test_a_merge_over_rest_says_who_came_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(merge, "COMPACT_BELOW_ROWS", 0)
    won: list[object] = []
    with rest_of(tmp_path / "db") as (db, service, rest):
        table = db.create_table("t", {"id": "int64"}, primary_key="id")
        for first in (0, 30):
            table.upsert([{"id": n} for n in range(first, first + 30)])
            db.checkpoint()
            db.merge()
        table.upsert({"id": 60})
        db.checkpoint()

        def overtaken(point: Point) -> None:
            if point is Failpoint.MERGE_AFTER_FRAGMENTS and not won:
                won.append(admin.optimize_store(db.path))

        monkeypatch.setattr(merge, "cross", overtaken)
        job = rest.post("/v1/merge", {}).json["id"]
        eventually(lambda: service.jobs.open == 0)
        assert rest.get(f"/v1/jobs/{job}").json["result"] == {
            "outcome": "Merged",
            "seq": db.seq,
            "tables": ["t"],
            "rows": 1,
            "replans": ["another process changed the base of 't' meanwhile"],
        }
        assert table.count() == 61
