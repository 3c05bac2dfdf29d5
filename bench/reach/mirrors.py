"""Mirrors: what a checkpoint, many tables and a vacuum ask of a bucket, and what a mirror costs.

A checkpoint of one table changes two datasets, its history and the log of commits. It is copied by
the session that a mirror in the background has: it knows what is there. "Rounds" are the seconds of
a copy at 100 ms added above those at 0, in tenths of a second: how many requests have to wait for
each other.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import siltstone as st
from bench import data
from bench.measure import median, run_for, timed
from bench.reach.lake import Door
from bench.workload import Metrics
from siltstone.local.store import LocalStore
from siltstone.maintenance.backup.leased_records import lease
from siltstone.open.mirroring import Mirroring

_COLUMNS = {"id": "int64", "v": "string"}
_TABLES, _COPIES = 100, 3
_SLICES = 4
_NO_MIRROR = """
import sys
import siltstone as st
with st.connect(sys.argv[1]) as db:
    db.create_table("t", {"id": "int64"}, primary_key="id").upsert({"id": 1})
    db.checkpoint()
rooms = ("obstore", "siltstone.storage.objects", "siltstone.storage.bucket",
         "siltstone.maintenance.shipping", "siltstone.open.mirroring",
         "siltstone.maintenance.backup.mirror", "siltstone.maintenance.backup.following")
print(sum(name.startswith(rooms) for name in sys.modules))
"""


class _Copied:
    """A store of some tables, and a session of its mirror. One thread."""

    def __init__(self, path: Path, door: Door, tables: int) -> None:
        self._held = ExitStack()
        self.db = self._held.enter_context(st.connect(path, background=False))
        self.url, self._door = door.url(), door
        for number in range(tables):
            self.db.create_table(f"t{number}", _COLUMNS, primary_key="id")
        assert isinstance(self.db, LocalStore)
        self._site = self.db._core.site  # noqa: SLF001 # pyright: ignore[reportPrivateUsage]
        how = Mirroring(self._site, self.url, 86_400.0, door.settings)
        self._mirrorer, self._vacuum = how.mirrorer()
        self._change()
        with ExitStack() as leased:
            source = lease(self._site, leased, with_log=False)
            self._session = self._held.enter_context(self._mirrorer.session(source))
            self._session.publish(source, _quiet)

    def _change(self) -> None:
        with self.db.transaction() as tx:
            for name in self.db.tables():
                tx[name].upsert({"id": self.db.seq, "v": "some text"})
        self.db.checkpoint()

    def counts(self) -> dict[str, int]:
        return self._mirrorer.objects.counts.by_kind()

    def copy(self) -> tuple[float, dict[str, int]]:
        """Copy a checkpoint of all tables; return the seconds, and the requests by kind."""
        self._change()
        before = self.counts()
        with ExitStack() as leased:
            source = lease(self._site, leased, with_log=False)
            seconds = timed(lambda: self._session.publish(source, _quiet))
        after = self.counts()
        return seconds, {kind: count - before.get(kind, 0) for kind, count in after.items()}

    def vacuum(self) -> tuple[int, int]:
        """Vacuum the bucket; return how many lists that took, and how many keys there were."""
        keys = sum(1 for _ in self._door.objects(self.url).list_after(""))
        before = self.counts().get("list", 0)
        self._vacuum.run(grace_s=0.0)
        return self.counts().get("list", 0) - before, keys

    def close(self) -> None:
        self._held.close()


def _quiet(path: str, done: int, total: int) -> None:
    del path, done, total


def copies(doors: dict[int, Door], folder: Path) -> Metrics:
    """Measure the copy of a checkpoint of one table, of a hundred, and a vacuum."""
    found: Metrics = {}
    seconds: dict[int, float] = {}
    for added_ms, door in doors.items():
        copied = _Copied(folder / f"one-{added_ms}", door, 1)
        made = [copied.copy() for _ in range(_COPIES)]
        copied.close()
        seconds[added_ms] = median([each for each, _ in made])
        found[f"checkpoint: ms of its copy, {added_ms} ms added"] = 1e3 * seconds[added_ms]
        found["checkpoint: requests"] = max(sum(kinds.values()) for _, kinds in made)
        found["checkpoint: puts"] = max(kinds["put"] for _, kinds in made)
    found["checkpoint: rounds"] = (seconds[100] - seconds[0]) / 0.1
    copied = _Copied(folder / "many", doors[0], _TABLES)
    made = [copied.copy() for _ in range(2)]
    more = max(kinds["put"] for _, kinds in made) - found["checkpoint: puts"]
    found["each further table: puts"] = more / (_TABLES - 1)
    lists, keys = copied.vacuum()
    copied.close()
    return found | {
        "vacuum: keys": float(keys),
        "vacuum: lists": float(lists),
        "vacuum: lists - keys / 1,000": lists - keys / 1_000,
    }


def beside_writers(door: Door, folder: Path, seconds: float) -> Metrics:
    """Measure single upserts of 8 threads with a mirror and without one, in turns."""
    rates: dict[str, list[float]] = {"with": [], "without": []}
    mirrored = st.connect(folder / "mirrored", mirror=door.url(), storage_options=door.settings)
    with mirrored, st.connect(folder / "alone") as alone:
        stores = {"with": mirrored, "without": alone}
        for db in stores.values():
            db.create_table("accounts", data.ACCOUNTS, primary_key="id").upsert(data.base(1_000))
            db.checkpoint()
        for turn in range(_SLICES):
            names = ["with", "without"] if turn % 2 else ["without", "with"]
            for name in names:
                clients = [_upserts(stores[name], turn, client) for client in range(8)]
                rates[name].append(run_for(seconds / 2, clients).rate)
    kept = median([a / b for a, b in zip(rates["with"], rates["without"], strict=True)])
    return {"upserts/s, 8 threads": median(rates["without"]), "upserts/s kept with a mirror": kept}


def _upserts(db: st.Store, turn: int, client: int) -> Callable[[], int]:
    table, rows = db["accounts"], data.rows(1_000_000, turn * 100 + client)

    def once() -> int:
        table.upsert(data.as_dict(next(rows)))
        return 0

    return once


def without(folder: Path) -> Metrics:
    """Count the modules of a mirror that a store without one imports."""
    command = [sys.executable, "-c", _NO_MIRROR, str(folder / "no-mirror")]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return {"modules of a mirror without one": float(done.stdout)}
