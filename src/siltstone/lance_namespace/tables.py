"""Tables: the operations of the Lance catalog on tables."""

from __future__ import annotations

from siltstone.errors import RequestError
from siltstone.lance_namespace.errors import NamespaceNotFoundError
from siltstone.lance_namespace.requests import (
    Answer,
    Request,
    ids_of,
    namespace_of,
    page,
    renamed,
    table_of,
)
from siltstone.lance_namespace.scope import Scope, committed_by, known
from siltstone.lance_namespace.table_versions import TableVersions
from siltstone.lance_namespace.version_statements import VersionStatements
from siltstone.lance_namespace.versions import listed


class TableOperations:
    """Each method answers the operation of its name."""

    def __init__(self, scope: Scope) -> None:
        self._scope = scope

    def list_tables(self, request: Request) -> Answer:
        """List the tables of a namespace, by their short names.

        Raises:
            NamespaceNotFoundError: It is not the root, and has no such table.
        """
        path = namespace_of(request)
        with self._scope.reading() as db:
            names = db.tables()
            if not request.get("include_declared", True):
                names = [name for name in names if len(db.versions(name).schema)]
        if path and not any(name.startswith(f"{path}.") for name in names):
            raise NamespaceNotFoundError(path)
        above = [path] if path else []
        inside = [ids[-1] for ids in map(ids_of, names) if ids[:-1] == above]
        return page(sorted(inside), request, "tables")

    def list_all_tables(self, request: Request) -> Answer:
        """List all tables by their full names, `db$t`."""
        with self._scope.reading() as db:
            names = sorted("$".join(ids_of(name)) for name in db.tables())
        return page(names, request, "tables")

    def declare_table(self, request: Request) -> Answer:
        """Create a plain table without columns; its first version brings them."""
        with self._scope.writing() as tx:
            found = declare(self._scope, tx, request)
        return found | committed_by(self._scope)

    def describe_table(self, request: Request) -> Answer:
        """Return where a table lies; with `load_detailed_metadata` also its version and schema."""
        name = table_of(request)
        seen = self._begun(name)
        location = str(self._scope.root / seen.folder)
        ids = ids_of(name)
        answer: Answer = {
            "table": ids[-1],
            "namespace": ids[:-1],
            "location": location,
            "managed_versioning": True,
            "is_only_declared": not len(seen.schema),
            "properties": {"siltstone.kind": "keyed" if seen.is_keyed else "plain"},
        }
        if request.get("with_table_uri"):
            answer["table_uri"] = location
        wanted = request.get("version")
        if wanted is not None:
            answer["version"] = listed(seen, wanted).number
        elif request.get("load_detailed_metadata") and seen.newest is not None:
            answer["version"] = seen.newest.number
        if request.get("load_detailed_metadata"):
            answer["schema"] = seen.schema
        return answer

    def _begun(self, name: str) -> TableVersions:
        """Return a table; a plain one with columns gets its first version, if it has none."""
        seen = known(self._scope, name)
        has_none = seen.newest is None and not seen.is_keyed and len(seen.schema) > 0
        if not (has_none and self._scope.is_writable):
            return seen
        with self._scope.writing() as tx:
            tx.begin_versions(name)
        return known(self._scope, name)

    def table_exists(self, request: Request) -> Answer:
        """Raise TableNotFoundError unless the table exists."""
        known(self._scope, table_of(request))
        return {}

    def drop_table(self, request: Request) -> Answer:
        """Drop a table. Snapshots see it until the retention is over; then its files go."""
        with self._scope.writing() as tx:
            found = drop(self._scope, tx, request)
        return found | committed_by(self._scope)

    def rename_table(self, request: Request) -> Answer:
        """Rename a table, also into another namespace."""
        name = table_of(request)
        new_name = renamed(name, request)
        with self._scope.writing() as tx:
            tx.rename_table(name, new_name)
        return committed_by(self._scope)

    def list_table_branches(self, request: Request) -> Answer:
        """Return the branches of a table besides main: it has none."""
        known(self._scope, table_of(request))
        return {"branches": {}}


def declare(scope: Scope, tx: VersionStatements, request: Request) -> Answer:
    """Declare a table as a statement of a transaction."""
    if request.get("location"):
        raise RequestError("the location of a table cannot be chosen: tables lie in the store")
    name = table_of(request)
    tx.declare_table(name)
    folder = tx.versions(name).folder
    return {"location": str(scope.root / folder), "managed_versioning": True}


def drop(scope: Scope, tx: VersionStatements, request: Request) -> Answer:
    """Drop a table as a statement of a transaction."""
    name = table_of(request)
    location = str(scope.root / tx.versions(name).folder)
    tx.drop_table(name)
    return {"id": ids_of(name), "location": location}
