"""Cold: a new process opens a store and reads keys of a base that was folded."""

from __future__ import annotations

import argparse
import threading
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

import numpy as np

import siltstone as st
from bench.fold.rows import apart, loaded, rows, written

_TOGETHER = 100


def cold(root: Path, given: argparse.Namespace) -> None:
    """Fold a tenth of base five times; then open the store in new processes, and read keys."""
    count = given.rows
    random = np.random.default_rng(5)
    with st.connect(root, background=False) as db:
        table = loaded(db, count)
        user = 0
        for turn in range(5):
            new = rows(random.choice(count, count // 50, replace=False), turn)
            user += new.nbytes
            table.upsert(new)
            db.checkpoint()
            began = time.perf_counter()
            db.merge()
            took = time.perf_counter() - began
        print(f"base {count:,} rows; the last merge, of {count // 50:,} rows: {took:.2f} s")
        whole = user * (1 + count / (5 * (count // 50)))  # what was loaded has rows as long
        share = written(root)["key runs"] / whole
        print(f"key runs: {share:.2f} bytes per byte of user data, with those that were merged")
    for threads in (1, 8):
        apart(opened, root, count, threads, int(given.memory))


def opened(root: Path, count: int, threads: int, memory: int = 0) -> None:
    """Open the store in this process; read random keys, then keys that are not there."""
    import_module("siltstone.store")
    options = {"memory_bytes_max": memory} if memory else {}
    began = time.perf_counter()
    with st.connect(root, background=False, **options) as db:
        table = db["t"]
        ready = time.perf_counter()
        table.get(count // 2)
        first = time.perf_counter()
        print(f"open {1000 * (ready - began):.0f} ms, first get {1000 * (first - ready):.0f} ms")
        for key in range(0, count, max(1, count // 2_000)):  # whatever is checked at first use
            table.get(key)
        read_for_a_while(threads, " gets/s", 1, lambda key: table.get(key[0]), 0, count)
        read_for_a_while(
            threads, f" rows/s, {_TOGETHER} by a get_many", _TOGETHER, table.get_many, 0, count
        )
        read_for_a_while(
            threads, " gets/s of absent keys", 1, lambda key: table.get(key[0]), 2 * count, count
        )


def read_for_a_while(
    threads: int,
    what: str,
    size: int,
    read: Callable[[list[int]], object],
    low: int,
    count: int,
) -> None:
    """Read keys from [low, low + count), so many at a time, in some threads; print the rate."""
    done, is_over = [0] * threads, threading.Event()

    def work(number: int) -> None:
        keys = np.random.default_rng(number).integers(low, low + count, 1 << 20).tolist()
        while not is_over.is_set() and done[number] + size <= len(keys):
            read(keys[done[number] : done[number] + size])
            done[number] += size

    readers = [threading.Thread(target=work, args=[number]) for number in range(threads)]
    began, used = time.perf_counter(), time.process_time()
    for reader in readers:
        reader.start()
    time.sleep(5)
    is_over.set()
    for reader in readers:
        reader.join()
    rate = sum(done) / (time.perf_counter() - began)
    spent = 1e6 * (time.process_time() - used) / sum(done)
    print(f"{threads} threads: {rate:,.0f}{what}, {spent:.0f} us of processor time")
