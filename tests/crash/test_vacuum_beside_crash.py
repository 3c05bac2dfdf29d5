"""A vacuum by a process that does not own the store: whatever happens between two of its steps.

It dies, or the machine does; or the owner publishes, ends, or is followed by another. The owner has
a snapshot and a transaction with staged files since before. Whatever is cut off where: all commits
are there, the snapshot and the tag read what they read, all is sound, and a next vacuum takes the
rest.
"""

from __future__ import annotations

import contextlib
import itertools
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from siltstone.admin import follow_vacuum
from siltstone.api.snapshot import Snapshot
from siltstone.api.store import Store
from siltstone.errors import BusyError, ClosedError
from siltstone.maintenance.gc.vacuum import Vacuumed
from siltstone.storage.files.files import Files
from tests.crash.moments import IS_LONG, chance, some
from tests.crash.store_life import (
    ROOT,
    Answer,
    Life,
    answer,
    env_of,
    open_store,
    rows_of,
    smaller,
)
from tests.crash.store_scenarios import (
    CHECKPOINT,
    MERGE,
    append,
    bulk,
    create,
    create_plain,
    delete,
    step,
    upsert,
)
from tests.nightly import IS_NIGHTLY
from tests.support.simulated_files import SimFiles

pytestmark = pytest.mark.timeout(1_800 if IS_LONG else 600 if IS_NIGHTLY else 120)
OPTIONS = smaller(retention_s=0)
STEPS = [
    *[create(), create_plain(), upsert(1, 2, 3), append(1), CHECKPOINT, MERGE],
    *[delete(1), append(2), step("tag", lambda db: db.tag("audit"))],
    *[bulk(3, 4), CHECKPOINT, upsert(5, v="w"), append(3), MERGE],
    *[delete(2), CHECKPOINT, MERGE, bulk(8, 9), append(4), upsert(6)],
]


class Clock:
    """A second later at each look: no two files, records or jobs are of the same moment."""

    def __init__(self) -> None:
        self._seconds = itertools.count(1_000)

    def s(self) -> float:
        return float(next(self._seconds))

    def us(self) -> int:
        return int(self.s() * 1e6)


CLOCK = Clock()


def open_as_owner(files: SimFiles) -> Store:
    return open_store(files, options=OPTIONS, now_us=CLOCK.us)


def vacuum_store(files: Files) -> Vacuumed:
    """Vacuum as another process does that finds the store owned."""
    env = env_of(files, CLOCK.us)
    return follow_vacuum(ROOT, OPTIONS, env, dry_run=False, grace_s=0)


@dataclass
class Owned:
    """A machine with a store whose owner is at work."""

    files: SimFiles
    db: Store = field(init=False)

    def __post_init__(self) -> None:
        self.db = open_as_owner(self.files)
        self.past: Snapshot = self.db.snapshot()
        self.remembered = answer(self.past)
        self.tx = self.db.transaction()
        self.tx["p"].append([{"ts": 50, "w": "staged"}])
        self.tx["t"].insert({"id": 50, "v": "staged"})

    def go_on(self) -> None:
        """Commit and publish; the snapshot goes on, too."""
        self.tx.commit()
        for each in (upsert(60), delete(3), append(9), CHECKPOINT, MERGE, bulk(61)):
            each.act(Life(self.files, db=self.db))

    def answers(self) -> Found:
        return answers_of(self.db)


Found = tuple[Answer, Answer]


def answers_of(db: Store) -> Found:
    """Return what a reader sees now, and at the tag."""
    with db.snapshot(tag="audit") as tagged:
        return rows_of(answer(db)), answer(tagged)


@dataclass(frozen=True)
class Place:
    """The machine before, and what a reader sees before and after the owner went on."""

    machine: SimFiles
    before: Found
    after: Found

    def owned(self) -> Owned:
        return Owned(self.machine.killed())


@pytest.fixture(scope="module")
def place() -> Place:
    life = Life(SimFiles(now=CLOCK.s), OPTIONS)
    life.db = open_as_owner(life.files)
    for each in STEPS:
        life.do(each)
    machine = life.files.killed()
    calm = Owned(machine.killed())
    before = calm.answers()
    calm.go_on()
    return Place(machine, before, calm.answers())


class Visited:
    """The files as a process has them to which something happens before its call number `at`."""

    def __init__(self, files: SimFiles, at: int, happens: Callable[[], None]) -> None:
        self._files, self._at, self._happens = files, at, happens
        self.calls = 0

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._files, name)

        def call(*args: object, **options: object) -> object:
            self.calls += 1
            if self.calls == self._at:
                self._happens()
            return method(*args, **options)

        return call


