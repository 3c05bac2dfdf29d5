"""Objects keep their promises over a simulated bucket, a directory and real servers alike."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from siltstone.storage.objects.objects import (
    Lost,
    Made,
    Objects,
    Taken,
    side_by_side,
)
from siltstone.storage.objects.probe import probe
from siltstone.storage.objects.server import PART_BYTES, BucketServer, Streamed
from tests.nightly import by_day

RACES = by_day(4, 100)
CLIENTS = 16
pytestmark = pytest.mark.timeout(by_day(300, 3_600))  # SeaweedFS takes up to 7 s for a race


@pytest.fixture
def objects(make_server: Callable[[], BucketServer]) -> Objects:
    return Objects(make_server())


def test_what_was_put_is_there_and_what_was_not_is_absent(objects: Objects) -> None:
    assert objects.get("a/b") is None
    assert objects.head("a/b") is None
    etag = objects.put("a/b", b"bytes")
    found = objects.get("a/b")
    assert found is not None
    assert (found.data, found.etag, found.head.size) == (b"bytes", etag, 5)
    assert objects.head("a/b") == found.head


def test_a_range_is_of_the_bytes_asked_for_and_shorter_at_the_end(objects: Objects) -> None:
    objects.put("r", bytes(range(100)))
    found = objects.get_range("r", 10, 20)
    assert found is not None
    assert found.data == bytes(range(10, 20))
    assert found.head.size == 100
    end = objects.get_range("r", 90, 200)
    assert end is not None
    assert end.data == bytes(range(90, 100))
    assert objects.get_range("absent", 0, 1) is None


def test_the_first_put_of_a_key_is_the_only_one(objects: Objects) -> None:
    assert isinstance(objects.put_new("k", b"ours"), Made)
    taken = objects.put_new("k", b"theirs")
    assert isinstance(taken, Taken)
    assert taken.found.data == b"ours"
    assert isinstance(objects.put_new("k", b"ours"), Made)  # as after an answer that was lost
    objects.delete(["k"])
    assert isinstance(objects.put_new("k", b"theirs"), Made)


def test_a_put_on_an_etag_is_done_while_the_object_has_it(objects: Objects) -> None:
    assert isinstance(objects.put_if("k", b"x", '"no-such-etag"'), Lost)
    first = objects.put("k", b"1")
    second = objects.put_if("k", b"2", first)
    assert isinstance(second, Made)
    lost = objects.put_if("k", b"3", first)
    assert isinstance(lost, Lost)
    assert lost.found is not None
    assert lost.found.data == b"2"
    assert isinstance(objects.put_if("k", b"4", second.etag), Made)


def test_a_list_has_all_keys_in_their_order_from_any_key_on(objects: Objects) -> None:
    keys = sorted([f"l/{number:03d}" for number in range(20)] + ["l/sub/x", "l/sub/y", "m/other"])
    for _ in side_by_side(lambda key: objects.put(key, key.encode()), keys):
        pass
    assert [head.key for head in objects.list_after("")] == keys
    mine = [key for key in keys if key.startswith("l/")]
    assert [(head.key, head.size) for head in objects.list_after("l/")] == [
        (key, len(key)) for key in mine
    ]
    assert [head.key for head in objects.list_after("l/", "l/015")] == mine[16:]
    assert list(objects.list_after("nothing/")) == []


def test_what_was_deleted_is_absent_and_a_delete_of_nothing_is_none(objects: Objects) -> None:
    for key in ("d/1", "d/2", "d/3"):
        objects.put(key, b"x")
    objects.delete(["d/1", "d/2", "d/none"])
    assert [head.key for head in objects.list_after("d/")] == ["d/3"]
    assert objects.get("d/1") is None


def test_a_large_object_is_put_in_parts_and_is_whole_or_absent(objects: Objects) -> None:
    parts = [bytes([number]) * PART_BYTES for number in range(2)] + [b"end"]
    size = sum(map(len, parts))
    objects.put("big", Streamed(size, lambda: iter(parts)))
    head = objects.head("big")
    assert head is not None
    assert head.size == size
    found = objects.get_range("big", PART_BYTES - 2, PART_BYTES + 2)
    assert found is not None
    assert found.data == b"\0\0\1\1"

    def cut() -> Iterator[bytes]:
        yield from parts[:2]
        raise ValueError("the source is damaged")

    with pytest.raises(ValueError, match="damaged"):
        objects.put("half", Streamed(size, cut))
    assert objects.get("half") is None


def test_of_racing_first_puts_exactly_one_is_made(
    make_server: Callable[[], BucketServer],
) -> None:
    objects = Objects(make_server())
    for race in range(RACES):
        puts = [f"{race} by {client}".encode() for client in range(CLIENTS)]
        key = f"race/{race}"
        done = list(side_by_side(lambda data, key=key: objects.put_new(key, data), puts))
        won = [data for data, answer in done if isinstance(answer, Made)]
        found = objects.get(key)
        assert found is not None
        assert [found.data] == won
        assert len(done) == CLIENTS


def test_of_racing_puts_on_one_etag_exactly_one_is_made(objects: Objects) -> None:
    for race in range(RACES // 2):
        key = f"race/{race}"
        etag = objects.put(key, b"old")
        puts = [f"{race} by {client}".encode() for client in range(CLIENTS)]
        done = list(
            side_by_side(lambda data, key=key, etag=etag: objects.put_if(key, data, etag), puts)
        )
        won = [data for data, answer in done if isinstance(answer, Made)]
        found = objects.get(key)
        assert found is not None
        assert [found.data] == won


def test_the_server_has_a_time_of_its_own(objects: Objects) -> None:
    first = objects.now("token")
    assert objects.now("token") >= first > 0


def test_a_sound_server_passes_the_probe_which_leaves_nothing(objects: Objects) -> None:
    probe(objects, "token", lambda: objects.now("asked"))
    objects.delete(["now/asked"])
    assert list(objects.list_after("")) == []
    assert objects.counts.by_caller()["probe", "put"] >= 4 * CLIENTS
