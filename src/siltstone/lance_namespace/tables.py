"""Tables: the operations of the Lance catalog on tables, and on namespaces.

Each function with a scope and a request answers the operation of its name. The namespaces that
exist have a table.
"""

from __future__ import annotations

from siltstone.errors import RequestError
from siltstone.lance_namespace import errors, requests
from siltstone.lance_namespace.requests import Answer, Request
from siltstone.lance_namespace.scope import Scope, committed_by, known
from siltstone.lance_namespace.table_versions import TableVersions
from siltstone.lance_namespace.version_statements import VersionStatements
from siltstone.lance_namespace.versions import listed


def list_namespaces(scope: Scope, request: Request) -> Answer:
    """List the namespaces below the root; there are none below those."""
    if requests.namespace_of(request):
        describe_namespace(scope, request)
        return {"namespaces": []}
    with scope.reading() as db:
        found = {ids[0] for ids in map(requests.ids_of, db.tables()) if len(ids) > 1}
    return requests.page(sorted(found), request, "namespaces")


def describe_namespace(scope: Scope, request: Request) -> Answer:
    """Return the properties of a namespace: it has none.

    Raises:
        NamespaceNotFoundError: It is not the root, and has no table.
    """
    name = requests.namespace_of(request)
    with scope.reading() as db:
        if name and not any(table.startswith(f"{name}.") for table in db.tables()):
            raise errors.NamespaceNotFoundError(name)
    return {"properties": {}}


def namespace_exists(scope: Scope, request: Request) -> Answer:
    """Raise errors.NamespaceNotFoundError unless the namespace exists."""
    describe_namespace(scope, request)
    return {}


def create_namespace(scope: Scope, request: Request) -> Answer:
    """Answer for a namespace that exists, in the mode "exist_ok"; refuse to create one.

    Raises:
        NamespaceExistsError: It exists, and another mode is asked for.
        UnsupportedOperationError: It does not exist.
    """
    name, mode = requests.namespace_of(request), str(request.get("mode") or "create")
    try:
        describe_namespace(scope, request)
    except errors.NamespaceNotFoundError:
        reason = f"the namespace {name!r} comes with its first table: create the table in it"
        raise errors.UnsupportedOperationError(reason) from None
    if mode.replace("_", "").lower() != "existok":
        raise errors.NamespaceExistsError(name or "$")
    return {"properties": {}}


def drop_namespace(scope: Scope, request: Request) -> Answer:
    """Refuse to drop a namespace: it exists while it has a table.

    Raises:
        NamespaceNotFoundError, NamespaceNotEmptyError, RequestError: Always one of them; the last
            for the root.
    """
    describe_namespace(scope, request)
    name = requests.namespace_of(request)
    if not name:
        raise RequestError("the root namespace cannot be dropped")
    raise errors.NamespaceNotEmptyError(name)


def list_tables(scope: Scope, request: Request) -> Answer:
    """List the tables of a namespace, by their short names.

    Raises:
        NamespaceNotFoundError: It is not the root, and has no such table.
    """
    path = requests.namespace_of(request)
    with scope.reading() as db:
        names = db.tables()
        if not request.get("include_declared", True):
            names = [name for name in names if len(db.versions(name).schema)]
    if path and not any(name.startswith(f"{path}.") for name in names):
        raise errors.NamespaceNotFoundError(path)
    above = [path] if path else []
    inside = [ids[-1] for ids in map(requests.ids_of, names) if ids[:-1] == above]
    return requests.page(sorted(inside), request, "tables")


def list_all_tables(scope: Scope, request: Request) -> Answer:
    """List all tables by their full names, `db$t`."""
    with scope.reading() as db:
        names = sorted("$".join(requests.ids_of(name)) for name in db.tables())
    return requests.page(names, request, "tables")


def declare_table(scope: Scope, request: Request) -> Answer:
    """Create a plain table without columns; its first version brings them."""
    with scope.writing() as tx:
        found = declare(scope, tx, request)
    return found | committed_by(tx)


def describe_table(scope: Scope, request: Request) -> Answer:
    """Return where a table lies; with `load_detailed_metadata` also its version and schema."""
    name = requests.table_of(request)
    seen = _begun(scope, name)
    location = str(scope.root / seen.folder)
    ids = requests.ids_of(name)
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
        answer["version"] = listed(seen, wanted).pin.version
    elif request.get("load_detailed_metadata") and seen.newest is not None:
        answer["version"] = seen.newest.pin.version
    if request.get("load_detailed_metadata"):
        answer["schema"] = seen.schema
    return answer


def _begun(scope: Scope, name: str) -> TableVersions:
    """Return a table; a plain one with columns gets its first version, if it has none."""
    seen = known(scope, name)
    has_none = seen.newest is None and not seen.is_keyed and len(seen.schema) > 0
    if not (has_none and scope.is_writable):
        return seen
    with scope.writing() as tx:
        tx.begin_versions(name)
    return known(scope, name)


def table_exists(scope: Scope, request: Request) -> Answer:
    """Raise TableNotFoundError unless the table exists."""
    known(scope, requests.table_of(request))
    return {}


def drop_table(scope: Scope, request: Request) -> Answer:
    """Drop a table. Snapshots see it until the retention is over; then its files go."""
    with scope.writing() as tx:
        found = drop(scope, tx, request)
    return found | committed_by(tx)


def rename_table(scope: Scope, request: Request) -> Answer:
    """Rename a table, also into another namespace."""
    name = requests.table_of(request)
    new_name = requests.renamed(name, request)
    with scope.writing() as tx:
        tx.definitions.rename_table(name, new_name)
    return committed_by(tx)


def list_table_branches(scope: Scope, request: Request) -> Answer:
    """Return the branches of a table besides main: it has none."""
    known(scope, requests.table_of(request))
    return {"branches": {}}


def declare(scope: Scope, tx: VersionStatements, request: Request) -> Answer:
    """Declare a table as a statement of a transaction."""
    if request.get("location"):
        raise RequestError("the location of a table cannot be chosen: tables lie in the store")
    name = requests.table_of(request)
    tx.definitions.declare_table(name)
    folder = tx.versions(name).folder
    return {"location": str(scope.root / folder), "managed_versioning": True}


def drop(scope: Scope, tx: VersionStatements, request: Request) -> Answer:
    """Drop a table as a statement of a transaction."""
    name = requests.table_of(request)
    location = str(scope.root / tx.versions(name).folder)
    tx.definitions.drop_table(name)
    return {"id": requests.ids_of(name), "location": location}
