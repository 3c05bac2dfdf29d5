"""Directory: the files that `lance.namespace.DirectoryNamespace(root=...)` reads in a store.

    table `t`       object `t`, at tables/t-1/base (as of the last merge), or tables/t-1 (plain);
                    and `t.lance`, as that namespace looks for tables of the root there
    table `a.b.t`   object `a$b$t` in the namespace `a$b`

The owner rewrites them when a record lists other tables, and `t.lance` when its table has another
version. A crash leaves the older list, or unused files. They change no result of the store, and
readers of the store do not use them.

No lock: only the checkpointer calls it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence

from siltstone.engine.catalog import catalog as catalogs
from siltstone.engine.catalog import namespaces as spaces
from siltstone.errors import SiltstoneError
from siltstone.formats.manifest import Record
from siltstone.storage.tables.store_tables import Tables
from siltstone.storage.tables.values import Listed, ShownTable

_log = logging.getLogger(__name__)


class Directory:
    """See the module. One per owner with `lance_directory`."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        self._listed: tuple[Listed, ...] | None = None
        self._roots: tuple[ShownTable, ...] | None = None

    def export(self, record: Record) -> None:
        """List the tables of a record that have a version; an error never fails a checkpoint."""
        try:
            placed = sorted(_placed(record), key=lambda table: table.name)
            for table in placed:
                self._tables.names.show(table.pin.folder, [table.pin])
            listed = tuple(_listed(placed, record))
            if listed != self._listed:
                self._tables.clients.write_directory(listed)
                self._listed = listed
            roots = tuple(table for table in placed if not spaces.above(table.name))
            if roots != self._roots:
                self._tables.clients.write_root_tables(roots)
                self._roots = roots
        except SiltstoneError as error:
            _log.warning("the directory for other clients is older than the tables: %s", error)


def _placed(record: Record) -> Iterator[ShownTable]:
    """Yield the living tables that have a version, at the newest one."""
    keyed = {storage.incarnation: storage for storage in record.keyed}
    for table in record.catalog.tables:
        if not catalogs.is_alive(table):
            continue
        name, step = catalogs.name_of(table), catalogs.incarnation_of(table)
        version = catalogs.version_of(step)
        storage = keyed.get(step.id)
        if storage is not None and storage.base is not None:
            yield ShownTable(name, storage.base)
        elif version is not None and not catalogs.schema_of(table).key:
            yield ShownTable(name, version.pin)


def _listed(placed: Sequence[ShownTable], record: Record) -> Iterator[Listed]:
    """Yield the tables, each namespace before what is in it."""
    created = [space.name for space in record.catalog.namespaces if space.is_alive()]
    implied = spaces.implied((*created, *(table.name for table in placed)))
    for name in sorted({*created, *implied}):
        yield Listed(_object(name), "namespace", None)
    for table in placed:
        yield Listed(_object(table.name), "table", table.pin.folder)


def _object(name: str) -> str:
    return "$".join(spaces.levels_of(name))
