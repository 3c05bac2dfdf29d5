"""Tokens: roles of clients, and the access tokens that prove them.

Tokens are kept as SHA-256: they are random and long (`TOKEN_CHARACTERS_MIN`), so there is nothing
to guess that a slow hash would protect, and each request pays for the hash. This module needs no
HTTP: `siltstone token` answers at once, and without the extra `server`.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from siltstone.errors import AccessError, RequestError
from siltstone.operations import Role

TOKENS_VARIABLE = "SILTSTONE_SERVER_TOKENS"
TOKEN_CHARACTERS_MIN = 24
TOKEN_CHARACTERS_MAX = 512
TOKENS_MAX = 1_000
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class Principal:
    """A client: a name that may stand in a log, and a role."""

    name: str
    role: Role

    def require(self, role: Role) -> None:
        """Refuse a client that has not the role that an operation needs.

        Raises:
            AccessError: No token, or one with less.
        """
        if self.role >= role:
            return
        if self is ANONYMOUS:
            text = "this server wants a token: Authorization: Bearer ..."
            raise AccessError(text, status=401)
        raise AccessError(
            f"{self.name!r} has the role {self.role.name.lower()}, this needs {role.name.lower()}"
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

    An empty variable is as none.

    Raises:
        RequestError: The file is not there, or others may read or write it; a line is invalid; one
            of the two was given and has no token, which would leave the server open.
    """
    given, variable = environment.get(TOKENS_VARIABLE, ""), f"${TOKENS_VARIABLE}"
    found = _some_tokens_of(given, variable) if given else ()
    if file is None:
        return found
    return (*found, *_some_tokens_of(_private_text(file), str(file)))


def _some_tokens_of(text: str, source: str) -> tuple[AccessToken, ...]:
    found = tokens_of(text, source)
    if not found:
        raise RequestError(f"{source} has no token; `siltstone token` makes one")
    return found


def _private_text(file: Path) -> str:
    try:
        with file.open(encoding="utf-8") as opened:
            mode = os.fstat(opened.fileno()).st_mode
            if not stat.S_ISREG(mode) or mode & 0o077:
                raise RequestError(f"{file} is open to others: chmod 600 {file}")
            return opened.read(1 << 20)
    except (OSError, UnicodeDecodeError) as error:
        raise RequestError(f"the tokens of {file} cannot be read: {type(error).__name__}") from None
