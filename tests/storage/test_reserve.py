"""A reserve is space that is there when it is needed, and nothing depends on it but that."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from siltstone.errors import BusyError, UnavailableError
from siltstone.storage.files.files import RealFiles
from siltstone.storage.wal.recovery import recover
from siltstone.storage.wal.reserve import RESERVE_NAME, Reserve, is_full
from siltstone.storage.wal.segment_pool import SMALLEST_BYTES, SegmentPool
from siltstone.units import Epoch, SegmentNumber, Seq
from tests.maintenance.stores import open_store
from tests.support.simulated_files import SimFiles

FULL = OSError(errno.ENOSPC, "No space left on device")


def of(root: Path, segment_bytes: int = 1 << 20) -> Reserve:
    return Reserve(RealFiles(), root, segment_bytes=segment_bytes)


def size(root: Path) -> int:
    return (root / RESERVE_NAME).stat().st_size


def test_a_reserve_covers_the_base_and_the_newest_segment(tmp_path):
    of(tmp_path).keep(SMALLEST_BYTES)
    assert size(tmp_path) == (256 << 10) + SMALLEST_BYTES


def test_a_reserve_grows_in_place_and_shrinks_only_when_it_may(tmp_path):
    reserve = of(tmp_path)
    reserve.keep(SMALLEST_BYTES)
    identity = RealFiles().identity(tmp_path / RESERVE_NAME)
    reserve.keep(1 << 20)
    assert RealFiles().identity(tmp_path / RESERVE_NAME) == identity
    large = size(tmp_path)
    reserve.keep(SMALLEST_BYTES)
    assert size(tmp_path) == large
    reserve.fit(SMALLEST_BYTES)
    assert size(tmp_path) == (256 << 10) + SMALLEST_BYTES


def test_it_is_released_for_work_on_a_full_disk_and_made_again_after_it(tmp_path):
    reserve, seen = of(tmp_path), []
    reserve.keep(SMALLEST_BYTES)
    before = size(tmp_path)

    def work(is_short: bool) -> str:
        seen.append((is_short, (tmp_path / RESERVE_NAME).exists()))
        if not is_short:
            raise UnavailableError("cannot publish") from FULL
        return "done"

    assert reserve.lend(work) == "done"
    assert seen == [(False, True), (True, False)]
    assert size(tmp_path) == before


def test_another_process_makes_it_again_as_large_as_it_was(tmp_path):
    of(tmp_path).keep(1 << 20)
    before = size(tmp_path)

    def work(is_short: bool) -> None:
        if not is_short:
            raise FULL

    of(tmp_path).lend(work)
    assert size(tmp_path) == before


def test_a_disk_that_stays_full_is_named(tmp_path):
    def work(_: bool) -> None:
        raise UnavailableError("cannot publish") from FULL

    reserve = of(tmp_path)
    for is_there in (False, True):
        if is_there:
            reserve.keep(SMALLEST_BYTES)
        with pytest.raises(UnavailableError, match="is full") as caught:
            reserve.lend(work)
        assert str(tmp_path) in str(caught.value)


def test_an_error_that_is_of_no_full_disk_releases_nothing(tmp_path):
    reserve = of(tmp_path)
    reserve.keep(SMALLEST_BYTES)

    def work(is_short: bool) -> None:
        assert not is_short
        raise BusyError("another process")

    with pytest.raises(BusyError):
        reserve.lend(work)
    assert size(tmp_path)


def test_what_a_full_disk_says_is_understood():
    assert is_full(FULL)
    assert is_full(OSError(errno.EDQUOT, "Disk quota exceeded"))
    assert is_full(RuntimeError("LanceError(IO): No space left on device (os error 28)"))
    wrapped = UnavailableError("cannot publish after record 3")
    wrapped.__cause__ = FULL
    assert is_full(wrapped)
    assert not is_full(OSError(errno.EIO, "Input/output error"))


def test_a_log_takes_no_segment_that_the_reserve_does_not_cover() -> None:
    files, log = SimFiles(), Path("/store/wal")
    wal = recover(
        files,
        log,
        store_id=bytes(16),
        floor=SegmentNumber(1),
        epoch=Epoch(1),
        quarantine=Path("/store/quarantine"),
        segment_bytes=8192,
        reserve=lambda _: (_ for _ in ()).throw(FULL),
    ).wal
    wal.append(first_seq=Seq(1), last_seq=Seq(1), payload=[bytes(3000)])
    names = files.list(log)
    for _ in range(2):
        with pytest.raises(UnavailableError, match="No space left"):
            wal.append(first_seq=Seq(2), last_seq=Seq(2), payload=[bytes(3000)])
    assert files.list(log) == names
    assert not wal.is_poisoned


def test_a_store_that_lost_its_reserve_makes_it_again(tmp_path):
    with open_store(tmp_path / "s") as db:
        db.create_table("t", {"id": "int64"}, "id")
    (tmp_path / "s" / RESERVE_NAME).unlink()
    with open_store(tmp_path / "s") as db:
        assert size(tmp_path / "s") >= 64 << 10
        assert db.verify().findings == ()


def test_a_backup_does_not_hold_the_reserve(tmp_path):
    with open_store(tmp_path / "s") as db:
        db.create_table("t", {"id": "int64"}, "id")
        db.backup(tmp_path / "b")
    assert not [path for path in tmp_path.rglob(RESERVE_NAME) if "b" in path.parts]


def test_a_reserve_that_cannot_be_written_keeps_no_log_from_growing(tmp_path):
    """As one that another user's vacuum made again, or a directory that somebody put there."""
    options = {"segment_bytes": 1 << 20}
    with open_store(tmp_path / "s", **options) as db:
        db.create_table("t", {"id": "int64", "v": "string"}, "id")
    (tmp_path / "s" / RESERVE_NAME).unlink()
    (tmp_path / "s" / RESERVE_NAME).mkdir()
    with open_store(tmp_path / "s", **options) as db:
        for number in range(60):
            db["t"].upsert([{"id": number, "v": "x" * 40_000}])
        assert db["t"].count() == 60
        db.checkpoint()
        db.vacuum(dry_run=False, grace_s=0)
    with open_store(tmp_path / "s", **options) as db:
        assert db["t"].count() == 60


