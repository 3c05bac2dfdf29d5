"""Call: one REST request as a handler sees it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import msgspec

from siltstone.server.rest.access import Principal
from siltstone.server.rest.refusals import invalid

DATABASE_HEADER = "x-lancedb-database"


@dataclass(frozen=True)
class RestCall:
    """`path`, `query` and `headers` are decoded text; `request` is the type of a JSON body."""

    path: Mapping[str, str]
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes
    principal: Principal
    request: Any = None

    @cached_property
    def asked(self) -> Any:
        """The body as the route's type of it (`schemas`); None if it is no JSON.

        Raises:
            Refused: It is no JSON, or not as the type describes it.
        """
        if self.request is None:
            return None
        try:
            return msgspec.convert(self.json(), self.request)
        except msgspec.ValidationError as error:
            raise invalid(f"the body is not as /openapi.json describes it: {error}") from None

    @property
    def is_remote(self) -> bool:
        """Whether a LanceDB remote client asks: some answers have another form for it."""
        return DATABASE_HEADER in self.headers

    def json(self) -> dict[str, Any]:
        """Return the object of a JSON body; without a body an empty one.

        Raises:
            Refused: It is no JSON, or no object.
        """
        if not self.body:
            return {}
        try:
            found = msgspec.json.decode(self.body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise invalid(f"the body is not JSON: {error}") from None
        if found is None:
            return {}
        if not isinstance(found, dict):
            raise invalid(f"the body is a JSON object, not a {type(found).__name__}")
        return found
