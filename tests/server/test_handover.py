"""Requests reach threads in groups, and each gets its answer whatever becomes of the others."""

# pyright: reportArgumentType=false

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest
from starlette.responses import Response

from siltstone.errors import UnavailableError
from siltstone.server.http.handover import (
    GROUP_BODY_BYTES_MAX,
    GROUP_MAX,
    GROUPS_MAX,
    Exchange,
    HandOver,
)
from siltstone.server.http.replies import Reply
from siltstone.server.http.route import Grouping, Role, Route
from tests.server.stores import eventually

WAIT_S = 30


class Texts:
    """Answers the body of a request, by a group or alone; notes how."""

    def __init__(self, executor: ThreadPoolExecutor) -> None:
        self.executor = executor
        self.groups: list[list[bytes]] = []
        self.alone: list[bytes] = []
        self.ended: list[Exchange] = []
        self.go = threading.Event()
        self.go.set()

    def run(self, exchange: Exchange) -> Response:
        self.alone.append(exchange.body)
        if exchange.body == b"fails":
            raise OSError
        return Response(exchange.body)

    def prepare(self, exchange: Exchange) -> bytes | None:
        if exchange.body == b"bad":
            raise ValueError
        return None if exchange.body in {b"alone", b"fails"} else exchange.body

    def together(self, prepared: Sequence[bytes]) -> list[Any]:
        self.groups.append(list(prepared))
        assert self.go.wait(WAIT_S)
        return [
            {b"lost": None, b"doubt": RuntimeError()}.get(each, Reply(each)) for each in prepared
        ]

    def respond(self, reply: Reply) -> Response:
        if reply.body == b"unsayable":
            raise TypeError
        return Response(reply.body)

    def end(self, exchange: Exchange) -> None:
        self.ended.append(exchange)
        exchange.send(exchange.response)

    def given(self, route: Route, body: bytes, send: Callable[..., object] = id) -> Exchange:
        connection = SimpleNamespace(transport=SimpleNamespace(abort=dict))
        return Exchange(self, route, SimpleNamespace(connection=connection), 0.0, send, None, body)


def run(scenario: Callable[[HandOver, Texts, Route], Any]) -> Texts:
    """Run a scenario in an event loop, and wait until all is answered."""
    with ThreadPoolExecutor(4) as executor:
        work = Texts(executor)
        grouping = Grouping(lambda _: None, work.together)
        route = Route("POST", "/apply", Role.WRITE, lambda _: None, grouping=grouping)

        async def all_of_it() -> None:
            handover = HandOver()
            scenario(handover, work, route)
            await asyncio.wait_for(handover.idle(), WAIT_S)
            assert not handover.is_busy

        asyncio.run(all_of_it())
    return work


def answers(work: Texts) -> dict[bytes, object]:
    return {
        each.body: type(each.error) if each.response is None else each.response.body
        for each in work.ended
    }


def test_what_is_ready_together_is_one_group() -> None:
    bodies = [b"%d" % n for n in range(10)]
    work = run(lambda over, work, route: over.give([work.given(route, b) for b in bodies]))
    assert work.groups == [bodies]
    assert answers(work) == {body: body for body in bodies}


def test_a_group_is_bounded_and_what_is_left_is_the_next_one() -> None:
    count = 2 * GROUP_MAX + 1
    bodies = [b"%d" % n for n in range(count)]
    work = run(lambda over, work, route: over.give([work.given(route, b) for b in bodies]))
    assert [len(group) for group in work.groups] == [GROUP_MAX, GROUP_MAX, 1]
    assert len(work.ended) == count


