"""Namespaces: the Lance catalog by HTTP: namespaces, where tables lie, and their versions."""

from __future__ import annotations

from typing import Any

import msgspec

from siltstone.lance_namespace.catalog import OPERATIONS, LanceCatalog
from siltstone.lance_versions.table_versions import ROW_OPERATIONS
from siltstone.server.http.replies import Reply
from siltstone.server.http.route import Handler
from siltstone.server.rest import schemas as bodies
from siltstone.server.rest.arrow_schemas import schema_json
from siltstone.server.rest.call import RestCall
from siltstone.server.rest.lance_scope import LanceScope
from siltstone.server.rest.scope import RequestScope

_WORDS = ("branch", "page_token")
_FLAGS = ("descending", "with_table_uri", "load_detailed_metadata", "include_declared")


class NamespaceRoutes:
    """See the module. Any thread."""

    def __init__(self, scope: RequestScope) -> None:
        self._scope = scope

    def exists(self, call: RestCall[bodies.NamespaceRequest]) -> Reply[bytes]:
        """Answer nothing, or that there is no such namespace."""
        self._asked(call, "namespace_exists")
        return Reply(b"")

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

        handler.__doc__ = OPERATIONS[operation].__doc__
        return handler

    def _asked(self, call: RestCall[Any], operation: str) -> Reply[Any]:
        scope = LanceScope(self._scope, call)
        return Reply(LanceCatalog(scope).answer(operation, _request(call)), scope.seq)


def _request(call: RestCall[Any]) -> dict[str, Any]:
    """Return the members of the body with those of the address."""
    asked = call.asked
    found: dict[str, Any] = {} if asked is None else msgspec.to_builtins(asked)
    if "id" in call.path:
        found["id"] = list(call.named(found.get("id")))
    found |= {name: call.query[name] for name in _WORDS if call.query.get(name)}
    found |= {name: call.truth(name) for name in _FLAGS if name in call.query}
    if call.query.get("limit"):
        found["limit"] = call.number("limit")
    return {name: value for name, value in found.items() if value is not None}
