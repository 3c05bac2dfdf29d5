"""A log takes the space that its rows need: short owners leave little, idle ones give it back."""

from __future__ import annotations

from pathlib import Path

import pytest

from siltstone.api.store import Store
from siltstone.errors import UnavailableError
from siltstone.maintenance.flush import idle as rest
from siltstone.maintenance.flush.idle import Rest
from siltstone.maintenance.schedule.scheduler import IDLE_S, Scheduler
from siltstone.storage.wal.segments import parse_name
from tests.maintenance.idle_work import IdleWork
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
    assert size(tmp_path / "s") < 6 * MIB, "most of it is the reserve"


def test_sixty_owners_with_a_background_leave_one_small_log(tmp_path):
    for _ in range(60):
        with opened(tmp_path / "s", background=True):
            pass
    assert log_bytes(tmp_path / "s") < MIB


def test_three_hundred_openings_with_a_row_each_stay_small(tmp_path):
    with opened(tmp_path / "s") as db:
        db.create_table("t", SCHEMA, "id")
    for number in range(300):
        with opened(tmp_path / "s") as db:
            db["t"].upsert([{"id": number, "v": "x" * 40}])
            unflushed = db._core.state().view.log.count
            assert unflushed <= rest.COMMITS_WORTH, "every opening replays them"
    with opened(tmp_path / "s") as db:
        assert sorted(db["t"].to_arrow()["id"].to_pylist()) == list(range(300))
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


class Idle:
    """An owner's background work, one turn at a time, by a clock that a test moves."""

    def __init__(self, db: Store) -> None:
        self.db, self.now = db, 0.0
        owner = db._owner()
        self.rest = Rest(
            committer=owner.committer,
            log=owner.wal,
            checkpoint=self.checkpoint,
            clock=lambda: self.now,
        )
        work = IdleWork(
            checkpoint=db.checkpoint,
            prepare=owner.wal.prepare,
            rest=self.rest.when_idle,
        )
        self.scheduler = Scheduler(
            owner.committer,
            work,
            memory_bytes_max=1024 * MIB,
            memtable_bytes_max=64 * MIB,
            sealed_generations_max=4,
            room_timeout_s=1,
            is_background=False,
            clock=lambda: self.now,
        )
        self.checkpoints, self.fails = 0, False

    def checkpoint(self) -> None:
        self.checkpoints += 1
        if self.fails:
            raise UnavailableError("no space")
        self.db.checkpoint()

    def turn(self, after_s: float = 0) -> None:
        self.now += after_s
        self.scheduler._turn(self.now)


@pytest.fixture
def idle(tmp_path):
    with opened(tmp_path / "s") as db:
        db.create_table("t", SCHEMA, "id")
        yield Idle(db)


def test_an_owner_that_is_idle_for_a_minute_gives_its_log_back(idle):
    for number in range(40):
        idle.db["t"].upsert([{"id": number, "v": "x" * MIB}])
    idle.turn()
    idle.turn(IDLE_S - 1)
    assert log_bytes(idle.db.path) > 40 * MIB
    idle.turn(1)
    assert log_bytes(idle.db.path) < MIB
    assert idle.db.status().flushed_seq == idle.db.seq
    assert idle.db["t"].count() == 40


def test_a_commit_puts_the_rest_off_by_a_minute(idle):
    idle.turn()
    for number in range(5):
        idle.db["t"].upsert([{"id": number, "v": "x"}])
        idle.turn(IDLE_S - 1)
        idle.turn()
    assert idle.checkpoints == 0
    idle.turn(IDLE_S)
    assert idle.checkpoints == 1


def test_an_owner_rests_once_between_two_commits(idle):
    idle.turn()
    for _ in range(20):
        idle.turn(IDLE_S)
    assert idle.checkpoints == 1


def test_an_owner_with_nothing_to_flush_makes_no_checkpoint(idle):
    idle.db.checkpoint()
    idle.turn()
    record = idle.db._core.state().view.record.number
    idle.turn(IDLE_S)
    assert idle.checkpoints == 0
    assert idle.db._core.state().view.record.number == record


def test_a_row_every_two_minutes_is_flushed_once_an_hour(idle):
    idle.turn()
    for number in range(60):
        idle.db["t"].upsert([{"id": number, "v": "x"}])
        for _ in range(4):
            idle.turn(IDLE_S / 2)
    assert idle.checkpoints == 2
    idle.turn(rest.SMALL_INTERVAL_S)
    idle.turn(IDLE_S)
    assert idle.db.status().flushed_seq == idle.db.seq


def test_a_rest_that_fails_is_tried_again_a_minute_later(idle):
    for number in range(rest.COMMITS_WORTH):
        idle.db["t"].upsert([{"id": number, "v": "x"}])
    idle.fails = True
    idle.turn()
    with pytest.raises(UnavailableError):
        idle.turn(IDLE_S)
    idle.turn(IDLE_S - 1)
    assert idle.checkpoints == 1
    idle.fails = False
    idle.turn(1)
    assert idle.checkpoints == 2
    assert idle.db.status().flushed_seq == idle.db.seq


def test_a_checkpoint_at_the_end_that_fails_loses_nothing(tmp_path, monkeypatch, caplog):
    with opened(tmp_path / "s") as db:
        db.create_table("t", SCHEMA, "id")
        for number in range(rest.COMMITS_WORTH):
            db["t"].upsert([{"id": number, "v": "x"}])
        monkeypatch.setattr(
            db._owner().checkpointer, "_flush", lambda _: (_ for _ in ()).throw(OSError(28, "full"))
        )
    assert "the next open replays the log" in caplog.text
    with opened(tmp_path / "s") as db:
        assert db["t"].count() == rest.COMMITS_WORTH
