"""A log of objects gives back what was acknowledged, to the one process that may go on with it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from siltstone.errors import CorruptionError, FencedError, UnavailableError
from siltstone.formats.log import log_object as formats
from siltstone.formats.log.log_object import (
    BEGINNING,
    FENCE_BYTES,
    PART_BYTES,
    Kind,
    LoggedGroup,
    LogObject,
    LogPlace,
)
from siltstone.storage.objects.log.claim import TakenOver, take_over
from siltstone.storage.objects.log.log import AHEAD_MAX, LogWalk, walking
from siltstone.storage.objects.log.retire import Retirer
from siltstone.units import Seq
from tests.storage.objects.logs import Bucket, Process, group, log_at, new_token, texts
from tests.support.simulated_objects import Fault


def steps_of(walk: LogWalk) -> Iterator[LogObject]:
    while (found := walk.step()) is not None:
        yield found


def begun(bucket: Bucket) -> TakenOver:
    return take_over(log_at(bucket.server()), lambda: bucket.floor, new_token())


def test_a_new_log_is_empty_and_its_first_frame_is_behind_a_fence():
    bucket = Bucket()
    found = begun(bucket)
    assert (found.epoch, found.frames) == (1, ())
    assert found.writer.append([group(1, "a")]) == LogPlace(1, 2)
    assert bucket.content() == [(1, "a")]


def test_a_frame_has_the_groups_that_waited_for_it_each_with_its_own_seqs():
    bucket = Bucket()
    writer = begun(bucket).writer
    writer.append([group(1, "one", 3), group(4, "two"), group(5, "three", 2)])
    log = log_at(bucket.server())
    frame = log.get(LogPlace(1, 2))
    assert frame is not None
    assert (frame.first_seq, frame.last_seq) == (1, 6)
    assert [(each.first_seq, each.last_seq) for each in log.groups(frame)] == [
        (1, 3), (4, 4), (5, 6),
    ]  # fmt: skip
    assert texts(log.groups(frame)) == [(1, "one"), (4, "two"), (5, "three")]


def test_each_frame_is_one_put_and_one_request():
    bucket = Bucket()
    server = bucket.server()
    writer = take_over(log_at(server), lambda: bucket.floor, new_token()).writer
    server.trace.clear()
    for seq in range(1, 4):
        writer.append([group(seq, "x")])
    assert server.trace == [f"put {LogPlace(1, number).key}" for number in (2, 3, 4)]


def test_a_frame_above_the_size_of_a_part_lies_in_parts_that_are_put_before_it():
    bucket = Bucket()
    server = bucket.server()
    writer = take_over(log_at(server), lambda: bucket.floor, new_token()).writer
    large = bytes(range(256)) * ((PART_BYTES + 1000) // 256)
    server.trace.clear()
    place = writer.append([LoggedGroup(Seq(1), Seq(1), memoryview(large)), group(2, "small")])
    assert server.trace[-1] == f"put {place.key}"
    assert sorted(server.trace[:-1]) == [f"put {place.part(0)}", f"put {place.part(1)}"]
    log = log_at(bucket.server())
    frame = log.get(place)
    assert frame is not None
    assert frame.kind is Kind.PARTED
    assert [bytes(each.payload) for each in log.groups(frame)] == [large, b"small"]
    writer.append([group(3, "next")])
    bucket.floor = writer.at
    assert Retirer(log).retire(bucket.floor) == 4
    assert bucket.content() == []


def test_a_later_owner_fences_the_one_before_and_goes_on_behind_it():
    bucket = Bucket()
    first = begun(bucket).writer
    first.append([group(1, "a")])
    second = begun(bucket)
    assert second.epoch == 2
    assert [frame.place for frame in second.frames] == [LogPlace(1, 2)]
    with pytest.raises(FencedError, match="epoch 2 owns"):
        first.append([group(2, "lost")])
    second.writer.append([group(2, "b")])
    assert bucket.content() == [(1, "a"), (2, "b")]


def test_a_claimer_that_is_too_late_ends():
    bucket = Bucket()
    others = iter([BEGINNING])

    def floor():
        if next(others, None) is None:  # behind our claim another one claims, and wins
            begun(bucket)
        return bucket.floor

    with pytest.raises(FencedError):
        take_over(log_at(bucket.server()), floor, new_token())


def test_a_barrier_stops_an_owner_that_wins_every_race():
    bucket, told = Bucket(), []
    writer = begun(bucket).writer
    server = bucket.server()
    put = server.put

    def slow(key: str, data: bytes, **options: Any) -> str:
        """Let the owner write before each put of the claimer arrives."""
        if not told or len(told) < 100:
            try:
                writer.append([group(len(told) + 1, "o")])
                told.append((len(told) + 1, "o"))
            except FencedError:
                pass
        return put(key, data, **options)

    server.put = slow  # pyright: ignore[reportAttributeAccessIssue]
    take_over(log_at(server), lambda: bucket.floor, new_token())
    assert 4 <= len(told) < 20
    assert bucket.content() == told


def test_a_put_without_an_answer_is_repeated_under_its_number_before_anything_else():
    bucket = Bucket()
    server = bucket.server()
    writer = take_over(log_at(server), lambda: bucket.floor, new_token()).writer
    server.always = Fault.NOT_DONE
    with pytest.raises(UnavailableError):
        writer.append([group(1, "a")])
    assert writer.is_in_doubt
    server.always = None
    assert writer.again() == LogPlace(1, 2)
    assert not writer.is_in_doubt
    writer.append([group(2, "b")])
    assert bucket.content() == [(1, "a"), (2, "b")]


def test_objects_are_asked_for_ahead_as_long_as_they_are_there():
    bucket = Bucket()
    writer = begun(bucket).writer
    for seq in range(1, 41):
        writer.append([group(seq, "x")])
    server = bucket.server()
    with walking(log_at(server), LogPlace(1, 2)) as walk:
        seqs = [found.first_seq for found in steps_of(walk)]
    assert seqs == list(range(1, 41))
    assert 40 < server.requests <= 40 + 2 * AHEAD_MAX
    with walking(log_at(server), walk.at) as idle:
        before = server.requests
        assert idle.step() is None
    assert server.requests == before + 1


def test_retiring_deletes_frames_below_the_floor_and_no_fence_or_claim():
    bucket = Bucket()
    for name in "abc":
        Process(name, bucket, bucket.server()).run(2)
    floor = begun(bucket).writer.at
    log = log_at(bucket.server())
    fences = [each.key for each in log.names("") if each.is_fence]
    retirer = Retirer(log)
    assert retirer.retire(floor, most=4) == 4
    assert retirer.retire(floor) == 2
    assert retirer.retire(floor) == 0
    assert [each.key for each in log.names("")] == fences
    bucket.floor, bucket.held = floor, [(1, "held")]
    assert bucket.content() == [(1, "held")]


def test_the_keys_of_a_log_are_in_the_order_of_its_places():
    places = [LogPlace(0, 1), LogPlace(1, 0), LogPlace(1, 2), LogPlace(1, 10), LogPlace(2, 11)]
    assert sorted(place.key for place in places) == [place.key for place in places]
    assert [formats.place_of(place.key) for place in places] == [(p, False) for p in places]
    assert formats.place_of(LogPlace(1, 2).part(3)) == (LogPlace(1, 2), True)
    assert formats.place_of("wal/now") is None


# damage


def written(count: int = 4) -> Bucket:
    """Return a log of two epochs with so many frames each."""
    bucket = Bucket()
    for name in "ab":
        Process(name, bucket, bucket.server()).run(count)
    return bucket


def walked(bucket: Bucket) -> list[tuple[int, str]]:
    """Return what a reader finds that changes nothing."""
    log = log_at(bucket.server())
    with walking(log, bucket.floor) as walk:
        found = [each for each in steps_of(walk) if each.is_frame]
        walk.refuse_a_hole()
    return [each for frame in found for each in texts(log.groups(frame))]


def test_each_byte_of_each_object_is_checked():
    bucket = written(1)
    whole = walked(bucket)
    for key in [key for key in bucket.objects.objects if not key.endswith(f"{0:020d}")]:
        data, modified = bucket.objects.objects[key]
        for at in range(len(data)):
            changed = data[:at] + bytes([data[at] ^ 0x10]) + data[at + 1 :]
            bucket.objects.objects[key] = changed, modified
            with pytest.raises(CorruptionError, match="wal/"):
                walked(bucket)
        for size in (0, 1, len(data) - 1):
            bucket.objects.objects[key] = data[:size], modified
            with pytest.raises(CorruptionError, match="wal/"):
                walked(bucket)
        bucket.objects.objects[key] = data, modified
    assert walked(bucket) == whole


def test_each_object_that_is_gone_is_missed_but_for_the_last_one():
    bucket = written()
    whole = walked(bucket)
    keys = sorted(key for key in bucket.objects.objects if not key.endswith(f"{0:020d}"))
    for key in keys[:-1]:
        gone = bucket.objects.objects.pop(key)
        with pytest.raises(CorruptionError, match=f"{key}.*missing"):
            walked(bucket)
        bucket.objects.objects[key] = gone
    bucket.objects.objects.pop(keys[-1])  # nobody but the server knows that it was there
    assert walked(bucket) == whole[:-1]


def test_the_last_frame_of_an_epoch_that_is_gone_is_missed_by_the_fence_behind_it():
    bucket = written(2)
    begun(bucket)  # it ended before its first frame
    with walking(log_at(bucket.server()), bucket.floor) as walk:
        *_, frame, fence = list(steps_of(walk))
    assert (frame.is_frame, fence.is_frame) == (True, False)
    del bucket.objects.objects[f"shop/{frame.place.key}"]
    with pytest.raises(CorruptionError, match=f"{frame.place.key}.*missing"):
        walked(bucket)


def test_a_barrier_ahead_of_the_end_is_no_hole():
    """Who put it died, or was refused, before its fence was at the first absent number."""
    bucket = written(2)
    whole = walked(bucket)
    with walking(log_at(bucket.server()), bucket.floor) as walk:
        *_, last = list(steps_of(walk))
    epoch, number = last.place
    ahead = LogPlace(epoch, number + 5)
    data, _ = formats.encode(Kind.FENCE, ahead, (epoch + 1, epoch + 1), new_token(), 0)
    bucket.objects.objects[f"shop/{ahead.key}"] = data, 0.0
    assert walked(bucket) == whole


def died_over_a_retired_log(bucket: Bucket, stale: LogPlace, count: int) -> None:
    """Have claimers die that had read a floor of before: each put its fence, none looked again."""
    for _ in range(count):
        floors = iter([stale, stale])
        with pytest.raises(StopIteration):  # killed before it reads the floor again
            take_over(log_at(bucket.server()), lambda floors=floors: next(floors), new_token())


@pytest.mark.parametrize("dead", range(1, 7))
@pytest.mark.parametrize("held", [1, 2, 4])
def test_fences_of_claimers_that_died_over_a_retired_log_are_no_hole(held: int, dead: int) -> None:
    """Each lies one number higher than the one before it, the last ones beyond the log's end."""
    bucket = Bucket()
    writer = begun(bucket).writer
    for seq in range(1, held + 1):
        writer.append([group(seq, "held")])
    stale, bucket.floor = bucket.floor, writer.at
    Retirer(log_at(bucket.server())).retire(bucket.floor)
    died_over_a_retired_log(bucket, stale, dead)
    assert walked(bucket) == []
    whole: list[tuple[int, str]] = []
    for seq in range(held + 1, held + dead + 3):
        writer.append([group(seq, "next")])
        whole.append((seq, "next"))
        assert walked(bucket) == whole
    Process("z", bucket, bucket.server()).run(2)
    whole += [(held + dead + 3, "z"), (held + dead + 4, "z")]
    assert walked(bucket) == whole


