"""Stores, and their mirrors in a simulated bucket."""

from __future__ import annotations

import itertools
import shutil
from functools import partial
from pathlib import Path
from typing import Any

import siltstone as st
from siltstone.local.store import LocalStore
from siltstone.maintenance.backup.following import Following, Stop
from siltstone.maintenance.backup.mirror import Mirrored, Mirrorer
from siltstone.maintenance.backup.mirror_restore import MirrorRestorer
from siltstone.maintenance.backup.restore import Restored
from siltstone.open.environment import Env
from siltstone.open.mirroring import Mirroring, mirrorer_of
from siltstone.options import resolve
from siltstone.storage.files.files import RealFiles
from siltstone.storage.lance.lance_tables import lance_tables
from siltstone.storage.manifest.manifest_store import random_token, system_time_us
from siltstone.storage.objects.objects import Objects
from siltstone.storage.objects.server import BucketServer
from siltstone.storage.site import Site
from tests.support.simulated_objects import SimBucket, SimServer

Content = dict[str, list[dict[str, object]]]
TABLES = partial(lance_tables, verify="scrub")


def at(bucket: SimBucket) -> SimServer:
    """Return a new process at the bucket's mirror."""
    return SimServer(bucket, below="shop/")


def objects_of(server: BucketServer) -> Objects:
    ticks = itertools.count()
    return Objects(server, "tests", lambda: float(next(ticks)), lambda _: None)


def mirrorer(root: Path, server: BucketServer) -> Mirrorer:
    site = Site.of(root, RealFiles(), TABLES)
    return Mirrorer(site, objects_of(server), lambda _: "simulated")


def mirrored(
    root: Path, server: BucketServer, *, take: bool = False, adopt: bool = False
) -> Mirrored:
    """Mirror the store at `root`, as a process of its own would."""
    return mirrorer(root, server).run(take=take, adopt=adopt)


def restored(server: BucketServer, target: Path, **choice: Any) -> Restored:
    restorer = MirrorRestorer(
        RealFiles(), objects_of(server), TABLES, now_us=system_time_us, new_token=random_token
    )
    return restorer.run(target, **choice)


def content(db: st.Store | st.Snapshot) -> Content:
    """Return the rows of all tables, sorted."""
    return {name: sorted(db[name].scan().read_all().to_pylist(), key=repr) for name in db.tables()}


def content_of(server: BucketServer, target: Path) -> tuple[int, Content]:
    """Restore the newest record; return its seq and rows, and leave nothing."""
    restored(server, target)
    return taken_from(target)


def taken_from(target: Path) -> tuple[int, Content]:
    """Return seq and rows of a sound store, and leave nothing of it."""
    try:
        with st.connect(target, background=False) as db:
            assert db.verify(deep=True).findings == ()
            return db.seq, content(db)
    finally:
        shutil.rmtree(target)


def lived(root: Path, **options: Any) -> st.Store:
    """Return an open store with a past: keyed and plain, merged, indexed, loaded, dropped, tagged.

    Some commits are in the log alone.
    """
    db = st.connect(root, background=False, **options)
    keyed = db.create_table("keyed", {"id": "int64", "v": "string"}, primary_key="id")
    plain = db.create_table("plain", {"a": "int64"})
    db.create_table("gone", {"id": "int64"}, primary_key="id").upsert({"id": 1})
    keyed.upsert([{"id": number, "v": f"v{number}"} for number in range(50)])
    plain.append([{"a": 1}, {"a": 2}])
    db.checkpoint()
    db.merge()
    keyed.create_index("v")
    db.tag("first")
    keyed.delete(7)
    keyed.upsert({"id": 8, "v": "again"})
    db.drop_table("gone")
    plain.append([{"a": 3}])
    db.checkpoint()
    db.merge()
    return db


def go_on(db: st.Store, number: int) -> None:
    """Change both tables in one commit, and flush."""
    with db.transaction() as change:
        change["keyed"].upsert({"id": 1000 + number, "v": "new"})
        change["plain"].append([{"a": 1000 + number}])
    db.checkpoint()


def followed(site: Site, server: BucketServer, **options: Any) -> Following:
    """Return a mirror that goes on, as the owner's thread has it."""
    stop = options.pop("stop", None) or Stop()
    ticks = itertools.count()
    objects = Objects(
        server,
        "tests",
        lambda: float(next(ticks)),
        lambda _: stop.check(),
        abandon=stop.check_requests,
    )
    how = Mirroring(
        site, "s3://simulated/shop", options.pop("retention_s", 7 * 86_400.0), stop=stop
    )
    mirrorer, vacuum = mirrorer_of(how, objects, lambda _: "simulated")
    options = {"is_patient": True, "look_s": 0.01, "pause_s": 0.01, **options}
    return Following(mirrorer, stop, vacuum=vacuum.run, **options)


def with_mirror(
    root: Path, server: BucketServer, *, stop: Stop | None = None, **options: Any
) -> LocalStore:
    """Open a store that is mirrored to a simulated bucket, as `connect(root, mirror=...)` does."""
    env = Env(mirror=lambda site, _: followed(site, server, stop=stop))
    given = {"mirror": "s3://simulated/shop", "background": False, **options}
    return LocalStore.open(root, resolve(root, given), env=env)
