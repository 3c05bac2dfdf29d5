"""Request: the head of one HTTP request, and its body, which may come slowly."""

from __future__ import annotations

import asyncio
import secrets
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl

from starlette.datastructures import Headers
from starlette.types import Receive, Scope

from siltstone.errors import BusyError, RequestError
from siltstone.server.http.policy import RequestPolicy

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


class BodyTooLargeError(RequestError):
    """A body of more bytes than its route takes."""

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        super().__init__(f"a body has at most {bytes_max} bytes here")


@dataclass(slots=True)
class _Arriving:
    """What has come of one body."""

    chunks: list[bytes] = field(default_factory=list[bytes])
    nbytes: int = 0
    has_room: bool = True


class Bodies:
    """The bodies that are inside, bounded together. The event loop's thread.

    Only what has come counts: a body that is announced and does not come takes no room.
    """

    def __init__(self) -> None:
        self.nbytes = 0

    def take(
        self, request: HttpRequest, body: bytes, bytes_max: int, policy: RequestPolicy
    ) -> None:
        """Take a body that came whole; it is inside until its length is taken from `nbytes`.

        Raises:
            BodyTooLargeError, RequestError, BusyError: As `read` does.
        """
        if request.length > bytes_max or (request.is_chunked and not policy.takes_chunks):
            raise _refused_head(request, bytes_max)
        if len(body) > bytes_max:
            raise BodyTooLargeError(bytes_max)
        has_room = self.nbytes + len(body) <= policy.bodies_bytes_max
        if has_room or policy.drains:
            request.may_go_on = True
        if not has_room:
            raise no_room(policy)
        self.nbytes += len(body)

    async def read(self, request: HttpRequest, bytes_max: int, policy: RequestPolicy) -> bytes:
        """Return a whole body; it is inside until its length is taken from `nbytes`.

        Raises:
            BodyTooLargeError: It is, or says that it will be.
            BusyError: There is no room for it.
            RequestError: Nothing of it came in time, or the client went away.
        """
        if request.length > bytes_max or (request.is_chunked and not policy.takes_chunks):
            raise _refused_head(request, bytes_max)
        body = _Arriving()
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(policy.body_timeout_s) as limit:
                more = True
                while more:
                    message = await request.receive()
                    if message["type"] == "http.disconnect":
                        raise RequestError("the client went away")
                    more = message.get("more_body", False)
                    if chunk := message.get("body"):
                        limit.reschedule(loop.time() + policy.body_timeout_s)
                        self._take(body, chunk, bytes_max, policy)
            request.may_go_on = True
            if not body.has_room:
                raise no_room(policy)
            return b"".join(body.chunks)
        except BaseException as error:
            self.nbytes -= body.nbytes
            if isinstance(error, TimeoutError):
                text = f"nothing of the body came for {policy.body_timeout_s:g} s"
                raise RequestError(text) from None
            raise

    def _take(self, body: _Arriving, chunk: bytes, bytes_max: int, policy: RequestPolicy) -> None:
        """Keep a chunk; drop the whole body if there is no room for it."""
        if body.nbytes + len(chunk) > bytes_max:
            raise BodyTooLargeError(bytes_max)
        if body.has_room and self.nbytes + len(chunk) <= policy.bodies_bytes_max:
            body.chunks.append(chunk)
            body.nbytes += len(chunk)
            self.nbytes += len(chunk)
            return
        if not policy.drains:
            raise no_room(policy)
        body.has_room = False
        body.chunks.clear()
        self.nbytes -= body.nbytes
        body.nbytes = 0


def _refused_head(request: HttpRequest, bytes_max: int) -> RequestError:
    if request.length > bytes_max:
        return BodyTooLargeError(bytes_max)
    return RequestError("a request says how long it is: content-length, not chunks")


def no_room(policy: RequestPolicy) -> BusyError:
    """Return the refusal of a body for which there is no room."""
    return BusyError(
        f"the bodies of other requests fill the {policy.bodies_bytes_max} bytes of the server; try"
        " again later"
    )
