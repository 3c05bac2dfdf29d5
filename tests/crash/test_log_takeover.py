"""A log that goes on from what was followed is the log that an ordinary recovery finds.

A follower reads beside the owner at some of its steps, as a process that joined does. The owner is
killed at any step, or its disk failed before: bytes may then be in the page cache alone.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator

import msgspec
import pytest

from siltstone.errors import CorruptionError, PoisonedError, UnavailableError
from siltstone.formats.log.frame import Frame, Position
from siltstone.storage.wal.chain import Confirmed
from siltstone.storage.wal.follower import SegmentRecycled, WalFollower
from siltstone.storage.wal.recovery import Recovery
from siltstone.units import SegmentNumber
from tests.crash.moments import chance, some
from tests.crash.test_wal_crash import lost
from tests.crash.test_wal_reader import shown
from tests.crash.wal_scenario import LOG, STORE_ID, Life, reopen, steps
from tests.support.simulated_files import Fault, Kind, SimFiles, SimulatedCrash, When

Commits = list[tuple[int, int, bytes]]


class Followed:
    """A life with a follower beside it, which looks after every so many steps."""

    def __init__(self, every: int, faults: tuple[Fault, ...] = ()) -> None:
        self.life = Life(SimFiles())
        self.life.files.faults = faults
        self.every = every
        self.wal = WalFollower(self.life.files, LOG, store_id=STORE_ID, trusts_mark=True)
        self.commits: Commits = []

    def run(self) -> None:
        for number, step in enumerate(steps(self.life)):
            step()
            if self.every and number % self.every == 0:
                self.look()

    def look(self) -> None:
        faults, self.life.files.faults = self.life.files.faults, ()  # those are the owner's
        try:
            self.commits += commits_of(self.wal.poll(SegmentNumber(self.life.floor)))
        except SegmentRecycled:
            self.wal = WalFollower(self.life.files, LOG, store_id=STORE_ID, trusts_mark=True)
            self.commits = []
        finally:
            self.life.files.faults = faults

    @property
    def known(self) -> Confirmed | None:
        return self.wal.confirmed

    def machine(self) -> SimFiles:
        self.life.files.faults = ()
        return self.life.files.killed()

    def recovered(self, files: SimFiles, epoch: int = 10) -> Recovery:
        return reopen(files, epoch=epoch, floor=self.life.floor, known=self.known)

    def all_of(self, recovery: Recovery) -> Commits:
        """Return the commits above the record: those that were known, and the recovered ones."""
        found = commits_of(recovery.frames)
        flushed = self.life.flushed
        before = self.commits if recovery.goes_on else []
        if recovery.goes_on:
            assert self.known is not None
            assert recovery.start_seq == self.known.at.seq
        return [each for each in (*before, *found) if each[1] > flushed]


def commits_of(frames: Iterable[Frame]) -> Commits:
    return [(frame.first_seq, frame.last_seq, bytes(frame.payload)) for frame in frames]


def expected(files: SimFiles, life: Life) -> tuple[Commits, int]:
    """Return what an ordinary recovery finds on a copy of the machine, above the record."""
    recovery = reopen(files.killed(), epoch=20, floor=life.floor)
    found = [each for each in commits_of(recovery.frames) if each[1] > life.flushed]
    return found, recovery.last_seq


def whole(every: int) -> Followed:
    found = Followed(every)
    found.run()
    return found


def killed_lives() -> Iterator[tuple[str, Followed]]:
    """Yield lives that end at each step, with followers that looked often, and seldom."""
    for every in (1, 3, 7):
        for at, step in enumerate(whole(every).life.files.trace, 1):
            for when in (When.BEFORE, When.MIDDLE) if step.what == "pwrite" else (When.BEFORE,):
                found = Followed(every, (Fault(at, when=when),))
                try:
                    found.run()
                except SimulatedCrash:  # else it was a step of the follower
                    where = f"{when.value} step {at} ({step.what})"
                    yield f"{where}, looked at after each {every} of them", found


def failed_lives() -> Iterator[tuple[str, Followed]]:
    """Yield lives whose disk fails once; a failed sync leaves bytes readable and never durable."""
    trace = whole(2).life.files.trace
    for at in range(1, len(trace) + 1):
        if trace[at - 1].what not in ("pwrite", "sync"):
            continue
        for when in (When.BEFORE, When.MIDDLE, When.AFTER):
            found = Followed(2, (Fault(at, Kind.EIO, when),))
            try:
                found.run()
            except (OSError, PoisonedError, UnavailableError):
                yield f"{when.value} step {at} ({trace[at - 1].what}) fails", found


@pytest.mark.parametrize("lives", [killed_lives, failed_lives])
def test_a_log_that_goes_on_has_the_commits_of_an_ordinary_recovery(
    lives: Callable[[], Iterator[tuple[str, Followed]]],
) -> None:
    """And no power cut takes one of them after that."""
    went_on = count = 0
    for label, each in lives():
        machine = each.machine()
        commits, last_seq = expected(machine, each.life)
        recovery = each.recovered(machine)
        assert each.all_of(recovery) == commits, label
        assert recovery.last_seq == last_seq, label
        assert each.life.acknowledged <= last_seq <= each.life.attempted, label
        again = reopen(lost(machine), epoch=11, floor=each.life.floor)
        assert [c for c in commits_of(again.frames) if c[1] > each.life.flushed] == commits, label
        went_on += recovery.goes_on
        count += 1
    assert went_on > count // 3


def test_a_crash_amid_a_take_over_changes_nothing_of_what_the_next_one_finds() -> None:
    """By a kill or by a power cut, whether the next one followed, too, or not."""
    tried = 0
    for label, each in some(list(killed_lives()), chance("take-over"), 12):
        machine = each.machine()
        commits, _ = expected(machine, each.life)
        for at in range(1, 1_000):
            failing = machine.killed()
            failing.faults = (Fault(at, when=When.MIDDLE),)
            try:
                each.recovered(failing)
            except SimulatedCrash:
                where = f"{label}, step {at} of the take-over"
                tried += 1
                warm = each.recovered(failing.killed(), epoch=11)
                assert each.all_of(warm) == commits, where
                assert expected(failing, each.life)[0] == commits, where
                for image in failing.images(random.Random(3), 3):
                    found, last_seq = expected(image.files, each.life)
                    assert found == commits[: len(found)], where
                    assert last_seq >= each.life.acknowledged, where
            else:
                break
    assert tried > 50


def test_a_log_goes_on_after_a_take_over_and_who_follows_reads_on() -> None:
    """Others that followed the dead owner, and those without one, find the next segment."""
    for label, each in some(list(killed_lives()), chance("others"), 40):
        life = each.life
        life.files, life.epoch = each.machine(), 10
        beside = WalFollower(life.files, LOG, store_id=STORE_ID)
        before = shown_by(beside, life)
        recovery = each.recovered(life.files)
        commits = each.all_of(recovery)
        life.wal, life.acknowledged = recovery.wal, recovery.last_seq
        life.attempted = recovery.last_seq
        life.append()
        life.append(size=300)
        assert before <= life.acknowledged
        after = shown_by(beside, life) if before > life.flushed else life.wal.end.seq
        assert after == life.wal.end.seq, label
        assert shown(life.files, life) == life.wal.end.seq, label
        assert expected(life.files, life)[0][: len(commits)] == commits, label
        life.checkpoint()
        life.append(sync=False)
        life.close()
        life.open()
        assert life.acknowledged == life.wal.end.seq, label


def test_owners_that_take_over_one_from_the_other_add_a_segment_each_and_lose_nothing() -> None:
    each = a_life()
    each.life.files = each.machine()
    wal = WalFollower(each.life.files, LOG, store_id=STORE_ID, trusts_mark=True)
    seq = each.life.acknowledged
    for epoch in range(10, 16):
        wal.poll(SegmentNumber(1))
        recovery = reopen(each.life.files, epoch=epoch, known=wal.confirmed)
        assert recovery.goes_on
        assert commits_of(recovery.frames) == []
        assert recovery.last_seq == seq
        if epoch % 2:  # every other one dies before it commits
            each.life.wal = recovery.wal
            each.life.append()
            seq += 1
    assert reopen(each.life.files.killed(), epoch=20).last_seq == seq


def shown_by(wal: WalFollower, life: Life) -> int:
    frames = wal.poll(SegmentNumber(life.floor))
    del frames
    return max(0 if wal.position is None else wal.position.seq, life.flushed)


# what does not fit


def a_life() -> Followed:
    found = Followed(0)
    for step in steps(found.life)[:5]:
        step()
    found.look()
    found.life.append()
    assert found.known is not None
    return found


def test_what_was_followed_is_not_read_again() -> None:
    each = a_life()
    machine = each.machine()
    recovery, known = each.recovered(machine), each.known
    assert known is not None
    assert recovery.goes_on
    assert [first for first, _, _ in commits_of(recovery.frames)] == [known.at.seq + 1]
    assert recovery.wal.end.segment == each.life.wal.end.segment + 1


def test_nothing_is_copied_but_where_the_disk_has_other_bytes() -> None:
    """A sync that failed leaves pages that count as clean: their bytes are read, and lost."""
    each = Followed(0)
    for step in steps(each.life)[:2]:
        step()
    each.look()
    now = each.life.files.operations
    each.life.files.faults = [Fault(n, Kind.EIO) for n in range(now + 2, now + 9)]
    with pytest.raises(OSError, match="Input/output"):
        each.life.append()
    machine = each.machine()
    commits, last_seq = expected(machine, each.life)
    recovery = each.recovered(machine)
    assert each.all_of(recovery) == commits
    assert recovery.last_seq == last_seq
    assert commits_of(reopen(lost(machine), epoch=11).frames)[-1][1] == last_seq


@pytest.mark.parametrize("change", ["other frame", "cut", "gone", "behind the end"])
def test_a_place_that_the_log_has_not_is_no_place_to_go_on_from(change: str) -> None:
    each = a_life()
    machine, known = each.machine(), each.known
    assert known is not None
    other = {
        "other frame": Confirmed(replaced(known.at, checksum=known.at.checksum ^ 1), known.last),
        "cut": Confirmed(known.at, known.last + 8),
        "gone": Confirmed(replaced(known.at, epoch=7), known.last),
        "behind the end": Confirmed(replaced(known.at, offset=known.at.offset + 8), known.last),
    }[change]
    recovery = reopen(machine, epoch=10, known=other)
    assert not recovery.goes_on
    assert recovery.last_seq == each.life.acknowledged


def replaced(place: Position, **fields: int) -> Position:
    return msgspec.structs.replace(place, **fields)


def test_a_place_in_a_segment_that_was_recycled_is_none() -> None:
    each = a_life()
    for _ in range(3):
        each.life.checkpoint()
        each.life.append()
    recovery = each.recovered(each.machine())
    assert not recovery.goes_on
    assert recovery.last_seq == each.life.acknowledged


def test_a_place_at_the_end_of_a_segment_that_was_recycled_is_the_begin_of_the_next() -> None:
    each = a_life()
    each.look()
    each.life.checkpoint()
    each.life.append()
    recovery = each.recovered(each.machine())
    assert recovery.goes_on
    assert [first for first, _, _ in commits_of(recovery.frames)] == [each.life.acknowledged]


def test_damage_behind_the_place_is_damage() -> None:
    each = a_life()
    machine, known = each.machine(), each.known
    assert known is not None
    path = LOG / f"{known.at.epoch:08d}-{known.at.segment:012d}.wal"
    machine.open(path).pwrite(b"\xff", known.at.offset + 50)
    with pytest.raises(CorruptionError):
        each.recovered(machine)


def test_a_stopped_owner_that_wakes_up_behind_a_take_over_writes_into_nothing() -> None:
    each = a_life()
    machine = each.life.files
    stopped = each.life.wal
    recovery = each.recovered(machine)
    seq = recovery.last_seq
    list(recovery.frames)
    stopped.append(first_seq=seq + 1, last_seq=seq + 1, payload=[b"late"])  # type: ignore[arg-type]
    again = reopen(machine.killed(), epoch=11)
    assert again.last_seq == seq
