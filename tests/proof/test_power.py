"""Whatever a power cut leaves of a real process's disk, with Lance beneath: a store opens on it.

Lives of `proof.power`, or short forms of them, are recorded once: six with steps of their own, and
the one that has a little of all; `SILTSTONE_CRASH=all` takes every life. Of each the disks are
checked that are left where a step has just returned and nothing unsynced survives: there one sync
too few shows. Of the life that has a little of all, others are checked too. `python -m proof.power`
checks as many disks as one wants; docs/power-loss.md says what came of thousands.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

import siltstone
from proof.defects.planted import ROOT
from proof.power import images, page
from proof.power.calls import TraceError, read_calls
from proof.power.events import (
    Event,
    Linked,
    Made,
    Removed,
    Renamed,
    Synced,
    Told,
    Written,
    events_that_make,
    read_events,
)
from proof.power.images import Image
from proof.power.machine import Machine, Moment, require_same
from proof.power.recording import STRACE, Recording, record
from proof.power.scenarios import AGAIN, BRIEF, SCENARIOS
from proof.power.trials import Bench, Finding, scratch
from tests.crash.moments import IS_LONG
from tests.support.simulated_disk import Disk

PAGE = ROOT / "docs" / "power-loss.md"
DEFECTS_OF_DURABILITY = {
    "acknowledge-early",
    "folder-of-a-compaction-unsynced",
    "folder-of-key-runs-unsynced",
    "folders-of-other-clients-unsynced",
    "key-runs-unsynced",
    "publish-before-fragments-are-synced",
    "skip-directory-sync",
    "skip-fdatasync",
}
IMAGES, SEED = 40, 20
UNNOTICED_MAX = 40
SOURCE = Path(siltstone.__file__).parents[2]  # a copy of ours, where a defect is planted
SHORT_FORMS = {"beside": "brief beside", "recovery": "brief recovery"}
LIVES = [SHORT_FORMS.get(name, name) for name in SCENARIOS if not name.startswith(BRIEF)]
LIVES.remove(AGAIN)  # it begins on what another one left
FEW = ["fold", "load", "optimize", "index", "batch", "brief recovery"]
"""Lives with steps that the brief one lacks."""

traced = pytest.mark.skipif(STRACE is None, reason="strace is not installed")


@dataclass(frozen=True)
class Recorded:
    recording: Recording
    bench: Bench
    folder: Path

    def check(self, events: list[Event], count: int, findings_max: int) -> list[Finding]:
        self.bench.turn_to(self.recording)
        chosen = images.sample(events, SEED, count)
        checked, findings = self.bench.run(
            chosen, findings_max=findings_max, on_done=lambda count, failures: None
        )
        assert findings or checked == count
        return findings

    def check_ends(self, name: str, before: Image | None = None) -> None:
        """Record another life and check what is left of it where a step has returned."""
        at = self.folder / name
        at.mkdir()
        recording = record(name, at, SOURCE, before)
        self.bench.turn_to(recording)
        checked, findings = self.bench.run(
            images.ends(recording.events, SEED), findings_max=1, on_done=lambda *counts: None
        )
        shutil.rmtree(at)
        assert told_of(findings) == []
        assert checked


def told_of(findings: list[Finding]) -> list[tuple[str, str, str, str]]:
    found = [(each.image, each.reason) for each in findings]
    return [(image.phase, image.what, image.label, reason) for image, reason in found]


@pytest.fixture(scope="module")
def recorded() -> Iterator[Recorded]:
    with scratch() as folder:
        at = Path(folder) / "recorded"
        at.mkdir()
        recording = record("brief", at, SOURCE)
        bench = Bench(recording, Path(folder), jobs=1, source=SOURCE)
        yield Recorded(recording, bench, Path(folder))
        bench.end()


@traced
@pytest.mark.timeout(300)
@pytest.mark.parametrize("life", LIVES if IS_LONG else FEW)
def test_a_power_cut_behind_a_step_that_returned_takes_nothing_of_it(
    recorded: Recorded, life: str
) -> None:
    recorded.check_ends(life)


@traced
@pytest.mark.timeout(300)
def test_a_power_cut_behind_a_step_of_a_recovered_store_takes_nothing_of_it(
    recorded: Recorded,
) -> None:
    (left,) = images.sample(recorded.recording.events, SEED, 1)
    recorded.check_ends(AGAIN, left)


def test_each_life_has_a_short_form_here() -> None:
    whole = {name for name in SCENARIOS if not name.startswith(BRIEF)}
    assert whole == {*LIVES} - {*SHORT_FORMS.values()} | {*SHORT_FORMS, AGAIN}
    assert {*SHORT_FORMS.values(), BRIEF} == {*SCENARIOS} - whole
    assert {*FEW} < {*LIVES}


@traced
@pytest.mark.timeout(300)
def test_a_power_cut_loses_nothing_that_was_acknowledged_and_tears_nothing(
    recorded: Recorded,
) -> None:
    findings = recorded.check(list(recorded.recording.events), IMAGES, findings_max=1)
    assert told_of(findings) == []


Forgets = Callable[[Path], bool]
FORGETS: dict[str, Forgets] = {
    "the log": lambda path: path.suffix == ".wal",
    "the names of segments": lambda path: path.name == "wal",
    "the data files of tables": lambda path: path.suffix == ".lance",
    "key runs": lambda path: path.suffix == ".run",
    "the folders of tables": lambda path: "tables" in path.parts and not path.suffix,
    "the names of records": lambda path: path.name == "manifest",
}


@traced
@pytest.mark.parametrize("what", FORGETS)
def test_a_disk_is_found_on_which_something_is_missing_where_nobody_synced(
    recorded: Recorded, what: str
) -> None:
    events = [
        Told({}) if isinstance(event, Synced) and FORGETS[what](event.path) else event
        for event in recorded.recording.events
    ]
    findings = recorded.check(events, UNNOTICED_MAX, findings_max=1)
    assert findings
    assert "checker" not in findings[0].reason.partition(":")[0]  # the store refused, or was wrong


def test_the_page_tells_of_all_scenarios_and_that_defects_of_durability_were_caught() -> None:
    told = page.known(page.DATA)
    assert PAGE.read_text() == page.written(told)
    whole = {name for name in SCENARIOS if not name.startswith(BRIEF)} - {AGAIN}
    assert whole <= set(told["scenarios"])
    assert sum(each["failures"] for each in told["scenarios"].values()) == 0
    assert sum(each["images"] for each in told["scenarios"].values()) > 5_000
    assert set(told["defects"]) >= DEFECTS_OF_DURABILITY
    assert all(each["failures"] for each in told["defects"].values())


# --- the account of strace


def q(text: str) -> str:
    """Return a string as strace -xx shows it."""
    return '"' + "".join(f"\\x{byte:02x}" for byte in text.encode()) + '"'


def fd(number: int, path: str) -> str:
    return f"{number}<{q(path)[1:-1]}>"


def events_of(*lines: str) -> list[Event]:
    """Return the events of a trace; the disk is in /d."""
    calls = read_calls(line.encode() + b"\n" for line in lines)
    return read_events(calls, Path("/d"), Path("/told"))


FILE = fd(4, "/d/s/f")
MADE = (
    f"7 mkdir({q('/d/s')}, 0777) = 0",
    f"7 openat(AT_FDCWD<{q('/')[1:-1]}>, {q('/d/s/f')}, O_RDWR|O_CREAT|O_EXCL, 0666) = {FILE}",
)


def test_writes_become_events_at_the_places_where_they_went() -> None:
    found = events_of(
        *MADE,
        f"7 write({FILE}, {q('ab')}, 2) = 2",
        f"7 write({FILE}, {q('cdef')}, 4) = 3",  # a short one
        f"7 pwrite64({FILE}, {q('x')}, 1, 9) = 1",
        f"7 pwritev2({FILE}, [{{iov_base={q('p')}, iov_len=1}}, {{iov_base={q('q')}, iov_len=1}}],"
        " 2, 4096, RWF_DSYNC) = 2",
        f"7 lseek({FILE}, 1, SEEK_SET) = 1",
        f"7 write({FILE}, {q('z')}, 1) = 1",
        f"7 write({fd(5, '/elsewhere')}, {q('away')}, 4) = 4",
        f"7 pwrite64({FILE}, {q('full')}, 4, 0) = -1 ENOSPC (No space left on device)",
    )
    file = Path("/s/f")
    assert found == [
        Made(Path("/s"), is_directory=True),
        Made(file, is_directory=False),
        Written(file, 0, b"ab"),
        Written(file, 2, b"cde"),
        Written(file, 9, b"x"),
        Written(file, 4096, b"pq"),
        Synced(file, 6, range(4096, 4098)),
        Written(file, 1, b"z"),
    ]


def test_names_become_events_and_what_failed_does_not() -> None:
    here = f"AT_FDCWD<{q('/d')[1:-1]}>"
    found = events_of(
        *MADE,
        f"7 linkat({here}, {q('s/f')}, {here}, {q('s/g')}, 0) = 0",
        f"7 renameat({here}, {q('/d/s/f')}, {here}, {q('/d/s/h')}) = 0",
        f"7 unlink({q('/d/s/nobody')}) = -1 ENOENT (No such file or directory)",
        f"7 unlink({q('/d/s/g')}) = 0",
        f"7 write({fd(6, '/told')}, {q(chr(123) + chr(125))}, 2) = 2",
    )
    paths = [Path(f"/s/{name}") for name in "fgh"]
    assert found[2:] == [
        Linked(paths[0], paths[1]),
        Renamed(paths[0], paths[2]),
        Removed(paths[1]),
        Told({}),
    ]


def test_a_sync_covers_what_was_done_before_it_began() -> None:
    events = events_of(
        *MADE,
        f"7 pwrite64({FILE}, {q('a')}, 1, 0) = 1",
        f"7 fdatasync({FILE} <unfinished ...>",
        f"8 pwrite64({FILE}, {q('b')}, 1, 1 <unfinished ...>",
        "8 <... pwrite64 resumed>) = 1",
        "7 <... fdatasync resumed>) = 0",
        f"7 fsync({fd(5, '/d/s')}) = 0",
        f"7 fsync({fd(5, '/d')}) = 0",
        f"7 write({fd(6, '/told')}, {q('{}')}, 2) = 2",
    )
    assert events[4] == Synced(Path("/s/f"), 3)
    machine = Machine([Told({"is_counting": True}), *(shifted(event) for event in events)])
    disks = [{label: disk.tree() for label, disk in left(moment)} for moment in machine.moments()]
    content = [tree[-1] for tree in (disks[-1]["nothing unsynced"], disks[-1]["everything"])]
    assert content == [("/s/f", b"a"), ("/s/f", b"ab")]


def test_a_write_that_syncs_covers_itself_alone() -> None:
    events = events_of(
        *MADE,
        f"7 pwrite64({FILE}, {q('a')}, 1, 0) = 1",
        f"7 pwritev2({FILE}, [{{iov_base={q('bc')}, iov_len=2}}], 1, 1, RWF_DSYNC) = 2",
        f"7 fsync({fd(5, '/d/s')}) = 0",
        f"7 fsync({fd(5, '/d')}) = 0",
        f"7 write({fd(6, '/told')}, {q('{}')}, 2) = 2",
    )
    machine = Machine([Told({"is_counting": True}), *(shifted(event) for event in events)])
    disks = [{label: disk.tree() for label, disk in left(moment)} for moment in machine.moments()]
    content = [tree[-1] for tree in (disks[-1]["nothing unsynced"], disks[-1]["everything"])]
    assert content == [("/s/f", b"\0bc"), ("/s/f", b"abc")]


def shifted(event: Event) -> Event:
    """Return an event as it is behind one more."""
    return replace(event, began=event.began + 1) if isinstance(event, Synced) else event


def left(moment: Moment) -> list[tuple[str, Disk]]:
    return list(moment.disk.images(random.Random(1)))


@pytest.mark.parametrize(
    "line",
    [
        f"7 ftruncate({FILE}, 0) = 0",
        f"7 fallocate({FILE}, 0, 0, 9) = 0",
        f"7 copy_file_range({fd(9, '/x')}, NULL, {FILE}, NULL, 9, 0) = 9",
        f"7 ioctl({FILE}, FICLONE, 9) = 0",
        f"7 rename({q('/d/s/f')}, {q('/away')}) = 0",
        f"7 write({fd(8, '/d/s/f')}, {q('a')}, 1) = 1",  # nobody saw it opened
        f"7 pwrite64({FILE}, {q('a')}..., 1, 0) = 1",  # cut off
        f"7 openat({fd(3, '/d')}, {q('/d/s/f')}, O_WRONLY|O_TRUNC) = {FILE}",
        f"7 openat({fd(3, '/d')}, {q('/d/s')}, O_RDWR|O_TMPFILE, 0600) = {fd(9, '/d/s/#1')}",
        "7 nonsense",
    ],
)
def test_what_cannot_be_replayed_is_refused(line: str) -> None:
    with pytest.raises(TraceError):
        events_of(*MADE, line)


def test_an_account_with_a_gap_is_noticed(tmp_path: Path) -> None:
    (tmp_path / "s").mkdir()
    (tmp_path / "s" / "f").write_bytes(b"ab")
    machine = Machine([*events_of(*MADE, f"7 pwrite64({FILE}, {q('ab')}, 2, 0) = 2")])
    list(machine.moments())
    require_same(machine.disk, tmp_path)
    (tmp_path / "s" / "f").write_bytes(b"aB")
    with pytest.raises(TraceError, match="not as the calls"):
        require_same(machine.disk, tmp_path)
    (tmp_path / "s" / "f").unlink()
    with pytest.raises(TraceError, match="are not there"):
        require_same(machine.disk, tmp_path)


def test_a_disk_is_laid_out_with_the_names_that_a_file_has_twice(tmp_path: Path) -> None:
    events = events_of(*MADE, f"7 pwrite64({FILE}, {q('ab')}, 2, 0) = 2")
    events = [Told({"is_counting": True}), *events, Linked(Path("/s/f"), Path("/s/g"))]
    image = images.one(events, 1, len(events), "everything")
    image.lay_out(tmp_path / "laid")
    one, other = (tmp_path / "laid" / "s" / name for name in "fg")
    assert one.read_bytes() == b"ab"
    assert one.samefile(other)


def test_a_life_may_begin_on_a_disk_that_another_left(tmp_path: Path) -> None:
    events = [
        *events_of(*MADE),
        Written(Path("/s/f"), 0, b"ab"),
        Linked(Path("/s/f"), Path("/s/g")),
    ]
    events = [Told({"is_counting": True}), *events]
    images.one(events, 1, len(events), "everything").lay_out(tmp_path / "laid")
    given = events_that_make(tmp_path / "laid")
    again = read_events(
        read_calls(
            line.encode()
            for line in (
                f"7 openat({fd(3, '/d')}, {q('/d/s/f')}, O_RDWR|O_CREAT, 0666) = {FILE}",
                f"7 pwrite64({FILE}, {q('c')}, 1, 2) = 1",
                f"7 fsync({FILE}) = 0",
            )
        ),
        Path("/d"),
        Path("/told"),
        [*given, Told({"is_counting": True})],
    )
    assert [type(event) for event in again[-2:]] == [Written, Synced]
    left = {image.disk.tree() for image in images.every(again, 1)}
    names = (("", None), ("/s", None))
    assert left == {
        (*names, *((f"/s/{name}", content) for name in "fg"))
        for content in (b"ab", b"ab\0", b"abc")
    }


def test_the_same_seed_chooses_the_same_disks_and_all_are_different() -> None:
    events = [Told({"is_counting": True}), *events_of(*MADE)]
    events += [Written(Path("/s/f"), at, b"x") for at in range(9)]
    trees = [[each.disk.tree() for each in images.sample(events, 5, 8)] for _ in range(2)]
    assert trees[0] == trees[1]
    assert len(set(trees[0])) == len(trees[0]) == 8
    every = {each.disk.tree() for each in images.every(events, 5)}
    assert set(trees[0]) < every
