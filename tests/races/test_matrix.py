"""Two operations in two processes: whoever overtakes, no answer changes and nothing is lost.

The first stands at a stage of its work while the second does all of its own; then the first goes
on. Flushes, bulk commits and definitions are the owner's; the others need the path alone.

`SILTSTONE_RACES=all` runs every pair at every stage; else each pair runs at one of them, so that
each operation is at each stage once as the first and meets each stage once as the second.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Self

import pytest

import siltstone as st
from siltstone.failpoints import Failpoint
from tests.races import shop
from tests.races.ledger import IS_ALL, STAGES, held_at, stage_of
from tests.races.processes import WAIT_S, CallFailedError, Meeting, Process, workers

OPERATIONS = ("flush", "merge", "optimize", "vacuum", "attach", "ddl", "index")
OWNERS = {"flush", "attach", "ddl"}
FRAMES = {"attach": shop.after_attach, "ddl": shop.after_ddl}
PLANS_MAX = {
    ("flush", "merge"): 1,
    ("flush", "optimize"): 1,
    ("merge", "flush"): 1,
    ("merge", "merge"): 2,
    ("merge", "optimize"): 2,
    ("merge", "vacuum"): 1,
    ("merge", "attach"): 1,
    ("merge", "ddl"): 1,
    ("merge", "index"): 2,
    ("index", "flush"): 1,
    ("index", "attach"): 1,
    ("index", "ddl"): 1,
    ("optimize", "merge"): 2,
    ("optimize", "optimize"): 1,
    ("optimize", "vacuum"): 1,
    ("optimize", "flush"): 2,
    ("optimize", "attach"): 2,
    ("optimize", "ddl"): 2,
}
"""How often the first plans: once where it is put on the winner's record as it is. An optimize
looks again when it is done, and finds what a flush has added, or parts whose rows no merge hid."""
PLANS = {
    "flush": Failpoint.FLUSH_BEFORE_PLAN.label,
    "merge": Failpoint.MERGE_BEFORE_PLAN.label,
    "optimize": Failpoint.OPTIMIZE_AFTER_PLAN.label,
    "index": Failpoint.INDEX_AFTER_PLAN.label,
}


def cells() -> list[tuple[str, str, str]]:
    found = list(product(OPERATIONS, OPERATIONS, STAGES)) if IS_ALL else covering()
    for first, _, stage in found:
        held_at(stage_of(first, stage))
    return found


def covering() -> list[tuple[str, str, str]]:
    """Return the cells of CI: of any two of (first, second, stage) each combination is in one.

    And those in which a merge and another one change the same base at once.
    """
    return [*dict.fromkeys([*pairwise_cells(), *cells_of_one_base()])]


def cells_of_one_base() -> Iterator[tuple[str, str, str]]:
    for other, stage in product(("optimize", "index", "vacuum"), ("after plan", "before publish")):
        yield "merge", other, stage
        yield other, "merge", stage


def pairwise_cells() -> list[tuple[str, str, str]]:
    return [
        (first, second, stage)
        for (i, first), (j, second) in product(enumerate(OPERATIONS), enumerate(OPERATIONS))
        for k, stage in enumerate(STAGES)
        if (i + j) % len(STAGES) == k
    ]


def test_the_cells_of_ci_cover_all_pairs() -> None:
    whole = list(product(OPERATIONS, OPERATIONS, STAGES))
    for a, b in ((0, 1), (0, 2), (1, 2)):
        assert {(c[a], c[b]) for c in covering()} == {(c[a], c[b]) for c in whole}


def waits(first: str, second: str, stage: str) -> bool:
    """Say whether the second waits for the first, in their one owner, so that no race is left."""
    if {first, second} <= set(FRAMES):
        return stage.endswith("publish")  # one commit of the plain table at a time
    return first == second == "flush"  # one checkpoint at a time


@dataclass
class Place:
    owner: Process
    other: Process
    meeting: Meeting
    made: Path


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    made = tmp_path_factory.mktemp("races") / "shop"
    meeting = Meeting()
    with workers(2) as (owner, other):
        shop.make(made)
        yield Place(owner, other, meeting, made)
    meeting.close()


class Race:
    """One cell: a copy of the shop, opened by its owner and, to look only, by the other process."""

    def __init__(self, place: Place, root: Path) -> None:
        self.place, self.root = place, root
        shutil.copytree(place.made, root)
        self.outcomes: dict[int, object] = {}
        self.plans = 0

    def __enter__(self) -> Self:
        self.place.owner.call("open", root=str(self.root))
        self.place.other.call("open", root=str(self.root), read_only=True)
        self.before = self.look(self.place.owner)
        return self

    def __exit__(self, *_: object) -> None:
        self.place.other.call("close")
        self.place.owner.call("close")

    def look(self, process: Process) -> dict[str, shop.Answers]:
        return process.call("look")  # type: ignore[return-value]

    def run(self, first: str, second: str, stage: str) -> None:
        owner, other = self.place.owner, self.place.other
        leader = owner if first in OWNERS else other
        follower = other if leader is owner and second not in OWNERS else owner
        point = stage_of(first, stage)
        notes = {stage_of(first, s).label for s in STAGES} - {point.label}
        orders = ", ".join([f"{point.label}=pause", *(f"{label}=note" for label in sorted(notes))])
        leader.call("arm", orders=orders, socket=self.place.meeting.address)
        running = leader.start(first, root=str(self.root), stamp=1)
        held = self.place.meeting.expect(running)
        assert held.label == point.label
        overtaking = follower.start(second, root=str(self.root), stamp=2)
        if waits(first, second, stage):
            held.go()
        self.note(2, overtaking)
        if second in FRAMES and first != "flush":
            owner.call("flush", root=str(self.root), stamp=0)  # the chain hears of it
        held.go()
        self.note(1, running)
        counts = leader.call("crossings")
        assert isinstance(counts, dict)
        self.plans = counts.get(PLANS.get(first, ""), 0)

    def note(self, stamp: int, call: Future[object]) -> None:
        """Remember the seq of a commit, None of maintenance, or why it was refused."""
        try:
            self.outcomes[stamp] = call.result(WAIT_S)
        except CallFailedError as error:
            self.outcomes[stamp] = error

    def expected(self, names: dict[int, str]) -> shop.Answers:
        """Return what the commits that were acknowledged make of the answers, in their order."""
        answers = self.before["now"]
        seqs = {stamp: seq for stamp, seq in self.outcomes.items() if isinstance(seq, int)}
        for stamp in sorted(seqs, key=seqs.__getitem__):
            answers = FRAMES[names[stamp]](answers, stamp)
        return answers

    def check(self, expected: shop.Answers) -> None:
        for process in (self.place.owner, self.place.other):
            found = self.look(process)
            assert found["now"] == expected
            assert found["before"] == self.before["before"]
            assert found["tagged"] == self.before["tagged"]

    def settle(self) -> None:
        """Let all maintenance finish: what was late is done now."""
        for name in ("flush", "merge", "optimize", "vacuum"):
            self.place.owner.call(name, root=str(self.root), stamp=0)


@pytest.mark.parametrize(("first", "second", "stage"), cells())
def test_whoever_overtakes_no_answer_changes(
    place: Place, tmp_path: Path, first: str, second: str, stage: str
) -> None:
    root = tmp_path / "shop"
    with Race(place, root) as race:
        race.run(first, second, stage)
        expected = race.expected({1: first, 2: second})
        is_contest = {first, second} <= set(FRAMES)
        for stamp, name in ((1, first), (2, second)):
            check_outcome(name, race.outcomes[stamp], is_contest=is_contest)
        assert race.plans <= PLANS_MAX.get((first, second), 2)
        race.check(expected)
        race.settle()
        race.check(expected)
    with st.connect(root, read_only=True) as db:
        assert db.verify(deep=True).is_sound
        assert shop.answers(db) == expected


def check_outcome(name: str, outcome: object, *, is_contest: bool) -> None:
    """Maintenance never fails; a commit only for another commit."""
    if isinstance(outcome, CallFailedError):
        assert is_contest, (name, outcome)
        assert {"ConflictError", "SchemaMismatchError"} & set(outcome.kinds), outcome