@pytest.mark.parametrize("dead", [1, 3, 6])
def test_beside_fences_of_dead_claimers_each_object_that_is_gone_is_missed(dead: int) -> None:
    bucket = Bucket()
    writer = begun(bucket).writer
    writer.append([group(1, "held")])
    stale, bucket.floor, bucket.held = bucket.floor, writer.at, [(1, "held")]
    Retirer(log_at(bucket.server())).retire(bucket.floor)
    died_over_a_retired_log(bucket, stale, dead)
    whole = [(2, "next"), (3, "next")]
    for seq, text in whole:
        writer.append([group(seq, text)])
    for name in "ab":
        Process(name, bucket, bucket.server()).run(2)
        whole += [(whole[-1][0] + 1, name), (whole[-1][0] + 2, name)]
    assert walked(bucket) == whole
    with walking(log_at(bucket.server()), bucket.floor) as walk:
        keys = [f"shop/{each.place.key}" for each in steps_of(walk)]
    for key in keys[:-1]:
        gone = bucket.objects.objects.pop(key)
        with pytest.raises(CorruptionError, match=f"{key}.*missing"):
            walked(bucket)
        bucket.objects.objects[key] = gone


def test_fences_of_a_log_that_went_on_do_not_excuse_one_that_is_gone():
    """No frame is behind it: claimers died one after the other, each at the end of the log."""
    bucket = written(1)
    found = begun(bucket)  # each ended before its first frame
    for _ in range(3):
        found = begun(bucket)
    whole = walked(bucket)
    with walking(log_at(bucket.server()), bucket.floor) as walk:
        keys = [f"shop/{each.place.key}" for each in steps_of(walk)]
    assert keys[-1] == f"shop/{LogPlace(found.epoch - 1, found.writer.at.number - 1).key}"
    for key in keys[:-1]:
        gone = bucket.objects.objects.pop(key)
        with pytest.raises(CorruptionError, match=f"{key}.*missing"):
            walked(bucket)
        bucket.objects.objects[key] = gone
    assert walked(bucket) == whole


