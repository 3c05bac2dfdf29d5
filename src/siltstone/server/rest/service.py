"""Service: the REST server of an open store: a TCP socket, the routes, and their end.

    Service(...) ─▶ listen ─▶ serve in a thread ─▶ close: stop, answer what is inside, roll back

On a loopback address it answers whoever is on this machine, on any other one only tokens. Lock:
none; one thread opens, one closes.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import socket
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import uvicorn

from siltstone.errors import RequestError, UnavailableError
from siltstone.server.rest.access import Gate, Token, is_loopback
from siltstone.server.rest.app import App
from siltstone.server.rest.connections import connections
from siltstone.server.rest.exchange import Exchange
from siltstone.server.rest.feed import Feed
from siltstone.server.rest.house import House
from siltstone.server.rest.indexes import Indexes
from siltstone.server.rest.jobs import Jobs
from siltstone.server.rest.joined import joined_desk
from siltstone.server.rest.limits import Limits
from siltstone.server.rest.namespaces import Namespaces
from siltstone.server.rest.queries import Queries
from siltstone.server.rest.reach import Reach
from siltstone.server.rest.routes import Desks, routes_of
from siltstone.server.rest.tables import Tables
from siltstone.server.rest.transactions import Transactions
from siltstone.server.served import Served
from siltstone.server.serving import Serving
from siltstone.server.sessions import Sessions
from siltstone.store import Store
from siltstone.wiring import Parts

_FOREVER_S = 10 * 365 * 86_400


class Service:
    """See the module."""

    def __init__(
        self,
        db: Store,
        parts: Parts,
        *,
        host: str,
        port: int,
        tokens: Iterable[Token] = (),
        allowed_hosts: Iterable[str] = (),
        certificate: Path | None = None,
        key: Path | None = None,
        limits: Limits | None = None,
    ) -> None:
        """Listen and serve; `url` answers from now on.

        Raises:
            RequestError: Another address than a loopback one, and no token; a key without a
                certificate.
            UnavailableError: The address cannot be had, or does not begin to answer; the
                certificate cannot be read.
        """
        limits = limits or Limits()
        gate = Gate(tokens, hosts=allowed_hosts)
        _check(host, certificate, key, gate)
        served = Served(db, parts)
        self.sessions = Sessions(
            served.reserve,
            idle_s=limits.idle_s,
            held_max=limits.transactions_max,
            secret=lambda: "-" + secrets.token_urlsafe(16),
        )
        self._joined = Sessions(
            served.reserve,
            idle_s=limits.idle_s,
            held_max=limits.transactions_max,
            connections_max=limits.connections_max,
            secret=lambda: "-" + secrets.token_urlsafe(16),
        )
        self._reservations = parts.reservations
        self._executor = ThreadPoolExecutor(limits.threads, "siltstone-rest")
        self._desk = joined_desk(served, self._joined, gate, limits, self._executor)
        self.exchange = Exchange(gate, limits, self._executor, clock_s=time.monotonic)
        self.jobs = Jobs(db, limits)
        reach = Reach(served, self.sessions, limits)
        spaces = Namespaces(reach)
        tables = Tables(reach, spaces)
        self.routes = routes_of(
            Desks(
                House(served, self.sessions, self.jobs, self.exchange),
                spaces,
                tables,
                Queries(reach, tables),
                Indexes(served),
                Transactions(reach),
                Feed(served),
                self.jobs,
            )
        )
        self._socket = _listening(host, port)
        address: tuple[str, int] = self._socket.getsockname()[:2]
        shown = f"[{address[0]}]" if ":" in address[0] else address[0]
        self.host, self.port = address
        self.url = f"http{'s' if certificate else ''}://{shown}:{self.port}"
        try:
            self._server = self._made(limits, certificate, key)
        except (OSError, ValueError) as error:
            self._give_up()
            raise UnavailableError(f"TLS cannot be had: {error}") from error
        self._reservations.add(self._joined.spend)
        try:
            self._server.start(self.url)
        except BaseException:  # interrupted, too
            self._give_up()
            raise

    def _made(self, limits: Limits, certificate: Path | None, key: Path | None) -> Serving:
        self.app = App(self.routes, self.exchange, self._desk)
        config = uvicorn.Config(
            self.app,
            http=connections(limits, self._joined, self._executor.submit),
            loop="asyncio",
            lifespan="off",
            ws="none",
            proxy_headers=False,
            log_config=None,
            access_log=False,
            server_header=False,
            date_header=False,
            timeout_keep_alive=_FOREVER_S,
            timeout_graceful_shutdown=2,
            h11_max_incomplete_event_size=limits.header_bytes_max,
            ssl_certfile=certificate,
            ssl_keyfile=key,
        )
        config.load()
        every_s = max(0.05, min(limits.idle_s / 4, 5.0))
        return Serving(
            config,
            self._socket,
            name="siltstone-rest",
            sweep=self._sweep,
            every_s=every_s,
            graceful_s=limits.graceful_s,
        )

    async def _sweep(self) -> None:
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(self._executor, self.sessions.sweep)
        await loop.run_in_executor(self._executor, self._joined.sweep)

    def close(self) -> None:
        """Stop: requests inside are answered, open transactions rolled back. Again: nothing."""
        self.exchange.is_closing = self._desk.is_closing = True
        self._server.stop()
        self._give_up()

    def _give_up(self) -> None:
        self.sessions.close_all()
        self._joined.close_all()
        self.jobs.close()
        self._executor.shutdown()
        self._reservations.remove(self._joined.spend)
        with contextlib.suppress(OSError):
            self._socket.close()


def _check(host: str, certificate: Path | None, key: Path | None, gate: Gate) -> None:
    if gate.is_open and not is_loopback(host):
        raise RequestError(
            f"{host} is reached from other machines: give tokens (--tokens FILE), or listen on"
            " 127.0.0.1"
        )
    if key is not None and certificate is None:
        raise RequestError("a TLS key needs its certificate")


def _listening(host: str, port: int) -> socket.socket:
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        made = socket.socket(family, kind, protocol)
    except (OSError, OverflowError) as error:
        raise UnavailableError(f"cannot listen on {host}, port {port}: {error}") from error
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind(address)
        made.listen(128)
    except OSError as error:
        made.close()
        raise UnavailableError(f"cannot listen on {host}, port {port}: {error}") from error
    return made
