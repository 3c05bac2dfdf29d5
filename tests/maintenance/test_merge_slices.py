"""A large history is folded in slices: each is a merge, and at their end all is folded."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import siltstone as st
from siltstone.failpoints import Failpoint
from siltstone.formats.manifest import Record
from siltstone.maintenance.merge import merge, slices
from siltstone.maintenance.merge.merge import Merged, Merger
from siltstone.storage.manifest.manifest_store import ManifestStore

SCHEMA = {"id": "int64", "v": "int64"}


def merger_of(db: st.Store, rows_max: int) -> Merger:
    """Return a merger of the store that folds so many rows at once."""
    storage = db._parts.owner.merger
    assert isinstance(storage, Merger)
    made = object.__new__(Merger)
    vars(made).update(vars(storage) | {"_rows_max": rows_max})
    return made


def merged_seqs(manifests: ManifestStore) -> list[int]:
    (storage,) = manifests.newest().keyed
    return [storage.merged_seq]


def filled(db: st.Store) -> st.Table:
    """Upsert eleven commits of ten rows, each over five of the one before, in three flushes."""
    table = db.create_table("t", SCHEMA, "id")
    for turn in range(11):
        table.upsert(pa.table({"id": range(5 * turn, 5 * turn + 10), "v": [turn] * 10}))
        if turn % 4 == 3:
            db.checkpoint()
    table.delete([3])
    db.checkpoint()
    return table


def state(table: st.Table) -> list[tuple[object, ...]]:
    return sorted(tuple(row.values()) for row in table.to_arrow().to_pylist())


@pytest.mark.parametrize("rows_max", [1, 10, 25, 30, 110, 111])
def test_slices_fold_what_one_merge_folds(
    tmp_path: Path, rows_max: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    with st.connect(tmp_path / "db", background=False) as db:
        table = filled(db)
        before, seqs, ends = state(table), list[int](), list[int]()
        past = {seq: sorted(db.snapshot(seq=seq)["t"].to_arrow()["v"].to_pylist())
                for seq in range(2, db.status().flushed_seq + 1)}  # fmt: skip
        monkeypatch.setattr(
            merge, "slice_end", lambda *a: ends.append(slices.slice_end(*a)) or ends[-1]
        )
        done = merger_of(db, rows_max).merge()
        assert isinstance(done, Merged)
        assert (done.tables, done.seq) == (("t",), db.status().flushed_seq)
        seqs = sorted(set(ends))
        assert seqs == ends
        assert len(ends) == {1: 12, 10: 12, 25: 6, 30: 4, 110: 2, 111: 1}[rows_max]
        (storage,) = db._parts.site.manifests.newest().keyed
        assert storage.merged_seq == done.seq
        db._parts.owner.checkpointer.refresh()
        assert state(table) == before
        for seq, values in past.items():
            assert sorted(db.snapshot(seq=seq)["t"].to_arrow()["v"].to_pylist()) == values
        assert merger_of(db, rows_max).merge() == Merged(done.seq, (), 0)


def test_a_column_that_is_dropped_after_a_slice_is_read_before_its_end(tmp_path: Path) -> None:
    with st.connect(tmp_path / "db", background=False) as db:
        table = db.create_table("t", {"id": "int64", "v": "int64", "w": "int64"}, "id")
        table.upsert([{"id": n, "v": n, "w": 10 * n} for n in range(5)])
        table.upsert([{"id": 3, "v": 7, "w": 70}])
        seq = table.upsert([{"id": 4, "v": 8, "w": 80}]).seq
        table.drop_column("w")
        table.add_column("x", "int64")
        table.upsert([{"id": 5, "v": 9, "x": 1}])
        db.checkpoint()
        before = state(table)
        with db.snapshot(seq=seq) as past:
            then = state(past["t"])
        merger = merger_of(db, 5)
        failing = merger._manifests
        stop = _Stop(failing, after=1)
        merger._manifests = stop
        with pytest.raises(_StoppedError):
            merger.merge()
        db._parts.owner.checkpointer.refresh()
        (storage,) = db._parts.site.manifests.newest().keyed
        assert 0 < storage.merged_seq < db.status().flushed_seq
        for _ in range(2):
            assert state(table) == before
            with db.snapshot(seq=seq) as past:
                assert state(past["t"]) == then
            db.merge()
        assert storage.merged_seq < db._parts.site.manifests.newest().keyed[0].merged_seq


class _StoppedError(Exception):
    pass


class _Stop:
    """The manifests of a merge that is killed after some slices."""

    def __init__(self, manifests: ManifestStore, after: int) -> None:
        self._manifests, self._left = manifests, after

    def __getattr__(self, name: str) -> object:
        return getattr(self._manifests, name)

    def lease_newest(self, known: Record | None = None) -> object:
        if not self._left:
            raise _StoppedError(Failpoint.MERGE_BEFORE_PLAN)
        self._left -= 1
        return self._manifests.lease_newest(known)


def test_a_commit_larger_than_a_slice_is_folded_whole(tmp_path: Path) -> None:
    with st.connect(tmp_path / "db", background=False) as db:
        table = db.create_table("t", SCHEMA, "id")
        table.upsert([{"id": 1, "v": 1}])
        table.upsert(pa.table({"id": range(100), "v": range(100)}))
        table.upsert([{"id": 2, "v": 0}])
        db.checkpoint()
        done = merger_of(db, 10).merge()
        assert isinstance(done, Merged)
        assert done.rows == 1 + 100 + 1
        db._parts.owner.checkpointer.refresh()
        assert table.count() == 100
        assert table.get(2) == {"id": 2, "v": 0}
