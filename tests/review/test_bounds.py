"""What is kept in memory is counted by its size, and what hangs is ended."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import pytest

import siltstone as st
from siltstone.engine.commit.recent_writes import Keys, RecentWrites
from siltstone.maintenance.merge.merge_child import MergeChild
from tests.engine.seams import fake_env, open_store, until

LONG = "x" * 100_000


@pytest.mark.parametrize("key", [lambda n: f"{n}{LONG}", lambda n: (n, f"{n}{LONG}".encode())])
def test_the_index_of_recent_writes_counts_long_keys_with_their_length(key: object) -> None:
    recent = RecentWrites(bytes_max=1_000_000)
    for seq in range(1, 31):
        recent.remember(1, seq, Keys([key(seq)]))  # type: ignore[operator]
        recent.forget(0)
    assert recent.nbytes <= 1_000_000
    assert recent.floor >= 20


def test_recent_writes_that_are_forgotten_give_their_memory_back() -> None:
    recent = RecentWrites()
    tracemalloc.start()
    try:
        for seq in range(1, 101):
            recent.remember(seq, seq, Keys(list(range(4096 * seq, 4096 * (seq + 1)))))
            recent.forget(seq)
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert recent.nbytes == 0
    assert held < 2 << 20


def test_the_row_cache_counts_long_values_with_their_length(tmp_path: Path) -> None:
    with open_store(tmp_path, fake_env()) as db:
        table = db.create_table("t", {"id": "int64", "v": "string"}, primary_key="id")
        table.upsert([{"id": n, "v": LONG * 10} for n in range(40)])
        db.checkpoint()
        db.merge()
        for n in range(40):
            assert table.get(n) == {"id": n, "v": LONG * 10}
        base = db._core.state().view.levels[1].base
        held = sum(len(row["v"]) for _, row in base._cache.values() if row)
        assert 0 < held <= base.nbytes
        assert base.nbytes <= 32 << 20


def script(path: Path, body: str) -> str:
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return str(path)


def test_a_merge_child_that_complains_a_lot_ends_and_its_last_line_is_told(tmp_path: Path) -> None:
    flood = "head -c 1000000 /dev/zero | tr '\\0' 'e' >&2; echo >&2; echo no luck >&2; exit 1"
    child = MergeChild(tmp_path, python=script(tmp_path / "python", flood))
    child.start()
    until(lambda: not child.is_running)
    with pytest.raises(st.UnavailableError, match="no luck"):
        child.start()


def test_a_merge_child_that_hangs_is_ended_after_its_time(tmp_path: Path) -> None:
    hang = script(tmp_path / "python", "exec sleep 600")
    child = MergeChild(tmp_path, python=hang, timeout_s=0.05)
    child.start()
    until(lambda: not child.is_running)
    with pytest.raises(st.UnavailableError):
        child.start()


def test_a_merge_child_that_is_stopped_by_a_signal_does_not_hold_up_a_close(tmp_path: Path) -> None:
    frozen = script(tmp_path / "python", "kill -STOP $$; exec sleep 600")
    child = MergeChild(tmp_path, python=frozen)
    child.start()
    child.stop()
    assert not child.is_running
