"""Namespaces: the operations on namespaces, by their names.

A namespace exists from its creation to its drop, and also while a table or a namespace is in it.
Only one that was created has properties.
"""

from __future__ import annotations

from collections.abc import Mapping

from siltstone.engine.catalog import namespaces as spaces
from siltstone.errors import RequestError, not_one_of
from siltstone.lance_namespace.scope import ClientReads, Scope
from siltstone.lance_namespace.specification import bodies, ids
from siltstone.lance_namespace.specification.pages import page
from siltstone.lance_versions import errors
from siltstone.lance_versions.version_statements import VersionStatements
from siltstone.local.transaction import LocalTransaction

_CREATES, _DROPS = ("create", "existok", "overwrite"), ("fail", "skip")
_BEHAVIORS = ("restrict", "cascade")
Properties = Mapping[str, str]


def list_namespaces(
    scope: Scope, asked: bodies.ListNamespacesRequest
) -> tuple[bodies.NamespacesAnswer, int]:
    """List the namespaces directly in a namespace, by their short names.

    Raises:
        NamespaceNotFoundError: There is no such namespace.
    """
    path = ids.namespace_of(asked)
    with scope.reading() as db:
        found, seq = require_namespace(db, path), db.seq
    names, token = page(in_namespace(path, found), asked)
    return bodies.NamespacesAnswer(names, page_token=token), seq


def in_namespace(path: str, names: Mapping[str, object] | list[str]) -> list[str]:
    """Return the short names of what is directly in a namespace, in their order."""
    inside = [levels[-1] for levels in map(ids.ids_of, names) if ".".join(levels[:-1]) == path]
    return sorted(inside)


def describe_namespace(
    scope: Scope, asked: bodies.NamespaceRequest
) -> tuple[bodies.NamespaceAnswer, int]:
    """Return the properties of a namespace.

    Raises:
        NamespaceNotFoundError: There is no such namespace.
    """
    name = ids.namespace_of(asked)
    with scope.reading() as db:
        return bodies.NamespaceAnswer(dict(require_namespace(db, name).get(name, {}))), db.seq


def namespace_exists(scope: Scope, asked: bodies.NamespaceRequest) -> tuple[bodies.NoMembers, int]:
    """Answer nothing, or that there is no such namespace.

    Raises:
        NamespaceNotFoundError: There is none.
    """
    with scope.reading() as db:
        require_namespace(db, ids.namespace_of(asked))
        return bodies.NoMembers(), db.seq


def require_namespace(db: ClientReads, name: str) -> Mapping[str, Properties]:
    """Return the properties of all namespaces by name, if one exists: the root always does.

    Raises:
        NamespaceNotFoundError: There is no such namespace.
    """
    found = db.namespaces()
    if name and name not in found:
        raise errors.NamespaceNotFoundError(name, found)
    return found


def create_namespace(
    scope: Scope, asked: bodies.CreateNamespaceRequest
) -> tuple[bodies.NamespaceAnswer, int | None]:
    """Create a namespace in one that exists.

    Raises:
        NamespaceExistsError: It exists, and the mode is "create".
        NamespaceNotEmptyError: It has something in it, and the mode is "overwrite".
        NamespaceNotFoundError: The namespace that it would be in does not exist.
        RequestError: The name or the properties are not allowed.
    """
    name, given = ids.namespace_of(asked), asked.properties or {}
    mode = _choice("mode", asked.mode, _CREATES)
    if not name and mode != "existok":
        raise errors.NamespaceExistsError("$")
    if not name:
        return bodies.NamespaceAnswer({}), None

    def work(tx: LocalTransaction) -> Properties:
        return _create(tx.lance, name, mode, given)

    found, commit = scope.write(work, given)
    return bodies.NamespaceAnswer(dict(found), commit.transaction_id), commit.seq


def _create(
    statements: VersionStatements, name: str, mode: str, properties: Properties
) -> Properties:
    known = statements.namespaces()
    parent = name.rpartition(".")[0]
    if statements.tx.is_applied:
        return known.get(name, properties)
    if parent and parent not in known:
        raise errors.NamespaceNotFoundError(parent, known)
    if name in known and mode == "create":
        raise errors.NamespaceExistsError(name)
    if name in known and mode == "overwrite":
        spaces.create(name, properties)  # refused before anything is dropped
        statements.drop_namespace(name)
    if not statements.has_created(name):
        statements.create_namespace(name, properties)
    return statements.namespaces()[name]


def drop_namespace(
    scope: Scope, asked: bodies.DropNamespaceRequest
) -> tuple[bodies.NamespaceAnswer, int | None]:
    """Drop a namespace; with the behavior "cascade" all tables and namespaces in it, too.

    Raises:
        NamespaceNotFoundError: It does not exist, and the mode is not "skip".
        NamespaceNotEmptyError: It has something in it, and the behavior is "restrict".
        RequestError: It is the root; or it has too much in it for one commit.
    """
    name = ids.namespace_of(asked)
    mode = _choice("mode", asked.mode, _DROPS)
    behavior = _choice("behavior", asked.behavior, _BEHAVIORS)
    if not name:
        raise RequestError("the root namespace cannot be dropped")

    def work(tx: LocalTransaction) -> Properties:
        return _drop(tx.lance, name, mode, behavior)

    found, commit = scope.write(work, {})
    # The specification has one id in the answer of a creation, and a list of ids here.
    commits = [commit.transaction_id] if commit.transaction_id else None
    return bodies.NamespaceAnswer(dict(found), commits), commit.seq


def _drop(statements: VersionStatements, name: str, mode: str, behavior: str) -> Properties:
    known = statements.namespaces()
    if statements.tx.is_applied or (name not in known and mode == "skip"):
        return known.get(name, {})
    if name not in known:
        raise errors.NamespaceNotFoundError(name, known)
    if behavior == "cascade":
        _drop_all(statements, name)
    statements.drop_namespace(name)
    return known[name]


def _drop_all(statements: VersionStatements, name: str) -> None:
    tables = [table for table in statements.tables() if table.startswith(f"{name}.")]
    inside = [space for space in statements.namespaces() if space.startswith(f"{name}.")]
    if len(tables) + len(inside) > bodies.OPERATIONS_MAX:
        raise RequestError(
            f"namespace {name!r} has {len(tables)} tables and {len(inside)} namespaces in it; a"
            f" commit drops at most {bodies.OPERATIONS_MAX}: drop some of them before"
        )
    for table in tables:
        statements.tx.drop_table(table)
    for space in sorted(inside, reverse=True):
        if statements.has_created(space):
            statements.drop_namespace(space)


def _choice(member: str, found: str | None, choices: tuple[str, ...]) -> str:
    """Return which of the choices a member is, in lower case without "_"; by default the first."""
    word = choices[0] if found is None else found.replace("_", "").lower()
    if word not in choices:
        raise RequestError(not_one_of(member, found, choices))
    return word
