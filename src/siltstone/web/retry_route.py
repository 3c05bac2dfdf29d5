"""Retry route: `Retries` around the routes of a router of FastAPI."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, ClassVar, cast

from fastapi.routing import APIRoute, request_response
from starlette.requests import Request
from starlette.responses import Response

from siltstone.web.retries import ATTEMPTS, BODY_BYTES_MAX, Retries


class RetryRoute(APIRoute):
    """A route whose handler runs again, with its dependencies, if its transaction lost.

    `APIRouter(route_class=web.RetryRoute)`, or `app.router.route_class = web.RetryRoute` before
    the first route. A subclass may have other bounds; see `Retries` for what is repeated.
    """

    attempts: ClassVar[int] = ATTEMPTS
    """So often at most."""
    body_bytes_max: ClassVar[int] = BODY_BYTES_MAX
    """A request with more is not repeated."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return a handler whose answer is the whole route, with its dependencies and retries."""
        again = Retries(
            request_response(super().get_route_handler()),
            attempts=self.attempts,
            body_bytes_max=self.body_bytes_max,
        )

        async def handler(request: Request) -> Response:  # noqa: ARG001 - the answer is called with it
            return cast("Response", again)

        return handler
