"""Serving: the servers of an open store, and how they are registered with it.

    siltstone/__init__ ──attach──▶ how to load a server          nothing is imported yet
    Store.serve, Store.serve_local ──server_of──▶ its class      imported now, and made

Stores know this module alone: the server is in a layer above them, and an extra.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Protocol, TypedDict

from siltstone.process.extras import missing, needed


class Endpoint(Protocol):
    """Where other processes of the same user join an open store: a socket."""

    address: Path

    def close(self) -> None:
        """Stop answering; roll back what is open in joined processes."""
        ...


class Service(Protocol):
    """What answers clients over TCP."""

    url: str
    advertised: str

    def reload(self, tokens: Iterable[Any]) -> None:
        """Know these access tokens alone, and read the certificate again, or change nothing.

        The next request of each client needs a token that is known; what a client without one has
        open is rolled back, at the latest after a minute. New connections see the new
        certificate. Connections, transactions and answers go on.

        Args:
            tokens: As those of `Store.serve`.

        Raises:
            RequestError: There is none, and the server asks for one.
            UnavailableError: The certificate cannot be read, or its key does not belong to it.
        """
        ...

    def close(self) -> None:
        """Answer the requests that have begun, roll back open transactions, and stop."""
        ...


class ServeOptions(TypedDict, total=False):
    """The options of `Store.serve`, for type checkers and editors."""

    tokens: Iterable[Any]
    allowed_hosts: Iterable[str]
    certificate: Path | None
    key: Path | None
    limits: Any
    advertise: str | None
    access_log: bool


_loaders: dict[str, Callable[[], Callable[..., Any]]] = {}


def attach(call: str, load: Callable[[], Callable[..., Any]]) -> None:
    """Have `load` return the class that serves a store when `Store.<call>` needs it first."""
    _loaders[call] = load


def server_of(call: str) -> Callable[..., Any]:
    """Return the class that serves a store for `Store.<call>`.

    Raises:
        UnavailableError: A package of the extra `server` is missing; the error names it.
    """
    try:
        return _loaders[call]()
    except ImportError as error:
        raise needed(f"{call}()", missing(error), "server") from error
