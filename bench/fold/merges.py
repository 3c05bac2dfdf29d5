"""Merges: what they write, point reads next to them, and scans of a base with hidden rows."""

from __future__ import annotations

import argparse
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import lance
import numpy as np

import siltstone as st
from bench.fold.rows import BATCH_ROWS, SCHEMA, loaded, rows, written

_READERS = 2


def amplification(root: Path, given: argparse.Namespace) -> None:
    """Upsert `times` x base uniformly; merge whenever `share` of base is un-merged."""
    count, share = given.rows, given.share
    random, user, took = np.random.default_rng(7), 0, Counter[str]()
    with st.connect(root, background=False) as db:
        table = loaded(db, count)
        before, waiting, folds = written(root), 0, 0
        for turn in range(int(given.times * count / BATCH_ROWS)):
            new = rows(random.choice(count, BATCH_ROWS, replace=False), turn)
            user += new.nbytes
            began = time.perf_counter()
            table.upsert(new)
            took["upsert"] += time.perf_counter() - began
            waiting += BATCH_ROWS
            if waiting >= share * count:
                began = time.perf_counter()
                db.checkpoint()
                flushed = time.perf_counter()
                db.merge()
                took["checkpoint"] += flushed - began
                took["merge"] += time.perf_counter() - flushed
                waiting, folds = 0, folds + 1
        more = written(root) - before
        parts = {name: round(size / user, 2) for name, size in more.most_common()}
        total = sum(more.values()) / user
        print(
            f"base {count:,} rows, {folds} merges of {share:.0%}, {user / 1e6:.0f} MB of user data"
        )
        print(f"written per byte of user data: {total:.2f}  {parts}")
        print("seconds:", {name: round(value, 1) for name, value in took.items()})


def gets(root: Path, given: argparse.Namespace) -> None:
    """Read keys from two threads, first alone, then beside upserts and merges."""
    count = given.rows
    with st.connect(root, background=False) as db:
        table = loaded(db, count)
        alone = reading(table, count, lambda: time.sleep(5))
        merge = (lambda: merged_by_child(root, db)) if given.child else db.merge
        beside = reading(table, count, lambda: folded(db, table, count, merge))
        kept = beside[0] / alone[0]
        print(
            f"base {count:,} rows: gets {alone[0]:,.0f}/s alone, {beside[0]:,.0f}/s beside merges"
        )
        print(f"kept {kept:.2f}; longest get {1000 * alone[1]:.0f} and {1000 * beside[1]:.0f} ms")


def scans(root: Path, given: argparse.Namespace) -> None:
    """Scan a base before and after 19 % of its rows were deleted: ours, and by Lance."""
    count = given.rows
    with st.connect(root, background=False) as db:
        table = loaded(db, count)
        folder = next(root.glob("tables/t-*/base"))
        columns = {"one column": ["v"], "all columns": list(SCHEMA)}
        clean = {name: scanned(table, folder, some) for name, some in columns.items()}
        gone = np.random.default_rng(1).choice(count, 19 * count // 100, replace=False)
        for first in range(0, len(gone), 100_000):
            table.delete(gone[first : first + 100_000].tolist())
        db.checkpoint()
        db.merge()
        for name, some in columns.items():
            after = scanned(table, folder, some)
            kept = [f"{a / b:.2f}" for a, b in zip(clean[name], after, strict=True)]
            print(f"{name}: {kept[0]} of the speed of a clean base, other Lance clients {kept[1]}")


def scanned(table: st.Table, folder: Path, columns: list[str]) -> tuple[float, float]:
    """Return the seconds of our scan and of Lance's own, the best of seven each."""
    times: list[tuple[float, float]] = []
    for _ in range(7):
        began = time.perf_counter()
        for _ in table.scan(columns):
            pass
        ours = time.perf_counter()
        for _ in lance.dataset(folder).scanner(columns=columns, batch_size=65_536).to_batches():
            pass
        times.append((ours - began, time.perf_counter() - ours))
    return min(a for a, _ in times), min(b for _, b in times)


def reading(table: st.Table, count: int, work: Callable[[], None]) -> tuple[float, float]:
    """Return the gets a second, and the longest (seconds), while `work` runs."""
    is_over, done, longest = threading.Event(), [0] * _READERS, [0.0] * _READERS

    def read(number: int) -> None:
        keys = np.random.default_rng(number).integers(0, count, 1 << 20).tolist()
        while not is_over.is_set():
            key = keys[done[number] % len(keys)]
            began = time.perf_counter()
            table.get(key)
            longest[number] = max(longest[number], time.perf_counter() - began)
            done[number] += 1

    for key in range(2_000):  # whatever readers build is there
        table.get(key)
    threads = [threading.Thread(target=read, args=[number]) for number in range(_READERS)]
    began = time.perf_counter()
    for thread in threads:
        thread.start()
    work()
    is_over.set()
    for thread in threads:
        thread.join()
    return sum(done) / (time.perf_counter() - began), max(longest)


def merged_by_child(root: Path, db: st.Store) -> None:
    """Merge as the scheduler of an owner does: in a child at nice 19."""
    command = [sys.executable, "-m", "siltstone", "merge", "--db", str(root), "--quiet"]
    subprocess.run(["nice", "-n", "19", *command], check=True)
    db.merge()  # nothing is left to do: the owner takes over what the child published


def folded(db: st.Store, table: st.Table, count: int, merge: Callable[[], object]) -> None:
    """Replace a fifth of base, in ten merges."""
    random = np.random.default_rng(3)
    for turn in range(10):
        table.upsert(rows(random.choice(count, count // 50, replace=False), turn))
        db.checkpoint()
        merge()
