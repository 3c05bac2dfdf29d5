"""Care: the roles that maintain a store by its path alone, and check what they made."""

from __future__ import annotations

import contextlib
import random
import shutil
import threading
from collections.abc import Callable
from pathlib import Path

import siltstone as st
from proof.soak import bank, stock
from proof.soak.acknowledged import Acknowledged
from proof.soak.post import Post
from siltstone import admin
from siltstone.storage.files.files import RealFiles
from siltstone.storage.manifest.manifest_store import ManifestStore

BACKUPS = "backups"
RESTORED = "restored"
BACKUPS_OF_ONE = 5
HIDDEN = "merge with hidden rows"


def again_and_again(
    post: Post, work: Callable[[], object], rest_s: float
) -> Callable[[threading.Event], None]:
    """Return what does `work` until told to stop; late is no error, anything else is."""
    chance = random.Random(post.seed)

    def run(stop: threading.Event) -> None:
        while not stop.wait(chance.uniform(0, rest_s)):
            work()
            post.tally.add(post.role)

    return run


def vacuum(post: Post) -> None:
    """Vacuum, unless the owner dies or recovers just then: nobody knows what its log names."""
    with contextlib.suppress(st.BusyError):
        retention = bank.OPTIONS["retention"]
        admin.vacuum_store(post.root, dry_run=False, grace_s=0, retention=retention)


def merge(post: Post) -> None:
    """Merge, and count it if rows of a base are hidden since: then all read around them."""
    admin.merge_store(post.root)
    record = ManifestStore(RealFiles(), post.root).newest()
    if any(storage.base is not None and storage.base.hidden for storage in record.keyed):
        post.tally.add(HIDDEN)


def optimize(post: Post) -> None:
    """Optimize to small parts or to large ones."""
    target_rows = random.Random(f"{post.seed} {post.number}").choice([64, 1 << 20])
    admin.optimize_store(post.root, target_rows=target_rows)


class Indexer:
    """Builds an index on a column, and gives it up when it meets it again."""

    def __init__(self, post: Post) -> None:
        self._post, self._chance = post, random.Random(post.seed)

    def work(self) -> None:
        """Build one, or drop one; an owner for a moment may be refused as any owner may."""
        name = self._chance.choice(("first", "second"))
        try:
            self._turn(name)
        except (st.BusyError, st.UnavailableError) as error:  # a vacuum with no grace met it
            self._post.tally.add(f"refused: {type(error).__name__}")

    def _turn(self, name: str) -> None:
        try:
            admin.create_index_in(self._post.root, "stamps", "n", name=name)
        except st.RequestError:
            with contextlib.suppress(st.RequestError):
                admin.drop_index_in(self._post.root, "stamps", name)


class Keeper:
    """Backs the store up, restores what it wrote, and checks that."""

    def __init__(self, post: Post) -> None:
        self._post, self._count = post, 0

    def work(self) -> None:
        """Make a backup on top of earlier ones, also of one that died, and look at it."""
        folder = Path(self._post.folder)
        generation = self._count // BACKUPS_OF_ONE
        kept = folder / f"{BACKUPS}-{self._post.run}-{generation}"
        copy = folder / f"{RESTORED}-{self._post.number}-{self._count}"
        known = Acknowledged(self._post.acknowledged)
        known.read_on()
        stocked = stock.acknowledged(self._post.stocked)
        admin.backup_store(self._post.root, kept, incremental=True)
        admin.restore(kept, copy)
        with st.connect(copy, background=False) as db:
            with db.snapshot() as snapshot:
                last = bank.check(snapshot)
                assert snapshot.seq >= known.newest_seq, "an acknowledged commit is in no backup"
                known.check(last, snapshot.seq)
                stock.check(snapshot["stock"].to_arrow().to_pylist(), stocked)
            found = db.verify(deep=True)
            assert found.is_sound, found
        shutil.rmtree(copy)
        self._count += 1
        if self._count % BACKUPS_OF_ONE == 0:
            gone = copy.with_suffix(".gone")
            kept.rename(gone)  # at once: half of a folder of backups is none
            shutil.rmtree(gone)
