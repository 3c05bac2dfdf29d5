"""Version numbers: the number that the specification calls a table's version.

Of a plain table it is the number of its Lance version; of a keyed one, which moves with every row,
the seq of the store. Either leads back to a seq at which the table can be read.
"""

from __future__ import annotations

from dataclasses import dataclass

from siltstone.engine.catalog import catalog as catalogs
from siltstone.engine.catalog.table_schema import TableSchema, table_schema_of
from siltstone.engine.commit.core import Core
from siltstone.engine.read.kept import newest_kept, readable
from siltstone.engine.read.view import State
from siltstone.errors import TableNotFoundError
from siltstone.formats.manifest import TableDefinition
from siltstone.lance_versions.errors import Code, Refused, VersionNotFoundError
from siltstone.lance_versions.table_versions import TableVersions


@dataclass(frozen=True, slots=True)
class Past:
    """Where a version of a table can be read: a seq, and what the table was called there."""

    seq: int
    name: str


def version_in(found: TableDefinition, seq: int) -> int:
    """Return the version that a table has at a seq at which it was there, by whatever name."""
    if catalogs.schema_of(found, seq).key:
        return seq
    version = catalogs.version_of(catalogs.incarnation_of(found, seq), seq)
    return 0 if version is None else version.pin.version


def version_now(core: Core, table: str, seq: int | None) -> int:
    """Return the version that a statement made; in a transaction there is none yet."""
    if seq is None:
        return 0
    try:
        return version_in(catalogs.find(core.state().view.catalog, table, seq), seq)
    except TableNotFoundError:  # made, or named so, by the transaction that asks
        return 0


def past_of(core: Core, table: str, version: int) -> Past:
    """Return where a version of the table that has a name now can be read; the newest such seq.

    Raises:
        VersionNotFoundError, Refused: It has no such version, or that is a step within a commit.
        SnapshotExpiredError: It is not kept any more.
    """
    state = core.state()
    found = catalogs.find(state.view.catalog, table)
    seq = _seq_of(core, state, found, table, version, state.visible)
    return Past(seq, catalogs.name_of(found, seq))


def schema_then(core: Core, seen: TableVersions, version: int, seq: int) -> tuple[TableSchema, int]:
    """Return the schema that a table, as a client sees it at `seq`, has in a version, and its seq.

    A keyed table has the version that the client is shown, too, if its number is no seq of it.

    Raises:
        VersionNotFoundError, Refused, SnapshotExpiredError: See `past_of`; or it is hidden.
    """
    shown = seen.find(version)
    if not seen.is_keyed and shown is not None and shown == seen.newest:
        return seen.table_schema, seq
    state = core.state()
    found = catalogs.by_id(state.view.catalog, seen.id)
    if found is None or (not seen.is_keyed and (shown is None or shown.is_hidden)):
        raise VersionNotFoundError(seen.name, version)
    if seen.is_keyed and version == seq:  # also one that nothing but its reader keeps
        at = seq
    elif seen.is_keyed and shown is not None and not found.created <= version <= seq:
        at = shown.seq
    else:
        at = _seq_of(core, state, found, seen.name, version, seq)
    return table_schema_of(catalogs.schema_of(found, at)), at


def _seq_of(
    core: Core, state: State, found: TableDefinition, table: str, version: int, upto: int
) -> int:
    """Return the newest seq up to `upto` at which a table can be read in a version."""
    if not catalogs.schema_of(found).key:
        newest = newest_kept(state, *_span(found, table, version, upto))
        return readable(state, newest, core.readers)
    if not found.created <= version <= upto:
        raise VersionNotFoundError(table, version)
    return readable(state, version, core.readers)


def _span(found: TableDefinition, table: str, version: int, upto: int) -> tuple[int, int]:
    """Return the first and the last seq at which a plain table has a version."""
    versions = catalogs.incarnation_of(found, upto).versions
    until = upto
    for known in reversed(versions):
        if known.pin.version == version and known.seq > until:
            text = f"version {version} of {table!r} is a step within a commit: read the next one"
            raise Refused(Code.VERSION_NOT_FOUND, text)
        if known.pin.version == version:
            return known.seq, until
        until = known.seq - 1
    if version == 0 and until >= found.created:
        return found.created, until
    raise VersionNotFoundError(table, version)
