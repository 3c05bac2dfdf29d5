"""App: the routes as an ASGI app, also with a slash at the end, and flat errors everywhere."""

from __future__ import annotations

from collections.abc import Sequence

from fastapi import FastAPI, Request
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from siltstone.server.app import Desk, include
from siltstone.server.rest import refusals
from siltstone.server.rest.exchange import Exchange, Route, id_of, is_read

DATABASE_HEADER = b"x-lancedb-database"


def app_of(routes: Sequence[Route], exchange: Exchange, joined: Desk) -> FastAPI:
    """Return the app of all routes, and of no other."""
    app = FastAPI(openapi_url=None, docs_url=None, redoc_url=None, redirect_slashes=False)
    for route in routes:
        answer = exchange.endpoint(route)
        app.add_api_route(route.path, answer, methods=[route.method], include_in_schema=False)
    include(app, joined, "/v1/joined")

    async def refused(request: Request, error: HTTPException) -> Response:
        request_id = id_of(request)
        response = refusals.of_status(error.status_code, request_id)
        for name, value in (error.headers or {}).items():
            response.headers[name] = value
        if not is_read(request):
            response.headers["connection"] = "close"
        return response

    async def failed(request: Request, error: Exception) -> Response:
        return refusals.response_of(error, id_of(request))

    app.add_exception_handler(HTTPException, refused)  # type: ignore[arg-type]
    app.add_exception_handler(Exception, failed)
    app.add_middleware(Slashes)
    return app


class Slashes:
    """Takes a slash at the end off; LanceDB's remote client sends one, and wants other answers."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            path: str = scope["path"]
            headers: list[tuple[bytes, bytes]] = scope["headers"]
            scope["siltstone.remote"] = any(name == DATABASE_HEADER for name, _ in headers)
            if len(path) > 1 and path.endswith("/"):
                scope["path"] = path.rstrip("/") or "/"
        await self._app(scope, receive, send)
