"""Messages: what an application receives and sends of one request, for each try anew."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from starlette.types import Message, Receive, Send

from siltstone.web.tries import Try


class DroppedError(BaseException):
    """Ends a try that lost where it begins to answer. No handler of errors is to hear of it."""


class KeptBody:
    """The body of a request: what one try has read of it, the next one reads again.

    Not above `bytes_max`: then nothing is kept, and there is no next try. One event loop.
    """

    def __init__(self, receive: Receive, bytes_max: int) -> None:
        self._receive, self._bytes_max = receive, bytes_max
        self._kept = bytearray()  # not the messages: a client may send as many as bytes
        self._is_whole, self.is_kept = False, True

    def again(self) -> Receive:
        """Return what gives the body from its beginning."""
        seen, is_over = 0, False

        async def receive() -> Message:
            nonlocal seen, is_over
            if seen < len(self._kept) or (self._is_whole and self.is_kept and not is_over):
                body, is_over = bytes(self._kept[seen:]), self._is_whole
                seen = len(self._kept)
                return {"type": "http.request", "body": body, "more_body": not is_over}
            message = await self._receive()
            if message["type"] == "http.request":
                self._keep(message)
                seen, is_over = len(self._kept), self._is_whole
            return message

        return receive

    def _keep(self, message: Message) -> None:
        body = message.get("body", b"")
        self._is_whole = not message.get("more_body", False)
        self.is_kept = self.is_kept and len(self._kept) + len(body) <= self._bytes_max
        if self.is_kept:
            self._kept += body
        else:
            self._kept.clear()


def held(send: Send, one: Try, first: Callable[[], Awaitable[None]]) -> Send:
    """Return what sends the answer of a try, unless the handler runs again: then it is dropped.

    What frameworks do after they have sent it, such as background tasks, is not begun.

    Args:
        first: Called before the first message goes on.
    """

    async def sent(message: Message) -> None:
        if one.will_repeat:
            raise DroppedError
        if not one.is_answered:
            one.is_answered = True
            await first()
        await send(message)

    return sent
