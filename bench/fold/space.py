"""Space: what a store takes on disk while its rows are replaced.

Each round upserts a fifth of the keys, evenly spread, merges them into base and moves the clock:
all rounds together take the hour of the retention. Printed are bytes for each byte of live rows:

    base      what the newest record's base needs, with its hidden rows
    past      files of bases that only older records need, or that wait for a vacuum
    history   every row version of the retention

Live rows are what base takes before the first round. A file with two names counts once.
"""

from __future__ import annotations

import argparse
import contextlib
import time
from pathlib import Path

import numpy as np

from bench.fold.rows import BATCH_ROWS, loaded, rows
from siltstone.local.store import LocalStore
from siltstone.maintenance.thinning import BOUNDS, Bounds
from siltstone.open.environment import Env
from siltstone.options import Options

RETENTION_S = 3600.0
SHARE = 0.2
KEEP_ALL = Bounds(gap_bytes=-1, gap_bases=-1, gap_share=-1)


class Clock:
    """The real time, and what the rounds skip of it; microseconds."""

    def __init__(self) -> None:
        self.ahead_us = 0

    def __call__(self) -> int:
        return time.time_ns() // 1000 + self.ahead_us


def taken(root: Path, named: set[str]) -> dict[str, int]:
    """Return the bytes of base, of older bases and of history; `named`: the files of base."""
    found, seen = {"base": 0, "past": 0, "history": 0}, set[int]()
    for path in sorted(root.glob("tables/*/**/*")):
        with contextlib.suppress(FileNotFoundError):
            about = path.lstat()
            if path.is_file() and about.st_ino not in seen:
                seen.add(about.st_ino)
                name = str(path.relative_to(root)).replace("_siltstone/_kept/", "")
                kind = "history" if "/.history/" in name else "base" if name in named else "past"
                found[kind] += about.st_size
    return found


def files_of_base(db: LocalStore) -> set[str]:
    """Return the paths of all files that the newest record's base needs."""
    site = db._parts.site  # noqa: SLF001
    pins = [storage.base for storage in site.manifests.newest().keyed]
    return {file.path for pin in pins if pin for file in site.tables.reader.files(pin)}


def space(root: Path, given: argparse.Namespace) -> None:
    """Replace rows round by round and print what the store takes."""
    count, rounds, bounds = given.rows, given.rounds, KEEP_ALL if given.keep_all else BOUNDS
    clock = Clock()
    options = Options(background=given.background, retention_s=RETENTION_S)
    with LocalStore.open(root, options, env=Env(now_us=clock, bounds=bounds)) as db:
        table = loaded(db, count)
        first = db.seq
        live = taken(root, files_of_base(db))["base"]
        print(f"base {count:,} rows, {live / 1e6:.0f} MB; a round is {SHARE:.0%} of them")
        print("round   base   past  history  records  vacuum, s")
        random, worst = np.random.default_rng(7), {"base": 0.0, "past": 0.0}
        for turn in range(1, rounds + 1):
            for part in range(int(SHARE * count / BATCH_ROWS)):
                keys = random.choice(count, BATCH_ROWS, replace=False)
                table.upsert(rows(keys, 1000 * turn + part))
            db.checkpoint()
            db.merge()
            clock.ahead_us += int(RETENTION_S * 1e6 / rounds)
            before = time.perf_counter()
            if not given.background:
                db.vacuum(dry_run=False)
            took = time.perf_counter() - before
            share = {kind: n / live for kind, n in taken(root, files_of_base(db)).items()}
            worst = {kind: max(most, share[kind]) for kind, most in worst.items()}
            records = len(db._parts.site.manifests.numbers(below_floor=True))  # noqa: SLF001
            print(
                f"{turn:5}  {share['base']:5.2f}  {share['past']:5.2f}  {share['history']:7.2f}"
                f"  {records:7}  {took:9.2f}"
            )
        print(f"most: base {worst['base']:.2f}, past {worst['past']:.2f}")
        old = max(db.status().oldest_seq, first)
        for seq in (old, (old + db.seq) // 2, db.seq):
            before = time.perf_counter()
            with db.snapshot(seq=seq) as past:
                some = past["t"].to_arrow(columns=["v"]).num_rows
            took = time.perf_counter() - before
            print(f"scan at seq {seq} of {db.seq}: {some:,} rows, {took:.2f} s")
