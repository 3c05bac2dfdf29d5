"""SIGKILL at any moment: what was acknowledged is there exactly once, each transaction whole.

`SILTSTONE_KILL_ROUNDS` makes it longer, `SILTSTONE_KILL_SEED` other.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import siltstone as st
from tests.crash import victim
from tests.crash.moments import most_of
from tests.engine.seams import Threads

ROUNDS = int(os.environ.get("SILTSTONE_KILL_ROUNDS", most_of(4)))
SEED = int(os.environ.get("SILTSTONE_KILL_SEED", "20"))
REPOSITORY = Path(__file__).parents[2]


class Victim:
    """The process of one round. It imports at once and begins when told."""

    def __init__(self, root: Path, number: int) -> None:
        self.number = number
        self.acknowledged = root.with_name(f"acknowledged-{number}")
        command = ["-m", "tests.crash.victim", str(root), str(self.acknowledged), str(number)]
        self.process = subprocess.Popen(
            [sys.executable, *command],
            cwd=REPOSITORY,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def begin(self) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        assert self.process.stdout.readline() == "begun\n", "the store did not open"

    def kill(self) -> dict[int, list[tuple[int, int]]]:
        """Kill it; return per thread the acknowledged (n, seq)."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            pipe.close()
        found: dict[int, list[tuple[int, int]]] = {t: [] for t in range(victim.THREADS)}
        text = self.acknowledged.read_text() if self.acknowledged.exists() else ""
        for line in text.splitlines():
            thread, n, seq = map(int, line.split())
            found[thread].append((n, seq))
        return found


def check_whole(snapshot, since: int = 0) -> dict[tuple[int, int], int]:
    """Check that items and totals tell the same of every thread; return the totals.

    `since`: the first round that is looked at.
    """
    totals = snapshot["totals"].to_arrow(filter=f"round >= {since}").to_pylist()
    counts = {(row["round"], row["thread"]): row["count"] for row in totals}
    items = snapshot["items"].to_arrow(columns=["round", "thread", "n"], filter=f"round >= {since}")
    found: dict[tuple[int, int], list[int]] = {key: [] for key in counts}
    for number, thread, n in zip(*(column.to_pylist() for column in items.columns), strict=True):
        found[number, thread].append(n)
    for key, count in counts.items():
        assert len(found[key]) == len(set(found[key])), f"{key} has an item twice"
        assert set(found[key]) == victim.lives(count), f"{key} is torn at {count}"
    return counts


def check_values(snapshot, number: int) -> None:
    for row in snapshot["items"].to_arrow(filter=f"round = {number}").to_pylist():
        assert row["value"] == victim.value(number, row["thread"], row["n"])


def check_acknowledged(counts, number: int, acknowledged) -> None:
    for thread, found in acknowledged.items():
        count = counts.get((number, thread), 0)
        assert [n for n, _ in found] == list(range(len(found)))
        assert len(found) <= count <= len(found) + 1, f"thread {thread} of round {number}"
    seqs = [seq for found in acknowledged.values() for _, seq in found]
    assert len(seqs) == len(set(seqs))


def check_tokens(db: st.Store, number: int, acknowledged) -> None:
    """A retry gets the old receipt, and the transaction that was in doubt is there once."""
    for thread, found in acknowledged.items():
        if found:
            n, seq = found[-1]
            assert victim.write(db, number, thread, n).seq == seq
        victim.write(db, number, thread, len(found))
        assert db["totals"].get((number, thread))["count"] == len(found) + 1


def check_reopened(db: st.Store, number: int, acknowledged) -> None:
    with db.snapshot() as snapshot:
        check_acknowledged(check_whole(snapshot, number), number, acknowledged)
        check_values(snapshot, number)
    highest = max([seq for found in acknowledged.values() for _, seq in found], default=0)
    assert db.seq >= highest
    check_tokens(db, number, acknowledged)


class Watcher:
    """Reads a store that another process owns, all the time, while its log is recycled."""

    def __init__(self, root: Path, since: int) -> None:
        self._since = since
        self.db = st.connect(root, read_only=True)
        self.looks = 0
        self._stop = threading.Event()
        self._threads = Threads()
        self._threads.start(self._watch)

    def _watch(self) -> None:
        last = 0
        while not self._stop.is_set():
            with self.db.snapshot() as snapshot:
                assert snapshot.seq >= last
                last = snapshot.seq
                check_whole(snapshot, self._since)
            self.looks += 1

    def stop(self) -> None:
        self._stop.set()
        self._threads.join()


def test_an_owned_store_is_refused_with_the_pid_and_handed_over_when_its_owner_dies(
    tmp_path: Path,
) -> None:
    root = tmp_path / "db"
    owner = Victim(root, 0)
    owner.begin()
    with st.connect(root, read_only=True) as reader:
        with pytest.raises(st.OwnedError) as refused:
            st.connect(root)
        assert refused.value.pid == owner.process.pid
        acknowledged = owner.kill()
        check_acknowledged(check_whole(reader.snapshot()), 0, acknowledged)
        with st.connect(root, segment_bytes=65_536) as heir:
            last = victim.write(heir, 1, 0, 0)
            assert reader.snapshot().seq == last.seq
            assert check_whole(reader.snapshot())[1, 0] == 1


@pytest.mark.timeout(120 + 10 * ROUNDS)
def test_a_killed_owner_loses_nothing_it_acknowledged_and_tears_nothing(tmp_path: Path) -> None:
    root, chance = tmp_path / "db", random.Random(SEED)
    following = Victim(root, 0)
    looks = commits = 0
    for number in range(ROUNDS):
        current = following
        current.begin()
        watcher = Watcher(root, number)
        following = Victim(root, number + 1)
        threading.Event().wait(chance.uniform(0.02, 0.5))
        acknowledged = current.kill()
        with watcher.db.snapshot() as orphaned:  # the owner is dead: up to its mark
            check_acknowledged(check_whole(orphaned, number), number, acknowledged)
        watcher.stop()
        looks += watcher.looks
        watcher.db.close()
        with st.connect(root, segment_bytes=65_536) as db:
            check_reopened(db, number, acknowledged)
        commits += sum(map(len, acknowledged.values()))
    following.kill()
    with st.connect(root, read_only=True) as db, db.snapshot() as snapshot:
        counts = check_whole(snapshot)
        expected = sum(len(victim.lives(count)) for count in counts.values())
        assert snapshot.sql("select count(*) from items").fetchall() == [(expected,)]
    assert commits > ROUNDS
    assert looks > ROUNDS // 2