def test_a_reserve_of_another_user_is_made_anew(tmp_path, monkeypatch):
    files = RealFiles()
    reserve = Reserve(files, tmp_path, segment_bytes=1 << 20)
    reserve.keep(64 << 10)
    before = (tmp_path / RESERVE_NAME).stat()
    really = files.open

    def refused(path: Path, **how: bool):
        if path.exists() and path.stat().st_ino == before.st_ino:
            raise PermissionError(errno.EACCES, "Permission denied")
        return really(path, **how)

    monkeypatch.setattr(files, "open", refused)
    reserve.keep(1 << 20)
    assert size(tmp_path) > before.st_size


def test_what_can_be_had_again_gives_way_before_it_is_released(tmp_path):
    gone, tried = [], []

    def give_way() -> bool:
        gone.append(1)
        return len(gone) == 1

    reserve = Reserve(RealFiles(), tmp_path, segment_bytes=1 << 20, give_way=give_way)
    reserve.keep(SMALLEST_BYTES)

    def work(is_short: bool) -> str:
        tried.append((is_short, len(gone)))
        if len(tried) == len(needed):
            return "done"
        raise UnavailableError("cannot publish") from FULL

    for needed in ([(False, 0), (False, 1)], [(False, 1), (True, 2)]):
        tried.clear()
        assert reserve.lend(work) == "done"
        assert tried == needed
        assert (tmp_path / RESERVE_NAME).exists()


def test_what_can_be_had_again_gives_way_to_the_next_segment(tmp_path):
    class Full(RealFiles):
        is_full = True

        def preallocate(self, path: Path, size: int) -> None:
            if Full.is_full:
                raise FULL
            super().preallocate(path, size)

    def give_way() -> bool:
        was, Full.is_full = Full.is_full, False
        return was

    for way in (lambda: False, give_way):
        pool = SegmentPool(Full(), tmp_path, epoch=Epoch(1), taken=SegmentNumber(1), give_way=way)
        if way is give_way:
            pool.prepare(SMALLEST_BYTES)
        else:
            with pytest.raises(UnavailableError):
                pool.prepare(SMALLEST_BYTES)
        pool.close()
