"""Tables: the operations of the Lance catalog on tables, by their names."""

from __future__ import annotations

from pathlib import Path

from siltstone.errors import RequestError
from siltstone.lance_namespace import requests
from siltstone.lance_namespace.namespaces import require_namespace
from siltstone.lance_namespace.requests import Answer, Request
from siltstone.lance_namespace.scope import Scope, committed_by, known, location_of
from siltstone.lance_namespace.versions import listed
from siltstone.lance_versions.table_versions import TableVersions
from siltstone.lance_versions.version_statements import VersionStatements


def list_tables(scope: Scope, request: Request) -> Answer:
    """List the tables of a namespace, by their short names.

    Raises:
        NamespaceNotFoundError: There is no such namespace.
    """
    path = requests.namespace_of(request)
    require_namespace(scope, path)
    with scope.reading() as db:
        names = db.tables()
        if not request.get("include_declared", True):
            names = [name for name in names if len(db.versions(name).schema)]
    inside = [ids[-1] for ids in map(requests.ids_of, names) if ".".join(ids[:-1]) == path]
    return requests.page(sorted(inside), request, "tables")


def list_all_tables(scope: Scope, request: Request) -> Answer:
    """List all tables by their full names, `a$b$t`."""
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
    location = location_of(scope, seen.folder)
    ids = requests.ids_of(name)
    answer: Answer = {
        "table": ids[-1],
        "namespace": ids[:-1],
        "location": location,
        "managed_versioning": True,
        "is_only_declared": not len(seen.schema),
        "properties": {"siltstone.kind": "keyed" if seen.is_keyed else "plain"},
    }
    refusal = scope.turns.refusal_of(name)
    if refusal is not None:
        answer["properties"]["siltstone.refused"] = refusal
    if request.get("with_table_uri"):
        answer["table_uri"] = Path(location).as_uri()
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
    requests.refuse_branch(request)
    known(scope, requests.table_of(request))
    requests.page([], request, "branches")  # also of an empty list a page may not exist
    return {"branches": {}}


def declare(scope: Scope, tx: VersionStatements, request: Request) -> Answer:
    """Declare a table as a statement of a transaction."""
    requests.refuse_branch(request)
    if request.get("location"):
        raise RequestError("the location of a table cannot be chosen: tables lie in the store")
    name = requests.table_of(request)
    tx.definitions.declare_table(name)
    folder = tx.versions(name).folder
    return {"location": location_of(scope, folder), "managed_versioning": True}


def drop(scope: Scope, tx: VersionStatements, request: Request) -> Answer:
    """Drop a table as a statement of a transaction."""
    requests.refuse_branch(request)
    name = requests.table_of(request)
    location = location_of(scope, tx.versions(name).folder)
    tx.definitions.drop_table(name)
    return {"id": requests.ids_of(name), "location": location}
