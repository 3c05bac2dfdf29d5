"""REST server of an open store: a TCP socket, the routes, and their end.

    RestServer(...) ─▶ listen ─▶ serve in a thread ─▶ close: stop, answer what is inside, roll back

On a loopback address it answers every process of this machine, on any other one only tokens. Below
/v1/joined it answers the Python API of other machines; what that opens lives with its TCP
connection, under a key that cannot be guessed.

Of a store that is only read, a mirror at its URL, it answers the routes that read (`serve_reader`),
and no process joins it.
"""

from __future__ import annotations

import platform
import secrets
import socket
from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from siltstone.arguments import count_of, flag_of
from siltstone.errors import ReadOnlyError, RequestError, UnavailableError
from siltstone.joined.targets import server_at
from siltstone.lance_versions.errors import Code
from siltstone.local.store import LocalStore
from siltstone.open.parts import Parts
from siltstone.paths import only_read
from siltstone.server.console import console_routes
from siltstone.server.http.access_log import AccessLog
from siltstone.server.http.arrivals import Arrivals
from siltstone.server.http.certificate import Certificate
from siltstone.server.http.connections import HttpConnection
from siltstone.server.http.lane import Lane
from siltstone.server.http.pipeline import Pipeline, Watchers
from siltstone.server.http.policy import LanePolicy, ListenerPolicy, RequestPolicy
from siltstone.server.http.request import HttpRequest
from siltstone.server.http.route import Role, Route
from siltstone.server.http.router import Router
from siltstone.server.http.server import HttpServer
from siltstone.server.metrics.exposition import Exposition
from siltstone.server.metrics.sources import Sources
from siltstone.server.rest.access import Gate, is_loopback
from siltstone.server.rest.call import RestCall
from siltstone.server.rest.limits import Limits
from siltstone.server.rest.native.jobs import JobRoutes
from siltstone.server.rest.routes import routes_of
from siltstone.server.rest.scope import RequestScope
from siltstone.server.rest.tokens import LOCAL, AccessToken
from siltstone.server.rest.wire import RestWire
from siltstone.server.rpc.routes import rpc_use
from siltstone.server.rpc.server import rpc_policy
from siltstone.server.rpc.wire import Admitted, RpcWire
from siltstone.server.served import Served
from siltstone.server.sessions import Session, Sessions
from siltstone.server.shipped_waits import ShippedWaits

JOINED = "/v1/joined"
PORT_MAX = (1 << 16) - 1
_ANY = ("0.0.0.0", "::")  # noqa: S104 - what is listened on is said elsewhere


class RestServer:
    """See the module. One thread opens, one closes."""

    def __init__(
        self,
        db: LocalStore,
        parts: Parts,
        *,
        host: str,
        port: int,
        tokens: Iterable[AccessToken] = (),
        allowed_hosts: Iterable[str] = (),
        certificate: Path | None = None,
        key: Path | None = None,
        limits: Limits | None = None,
        advertise: str | None = None,
        access_log: bool = False,
    ) -> None:
        """Listen and serve; `url` answers from now on, `advertised` from other machines.

        Raises:
            RequestError: Another address than a loopback one, and no token; a key without a
                certificate; `advertise` is no URL of a server; no such port.
            UnavailableError: The address cannot be had, or does not begin to answer; the
                certificate cannot be read.
        """
        limits = limits or Limits()
        count_of("port", port, 0, PORT_MAX)
        self._gate = gate = Gate(tokens, hosts=allowed_hosts)
        _check(host, certificate, key, gate)
        self._certificate = Certificate(certificate, key) if certificate else None
        if advertise is not None:
            server_at(advertise)
        served = Served(db, parts, shipped_waits=ShippedWaits(limits.shipped_waits_max))
        sessions_of = partial(
            Sessions,
            served.reserve,
            idle_s=limits.idle_s,
            held_max=limits.transactions_max,
            secret=lambda: "-" + secrets.token_urlsafe(16),
        )
        self.sessions = sessions_of()
        self.joined_sessions = sessions_of(connections_max=limits.connections_max)
        self._executor = executor = ThreadPoolExecutor(limits.threads, "siltstone-rest")
        access = AccessLog() if flag_of("access_log", access_log) else None
        watchers = Watchers(access, parts.core.works.spans)
        self.pipeline = Pipeline(RestWire(gate), rest_policy(limits), executor, watchers=watchers)
        self.joined = _joined(served, self.joined_sessions, gate, limits, executor, watchers)
        self.joined.counters.reads = self.pipeline.counters.reads  # the metrics have both
        self.jobs = JobRoutes(db, limits)
        self._scope = scope = RequestScope(served, self.sessions, limits)
        sources = Sources(
            served,
            (self.sessions, self.joined_sessions),
            (self.pipeline, self.joined),
            lambda: self.jobs.open,
        )
        self.routes = routes_of(scope, self.jobs, self.pipeline, Exposition(sources.values))
        if watchers.spans is not None:  # each request has its own, and so its own commit
            self.routes = [replace(route, grouping=None) for route in self.routes]
        if parts.core.committer is None:  # a process joins an owner; a mirror it can open itself
            self.routes = [_without_writes(route, db.path) for route in self.routes]
            joined = ()
        else:
            joined = (
                rpc_use(JOINED, served, self.joined_sessions, self.joined, is_elsewhere=True),
            )
        self.router = Router((self.pipeline, [*self.routes, *console_routes()]), *joined)
        policy = ListenerPolicy(
            name="siltstone-rest",
            graceful_s=limits.graceful_s,
            sweep_every_s=max(0.05, min(limits.idle_s / 4, 5.0)),
            connections_max=limits.connections_max,
            header_bytes_max=limits.header_bytes_max,
            header_timeout_s=limits.header_timeout_s,
            idle_timeout_s=limits.idle_timeout_s,
            bad_request_code=int(Code.INVALID_INPUT),
            busy_code=int(Code.THROTTLING),
            health_path="/healthz",
        )
        listener = _listening(host, port)
        address: tuple[str, int] = listener.getsockname()[:2]
        shown = f"[{address[0]}]" if ":" in address[0] else address[0]
        self.host, self.port = address
        scheme = "https" if certificate else "http"
        self.url = f"{scheme}://{shown}:{self.port}"
        is_any = address[0] in _ANY
        self.advertised = advertise or (
            f"{scheme}://{platform.node()}:{self.port}" if is_any else self.url
        )
        self.http = HttpServer(
            self.url,
            self.router,
            listener,
            policy,
            executor,
            self.joined_sessions,
            self.sessions,
            connection=lambda handover: partial(
                HttpConnection,
                policy,
                self.joined_sessions,
                executor.submit,
                Arrivals(self.router, handover).add,
            ),
            reservations=parts.reservations,
            at_end=self.jobs.close,
            certificate=self._certificate,
        )

    def reload(self, tokens: Iterable[AccessToken]) -> None:
        """See `api.serving.Service.reload`."""
        certificate = self._certificate
        context = certificate.read() if certificate else None
        known = tuple(tokens)
        self._gate.take(known)
        if certificate and context:
            certificate.show(context)
        names = {LOCAL.name, *(token.principal.name for token in known)}
        gone = self._scope.homes_besides(names)
        with suppress(RuntimeError):  # closed: nothing is open
            self._executor.submit(self._end, gone, names)  # it waits for calls that run

    def _end(self, homes: Iterable[Session], names: AbstractSet[str]) -> None:
        """Roll back, and close, what clients have open that are not known now."""
        for home in homes:
            self.sessions.close(home)
        self.joined_sessions.keep_clients(names)

    def close(self) -> None:
        """Stop: requests inside are answered, open transactions rolled back. Again: nothing."""
        self.http.close()


