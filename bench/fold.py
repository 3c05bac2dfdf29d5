"""What merges write, and what readers notice of them: `python -m bench.fold --help`.

    python -m bench.fold --rows 1e6                 uniform upserts of 2 x base, folded as they come
    python -m bench.fold --rows 1e6 --gets          point reads while a fifth of base is replaced
    python -m bench.fold --rows 1e6 --gets --child  the same, merged in a child as owners do
    python -m bench.fold --rows 4e6 --scans         scans of a base with 19 % of its rows hidden
    python -m bench.fold --rows 1e7 --cold          a new process opens the store and reads keys
    python -m bench.fold --rows 1e6 --filters       filters that name keys

Bytes are those of new files by kind; nothing is vacuumed, the log is left out. Written per byte of
user data is their sum over the Arrow bytes of the upserts. It needs only the public doors, so the
same file measures another checkout: `PYTHONPATH=<checkout>/src python bench/fold.py`.
"""

from __future__ import annotations

import argparse
import contextlib
import multiprocessing
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import siltstone as st

KINDS = {
    ".history": "history",
    "base/data": "base",
    "base/_deletions": "deletion files",
    "base/_indices": "indexes",
    "base/_siltstone/_keys": "key runs",
    "inventory": "inventories",
    "manifest": "records",
}
SCHEMA = {"id": "int64", "v": "int64", "w": "float64", "text": "string"}
BATCH_ROWS = 20_000
_TOGETHER = 100
_READERS, _SHOWN = 2, 5


def rows(keys: np.ndarray, turn: int) -> pa.Table:
    """Return rows of about 100 bytes."""
    numbers = np.random.default_rng(turn).integers(0, 1 << 62, (len(keys), 5))
    texts = [f"{a:x}{b:x}{c:x}{d:x}{e:x}" for a, b, c, d, e in numbers.tolist()]
    values = [pa.array(keys), pa.array(numbers[:, 0]), pa.array(numbers[:, 1] / 3), texts]
    return pa.table(values, names=list(SCHEMA))


def written(root: Path) -> Counter[str]:
    """Return the bytes of all files by kind; a file with two names counts once."""
    found, seen = Counter[str](), set[int]()
    for path in root.rglob("*"):
        with contextlib.suppress(FileNotFoundError):
            about = path.lstat()
            if path.is_file() and about.st_ino not in seen and "wal" not in path.parts:
                seen.add(about.st_ino)
                name = str(path.relative_to(root)).replace("_siltstone/_kept/", "")
                kind = next((kind for part, kind in KINDS.items() if part in name), "other")
                found[kind] += about.st_size
    return found


def loaded(db: st.Store, count: int) -> st.Table:
    """Return a table with so many rows in base."""
    table = db.create_table("t", SCHEMA, primary_key="id")
    for first in range(0, count, 1_000_000):
        table.upsert(rows(np.arange(first, min(count, first + 1_000_000)), first))
        db.checkpoint()
    db.merge()
    return table


def amplification(root: Path, count: int, share: float, times: float) -> None:
    """Upsert `times` x base uniformly; merge whenever `share` of base is un-merged."""
    random, user, took = np.random.default_rng(7), 0, Counter[str]()
    with st.connect(root, background=False) as db:
        table = loaded(db, count)
        before, waiting, folds = written(root), 0, 0
        for turn in range(int(times * count / BATCH_ROWS)):
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


def gets(root: Path, count: int, *, by_child: bool) -> None:
    """Read keys from two threads, first alone, then beside upserts and merges."""
    with st.connect(root, background=False) as db:
        table = loaded(db, count)
        alone = reading(table, count, lambda: time.sleep(5))
        merge = (lambda: merged_by_child(root, db)) if by_child else db.merge
        beside = reading(table, count, lambda: folded(db, table, count, merge))
        kept = beside[0] / alone[0]
        print(
            f"base {count:,} rows: gets {alone[0]:,.0f}/s alone, {beside[0]:,.0f}/s beside merges"
        )
        print(f"kept {kept:.2f}; longest get {1000 * alone[1]:.0f} and {1000 * beside[1]:.0f} ms")


def scans(root: Path, count: int) -> None:
    """Scan a base before and after 19 % of its rows were deleted: ours, and by Lance."""
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


def filters(root: Path, count: int) -> None:
    """Count what filters keep that name keys: the same one, then others each time."""
    random = np.random.default_rng(9)
    with st.connect(root, background=False) as db:
        table = loaded(db, count)
        one = pc.field("id") == count // 2
        wanted: dict[str, Callable[[], pc.Expression]] = {"the same key": lambda: one}
        for keys in (1, 16, 256):
            wanted[f"{keys} other keys"] = lambda keys=keys: pc.field("id").isin(
                random.choice(count, keys, replace=False)
            )
        wanted["a range of 16 keys"] = lambda: (pc.field("id") >= 5) & (pc.field("id") < 21)
        for name, make in wanted.items():
            given = [make() & (pc.field("v") >= 0) for _ in range(50)]
            for each in given[:5]:
                table.count(each)
            began, work = time.perf_counter(), time.process_time()
            for each in given:
                table.count(each)
            spent = 20 * (time.process_time() - work), 20 * (time.perf_counter() - began)
            print(f"{name}: {spent[0]:.2f} ms of processor time, {spent[1]:.2f} ms")


def cold(root: Path, count: int, memory: int) -> None:
    """Fold a tenth of base five times; then open the store in new processes, and read keys."""
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
    spawned = multiprocessing.get_context("spawn")
    for threads in (1, 8):
        process = spawned.Process(target=opened, args=[root, count, threads, memory])
        process.start()
        process.join()


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


def main() -> None:
    """Measure what the command line asks for."""
    parser = argparse.ArgumentParser("python -m bench.fold", description=__doc__)
    parser.add_argument("--rows", type=float, default=1e6)
    parser.add_argument("--share", type=float, default=0.1, help="of base, that each merge folds")
    parser.add_argument("--times", type=float, default=2.0, help="x base is upserted")
    parser.add_argument("--gets", action="store_true")
    parser.add_argument("--child", action="store_true", help="merge in a child, with --gets")
    parser.add_argument("--scans", action="store_true")
    parser.add_argument("--cold", action="store_true")
    parser.add_argument("--memory", type=float, default=0, help="bytes, of the store read cold")
    parser.add_argument("--filters", action="store_true")
    given = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="fold-"))
    try:
        if given.scans:
            scans(folder / "db", int(given.rows))
        elif given.cold:
            cold(folder / "db", int(given.rows), int(given.memory))
        elif given.filters:
            filters(folder / "db", int(given.rows))
        elif given.gets:
            gets(folder / "db", int(given.rows), by_child=given.child)
        else:
            amplification(folder / "db", int(given.rows), given.share, given.times)
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
