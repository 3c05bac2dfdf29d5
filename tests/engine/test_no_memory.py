"""Without memory at any line of admission a commit is refused, by one definite answer.

Nothing of it is left: no row, no token, no key that others conflict with, and no lost one.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import siltstone as st
from siltstone.engine.commit import effects
from siltstone.engine.commit.recent_writes import Keys, LostError, RecentWrites
from siltstone.engine.commit.write_set import WriteSet
from siltstone.formats.log.group import Entry
from tests.engine.seams import fake_env, open_store
from tests.engine.test_concurrency_groups import Group, group, with_token  # noqa: F401
from tests.support.traced import NthLine

SCHEMA = {"id": "int64", "v": "int64"}
FILES = ("commit/effects.py",)
ROWS = [{"id": 1, "v": 7}, {"id": 2, "v": 7}]


def without_memory() -> None:
    raise MemoryError


def by_token(db: st.Store) -> Callable[[], object]:
    tx = db.transaction(token=("a", 1))
    tx["t"].upsert(ROWS)
    return tx.commit


def by_table(db: st.Store) -> Callable[[], object]:
    table = db["t"]
    return lambda: table.upsert(pa.Table.from_pylist(ROWS))  # a batch has no plan


@pytest.mark.parametrize("make", [by_token, by_table])
def test_no_memory_at_any_line_of_what_a_frame_has_refuses_the_commit_and_leaves_nothing(
    tmp_path: Path, make: Callable[[st.Store], Callable[[], object]]
) -> None:
    for nth in range(1, 500):
        if not refused_at(nth, tmp_path / str(nth), make):
            break
    assert 3 < nth < 499


def refused_at(nth: int, root: Path, make: Callable[[st.Store], Callable[[], object]]) -> bool:
    """Commit without memory at the nth line; False: there are no so many lines."""
    with open_store(root, fake_env()) as db:
        table = db.create_table("t", SCHEMA, primary_key="id")
        table.upsert([{"id": n, "v": 0} for n in range(4)])
        loses, wins = db.transaction(), db.transaction()
        loses["t"].upsert({"id": 1, "v": 100})
        wins["t"].upsert({"id": 2, "v": 200})
        table.upsert({"id": 1, "v": 1})
        commit = make(db)
        nbytes = db._core.recent.nbytes
        with NthLine(nth, without_memory, *FILES) as line:
            try:
                commit()
            except st.InDoubtError:
                return True  # it was in the log already
            except MemoryError:
                pass
        if not line.has_acted:
            return False
        assert db._core.recent.nbytes == nbytes, line.at
        assert [row["v"] for row in table.to_arrow().sort_by("id").to_pylist()] == [0, 1, 0, 0]
        with pytest.raises(st.ConflictError):
            loses.commit()
        wins.commit()
        make(db)()  # whatever is left of the token would take this for a repetition
        assert [table.get(key)["v"] for key in (1, 2)] == [7, 7], line.at
        return True


def test_who_waits_behind_a_member_without_memory_is_refused_with_it_and_nothing_is_left(
    group: Group,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The second would take the token for applied, and its caller would get a receipt."""

    def refused(work: Callable[[], object]) -> Callable[[], object]:
        def run() -> object:
            with contextlib.suppress(MemoryError):
                return work()
            return "refused"

        return run

    real = effects.entries_of

    def entries_of(write_set: WriteSet, blobs: list[pa.Buffer]) -> list[Entry]:
        if write_set.token is not None:
            without_memory()
        return real(write_set, blobs)

    with monkeypatch.context() as patch:
        patch.setattr(effects, "entries_of", entries_of)
        pair = [(name, refused(with_token(group, 5, n))) for n, name in enumerate("ab")]
        assert group.commit(*pair) == {"a": "refused", "b": "refused"}
    assert group.table.get(5) is None
    with_token(group, 5, 2)()
    assert group.table.get(5) is not None


class Failing(tuple[int, ...]):
    """Keys of which the last one finds no memory."""

    __slots__ = ()

    def __iter__(self) -> Iterator[int]:
        yield from self[:-1]
        raise MemoryError


def test_keys_that_were_half_remembered_are_taken_back_and_older_ones_are_not_lost() -> None:
    recent = RecentWrites()
    recent.remember(1, 5, Keys((1, 2)))
    nbytes = recent.nbytes
    with pytest.raises(MemoryError):
        recent.take(9, ((1, Keys(Failing((1, 2, 3))), None),), None)
    recent.take_back(9)
    assert recent.nbytes == nbytes
    for key in (1, 2):
        with pytest.raises(LostError):
            recent.take(10, ((1, Keys((key,)), None),), 4)
    recent.take(10, ((1, Keys((1, 2, 3)), None),), 5)


def test_what_is_taken_back_leaves_the_commit_before_it_that_wrote_all_rows() -> None:
    recent = RecentWrites()
    for seq in (5, 9):
        recent.remember(1, seq, Keys(is_all=True))
    recent.take_back(9)
    with pytest.raises(LostError):
        recent.take(10, ((1, Keys((7,)), None),), 3)
    recent.take(10, ((1, Keys((7,)), None),), 5)
