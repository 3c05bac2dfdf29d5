"""Directory: the files that `lance.namespace.DirectoryNamespace(root=...)` reads in a store.

    table `t`       object `t`, at tables/t-1/base (as of the last merge), or tables/t-1 (plain);
                    and `t.lance`, as that namespace looks for tables of the root there
    table `db.t`    object `db$t` in the namespace `db`

The owner rewrites them when a record lists other tables, and `t.lance` when its table has another
version. A crash leaves the older list, or unused files. They change no result of the store, and
readers of the store do not use them.

No lock: only the checkpointer calls it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence

from siltstone.engine.catalog import catalog as catalogs
from siltstone.errors import SiltstoneError
from siltstone.formats.manifest import Record
from siltstone.storage.tables.tables import Listed, ShownTable, Tables

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
            listed = tuple(_listed(placed))
            if listed != self._listed:
                self._tables.clients.write_directory(listed)
                self._listed = listed
            roots = tuple(table for table in placed if not _space(table.name))
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


def _listed(placed: Sequence[ShownTable]) -> Iterator[Listed]:
    spaces: set[str] = set()
    for table in placed:
        name, folder = table.name, table.pin.folder
        space = _space(name)
        if not space:
            yield Listed(name, "table", folder)
            continue
        if space not in spaces:
            spaces.add(space)
            yield Listed(space, "namespace", None)
        yield Listed(f"{space}${name[len(space) + 1 :]}", "table", folder)


def _space(name: str) -> str:
    """Return the namespace that a table is in; "" is the root."""
    space, _, short = name.partition(".")
    return space if short else ""
