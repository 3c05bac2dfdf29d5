"""Versions: the operations of the Lance catalog on the versions of one table."""

from __future__ import annotations

from pathlib import Path

from siltstone.errors import ConflictError
from siltstone.lance_namespace.errors import InvalidTableStateError, VersionNotFoundError
from siltstone.lance_namespace.requests import (
    Answer,
    Request,
    number_of,
    page,
    refuse_branch,
    table_of,
)
from siltstone.lance_namespace.scope import Scope, committed_by, known
from siltstone.lance_namespace.table_versions import TableVersion, TableVersions
from siltstone.lance_namespace.version_statements import VersionStatements
from siltstone.storage.tables.tables import OtherLineError, StagedVersion


class VersionOperations:
    """Each method answers the operation of its name."""

    def __init__(self, scope: Scope) -> None:
        self._scope = scope

    def list_table_versions(self, request: Request) -> Answer:
        """List versions by their numbers, as `descending` and `limit` ask."""
        refuse_branch(request)
        versions = [v for v in known(self._scope, table_of(request)).versions if not v.is_hidden]
        if request.get("descending"):
            versions.reverse()
        found = page(versions, request, "versions")
        return found | {"versions": [described(self._scope, each) for each in found["versions"]]}

    def describe_table_version(self, request: Request) -> Answer:
        """Describe one version; without a number the newest."""
        refuse_branch(request)
        seen = known(self._scope, table_of(request))
        wanted = request.get("version")
        if wanted is None and seen.newest is not None:
            wanted = seen.newest.number
        # Lance asks who took a number that was skipped before it tries a higher one.
        if type(wanted) is int and seen.has_skipped(wanted):
            after = seen.after(wanted)
            assert after is not None
            return {"version": described(self._scope, after) | {"version": wanted}}
        if type(wanted) is int and self._is_refused(seen, wanted):
            assert seen.newest is not None
            return {"version": described(self._scope, seen.newest) | {"version": wanted}}
        return {"version": described(self._scope, listed(seen, wanted))}

    def _is_refused(self, seen: TableVersions, number: int) -> bool:
        """Return whether a client asks for a version that was just refused to it.

        Lance asks who has the number, whatever error it got. If nobody has it, Lance reports that
        the outcome is unknown; if another version has it, that the commit failed by a conflict.
        """
        is_above = seen.newest is not None and number > seen.newest.number
        return is_above and self._scope.was_refused(seen.name, number)

    def create_table_version(self, request: Request) -> Answer:
        """Commit a version that a client staged, on top of the newest one.

        Raises:
            ConflictError: Another commit has the number.
            InvalidTableStateError: The version was not built on the newest one.
        """
        name = table_of(request)
        try:
            with self._scope.turn(name), self._scope.writing() as tx:
                made = import_staged(tx, request)
        except ConflictError as error:
            self._refuse_unknown(name, number_of(request.get("version")), error)
            raise
        except OtherLineError as error:
            self._scope.note_refused(name, number_of(request.get("version")))
            raise InvalidTableStateError(str(error)) from error
        return {"version": described(self._scope, made)} | committed_by(self._scope)

    def _refuse_unknown(self, name: str, number: int, error: ConflictError) -> None:
        """Turn a conflict over a number that no version has into an error that says so.

        Told that a version exists, Lance looks for it. If it finds none it reports that the
        outcome is unknown, but nothing was committed.
        """
        if known(self._scope, name).after(number) is None:
            self._scope.note_refused(name, number)
            reason = f"{name!r} was changed by another commit; open it again"
            raise InvalidTableStateError(reason) from error


def import_staged(tx: VersionStatements, request: Request) -> TableVersion:
    """Import a version that a client staged, as a statement of a transaction."""
    refuse_branch(request)
    given = StagedVersion(
        number_of(request.get("version")),
        request.get("manifest_path") or "",
        request.get("manifest_size"),
    )
    return tx.import_version(table_of(request), given)


def listed(seen: TableVersions, number: object) -> TableVersion:
    """Return a version that is not hidden, by its number.

    Raises:
        VersionNotFoundError: There is none.
    """
    found = seen.find(number_of(number)) if number is not None else None
    if found is None or found.is_hidden:
        raise VersionNotFoundError(seen.name, number)
    return found


def described(scope: Scope, version: TableVersion) -> Answer:
    """Return a version as the specification has it."""
    manifest = scope.root / version.pin.path
    return {
        "version": version.number,
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