def late(bucket: Bucket, *floors: LogPlace) -> TakenOver:
    """Have a claimer read these floors, and then those that are true."""
    known = iter(floors)
    return take_over(log_at(bucket.server()), lambda: next(known, bucket.floor), new_token())


def retired(count: int) -> Bucket:
    """Return a log whose first frames were deleted; it goes on behind them."""
    bucket = Bucket()
    writer = begun(bucket).writer
    for seq in range(1, count + 1):
        writer.append([group(seq, "held")])
    bucket.floor, bucket.held = writer.at, [(seq, "held") for seq in range(1, count + 1)]
    Retirer(log_at(bucket.server())).retire(bucket.floor)
    return bucket


def test_claimers_that_died_before_and_after_an_owner_leave_no_hole():
    """The last ones went over fences of epochs that are lower than the one that is the log."""
    bucket = retired(1)
    died_over_a_retired_log(bucket, BEGINNING, 4)
    begun(bucket)
    died_over_a_retired_log(bucket, BEGINNING, 3)
    assert walked(bucket) == []


def test_a_fence_that_is_gone_is_missed_though_its_claimer_put_another_one_too_early():
    """It had read a floor of before; and over its first fence another claimer died."""
    bucket = retired(3)
    late(bucket, BEGINNING, BEGINNING)
    died_over_a_retired_log(bucket, BEGINNING, 1)
    begun(bucket)
    assert walked(bucket) == []
    del bucket.objects.objects[f"shop/{bucket.floor.key}"]
    with pytest.raises(CorruptionError, match=f"{bucket.floor.key}.*missing"):
        walked(bucket)