def test_at_most_so_many_groups_run_and_what_comes_meanwhile_is_the_next_one() -> None:
    def scenario(over: HandOver, work: Texts, route: Route) -> None:
        work.go.clear()
        for n in range(GROUPS_MAX):
            over.give([work.given(route, b"%d" % n)])
            eventually(lambda n=n: len(work.groups) == n + 1)
        for n in range(GROUPS_MAX, 10):
            over.give([work.given(route, b"%d" % n)])
        assert len(work.groups) == GROUPS_MAX
        work.go.set()

    work = run(scenario)
    assert [len(group) for group in work.groups] == [*[1] * GROUPS_MAX, 10 - GROUPS_MAX]
    assert len(work.ended) == 10


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (b"bad", ValueError),
        (b"doubt", RuntimeError),
        (b"unsayable", TypeError),
        (b"fails", OSError),
    ],
)
def test_one_that_fails_leaves_the_others_their_answers(body: bytes, told: type) -> None:
    bodies = [b"1", body, b"2"]
    work = run(lambda over, work, route: over.give([work.given(route, b) for b in bodies]))
    assert answers(work) == {b"1": b"1", body: told, b"2": b"2"}


def test_a_group_that_fails_as_a_whole_is_an_answer_to_each() -> None:
    def scenario(over: HandOver, work: Texts, route: Route) -> None:
        def fail(_: object) -> list[Any]:
            raise ValueError

        failing = Route(
            "POST", "/", Role.WRITE, route.handler, grouping=Grouping(lambda _: None, fail)
        )
        over.give([work.given(failing, b"1"), work.given(failing, b"2")])

    assert answers(run(scenario)) == {b"1": ValueError, b"2": ValueError}


@pytest.mark.parametrize("body", [b"alone", b"lost", b"x" * (GROUP_BODY_BYTES_MAX + 1)])
def test_one_that_no_group_takes_goes_alone_and_holds_nobody_up(body: bytes) -> None:
    work = run(
        lambda over, work, route: over.give([work.given(route, b"1"), work.given(route, body)])
    )
    assert work.alone == [body]
    assert answers(work) == {b"1": b"1", body: body}


def test_a_route_without_groups_has_a_job_for_each_request() -> None:
    def scenario(over: HandOver, work: Texts, _: Route) -> None:
        route = Route("POST", "/scan", Role.READ, lambda _: None)
        over.give([work.given(route, b"1"), work.given(route, b"2")])

    work = run(scenario)
    assert work.groups == []
    assert answers(work) == {b"1": b"1", b"2": b"2"}


def test_once_the_threads_have_ended_requests_are_refused() -> None:
    def scenario(over: HandOver, work: Texts, route: Route) -> None:
        work.executor.shutdown()
        alone = Route("POST", "/scan", Role.READ, lambda _: None)
        over.give([work.given(route, b"1"), work.given(alone, b"2")])

    assert answers(run(scenario)) == {b"1": UnavailableError, b"2": UnavailableError}


def test_an_answer_that_cannot_be_sent_cuts_its_own_connection_alone() -> None:
    cut: list[int] = []

    def scenario(over: HandOver, work: Texts, route: Route) -> None:
        def fail(_: object) -> None:
            raise RuntimeError

        broken = work.given(route, b"1", fail)
        broken.request.connection.transport.abort = lambda: cut.append(1)
        over.give([broken, work.given(route, b"2")])

    work = run(scenario)
    assert cut == [1]
    assert len(work.ended) == 2


def test_rows_that_nobody_sends_any_more_are_closed() -> None:
    closed: list[int] = []
    with ThreadPoolExecutor(1) as executor:
        work = Texts(executor)
        route = Route("POST", "/scan", Role.READ, lambda _: None)
        response = SimpleNamespace(close=lambda: closed.append(1), body=b"")
        running, go = threading.Event(), threading.Event()

        def late(_: Exchange) -> Any:
            running.set()
            assert go.wait(WAIT_S)
            return response

        work.run = late
        handover = HandOver()

        async def ends_before_its_answer() -> None:
            handover.give([work.given(route, b"1")])
            assert await asyncio.get_running_loop().run_in_executor(None, running.wait, WAIT_S)

        asyncio.run(ends_before_its_answer())
        go.set()
    handover.close()
    assert closed == [1]
