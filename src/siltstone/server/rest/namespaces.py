"""Namespaces: the Lance catalog by HTTP: namespaces, where tables lie, and their versions."""

from __future__ import annotations

from typing import Any

from siltstone.lance_namespace.catalog import LanceCatalog
from siltstone.lance_namespace.table_versions import ROW_OPERATIONS
from siltstone.lance_namespace.turns import Turns
from siltstone.server.http.replies import Reply
from siltstone.server.http.route import Handler
from siltstone.server.rest import schemas as bodies
from siltstone.server.rest.arrow_schemas import schema_json
from siltstone.server.rest.call import RestCall
from siltstone.server.rest.lance_scope import LanceScope
from siltstone.server.rest.refusals import Code, Refused, invalid, unsupported
from siltstone.server.rest.scope import RequestScope

_WORDS = ("branch", "page_token")
_FLAGS = ("descending", "with_table_uri", "load_detailed_metadata", "include_declared")


class NamespaceRoutes:
    """See the module. Any thread."""

    def __init__(self, scope: RequestScope) -> None:
        self._scope, self._turns = scope, Turns()

    def list_all(self, call: RestCall[None]) -> Reply[bodies.NamespacesAnswer]:
        """Return the namespaces in a namespace."""
        return self._asked(call, "list_namespaces")

    def describe(self, call: RestCall[bodies.NamespaceRequest]) -> Reply[bodies.NamespaceAnswer]:
        """Return the properties of a namespace."""
        return self._asked(call, "describe_namespace")

    def exists(self, call: RestCall[bodies.NamespaceRequest]) -> Reply[bytes]:
        """Answer nothing, or that there is no such namespace."""
        self._asked(call, "namespace_exists")
        return Reply(b"")

    def create(
        self, call: RestCall[bodies.CreateNamespaceRequest]
    ) -> Reply[bodies.NamespaceAnswer]:
        """Say that a namespace is there with its first table, or that it is there already."""
        body = call.json()
        parts = call.named(body.get("id"))
        mode = str(body.get("mode") or "create").replace("_", "").lower()
        names = self._scope.served.db.tables()
        is_there = not parts or any(name.startswith(f"{parts[0]}.") for name in names)
        if is_there and mode == "existok":
            return Reply(bodies.NamespaceAnswer({}))
        if is_there:
            raise Refused(Code.NAMESPACE_EXISTS, "$".join(parts) or "the root")
        raise unsupported("a namespace is there as long as it has a table: create the table in it")

    def drop(self, call: RestCall[bodies.NamespaceRequest]) -> Reply[bodies.NoMembers]:
        """Say that a namespace goes with its last table."""
        self.describe(call)
        if not call.named():
            raise invalid("the root namespace cannot be dropped")
        raise Refused(Code.NAMESPACE_NOT_EMPTY, "a namespace goes with its last table: drop those")

    def list_tables(self, call: RestCall[None]) -> Reply[bodies.TablesAnswer]:
        """Return the tables of a namespace, by their short names."""
        return self._asked(call, "list_tables")

    def table(self, call: RestCall[Any]) -> Reply[bodies.TableAnswer]:
        """Return where a table lies, for a client that opens it there."""
        found = self._asked(call, "describe_table")
        answer = found.body
        if "schema" in answer:
            answer["schema"] = schema_json(answer["schema"], is_remote=False)
        # Of a commit to such a table Lance tells its user no reason.
        if answer["properties"]["siltstone.kind"] == "keyed":
            answer["properties"]["siltstone.written_by"] = ",".join(ROW_OPERATIONS)
        return found

    def managed(self, operation: str) -> Handler:
        """Return the handler of an operation, by the name that the specification has for it."""

        def handler(call: RestCall[Any]) -> Reply[Any]:
            return self._asked(call, operation)

        handler.__doc__ = operation.replace("_", " ").capitalize()
        return handler

    def _asked(self, call: RestCall[Any], operation: str) -> Reply[Any]:
        scope = LanceScope(self._scope, call, self._turns)
        try:
            found = LanceCatalog(scope).answer(operation, _request(call))
        except (TypeError, AttributeError, KeyError) as error:
            # What JSON may hold in any place; the catalog takes requests that have the right types.
            raise invalid("a member of the request has another type than it should") from error
        return Reply(found, scope.seq)


def _request(call: RestCall[Any]) -> dict[str, Any]:
    """Return the members of the body with those of the address."""
    found = call.json()
    if "id" in call.path:
        found["id"] = list(call.named(found.get("id")))
    found |= {name: call.query[name] for name in _WORDS if call.query.get(name)}
    found |= {name: call.truth(name) for name in _FLAGS if name in call.query}
    if call.query.get("limit"):
        found["limit"] = call.number("limit")
    return {name: value for name, value in found.items() if value is not None}
