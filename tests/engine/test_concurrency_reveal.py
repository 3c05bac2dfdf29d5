"""Whenever somebody looks, a commit is there with all of its tables or not at all, and durable."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Self

import pytest

from siltstone.api.store import Store
from tests.engine.seams import fake_env, open_store

SCHEMA = {"id": "int64", "v": "int64"}
ROWS = 3


class Onlooker:
    """Calls `look` before each line that this thread runs in the files of a commit's way."""

    WHERE = (
        "engine/commit/committer.py",
        "engine/levels/memtable.py",
        "engine/read/view.py",
        "storage/wal/wal.py",
    )

    def __init__(self, look: Callable[[], None]) -> None:
        self._look = look
        self.looks = 0

    def __enter__(self) -> Self:
        sys.settrace(self._call)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(None)

    def _call(self, frame, _event, _arg):
        return self._line if frame.f_code.co_filename.endswith(self.WHERE) else None

    def _line(self, _frame, event, _arg):
        if event == "line":
            self.looks += 1
            self._look()
        return self._line


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
        tx["a"].upsert(rows(v))
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

        def look() -> None:
            with db.snapshot() as snapshot:
                a, b = ([row["v"] for row in snapshot[n].to_arrow().to_pylist()] for n in "ab")
                if not a == b == [snapshot.seq - before] * ROWS:
                    wrong.append(f"seq {snapshot.seq} shows {a} and {b}")
                if snapshot.seq > db._parts.owner.wal.durable_seq:
                    wrong.append(f"seq {snapshot.seq} is shown before it is durable")
                seen.add(snapshot.seq)

        for v in range(1, 3):
            with Onlooker(look) as onlooker:
                commit(db, v)
            assert onlooker.looks > 50
            assert wrong == []
        assert seen == {before, before + 1, before + 2}
