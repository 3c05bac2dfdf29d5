"""An owner and a reader have accounts of their own, and each needs no right but those of its work.

The owner's is for one prefix of a bucket that others share; the reader's may only read there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

import siltstone as st
from siltstone.errors import UnavailableError
from tests.maintenance.far_readers import reader_at
from tests.maintenance.mirrors import Content, content, go_on, lived, mirrored, restored, taken_from
from tests.maintenance.test_bucket_vacuum import vacuumed
from tests.maintenance.test_shipping import Shipping, write
from tests.support.simulated_objects import SimBucket, SimServer

READS = {"get", "head", "list"}
ALL = READS | {"put", "delete"}


@dataclass
class AccountServer(SimServer):
    """A server as an account sees it that has some rights below `allowed`, and none elsewhere."""

    allowed: str = ""
    rights: set[str] = field(default_factory=set[str])
    refused: list[str] = field(default_factory=list)

    def _do(
        self, what: str, request: Callable[[], object], *, has_condition: bool = False
    ) -> object:
        verb, _, key = what.partition(" ")
        if verb not in self.rights or not f"{self.below}{key}".startswith(self.allowed):
            self.refused.append(what)
            raise UnavailableError(f"no right to {what}: 403 AccessDenied")
        return super()._do(what, request, has_condition=has_condition)


def owner(bucket: SimBucket) -> AccountServer:
    return AccountServer(bucket, below="lake/shop/", allowed="lake/shop/", rights=ALL)


def reader(bucket: SimBucket, below: str = "lake/shop/") -> AccountServer:
    return AccountServer(bucket, below=below, allowed="lake/shop/", rights=READS)


@pytest.fixture
def bucket() -> SimBucket:
    """Return a bucket that others use, too."""
    foreign = ("lake/shop", "lake/shop2/STORE", "lake/other/tables/x", "STORE", "wal/0")
    return SimBucket(dict.fromkeys(foreign, (b"of others", 0.0)))


@pytest.fixture
def db(tmp_path: Path) -> Iterator[st.Store]:
    with lived(tmp_path / "s", retention_s=0) as store:
        yield store


def test_an_owner_needs_rights_below_its_prefix_alone_and_touches_nothing_else(
    db: st.Store, bucket: SimBucket, tmp_path: Path
) -> None:
    others, server = dict(bucket.objects), owner(bucket)
    shipping = Shipping(db, server)
    shipping.mirror()
    write(db, 1)
    assert shipping.ship() == db.seq
    shipping.shipper.finish(0)
    for number in range(3):
        go_on(db, number)
        mirrored(db.path, owner(bucket))
    db.merge()
    db.vacuum(dry_run=False, grace_s=0)
    assert vacuumed(db.path, server, retention_s=0).records
    restored(owner(bucket), tmp_path / "r")
    assert taken_from(tmp_path / "r") == (db.seq, content(db))
    assert server.refused == []
    assert {key: bucket.objects[key] for key in others} == others


def test_a_reader_that_may_only_read_one_prefix_follows_restores_and_changes_nothing(
    db: st.Store, bucket: SimBucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shipping = Shipping(db, owner(bucket))
    shipping.mirror()
    server = reader(bucket)
    with reader_at(server, db.path, monkeypatch) as far:
        for number in range(3):
            write(db, number)
            shipping.ship()
            assert seen_by(far) == seen_by(db)
        go_on(db, 1)
        shipping.mirror()
        assert seen_by(far) == seen_by(db)
        past = far.snapshot(tag="first")
        assert past["keyed"].get(7) == {"id": 7, "v": "v7"}
        there = dict(bucket.objects)
    assert {each.partition("/")[0] for each in server.refused} <= {"put leases", "delete leases"}
    restored(reader(bucket), tmp_path / "r")
    assert taken_from(tmp_path / "r") == seen_by(db)
    go_on(db, 2)
    with pytest.raises(UnavailableError, match=r"no right to put .*403 AccessDenied"):
        mirrored(db.path, reader(bucket), take=True)
    for below in ("lake/shop2/", "lake/other/", ""):
        with pytest.raises(UnavailableError, match="no right to list manifest/: 403 AccessDenied"):
            reader_at(reader(bucket, below), db.path, monkeypatch)
    assert bucket.objects == there


def seen_by(db: st.Store) -> tuple[int, Content]:
    return db.seq, content(db)
