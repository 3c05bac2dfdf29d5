"""Optimizers of another process, in this one: they have nothing of the owner's but the path."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from siltstone.engine.read.past import PastRecords
from siltstone.engine.read.reader import Readers
from siltstone.engine.recover.following import Follower
from siltstone.maintenance.compaction.optimize import Optimizer
from siltstone.maintenance.compaction.plain_table_commit import PlainTablesOfAnOwner
from siltstone.maintenance.index.indexer import Indexer
from siltstone.maintenance.merge.merge import Promoter
from siltstone.storage.manifest.manifest_store import ManifestStore
from siltstone.storage.site import Site
from siltstone.storage.tables.store_tables import Tables
from tests.engine.seams import fake_env, jobs_of


def optimizer_of(
    root: Path, tables: Tables, own_and_take: Callable[[], bool] = lambda: False
) -> Optimizer:
    """Return an optimizer as another process would have one; it waits for no owner."""
    manifests = ManifestStore(fake_env().files, root)
    readers = Readers(tables.reader, tables.keys, PastRecords(manifests), index_bytes_max=0)
    site = Site(root, fake_env().files, manifests, tables, jobs_of(root))
    promote = Promoter(site).promote
    plain = PlainTablesOfAnOwner(
        follow=lambda: Follower(fake_env().files, root, manifests, readers),
        own_and_take=own_and_take,
        wait_s=0,
    )
    return Optimizer(site, promote, Indexer(site, promote), plain)
