"""A version by path, set aside: cut off at any step, or raced, it is there once and ours is shown.

Whatever a crash leaves, the next promotion gives ours its public name, and the manifest of the
other is found under one name or two, of one file, so it is listed once.
"""

from __future__ import annotations

import contextlib
import itertools
import random
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from siltstone.storage.files.files import is_temporary
from siltstone.storage.lance.external import external_tables
from siltstone.storage.tables import promotion
from siltstone.storage.tables.promotion import public_name
from tests.crash.moments import IS_LONG
from tests.support.simulated_files import Fault, Image, SimFiles, SimulatedCrash

ROOT = Path("/data/shop")
FOLDER = ROOT / "tables/t-1"
PUBLIC, PRIVATE = FOLDER / "_versions", FOLDER / "_siltstone"
OURS = {version: PRIVATE / f"token{version}" / public_name(version) for version in (1, 2)}
IMAGES = 10_000 if IS_LONG else 6


def write(files: SimFiles, path: Path, text: str) -> None:
    files.mkdir(path.parent)
    files.write(path, text.encode())
    files.sync_dir(path.parent)


def before(files: SimFiles, theirs: int = 3) -> None:
    """Ours are 1, with its public name, and 2, without; somebody wrote 2 and 3 by path."""
    for version, path in OURS.items():
        write(files, path, f"ours {version}")
    promotion.link(files, FOLDER, {1: OURS[1]}, 1)
    for version in range(2, theirs + 1):
        write(files, PUBLIC / public_name(version), f"theirs {version}")


def promote(files: SimFiles) -> None:
    promotion.link(files, FOLDER, OURS, 2)
    promotion.clear(files, FOLDER)


def kept(files: SimFiles) -> list[str]:
    found = external_tables.manifests(files, ROOT, "tables/t-1")
    return [files.read(ROOT / path).decode() for _, path in found]


def shown(files: SimFiles) -> dict[int | None, str]:
    names = [name for name in files.list(PUBLIC) if not name.startswith(".")]
    return {promotion.version_of(name): files.read(PUBLIC / name).decode() for name in names}


BOTH = ["theirs 2", "theirs 3"]


def test_a_crash_at_any_step_of_setting_aside_loses_no_version_and_lists_none_twice() -> None:
    whole = SimFiles()
    before(whole)
    start = whole.operations
    promote(whole)
    end = whole.operations
    assert (kept(whole), shown(whole)) == (BOTH, {1: "ours 1", 2: "ours 2"})
    rng = random.Random(1)
    for step in range(start + 1, end + 1):
        files = SimFiles([Fault(step)])
        before(files)
        with pytest.raises(SimulatedCrash):
            promote(files)
        killed = Image(f"killed at {step}", files.killed())
        for image in [killed, *itertools.islice(files.images(rng), IMAGES)]:
            assert kept(image.files) == BOTH, image.label
            promote(image.files)
            assert kept(image.files) == BOTH, image.label
            assert shown(image.files) == {1: "ours 1", 2: "ours 2"}, image.label


class _Other:
    """A fault that never hits: before step `at` another process does `work`."""

    def __init__(self, at: int, work: Callable[[], None]) -> None:
        self._at, self._work, self._is_under_way = at, work, False
        self.ran = False

    def hits(self, operation: int) -> bool:
        del operation
        self._at -= not self._is_under_way
        if self._at == 0 and not self._is_under_way:
            self._is_under_way = self.ran = True
            self._work()
            self._is_under_way = False
        return False


@pytest.mark.parametrize("first", ["promotes", "clears the way"])
@pytest.mark.parametrize("other", ["promotes", "clears the way", "writes by path"])
def test_two_processes_that_set_aside_at_once_show_ours_and_keep_theirs(
    first: str, other: str
) -> None:
    work: dict[str, Callable[[SimFiles], object]] = {
        "promotes": promote,
        "clears the way": lambda files: promotion.clear(files, FOLDER, 1),
        "writes by path": lambda files: files.create_if_absent(
            PUBLIC / public_name(2), b"theirs again"
        ),
    }
    step, is_raced = 0, True
    while is_raced:
        step += 1
        files = SimFiles()
        before(files)
        meanwhile = _Other(step, lambda files=files: work[other](files))
        files.faults = [meanwhile]
        work[first](files)
        files.faults = ()
        is_raced = meanwhile.ran
        if first == "promotes" or (other == "promotes" and is_raced):
            assert shown(files).get(2) == "ours 2", step
        assert [text for text in kept(files) if text != "theirs again"] == BOTH, step
        promote(files)
        assert shown(files) == {1: "ours 1", 2: "ours 2"}, step
        assert [text for text in kept(files) if text != "theirs again"] == BOTH, step
    assert step > 10


