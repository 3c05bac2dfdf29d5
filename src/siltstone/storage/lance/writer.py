"""Lance writer: datasets made, rows staged and committed, columns altered."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from siltstone.storage.lance.commits import LanceCommits, fragments_of
from siltstone.storage.lance.dataset_files import DATA, TRANSACTIONS, DatasetFiles
from siltstone.storage.lance.errors import translated
from siltstone.storage.lance.reader import LanceReader
from siltstone.storage.lance.staged_catalog import lance_module, open_newest, put, writing
from siltstone.storage.tables import kept_names as kept
from siltstone.storage.tables import staging
from siltstone.storage.tables.tables import Batches, Seqs, StagedFiles

if TYPE_CHECKING:
    import pyarrow as pa

    from siltstone.formats.manifest import Pin


class LanceWriter:
    """See `tables.TableWriter`; threads may share it."""

    def __init__(self, data: DatasetFiles, reader: LanceReader, commits: LanceCommits) -> None:
        self._root, self._files = data.root, data.files
        self._reader, self._commits = reader, commits

    def create(self, folder: str, schema: pa.Schema) -> Pin:
        """See `tables.TableWriter.create`. Stable row ids on, Lance's own clean-up off."""
        where = self._root / folder
        with translated(where, is_reading=False):
            for name in ("", DATA, TRANSACTIONS, "_versions"):
                self._files.mkdir(where / name)
            kept.make(self._files, self._root, folder)
        catalog = self._commits.begin(folder, {})
        with writing(where, catalog):
            overwrite = lance_module().LanceOperation.Overwrite(schema, [])
            dataset = put(catalog, str(catalog.location), overwrite, enable_stable_row_ids=True)
        return self._commits.seal(folder, "", catalog, dataset, (), rows=0)

    def stage(
        self, folder: str, pin: Pin, batches: Batches, *, seqs: Seqs | None = None
    ) -> StagedFiles:
        """See `tables.TableWriter.stage`."""
        dataset = self._reader.open(folder, pin).dataset
        found = staging.peeked(batches)
        if found is None:
            return StagedFiles(0, (), (), ())
        schema = staging.narrowed(dataset.schema, found[0].names)
        fragments = self._commits.write_rows(folder, dataset, schema, found[1])
        staging.check_field_ids(fragments, dataset.lance_schema, schema.names)
        columns = staging.columns_of(dataset.lance_schema, schema)
        return self._commits.seal_rows(folder, fragments, columns, seqs)

    def commit(self, folder: str, pin: Pin, staged: StagedFiles) -> Pin:
        """See `tables.TableWriter.commit`."""
        if not staged.rows:
            return pin
        dataset = self._reader.open(folder, pin).dataset
        staging.refuse_unfit(
            staged.columns, staging.columns_of(dataset.lance_schema, dataset.schema)
        )
        operation = lance_module().LanceOperation.Append(fragments_of(staged))
        return self._commits.commit(
            folder, pin, [operation], staged.files, rows=pin.rows + staged.rows
        )

    def append(self, folder: str, pin: Pin, batches: Batches, *, seqs: Seqs | None = None) -> Pin:
        """See `tables.TableWriter.append`."""
        return self.commit(folder, pin, self.stage(folder, pin, batches, seqs=seqs))

    def overwrite(self, folder: str, pin: Pin, schema: pa.Schema, batches: Batches) -> Pin:
        """See `tables.TableWriter.overwrite`. Field ids restart: older staged files do not fit."""
        dataset = self._reader.open(folder, pin).dataset
        found = staging.peeked(batches)
        staged = StagedFiles(0, (), (), ())
        if found is not None:
            staging.narrowed(schema, found[0].names)
            fragments = self._commits.write_rows(
                folder, dataset, schema, found[1], mode="overwrite"
            )
            fresh = importlib.import_module("lance.schema").LanceSchema.from_pyarrow(schema)
            staging.check_field_ids(fragments, fresh, schema.names)
            staged = self._commits.seal_rows(folder, fragments, (), None)
        operation = lance_module().LanceOperation.Overwrite(schema, fragments_of(staged))
        return self._commits.commit(folder, pin, [operation], staged.files, rows=staged.rows)

    def alter(
        self,
        folder: str,
        pin: Pin,
        *,
        rename: Mapping[str, str],
        drop: Sequence[str],
        add: Sequence[pa.Field],
    ) -> Pin:
        """See `tables.TableWriter.alter`. Lance alters the manifest alone, no data file."""
        where = self._root / folder
        staging.refuse_alter(self._reader.open(folder, pin).dataset.schema, rename, drop, add)
        if not (rename or drop or add):
            return pin
        catalog = self._commits.begin(folder, {pin.version: self._root / pin.path})
        with writing(where, catalog):
            dataset = open_newest(catalog)
            if rename:
                dataset.alter_columns(*({"path": o, "name": n} for o, n in rename.items()))
            if drop:
                dataset = open_newest(catalog)
                dataset.drop_columns(list(drop))
            if add:
                dataset = open_newest(catalog)
                dataset.add_columns(list(add))
            dataset = open_newest(catalog)
        return self._commits.seal(folder, pin.inventory, catalog, dataset, (), rows=pin.rows)
