"""Version numbers: the number that the specification calls a table's version.

Of a plain table it is the number of its Lance version; of a keyed one, which moves with every row,
the seq of the store. Either leads back to a seq at which the table can be read.
"""

from __future__ import annotations

from dataclasses import dataclass

from siltstone.engine.catalog import catalog as catalogs
from siltstone.engine.commit.core import Core
from siltstone.engine.read.kept import newest_kept
from siltstone.errors import TableNotFoundError
from siltstone.formats.manifest import TableDefinition
from siltstone.lance_versions.errors import Code, Refused


@dataclass(frozen=True, slots=True)
class Past:
    """Where a version of a table can be read: a seq, and what the table was called there."""

    seq: int
    name: str


def version_at(core: Core, table: str, seq: int) -> int:
    """Return the version that a table has at a seq that its catalog has seen."""
    return version_in(catalogs.find(core.state().view.catalog, table, seq), seq)


def version_in(found: TableDefinition, seq: int) -> int:
    """Return the version that a table has at a seq at which it was there, by whatever name."""
    if catalogs.schema_of(found, seq).key:
        return seq
    version = catalogs.version_of(catalogs.incarnation_of(found, seq), seq)
    return 0 if version is None else version.pin.version


def version_now(core: Core, table: str, seq: int | None) -> int:
    """Return the version that a statement made; in a transaction there is none yet."""
    try:
        return 0 if seq is None else version_at(core, table, seq)
    except TableNotFoundError:  # made, or named so, by the transaction that asks
        return 0


def past_of(core: Core, table: str, version: int) -> Past:
    """Return where a version of the table that has a name now can be read; the newest such seq.

    Raises:
        Refused: It has no such version, or not any more.
    """
    state = core.state()
    found = catalogs.find(state.view.catalog, table)
    if not catalogs.schema_of(found).key:
        seq = newest_kept(state, *_span(found, table, version, state.visible))
    elif found.created <= version <= state.visible:
        seq = version
    else:
        raise _unknown(table, version)
    return Past(seq, catalogs.name_of(found, seq))


def _span(found: TableDefinition, table: str, version: int, visible: int) -> tuple[int, int]:
    """Return the first and the last seq at which a plain table has a version."""
    versions = catalogs.incarnation_of(found).versions
    until = visible
    for known in reversed(versions):
        if known.pin.version == version and known.seq > until:
            text = f"version {version} of {table!r} is a step within a commit: read the next one"
            raise Refused(Code.VERSION_NOT_FOUND, text)
        if known.pin.version == version:
            return known.seq, until
        until = known.seq - 1
    if version == 0 and until >= found.created:
        return found.created, until
    raise _unknown(table, version)


def _unknown(table: str, version: int) -> Refused:
    return Refused(Code.VERSION_NOT_FOUND, f"table {table!r} has no version {version}")
