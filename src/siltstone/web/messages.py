"""Messages: what an application receives and sends of one request, for each try anew."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from starlette.types import Message, Receive, Send

from siltstone.web.tries import Try


class KeptBody:
    """The body of a request: what one try has read of it, the next one reads again.

    Not above `bytes_max`: then nothing is kept, and there is no next try. One event loop.
    """

    def __init__(self, receive: Receive, bytes_max: int) -> None:
        self._receive, self._bytes_max = receive, bytes_max
        self._kept: list[Message] = []
        self._bytes = 0

    @property
    def is_kept(self) -> bool:
        """Whether another try can read it from its beginning."""
        return self._bytes <= self._bytes_max

    def again(self) -> Receive:
        """Return what gives the messages from the first one on."""
        seen = 0

        async def receive() -> Message:
            nonlocal seen
            if seen < len(self._kept):
                seen += 1
                return self._kept[seen - 1]
            message = await self._receive()
            if message["type"] == "http.request":
                self._keep(message)
                seen = len(self._kept)
            return message

        return receive

    def _keep(self, message: Message) -> None:
        self._bytes += len(message.get("body", b""))
        if self.is_kept:
            self._kept.append(message)
        else:
            self._kept.clear()


def held(send: Send, one: Try, first: Callable[[], Awaitable[None]]) -> Send:
    """Return what sends the answer of a try, unless the handler runs again: then it is dropped.

    Args:
        first: Called before the first message goes on.
    """

    async def sent(message: Message) -> None:
        if one.will_repeat:
            return
        if not one.is_answered:
            one.is_answered = True
            await first()
        await send(message)

    return sent
