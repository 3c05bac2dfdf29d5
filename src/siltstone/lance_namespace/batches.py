"""Batches: the operations of the Lance catalog on many versions or tables, all or none."""

from __future__ import annotations

from siltstone.errors import RequestError
from siltstone.lance_namespace.requests import (
    Answer,
    Request,
    bounded,
    ranges_of,
    refuse_branch,
    refuse_twice,
    table_of,
)
from siltstone.lance_namespace.scope import Scope, committed_by
from siltstone.lance_namespace.tables import declare, drop
from siltstone.lance_namespace.version_statements import VersionStatements
from siltstone.lance_namespace.versions import described, import_staged

_KINDS = (
    *("declare_table", "create_table_version"),
    *("delete_table_versions", "deregister_table"),
)


class BatchOperations:
    """Each method answers the operation of its name."""

    def __init__(self, scope: Scope) -> None:
        self._scope = scope

    def batch_create_table_versions(self, request: Request) -> Answer:
        """Commit versions of many tables, all or none."""
        entries = bounded(request.get("entries"), "entries")
        refuse_twice(entries)
        with self._scope.writing() as tx:
            made = [import_staged(tx, entry) for entry in entries]
        versions = [described(self._scope, version) for version in made]
        return {"versions": versions} | committed_by(self._scope)

    def batch_delete_table_versions(self, request: Request) -> Answer:
        """Hide versions from lists, by ranges; snapshots read them until the retention is over."""
        with self._scope.writing() as tx:
            count = _hide(tx, request)
        return {"deleted_count": count} | committed_by(self._scope)

    def batch_commit_tables(self, request: Request) -> Answer:
        """Commit operations on many tables in one step: all or none, results in their order."""
        operations = [_operation(each) for each in bounded(request.get("operations"), "operations")]
        refuse_twice([each for kind, each in operations if kind == "create_table_version"])
        with self._scope.writing() as tx:
            made = [{kind: self._apply(tx, kind, each)} for kind, each in operations]
        return {"results": made} | committed_by(self._scope)

    def _apply(self, tx: VersionStatements, kind: str, request: Request) -> Answer:
        if kind == "declare_table":
            return declare(self._scope, tx, request)
        if kind == "create_table_version":
            return {"version": described(self._scope, import_staged(tx, request))}
        if kind == "delete_table_versions":
            return {"deleted_count": _hide(tx, request)}
        return drop(self._scope, tx, request)


def _operation(given: Request) -> tuple[str, Request]:
    found = [(kind, each) for kind, each in given.items() if each is not None]
    if len(found) != 1 or found[0][0] not in _KINDS:
        kinds = [kind for kind, _ in found]
        raise RequestError(f"an operation must be one of {_KINDS}; got {kinds}")
    return found[0]


def _hide(tx: VersionStatements, request: Request) -> int:
    refuse_branch(request)
    name = table_of(request)
    return sum(tx.hide_versions(name, first, end) for first, end in ranges_of(request))
