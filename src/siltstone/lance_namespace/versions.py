"""Versions: the operations of the Lance catalog on the versions of one table, by their names."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from siltstone.errors import ConflictError, RequestError, SiltstoneError
from siltstone.formats.manifest import Version
from siltstone.lance_namespace import requests
from siltstone.lance_namespace.requests import Answer, Request
from siltstone.lance_namespace.scope import Scope, committed_by, known
from siltstone.lance_versions.errors import InvalidTableStateError, VersionNotFoundError
from siltstone.lance_versions.table_versions import TableVersions
from siltstone.lance_versions.version_statements import VersionStatements
from siltstone.storage.tables.values import OtherLineError, StagedVersion


def list_table_versions(scope: Scope, request: Request) -> Answer:
    """List versions by their numbers, as `descending` and `limit` ask."""
    requests.refuse_branch(request)
    versions = [v for v in known(scope, requests.table_of(request)).versions if not v.is_hidden]
    if request.get("descending"):
        versions.reverse()
    found = requests.page(versions, request, "versions")
    return found | {"versions": [described(scope, each) for each in found["versions"]]}


def describe_table_version(scope: Scope, request: Request) -> Answer:
    """Describe one version; without a number the newest."""
    requests.refuse_branch(request)
    seen = known(scope, requests.table_of(request))
    wanted = request.get("version")
    if wanted is None and seen.newest is not None:
        wanted = seen.newest.pin.version
    # Lance asks who took a number that was skipped before it tries a higher one.
    if type(wanted) is int and (seen.has_skipped(wanted) or _is_refused(scope, seen, wanted)):
        shown = seen.after(wanted) or seen.newest
        assert shown is not None
        return {"version": described(scope, shown) | {"version": wanted}}
    return {"version": described(scope, listed(seen, wanted))}


def _is_refused(scope: Scope, seen: TableVersions, number: int) -> bool:
    """Return whether a client asks for a version that was just refused to it.

    Lance asks who has the number, whatever error it got. If nobody has it, Lance reports that
    the outcome is unknown; if another version has it, that the commit failed by a conflict.
    """
    is_above = seen.newest is not None and number > seen.newest.pin.version
    return is_above and scope.turns.was_refused(seen.name, number)


def create_table_version(scope: Scope, request: Request) -> Answer:
    """Commit a version that a client staged, on top of the newest one.

    Raises:
        ConflictError: Another commit has the number.
        InvalidTableStateError: The version was not built on the newest one.
    """
    name = requests.table_of(request)
    try:
        found = _create(scope, name, request)
    except SiltstoneError as error:
        # Lance passes no reason of a refusal to its client: `describe_table` tells it.
        scope.turns.note_outcome(name, str(error))
        if isinstance(error, RequestError):
            _undeclare(scope, name)
        raise
    scope.turns.note_outcome(name, None)
    return found


def _undeclare(scope: Scope, name: str) -> None:
    """Drop a table that was only declared, because its first version was refused.

    Lance declares a table before it writes one. Left over, it would be listed without columns, and
    a second try would find its name taken.
    """
    with suppress(SiltstoneError), scope.writing() as tx:  # another client made it a table
        seen = tx.versions(name)
        if seen.newest is None and not seen.is_keyed and not len(seen.schema):
            tx.definitions.drop_table(name)


def _create(scope: Scope, name: str, request: Request) -> Answer:
    try:
        with scope.turns.of(name), scope.writing() as tx:
            made = import_staged(tx, request)
    except ConflictError as error:
        _refuse_unknown(scope, name, requests.number_of(request.get("version")), error)
        raise
    except OtherLineError as error:
        scope.turns.note_refused(name, requests.number_of(request.get("version")))
        raise InvalidTableStateError(str(error)) from error
    return {"version": described(scope, made)} | committed_by(tx)


def _refuse_unknown(scope: Scope, name: str, number: int, error: ConflictError) -> None:
    """Turn a conflict over a number that no version has into an error that says so.

    Told that a version exists, Lance looks for it. If it finds none it reports that the
    outcome is unknown, but nothing was committed.
    """
    if known(scope, name).after(number) is None:
        scope.turns.note_refused(name, number)
        reason = f"{name!r} was changed by another commit; open it again"
        raise InvalidTableStateError(reason) from error


def import_staged(tx: VersionStatements, request: Request) -> Version:
    """Import a version that a client staged, as a statement of a transaction."""
    requests.refuse_branch(request)
    given = StagedVersion(
        requests.number_of(request.get("version")),
        request.get("manifest_path") or "",
        request.get("manifest_size"),
    )
    return tx.import_version(requests.table_of(request), given)


def listed(seen: TableVersions, number: object) -> Version:
    """Return a version that is not hidden, by its number.

    Raises:
        VersionNotFoundError: There is none.
    """
    found = seen.find(requests.number_of(number)) if number is not None else None
    if found is None or found.is_hidden:
        raise VersionNotFoundError(seen.name, number)
    return found


def described(scope: Scope, version: Version) -> Answer:
    """Return a version as the specification has it."""
    manifest = scope.root / version.pin.path
    return {
        "version": version.pin.version,
        "manifest_path": str(manifest).removeprefix("/"),
        "manifest_size": version.pin.size,
        "e_tag": f'"{version.pin.xxh3}"',
        "metadata": {"siltstone.seq": str(version.seq)} if version.seq else {},
        **_written(manifest),
    }


def _written(manifest: Path) -> Answer:
    """Return when a manifest was written, which LanceDB wants to know of every version."""
    try:
        return {"timestamp_millis": int(manifest.stat().st_mtime * 1e3)}
    except OSError:  # a version that is listed exists; its time alone is no reason to fail
        return {}
