"""Namespaces: the operations of the Lance catalog on namespaces. Those that exist have a table."""

from __future__ import annotations

from siltstone.lance_namespace.errors import (
    NamespaceExistsError,
    NamespaceNotEmptyError,
    NamespaceNotFoundError,
    UnsupportedOperationError,
)
from siltstone.lance_namespace.requests import Answer, Request, ids_of, namespace_of, page
from siltstone.lance_namespace.scope import Scope


class NamespaceOperations:
    """Each method answers the operation of its name."""

    def __init__(self, scope: Scope) -> None:
        self._scope = scope

    def list_namespaces(self, request: Request) -> Answer:
        """List the namespaces below the root; there are none below those."""
        if namespace_of(request):
            self.describe_namespace(request)
            return {"namespaces": []}
        with self._scope.reading() as db:
            found = {ids[0] for ids in map(ids_of, db.tables()) if len(ids) > 1}
        return page(sorted(found), request, "namespaces")

    def describe_namespace(self, request: Request) -> Answer:
        """Return the properties of a namespace: it has none.

        Raises:
            NamespaceNotFoundError: It is not the root, and has no table.
        """
        name = namespace_of(request)
        with self._scope.reading() as db:
            if name and not any(table.startswith(f"{name}.") for table in db.tables()):
                raise NamespaceNotFoundError(name)
        return {"properties": {}}

    def namespace_exists(self, request: Request) -> Answer:
        """Raise NamespaceNotFoundError unless the namespace exists."""
        self.describe_namespace(request)
        return {}

    def create_namespace(self, request: Request) -> Answer:
        """Answer for a namespace that exists, in the mode "exist_ok"; refuse to create one.

        Raises:
            NamespaceExistsError: It exists, and another mode is asked for.
            UnsupportedOperationError: It does not exist.
        """
        name, mode = namespace_of(request), str(request.get("mode") or "create")
        try:
            self.describe_namespace(request)
        except NamespaceNotFoundError:
            reason = f"the namespace {name!r} comes with its first table: create the table in it"
            raise UnsupportedOperationError(reason) from None
        if mode.replace("_", "").lower() != "existok":
            raise NamespaceExistsError(name or "$")
        return {"properties": {}}

    def drop_namespace(self, request: Request) -> Answer:
        """Refuse to drop a namespace: it exists while it has a table.

        Raises:
            NamespaceNotFoundError, NamespaceNotEmptyError: Always one of them.
        """
        self.describe_namespace(request)
        raise NamespaceNotEmptyError(namespace_of(request) or "$")
