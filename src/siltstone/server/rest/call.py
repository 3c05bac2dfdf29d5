"""Call: one REST request as a handler sees it, and what the specification's ids in it name.

    x-siltstone-txn: <id>                               reads and writes of that transaction
    x-siltstone-snapshot: seq:42 | record:7 | at:... | tag:...     reads as of then
    x-siltstone-token: <app>/<batch>                    a statement is applied once, however often

An id is a list of names, joined by a delimiter. A table `t` in the namespace `a.b` is the table
`a.b.t` of the store; an id of one name is the whole name of a table, whatever namespace it is in.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Generic, TypeVar, cast

import msgspec

from siltstone.lance_namespace.specification import members
from siltstone.lance_namespace.tables import DELIMITER
from siltstone.lance_versions.errors import invalid
from siltstone.server.rest.tokens import Principal

DATABASE_HEADER = "x-lancedb-database"
TRANSACTION_HEADER = "x-siltstone-txn"
SNAPSHOT_HEADER = "x-siltstone-snapshot"
TOKEN_HEADER = "x-siltstone-token"  # noqa: S105 - a name
KEYED_HEADER = "x-siltstone-keyed"
OUR_PREFIX = b"x-siltstone-"
_OURS = (TRANSACTION_HEADER, SNAPSHOT_HEADER, TOKEN_HEADER, KEYED_HEADER)
TRUTHS = {"true": True, "1": True, "false": False, "0": False}
Asked = TypeVar("Asked")


def check_headers(given: Sequence[tuple[bytes, bytes]]) -> None:
    """Refuse what begins with `OUR_PREFIX` and says nothing, or twice, or is none of ours.

    A statement without its transaction would commit alone, and one without its token twice.

    Raises:
        Refused: It names the header.
    """
    seen = set[str]()
    for raw, value in given:
        name = raw.decode("latin-1")
        if name not in _OURS:
            raise invalid(f"there is no header {name[:80]}; ours are {', '.join(_OURS)}")
        if not value.strip():
            raise invalid(f"the header {name} is empty: leave it out, or say what it is")
        if name in seen:
            raise invalid(f"the header {name} is given twice")
        seen.add(name)


@dataclass(frozen=True)
class RestCall(Generic[Asked]):
    """`path`, `query` and `headers` are decoded text; `request` is the type of a JSON body.

    A handler says `RestCall[<type>]`, and the route takes the type from there.
    """

    path: Mapping[str, str]
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes
    principal: Principal
    request: type[Asked] | None = None

    @cached_property
    def asked(self) -> Asked:
        """The body as the route's type of it (`schemas`); None if it is no JSON.

        Raises:
            Refused: It is no JSON, or not as the type describes it.
        """
        if self.request is None:
            return cast("Asked", None)
        body = self.body or b"{}"
        try:
            return self._decoded(body, self.request)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise invalid(f"the body is not JSON: {error}") from None

    def _decoded(self, body: bytes, request: Any) -> Asked:
        try:
            return msgspec.json.decode(body, type=request)
        except msgspec.ValidationError:
            # In the words that it has in process, where a request is no JSON: msgspec has two.
            return members.converted(msgspec.json.decode(body), request)

    def check(self) -> None:
        """Refuse a body, or a query, that asks for what the route does not do.

        Raises:
            Refused: It names the member, or the parameter.
        """
        members.refuse_not_offered(self.asked)
        members.refuse_branch(self.query.get("branch"))

    # headers

    @property
    def is_remote(self) -> bool:
        """Whether a LanceDB remote client asks: some answers have another form for it."""
        return DATABASE_HEADER in self.headers

    @property
    def transaction(self) -> str | None:
        """The id of the transaction that the call is a part of."""
        return self.headers.get(TRANSACTION_HEADER)

    @property
    def snapshot(self) -> str | None:
        """What the call reads at, if it says so."""
        return self.headers.get(SNAPSHOT_HEADER)

    @property
    def token(self) -> tuple[str, int] | None:
        """The token under which the call is applied once.

        Raises:
            Refused: It is not `<app>/<batch>`.
        """
        text = self.headers.get(TOKEN_HEADER)
        if text is None:
            return None
        app, _, batch = text.rpartition("/")
        if not app or not (batch.isascii() and batch.isdecimal() and len(batch) < 20):
            raise invalid(f"{TOKEN_HEADER} is <app>/<batch>, the batch a number from 0")
        return app, int(batch)

    # the query

    def number(self, name: str) -> int | None:
        """Return a number of the query, None if it is not there.

        Raises:
            Refused: It is no number from 0 that fits 64 bits.
        """
        text = self.query.get(name)
        if not text:
            return None
        if not (text.isascii() and text.isdecimal() and len(text) < 19):
            raise invalid(f"{name} is an integer from 0, not {text[:80]!r}")
        return int(text)

    def names(self, name: str) -> list[str] | None:
        """Return the names in a parameter, which commas separate; None: it has none."""
        return [each for each in (self.query.get(name) or "").split(",") if each] or None

    def truth(self, name: str) -> bool:
        """Return whether the query says that something is true; by default it is not.

        Raises:
            Refused: It says something else.
        """
        found = TRUTHS.get((self.query.get(name) or "false").lower())
        if found is None:
            raise invalid(f"{name} is true or false")
        return found

    # ids

    def named(self, given: object = None) -> Sequence[str]:
        """Return the names in the id of the path, () for the root; `given` is that of the body.

        Raises:
            Refused: A name is empty, or the body has another id.
        """
        text, delimiter = self.path["id"], self.query.get("delimiter") or DELIMITER
        parts = () if text == delimiter else tuple(text.split(delimiter))
        if not all(parts):
            raise invalid(f"the id {text[:200]!r} has an empty name in it")
        if given is not None and (not isinstance(given, list) or tuple(given) != parts):
            raise invalid(f"the id of the body, {given!r:.200}, is not the one of the path")
        return parts