class KilledError(BaseException):
    """The process is no more; the machine is."""


class Death:
    """A fault that kills the process which calls, from the machine's step number `at` on."""

    def __init__(self, at: int) -> None:
        self._at = at

    def hits(self, operation: int) -> bool:
        if operation >= self._at:
            raise KilledError
        return False


def chosen(count: int, seed: str, few: int) -> list[int]:
    return some(range(1, count + 1), chance(seed), few)


def require_whole(files: SimFiles, expected: Found, label: str) -> None:
    """Whoever opens it finds all, and takes what is garbage."""
    db = open_as_owner(files)
    assert answers_of(db) == expected, label
    report = db.verify(deep=True)
    assert report.is_sound, f"{label}: {report}"
    db.vacuum(dry_run=False, grace_s=0)
    assert db.vacuum(dry_run=False, grace_s=0).files == (), label
    assert answers_of(db) == expected, label


def require_all(owned: Owned, place: Place, label: str) -> None:
    """The owner went on: it and whoever comes after it has all."""
    assert owned.answers() == place.after, label
    assert answer(owned.past) == owned.remembered, label
    vacuum_store(owned.files)
    assert answer(owned.past) == owned.remembered, label
    (image,) = owned.files.images(random.Random(label), 1)
    for files in (image.files, owned.files.killed()):
        require_whole(files, place.after, label)


def test_an_owner_goes_on_whose_vacuum_by_another_process_died_at_any_step(place: Place) -> None:
    owned = place.owned()
    first = owned.files.operations
    assert vacuum_store(owned.files).files
    count = owned.files.operations - first
    for number in chosen(count, "died", 4):
        label = f"step {number} of {count}"
        owned = place.owned()
        owned.files.faults = [Death(owned.files.operations + number)]
        with contextlib.suppress(KilledError):  # a run may be a step shorter
            vacuum_store(owned.files)
        owned.files.faults = ()
        assert owned.answers() == place.before, label
        owned.go_on()
        require_all(owned, place, label)


def test_a_machine_that_dies_in_a_vacuum_beside_the_owner_keeps_all_commits(place: Place) -> None:
    owned = place.owned()
    first = owned.files.operations
    vacuum_store(owned.files)
    count = owned.files.operations - first
    rng = random.Random(4)
    for number in chosen(count, "machine", 3):
        owned = place.owned()
        owned.files.faults = [Death(owned.files.operations + number)]
        with contextlib.suppress(KilledError):  # a run may be a step shorter
            vacuum_store(owned.files)
        owned.files.faults = ()
        for image in itertools.islice(owned.files.images(rng), 3):
            require_whole(image.files, place.before, f"step {number}: {image.label}")


def vacuum_visited(files: SimFiles, at: int, happens: Callable[[], None]) -> int:
    """Vacuum, and let something happen before call number `at`, or else at the end."""
    visited = Visited(files, at, happens)
    try:
        vacuum_store(visited)  # type: ignore[arg-type]
    finally:
        if visited.calls < at:  # names are made anew, so a run may be a call shorter
            happens()
    return visited.calls


def calls_of(place: Place) -> int:
    return vacuum_visited(place.owned().files, 0, lambda: None)


def test_an_owner_that_publishes_between_any_two_steps_of_a_vacuum_loses_nothing(
    place: Place,
) -> None:
    count = calls_of(place)
    for number in chosen(count, "publishes", 4):
        owned = place.owned()
        vacuum_visited(owned.files, number, owned.go_on)
        require_all(owned, place, f"call {number} of {count}")


@pytest.mark.parametrize("is_followed", [False, True])
def test_an_owner_that_ends_between_any_two_steps_of_a_vacuum_has_left_all(
    place: Place, is_followed: bool
) -> None:
    """The vacuum may find out and stop; what it deleted was garbage."""
    count = calls_of(place)
    for number in chosen(count, f"ends {is_followed}", 3):
        owned = place.owned()

        def end(owned: Owned = owned) -> None:
            owned.go_on()
            owned.db.close()
            if is_followed:
                owned.db = open_as_owner(owned.files)
                append(99).act(Life(owned.files, db=owned.db))

        with contextlib.suppress(BusyError):
            vacuum_visited(owned.files, number, end)
        with pytest.raises(ClosedError):
            answer(owned.past)
        expected = place.after
        if is_followed:
            expected = owned.answers()
            assert "99" in str(expected[0]["p"])
        require_whole(owned.files.killed(), expected, f"call {number} of {count}")
