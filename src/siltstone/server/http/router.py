"""Router: the routes as an ASGI app, also with a slash at the end, and flat errors everywhere.

    path ─▶ its words ─▶ the route that has them, {name} for any word ─▶ the pipeline of that route

A request costs one look into a table per way in which a route of its length may have parameters.
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterable, Iterator, Sequence
from urllib.parse import unquote

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from siltstone.server.http.pipeline import Pipeline
from siltstone.server.http.request import HttpRequest
from siltstone.server.http.route import Route
from siltstone.units import require

Words = tuple[str | None, ...]
_Methods = dict[str, tuple[Route, Pipeline, tuple[str, ...]]]


class Router:
    """See the module. The event loop's thread."""

    def __init__(self, *uses: tuple[Pipeline, Sequence[Route]]) -> None:
        """Take the routes of each pipeline; the first answers where no route is."""
        self._places: dict[Words, _Methods] = {}
        self._masks: dict[int, list[tuple[int, ...]]] = {}
        self._default = uses[0][0]
        self.pipelines = [pipeline for pipeline, _ in uses]
        for pipeline, routes in uses:
            for route in routes:
                self._put(route, pipeline)

    def _put(self, route: Route, pipeline: Pipeline) -> None:
        given = route.path.split("/")
        mask = tuple(place for place, word in enumerate(given) if word.startswith("{"))
        names = tuple(given[place][1:-1] for place in mask)
        place = self._places.setdefault(_masked(given, mask), {})
        require(route.method not in place, f"{route.method} {route.path} is there twice")
        place[route.method] = route, pipeline, names
        masks = self._masks.setdefault(len(given), [])
        if mask not in masks:
            masks.append(mask)
            masks.sort(key=len)  # a word that is named goes before one that may be any

    @property
    def asked(self) -> Iterable[tuple[str, str]]:
        """The method and the path of all that is answered."""
        for methods in self._places.values():
            yield from ((route.method, route.path) for route, _, _ in methods.values())

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """Return what answers a request."""
        request = HttpRequest(scope, receive)
        found = self.find(request)
        if found is None:
            return self._unknown(request)(scope, receive, send)
        return found[1].answer(found[0], request, send)

    def find(self, request: HttpRequest) -> tuple[Route, Pipeline] | None:
        """Return the route of a request, which gets its `params`; None: there is none."""
        for place, mask, given in self._at(request):
            found = place.get(request.scope["method"])
            if found is not None:
                route, pipeline, names = found
                request.params = dict(zip(names, map(given.__getitem__, mask), strict=True))
                return route, pipeline
        return None

    def _at(self, request: HttpRequest) -> Iterator[tuple[_Methods, tuple[int, ...], list[str]]]:
        """Yield what a path has, by method; where its parameters are; and its words."""
        given = _words(request.scope)
        for mask in self._masks.get(len(given), ()):
            place = self._places.get(_masked(given, mask) if mask else tuple(given))
            if place is not None and all(map(given.__getitem__, mask)):
                yield place, mask, given

    def _unknown(self, request: HttpRequest) -> Response:
        methods = {method for place, _, _ in self._at(request) for method in place}
        response = self._default.wire.unknown(request, 405 if methods else 404)
        if methods:
            response.headers["allow"] = ", ".join(sorted(methods))
        if not request.may_go_on:
            response.headers["connection"] = "close"
        return response


def _words(scope: Scope) -> list[str]:
    """Return the words of a path; a slash that is spelled %2F does not end one."""
    path: str = scope["path"]
    raw: bytes = scope["raw_path"]
    if b"%2f" not in raw.lower():
        return (path.rstrip("/") or "/").split("/")
    return [unquote(word) for word in raw.decode("latin-1").rstrip("/").split("/")]


def _masked(words: Sequence[str], mask: Iterable[int]) -> Words:
    found: list[str | None] = [*words]
    for place in mask:
        found[place] = None
    return tuple(found)
