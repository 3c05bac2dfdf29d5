"""Batches: operations on many tables in one commit, all or none."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from siltstone.errors import RequestError
from siltstone.lance_namespace import tables, versions
from siltstone.lance_namespace.scope import Scope, commit_of
from siltstone.lance_namespace.specification import bodies
from siltstone.lance_versions.version_statements import VersionStatements


def batch_commit_tables(
    scope: Scope, asked: bodies.CommitTablesRequest
) -> tuple[bodies.CommitTablesAnswer, int | None]:
    """Commit operations on many tables in one step: all or none, results in their order."""
    operations = [_operation(each) for each in asked.operations]
    made = [each for _, each in operations if isinstance(each, bodies.CreateVersionRequest)]
    versions.refuse_twice(made)
    with scope.writing() as tx, tx.whole():
        done = [
            bodies.DoneOperation(**{kind: _STATEMENTS[kind](scope, tx.lance, each)})
            for kind, each in operations
        ]
    return commit_of(tx).told(bodies.CommitTablesAnswer(done))


def _operation(given: bodies.TableOperation) -> tuple[str, Any]:
    asked = {kind: getattr(given, kind) for kind in _STATEMENTS}
    found = [(kind, each) for kind, each in asked.items() if each is not None]
    if len(found) != 1:
        kinds = [kind for kind, _ in found]
        raise RequestError(f"an operation must be one of {(*_STATEMENTS,)}; got {kinds}")
    return found[0]


def _create(
    scope: Scope, statements: VersionStatements, asked: bodies.CreateVersionRequest
) -> bodies.OneVersionAnswer:
    return bodies.OneVersionAnswer(
        versions.described(scope, versions.import_staged(statements, asked))
    )


def _hide(
    _: Scope, statements: VersionStatements, asked: bodies.DeleteVersionsRequest
) -> bodies.DeletedVersionsAnswer:
    return bodies.DeletedVersionsAnswer(versions.hide_versions(statements, asked))


_STATEMENTS: dict[str, Callable[[Scope, VersionStatements, Any], Any]] = {
    "declare_table": tables.declare,
    "create_table_version": _create,
    "delete_table_versions": _hide,
    "deregister_table": tables.drop,
}
