"""A mirror that ends, fails or is answered wrongly at any request leaves a bucket that opens.

It holds the record of before, or the new one, each whole and over all tables; the next mirror goes
on, and whatever landed late changes nothing.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

import siltstone as st
from siltstone.errors import SiltstoneError
from siltstone.maintenance.backup.following import Stop
from siltstone.maintenance.backup.mirror import Mirrored
from siltstone.storage.bucket.bucket import Bucket
from tests.maintenance.mirrors import (
    Content,
    at,
    content,
    content_of,
    followed,
    go_on,
    lived,
    mirrored,
    mirrorer,
    objects_of,
    restored,
    taken_from,
)
from tests.nightly import by_day
from tests.support.simulated_objects import Fault, SimBucket, SimServer, SimulatedKill

TRIED_MAX = by_day(16, 10_000)
pytestmark = pytest.mark.timeout(by_day(300, 3_600))


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, SimBucket, dict]]:
    """Return a store with one mirrored record, that bucket, and the rows of each seq."""
    root = tmp_path_factory.mktemp("mirror-kill") / "s"
    bucket = SimBucket()
    with lived(root) as db:
        expected: dict[int, Content] = {}
        expected[mirrored(root, at(bucket)).seq] = content(db)
        go_on(db, 1)
        expected[db.seq] = content(db)
        yield root, bucket, expected


def copy_of(bucket: SimBucket) -> SimBucket:
    return SimBucket(dict(bucket.objects))


def moments(requests: int) -> list[tuple[int, Fault]]:
    """Return some of all requests with a fault each; by night all."""
    every = [(number, fault) for number in range(1, requests + 1) for fault in Fault]
    if len(every) <= TRIED_MAX:
        return every
    return random.Random(7).sample(every, TRIED_MAX)


def attempt(root: Path, server: SimServer) -> bool:
    try:
        mirrored(root, server)
    except (SimulatedKill, SiltstoneError):
        return False
    return True


def test_a_mirror_cut_off_at_any_request_leaves_a_whole_record_and_the_next_goes_on(
    story, tmp_path: Path
) -> None:
    root, bucket, expected = story
    learning = at(copy_of(bucket))
    assert attempt(root, learning)
    old, new = sorted(expected)
    ends = set()
    for number, fault in moments(learning.requests):
        left = copy_of(bucket)
        server = SimServer(left, {number: fault}, "shop/")
        is_done = attempt(root, server)
        seq, rows = content_of(at(left), tmp_path / "r")
        label = f"request {number}: {fault.value}"
        assert seq == new if is_done else seq in expected, label
        assert rows == expected[seq], label
        ends.add(seq)
        assert attempt(root, at(left)), label
        server.is_killed = False
        server.land()
        assert content_of(at(left), tmp_path / "r") == (new, expected[new]), label
        assert Bucket(objects_of(at(left))).numbers() == [1, 2], label
    assert ends == {old, new}


def test_a_first_mirror_cut_off_at_any_request_is_none_or_whole(story, tmp_path: Path) -> None:
    root, _, expected = story
    learning = at(SimBucket())
    assert attempt(root, learning)
    new = max(expected)
    for number, fault in moments(learning.requests):
        left = SimBucket()
        server = SimServer(left, {number: fault}, "shop/")
        is_done = attempt(root, server)
        label = f"request {number}: {fault.value}"
        if Bucket(objects_of(at(left))).numbers():
            assert content_of(at(left), tmp_path / "r") == (new, expected[new]), label
        else:
            assert not is_done, label
        assert attempt(root, at(left)), label
        server.is_killed = False
        server.land()
        assert content_of(at(left), tmp_path / "r") == (new, expected[new]), label


def test_a_restore_cut_off_at_any_request_is_no_store_or_whole_and_goes_on(
    story, tmp_path: Path
) -> None:
    root, bucket, expected = story
    left = copy_of(bucket)
    assert attempt(root, at(left))
    learning = at(left)
    new = max(expected)
    assert content_of(learning, tmp_path / "learnt") == (new, expected[new])
    for number, fault in moments(learning.requests)[: TRIED_MAX // 2]:
        server = SimServer(left, {number: fault}, "shop/")
        label = f"request {number}: {fault.value}"
        target = tmp_path / f"r{number}-{fault.name}"
        ended: BaseException | None = None
        try:
            restored(server, target)
        except (SimulatedKill, SiltstoneError) as error:
            ended = error
        is_made = any(target.glob("manifest/*.json"))
        # Killed when it gave its lease back, it had made the store.
        assert not (is_made and isinstance(ended, SiltstoneError)), label
        if not is_made:
            restored(at(left), target)
        assert taken_from(target) == (new, expected[new]), label


def follow(db: st.Store, server: SimServer, fault: tuple[int, Fault] | None) -> bool:
    """Mirror twice without a second look at the bucket; `fault` hits a request of the second."""
    heard: list[Mirrored] = []
    stop = Stop()

    def hears(made: Mirrored) -> None:
        heard.append(made)
        if len(heard) > 1:
            stop.set()
            return
        go_on(db, 2)
        server.trace.clear()
        if fault is not None:
            server.faults[fault[0]] = fault[1]

    try:
        followed(mirrorer(db.path, server).site, server, stop=stop, hears=hears).run()
    except SimulatedKill:
        return False
    return True


def test_the_second_publish_of_a_mirror_that_goes_on_is_cut_off_at_any_request(
    tmp_path: Path,
) -> None:
    """It knows what the bucket has, and asks no more. Where it lives, it tries again."""
    with lived(tmp_path / "s") as db:
        learning = at(SimBucket())
        assert follow(db, learning, None)
        ends = set()
        for number, fault in moments(learning.requests)[: TRIED_MAX // 3]:
            old, before = db.seq, content(db)
            left = SimBucket()
            server = at(left)
            is_done = follow(db, server, (number, fault))
            expected = {old: before, db.seq: content(db)}
            label = f"request {number}: {fault.value}"
            seq, rows = content_of(at(left), tmp_path / "r")
            assert seq == db.seq if is_done else seq in expected, label
            assert rows == expected[seq], label
            ends.add(seq == old)
            server.is_killed = False
            server.land()
            assert attempt(db.path, at(left)), label
            assert content_of(at(left), tmp_path / "r") == (db.seq, expected[db.seq]), label
    assert ends == {True, False}
