"""The log of shipped commits keeps its promises over a directory and real servers alike."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from siltstone.errors import FencedError
from siltstone.formats.log.log_object import (
    BEGINNING,
    FENCE_BYTES,
    PART_BYTES,
    LoggedGroup,
    LogPlace,
)
from siltstone.storage.objects.log.claim import TakenOver, take_over
from siltstone.storage.objects.log.log import ObjectLog
from siltstone.storage.objects.log.retire import Retirer
from siltstone.storage.objects.objects import side_by_side
from siltstone.storage.objects.server import BucketServer
from siltstone.units import Seq
from tests.nightly import by_day
from tests.storage.objects.logs import group, log_at, new_token, texts

RACES = by_day(2, 10)
OWNERS = 4


def taken_over(log: ObjectLog, floor: LogPlace = BEGINNING) -> TakenOver:
    return take_over(log, lambda: floor, new_token())


def content(log: ObjectLog, floor: LogPlace = BEGINNING) -> list[tuple[int, str]]:
    """Return the commits that the next owner finds; it fences the one before."""
    return texts(each for frame in taken_over(log, floor).frames for each in log.groups(frame))


def test_a_log_is_appended_fenced_read_and_retired(
    make_server: Callable[[], BucketServer],
) -> None:
    server = make_server()
    log = log_at(server)
    first = taken_over(log).writer
    first.append([group(1, "a"), group(2, "b")])
    floor = first.append([group(3, "c")])
    second = taken_over(log_at(server)).writer
    with pytest.raises(FencedError, match="epoch 2 owns"):
        first.append([group(4, "lost")])
    second.append([group(4, "d")])
    assert content(log) == [(1, "a"), (2, "b"), (3, "c"), (4, "d")]
    assert Retirer(log).retire(floor) == 1
    assert content(log, floor) == [(3, "c"), (4, "d")]
    sizes = [head.size for head in log.objects.list_after("wal/") if head.size > FENCE_BYTES]
    assert len(sizes) == 2


def test_a_frame_of_several_parts_comes_back_whole(
    make_server: Callable[[], BucketServer],
) -> None:
    log = log_at(make_server())
    large = bytes(range(256)) * ((PART_BYTES + 1000) // 256)
    place = taken_over(log).writer.append([LoggedGroup(Seq(1), Seq(1), memoryview(large))])
    frame = log.get(place)
    assert frame is not None
    assert [bytes(each.payload) == large for each in log.groups(frame)] == [True]


def test_of_owners_at_once_each_commit_that_was_acknowledged_is_in_the_log_once(
    make_server: Callable[[], BucketServer],
) -> None:
    server, told = make_server(), list[tuple[int, str]]()

    def own(name: str) -> list[tuple[int, str]]:
        log = log_at(server)
        try:
            found = taken_over(log)
            known = texts(each for frame in found.frames for each in log.groups(frame))
            made = known[-1][0] + 1 if known else 1, name
            found.writer.append([group(*made)])
        except FencedError:
            return []
        return [made]

    for race in range(RACES):
        names = [f"{race} by {owner}" for owner in range(OWNERS)]
        for _, acknowledged in side_by_side(own, names):
            told += acknowledged
    found = content(log_at(server))
    assert [seq for seq, _ in found] == sorted({seq for seq, _ in found})
    assert set(told) <= set(found)
    assert told
