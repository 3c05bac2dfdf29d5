"""Bodies: what requests carry, chunk by chunk, from clients that may be slow, or gone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from starlette.requests import ClientDisconnect, Request

from siltstone.errors import RequestError


async def arriving(request: Request, chunk_timeout_s: float) -> AsyncIterator[bytes]:
    """Yield a body in chunks, each of which must come in time.

    Raises:
        RequestError: One did not, or the client went away; what follows on this connection cannot
            be told from the rest of the body.
    """
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(chunk_timeout_s) as limit:
            async for chunk in request.stream():
                yield chunk
                limit.reschedule(loop.time() + chunk_timeout_s)
    except TimeoutError:
        raise RequestError(f"nothing of the body came for {chunk_timeout_s:g} s") from None
    except ClientDisconnect:
        raise RequestError("the client went away") from None
