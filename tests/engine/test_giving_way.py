"""A thread that only reads gives way to commits, and costs nothing while there are none."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import siltstone as st
from siltstone.process import threads


@pytest.fixture
def db(tmp_path: Path) -> Iterator[st.Store]:
    with st.connect(tmp_path / "s", background=False, segment_bytes=1 << 20) as store:
        store.create_table("t", {"id": "int64"}, primary_key="id").upsert([{"id": 1}, {"id": 2}])
        yield store


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """One item for each time that a thread gave way."""
    found: list[int] = []
    monkeypatch.setattr(threads, "give_way", lambda: found.append(1))
    return found


def test_readers_beside_a_commit_give_way_with_each_64th_row(
    db: st.Store, given: list[int]
) -> None:
    entered, over = threading.Event(), threading.Event()

    def step() -> None:
        entered.set()
        assert over.wait(60)

    with ThreadPoolExecutor(1) as pool, db.snapshot() as snapshot:
        held = pool.submit(db._core.writer().run, step)
        assert entered.wait(60)
        for table in (db["t"], snapshot["t"]):
            given.clear()
            for _ in range(640):
                assert table.get(1) == {"id": 1}
            assert len(given) == 10, table
        over.set()
        held.result()


def test_readers_alone_never_do(db: st.Store, given: list[int]) -> None:
    with db.snapshot() as snapshot:
        for _ in range(640):
            assert db["t"].get(2) == snapshot["t"].get(2) == {"id": 2}
    assert given == []
