"""A clock that is set back while work goes on makes its files older than the work, not garbage."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from siltstone.beside import follow_vacuum
from siltstone.formats.manifest import Pin
from siltstone.storage.fake_lance import FakeLance
from siltstone.store import Store
from tests.maintenance.stores import Clock, env_of, open_store, rows


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def db(tmp_path: Path, clock: Clock) -> Iterator[Store]:
    with open_store(tmp_path / "s", clock, retention_s=0) as store:
        store.create_table("t", {"id": "int64"}, primary_key="id").upsert({"id": 1})
        store.checkpoint()
        yield store


def test_a_merge_whose_files_a_vacuum_took_is_done_again(
    db: Store, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    later = Clock()
    rewrite, seen = FakeLance.rewrite, list[Pin]()

    def set_back(tables: FakeLance, *arguments: Any, **options: Any) -> Pin:
        pin = rewrite(tables, *arguments, **options)
        if not seen:
            seen.append(pin)
            clock.move(seconds=-3600)
            date_all(db.path, clock)
            later.move(seconds=1200)
            follow_vacuum(db.path, db.options, env_of(later), dry_run=False, grace_s=600)
        return pin

    monkeypatch.setattr(FakeLance, "rewrite", set_back)
    clock.move(seconds=3600)
    db.merge()
    assert seen
    assert rows(db["t"]) == [(1,)]


def date_all(root: Path, clock: Clock) -> None:
    """Date the files that are there by the clock."""
    then = clock() / 1e6
    for path in root.rglob("*"):
        if path.is_file():
            os.utime(path, (then, then))
