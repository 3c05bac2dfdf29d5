"""W14: a store with 10,000 publishes beside a new one: time to open, commits, size of a record.

And a small store as short commands use it: with as many commits in its log as closing leaves there,
opened with default options by a process that has opened others before.

Every twentieth publish is a checkpoint of a commit, the others change nothing: what grows is the
chain, and the history by 500 parts.
"""

from __future__ import annotations

import statistics
from pathlib import Path

import msgspec

import siltstone as st
from bench import data
from bench.measure import run_for, timed
from bench.workload import Metrics, Place
from siltstone.maintenance.flush.idle import COMMITS_WORTH
from siltstone.storage.files.files import RealFiles
from siltstone.storage.manifest.manifest_store import ManifestStore

_PUBLISHES = 10_000
BLANK = 19
_OPENS = 5
_OPENS_SMALL = 15


class Publishing:
    name = "W14"
    title = "a store with 10,000 publishes"

    def prepare(self, peer: Place) -> None:
        for path, publishes in ((peer.path, peer.sizes.rows(_PUBLISHES, 200)), (_new(peer), 0)):
            with st.connect(path, background=False) as db:
                accounts = db.create_table("accounts", data.ACCOUNTS, primary_key="id")
                accounts.upsert(data.base(1_000))
                db.checkpoint()
                stream = data.rows(1_000, 1)
                for _ in range(publishes // (BLANK + 1)):
                    accounts.upsert(data.as_dict(next(stream)))
                    db.checkpoint()
                    publish(path, BLANK)

    def measure(self, peer: Place, turn: int) -> Metrics:
        old, new = _measured(peer, peer.path, turn), _measured(peer, _new(peer), turn)
        return {
            "publishes": old["record"],
            "open ms": old["open ms"],
            "open ms, new": new["open ms"],
            "open ms, small": _small(peer, turn),
            "commits/s, new": new["commits/s"],
            "commits/s / new": old["commits/s"] / new["commits/s"],
            "record bytes": old["bytes"],
            "record bytes / new": old["bytes"] / new["bytes"],
        }


def _new(peer: Place) -> Path:
    return peer.path.with_name(f"{peer.path.name}-new")


def _small(peer: Place, turn: int) -> float:
    """Return the median time to open a store whose log holds all that it may, in ms."""
    path = peer.path.with_name(f"{peer.path.name}-small-{turn}")
    with st.connect(path) as db:
        accounts = db.create_table("accounts", data.ACCOUNTS, primary_key="id")
        stream = data.rows(1_000, 1)
        for _ in range(COMMITS_WORTH - 2):
            accounts.upsert(data.as_dict(next(stream)))
    times: list[float] = []
    for _ in range(_OPENS_SMALL):
        opened: list[st.Store] = []
        times.append(timed(lambda: opened.append(st.connect(path))))  # noqa: B023 - called here
        opened[0].close()
    return 1e3 * statistics.median(times)


def publish(path: Path, count: int) -> None:
    manifests = ManifestStore(RealFiles(), path)
    record = manifests.newest()
    for _ in range(count):
        record = manifests.publish(msgspec.structs.replace, base=record)


def _measured(peer: Place, path: Path, turn: int) -> Metrics:
    times = [timed(lambda: st.connect(path, background=False).close()) for _ in range(_OPENS)]
    manifests = ManifestStore(RealFiles(), path)
    number = manifests.newest().number
    with st.connect(path) as db:
        stream, accounts = data.rows(1_000, turn + 2), db["accounts"]

        def commit() -> int:
            accounts.upsert(data.as_dict(next(stream)))
            return 0

        run_for(peer.sizes.seconds / 4, [commit])  # warm
        commits = run_for(peer.sizes.seconds, [commit]).rate
    return {
        "open ms": 1e3 * min(times),
        "commits/s": commits,
        "record": number,
        "bytes": manifests.path(number).stat().st_size,
    }
