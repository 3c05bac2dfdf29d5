"""A load's file gets its name in base even where the file system does not link it: as a copy."""

from __future__ import annotations

import errno
import os
from dataclasses import replace
from pathlib import Path
from typing import Self

import pyarrow as pa
import pytest

import siltstone as st
from siltstone.local.store import LocalStore
from siltstone.options import Options
from tests.maintenance.stores import Clock, UnsyncedFiles, env_of


class Unlinkable(UnsyncedFiles):
    """Files that get no second name outside the folder of their load; with `error` none at all."""

    error: int | None = None

    def below(self, root: Path) -> Self:
        """Stay this one: a test says of it, not of a copy, what fails."""
        del root
        return self

    def link(self, old: Path, new: Path) -> None:
        if self.error is not None and "/.attached/" in str(old):
            raise OSError(self.error, os.strerror(self.error), str(old))
        super().link(old, new)


@pytest.fixture
def files() -> Unlinkable:
    return Unlinkable()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture(params=[False, True], ids=["fake", "lance"])
def db(tmp_path: Path, clock: Clock, files: Unlinkable, request: pytest.FixtureRequest):
    env = replace(env_of(clock, real_lance=request.param), load_rows_min=2, files=files)
    options = Options(background=False, segment_bytes=65_536, retention_s=0)
    with LocalStore.open(tmp_path / "s", options, env=env) as store:
        store.create_table("t", {"id": "int64", "v": "string"}, primary_key="id")
        store["t"].upsert([{"id": n, "v": "old"} for n in range(20)])
        stage = store.stage("t")
        loaded = pa.table({"id": range(10, 60), "v": ["load"] * 50})
        piece = stage.run_through(store._core.tables.writer, loaded)
        with store.transaction() as tx:
            tx.attach(stage, [piece])
        store["t"].delete([30])
        store.checkpoint()
        yield store


def rows(db: st.Store) -> dict[int, str]:
    return {row["id"]: row["v"] for row in db["t"].to_arrow().to_pylist()}


EXPECTED = {n: "load" if n >= 10 else "old" for n in range(60) if n != 30}


@pytest.mark.parametrize("error", [errno.EPERM, errno.EXDEV, errno.EMLINK, errno.EOPNOTSUPP])
def test_a_file_that_cannot_be_linked_is_copied(
    db: LocalStore, files: Unlinkable, clock: Clock, error: int
) -> None:
    (load,) = db.path.rglob(".attached/*/data/*")
    files.error = error
    db.merge()
    assert load.stat().st_nlink == 1
    assert rows(db) == EXPECTED
    clock.move(seconds=1)
    db["t"].upsert({"id": 0, "v": "new"})
    db.checkpoint()
    db.merge()
    for _ in range(2):
        db.vacuum(dry_run=False, grace_s=0)
    assert not load.exists()
    assert rows(db) == EXPECTED | {0: "new"}
    assert db.verify(deep=True).is_sound


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EDQUOT, errno.EIO])
def test_a_disk_that_gives_no_name_costs_the_merge_alone(
    db: LocalStore, files: Unlinkable, error: int
) -> None:
    files.error = error
    with pytest.raises(st.UnavailableError):
        db.merge()
    assert rows(db) == EXPECTED
    files.error = None
    db.merge()
    db.vacuum(dry_run=False, grace_s=0)
    assert rows(db) == EXPECTED
    assert db.verify(deep=True).is_sound
