"""Namespaces: the root, which holds all tables, and the versions of tables that clients commit."""

from __future__ import annotations

from typing import Protocol

from siltstone.server.rest.exchange import Call, Handler
from siltstone.server.rest.names import namespace_of, require_root
from siltstone.server.rest.refusals import Code, Refused, invalid, unsupported
from siltstone.server.rest.replies import Reply, empty


class Versions(Protocol):
    """Who keeps the versions of tables that stock Lance clients commit."""

    def answer(self, operation: str, call: Call) -> Reply:
        """Answer an operation of the specification, by the name that its clients have for it."""
        ...


class Namespaces:
    """See the module. Any thread."""

    def __init__(self, versions: Versions | None) -> None:
        self._versions = versions

    def list_all(self, call: Call) -> Reply:
        """Return the namespaces in a namespace: the root has none."""
        require_root(call)
        return Reply({"namespaces": []})

    def describe(self, call: Call) -> Reply:
        """Return the properties of a namespace."""
        require_root(call, call.json())
        return Reply({"properties": {}})

    def exists(self, call: Call) -> Reply:
        """Answer nothing, or that there is no such namespace."""
        require_root(call, call.json())
        return empty()

    def create(self, call: Call) -> Reply:
        """Refuse: the store is flat."""
        body = call.json()
        parts = namespace_of(call, body)
        if parts:
            raise unsupported("the store is flat: all tables are in the root namespace")
        if str(body.get("mode") or "create").replace("_", "").lower() == "existok":
            return Reply({"properties": {}})
        raise Refused(Code.NAMESPACE_EXISTS, "the root")

    def drop(self, call: Call) -> Reply:
        """Refuse: the root stays."""
        require_root(call, call.json())
        raise invalid("the root namespace cannot be dropped")

    def managed(self, operation: str) -> Handler:
        """Return the handler of an operation on versions of tables."""

        def handler(call: Call) -> Reply:
            if self._versions is None:
                raise unsupported("this server does not manage versions of tables")
            return self._versions.answer(operation, call)

        handler.__doc__ = operation.replace("_", " ").capitalize()
        return handler
