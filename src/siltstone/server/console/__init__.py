"""Console: the pages of a served store, files of this package, and the routes that give them.

    /            ─▶ console
    /console     ─▶ index.html, which names console/<file>
    /console/<file>

The files are the same for everybody and say nothing of the store, so no token is asked for them.
What they show they ask by the routes of REST, with the token that the user typed. Addresses in them
are relative: a proxy may put the server below any path. A browser that was sent to `/console/`
asks for `/console/console/<file>`, and is told where that is.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from siltstone.operations import Role
from siltstone.server.http.replies import Reply
from siltstone.server.http.route import NOTHING, Handler, Route

_TYPES = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "content-security-policy": _POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cache-control": "no-cache",
}
"""The page may run what this server gave, ask this server, and be shown by no other page."""


@dataclass(frozen=True, slots=True)
class _Asset:
    media_type: str
    body: bytes


@cache
def _pages() -> dict[str, _Asset]:
    """Return the files of the console by name."""
    found: dict[str, _Asset] = {}
    for each in files(__name__).iterdir():
        kind = _TYPES.get(each.name.rpartition(".")[2])
        if kind is not None:
            found[each.name] = _Asset(kind, each.read_bytes())
    return found


def console_routes() -> list[Route]:
    """Return the routes of the console; they need no role."""
    return [
        _page("/", lambda _: _moved(307, "console")),
        _page("/console", lambda _: _reply("index.html")),
        _page("/console/{file}", lambda call: _reply(call.path["file"])),
        _page("/console/console/{file}", _one_up),
    ]


def _page(path: str, handler: Handler) -> Route:
    return Route("GET", path, Role.NOBODY, handler, takes=NOTHING, is_at_once=True)


def _moved(status: int, place: str) -> Reply[bytes]:
    return Reply(b"", status=status, headers={"location": place, **HEADERS})


def _one_up(call: Any) -> Reply[bytes]:
    name = call.path["file"]
    return _moved(308, f"../{name}") if name in _pages() else _reply(name)


def _reply(name: str) -> Reply[bytes]:
    found = _pages().get(name)
    if found is None:
        return Reply(b"the console has no such file\n", None, 404, "text/plain", HEADERS)
    return Reply(found.body, media_type=found.media_type, headers=HEADERS)