def test_a_fence_that_is_gone_is_missed_though_one_of_its_claimer_lies_beside_it():
    """Both end at the same number: that in the log, and that over fences of who died."""
    bucket = retired(2)
    died_over_a_retired_log(bucket, BEGINNING, 2)
    late(bucket, BEGINNING, BEGINNING)
    begun(bucket)
    assert walked(bucket) == []
    del bucket.objects.objects[f"shop/{bucket.floor.key}"]
    with pytest.raises(CorruptionError, match=f"{bucket.floor.key}.*missing"):
        walked(bucket)


@pytest.mark.parametrize("dead", range(1, 5))
@pytest.mark.parametrize("told", range(5))
def test_a_late_claimer_that_walks_over_fences_of_the_dead_ends_no_log_for_ever(
    dead: int, told: int
) -> None:
    """Its fence lies where the owner, who was late as well, comes by: it ends that one alone."""
    bucket = retired(1)
    died_over_a_retired_log(bucket, BEGINNING, dead)
    owner, whole = late(bucket, BEGINNING, BEGINNING).writer, list[tuple[int, str]]()
    died_over_a_retired_log(bucket, BEGINNING, 1)
    assert walked(bucket) == whole
    for seq in range(2, 2 + told):
        try:
            owner.append([group(seq, "owner")])
        except FencedError:
            break
        whole.append((seq, "owner"))
        assert walked(bucket) == whole
    late(bucket, BEGINNING, BEGINNING).writer.append([group(9, "next")])
    whole.append((9, "next"))
    assert walked(bucket) == whole
    assert bucket.content() == bucket.held + whole


def test_an_object_under_the_key_of_another_is_refused():
    bucket = written()
    keys = sorted(key for key in bucket.objects.objects if not key.endswith(f"{0:020d}"))
    behind = "shop/" + LogPlace(2, 99).key
    for key in keys:
        is_frame = len(bucket.objects.objects[key][0]) > FENCE_BYTES
        others = [*keys, behind] if is_frame else keys  # a fence ahead is a barrier to no one
        for other in [each for each in others if each != key]:
            before = bucket.objects.objects.get(other)
            bucket.objects.objects[other] = bucket.objects.objects[key]
            with pytest.raises(CorruptionError, match="wal/"):
                walked(bucket)
            if before is None:
                del bucket.objects.objects[other]
            else:
                bucket.objects.objects[other] = before


def test_a_part_that_is_gone_or_another_one_is_refused():
    bucket = Bucket()
    writer = begun(bucket).writer
    place = writer.append([LoggedGroup(Seq(1), Seq(1), memoryview(bytes(PART_BYTES + 8)))])
    key = "shop/" + place.part(1)
    data, modified = bucket.objects.objects[key]
    for changed in (data[:-1], data[:-1] + b"\1", None):
        del bucket.objects.objects[key]
        if changed is not None:
            bucket.objects.objects[key] = changed, modified
        with pytest.raises(CorruptionError, match=r"wal/.*0001.*(missing|not the one)"):
            walked(bucket)
        bucket.objects.objects[key] = data, modified
    assert len(walked(bucket)) == 1
