"""The owner keeps the parts of a history few without being asked."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import siltstone as st
from siltstone.maintenance.merge.merge_child import _command
from siltstone.maintenance.schedule.scheduler import wants_optimize
from siltstone.storage.tables.keys.key_cover import TableKeys
from tests.engine.seams import fake_env, open_store
from tests.maintenance.optimizers import optimizer_of


def test_a_history_of_many_small_parts_is_optimized_in_a_child(tmp_path: Path) -> None:
    with st.connect(tmp_path / "db", background=False, segment_bytes=65_536) as db:
        table = db.create_table("t", {"id": "int64", "v": "int64"}, primary_key="id")
        for turn in range(5):
            table.upsert([{"id": n, "v": turn} for n in range(turn, 8)])
            db.checkpoint()
        owner, tables = db._parts.owner, db._parts.site.tables

        def wants(parts_max: int) -> bool:
            return wants_optimize(owner.committer.state.view, tables.reader, parts_max=parts_max)

        assert wants(4)
        assert not wants(5)
        expected = table.to_arrow().sort_by("id")
        assert "--by-tiers" in _command("python", db.path, "optimize", is_nice=True)
        owner.optimize_child.start()
        owner.optimize_child.start()  # one is enough
        owner.optimize_child._process.wait(60)
        owner.checkpointer.refresh()
        assert db.status().tables[0].history_parts == 1
        assert not wants(0)  # one part is not small beside nothing
        assert table.to_arrow().sort_by("id") == expected
        assert [job.kind for job in db.jobs()] == ["optimize"]


def test_few_bytes_of_a_history_are_written_again_while_it_grows(tmp_path: Path) -> None:
    with open_store(tmp_path / "db", fake_env()) as db:
        table = db.create_table("t", {"id": "int64", "v": "int64"}, primary_key="id")
        owner, tables = db._parts.owner, db._parts.site.tables
        optimizer = optimizer_of(db.path, tables)
        for turn in range(30):
            table.upsert([{"id": n, "v": turn} for n in range(50)])
            db.checkpoint()
            if wants_optimize(owner.committer.state.view, tables.reader, parts_max=6):
                optimizer.optimize(by_tiers=True)
                owner.checkpointer.refresh()
            assert db.status().tables[0].history_parts <= 6
        written = sum(p.stat().st_size for p in db.path.glob("tables/*/.history/data/*"))
        (storage,) = owner.committer.state.view.record.keyed
        named = tables.reader.files(storage.history)
        needed = sum(file.size for file in named if "/data/" in file.path)
        assert written <= 5 * needed


def test_an_optimize_writes_the_key_runs_that_a_base_lacks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a repair that left a damaged run out."""
    with monkeypatch.context() as patched, st.connect(tmp_path / "db", background=False) as db:
        patched.setattr(TableKeys, "cover", lambda _, pin, *__, **___: pin)
        table = db.create_table("t", {"id": "int64"}, primary_key="id")
        table.upsert(pa.table({"id": range(1_000)}))
        db.checkpoint()
        db.merge()
        (storage,) = db._parts.owner.committer.state.view.record.keyed
        assert storage.base.runs == ()
        patched.undo()
        db.optimize()
        assert table.indexes() == []
        (storage,) = db._parts.owner.committer.state.view.record.keyed
        assert sum(run.entries for run in storage.base.runs) == 1_000
