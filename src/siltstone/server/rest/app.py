"""App: the routes as an ASGI app, also with a slash at the end, and flat errors everywhere.

    path ─▶ its words ─▶ the route that has them, {id} for any word ─▶ exchange

A request costs one look into a table per place where a route may have a parameter. The framework
looks at route after route, and solves the dependencies of each: 0.2 ms of a request's 0.5. It
answers what joined processes ask, which is below /v1/joined.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from fastapi import FastAPI, Request
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from siltstone.server.app import Desk, include
from siltstone.server.rest import refusals
from siltstone.server.rest.exchange import Answerer, Exchange, Route, id_of, is_read
from siltstone.units import require

DATABASE_HEADER = b"x-lancedb-database"
JOINED = "/v1/joined"

Words = tuple[str | None, ...]


class App:
    """See the module. The event loop's thread."""

    def __init__(self, routes: Sequence[Route], exchange: Exchange, joined: Desk) -> None:
        self._places: dict[Words, dict[str, tuple[Answerer, tuple[str, ...]]]] = {}
        self._masks: dict[int, list[tuple[int, ...]]] = {}
        for route in routes:
            self._put(route, exchange.endpoint(route))
        self._joined = _framework(joined)

    def _put(self, route: Route, answer: Answerer) -> None:
        given = route.path.split("/")
        mask = tuple(place for place, word in enumerate(given) if word.startswith("{"))
        names = tuple(given[place][1:-1] for place in mask)
        place = self._places.setdefault(_masked(given, mask), {})
        require(route.method not in place, f"{route.method} {route.path} is there twice")
        place[route.method] = answer, names
        masks = self._masks.setdefault(len(given), [])
        if mask not in masks:
            masks.append(mask)
            masks.sort(key=len)  # a word that is named goes before one that may be any

    @property
    def asked(self) -> Iterator[tuple[str, str]]:
        """The method and the path of all that is answered."""
        for words, methods in self._places.items():
            path = "/".join("{id}" if word is None else word for word in words)
            yield from ((method, path) for method in methods)
        for route in self._joined.routes:
            for found in route.effective_route_contexts():  # type: ignore[attr-defined]
                yield from ((method, found.path) for method in found.methods)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        path: str = scope["path"]
        if len(path) > 1 and path.endswith("/"):
            path = scope["path"] = path.rstrip("/") or "/"
        if path.startswith(JOINED + "/"):
            await self._joined(scope, receive, send)
            return
        # LanceDB's remote client wants other answers.
        scope["siltstone.remote"] = any(name == DATABASE_HEADER for name, _ in scope["headers"])
        request = Request(scope, receive)
        response = await self._answer(request, path)
        await response(scope, receive, send)

    async def _answer(self, request: Request, path: str) -> Response:
        given = path.split("/")
        methods: set[str] = set()
        for mask in self._masks.get(len(given), ()):
            place = self._places.get(_masked(given, mask))
            if place is None or not all(given[at] for at in mask):
                continue
            found = place.get(request.method)
            if found is not None:
                answer, names = found
                words = (given[at] for at in mask)
                request.scope["path_params"] = dict(zip(names, words, strict=True))
                return await answer(request)
            methods |= place.keys()
        headers = {"allow": ", ".join(sorted(methods))} if methods else {}
        return _refused(request, 405 if methods else 404, headers)


def _masked(words: Sequence[str], mask: Iterable[int]) -> Words:
    found: list[str | None] = [*words]
    for place in mask:
        found[place] = None
    return tuple(found)


def _framework(joined: Desk) -> FastAPI:
    """Return what answers below /v1/joined."""
    app = FastAPI(openapi_url=None, docs_url=None, redoc_url=None, redirect_slashes=False)
    include(app, joined, JOINED)

    async def refused(request: Request, error: HTTPException) -> Response:
        return _refused(request, error.status_code, dict(error.headers or {}))

    async def failed(request: Request, error: Exception) -> Response:
        return refusals.response_of(error, id_of(request))

    app.add_exception_handler(HTTPException, refused)  # type: ignore[arg-type]
    app.add_exception_handler(Exception, failed)
    return app


def _refused(request: Request, status: int, headers: dict[str, str]) -> Response:
    response = refusals.of_status(status, id_of(request))
    response.headers.update(headers)
    if not is_read(request):
        response.headers["connection"] = "close"
    return response
