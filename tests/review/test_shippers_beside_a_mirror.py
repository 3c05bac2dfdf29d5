"""A shipper goes on while the mirror beside it publishes; a close asks a slow server little."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

import siltstone as st
from siltstone import admin
from siltstone.errors import BusyError, NotShippedError
from siltstone.local.store import LocalStore
from siltstone.maintenance.backup.following import Stop
from siltstone.maintenance.shipping.shipper import Shipper
from siltstone.open.mirroring import shipper_of
from tests.maintenance.mirrors import (
    at,
    content,
    followed,
    go_on,
    lived,
    mirrored,
    mirrorer,
    restored,
    taken_from,
    with_mirror,
)
from tests.maintenance.test_shipping import Shipping, write
from tests.support.simulated_objects import SimBucket, SimServer


def test_a_record_that_is_published_while_the_shipper_looks_ends_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store forgets what it sent before, and its vacuum took that record."""
    with lived(tmp_path / "s", retention_s=0) as db:
        shipping = Shipping(db, at(SimBucket()))
        shipping.mirror()
        newest = Shipper._newest  # pyright: ignore[reportPrivateUsage]

        def slow(shipper: Shipper) -> object:
            found = newest(shipper)
            monkeypatch.setattr(Shipper, "_newest", newest)
            for number in range(3):
                go_on(db, number)
            db.merge()
            db.vacuum(dry_run=False, grace_s=0)
            shipping.mirror()
            return found

        monkeypatch.setattr(Shipper, "_newest", slow)
        write(db, 2)
        assert shipping.ship() == db.seq
        assert shipping.shipper.failure is None


def test_a_record_of_another_process_that_the_owner_did_not_read_yet_is_no_other_stores(
    tmp_path: Path,
) -> None:
    """The mirror copies what is newest on disk; the owner reads it a moment later."""
    with lived(tmp_path / "s") as db:
        assert isinstance(db, LocalStore)
        write(db, 1)
        db.checkpoint()
        known = db.core.state().view.record
        admin.merge_store(db.path)
        mirroring = mirrorer(db.path, at(SimBucket()))
        shipper = shipper_of(mirroring, lambda: known)
        assert mirroring.run().copied > known.number
        shipper.ship()
        assert (shipper.failure, shipper.shipped_seq) == (None, db.seq)


class Overtaking(SimServer):
    """A server where another mirror publishes before the first answer."""

    def __init__(self, bucket: SimBucket, overtake: Callable[[], object]) -> None:
        super().__init__(bucket, below="shop/")
        self._overtakes = [overtake]

    def _do(self, what: str, *given: object, **options: object) -> object:
        while self._overtakes:
            self._overtakes.pop()()
        return super()._do(what, *given, **options)  # type: ignore[arg-type]


def test_a_mirror_that_another_one_overtook_is_told_to_try_again(tmp_path: Path) -> None:
    """It leased a record before it saw what the other one published of the same store."""
    bucket = SimBucket()
    with lived(tmp_path / "s") as db:
        mirrored(db.path, at(bucket))

        def overtake() -> None:
            write(db, 1)
            db.checkpoint()
            mirrored(db.path, at(bucket))

        with pytest.raises(BusyError, match="another mirror of this store"):
            mirrored(db.path, Overtaking(bucket, overtake))
        write(db, 2)
        db.checkpoint()
        assert mirrored(db.path, at(bucket)).seq == db.seq


class Hanging(SimServer):
    """Each request runs until the test lets it go, as with a server that takes and says nothing."""

    def __init__(self, bucket: SimBucket) -> None:
        super().__init__(bucket, below="shop/")
        self.hangs = False
        self.begun = threading.Event()
        self.goes_on = threading.Event()

    def _do(self, what: str, *given: object, **options: object) -> object:
        if self.hangs:
            self.begun.set()
            self.goes_on.wait()
        return super()._do(what, *given, **options)  # type: ignore[arg-type]


def test_a_mirror_that_is_stopped_in_a_request_begins_no_other_one(tmp_path: Path) -> None:
    """Each may take the two minutes of the client's timeout: a close would wait for all of them."""
    server = Hanging(SimBucket())
    with lived(tmp_path / "s") as db:
        shipping = Shipping(db, at(server.bucket))
        copied, stopped = threading.Event(), threading.Event()
        following = followed(
            shipping.mirrorer.site, server, stop=Stop(stopped), hears=lambda _: copied.set()
        )
        following.start()
        assert copied.wait(30)
        server.hangs = True
        go_on(db, 1)
        assert server.begun.wait(30)
        ended = threading.Thread(target=following.finish, args=(0.0,))
        ended.start()
        assert stopped.wait(30)
        before = server.requests
        server.hangs = False
        server.goes_on.set()
        ended.join(30)
        assert not ended.is_alive()
        begun = server.trace[before:]
        assert not any("STORE" in each for each in begun), begun


@pytest.mark.parametrize("ships", [False, True])
def test_a_close_waits_for_no_request_that_hangs(tmp_path: Path, ships: bool) -> None:
    """It is done, or not, or done later; what is owed the next owner sends."""
    server = Hanging(SimBucket())
    with lived(tmp_path / "s"):
        pass
    db = with_mirror(tmp_path / "s", server, close_mirror_s=0)
    db.wait_shipped()
    seq = db.seq
    server.hangs = True
    write(db, 1)
    if ships:
        with pytest.raises(NotShippedError):
            db.wait_shipped(timeout_s=0)
        assert server.begun.wait(30)
    db.close()
    assert not server.goes_on.is_set()
    server.hangs = False
    server.goes_on.set()
    with st.connect(tmp_path / "s", background=False) as again:
        assert "mirror" in str(again.status().owed)
    db = with_mirror(tmp_path / "s", server)
    expected = content(db)
    db.close()
    restored(at(server.bucket), tmp_path / "r")
    assert taken_from(tmp_path / "r") == (seq + 1, expected)
