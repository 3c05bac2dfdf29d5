"""Upserts: uniform ones over a large base of which a fifth was replaced; RocksDB and Lance beside.

Of siltstone and Lance the bytes are those of new files (the log is left out), of RocksDB what its
process wrote without a log: all per byte of the upserts. Then new processes open the store, and
read keys of files that the system has in memory.
"""

from __future__ import annotations

import argparse
import struct
import time
from collections.abc import Iterator
from pathlib import Path

import lance
import numpy as np
import pyarrow as pa

import siltstone as st
from bench.fold.cold import opened
from bench.fold.rows import (
    BATCH_ROWS,
    SCHEMA,
    TEXT,
    apart,
    peak_bytes,
    rows,
    written,
    written_by_process,
)

_LOAD_ROWS, _MERGE_LOADS = 2_000_000, 5
_KEY = struct.Struct(">q")


def upserts(root: Path, given: argparse.Namespace) -> None:
    """Upsert and read, after the peers if they are asked for, each in a process of its own."""
    count, wanted = given.rows, given.upserts
    if given.peers:
        apart(rocksdb, root.with_name("rocksdb"), count, wanted)
        apart(merge_insert, root.with_name("lance"), count, wanted)
    apart(load, root, count)
    apart(upsert, root, count, wanted)
    warm(root)
    for threads in (1, 8):
        apart(read, root, count, threads)
    apart(scan, root)


def stretches(count: int) -> Iterator[np.ndarray]:
    """Yield the keys of the loads."""
    for first in range(0, count, _LOAD_ROWS):
        yield np.arange(first, min(count, first + _LOAD_ROWS))


def batches(count: int, wanted: int) -> Iterator[pa.Table]:
    """Yield batches of uniform keys."""
    random = np.random.default_rng(7)
    for turn in range(wanted // BATCH_ROWS):
        yield rows(np.unique(random.integers(0, count, BATCH_ROWS)), turn)


def load(root: Path, count: int) -> None:
    """Make a store whose base has so many live rows, and a fifth of that hidden."""
    with st.connect(root, background=False) as db:
        table = db.create_table("t", SCHEMA, primary_key="id")
        for turn, keys in enumerate(stretches(count)):
            table.upsert(rows(keys, turn))
            if turn % _MERGE_LOADS == _MERGE_LOADS - 1:
                db.merge()
        db.merge()
        for turn, keys in enumerate(stretches(count)):
            table.upsert(rows(keys[::5], turn))
            db.checkpoint()
            if turn % _MERGE_LOADS == _MERGE_LOADS - 1:
                db.merge()
        db.merge()
    print(f"process that loaded: at most {peak_bytes('self') / 1e6:,.0f} MB", flush=True)


def upsert(root: Path, count: int, wanted: int) -> None:
    """Upsert at full speed with default options, and merge what is left; print what was written."""
    before, user, longest = written(root), 0, 0.0
    began = time.monotonic()
    with st.connect(root) as db:
        table = db["t"]
        for new in batches(count, wanted):
            at = time.monotonic()
            table.upsert(new)
            longest, user = max(longest, time.monotonic() - at), user + new.nbytes
        seconds = time.monotonic() - began
        db.checkpoint()
        db.merge()
        status = db.status()
    more = written(root) - before
    parts = {name: round(size / user, 3) for name, size in more.most_common()}
    print(f"siltstone: {wanted / seconds:,.0f} upserts/s, the longest commit {longest:.2f} s")
    print(f"written per byte of user data: {sum(more.values()) / user:.2f}  {parts}")
    print(f"memory: {status.memory.total / 1e6:,.0f} MB counted", end=", ")
    print(f"{peak_bytes('self') / 1e6:,.0f} MB of the process at most", flush=True)


def read(root: Path, count: int, threads: int) -> None:
    """Open the store in this process, and read keys."""
    opened(root, count, threads)
    print(f"memory of that process: at most {peak_bytes('self') / 1e6:,.0f} MB", flush=True)


def warm(root: Path) -> None:
    """Read the files of base once: from then on the system has them in memory, if they fit."""
    for path in sorted(root.glob("tables/*/base/data/*.lance")):
        with path.open("rb", buffering=0) as file:
            while file.read(16 << 20):
                pass


def scan(root: Path) -> None:
    """Count the rows of the store by a scan in this process."""
    with st.connect(root, background=False) as db:
        began = time.monotonic()
        count = sum(batch.num_rows for batch in db["t"].scan(["v"]))
        seconds = time.monotonic() - began
    print(f"a scan of one column: {count:,} rows in {seconds:.1f} s", end=", ")
    print(f"at most {peak_bytes('self') / 1e6:,.0f} MB", flush=True)


def rocksdb(root: Path, count: int, wanted: int) -> None:
    """Do the same in RocksDB, without its log."""
    from rocksdict import Options, Rdict, WriteBatch, WriteOptions  # of the group `bench`

    options = Options(raw_mode=True)
    options.create_if_missing(True)
    db, unlogged = Rdict(str(root), options), WriteOptions()
    unlogged.disable_wal = True  # pyright: ignore[reportAttributeAccessIssue] - its stub is wrong

    def put(new: pa.Table) -> None:
        numbers, text = new["v"].to_numpy(), "".join(map(str, new["text"].to_pylist())).encode()
        batch = WriteBatch(raw_mode=True)
        for at, key in enumerate(new["id"].to_pylist()):
            value = numbers[at].tobytes() * 2 + text[at * TEXT : (at + 1) * TEXT]
            batch.put(_KEY.pack(key), value)
        db.write(batch, unlogged)

    for turn, keys in enumerate(stretches(count)):
        put(rows(keys, turn))
    db.flush()
    db.compact_range(None, None)
    before, user, began = written_by_process(), 0, time.monotonic()
    for new in batches(count, wanted):
        put(new)
        user += new.nbytes
    db.flush()
    seconds = time.monotonic() - began
    db.close()
    wrote = (written_by_process() - before) / user
    print(f"RocksDB: {wanted / seconds:,.0f} upserts/s, {wrote:.2f} bytes per byte", flush=True)


def merge_insert(root: Path, count: int, wanted: int) -> None:
    """Do the same with Lance by itself, with an index of the key."""
    for turn, keys in enumerate(stretches(count)):
        lance.write_dataset(rows(keys, turn), root, mode="append" if turn else "create")
    lance.dataset(root).create_scalar_index("id", "BTREE")
    before, user, began = written(root), 0, time.monotonic()
    for new in batches(count, wanted):
        merge = lance.dataset(root).merge_insert("id")
        merge.when_matched_update_all().when_not_matched_insert_all().execute(new)
        user += new.nbytes
    seconds = time.monotonic() - began
    wrote = sum((written(root) - before).values()) / user
    print(f"Lance: {wanted / seconds:,.0f} upserts/s, {wrote:.2f} bytes per byte", flush=True)
