"""Versions: the number that the specification calls a table's version.

Of a plain table it is the number of its Lance version; of a keyed one, which moves with every row,
the seq of the store. Either leads back to a seq at which the table can be read.
"""

from __future__ import annotations

from siltstone.engine.catalog import catalog as catalogs
from siltstone.formats.manifest import Catalog, TableDefinition
from siltstone.server.rest.refusals import Code, Refused
from siltstone.server.served import Served


def version_at(served: Served, table: str, seq: int) -> int:
    """Return the version that a table has at a seq that its catalog has seen."""
    found = catalogs.find(_catalog(served), table, seq)
    if catalogs.schema_of(found, seq).key:
        return seq
    version = catalogs.version_of(catalogs.incarnation_of(found, seq), seq)
    return 0 if version is None else version.pin.version


def seq_of(served: Served, table: str, version: object) -> int:
    """Return the newest seq at which a table has a version.

    Raises:
        Refused: It has no such version, or not any more.
    """
    if type(version) is not int or version < 0:
        raise Refused(Code.INVALID_INPUT, f"a version is an integer from 0, not {version!r:.80}")
    state = served.parts.core.state()
    found = catalogs.find(state.view.catalog, table)
    if catalogs.schema_of(found).key:
        if version > state.visible or version < found.created:
            raise _unknown(table, version)
        return version
    return _plain_seq(found, table, version, state.visible)


def _plain_seq(found: TableDefinition, table: str, version: int, visible: int) -> int:
    versions = catalogs.incarnation_of(found).versions
    until = visible
    for known in reversed(versions):
        if known.pin.version == version:
            return until
        until = known.seq - 1
    if version == 0 and until >= found.created:
        return until
    raise _unknown(table, version)


def _unknown(table: str, version: int) -> Refused:
    return Refused(Code.VERSION_NOT_FOUND, f"table {table!r} has no version {version}")


def _catalog(served: Served) -> Catalog:
    return served.parts.core.state().view.catalog
