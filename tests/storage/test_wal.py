"""The log appends whole frames, is durable when it says so, and stops for good when in doubt."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from siltstone.errors import ClosedError, InvariantError, PoisonedError, UnavailableError
from siltstone.formats.log.frame import Mark, decode_header
from siltstone.storage.files.files import File, RealFiles
from siltstone.storage.wal.recovery import recover
from siltstone.storage.wal.segments import read_mark
from siltstone.storage.wal.wal import Wal
from siltstone.units import Epoch, SegmentNumber, Seq
from tests.crash.wal_scenario import LOG, SEGMENT_BYTES, STORE_ID, reopen
from tests.support.simulated_files import Fault, Kind, SimFiles

SMALL = [b"s" * 30]  # 136 bytes with header and padding: three fill a segment


def append(wal: Wal, payload: Sequence[bytes] = SMALL, *, sync: bool = True) -> None:
    seq = Seq(wal.end.seq + 1)
    wal.append(first_seq=seq, last_seq=seq, payload=payload, sync=sync)
    if sync:
        wal.tell()


def mark(files: SimFiles) -> Mark:
    found = read_mark(files, LOG, STORE_ID)
    assert found is not None
    return found


def names(files: SimFiles) -> list[str]:
    return [name.removesuffix(".wal").replace("0", "") for name in files.list(LOG)]


def traced(files: SimFiles, start: int) -> list[tuple[str, str]]:
    return [(step.what, step.path.name) for step in files.trace[start:]]


@pytest.fixture
def files() -> SimFiles:
    return SimFiles()


@pytest.fixture
def wal(files: SimFiles) -> Wal:
    return reopen(files, epoch=1).wal


def test_a_commit_is_one_write_one_sync_and_one_mark(files: SimFiles, wal: Wal) -> None:
    before = files.operations
    append(wal)
    name = "00000001-000000000001.wal"
    assert traced(files, before) == [("pwrite", name), ("sync", name), ("pwrite", "MARK")]
    assert mark(files) == Mark(Epoch(1), SegmentNumber(1), 4096 + 136, Seq(1))


class Steps:
    """A file that notes by which call something was written or synced."""

    def __init__(self, file: File) -> None:
        self._file = file
        self.seen: list[str] = []

    def __getattr__(self, name: str) -> object:
        self.seen.append(name)
        return getattr(self._file, name)


def test_a_commit_is_one_call_unless_bytes_before_it_are_not_durable(wal: Wal) -> None:
    steps = Steps(wal._file)
    wal._file = steps  # type: ignore[assignment]  # pyright: ignore[reportAttributeAccessIssue]
    append(wal)
    append(wal, sync=False)
    append(wal)
    assert steps.seen == ["pwritev_synced", "pwritev", "pwritev", "sync"]
    wal.rotate()
    after = wal._file = Steps(wal._file)  # type: ignore[assignment]  # pyright: ignore[reportAttributeAccessIssue]
    append(wal)
    assert after.seen == ["pwritev_synced"]


def test_a_log_whose_disk_refuses_the_one_call_asks_it_once(files: SimFiles, wal: Wal) -> None:
    files.syncs_writes = False
    steps = wal._file = Steps(wal._file)  # type: ignore[assignment]  # pyright: ignore[reportAttributeAccessIssue]
    append(wal)
    append(wal)
    assert steps.seen == ["pwritev_synced", "pwritev", "sync", "pwritev", "sync"]
    assert wal.durable_seq == 2
    wal.rotate()
    after = wal._file = Steps(wal._file)  # type: ignore[assignment]  # pyright: ignore[reportAttributeAccessIssue]
    append(wal)
    assert after.seen == ["pwritev", "sync"]
    wal.close()
    assert reopen(files, epoch=2).last_seq == 3


def test_a_log_over_a_network_writes_and_syncs_by_two_calls(files: SimFiles) -> None:
    files.filesystem_type = "nfs4"
    wal = reopen(files, epoch=1).wal
    steps = wal._file = Steps(wal._file)  # type: ignore[assignment]  # pyright: ignore[reportAttributeAccessIssue]
    append(wal)
    assert steps.seen == ["pwritev", "sync"]


def test_an_async_commit_is_a_write_alone_until_sync(files: SimFiles, wal: Wal) -> None:
    before = files.operations
    append(wal, sync=False)
    append(wal, sync=False)
    assert [step for step, _ in traced(files, before)] == ["pwrite", "pwrite"]
    assert (wal.durable_seq, wal.end.seq, mark(files).seq) == (0, 2, 0)
    wal.sync()
    assert (wal.durable_seq, wal.end.seq, mark(files).seq) == (2, 2, 2)
    before = files.operations
    wal.sync()
    assert files.operations == before


def test_a_sync_commit_makes_the_async_ones_before_it_durable(wal: Wal) -> None:
    append(wal, sync=False)
    append(wal)
    assert wal.durable_seq == 2


def test_a_frame_that_does_not_fit_goes_to_the_next_segment(files: SimFiles, wal: Wal) -> None:
    segments = []
    for _ in range(7):
        append(wal)
        segments.append(wal.end.segment)
    assert segments == [1, 1, 1, 2, 2, 2, 3]
    assert names(files) == ["1-1", "1-2", "1-3", "MARK"]


def test_a_prepared_segment_costs_a_commit_no_name_and_no_space(files: SimFiles, wal: Wal) -> None:
    for _ in range(3):
        append(wal)
    wal.prepare()
    before = files.operations
    append(wal)
    assert {step for step, _ in traced(files, before)} == {"pwrite", "sync"}
    assert files.size(LOG / "00000001-000000000002.wal") == SEGMENT_BYTES


def test_preparing_twice_makes_one_segment(files: SimFiles, wal: Wal) -> None:
    wal.prepare()
    before = files.operations
    wal.prepare()
    assert files.operations == before
    assert names(files) == ["1-1", "1-2", "MARK"]


@pytest.mark.parametrize("is_prepared", [True, False])
def test_a_frame_larger_than_a_segment_gets_one_of_its_size(
    files: SimFiles, wal: Wal, is_prepared: bool
) -> None:
    if is_prepared:
        wal.prepare()
    append(wal)
    append(wal, [b"l" * 5000])
    append(wal)
    assert wal.end.segment == 3
    assert files.size(LOG / "00000001-000000000002.wal") == 4096 + 104 + 5000
    wal.close()
    assert [f.segment for f in reopen(files, epoch=2).frames] == [1, 2, 3]


def test_rotate_begins_a_segment_only_behind_a_frame(wal: Wal) -> None:
    assert wal.rotate() == 1
    append(wal)
    assert wal.rotate() == 2
    assert wal.rotate() == 2
    append(wal)
    assert wal.end.segment == 2


def test_rotate_makes_async_commits_durable(wal: Wal) -> None:
    append(wal, sync=False)
    wal.rotate()
    assert wal.durable_seq == 1


def test_the_mark_names_a_new_segment_as_soon_as_it_is_one(files: SimFiles, wal: Wal) -> None:
    append(wal)
    wal.rotate()
    assert mark(files) == Mark(Epoch(1), SegmentNumber(2), 4096, Seq(1))


def test_at_most_two_retired_segments_are_kept_for_use(files: SimFiles, wal: Wal) -> None:
    for _ in range(15):
        append(wal)
    floor = wal.rotate()
    assert floor == 6
    wal.retire(floor)
    assert names(files) == ["1-6", "1-7", "1-8", "MARK"]


def test_a_recycled_segment_takes_frames_and_says_that_it_is_one(files: SimFiles, wal: Wal) -> None:
    for _ in range(6):
        append(wal)
    wal.retire(wal.rotate())
    for _ in range(4):
        append(wal)
    path = LOG / "00000001-000000000004.wal"
    header = decode_header(files.read(path), path)
    assert header is not None
    assert header.is_recycled
    assert [f.first_seq for f in reopen(files, epoch=2, floor=3).frames] == [7, 8, 9, 10]


def test_a_segment_of_another_size_is_not_recycled(files: SimFiles, wal: Wal) -> None:
    append(wal, [b"l" * 5000])
    floor = wal.rotate()
    wal.retire(floor)
    assert floor == 3
    assert names(files) == ["1-3", "1-4", "MARK"]
    assert files.size(LOG / "00000001-000000000004.wal") == SEGMENT_BYTES


def test_the_segment_that_takes_frames_is_never_retired(wal: Wal) -> None:
    with pytest.raises(InvariantError):
        wal.retire(SegmentNumber(2))


def test_a_seq_that_does_not_follow_is_refused_before_a_byte_is_written(
    files: SimFiles, wal: Wal
) -> None:
    before = files.operations
    for first, last in ((2, 2), (0, 0), (1, 0)):
        with pytest.raises(InvariantError):
            wal.append(first_seq=Seq(first), last_seq=Seq(last), payload=SMALL)
    assert files.operations == before
    append(wal)


@pytest.mark.parametrize("step", [1, 2, 3])
def test_a_failed_write_sync_or_mark_poisons(files: SimFiles, wal: Wal, step: int) -> None:
    files.faults = (Fault(files.operations + step, Kind.EIO),)
    with pytest.raises(OSError, match="Input/output"):
        append(wal)
    assert wal.is_poisoned
    assert wal.durable_seq == 0
    before = files.operations
    for call in (lambda: append(wal), wal.sync, wal.rotate):
        with pytest.raises(PoisonedError):
            call()
    wal.close()
    assert files.operations == before


def test_a_failed_header_of_the_next_segment_poisons(files: SimFiles, wal: Wal) -> None:
    """Frames behind the old end would be lost if the header that names that end came through."""
    append(wal)
    wal.prepare()
    files.faults = (Fault(files.operations + 2, Kind.EIO),)
    with pytest.raises(OSError, match="Input/output"):
        wal.rotate()
    assert wal.is_poisoned


def test_a_small_frame_still_fits_when_there_is_no_space_for_a_segment(
    files: SimFiles, wal: Wal
) -> None:
    append(wal)
    append(wal)
    files.faults = (Fault(1, Kind.ENOSPC, is_sticky=True),)
    with pytest.raises(UnavailableError, match="No space"):
        append(wal, [b"l" * 400])
    with pytest.raises(UnavailableError):
        wal.prepare()
    files.faults = ()
    append(wal)
    assert (wal.end.segment, wal.end.seq) == (1, 3)


def test_a_segment_that_could_not_be_made_leaves_nothing_behind(files: SimFiles, wal: Wal) -> None:
    whole = SimFiles()
    other = reopen(whole, epoch=1).wal
    before = whole.operations
    other.prepare()
    for step in range(1, whole.operations - before + 1):
        files.faults = (Fault(files.operations + step, Kind.EIO),)
        with pytest.raises(UnavailableError):
            wal.prepare()
        assert names(files) == ["1-1", "MARK"], f"step {step}"
    append(wal)
    wal.rotate()
    append(wal)


def test_a_closed_log_refuses_and_closes_again(files: SimFiles, wal: Wal) -> None:
    append(wal, sync=False)
    wal.close()
    assert mark(files).seq == 1
    wal.close()
    wal.prepare()
    wal.retire(SegmentNumber(1))
    with pytest.raises(ClosedError):
        append(wal)


def test_segments_are_made_and_retired_while_commits_go_on(tmp_path: Path) -> None:
    files = RealFiles()

    def opened(epoch: int):
        return recover(
            files,
            tmp_path / "wal",
            store_id=STORE_ID,
            floor=SegmentNumber(1),
            epoch=Epoch(epoch),
            quarantine=tmp_path / "quarantine",
            segment_bytes=SEGMENT_BYTES,
        )

    wal = opened(1).wal
    is_done = threading.Event()
    failures: list[BaseException] = []

    def maintain() -> None:
        try:
            while not is_done.is_set():
                wal.prepare()
                wal.retire(SegmentNumber(1))
        except BaseException as error:  # noqa: BLE001 - handed to the test's thread
            failures.append(error)

    thread = threading.Thread(target=maintain)
    thread.start()
    for _ in range(300):
        append(wal, sync=False)
    is_done.set()
    thread.join()
    wal.close()
    assert failures == []
    assert [f.first_seq for f in opened(2).frames] == list(range(1, 301))
