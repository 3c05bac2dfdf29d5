"""Access: the gate that every request passes: its token, and the address that it comes from.

All tokens are compared, each in constant time: how long a refusal takes says nothing about any.
"""

from __future__ import annotations

import hmac
import ipaddress
from collections.abc import Iterable, Mapping
from urllib.parse import urlsplit

from siltstone.errors import AccessError, RequestError
from siltstone.server.http.request import HttpRequest
from siltstone.server.http.route import Route
from siltstone.server.rest.tokens import ANONYMOUS, LOCAL, AccessToken, Principal, digest_of

_LOCAL_NAMES = frozenset(("localhost", "127.0.0.1", "::1"))


def is_loopback(host: str) -> bool:
    """Say whether only this machine reaches an address; a name is `localhost` or it is not."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


class Gate:
    """Decides who a request comes from. Without tokens: a process of this machine, no browser.

    A browser on this machine may show a page of another site, which asks from here, too. Then the
    `Host` or the `Origin` is the other site (DNS rebinding): both must be this machine.

    Any thread: other tokens are one assignment.
    """

    def __init__(self, tokens: Iterable[AccessToken], *, hosts: Iterable[str] = ()) -> None:
        self._tokens = _checked(tokens)
        self._hosts = _LOCAL_NAMES | {host.lower() for host in hosts}

    @property
    def is_open(self) -> bool:
        """Whether clients need no token."""
        return not self._tokens

    def take(self, tokens: Iterable[AccessToken]) -> None:
        """Know these tokens, and no others, from the next request on.

        Raises:
            RequestError: There are none, which would open a server that asked for one; or one is
                no access token.
        """
        taken = _checked(tokens)
        if self._tokens and not taken:
            raise RequestError("a server that asks for tokens goes on with one at least")
        self._tokens = taken

    def admit(self, request: HttpRequest, route: Route) -> Principal:
        """Return the client that sent a request, if it has the role of the route.

        Raises:
            AccessError: It has not, or its token is not known; without tokens, the host or the
                origin is not this machine.
        """
        headers = request.headers
        if self._tokens:
            found = self._known(headers)
            found.require(route.role)
            return found
        if not self._is_ours("//" + headers.get("host", "")):
            raise AccessError("the Host of the request is not this machine")
        origin = headers.get("origin")
        if origin is not None and not self._is_ours(origin):
            raise AccessError("the Origin of the request is not this machine")
        return LOCAL

    def _known(self, headers: Mapping[str, str]) -> Principal:
        secret = _secret(headers)
        if secret is None:
            return ANONYMOUS
        digest, found = digest_of(secret), None
        for token in self._tokens:
            if hmac.compare_digest(token.digest, digest):
                found = token.principal
        if found is None:
            raise AccessError("the token is not known to this server", status=401)
        return found

    def _is_ours(self, url: str) -> bool:
        try:
            return (urlsplit(url).hostname or "") in self._hosts
        except ValueError:
            return False


def _checked(tokens: Iterable[AccessToken]) -> tuple[AccessToken, ...]:
    taken: tuple[object, ...] = tuple(tokens)
    found = tuple(each for each in taken if isinstance(each, AccessToken))
    if len(found) < len(taken):
        raise RequestError("something that is no access token is among the tokens")
    return found


def _secret(headers: Mapping[str, str]) -> str | None:
    kind, _, value = headers.get("authorization", "").partition(" ")
    if kind.lower() == "bearer" and value.strip():
        return value.strip()
    return headers.get("x-api-key") or None
