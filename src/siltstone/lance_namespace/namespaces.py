"""Namespaces: the operations of the Lance catalog on namespaces, by their names.

A namespace exists from its creation to its drop, and also while a table or a namespace is in it.
Only one that was created has properties.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from siltstone.engine.catalog import namespaces as spaces
from siltstone.errors import RequestError
from siltstone.lance_namespace import errors, requests
from siltstone.lance_namespace.requests import Answer, Request
from siltstone.lance_namespace.scope import Scope, committed_by
from siltstone.lance_namespace.version_statements import VersionStatements
from siltstone.process.retry import Retry

ATTEMPTS = 16
_CREATES, _DROPS = ("create", "existok", "overwrite"), ("fail", "skip")
_BEHAVIORS = ("restrict", "cascade")


def list_namespaces(scope: Scope, request: Request) -> Answer:
    """List the namespaces directly in a namespace, by their short names.

    Raises:
        NamespaceNotFoundError: There is no such namespace.
    """
    path = requests.namespace_of(request)
    found = require_namespace(scope, path)
    inside = [ids[-1] for ids in map(requests.ids_of, found) if ".".join(ids[:-1]) == path]
    return requests.page(sorted(inside), request, "namespaces")


def describe_namespace(scope: Scope, request: Request) -> Answer:
    """Return the properties of a namespace.

    Raises:
        NamespaceNotFoundError: There is no such namespace.
    """
    name = requests.namespace_of(request)
    return {"properties": dict(require_namespace(scope, name).get(name, {}))}


def namespace_exists(scope: Scope, request: Request) -> Answer:
    """Raise errors.NamespaceNotFoundError unless the namespace exists."""
    require_namespace(scope, requests.namespace_of(request))
    return {}


def require_namespace(scope: Scope, name: str) -> Mapping[str, Mapping[str, str]]:
    """Return the properties of all namespaces by name, if one exists: the root always does.

    Raises:
        NamespaceNotFoundError: There is no such namespace.
    """
    with scope.reading() as db:
        found = db.namespaces()
    if name and name not in found:
        raise errors.NamespaceNotFoundError(name, found)
    return found


def create_namespace(scope: Scope, request: Request) -> Answer:
    """Create a namespace in one that exists.

    Raises:
        NamespaceExistsError: It exists, and the mode is "create".
        NamespaceNotEmptyError: It has something in it, and the mode is "overwrite".
        NamespaceNotFoundError: The namespace that it would be in does not exist.
        RequestError: The name or the properties are not allowed.
    """
    name = requests.namespace_of(request)
    mode = requests.choice_of(request, "mode", _CREATES)
    given = request.get("properties") or {}
    if not name and mode != "existok":
        raise errors.NamespaceExistsError("$")
    if not name:
        return {"properties": {}}
    found, commit = _committed(scope, lambda tx: _create(tx, name, mode, given))
    return {"properties": dict(found)} | commit


def _create(
    tx: VersionStatements, name: str, mode: str, properties: Mapping[str, str]
) -> Mapping[str, str]:
    known = tx.namespaces()
    parent = name.rpartition(".")[0]
    if tx.tx.is_applied:
        return known.get(name, properties)
    if parent and parent not in known:
        raise errors.NamespaceNotFoundError(parent, known)
    if name in known and mode == "create":
        raise errors.NamespaceExistsError(name)
    if name in known and mode == "overwrite":
        spaces.create(name, properties)  # refused before anything is dropped
        tx.drop_namespace(name)
    if not tx.has_created(name):
        tx.create_namespace(name, properties)
    return tx.namespaces()[name]


def drop_namespace(scope: Scope, request: Request) -> Answer:
    """Drop a namespace; with the behavior "cascade" all tables and namespaces in it, too.

    Raises:
        NamespaceNotFoundError: It does not exist, and the mode is not "skip".
        NamespaceNotEmptyError: It has something in it, and the behavior is "restrict".
        RequestError: It is the root; or it has too much in it for one commit.
    """
    name = requests.namespace_of(request)
    mode = requests.choice_of(request, "mode", _DROPS)
    behavior = requests.choice_of(request, "behavior", _BEHAVIORS)
    if not name:
        raise RequestError("the root namespace cannot be dropped")
    found, commit = _committed(scope, lambda tx: _drop(tx, name, mode, behavior))
    # The specification has one id in the answer of a creation, and a list of ids here.
    return {"properties": dict(found)} | {key: [value] for key, value in commit.items()}


def _drop(tx: VersionStatements, name: str, mode: str, behavior: str) -> Mapping[str, str]:
    known = tx.namespaces()
    if tx.tx.is_applied or (name not in known and mode == "skip"):
        return known.get(name, {})
    if name not in known:
        raise errors.NamespaceNotFoundError(name, known)
    if behavior == "cascade":
        _drop_all(tx, name)
    tx.drop_namespace(name)
    return known[name]


def _drop_all(tx: VersionStatements, name: str) -> None:
    tables = [table for table in tx.tables() if table.startswith(f"{name}.")]
    inside = [space for space in tx.namespaces() if space.startswith(f"{name}.")]
    if len(tables) + len(inside) > requests.OPERATIONS_MAX:
        raise RequestError(
            f"namespace {name!r} has {len(tables)} tables and {len(inside)} namespaces in it; a"
            f" commit drops at most {requests.OPERATIONS_MAX}: drop some of them before"
        )
    for table in tables:
        if name in requests.spaces_of(table):
            tx.definitions.drop_table(table)
    for space in sorted(inside, reverse=True):
        if tx.has_created(space):
            tx.drop_namespace(space)


def _committed(
    scope: Scope, work: Callable[[VersionStatements], Mapping[str, str]]
) -> tuple[Mapping[str, str], Answer]:
    """Do a statement, again if another commit was first: then it finds what is there now."""

    def once() -> tuple[Mapping[str, str], Answer]:
        with scope.writing() as tx:
            found = work(tx)
        return found, committed_by(tx)

    return Retry(ATTEMPTS).run(once)
