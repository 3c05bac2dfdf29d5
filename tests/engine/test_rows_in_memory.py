"""Rows that Lance has are read into memory once they are read again and again, of each level."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import siltstone as st
from siltstone.engine.levels.chunk import IndexedSlice, Slice, run_of
from siltstone.engine.levels.history_run import HistoryRun
from siltstone.storage.lance.read.pinned import LancePinned

ROWS = 300
OPTIONS: dict[str, Any] = {"background": False}


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Count what is asked of Lance: rows that are taken, and scans."""
    found: Counter[str] = Counter()
    take, scan = LancePinned.take, LancePinned.scan

    def counted_take(self: LancePinned, *args: Any, **named: Any) -> pa.Table:
        found["takes"] += 1
        return take(self, *args, **named)

    def counted_scan(self: LancePinned, *args: Any, **named: Any) -> Iterator[pa.RecordBatch]:
        found["scans"] += 1
        return scan(self, *args, **named)

    monkeypatch.setattr(LancePinned, "take", counted_take)
    monkeypatch.setattr(LancePinned, "scan", counted_scan)
    return found


def row(n: int) -> dict[str, Any]:
    return {"id": n, "name": None if n % 7 == 0 else f"n{n}", "v": n / 8}


def filled(path: Path, *, merges: bool, last: int = ROWS) -> None:
    with st.connect(path, **OPTIONS) as db:
        schema = {"id": "int64", "name": "string", "v": "float64"}
        table = db.create_table("t", schema, primary_key="id")
        table.upsert([row(n) for n in range(last)])
        table.delete([5])
        table.upsert({"id": 6, "name": "newer", "v": 0.0})
        db.checkpoint()
        if merges:
            db.merge()


def wanted() -> list[dict[str, Any]]:
    rows = [row(n) for n in range(ROWS) if n != 5]
    rows[5] = {"id": 6, "name": "newer", "v": 0.0}
    return rows


def of_scan(table: Any, **named: Any) -> list[dict[str, Any]]:
    return sorted(table.scan(**named).read_all().to_pylist(), key=lambda found: found["id"])


@pytest.mark.parametrize("merges", [False, True])
def test_rows_of_a_store_that_was_opened_are_asked_of_lance_some_times_and_then_no_more(
    tmp_path: Path, reads: Counter[str], merges: bool
) -> None:
    filled(tmp_path / "s", merges=merges)
    with st.connect(tmp_path / "s", **OPTIONS) as db:
        table = db["t"]
        for expected in wanted():
            assert table.get(expected["id"]) == expected
        assert table.get(5) is None
        reads.clear()
        for _ in range(2):
            for expected in wanted():
                assert table.get(expected["id"]) == expected
            assert of_scan(table) == wanted()
            found = of_scan(table, filter=pc.field("v") > 1, columns=["id"])
            assert found == [{"id": e["id"]} for e in wanted() if e["v"] > 1]
        assert reads == Counter()


@pytest.mark.parametrize("merges", [False, True])
def test_the_third_scan_of_a_small_table_reads_it_into_memory(
    tmp_path: Path, reads: Counter[str], merges: bool
) -> None:
    filled(tmp_path / "s", merges=merges)
    with st.connect(tmp_path / "s", **OPTIONS) as db:
        for _ in range(3):
            assert of_scan(db["t"]) == wanted()
        reads.clear()
        assert of_scan(db["t"]) == wanted()
        assert db["t"].get(6) == wanted()[5]
        assert reads == Counter()


def test_rows_in_memory_stay_there_when_a_newer_record_has_them_too(
    tmp_path: Path, reads: Counter[str]
) -> None:
    filled(tmp_path / "s", merges=False)
    with st.connect(tmp_path / "s", **OPTIONS) as db:
        table = db["t"]
        for expected in wanted():
            table.get(expected["id"])
        before = db.snapshot()
        table.upsert({"id": 7, "name": "later", "v": 1.0})
        db.checkpoint()
        reads.clear()
        assert table.get(7) == {"id": 7, "name": "later", "v": 1.0}
        assert table.get(8) == row(8)
        assert before["t"].get(7) == row(7)
        expected = wanted()
        assert of_scan(before["t"]) == expected
        expected[6] = {"id": 7, "name": "later", "v": 1.0}
        assert of_scan(table) == expected
        assert reads == Counter()


