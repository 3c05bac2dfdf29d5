"""Mirrored: the bank in a bucket: who ships its commits, and who restores them meanwhile.

The owner has a mirror, and ships all that it commits. Whoever is killed, what was said to be
shipped comes back from the bucket alone, as if the directory were gone; and once a round is over,
the rows there are those of the store, table by table.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import siltstone as st
from proof.soak import bank, care, nested
from proof.soak.acknowledged import Acknowledged
from proof.soak.post import Post
from siltstone import admin
from siltstone.cli.demo import bucket_server

RESTORED = "restore of the mirror"
PACE_S = 0.02
SHIP_S = 5.0
"""How long one wait for the bucket takes at most."""


@contextlib.contextmanager
def bucket(say: Callable[[str], object]) -> Generator[str]:
    """Yield the URL of an empty bucket; empty, and a word, where there is no server for one."""
    try:
        bucket_server.program()
    except st.UnavailableError as missing:
        say(f"without a mirror: {missing}")
        yield ""
        return
    with bucket_server.serving() as running:
        yield running.url


def options_of(post: Post) -> dict[str, Any]:
    """Return what the owner's store is opened with."""
    return {"mirror": post.mirror} if post.mirror else {}


def ships(db: st.Store, post: Post) -> Callable[[], None]:
    """Return what waits until all that is visible is in the bucket, and notes it."""
    file, told = os.open(post.shipped, os.O_WRONLY | os.O_CREAT | os.O_APPEND), [0]

    def work() -> None:
        if db.seq <= told[0]:
            time.sleep(PACE_S)
            return
        with contextlib.suppress(st.NotShippedError):
            told[0] = db.wait_shipped(timeout_s=SHIP_S)
            os.write(file, b"%d\n" % told[0])
            post.tally.add("wait for the bucket")

    return work


def shipped_seq(post: Post) -> int:
    """Return the highest seq that an owner heard to be in the bucket; 0: none yet."""
    if not post.shipped.exists():
        return 0
    told = post.shipped.read_bytes()
    return max(map(int, told[: told.rfind(b"\n") + 1].split()), default=0)


class Restorer:
    """Restores the mirror as if the store's directory were gone, and checks what came back."""

    def __init__(self, post: Post) -> None:
        self._post, self._count = post, 0
        self._known = Acknowledged(post.acknowledged)

    def work(self) -> None:
        """Restore what the bucket has now."""
        shipped = shipped_seq(self._post)
        if not shipped:
            return
        self._known.read_on()
        self._count += 1
        copy = Path(self._post.folder) / f"{care.RESTORED}-{self._post.number}-m{self._count}"
        try:
            admin.restore(self._post.mirror, copy)
        except st.SnapshotExpiredError:  # its vacuum was faster: the next try leases a newer record
            shutil.rmtree(copy, ignore_errors=True)
            return
        with st.connect(copy, background=False) as db:
            check(db, self._known, shipped)
        shutil.rmtree(copy)
        self._post.tally.add(RESTORED)


def check(db: st.Store, known: Acknowledged, shipped: int) -> None:
    """Check a store that was restored from the bucket, when all up to `shipped` was in it."""
    with db.snapshot() as snapshot:
        assert snapshot.seq >= shipped, f"seq {shipped} was shipped; restored is {snapshot.seq}"
        known.check(bank.check(snapshot), snapshot.seq)
        nested.check(snapshot)
    found = db.verify(deep=True)
    assert found.is_sound, found


def check_at_end(post: Post, own: Callable[..., st.Store]) -> None:
    """Restore the mirror of a store that is closed, as it is; then all of it, and compare all rows.

    `own` opens the store.
    """
    known = Acknowledged(post.acknowledged)
    known.read_on()
    with _restored(post) as lost:
        check(lost, known, shipped_seq(post))
    with own(post.root, background=False) as db:
        db.checkpoint()
    admin.mirror_store(post.root, post.mirror)
    with (
        _restored(post) as there,
        st.connect(post.root, read_only=True) as here,
        here.snapshot() as ours,
        there.snapshot() as theirs,
    ):
        assert ours.seq == theirs.seq
        assert ours.tables() == theirs.tables()
        for name in ours.tables():
            rows = [sorted(map(repr, s[name].to_arrow().to_pylist())) for s in (ours, theirs)]
            assert rows[0] == rows[1], f"{name} at seq {ours.seq} is not what was mirrored"


@contextlib.contextmanager
def _restored(post: Post) -> Generator[st.Store]:
    """Yield what the bucket has, as a store that is gone with the block."""
    copy = Path(post.folder) / f"{care.RESTORED} from the mirror"
    admin.restore(post.mirror, copy)
    try:
        with st.connect(copy, background=False) as db:
            yield db
    finally:
        shutil.rmtree(copy)
