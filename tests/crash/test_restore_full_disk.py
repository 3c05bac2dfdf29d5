"""A restore onto a disk that is full, or fills half-way, is refused, and goes on with more room.

What it leaves is no store: an open of it is refused. It is the same for backups and for mirrors,
and the mirror's bucket is as before.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from siltstone.errors import RequestError, UnavailableError
from siltstone.storage.manifest.manifest_store import RESTORING
from tests.crash.moments import chance, some
from tests.crash.store_life import Answer, Life, answer, rows_of
from tests.crash.store_scenarios import CHECKPOINT
from tests.crash.test_backup_crash import AFTER, BEFORE, back_up, open_again, restore
from tests.crash.test_mirror_note_crash import AGAIN, OPTIONS, mirrored, restored
from tests.support.simulated_files import Kind, SimFiles, When
from tests.support.simulated_objects import SimBucket

TAKES_ROOM = {"pwrite", "mkdir", "link"}
MOST = 12


@dataclass
class FullFrom:
    """A disk that is full from its step number `first` of those in `whats` on."""

    files: SimFiles
    first: int
    whats: set[str]
    kind = Kind.ENOSPC
    when = When.BEFORE
    count: int = 0

    def hits(self, operation: int) -> bool:
        del operation
        if self.files.trace[-1].what not in self.whats:
            return False
        self.count += 1
        return self.count > self.first


Restore = Callable[[SimFiles], None]


@dataclass
class Copied:
    """A machine with what is restored from, how, and the rows that come of it."""

    files: SimFiles
    restore: Restore
    seq: int
    rows: Answer

    def steps(self, whats: set[str]) -> int:
        """Return how many of its steps take room."""
        files = self.files.killed()
        full = FullFrom(files, 1 << 40, whats)
        files.faults = [full]  # type: ignore[list-item]
        self.restore(files)
        return full.count


@pytest.fixture(params=["backup", "mirror"])
def copied(request: pytest.FixtureRequest) -> Copied:
    life = Life(SimFiles(), OPTIONS)
    for each in (*BEFORE, *AFTER, CHECKPOINT):
        life.do(each)
    seq, rows, bucket = life.seq, rows_of(answer(life.store)), SimBucket()
    if request.param == "backup":
        back_up(life.files)
        how: Restore = lambda files: restore(files, seq)  # noqa: E731
    else:
        mirrored(life.files, bucket)
        how = lambda files: restored(files, bucket)  # noqa: E731
    life.abandon()
    return Copied(life.files.killed(), how, seq, rows)


def require_no_store(files: SimFiles, label: str) -> None:
    names = files.list(AGAIN) if files.is_dir(AGAIN) else []
    if RESTORING in names:
        with pytest.raises(RequestError, match="restor"):
            open_again(files.killed())
    else:
        assert not [each for each in names if not each.startswith(".")], label


@pytest.mark.parametrize("whats", [TAKES_ROOM, {"sync", "sync_dir"}], ids=["writes", "syncs"])
def test_a_restore_is_refused_while_the_disk_is_full_and_goes_on_later(
    copied: Copied, whats: set[str]
) -> None:
    steps = copied.steps(whats)
    assert steps > 20
    made, tried = 0, some(range(steps), chance(len(whats)), MOST)
    for first in tried:
        files, label = copied.files.killed(), f"full from {first} of {steps}"
        files.faults = [FullFrom(files, first, whats)]  # type: ignore[list-item]
        for _ in range(2):  # it is as full when it is tried again
            with pytest.raises(UnavailableError, match=str(AGAIN)):
                copied.restore(files)
        files.faults = ()
        names = files.list(AGAIN / "manifest") if files.is_dir(AGAIN / "manifest") else []
        if not names:  # else all of it is there, and its sign could not go
            require_no_store(files, label)
        made += bool(names)
        if not names or any(RESTORING in each for each in files.list(AGAIN)):
            copied.restore(files)
        db = open_again(files)
        assert (db.seq, rows_of(answer(db))) == (copied.seq, copied.rows), label
        assert db.verify(deep=True).findings == (), label
        assert not [each for each in files.list(AGAIN) if RESTORING in each], label
    assert made < len(tried) / 2