def test_a_column_that_was_added_later_is_null_in_rows_in_memory(tmp_path: Path) -> None:
    filled(tmp_path / "s", merges=False)
    with st.connect(tmp_path / "s", **OPTIONS) as db:
        table = db["t"]
        for expected in wanted():
            table.get(expected["id"])
        table.add_column("more", "int64")
        table.drop_column("v")
        table.rename_column("name", "title")
        assert table.get(8) == {"id": 8, "title": "n8", "more": None}
        assert of_scan(table)[7] == {"id": 8, "title": "n8", "more": None}


def test_a_merge_of_a_part_of_what_is_held_leaves_the_rest_right(tmp_path: Path) -> None:
    filled(tmp_path / "s", merges=False)
    with st.connect(tmp_path / "s", **OPTIONS) as db:
        table = db["t"]
        for expected in wanted():
            table.get(expected["id"])
        kept = db.snapshot()
        db.merge()
        table.upsert({"id": 9, "name": "later", "v": 1.0})
        db.checkpoint()
        assert of_scan(kept["t"]) == wanted()
        assert table.get(9) == {"id": 9, "name": "later", "v": 1.0}
        assert table.get(10) == row(10)


@pytest.mark.parametrize("share", [0.1, 0.4, 0.9])
def test_what_is_above_a_merge_is_found_in_memory_as_it_was_written(
    tmp_path: Path, share: float
) -> None:
    """Of few rows that are left, no others are kept in memory."""
    schema = {"id": "int64", "v": "int64"}
    with st.connect(tmp_path / "s", **OPTIONS) as db:
        table = db.create_table("t", schema, primary_key="id")
        seqs = [table.upsert({"id": n % 80, "v": n}).seq for n in range(100)]
        db.checkpoint()
    with st.connect(tmp_path / "s", **OPTIONS) as db:
        for n in range(80):
            db["t"].get(n)
        (run,) = next(iter(db._core.state().view.levels.values())).flushed
        assert isinstance(run, HistoryRun)
        assert run.held
        # As of a memtable that was flushed: each of its slices is above a merge, or below.
        known, rows = run.indexed[0], int(share * 100)
        chunk = known.part.chunks[0]
        cuts = [chunk.cut(0, rows), chunk.cut(rows, 100).moved(0)]
        slices = [
            IndexedSlice(Slice(known.part.origin, (c,), len(c.codes)), (run_of(c.codes, 0),))
            for c in cuts
        ]
        run._index = tuple(slices), np.arange(100)
        above = run.above(seqs[rows - 1])
        assert bool(above.held) is (share <= 0.5)
        for key in range(80):
            last = key + 80 if key < 20 else key
            found = above.find(key, run.high)
            if last < rows:
                assert found is None
            else:
                assert found is not None
                assert found.row is not None
                assert [*found.row.values()] == [key, last]


def test_rows_that_have_no_room_in_memory_are_asked_of_lance(
    tmp_path: Path, reads: Counter[str]
) -> None:
    with st.connect(tmp_path / "s", **OPTIONS) as db:
        table = db.create_table("t", {"id": "int64", "text": "string"}, primary_key="id")
        table.upsert([{"id": n, "text": f"{n} " * 2_000} for n in range(ROWS)])
        db.checkpoint()
    with st.connect(tmp_path / "s", memory_bytes_max=1 << 20, **OPTIONS) as db:
        for n in range(ROWS):
            db["t"].get(n)
        reads.clear()
        assert db["t"].get(3) == {"id": 3, "text": "3 " * 2_000}
        assert reads["takes"] == 1
