"""Lance calls: the Lance catalog as joined processes ask for it, by the names of its operations.

Their Lance clients write files into the store's directory; the owner imports them here, as the
versions that the clients ask for.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from siltstone.errors import RequestError
from siltstone.lance_namespace.catalog import WRITES, LanceCatalog
from siltstone.lance_namespace.fresh import KEYED
from siltstone.lance_namespace.requests import Answer, Request
from siltstone.lance_namespace.scope import Scope

VERB = "lance_catalog"


@dataclass(frozen=True, slots=True)
class LanceCall:
    """One request: `keyed` says what is seen of tables with a key."""

    operation: str
    request: Request
    keyed: str = KEYED[0]

    @classmethod
    def of(cls, arguments: list[Any]) -> LanceCall:
        """Return the request in the arguments of a call.

        Raises:
            RequestError: There is none.
        """
        types = [type(each) for each in arguments]
        if types != [str, dict, str] or arguments[2] not in KEYED:
            raise RequestError(f"an operation, a request and one of {KEYED}, not {types}")
        return cls(*arguments)

    @property
    def commits(self) -> bool:
        """Whether it is a statement."""
        return self.operation in WRITES

    @property
    def is_fresh(self) -> bool:
        """Whether rows that are not merged are seen, too."""
        return self.keyed == "fresh"

    def answer(self, scope: Scope) -> Answer:
        """Answer the request where `scope` goes.

        Raises:
            RequestError: A member of it has another type than it should.
        """
        try:
            return LanceCatalog(scope).answer(self.operation, self.request)
        except (TypeError, AttributeError, KeyError) as error:
            # The catalog takes requests that have the right types; these come from anywhere.
            text = "a member of the request has another type than it should"
            raise RequestError(text) from error
