"""Retries: a request's handler runs again after a conflict, with the same body, before an answer.

    try ──▶ answered: the first message of the answer goes on
      └──LOST──▶ its answer is dropped, and with it its background tasks
                 ─▶ wait for the turn of the table where it lost ─▶ next try

The waits and turns are those of `Store.run` (`api.runs`), as are the attempts.
"""

from __future__ import annotations

from typing import Any

from starlette.types import ASGIApp, Receive, Scope, Send

from siltstone.api.runs import TurnHolder, TurnLines
from siltstone.api.store import Store
from siltstone.arguments import count_of
from siltstone.process.turns import NOBODY, TableClosedError
from siltstone.web.messages import DroppedError, KeptBody, held
from siltstone.web.threads import ended, waited
from siltstone.web.tries import Try

ATTEMPTS = 10
BODY_BYTES_MAX = 1 << 20


class _Waits:
    """What a request waits for between its tries: at most one turn is its own."""

    def __init__(self) -> None:
        self._store: Store | None = None
        self._holder: TurnHolder | None = None

    async def after(self, one: Try) -> None:
        """Wait for what the next try needs."""
        error, store = one.lost_by, one.lost_at
        if store is None or error is None:
            return
        lines: TurnLines = store._turns  # noqa: SLF001 # pyright: ignore[reportPrivateUsage] - as `Store.run`
        if isinstance(error, TableClosedError):
            table = error.table
            await waited(lambda: lines.wait_open(table))
            return
        if self._holder is None or self._store is not store:
            await self.end()
            self._store, self._holder = store, TurnHolder(lines, thread=NOBODY)
        holder = self._holder
        await waited(lambda: holder.lost(error))

    async def end(self) -> None:
        """Give the turn up."""
        holder, self._holder = self._holder, None
        if holder is not None:
            await ended(holder.end)


class Retries:
    """Middleware: runs a route's handler again if a transaction of `siltstone.web` lost.

    Around a single route, `Route(path, handler, middleware=[Middleware(web.Retries)])`, or around
    an application. `web.RetryRoute` does it for routes of FastAPI. The answer and the background
    tasks of a try that lost are dropped; what else it did, it does again. One that began to send
    its answer, or that committed in another store, is not repeated.

    After the last attempt the client gets 409. Tries that lost take turns, as in `Store.run`.
    """

    def __init__(
        self, app: ASGIApp, *, attempts: int = ATTEMPTS, body_bytes_max: int = BODY_BYTES_MAX
    ) -> None:
        """Repeat what `app` does.

        Args:
            attempts: So often at most.
            body_bytes_max: A request with more is not repeated.

        Raises:
            RequestError: One of them is no integer, or too small.
        """
        self._app = app
        self._attempts = count_of("attempts", attempts, 1)
        self._body_bytes_max = count_of("body_bytes_max", body_bytes_max, 0)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or Try.is_in(scope):  # the outer one repeats
            await self._app(scope, receive, send)
            return
        body, waits = KeptBody(receive, self._body_bytes_max), _Waits()
        state: dict[str, Any] | None = scope.get("state")
        before = dict(state or {})
        try:
            for number in range(1, self._attempts + 1):
                one = Try(number, may_repeat=number < self._attempts, is_kept=lambda: body.is_kept)
                if not await self._lost(one, scope, body, held(send, one, waits.end)):
                    return
                if state is not None:
                    state.clear()
                    state.update(before)
                await waits.after(one)
        finally:
            await waits.end()

    async def _lost(self, one: Try, scope: Scope, body: KeptBody, send: Send) -> bool:
        """Run one try; return whether it lost, and the next one is to begin."""
        try:
            await self._app(one.within(scope), body.again(), send)
        except BaseException as error:
            if not (one.will_repeat and _ends_a_try(error)):
                raise
        return one.will_repeat


def _ends_a_try(error: BaseException) -> bool:
    """Return whether an error ends a try alone: it cancels no task, and ends no process."""
    if isinstance(error, BaseExceptionGroup):
        return all(map(_ends_a_try, error.exceptions))
    return isinstance(error, Exception | DroppedError)
