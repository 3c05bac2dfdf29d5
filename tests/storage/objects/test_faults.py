"""An answer that is lost, late, doubled, half or wrong changes no result, and ends in bounded time.

Each operation is tried with each fault at each of its requests: what it says is true of the bucket.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable

import pytest

from siltstone.errors import UnavailableError
from siltstone.storage.objects.objects import (
    FIRST_GIVE_UP_S,
    GIVE_UP_S,
    Lost,
    Made,
    Objects,
    Taken,
    side_by_side,
)
from tests.support.simulated_objects import Fault, SimBucket, SimServer

PASSING = [Fault.LOST, Fault.NOT_DONE, Fault.LATER, Fault.TWICE, Fault.HALF, Fault.BUSY]


class Time:
    """A clock that only pauses move."""

    def __init__(self) -> None:
        self.now = 0.0

    def pause(self, seconds: float) -> None:
        self.now += seconds


def over(server: SimServer, time: Time | None = None) -> Objects:
    time = time or Time()
    return Objects(server, "tests", lambda: time.now, time.pause)


def broken(fault: Fault, at: int, bucket: SimBucket | None = None) -> SimServer:
    return SimServer(bucket or SimBucket(), {at: fault})


@pytest.mark.parametrize("at", [1, 2, 3])
@pytest.mark.parametrize("fault", [*PASSING, Fault.CONFLICT])
def test_a_first_put_is_made_whatever_becomes_of_its_requests(fault: Fault, at: int) -> None:
    server = broken(fault, at)
    assert isinstance(over(server).put_new("k", b"ours"), Made)
    server.land()
    assert server.bucket.objects["k"][0] == b"ours"


@pytest.mark.parametrize("at", [1, 2, 3])
@pytest.mark.parametrize("fault", [*PASSING, Fault.CONFLICT])
def test_a_key_of_another_put_is_taken_whatever_becomes_of_the_requests(
    fault: Fault, at: int
) -> None:
    server = broken(fault, at)
    server.bucket.objects["k"] = (b"theirs", 1.0)
    taken = over(server).put_new("k", b"ours")
    server.land()
    assert isinstance(taken, Taken)
    assert taken.found.data == server.bucket.objects["k"][0] == b"theirs"


@pytest.mark.parametrize("at", [1, 2, 3])
@pytest.mark.parametrize("fault", [*PASSING, Fault.CONFLICT])
def test_a_put_on_an_etag_is_made_or_lost_as_the_object_says(fault: Fault, at: int) -> None:
    server = broken(fault, at + 1)
    objects = over(server)
    old = objects.put("k", b"old")
    assert isinstance(objects.put_if("k", b"new", old), Made)
    assert isinstance(objects.put_if("k", b"newer", old), Lost)
    server.land()
    assert server.bucket.objects["k"][0] == b"new"


@pytest.mark.parametrize("fault", PASSING)
def test_a_read_or_a_list_is_whole_whatever_becomes_of_its_requests(fault: Fault) -> None:
    for at in range(1, 12):
        server = broken(fault, at)
        keys = [f"l/{number}" for number in range(8)]
        server.bucket.objects.update({key: (key.encode() * 50, 1.0) for key in keys})
        objects = over(server)
        assert [head.key for head in objects.list_after("l/")] == keys
        found = objects.get("l/3")
        assert found is not None
        assert found.data == b"l/3" * 50
        part = objects.get_range("l/3", 2, 10)
        assert part is not None
        assert part.data == (b"l/3" * 50)[2:10]
        objects.delete(["l/3"])
        server.land()
        assert objects.get("l/3") is None


def test_an_exists_without_an_object_is_not_taken_for_one_and_ends_in_bounded_time() -> None:
    time = Time()
    objects = over(SimServer(always=Fault.CONFLICT), time)
    with pytest.raises(UnavailableError, match="says that it exists, but has no such object"):
        objects.put_new("k", b"ours")
    assert GIVE_UP_S <= time.now < GIVE_UP_S + 3


CALLS: list[Callable[[Objects], object]] = [
    lambda objects: objects.get("k"),
    lambda objects: objects.head("k"),
    lambda objects: list(objects.list_after("")),
    lambda objects: objects.put_new("k", b"x"),
    lambda objects: objects.delete(["k"]),
]


def test_a_server_that_never_answered_is_given_up_soon_and_one_that_did_later() -> None:
    for was_answered, bound in ((False, FIRST_GIVE_UP_S), (True, GIVE_UP_S)):
        time, server = Time(), SimServer()
        objects = over(server, time)
        if was_answered:
            objects.put("there", b"x")
        server.always = Fault.BUSY
        for call in CALLS:
            began = time.now
            with pytest.raises(UnavailableError, match="503"):
                call(objects)
            assert bound <= time.now - began < bound + 3


def test_a_refusal_is_an_error_at_once_and_never_an_absent_object() -> None:
    for call in CALLS:
        server = SimServer(always=Fault.DENIED)
        with pytest.raises(UnavailableError, match="no right"):
            call(over(server))
        assert server.requests == 1


def test_requests_are_counted_by_kind_and_caller_also_those_without_an_answer() -> None:
    objects = over(broken(Fault.BUSY, 2))
    objects.put("a", b"x")
    objects.of("another").get("a")
    assert objects.counts.by_caller() == {("tests", "put"): 1, ("another", "get"): 2}
    assert objects.counts.by_kind() == {"put": 1, "get": 2}


def test_objects_do_not_travel_to_another_process() -> None:
    with pytest.raises(TypeError, match="never travels"):
        pickle.dumps(over(SimServer()))


def test_an_error_of_one_ends_all_that_run_side_by_side() -> None:
    begun: list[int] = []

    def work(number: int) -> int:
        begun.append(number)
        if number == 3:
            raise ValueError("third")
        return number

    with pytest.raises(ValueError, match="third"):
        list(side_by_side(work, range(1000), width=2))
    assert len(begun) < 1000