class _Raced:
    """A version by path is set aside by two processes, and other writers take its name."""

    NAME = PUBLIC / public_name(2)

    def __init__(self) -> None:
        self.files, self.written = SimFiles(), ["theirs 2"]
        before(self.files, theirs=2)

    def alone(self, work: Callable[[], object]) -> Callable[[], None]:
        """Return the work of another process, whose steps are not counted."""

        def run() -> None:
            held, self.files.faults = self.files.faults, ()
            work()
            self.files.faults = held

        return run

    def write(self, text: str) -> None:
        """Write by path, as a client: if nobody has the name."""
        if self.files.create_if_absent(self.NAME, text.encode()):
            self.written.append(text)

    def set_aside_and_write(self) -> None:
        promotion.clear(self.files, FOLDER, 1)
        self.write("theirs again")

    def take_the_name(self, taker: str) -> None:
        if taker == "ours":
            promotion.link(self.files, FOLDER, {2: OURS[2]}, 2)
        else:
            self.write("theirs at last")

    def check(self, files: SimFiles, step: object) -> None:
        """Whoever was killed, or lost the race: what clients wrote is there, and ours is shown."""
        there = {*kept(files), *shown(files).values()}
        assert there.issuperset(self.written), step
        promote(files)
        assert sorted(kept(files)) == sorted(self.written), step
        assert shown(files) == {1: "ours 1", 2: "ours 2"}, step


@pytest.mark.parametrize("taker", ["ours", "one more by path"])
def test_no_version_by_path_is_deleted_when_three_processes_take_its_name(taker: str) -> None:
    """One has looked; one sets aside, and a client writes again; one takes the name."""
    first, is_raced = 0, True
    while is_raced:
        first += 1
        then, is_taken = first, True
        while is_taken:
            then += 1
            raced = _Raced()
            second = _Other(first, raced.alone(raced.set_aside_and_write))
            third = _Other(then, raced.alone(partial(raced.take_the_name, taker)))
            raced.files.faults = [second, third]
            promotion.clear(raced.files, FOLDER, 1)
            raced.files.faults = ()
            is_raced, is_taken = second.ran, third.ran
            raced.check(raced.files, (first, then))
    assert first > 10


def test_no_version_by_path_is_deleted_when_who_moves_it_is_killed() -> None:
    """One has looked; one sets aside, and a client writes again; the first goes on, and dies."""
    first, is_raced = 0, True
    while is_raced:
        first += 1
        then, is_killed = first, True
        while is_killed:
            then += 1
            raced = _Raced()
            second = _Other(first, raced.alone(raced.set_aside_and_write))
            killer = _Killer(then, raced.files)
            raced.files.faults = [second, killer]
            with contextlib.suppress(SimulatedCrash):
                promotion.clear(raced.files, FOLDER, 1)
            is_raced, is_killed = second.ran, killer.ran
            files = raced.files.killed() if is_killed else raced.files
            raced.files.faults = ()
            vacuum_temporary_files(files)
            raced.check(files, (first, then))
    assert first > 10


class _Killer(_Other):
    """Kills the machine at a step."""

    def __init__(self, at: int, files: SimFiles) -> None:
        super().__init__(at, files.crash)


def vacuum_temporary_files(files: SimFiles) -> None:
    """Delete what a vacuum deletes after its grace period."""
    for directory in (PUBLIC, PRIVATE / promotion.EXTERNAL_DIRECTORY):
        for name in files.list(directory) if files.is_dir(directory) else ():
            if is_temporary(name):
                files.unlink(directory / name)
