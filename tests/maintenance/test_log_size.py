"""A log takes the space that its rows need: short owners leave little, idle ones give it back."""

from __future__ import annotations

from pathlib import Path

from siltstone.storage.segments import parse_name
from siltstone.store import Store
from tests.maintenance.stores import open_store

MIB = 1 << 20
SEGMENT_BYTES = 16 * MIB
SCHEMA = {"id": "int64", "v": "string"}


def opened(root: Path, **options: object) -> Store:
    return open_store(root, **{"segment_bytes": SEGMENT_BYTES, **options})


def log_bytes(root: Path) -> int:
    return sum(file.stat().st_size for file in (root / "wal").iterdir())


def size(root: Path) -> int:
    """Return what a store takes on a disk: whole blocks."""
    return sum(file.stat().st_blocks * 512 for file in root.rglob("*"))


def segments(root: Path) -> list[Path]:
    return sorted(file for file in (root / "wal").iterdir() if parse_name(file.name))


def test_sixty_openings_that_write_nothing_leave_one_small_log(tmp_path):
    for _ in range(60):
        with opened(tmp_path / "s"):
            pass
    assert len(segments(tmp_path / "s")) == 1
    assert size(tmp_path / "s") < MIB


def test_sixty_owners_with_a_background_leave_one_small_log(tmp_path):
    for _ in range(60):
        with opened(tmp_path / "s", background=True):
            pass
    assert log_bytes(tmp_path / "s") < MIB


def test_six_hundred_openings_with_a_row_each_stay_small(tmp_path):
    with opened(tmp_path / "s") as db:
        db.create_table("t", SCHEMA, "id")
    for number in range(600):
        with opened(tmp_path / "s") as db:
            db["t"].upsert([{"id": number, "v": "x" * 40}])
            unflushed = db._core.state().view.log.count
            assert unflushed <= 300, "every opening replays them"
    with opened(tmp_path / "s") as db:
        assert sorted(db["t"].scan()["id"].to_pylist()) == list(range(600))
    assert size(tmp_path / "s") < 16 * MIB


def test_an_owner_that_wrote_much_leaves_a_small_log_when_it_closes(tmp_path):
    with opened(tmp_path / "s") as db:
        db.create_table("t", SCHEMA, "id")
        for number in range(40):
            db["t"].upsert([{"id": number, "v": "x" * MIB}])
        assert log_bytes(tmp_path / "s") > 40 * MIB
    assert log_bytes(tmp_path / "s") < MIB
    with opened(tmp_path / "s") as db:
        assert db["t"].count() == 40


def test_a_row_that_waits_for_more_is_not_flushed_by_closing(tmp_path):
    with opened(tmp_path / "s") as db:
        db.create_table("t", SCHEMA, "id")
        db["t"].upsert([{"id": 1, "v": "x"}])
    with opened(tmp_path / "s") as db:
        assert db.status().flushed_seq == 0
        assert db["t"].get(1) == {"id": 1, "v": "x"}


def test_what_older_owners_left_is_gone_with_the_next_opening(tmp_path):
    with opened(tmp_path / "s") as db:
        db.create_table("t", SCHEMA, "id")
    (left,) = segments(tmp_path / "s")
    whole = left.read_bytes().ljust(SEGMENT_BYTES, b"\0")
    for name in (left.name, f"{left.name[:8]}-{2:012d}.wal"):
        (left.parent / name).write_bytes(whole if name == left.name else bytes(SEGMENT_BYTES))
    with opened(tmp_path / "s") as db:
        assert db.tables() == ["t"]
        assert log_bytes(tmp_path / "s") < MIB


def test_the_segments_of_a_log_grow_with_what_is_written(tmp_path):
    with opened(tmp_path / "s") as db:
        db.create_table("t", SCHEMA, "id")
        for number in range(24):
            db["t"].upsert([{"id": number, "v": "x" * MIB}])
        sizes = [file.stat().st_size for file in segments(tmp_path / "s")]
    assert sizes == sorted(sizes)
    assert sizes[0] < MIB
    assert sizes[-1] == SEGMENT_BYTES
    assert sum(sizes) > 24 * MIB
