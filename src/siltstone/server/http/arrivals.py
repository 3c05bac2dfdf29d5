"""Arrivals: requests whose heads came in one turn of the event loop, begun together at its next.

By then most have come whole: no task, timeout or event waits for their bodies, and one hand-over
serves all of them. A request whose body is still on its way, or that waits for its turn in a lane,
gets its own task: `Router` answers it as an ASGI app.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from siltstone.server.http.handover import Exchange, HandOver
from siltstone.server.http.request import HttpRequest
from siltstone.server.http.router import Router

if TYPE_CHECKING:
    from siltstone.server.http.connections import HttpConnection


class Arrivals:
    """See the module. The event loop's thread."""

    def __init__(self, router: Router, handover: HandOver) -> None:
        self._router, self._handover = router, handover
        self._arrived: list[tuple[HttpConnection, Any]] = []

    def add(self, connection: HttpConnection, cycle: Any) -> None:
        """Note a request; it is begun before the loop looks for more."""
        if not self._arrived:
            asyncio.get_running_loop().call_soon(self._begin_all)
        self._arrived.append((connection, cycle))

    def _begin_all(self) -> None:
        arrived, self._arrived = self._arrived, []
        self._handover.give(
            [exchange for each in arrived if (exchange := self._begun(*each)) is not None]
        )

    def _begun(self, connection: HttpConnection, cycle: Any) -> Exchange | None:
        """Return what a thread has to do; anything else is answered, or has a task."""
        if cycle.more_body or cycle.disconnected:
            connection.begin_task(cycle)
            return None
        request = HttpRequest(cycle.scope, cycle.receive)
        found = self._router.find(request)
        if found is None or not found[1].takes_whole(found[0]):
            connection.begin_task(cycle)
            return None
        route, pipeline = found
        send: Callable[[Any], None] = partial(connection.send_answer, cycle)
        body, cycle.body = bytes(cycle.body), bytearray()
        cycle.flow.resume_reading()
        return pipeline.begin(route, request, body, send)
