"""After recovery the next seq is above every seq ever shown, whatever is left of it (8, 11)."""

from __future__ import annotations

from pathlib import Path

import pytest

from siltstone.errors import CorruptionError
from tests.crash.store_life import ROOT, answer, open_store
from tests.support.simulated_files import SimFiles

KEYED = {"id": "int64", "v": "string"}


def begun(*, rows: int = 3) -> tuple[SimFiles, object]:
    files = SimFiles()
    db = open_store(files)
    db.create_table("t", KEYED, primary_key="id")
    for number in range(rows):
        db["t"].upsert({"id": number, "v": "x"})
    return files, db


def segments(files: SimFiles) -> list[Path]:
    """Return the log's files that hold a header, oldest first."""
    folder = ROOT / "wal"
    names = [name for name in files.list(folder) if name.endswith(".wal")]
    return [folder / name for name in sorted(names) if files.read(folder / name)[:1] != b"\0"]


def next_seq(files: SimFiles) -> int:
    return open_store(files)["t"].upsert({"id": 100}, missing="null").seq


def flipped(files: SimFiles, path: Path, offset: int) -> None:
    data = bytearray(files.read(path))
    data[offset] ^= 0xFF
    files.replace(path, bytes(data))


def test_a_tombstone_with_the_newest_seq_counts_after_it_was_merged_away():
    files, db = begun()
    newest = db["t"].delete(1).seq
    db.checkpoint()
    db.merge()
    before = answer(db)["t"]
    db.close()
    assert next_seq(files.killed()) == newest + 1
    again = open_store(files.killed())
    assert (again.seq, answer(again)["t"]) == (newest, before)


def test_an_empty_log_beside_newer_runs_goes_on_above_the_runs():
    files, db = begun()
    newest = db.seq
    db.checkpoint()
    db.close()
    for epoch in range(3):
        with open_store(files) as again:
            assert again.seq == newest, epoch
    assert next_seq(files) == newest + 1


def test_a_log_of_several_segments_goes_on_above_the_last():
    files, db = begun(rows=0)
    for number in range(12):
        db["t"].upsert({"id": number, "v": "x" * 4000})
    assert len(segments(files)) > 3
    assert next_seq(files.killed()) == db.seq + 1


def test_a_torn_tail_is_kept_aside_and_its_seq_was_never_acknowledged():
    files, db = begun()
    path = segments(files)[-1]
    data = files.read(path)
    end = max(n for n, byte in enumerate(data) if byte) + 1
    torn = files.killed()
    torn.replace(path, data[:end] + b"SLT" + bytes(len(data) - end - 3))
    assert next_seq(torn) == db.seq + 1
    assert torn.list(ROOT / "quarantine")


def test_a_damaged_frame_before_an_intact_one_is_corruption_and_changes_nothing():
    files, db = begun()
    path = segments(files)[-1]
    data = files.read(path)
    middle = data.index(b"x", 4096)
    broken = files.killed()
    flipped(broken, path, middle)
    with pytest.raises(CorruptionError) as found:
        open_store(broken)
    assert found.value.path == path
    assert broken.read(path)[:middle] == data[:middle]
    flipped(broken, path, middle)
    assert next_seq(broken) == db.seq + 1


def test_a_lost_log_is_corruption_where_its_commits_are_nowhere_else():
    files, db = begun()
    broken = files.killed()
    for path in segments(broken):
        flipped(broken, path, 20)
    with pytest.raises(CorruptionError):
        open_store(broken)
    for path in segments(broken):
        flipped(broken, path, 20)
    assert next_seq(broken) == db.seq + 1
