"""Versions: the operations on the versions of tables, and on many tables in one commit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from siltstone.errors import ConflictError, RequestError, SiltstoneError
from siltstone.formats.manifest import Version
from siltstone.lance_namespace import tables
from siltstone.lance_namespace.scope import Scope, StatementCommit, known
from siltstone.lance_namespace.specification import bodies, ids
from siltstone.lance_namespace.specification.pages import most_of
from siltstone.lance_versions.errors import InvalidTableStateError, VersionNotFoundError
from siltstone.lance_versions.table_versions import TableVersions
from siltstone.lance_versions.version_statements import VersionStatements
from siltstone.paths import Place, key_of
from siltstone.storage.tables.values import OtherLineError, StagedVersion


def list_table_versions(
    scope: Scope, asked: bodies.ListVersionsRequest
) -> tuple[bodies.VersionsAnswer, int]:
    """List versions by their numbers, as `descending` and `limit` ask."""
    seen, seq = _seen(scope, asked)
    versions = [version for version in seen.versions if not version.is_hidden]
    if asked.descending:
        versions.reverse()
    shown = _after(versions, asked)[: most_of(asked)]
    is_last = not shown or shown[-1] is versions[-1]
    token = None if is_last else str(shown[-1].pin.version)
    return bodies.VersionsAnswer([described(scope, each) for each in shown], page_token=token), seq


def _after(versions: list[Version], asked: bodies.ListVersionsRequest) -> list[Version]:
    """Return the versions after the one that the page token names."""
    token = asked.page_token
    if not token:
        return versions
    if not (token.isascii() and token.isdecimal() and len(token) < 20):
        raise RequestError(f"{token!r:.80} is not a page token of this namespace")
    number = int(token)
    if asked.descending:
        return [version for version in versions if version.pin.version < number]
    return [version for version in versions if version.pin.version > number]


def describe_table_version(
    scope: Scope, asked: bodies.DescribeVersionRequest
) -> tuple[bodies.OneVersionAnswer, int]:
    """Describe one version; without a number the newest."""
    seen, seq = _seen(scope, asked)
    wanted = asked.version
    if wanted is None and seen.newest is not None:
        wanted = seen.newest.pin.version
    # Lance asks who took a number that was skipped before it tries a higher one.
    if wanted is not None and (seen.has_skipped(wanted) or _is_refused(scope, seen, wanted)):
        shown = seen.after(wanted) or seen.newest
        assert shown is not None
        found = described(scope, shown)
        found.version = wanted
    else:
        found = described(scope, listed(seen, wanted))
    return bodies.OneVersionAnswer(found), seq


def _seen(scope: Scope, asked: bodies.TableRequest) -> tuple[TableVersions, int]:
    with scope.reading() as db:
        return known(scope, ids.table_of(asked), db.versions), db.seq


def _is_refused(scope: Scope, seen: TableVersions, number: int) -> bool:
    """Return whether a client asks for a version that was just refused to it.

    Lance asks who has the number, whatever error it got. If no version has it, Lance reports that
    the outcome is unknown; if another version has it, that the commit failed by a conflict.
    """
    is_above = seen.newest is not None and number > seen.newest.pin.version
    return is_above and scope.turns.was_refused(seen.name, number)


def create_table_version(
    scope: Scope, asked: bodies.CreateVersionRequest
) -> tuple[bodies.OneVersionAnswer, int | None]:
    """Commit a version that a client staged, on top of the newest one.

    Raises:
        ConflictError: Another commit has the number.
        InvalidTableStateError: The version was not built on the newest one.
    """
    name = ids.table_of(asked)
    try:
        found, commit = _create(scope, name, asked)
    except SiltstoneError as error:
        # Lance passes no reason of a refusal to its client: `describe_table` tells it.
        scope.turns.note_outcome(name, str(error))
        if isinstance(error, RequestError):
            _undeclare(scope, name)
        raise
    scope.turns.note_outcome(name, None)
    return commit.told(bodies.OneVersionAnswer(described(scope, found)))


def _undeclare(scope: Scope, name: str) -> None:
    """Drop a table that was only declared, because its first version was refused.

    Lance declares a table before it writes one. Left over, it would be listed without columns, and
    a second try would find its name taken.
    """
    # Another client may have made it a table. It is no part of the statement that a token names.
    with suppress(SiltstoneError), scope.writing(is_asked=False) as tx:
        seen = tx.lance.versions(name)
        if seen.newest is None and not seen.is_keyed and not len(seen.schema):
            tx.drop_table(name)


def _create(
    scope: Scope, name: str, asked: bodies.CreateVersionRequest
) -> tuple[Version, StatementCommit]:
    try:
        with scope.turns.of(name), scope.writing() as tx:
            made = import_staged(tx.lance, asked)
        return made, StatementCommit.of(tx.receipt)
    except ConflictError as error:
        _refuse_unknown(scope, name, asked.version, error)
        raise
    except OtherLineError as error:
        scope.turns.note_refused(name, asked.version)
        raise InvalidTableStateError(str(error)) from error


def _refuse_unknown(scope: Scope, name: str, number: int, error: ConflictError) -> None:
    """Turn a conflict over a number that no version has into an error that says so.

    If the answer is that a version exists, Lance looks for it. If it finds none it reports that the
    outcome is unknown, but nothing was committed.
    """
    with scope.reading() as db:
        is_unknown = known(scope, name, db.versions).after(number) is None
    if is_unknown:
        scope.turns.note_refused(name, number)
        reason = f"{name!r} was changed by another commit; open it again"
        raise InvalidTableStateError(reason) from error


def import_staged(statements: VersionStatements, asked: bodies.CreateVersionRequest) -> Version:
    """Import a version that a client staged, as a statement of a transaction."""
    given = StagedVersion(asked.version, asked.manifest_path, asked.manifest_size)
    return statements.import_version(ids.table_of(asked), given)


def hide_versions(statements: VersionStatements, asked: bodies.DeleteVersionsRequest) -> int:
    """Hide versions from lists, as a statement of a transaction; return how many there were."""
    name, hidden = ids.table_of(asked), 0
    for each in asked.ranges:
        first, end = each.start_version or 0, each.end_version
        end = 1 << 63 if end is None or end < 0 else end
        if first < 0 or max(first, end) > 1 << 63:
            raise RequestError(f"a range of versions is of integers from 0; got {first}, {end}")
        hidden += statements.hide_versions(name, first, end)
    return hidden


def listed(seen: TableVersions, number: int | None) -> Version:
    """Return a version that is not hidden, by its number.

    Raises:
        VersionNotFoundError: There is none.
    """
    found = None if number is None else seen.find(number)
    if found is None or found.is_hidden:
        raise VersionNotFoundError(seen.name, number)
    return found


def described(scope: Scope, version: Version) -> bodies.TableVersionAnswer:
    """Return a version as the specification has it."""
    manifest = scope.root / version.pin.path
    return bodies.TableVersionAnswer(
        version=version.pin.version,
        manifest_path=key_of(manifest),
        manifest_size=version.pin.size,
        e_tag=f'"{version.pin.xxh3}"',
        metadata={"siltstone.seq": str(version.seq)} if version.seq else {},
        timestamp_millis=_written(manifest),
    )


def _written(manifest: Path) -> int | None:
    """Return when a manifest was written, which LanceDB wants to know of every version.

    In a bucket that is when it was mirrored, which takes a request for each: it is not said.
    """
    if isinstance(manifest, Place):
        return None
    try:
        return int(manifest.stat().st_mtime * 1e3)
    except OSError:  # a version that is listed exists; its time alone is no reason to fail
        return None


# many versions, or many tables


def batch_create_table_versions(
    scope: Scope, asked: bodies.CreateVersionsRequest
) -> tuple[bodies.VersionsAnswer, int | None]:
    """Commit versions of many tables, all or none."""
    refuse_twice(asked.entries)
    with scope.writing() as tx, tx.whole():
        made = [import_staged(tx.lance, entry) for entry in asked.entries]
    answer = bodies.VersionsAnswer([described(scope, each) for each in made])
    return StatementCommit.of(tx.receipt).told(answer)


def batch_delete_table_versions(
    scope: Scope, asked: bodies.DeleteVersionsRequest
) -> tuple[bodies.DeletedVersionsAnswer, int | None]:
    """Hide versions from lists, by ranges; snapshots read them until the retention is over."""
    with scope.writing() as tx, tx.whole():
        hidden = hide_versions(tx.lance, asked)
    return StatementCommit.of(tx.receipt).told(bodies.DeletedVersionsAnswer(hidden))


def batch_commit_tables(
    scope: Scope, asked: bodies.CommitTablesRequest
) -> tuple[bodies.CommitTablesAnswer, int | None]:
    """Commit operations on many tables in one step: all or none, results in their order."""
    operations = [_operation(each) for each in asked.operations]
    made = [each for _, each in operations if isinstance(each, bodies.CreateVersionRequest)]
    refuse_twice(made)
    with scope.writing() as tx, tx.whole():
        done = [
            bodies.DoneOperation(**{kind: _STATEMENTS[kind](scope, tx.lance, each)})
            for kind, each in operations
        ]
    return StatementCommit.of(tx.receipt).told(bodies.CommitTablesAnswer(done))


def _operation(given: bodies.TableOperation) -> tuple[str, Any]:
    asked = {kind: getattr(given, kind) for kind in _STATEMENTS}
    found = [(kind, each) for kind, each in asked.items() if each is not None]
    if len(found) != 1:
        kinds = [kind for kind, _ in found]
        raise RequestError(f"an operation must be one of {(*_STATEMENTS,)}; got {kinds}")
    return found[0]


_STATEMENTS: dict[str, Callable[[Scope, VersionStatements, Any], Any]] = {
    "declare_table": tables.declare,
    "create_table_version": lambda scope, statements, asked: bodies.OneVersionAnswer(
        described(scope, import_staged(statements, asked))
    ),
    "delete_table_versions": lambda _, statements, asked: bodies.DeletedVersionsAnswer(
        hide_versions(statements, asked)
    ),
    "deregister_table": tables.drop,
}


def refuse_twice(asked: Sequence[bodies.CreateVersionRequest]) -> None:
    """Refuse requests that create the same version of a table twice."""
    seen = set[tuple[str, int]]()
    for each in asked:
        made = ids.table_of(each), each.version
        if made in seen:
            raise RequestError(f"a request creates version {made[1]} of {made[0]!r} twice")
        seen.add(made)
