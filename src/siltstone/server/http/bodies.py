"""Bodies: what requests carry, chunk by chunk, from clients that may be slow, or gone."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from siltstone.errors import BusyError, RequestError
from siltstone.server.http.policy import RequestPolicy
from siltstone.server.http.request import HttpRequest


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
                raise _no_room(policy)
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
            raise _no_room(policy)
        body.has_room = False
        body.chunks.clear()
        self.nbytes -= body.nbytes
        body.nbytes = 0


def _refused_head(request: HttpRequest, bytes_max: int) -> RequestError:
    if request.length > bytes_max:
        return BodyTooLargeError(bytes_max)
    return RequestError("a request says how long it is: content-length, not chunks")


def _no_room(policy: RequestPolicy) -> BusyError:
    return BusyError(
        f"the bodies of other requests fill the {policy.bodies_bytes_max} bytes of the server; try"
        " again later"
    )
