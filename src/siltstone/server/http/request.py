"""Request: the head of one HTTP request, and the way to its body."""

from __future__ import annotations

import secrets
from itertools import count
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl

from starlette.datastructures import Headers
from starlette.types import Receive, Scope

if TYPE_CHECKING:
    from siltstone.server.http.connections import HttpConnection

REQUEST_ID_HEADER = "x-request-id"
_IDS = secrets.token_hex(6)
_numbers = count(1)  # to ask the kernel for a random id each time would cost 10 us and the GIL


class HttpRequest:
    """See the module. The event loop's thread alone changes it."""

    __slots__ = (
        *("connection", "headers", "id", "is_chunked", "length"),
        *("may_go_on", "params", "receive", "scope"),
    )

    def __init__(self, scope: Scope, receive: Receive) -> None:
        self.scope, self.receive = scope, receive
        self.headers = Headers(scope=scope)
        self.connection: HttpConnection = scope["state"]["connection"]
        self.params: dict[str, str] = {}
        """The words of the path that the route leaves open."""
        given = self.headers.get(REQUEST_ID_HEADER, "")
        may_stand_in_a_log = (
            0 < len(given) <= 64 and given.isascii() and given.replace("-", "").isalnum()
        )
        self.id = given if may_stand_in_a_log else f"{_IDS}-{next(_numbers):x}"
        self.length = int(self.headers.get("content-length", "0"))
        """What the head says of the body; the parser refused a head that does not say it well."""
        self.is_chunked = "transfer-encoding" in self.headers
        self.may_go_on = not (self.length or self.is_chunked)
        """Whether another request may follow on the connection: the body was read to its end."""

    def query(self) -> dict[str, str]:
        """Return the query; a parameter that comes several times is a list with commas."""
        found: dict[str, str] = {}
        text: bytes = self.scope["query_string"]
        for name, value in parse_qsl(text.decode("latin-1"), keep_blank_values=True):
            found[name] = f"{found[name]},{value}" if name in found else value
        return found
