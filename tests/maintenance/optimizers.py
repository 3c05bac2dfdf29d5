"""Optimizers of another process, in this one: they have nothing of the owner's but the path."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from siltstone.engine.following import Follower
from siltstone.engine.past import PastRecords
from siltstone.engine.reader import Readers
from siltstone.maintenance.hand_over import PlainTablesBeside
from siltstone.maintenance.index import Indexer
from siltstone.maintenance.merge import Merger
from siltstone.maintenance.optimize import Optimizer
from siltstone.storage.manifest_store import ManifestStore
from siltstone.storage.tables import Tables
from tests.engine.seams import fake_env, jobs_of


def optimizer_of(
    root: Path, tables: Tables, own_and_take: Callable[[], bool] = lambda: False
) -> Optimizer:
    """Return an optimizer as another process would have one; it waits for no owner."""
    manifests = ManifestStore(fake_env().files, root)
    readers = Readers(tables, PastRecords(manifests), index_bytes_max=0)
    merger = Merger(manifests, tables, readers, jobs_of(root))
    indexer = Indexer(manifests, tables, merger.promote, jobs_of(root))
    plain = PlainTablesBeside(
        follow=lambda: Follower(fake_env().files, root, manifests, readers),
        own_and_take=own_and_take,
        wait_s=0,
    )
    return Optimizer(manifests, tables, merger.promote, jobs_of(root), indexer, plain)
