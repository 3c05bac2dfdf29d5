"""Lance catalog: a store as a Lance Namespace, in the words of its spec, over plain values.

    request, answer    dicts as they stand in JSON; `client` gives them the classes of Python,
                       a server the routes
    scope              where statements go: each its own commit, an open transaction, a snapshot

A plain table is versions that clients stage and this commits. A keyed one is read as of its last
merge; operations on rows (`rows`) see and write all rows of both. The operations on many versions
or tables, all or none, are here.
"""

from __future__ import annotations

from siltstone.errors import RequestError
from siltstone.lance_namespace import namespaces, requests, tables, versions
from siltstone.lance_namespace.requests import Answer, Request
from siltstone.lance_namespace.rows import operations as rows
from siltstone.lance_namespace.scope import Scope, committed_by
from siltstone.lance_namespace.versions import described, import_staged
from siltstone.lance_versions.errors import UnsupportedOperationError
from siltstone.lance_versions.version_statements import VersionStatements
from siltstone.operations import Effect


def batch_create_table_versions(scope: Scope, request: Request) -> Answer:
    """Commit versions of many tables, all or none."""
    entries = requests.bounded(request.get("entries"), "entries")
    requests.refuse_twice(entries)
    with scope.writing() as tx:
        made = [import_staged(tx, entry) for entry in entries]
    return {"versions": [described(scope, each) for each in made]} | committed_by(tx)


def batch_delete_table_versions(scope: Scope, request: Request) -> Answer:
    """Hide versions from lists, by ranges; snapshots read them until the retention is over."""
    with scope.writing() as tx:
        found = _hide(scope, tx, request)
    return found | committed_by(tx)


def batch_commit_tables(scope: Scope, request: Request) -> Answer:
    """Commit operations on many tables in one step: all or none, results in their order."""
    asked = requests.bounded(request.get("operations"), "operations")
    operations = [_operation(each) for each in asked]
    requests.refuse_twice([each for kind, each in operations if kind == "create_table_version"])
    with scope.writing() as tx:
        made = [{kind: _STATEMENTS[kind](scope, tx, each)} for kind, each in operations]
    return {"results": made} | committed_by(tx)


def _operation(given: Request) -> tuple[str, Request]:
    found = [(kind, each) for kind, each in given.items() if each is not None]
    if len(found) != 1 or found[0][0] not in _STATEMENTS:
        kinds = [kind for kind, _ in found]
        raise RequestError(f"an operation must be one of {(*_STATEMENTS,)}; got {kinds}")
    return found[0]


def _create(scope: Scope, tx: VersionStatements, request: Request) -> Answer:
    return {"version": described(scope, import_staged(tx, request))}


def _hide(_scope: Scope, tx: VersionStatements, request: Request) -> Answer:
    requests.refuse_branch(request)
    name = requests.table_of(request)
    hidden = sum(tx.hide_versions(name, first, end) for first, end in requests.ranges_of(request))
    return {"deleted_count": hidden}


_STATEMENTS = {
    "declare_table": tables.declare,
    "create_table_version": _create,
    "delete_table_versions": _hide,
    "deregister_table": tables.drop,
}
_READS = (
    *(namespaces.list_namespaces, namespaces.describe_namespace, namespaces.namespace_exists),
    *(tables.list_tables, tables.list_all_tables, tables.describe_table, tables.table_exists),
    *(tables.list_table_branches, versions.list_table_versions, versions.describe_table_version),
)
_WRITES = (
    *(namespaces.create_namespace, namespaces.drop_namespace),
    *(tables.declare_table, tables.drop_table, tables.rename_table, versions.create_table_version),
    *(batch_create_table_versions, batch_delete_table_versions, batch_commit_tables),
)
OPERATIONS = {each.__name__: each for each in (*_READS, *_WRITES)}
_BRANCHES = "a table has one line of versions; to try something out, pin a snapshot or tag a seq"
_METADATA = (
    "columns have a name, a type, nullability and no metadata; keep it in a table of your own"
)
_VIEWS = (
    "functions and views of LanceDB's own engine are not offered: run the query, write its rows"
)
_TRANSACTIONS = (
    "here `transaction()` of the namespace begins a transaction, and its `commit` and `rollback`"
    " end it"
)
REFUSED = {
    "register_table": "a table lies in the store's directory, and none of elsewhere is registered:"
    " create a table, and write the rows into it",
    "update_table_schema_metadata": _METADATA,
    "update_field_metadata": _METADATA,
    "alter_table_backfill_columns": _VIEWS,
    "create_table_branch": _BRANCHES,
    "delete_table_branch": _BRANCHES,
    "create_materialized_view": _VIEWS,
    "refresh_materialized_view": _VIEWS,
    "describe_transaction": _TRANSACTIONS,
    "alter_transaction": _TRANSACTIONS,
}
"""The operations of the specification that are refused in words of their own, and why."""


def effect_of(operation: str) -> Effect:
    """Return what may be done with a request for an operation, if its answer is lost."""
    if operation in rows.OFFERED:
        found = rows.OFFERED[operation].effect
        return Effect.WORK if found is Effect.READ else found
    return Effect.WRITE if OPERATIONS.get(operation) in _WRITES else Effect.WORK


class LanceCatalog:
    """See the module."""

    def __init__(self, scope: Scope) -> None:
        self._scope = scope

    def answer(self, operation: str, request: Request, data: object = None) -> Answer:
        """Answer a request by the name of its operation, with rows (`data`) if it takes some.

        Raises:
            UnsupportedOperationError: There is no such operation.
            SiltstoneError: Any other of `siltstone.errors` or of `errors` here.
        """
        if operation in REFUSED:
            raise UnsupportedOperationError(f"{operation} is not offered: {REFUSED[operation]}")
        if operation in rows.OFFERED:
            return rows.answer(self._scope, operation, request, data)
        if operation not in OPERATIONS:
            raise UnsupportedOperationError(f"there is no operation {operation!r:.80}")
        try:
            return OPERATIONS[operation](self._scope, request)
        except (TypeError, AttributeError, KeyError) as error:
            # What JSON may hold in any place: the operations take members of the right types.
            text = "a member of the request has another type than it should"
            raise RequestError(text) from error
