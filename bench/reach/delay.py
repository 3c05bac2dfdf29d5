"""Delay: a proxy that adds time to each request, and counts them.

    python -m bench.reach.delay LISTEN TARGET SECONDS

What a client sends arrives so much later, in its order; what comes back comes at once. So a request
takes SECONDS more, and as many run side by side as the client has connections. A line on its
standard input is answered with the number of requests so far.
"""

from __future__ import annotations

import asyncio
import re
import sys
import threading

_PIECE = 1 << 18
_REQUEST = re.compile(rb"^(?:GET|PUT|POST|HEAD|DELETE) \S+ HTTP/1\.1\r\n")
"""A client sends the head of a request by itself, or first."""
_counted = [0]


async def _pump(
    source: asyncio.StreamReader, target: asyncio.StreamWriter, seconds: float, *, counts: bool
) -> None:
    """Send on what comes, `seconds` later; the end, too."""
    loop = asyncio.get_running_loop()
    while True:
        try:
            data = await source.read(_PIECE)
        except OSError:
            data = b""
        if counts and _REQUEST.match(data):
            _counted[0] += 1
        send = (lambda data=data: target.write(data)) if data else target.close
        if seconds:
            loop.call_later(seconds, send)
        else:
            send()
        if not data:
            return


async def _serve(listen: int, port: int, seconds: float) -> None:
    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            writer.close()
            return
        await asyncio.gather(
            _pump(reader, far_writer, seconds, counts=True),
            _pump(far_reader, writer, 0.0, counts=False),
        )

    server = await asyncio.start_server(connected, "127.0.0.1", listen)
    print("ready", flush=True)
    await server.serve_forever()


def _answer() -> None:
    for _ in sys.stdin:
        print(_counted[0], flush=True)


if __name__ == "__main__":
    threading.Thread(target=_answer, daemon=True).start()
    asyncio.run(_serve(int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])))
