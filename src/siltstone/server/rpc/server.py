"""RPC server: the socket on which the owner of a store answers other processes of the same user.

    named in LOCK (`Store.serve_local`) ─▶ bind ─▶ mode 0600 ─▶ listen ─▶ serve in a thread
    close: stop ─▶ roll back what is open ─▶ remove the socket

The next owner, who holds the flock, replaces the socket of an owner that was killed. The process at
the other end must be of the same user (SO_PEERCRED); the modes of the socket do not decide.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from siltstone.errors import UnavailableError
from siltstone.joined import protocol
from siltstone.local.store import LocalStore
from siltstone.open.parts import Parts
from siltstone.server.http.handover import HandOver
from siltstone.server.http.lane import Lane
from siltstone.server.http.pipeline import Pipeline
from siltstone.server.http.policy import LanePolicy, ListenerPolicy, RequestPolicy
from siltstone.server.http.router import Router
from siltstone.server.http.server import HttpServer
from siltstone.server.rpc.commits import Commits
from siltstone.server.rpc.frames import FrameConnections
from siltstone.server.rpc.routes import rpc_use
from siltstone.server.rpc.wire import RpcWire
from siltstone.server.served import Served
from siltstone.server.sessions import IDLE_S, Sessions

THREADS_MAX = 32
BODIES_INSIDE_MAX = 4
"""So many bodies of the largest size may be inside at once, or more of smaller ones."""


def rpc_policy(
    *,
    body_bytes_max: int = protocol.BODY_BYTES_MAX,
    requests_max: int = 256,
    body_timeout_s: float = 300.0,  # of this user, so perhaps in a debugger
    read_timeout_s: float | None = None,
) -> RequestPolicy:
    """Return the policy of a use by joined processes; the defaults are those of this user's."""
    return RequestPolicy(
        body_bytes_max=body_bytes_max,
        json_bytes_max=body_bytes_max,
        bodies_bytes_max=BODIES_INSIDE_MAX * body_bytes_max,
        body_timeout_s=body_timeout_s,
        requests_max=requests_max,
        statement_timeout_s=read_timeout_s,
        piece_timeout_s=read_timeout_s,
        reads_ahead=False,
        takes_chunks=False,
        drains=True,
    )


class LocalServer:
    """See the module. One thread opens, one closes."""

    def __init__(
        self,
        db: LocalStore,
        parts: Parts,
        address: Path,
        *,
        sessions: Sessions | None = None,
        idle_s: float = IDLE_S,
        user: int | None = None,
        policy: RequestPolicy | None = None,
    ) -> None:
        """Listen and serve; `address` answers from now on.

        Raises:
            UnavailableError: The socket cannot be made, or does not begin to answer.
        """
        served = Served(db, parts)
        self.sessions = sessions or Sessions(served.reserve, idle_s=idle_s)
        self.address = address
        executor = ThreadPoolExecutor(THREADS_MAX, "siltstone-server")
        wire = RpcWire(self.sessions, ended=served.ended)
        lane = Lane(LanePolicy())
        self.pipeline = Pipeline(wire, policy or rpc_policy(), executor, lane=lane)
        listener = ListenerPolicy(
            name="siltstone-endpoint", graceful_s=2, sweep_every_s=max(0.05, min(idle_s / 4, 5.0))
        )
        router = Router(rpc_use("/v1", served, self.sessions, self.pipeline, is_elsewhere=False))
        commits = Commits(served, self.sessions)
        made: list[FrameConnections] = []

        def connection(handover: HandOver) -> Callable[..., asyncio.Protocol]:
            found = FrameConnections(
                router,
                self.pipeline,
                self.sessions,
                commits,
                user=os.geteuid() if user is None else user,
                submit=executor.submit,
                handover=handover,
            )
            made.append(found)
            return found.made

        def at_end() -> None:
            for each in made:
                each.close()
            self._remove()

        self.http = HttpServer(
            address,
            router,
            _listening(address),
            listener,
            executor,
            self.sessions,
            connection=connection,
            reservations=parts.reservations,
            at_end=at_end,
        )

    def close(self) -> None:
        """Stop answering; roll back what is open on connections. A second time does nothing."""
        self.http.close()

    def _remove(self) -> None:
        with contextlib.suppress(OSError):
            self.address.unlink()


def _listening(address: Path) -> socket.socket:
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with contextlib.suppress(FileNotFoundError):
            address.unlink()  # of an owner that was killed: we hold the flock
        made.bind(str(address))
        address.chmod(0o600)
        made.listen(128)
    except OSError as error:
        made.close()
        raise UnavailableError(f"cannot listen on {address}: {error}") from error
    return made
