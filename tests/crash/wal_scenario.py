"""A life of the log, and the oracle that says what a disk must give back after it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from siltstone.errors import UnavailableError
from siltstone.storage.wal.chain import Confirmed
from siltstone.storage.wal.recovery import Recovery, recover
from siltstone.storage.wal.wal import Wal
from siltstone.units import Epoch, SegmentNumber, Seq
from tests.support.simulated_files import SimFiles

STORE_ID = b"a store's own id"
STORE = Path("/store")
LOG = STORE / "wal"
QUARANTINE = STORE / "quarantine"
SEGMENT_BYTES = 4096 + 3 * 136  # three small frames


def reopen(
    files: SimFiles,
    *,
    epoch: int,
    floor: int = 1,
    last_seq: int = 0,
    known: Confirmed | None = None,
) -> Recovery:
    return recover(
        files,
        LOG,
        store_id=STORE_ID,
        floor=SegmentNumber(floor),
        epoch=Epoch(epoch),
        quarantine=QUARANTINE,
        segment_bytes=SEGMENT_BYTES,
        last_seq=Seq(last_seq),
        known=known,
    )


class Life:
    """Drives a log, and remembers what was attempted, what acknowledged and what may be retired."""

    def __init__(self, files: SimFiles) -> None:
        self.files = files
        self.epoch = 0
        self.floor = 1
        self.flushed = 0
        self.acknowledged = 0
        self.attempted = 0
        self.payloads: dict[int, tuple[int, bytes]] = {}
        self.wal: Wal

    def open(self) -> None:
        self.epoch += 1
        recovery = reopen(self.files, epoch=self.epoch, floor=self.floor)
        self.check(recovery)
        self.wal = recovery.wal
        self.acknowledged = self.attempted = recovery.last_seq

    def append(self, *, commits: int = 1, size: int = 24, sync: bool = True) -> None:
        first = self.wal.end.seq + 1
        last = first + commits - 1
        payload = f"{self.epoch}:{first}-{last};".encode().ljust(size, b"p")
        self.attempted = max(self.attempted, last)
        self.payloads[first] = last, payload
        self.wal.append(
            first_seq=Seq(first),
            last_seq=Seq(last),
            payload=[payload[:5], memoryview(payload)[5:]],
            sync=sync,
        )
        if sync:
            self.wal.tell()
        self.acknowledged = self.wal.durable_seq

    def prepare(self) -> None:
        self.wal.prepare()

    def sync(self) -> None:
        self.wal.sync()
        self.acknowledged = self.wal.durable_seq

    def checkpoint(self) -> None:
        """Seal, as if the frames so far were in Lance, and a record with the new floor durable."""
        flushed = self.wal.end.seq
        floor = self.wal.rotate()
        self.acknowledged = self.wal.durable_seq
        self.floor, self.flushed = floor, flushed
        self.wal.retire(floor)

    def close(self) -> None:
        self.wal.close()
        self.acknowledged = self.wal.durable_seq

    def check(self, recovery: Recovery) -> None:
        """Everything acknowledged, nothing not attempted, each commit once, in its order."""
        frames = list(recovery.frames)
        seq = recovery.start_seq
        assert seq <= self.flushed
        for frame in frames:
            assert frame.first_seq == seq + 1
            assert (frame.last_seq, bytes(frame.payload)) == self.payloads[frame.first_seq]
            seq = frame.last_seq
        assert seq == recovery.last_seq
        assert self.acknowledged <= seq <= self.attempted


def steps(life: Life) -> list[Callable[[], None]]:
    """Two owners one after the other: switches, async commits, a large frame, two checkpoints."""
    return [
        life.open,
        life.append,
        lambda: life.append(sync=False),
        lambda: life.append(sync=False, size=20),
        life.append,  # the next segment, made in passing
        life.prepare,
        lambda: life.append(sync=False, commits=3),
        life.sync,
        life.append,
        lambda: life.append(size=600),  # larger than a segment
        life.prepare,
        lambda: life.wal.rest(),  # noqa: PLW0108 - it is opened later
        life.checkpoint,
        life.append,
        lambda: life.append(size=200),
        lambda: life.append(size=200),  # the next segment, a recycled one
        lambda: life.append(sync=False),
        life.close,
        life.open,
        lambda: life.append(commits=2),
        life.append,
        life.checkpoint,
        lambda: life.append(sync=False),
        life.append,  # behind a frame that is not durable, in one segment
        life.append,
        life.checkpoint,
        lambda: life.append(sync=False),
    ]


def run(life: Life) -> None:
    for step in steps(life):
        step()


def run_stubborn(life: Life) -> None:
    """Run, and try a step once more where the log says that nothing was changed."""
    for step in steps(life):
        try:
            step()
        except UnavailableError:
            step()
