"""What the bench of a bucket counts is what its targets ask for. A file of the night."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.reach import before, commits, mirrors, readers, scans
from bench.reach.lake import Lake, lake

ROWS = 10_000


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    pytest.importorskip("obstore", reason="obstore is not installed")
    with lake(tmp_path_factory.mktemp("lake") / "server") as found:
        yield found


def test_a_checkpoint_is_copied_in_few_requests_and_a_vacuum_lists_pages(
    running: Lake, tmp_path: Path
) -> None:
    found = mirrors.copies(running.doors, tmp_path)
    assert found["checkpoint: requests"] <= 12
    assert found["each further table: puts"] <= 4
    assert found["vacuum: lists - keys / 1,000"] <= 4


def test_a_store_without_a_mirror_imports_nothing_of_one(tmp_path: Path) -> None:
    assert mirrors.without(tmp_path) == {"modules of a mirror without one": 0}


def test_two_checkouts_are_compared_in_turns_if_a_commit_is_given() -> None:
    assert before.compared("") == {}
    try:
        found = before.compared("HEAD", turns=1, rows=20)
    except subprocess.CalledProcessError:
        pytest.skip("this is no checkout of git")
    assert set(found) == {"before: CPU of import, x", "before: CPU of upserts, x"}
    assert all(value > 0 for value in found.values())


def test_a_reader_shows_what_was_shipped(
    running: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(readers, "_SECONDS_MIN", 0.1)
    found = readers.lag(running.doors[30], tmp_path, 0.1)
    assert found["reader: lag p99 ms, 30 ms added"] > 0
    assert "reader: lag p99 beyond a look, puts, 30 ms added" in found


def test_commits_and_scans_are_measured_beside_those_of_others(
    running: Lake, tmp_path: Path
) -> None:
    doors = {0: running.doors[0], 30: running.doors[30]}
    found = commits.shipped(doors, tmp_path, 0.05)
    assert found["shipped: 64 clients / 1"] > 0
    assert found["shipped / a put, 30 ms added"] > 0
    scans.prepare(tmp_path / "scanned", ROWS)
    scanned = scans.scans(running, tmp_path / "scanned", ROWS)
    assert scanned["scan: x raw Lance, 0 ms added"] > 0
    assert scanned["scan again: x raw Lance, 100 ms added"] > 0
    delta = commits.delta(doors)
    assert not delta or delta["Delta: requests of a commit"] > 0
    commits.slatedb(doors, 0.05)