def serve_reader(db: LocalStore, **options: Any) -> RestServer:
    """Serve a store that this process only reads; its server ends before it does.

    What writes is refused, and so is what an owner alone knows: what comes next.

    Args:
        db: The store.
        options: Those of `RestServer`.

    Raises:
        RequestError, UnavailableError: As `RestServer`.
    """
    return RestServer(db, db._parts, **options)  # noqa: SLF001 # pyright: ignore[reportPrivateUsage]


def _without_writes(route: Route, root: Path) -> Route:
    if route.role in {Role.NOBODY, Role.READ}:
        return route

    def refuse(call: RestCall[Any]) -> NoReturn:
        del call
        raise ReadOnlyError(only_read(root))

    return replace(route, handler=refuse, grouping=None, is_checked=False)


def rest_policy(limits: Limits) -> RequestPolicy:
    """Return the policy of REST: bodies, statements and answers within `limits`."""
    return RequestPolicy(
        body_bytes_max=limits.body_bytes_max,
        json_bytes_max=limits.json_bytes_max,
        bodies_bytes_max=limits.bodies_bytes_max,
        body_timeout_s=limits.body_timeout_s,
        requests_max=limits.requests_max,
        statement_timeout_s=limits.statement_timeout_s,
        send_timeout_s=limits.body_timeout_s,
        answer_timeout_s=limits.answer_timeout_s,
    )


def _joined(
    served: Served,
    sessions: Sessions,
    gate: Gate,
    limits: Limits,
    executor: ThreadPoolExecutor,
    watchers: Watchers,
) -> Pipeline:
    """Return the pipeline of joined processes that the gate lets pass."""

    def admitted(request: HttpRequest, route: Route) -> Admitted:
        found = gate.admit(request, route)
        return Admitted(found.role >= Role.WRITE, None if gate.is_open else found.name)

    lane = LanePolicy(
        running_max=limits.statements_max,
        running_per_client_max=limits.token_statements_max,
        waiting_max=limits.waiting_statements_max,
        waiting_per_client_max=limits.token_waiting_statements_max,
        unread_s=limits.unread_rows_s,
        answer_timeout_s=limits.answer_timeout_s,
    )
    policy = rpc_policy(
        body_bytes_max=limits.body_bytes_max,
        requests_max=limits.requests_max,
        body_timeout_s=limits.body_timeout_s,
        read_timeout_s=limits.statement_timeout_s,
    )
    wire = RpcWire(sessions, tells_all=False, gate=admitted, ended=served.ended)
    return Pipeline(wire, policy, executor, lane=Lane(lane), watchers=watchers)


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
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, address = found[0][0], found[0][4]
        is_both = family == socket.AF_INET6  # of :: also the addresses of the old kind
        return socket.create_server(address, family=family, backlog=128, dualstack_ipv6=is_both)
    except (OSError, OverflowError) as error:
        raise UnavailableError(f"cannot listen on {host}, port {port}: {error}") from error
