"""Targets: where the owner of a store answers: its socket on this machine, or its server's URL.

Both are asked in the words of `joined.protocol`. Over a URL these are in HTTP, the path has a
prefix, and requests carry an access token.
"""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, TypeAlias
from urllib.parse import urlsplit

import msgspec

from siltstone.errors import RequestError, UnavailableError

if TYPE_CHECKING:
    import ssl

URL_MAX = 512
"""Characters; LOCK has room for one."""
TOKEN_VARIABLE = "SILTSTONE_TOKEN"  # noqa: S105 - a name
PORT = 2333
GONE_S = 60
"""A machine from which nothing came for so long, not even from its kernel, is taken for gone."""
_KEPT_ALIVE = {"TCP_KEEPIDLE": GONE_S // 2, "TCP_KEEPINTVL": GONE_S // 6, "TCP_KEEPCNT": 3}


class SocketTarget(msgspec.Struct, frozen=True):
    """The socket of an owner on this machine."""

    address: str

    def __str__(self) -> str:
        return self.address

    def dial(self, timeout_s: float) -> socket.socket:
        """Connect to the socket; OSError if no server answers."""
        made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        made.settimeout(timeout_s)
        try:
            made.connect(self.address)
        except OSError:
            made.close()
            raise
        return made


@dataclass(frozen=True, slots=True)
class ServerTarget:
    """A server at a URL; the access token is in no representation.

    `host` and `prefix` are the Host and the start of the path in HTTP.
    """

    prefix: ClassVar[str] = "/v1/joined"
    url: str
    name: str
    port: int
    token: str | None = field(default=None, repr=False)
    context: ssl.SSLContext | None = field(default=None, repr=False)

    def __str__(self) -> str:
        return self.url

    @property
    def host(self) -> str:
        """The name and port, as the `Host` of requests."""
        name = f"[{self.name}]" if ":" in self.name else self.name
        return f"{name}:{self.port}"

    @property
    def headers(self) -> dict[str, str]:
        return {} if self.token is None else {"authorization": f"Bearer {self.token}"}

    def dial(self, timeout_s: float) -> socket.socket:
        """Connect, and shake hands if the URL is https; OSError if no server answers."""
        made = socket.create_connection((self.name, self.port), timeout_s)
        try:
            made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            keep_alive(made)
            _set_option(made, "TCP_USER_TIMEOUT", GONE_S * 1000)  # a server reads requests at once
            if self.context is None:
                return made
            return self.context.wrap_socket(made, server_hostname=self.name)
        except OSError:
            made.close()
            raise


Target: TypeAlias = SocketTarget | ServerTarget
"""Where connections go."""


def keep_alive(sock: socket.socket) -> None:
    """Have the kernel end a TCP connection whose other machine is gone; reads of it raise OSError.

    The kernel sends probes when nothing came for a while. Bytes that were sent and are never
    acknowledged end the connection after the kernel's own time, a quarter of an hour: a shorter
    TCP_USER_TIMEOUT would also end connections whose other end lives and reads nothing for so long.
    """
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEPT_ALIVE.items():
        _set_option(sock, name, value)


def _set_option(sock: socket.socket, name: str, value: int) -> None:
    option = getattr(socket, name, None)
    if option is not None:  # not every system has all of them
        sock.setsockopt(socket.IPPROTO_TCP, option, value)


def is_url(path: object) -> bool:
    """Say whether the argument of `connect` is the URL of a server."""
    return isinstance(path, str) and path.lower().startswith(("http://", "https://"))


def server_at(url: str, token: object = None, cafile: object = None) -> ServerTarget:
    """Return the target that a URL names; the default of `token` is $SILTSTONE_TOKEN.

    Raises:
        RequestError: It is no URL of a server; a token that cannot be in a header.
        UnavailableError: `cafile` cannot be read.
    """
    refusal = RequestError("a server is http://host:port or https://host:port, and no more")
    try:
        parts = urlsplit(url)
        name, port = parts.hostname, parts.port or PORT
    except ValueError:
        raise refusal from None
    is_bare = len(url) <= URL_MAX and not (
        parts.query or parts.fragment or parts.username or parts.path.strip("/")
    )
    if name is None or not is_bare:
        raise refusal
    shown = token if token is not None else os.environ.get(TOKEN_VARIABLE) or None
    if shown is not None and not (
        isinstance(shown, str) and shown.isascii() and shown.isprintable()
    ):
        raise RequestError("a token is a string of printable ASCII characters")
    context = None
    if parts.scheme.lower() == "https":
        import ssl  # noqa: PLC0415 - every store asks whether it is a URL, and this takes 20 ms

        try:
            context = ssl.create_default_context(cafile=None if cafile is None else str(cafile))
        except OSError as error:
            raise UnavailableError(f"{cafile} cannot be read: {error}") from error
    return ServerTarget(url.rstrip("/"), name, port, shown, context)
