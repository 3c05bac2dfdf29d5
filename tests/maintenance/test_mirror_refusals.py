"""What a server refuses a mirror costs no record: the bucket is as before, and the next goes on."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

import siltstone as st
from siltstone.errors import RequestError, UnavailableError
from siltstone.formats import bucket as formats
from siltstone.maintenance.backup.mirror import Mirrored, Mirrorer
from siltstone.storage.files.files import RealFiles
from siltstone.storage.objects.objects import GIVE_UP_S
from siltstone.storage.objects.probe import probe
from siltstone.storage.objects.server import Unanswered
from siltstone.storage.site import Site
from tests.maintenance.mirrors import (
    TABLES,
    at,
    content,
    content_of,
    go_on,
    lived,
    mirrored,
    objects_of,
)
from tests.nightly import by_day
from tests.storage.objects.logs import SleepyServer
from tests.support.simulated_objects import Fault, SimBucket, SimServer

EVERY = by_day(9, 1)
"""Of so many requests one is the first that is refused."""
tokens = itertools.count()


@dataclass
class RefusingServer(SimServer):
    """A server that refuses one verb, as to a client without the right."""

    verb: str = ""

    def _do(
        self, what: str, request: Callable[[], object], *, has_condition: bool = False
    ) -> object:
        if what.startswith(self.verb):
            self.trace.append(what)
            raise UnavailableError(f"no right to {what}: 403 AccessDenied")
        return super()._do(what, request, has_condition=has_condition)


@dataclass
class BusyServer(SimServer):
    """A server that is busy from request `begin` on, for `left` requests."""

    begin: int = 0
    left: int = 0

    def _do(
        self, what: str, request: Callable[[], object], *, has_condition: bool = False
    ) -> object:
        if len(self.trace) >= self.begin and self.left:
            self.left -= 1
            raise Unanswered("503 SlowDown")
        return super()._do(what, request, has_condition=has_condition)


def probed(root: Path, server: SimServer) -> Mirrored:
    """Mirror as a process does that asks the server first what it can do."""

    def ask(objects: object) -> str:
        del objects
        probe(objects_of(server), f"token-{next(tokens)}", server.bucket.now)
        return "simulated"

    return Mirrorer(Site.of(root, RealFiles(), TABLES), objects_of(server), ask).run()


@pytest.fixture
def db(tmp_path: Path) -> Iterator[st.Store]:
    with lived(tmp_path / "s") as store:
        yield store


@pytest.fixture
def bucket() -> SimBucket:
    return SimBucket()


@pytest.mark.parametrize("verb", ["list", "get", "put", "delete"])
def test_a_right_that_is_missing_is_named_and_once_it_is_there_the_mirror_begins(
    db: st.Store, bucket: SimBucket, tmp_path: Path, verb: str
) -> None:
    with pytest.raises(UnavailableError, match=f"no right to {verb} .*403"):
        probed(db.path, RefusingServer(bucket, below="shop/", verb=verb))
    assert not [key for key in bucket.objects if "/probe/" not in key and "/now/" not in key]
    assert probed(db.path, at(bucket)).record == 1
    assert content_of(at(bucket), tmp_path / "r") == (db.seq, content(db))


@pytest.mark.parametrize("is_first", [True, False])
def test_a_token_that_expires_at_any_request_leaves_the_record_of_before_and_a_new_one_goes_on(
    db: st.Store, bucket: SimBucket, tmp_path: Path, *, is_first: bool
) -> None:
    before = None
    if not is_first:
        before = mirrored(db.path, at(bucket)).seq, content(db)
        go_on(db, 1)
    learning = SimServer(SimBucket(dict(bucket.objects)), below="shop/")
    mirrored(db.path, learning)
    published = learning.trace.index(f"put {formats.record_key(1 if is_first else 2)}") + 1
    for first in range(1, published + 1, EVERY):
        left = SimBucket(dict(bucket.objects))
        expired = dict.fromkeys(range(first, 1000), Fault.DENIED)
        with pytest.raises(UnavailableError, match="no right to"):
            mirrored(db.path, SimServer(left, expired, "shop/"))
        if before is not None:
            assert content_of(at(left), tmp_path / "r") == before, first
        mirrored(db.path, at(left))
        assert content_of(at(left), tmp_path / "r") == (db.seq, content(db)), first


def test_a_server_that_is_busy_for_less_than_a_minute_delays_a_mirror_alone(
    db: st.Store, bucket: SimBucket, tmp_path: Path
) -> None:
    for begin in range(1, 12, EVERY):
        left = SimBucket()
        mirrored(db.path, BusyServer(left, below="shop/", begin=begin, left=int(GIVE_UP_S) // 2))
        assert content_of(at(left), tmp_path / "r") == (db.seq, content(db)), begin


def test_a_server_that_is_busy_for_longer_ends_a_mirror_and_the_next_one_goes_on(
    db: st.Store, bucket: SimBucket, tmp_path: Path
) -> None:
    first = mirrored(db.path, at(bucket)).seq, content(db)
    go_on(db, 1)
    for begin in range(1, 9, EVERY):
        left = SimBucket(dict(bucket.objects))
        busy = BusyServer(left, below="shop/", begin=begin, left=10_000)
        with pytest.raises(UnavailableError, match="503 SlowDown; tried again for"):
            mirrored(db.path, busy)
        assert content_of(at(left), tmp_path / "r") == first, begin
        mirrored(db.path, at(left))
        assert content_of(at(left), tmp_path / "r") == (db.seq, content(db)), begin


def test_of_two_stores_that_begin_at_one_url_at_once_one_has_it_and_the_other_is_refused(
    db: st.Store, bucket: SimBucket, tmp_path: Path
) -> None:
    with lived(tmp_path / "other") as other:
        learning = at(SimBucket())
        mirrored(db.path, learning)
        claims = [number for number, what in enumerate(learning.trace) if what == "put STORE"]
        for begin in range(1, claims[0] + 2):
            left = SimBucket()
            overtaken = {begin: lambda left=left: mirrored(other.path, at(left))}
            with pytest.raises(RequestError, match=r"has the mirror of|nor a mirror"):
                mirrored(db.path, SleepyServer(left, below="shop/", asleep=overtaken))
            assert content_of(at(left), tmp_path / "r") == (other.seq, content(other)), begin
