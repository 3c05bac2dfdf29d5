"""Access log: a line for each request, in the log `siltstone.access`, if a server is asked for it.

It has the route's template, and no path: an id of a transaction in a path lets its holder commit.
No header, no query and no body is in it. The client is the name of its access token.
"""

from __future__ import annotations

from siltstone.server.http.request import HttpRequest
from siltstone.telemetry.notices import NoticeLog

_log = NoticeLog("siltstone.access")
_LINE = "%s %s %d in %.4f s, client %s, request %s"


class AccessLog:
    """See the module. The event loop's thread; it waits for nothing."""

    def note(
        self, route: str, status: int, took_s: float, client: str, request: HttpRequest
    ) -> None:
        """Log a request whose answer begins now, `took_s` after it came."""
        fields = {
            "method": request.scope["method"],
            "route": route,
            "status": status,
            "seconds": round(took_s, 6),
            "client": client,
            "request": request.id,
        }
        _log.info(_LINE, *fields.values(), fields=fields)
