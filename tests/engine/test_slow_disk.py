"""A disk whose syncs take long holds up who syncs, and nobody else; what waits is bounded."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import siltstone as st
from proof.exhaustion.faulty_files import Faults, FaultyFiles
from siltstone.local.store import LocalStore
from siltstone.open.environment import Env
from siltstone.options import resolve
from tests.engine.seams import until

SYNC_S = 0.5
OPTIONS = {"segment_bytes": 16_384, "background": False}


class Slow(Faults):
    """A disk that syncs when it is let; `syncs` counts them."""

    def __init__(self) -> None:
        super().__init__()
        self.gate, self.syncs = threading.Event(), 0
        self.gate.set()

    def sync(self) -> None:
        self.syncs += 1
        assert self.gate.wait(60)


@pytest.fixture
def slow() -> Slow:
    return Slow()


@pytest.fixture
def db(slow: Slow, tmp_path: Path) -> Iterator[LocalStore]:
    root = tmp_path / "s"
    with LocalStore.open(root, resolve(root, OPTIONS), env=Env(files=FaultyFiles(slow))) as db:
        db.create_table("t", {"id": "int64", "v": "string"}, primary_key="id")
        yield db
        slow.gate.set()


def test_readers_see_the_state_before_and_do_not_wait(db: LocalStore, slow: Slow) -> None:
    slow.gate.clear()
    before = slow.syncs
    with ThreadPoolExecutor(1) as pool:
        writer = pool.submit(db["t"].upsert, {"id": 1, "v": "slow"})
        until(lambda: slow.syncs > before)
        assert db["t"].get(1) is None
        assert db["t"].count() == 0
        with db.snapshot() as then:
            assert then["t"].to_arrow().num_rows == 0
        assert not writer.done()
        slow.gate.set()
        writer.result(60)
    assert db["t"].get(1) == {"id": 1, "v": "slow"}


def test_writers_that_come_during_a_sync_share_the_next_one(db: LocalStore, slow: Slow) -> None:
    slow.gate.clear()
    before = slow.syncs
    with ThreadPoolExecutor(16) as pool:
        writers = [pool.submit(db["t"].upsert, {"id": 0, "v": "x"})]
        until(lambda: slow.syncs > before)
        writers += [pool.submit(db["t"].upsert, {"id": n, "v": "x"}) for n in range(1, 16)]
        until(lambda: len(db._core.writer()._queue) == 15)
        slow.gate.set()
        for writer in writers:
            writer.result(60)
    assert slow.syncs == before + 2
    assert db["t"].count() == 16


def test_a_writer_that_finds_no_room_hears_of_it(tmp_path: Path) -> None:
    root, faults = tmp_path / "s", Faults()
    options = {
        "segment_bytes": 16_384, "memtable_bytes_max": 4_096, "sealed_generations_max": 1,
        "room_timeout_s": 0.5,
    }  # fmt: skip
    with LocalStore.open(root, resolve(root, options), env=Env(files=FaultyFiles(faults))) as db:
        db.create_table("t", {"id": "int64", "v": "string"}, primary_key="id")
        faults.sync_s = SYNC_S
        written, refused_after = 0, None
        while refused_after is None and written < 30:
            began = time.monotonic()
            try:
                db["t"].upsert({"id": written, "v": "x" * 3_000})
                written += 1
            except st.BusyError:
                refused_after = time.monotonic() - began
        faults.sync_s = 0.0
        assert refused_after is not None, "30 writers found room in 8 KiB"
        assert refused_after >= 0.5
        assert db["t"].count() == written
        db.checkpoint()
        db["t"].upsert({"id": 99, "v": "goes on"})
