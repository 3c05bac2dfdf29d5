"""Checker: a process that opens disks, one after the other, and holds them to what was told.

    python -m proof.power.checker

A line of JSON on stdin is a task; a line on stdout says what is wrong with it, null if nothing.
What guarantees 1 to 4, 8, 11 and 13 say of a recovered store: it opens; it shows everything that
was acknowledged and nothing that was not begun, whole, at each seq as it was, to a process that
only reads, which comes first, and to its next owner; its tags hold; it goes on, at a higher seq,
through commits, maintenance and one more start; no byte is damaged.
"""

from __future__ import annotations

import json
import sys
import traceback
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import siltstone as st
from proof.power.life import Rows, changes_of, rows_of, write_everywhere
from proof.power.scenarios import ALL_AGES_S, SCENARIOS, Scenario
from siltstone.api.store import Store
from siltstone.errors import SiltstoneError, SnapshotExpiredError

_MADE = "after"
_MAINTAINED, _TIDIED = 3, 6
"""One of so many disks is checkpointed and merged, optimized and vacuumed, too."""


class WrongError(Exception):
    """A store is not what was promised."""


def require(*, claim: bool, otherwise: str) -> None:
    """Hold the store to a claim.

    Raises:
        WrongError: It does not hold.
    """
    if not claim:
        raise WrongError(otherwise)


@dataclass(frozen=True, slots=True)
class Task:
    """A disk: where the store is, and what had been told when the power went.

    `answers` is a file: what a reader sees at each seq of the life that was recorded.
    """

    scenario: str
    answers: str
    root: str
    number: int
    acknowledged: int
    begun: int


class Checker:
    """Checks disks of one scenario; `answers` says what a reader sees at each seq."""

    def __init__(self, scenario: Scenario, answers: Mapping[str, Any]) -> None:
        self._scenario, self._answers = scenario, answers

    def check(self, task: Task) -> None:
        """Open the store, compare, go on.

        Raises:
            WrongError: It is not what was promised.
        """
        seen = self._followed(task)
        with self._open(task) as db:
            seq = db.seq
            require(
                claim=max(task.acknowledged, seen) <= seq <= task.begun,
                otherwise=f"opened at seq {seq}; {task.acknowledged} was acknowledged, {seen} seen"
                f" by a reader, {task.begun} begun",
            )
            self._compare(db, seq)
            self._look_back(db, seq, task)
            rows = _go_on(db, task)
            if task.number % _MAINTAINED == 0:
                _maintain(db, rows)
            if task.number % _TIDIED == 0:
                _tidy(db, rows)
            self._check_tags(db)
            after = db.seq
        with self._open(task) as db:
            require(claim=db.seq == after, otherwise=f"closed at seq {after}, opened at {db.seq}")
            require(claim=rows_of(db) == rows, otherwise="opened again, it shows other rows")

    def _open(self, task: Task, **options: bool) -> Store:
        return st.connect(task.root, **self._scenario.options, **options)

    def _followed(self, task: Task) -> int:
        """Read the disk as a process that owns nothing; return the seq it saw."""
        try:
            db = self._open(task, read_only=True)
        except SiltstoneError:
            if task.acknowledged:
                raise
            return 0  # there is no store yet
        with db:
            require(
                claim=task.acknowledged <= db.seq <= task.begun,
                otherwise=f"a reader sees seq {db.seq}; {task.acknowledged} was acknowledged,"
                f" {task.begun} begun",
            )
            require(
                claim=rows_of(db) == self._rows(db.seq),
                otherwise=f"a reader of seq {db.seq} sees other rows than there were",
            )
            return db.seq

    def _rows(self, seq: int) -> object:
        return self._answers[str(seq)]["rows"] if seq else {}

    def _compare(self, db: Store, seq: int) -> None:
        found = rows_of(db)
        require(
            claim=found == self._rows(seq),
            otherwise=f"at seq {seq} it shows {found}, not {self._rows(seq)}",
        )
        if seq and self._scenario.keeps_past:
            changes = changes_of(db, seq)
            expected = self._answers[str(seq)]["changes"]
            require(
                claim=changes == expected,
                otherwise=f"its changes up to {seq} are {changes}, not {expected}",
            )
        tags = self._answers[str(seq)].get("tags") if seq else None
        found_tags = [list(item) for item in sorted(db.tags().items())]
        require(
            claim=tags is None or tags == found_tags,
            otherwise=f"at seq {seq} it has tags {found_tags}, not {tags}",
        )

    def _look_back(self, db: Store, seq: int, task: Task) -> None:
        """See one older seq, another of each disk."""
        if not seq:
            return
        past = 1 + task.number % seq
        try:
            with db.snapshot(seq=past) as then:
                require(
                    claim=rows_of(then) == self._rows(past),
                    otherwise=f"opened at seq {seq}, its seq {past} is not what it was",
                )
        except SnapshotExpiredError:
            require(
                claim=not self._scenario.keeps_past,
                otherwise=f"opened at seq {seq}, it lost seq {past}",
            )

    def _check_tags(self, db: Store) -> None:
        for name, seq in db.tags().items():
            with db.snapshot(tag=name) as then:
                require(
                    claim=rows_of(then) == self._rows(seq),
                    otherwise=f"tag {name!r} (seq {seq}) is not what it was",
                )


def _go_on(db: Store, task: Task) -> Rows:
    """Write to every table; return the rows that the store has then."""
    seq = db.seq
    expected = write_everywhere(db, _MADE)
    require(
        claim=db.durable_seq == seq + 2 > task.acknowledged,
        otherwise=f"two commits behind seq {seq} lead to {db.durable_seq}",
    )
    _show(db, expected, "the commits")
    return expected


def _maintain(db: Store, rows: Rows) -> None:
    """Checkpoint and merge; no answer changes, and nothing is damaged."""
    for step in (db.checkpoint, db.merge):
        step()
        _show(db, rows, f"a {step.__name__}")
    _verify(db)


def _show(db: Store, expected: Rows, after: str) -> None:
    found = rows_of(db)
    for name in found.keys() | expected.keys():
        require(
            claim=found.get(name) == expected.get(name),
            otherwise=f"after {after}, {name} is {found.get(name)}, not {expected.get(name)}",
        )


def _tidy(db: Store, rows: Rows) -> None:
    """Optimize and vacuum; no answer changes, and nothing is damaged."""
    db.optimize(target_rows=64)
    db.vacuum(dry_run=False, grace_s=ALL_AGES_S)
    _show(db, rows, "an optimize and a vacuum")
    _verify(db)


def _verify(db: Store) -> None:
    found = db.verify(deep=True)
    require(claim=found.is_sound, otherwise=f"it is damaged: {found}")


def main() -> None:
    """Check what comes on stdin until it ends."""
    warnings.simplefilter("ignore")
    known, checker = "", None
    for line in sys.stdin:
        task = Task(**json.loads(line))
        if checker is None or known != task.answers:
            known, answers = task.answers, json.loads(Path(task.answers).read_text())
            checker = Checker(SCENARIOS[task.scenario], answers)
        print(json.dumps(_told(checker, task)), flush=True)


def _told(checker: Checker, task: Task) -> str | None:
    try:
        checker.check(task)
    except Exception as error:  # noqa: BLE001 - whatever a store raises here is what is wrong
        last = traceback.extract_tb(error.__traceback__)[-1]
        return f"{type(error).__name__}: {error} ({Path(last.filename).name}:{last.lineno})"
    return None


if __name__ == "__main__":
    main()
