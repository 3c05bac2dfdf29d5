"""A commit that takes longer than a second is told of, alone or in a group."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from proof.exhaustion.faulty_files import Faults, FaultyFiles
from siltstone.engine.commit.committer import SLOW_S
from siltstone.local.group_upserts import GroupUpserts
from siltstone.local.store import LocalStore
from siltstone.open.environment import Env
from siltstone.options import resolve

LINE = r"slow commit: {rows} rows took (\d+\.\d\d) s, with the wait for room and the sync"


@pytest.fixture
def faults() -> Faults:
    return Faults()


@pytest.fixture
def db(faults: Faults, tmp_path: Path) -> Iterator[LocalStore]:
    root = tmp_path / "shop"
    options = resolve(root, {"segment_bytes": 16_384, "background": False})
    with LocalStore.open(root, options, env=Env(files=FaultyFiles(faults))) as db:
        db.create_table("t", {"id": "int64"}, primary_key="id")
        yield db
        faults.sync_s = 0.0


def slow(caplog: pytest.LogCaptureFixture, rows: int) -> list[float]:
    """Return the seconds of the slow commits of so many rows that the log has."""
    whole = re.compile(LINE.format(rows=rows))
    found = [whole.fullmatch(record.getMessage()) for record in caplog.records]
    return [float(each[1]) for each in found if each is not None]


def test_a_commit_whose_sync_takes_more_than_a_second_is_told_of(
    db: LocalStore, faults: Faults, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "siltstone"):
        faults.sync_s = SLOW_S + 0.01
        db["t"].upsert([{"id": 1}, {"id": 2}])
    (took_s,) = slow(caplog, 2)
    assert took_s >= SLOW_S


def test_a_slow_group_is_told_of_once(
    db: LocalStore, faults: Faults, caplog: pytest.LogCaptureFixture
) -> None:
    db["t"].upsert({"id": 0})  # from here on nobody asks for room
    group = GroupUpserts(db.core)
    table = group.table("t")
    assert table is not None
    planned = [table.upsert({"id": number}) for number in range(3)]
    with caplog.at_level(logging.INFO, "siltstone"):
        faults.sync_s = SLOW_S + 0.01
        assert None not in group.commit(planned)
    assert len(slow(caplog, 3)) == 1
