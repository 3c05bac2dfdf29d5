"""External appends: versions that other programs wrote into a table's folder by path.

    lance.write_dataset(rows, "<store>/tables/<name>-<id>/...", mode="append")

The store never imports them by itself, and they block nothing: reads, commits and maintenance
continue at the pins of the record. This module finds and lists them. On request it commits the rows
that they appended to a plain table, as a public append. Each version is committed once (its token
is the checksum of its manifest); then its manifest is moved into quarantine.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, replace
from itertools import chain
from typing import Any

import pyarrow as pa

from siltstone.arguments import flag_of
from siltstone.engine.catalog import catalog as catalogs
from siltstone.errors import RequestError, SiltstoneError, TableNotFoundError, UnavailableError
from siltstone.failpoints import Failpoint, cross
from siltstone.formats.manifest import Record, TableDefinition, pins_of
from siltstone.maintenance.gc.sweep import distinct, home_of, homes
from siltstone.maintenance.repair.quarantine import Item, Quarantine
from siltstone.storage.site import Site
from siltstone.storage.tables.inventories import describe
from siltstone.storage.tables.tables import ExternalTables
from siltstone.storage.tables.values import ExternalVersion

SAMPLE_ROWS = 5
ATTEMPTS_MAX = 8
Transaction = Callable[..., AbstractContextManager[Any]]


@dataclass(frozen=True, slots=True)
class Adopted:
    """The rows of external versions that were committed to a table, or would be.

    `sample` has the first rows. `seq` is the seq of the commit, None if nothing was committed.
    """

    table: str
    is_dry_run: bool
    rows: int
    versions: tuple[str, ...]
    sample: tuple[Mapping[str, object], ...]
    seq: int | None = None

    def to_dict(self) -> dict[str, object]:
        """Return the result as plain values."""
        return asdict(self)

    def __str__(self) -> str:
        verb = "would commit" if self.is_dry_run else "committed"
        head = f"{self.table}: {verb} {self.rows} rows of {len(self.versions)} versions"
        return "\n".join([head, *(f"  {row}" for row in self.sample)])


def external_versions_of(
    external: ExternalTables, record: Record, logged: Iterable[str] = ()
) -> Iterator[tuple[str, ExternalVersion]]:
    """Yield every external version in the folders of a record's tables, with its folder.

    Args:
        external: The versions of other clients in the store.
        record: The record with the folders: in its pins, or for a plain table without a version in
            its name.
        logged: The folders in frames above the record, since the last checkpoint.
    """
    folders = {pin.folder for pin in distinct(pins_of(record)).values()}
    for folder in sorted({*folders, *logged, *homes(record.catalog)}):
        for version in external.versions(folder):
            yield folder, version


def told(external: ExternalVersion) -> str:
    """Return the description of an external version."""
    added = "" if external.added is None else f", {external.added} of them appended by it"
    return (
        f"version {external.version} was not written by siltstone ({external.by}); nothing reads"
        f" it: {external.rows} rows{added}; {_next_step(external)}"
    )


def _next_step(external: ExternalVersion) -> str:
    if external.added is None:
        return "if you want its change, make it through siltstone; then move this file away"
    if not external.added:
        return "to remove it, move this file away"
    return "repair --import-external <table> commits them, or move this file away"


class _MovedError(Exception):
    """A version is not where it was listed: another process has set it aside, or imported it."""


class Adopter:
    """See the module."""

    def __init__(self, site: Site, quarantine: Quarantine) -> None:
        self._files, self._root, self._manifests = site.files, site.root, site.manifests
        self._tables, self._quarantine = site.tables, quarantine

    def run(self, number: int, transaction: Transaction, *, dry_run: bool = True) -> Adopted:
        """Commit the rows of external appends to a plain table; by default only preview them.

        The caller has made a checkpoint, so that the newest record has the table.

        If another process imports at the same time, rows are committed once, but both may count
        them.

        Args:
            number: The id of the table; its name may change meanwhile.
            transaction: Begins a transaction; takes `token`.
            dry_run: Change nothing.

        Raises:
            TableNotFoundError, RequestError: There is no such table, it is keyed, or a version did
                not only append. Nothing was changed.
            SchemaMismatchError: The rows do not fit the table.
            UnavailableError: Others moved the versions repeatedly; committed rows stay.
        """
        flag_of("dry_run", dry_run)
        table = catalogs.by_id(self._manifests.newest().catalog, number)
        if table is None or not catalogs.is_alive(table):
            raise catalogs.dropped(number, table)
        done = Adopted(catalogs.name_of(table), dry_run, 0, (), ())
        for _ in range(ATTEMPTS_MAX):
            try:
                found = self._appended(table)
                done = replace(done, sample=done.sample or tuple(self._sample(found)))
                for folder, external in found:
                    seq = None if dry_run else self._adopt(table, folder, external, transaction)
                    rows, paths = done.rows + (external.added or 0), (*done.versions, external.path)
                    done = replace(done, rows=rows, versions=paths, seq=seq)
            except _MovedError:
                continue
            return done
        raise UnavailableError(
            f"the external versions of {done.table} were moved {ATTEMPTS_MAX} times while they were"
            f" read; {len(done.versions)} were committed; import them again"
        )

    def _appended(self, table: TableDefinition) -> list[tuple[str, ExternalVersion]]:
        if catalogs.schema_of(table).key:
            reason = "is keyed: read the version with Lance, and upsert its rows"
            raise RequestError(f"{catalogs.name_of(table)} {reason}")
        pins = [version.pin for version in catalogs.incarnation_of(table).versions]
        folders = sorted({home_of(table), *(pin.folder for pin in pins)})
        read = self._tables.reader.files
        live = {file.path for pin in pins[-1:] for file in read(pin)}
        found = [
            (folder, each)
            for folder in folders
            for each in self._tables.external.versions(folder)
            # Or a name of a version of ours that outlived it, in a copy without links.
            if not each.files or not {f"{folder}/data/{name}" for name in each.files} <= live
        ]
        other = [external for _, external in found if external.added is None]
        for external in other[:1]:
            self._require_there(external)
            raise RequestError(
                f"{external.path}: {told(external)}, and import again: it cannot be imported,"
                " because it did not only append, or is not whole; nothing was changed"
            )
        return found

    def _require_there(self, external: ExternalVersion) -> None:
        if not self._files.exists(self._root / external.path):
            raise _MovedError(external.path)

    def _added(self, folder: str, external: ExternalVersion) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a version; its data files stay, also if its manifest is moved."""
        try:
            rows = self._tables.external.added(folder, external)
            first = next(rows, None)
        except SiltstoneError:
            self._require_there(external)
            raise
        return iter(()) if first is None else chain([first], rows)

    def _sample(
        self, found: Sequence[tuple[str, ExternalVersion]]
    ) -> Iterator[Mapping[str, object]]:
        left = SAMPLE_ROWS
        for folder, external in found:
            for batch in self._added(folder, external):
                yield from batch.slice(0, left).to_pylist()
                left -= min(left, batch.num_rows)
                if not left:
                    return

    def _adopt(
        self, table: TableDefinition, folder: str, external: ExternalVersion, begin: Transaction
    ) -> int:
        try:
            app = f"adopted {describe(self._files, self._root, external.path).xxh3}"
        except FileNotFoundError as error:
            raise _MovedError(external.path) from error
        batches = self._added(folder, external)
        first = next(batches, None)
        with begin(token=(app, 0)) as tx:
            if first is not None:
                rows = chain([first], batches)
                _by_id(tx, table).append(pa.RecordBatchReader.from_batches(first.schema, rows))
        cross(Failpoint.IMPORT_AFTER_COMMIT)
        name = catalogs.name_of(table)
        why = f"its {external.added} rows were committed to {name} at seq {tx.seq}"
        try:
            self._quarantine.take([Item(external.path, why)])
        except OSError as error:
            raise UnavailableError(f"{external.path}: {why}, but it stays: {error}") from error
        return tx.seq


def _by_id(tx: Any, table: TableDefinition) -> Any:
    """Return a transaction's handle of a table, whatever it is called there.

    Raises:
        TableNotFoundError: It was dropped.
    """
    name = catalogs.name_of(table)
    for called in (name, *tx.tables()):
        with contextlib.suppress(TableNotFoundError):
            found = tx[called]
            if found.id == table.id:
                return found
    raise catalogs.dropped(table.id, table)
