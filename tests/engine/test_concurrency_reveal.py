"""Whenever somebody looks, a commit is there with all of its tables or not at all, and durable."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import FrameType

import pytest

from siltstone.api.store import Store
from tests.engine.seams import fake_env, open_store
from tests.support.traced import EveryLine

SCHEMA = {"id": "int64", "v": "int64"}
ROWS = 3


WHERE = (
    "engine/commit/committer.py",
    "engine/levels/memtable.py",
    "engine/read/view.py",
    "storage/wal/wal.py",
)


def rows(v: int) -> list[dict[str, int]]:
    return [{"id": n, "v": v} for n in range(ROWS)]


def by_rows(db: Store, v: int) -> None:
    with db.transaction() as tx:
        tx["a"].upsert(rows(v))
        tx["b"].upsert(rows(v))


def by_batches(db: Store, v: int) -> None:
    with db.transaction() as tx:
        for name in ("a", "b"):
            tx[name].upsert(tx[name].to_arrow().set_column(1, "v", [[v] * ROWS]))


def by_a_token(db: Store, v: int) -> None:
    with db.transaction(token=("app", v)) as tx:
        tx["a"].upsert(rows(v))
        tx["b"].upsert(rows(v))


def by_a_new_column(db: Store, v: int) -> None:
    with db.transaction() as tx:
        tx["a"].add_column(f"c{v}", "int64")
        tx["a"].upsert(rows(v), missing="null")
        tx["b"].upsert(rows(v))


@pytest.mark.parametrize("commit", [by_rows, by_batches, by_a_token, by_a_new_column])
def test_at_every_line_of_a_commit_a_reader_sees_all_of_it_or_nothing_and_it_is_durable(
    tmp_path: Path, commit: Callable[[Store, int], None]
) -> None:
    with open_store(tmp_path / "db", fake_env()) as db:
        for name in ("a", "b"):
            db.create_table(name, SCHEMA, primary_key="id").upsert(rows(0))
        before = db.seq
        seen: set[int] = set()
        wrong: list[str] = []  # raised in the middle of a commit it would do harm of its own

        looks = 0

        def look(_: FrameType) -> None:
            nonlocal looks
            looks += 1
            with db.snapshot() as snapshot:
                a, b = ([row["v"] for row in snapshot[n].to_arrow().to_pylist()] for n in "ab")
                if not a == b == [snapshot.seq - before] * ROWS:
                    wrong.append(f"seq {snapshot.seq} shows {a} and {b}")
                if snapshot.seq > db._parts.owner.wal.durable_seq:
                    wrong.append(f"seq {snapshot.seq} is shown before it is durable")
                seen.add(snapshot.seq)

        for v in range(1, 3):
            looks = 0
            with EveryLine(look, *WHERE):
                commit(db, v)
            assert looks > 50
            assert wrong == []
        assert seen == {before, before + 1, before + 2}
