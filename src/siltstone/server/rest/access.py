"""Access: roles, access tokens, and the addresses that a request may come from.

Tokens are kept as SHA-256: they are random and long (`TOKEN_CHARACTERS_MIN`), so there is nothing
to guess that a slow hash would protect, and each request pays for the hash. All of them are
compared, each in constant time: how long a refusal takes says nothing about any of them.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import os
import re
import secrets
import stat
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from siltstone.errors import RequestError
from siltstone.server.http.request import HttpRequest
from siltstone.server.http.route import Role, Route
from siltstone.server.rest.refusals import Code, Refused

TOKENS_VARIABLE = "SILTSTONE_SERVER_TOKENS"
TOKEN_CHARACTERS_MIN = 24
TOKEN_CHARACTERS_MAX = 512
TOKENS_MAX = 1_000
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_LOCAL_NAMES = frozenset(("localhost", "127.0.0.1", "::1"))


@dataclass(frozen=True, slots=True)
class Principal:
    """A client: a name that may stand in a log, and a role."""

    name: str
    role: Role

    def require(self, role: Role) -> None:
        """Refuse a client that has not the role that an operation needs.

        Raises:
            Refused: No token, or one with less.
        """
        if self.role >= role:
            return
        if self is ANONYMOUS:
            text = "this server wants a token: Authorization: Bearer ..."
            raise Refused(Code.UNAUTHENTICATED, text)
        raise Refused(
            Code.PERMISSION_DENIED,
            f"{self.name!r} has the role {self.role.name.lower()}, this needs {role.name.lower()}",
        )


ANONYMOUS = Principal("anonymous", Role.NOBODY)
LOCAL = Principal("local", Role.ADMIN)


@dataclass(frozen=True, slots=True)
class AccessToken:
    """A principal and the SHA-256 of the secret that proves it."""

    principal: Principal
    digest: bytes


def new_token() -> str:
    """Return a secret of 256 random bits."""
    return "slt_" + secrets.token_urlsafe(32)


def digest_of(secret: str) -> bytes:
    """Return what is kept of a token."""
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).digest()


def tokens_of(text: str, source: str) -> tuple[AccessToken, ...]:
    """Return the tokens of a text: `<name> <role> <token or sha256:...>`, one on a line.

    Semicolons end lines, too. Lines that begin with `#` are left out.

    Raises:
        RequestError: A line is invalid; the error has its number, not its text.
    """
    lines = [line.strip() for line in re.split(r"[\n;]", text)]
    found = [
        _token_of(line, f"{source}, line {number}")
        for number, line in enumerate(lines, 1)
        if line and not line.startswith("#")
    ]
    if len(found) > TOKENS_MAX:
        raise RequestError(f"{source} has {len(found)} tokens; at most {TOKENS_MAX} are taken")
    names = [token.principal.name for token in found]
    if len(set(names)) != len(names):
        raise RequestError(f"{source}: two tokens have the same name")
    return tuple(found)


def _token_of(line: str, where: str) -> AccessToken:
    parts = line.split()
    if len(parts) != 3 or parts[1].upper() not in {"READ", "WRITE", "ADMIN"}:
        raise RequestError(f"{where}: a token is `<name> read|write|admin <token or sha256:hex>`")
    name, role, secret = parts
    principal = Principal(name, Role[role.upper()])
    if _DIGEST.fullmatch(secret):
        return AccessToken(principal, bytes.fromhex(secret.removeprefix("sha256:")))
    if not TOKEN_CHARACTERS_MIN <= len(secret) <= TOKEN_CHARACTERS_MAX:
        raise RequestError(f"{where}: a token has {TOKEN_CHARACTERS_MIN} to {TOKEN_CHARACTERS_MAX}"
                           " characters; `siltstone token` makes one")  # fmt: skip
    return AccessToken(principal, digest_of(secret))


def tokens_from(file: Path | None, environment: Mapping[str, str]) -> tuple[AccessToken, ...]:
    """Return the tokens of a file that only its owner may read, and of the environment.

    Raises:
        RequestError: The file is not there, or others may read or write it; a line is invalid.
    """
    found = tokens_of(environment.get(TOKENS_VARIABLE, ""), f"${TOKENS_VARIABLE}")
    if file is None:
        return found
    return (*found, *tokens_of(_private_text(file), str(file)))


def _private_text(file: Path) -> str:
    try:
        with file.open(encoding="utf-8") as opened:
            mode = os.fstat(opened.fileno()).st_mode
            if not stat.S_ISREG(mode) or mode & 0o077:
                raise RequestError(f"{file} is open to others: chmod 600 {file}")
            return opened.read(1 << 20)
    except (OSError, UnicodeDecodeError) as error:
        raise RequestError(f"the tokens of {file} cannot be read: {type(error).__name__}") from None


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
    """

    def __init__(self, tokens: Iterable[AccessToken], *, hosts: Iterable[str] = ()) -> None:
        self._tokens = tuple(tokens)
        self._hosts = _LOCAL_NAMES | {host.lower() for host in hosts}

    @property
    def is_open(self) -> bool:
        """Whether clients need no token."""
        return not self._tokens

    def admit(self, request: HttpRequest, route: Route) -> Principal:
        """Return the client that sent a request, if it has the role of the route.

        Raises:
            Refused: It has not, or its token is not known; without tokens, the host or the origin
                is not this machine.
        """
        headers = request.headers
        if self._tokens:
            found = self._known(headers)
            found.require(route.role)
            return found
        if not self._is_ours("//" + headers.get("host", "")):
            raise Refused(Code.PERMISSION_DENIED, "the Host of the request is not this machine")
        origin = headers.get("origin")
        if origin is not None and not self._is_ours(origin):
            raise Refused(Code.PERMISSION_DENIED, "the Origin of the request is not this machine")
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
            raise Refused(Code.UNAUTHENTICATED, "the token is not known to this server")
        return found

    def _is_ours(self, url: str) -> bool:
        try:
            return (urlsplit(url).hostname or "") in self._hosts
        except ValueError:
            return False


def _secret(headers: Mapping[str, str]) -> str | None:
    kind, _, value = headers.get("authorization", "").partition(" ")
    if kind.lower() == "bearer" and value.strip():
        return value.strip()
    return headers.get("x-api-key") or None
