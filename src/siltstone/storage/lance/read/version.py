"""Version: one version of one Lance dataset as it was opened: its parts, its files, its indexes.

    position of a row     = rows of the fragments before its own + its offset in that fragment
    Lance's row address   = fragment id << 32 | offset

Fragments stand in the order of their seqs where all of their files say them, so that rows of
history are in seq order whatever was compacted; those of one large write, which span the same seqs,
in the order of their stable row ids. Otherwise in the order of their own ids, as in Lance.

So positions and addresses are one addition apart where a fragment has no deletion file. Other Lance
clients write such files to plain tables: there a position counts the live rows. A fold writes them
to a base, but a base with hidden rows is opened by a manifest without deletion files, since scans
over these are slow: there a position counts all rows, and `live` says which are not hidden. A
deletion file that the inventory does not know is refused.
No lock: nothing changes after construction but memos, and those only from absent to present.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import accumulate
from typing import Any

import numpy as np
import pyarrow as pa

from siltstone.errors import CorruptionError, RequestError, SchemaMismatchError, no_such
from siltstone.formats.bits import Bits
from siltstone.formats.inventory import InventoryFile
from siltstone.formats.manifest import Pin
from siltstone.process import deadline
from siltstone.storage.lance.files.dataset_files import DatasetFiles
from siltstone.storage.lance.files.deletions import HiddenRows, Verify
from siltstone.storage.lance.files.parts import Part, data_files
from siltstone.storage.lance.files.row_addresses import RowAddresses, live_offsets
from siltstone.storage.lance.search import indexes as lance_indexes
from siltstone.storage.tables import inventories, staging
from siltstone.storage.tables.values import Segment, Span
from siltstone.telemetry.notices import NoticeLog

_log = NoticeLog(__name__)
_ROW_ID = "_rowid"


class LanceVersion:
    """See the module; threads may share it.

    Args:
        data: The files of the store's datasets.
        pin: The version.
        dataset: A Lance handle opened at the pin.
        verify: Checks files that this process has not checked yet.
        hidden: The rows that the pin hides, by files that `dataset` does not have.
    """

    def __init__(
        self,
        data: DatasetFiles,
        pin: Pin,
        dataset: Any,
        verify: Verify,
        hidden: HiddenRows | None = None,
    ) -> None:
        self.data, self.pin, self.dataset, self.where = data, pin, dataset, data.root / pin.folder
        self._verify = verify
        self.hidden = hidden or HiddenRows(data, pin, {}, verify)
        self.schema: pa.Schema = dataset.schema
        self.parts, self.fragments = self._ordered(dataset.get_fragments())
        self.rows = pin.rows + pin.hidden
        found = sum(part.rows for part in self.parts), self.hidden.rows
        if found != (self.rows, pin.hidden):
            raise CorruptionError(
                data.root / pin.path,
                None,
                f"the manifest has {found[0]} rows and hides {found[1]}, the pin has {self.rows}"
                f" and hides {pin.hidden}",
            )
        self._verified: set[int] = set()

    @cached_property
    def live(self) -> Bits:
        """The rows that are not hidden."""
        with self.data.reading(self.pin.folder):
            return self.hidden.live(self.rows, [(part.number, part.span) for part in self.parts])

    @property
    def spans(self) -> list[Span]:
        """The positions of the rows of each part."""
        return [part.span for part in self.parts]

    @cached_property
    def segments(self) -> list[Segment]:
        """The segments of its indexes."""
        spans = {part.number: part.span for part in self.parts}
        with self.data.reading(self.pin.folder):
            return lance_indexes.segments(self.dataset, spans)

    @cached_property
    def has_sound_indexes(self) -> bool:
        """Say whether there are indexes, and their files are as they were written.

        A damaged one would leave rows out in silence. It changes no result, so reads go on without.
        """
        if not self.segments:
            return False
        try:
            paths = self.data.index_files(self.pin.folder, self.dataset, self.pin.inventory)
            self._verify(self._live(paths).values())
        except (CorruptionError, RequestError) as error:
            _log.warning("scans continue without a damaged index: %s", error)
            return False
        return True

    @cached_property
    def files(self) -> dict[str, InventoryFile]:
        """The data files of the pin by their paths."""
        return self._live(path for part in self.parts for path in part.paths)

    @cached_property
    def addresses(self) -> RowAddresses:
        """Where Lance has the rows at some positions, and the other way round."""
        return RowAddresses(self.parts, self._live_offsets)

    def _live_offsets(self, index: int) -> np.ndarray:
        self.check([index])
        with self.data.reading(self.pin.folder):
            return live_offsets(self.dataset, self.fragments[index])

    def know(self, columns: Sequence[str] | None) -> None:
        """Refuse columns that it does not have.

        Raises:
            SchemaMismatchError: It lacks one.
        """
        unknown = sorted(set(columns or ()) - set(self.schema.names))
        if unknown:
            raise SchemaMismatchError(no_such("column", unknown, self.schema.names))

    def check(self, wanted: Iterable[int]) -> None:
        """Check the files of some parts, by their indexes, unless it did before.

        Raises:
            CorruptionError: A file is damaged.
        """
        fresh = [int(index) for index in wanted if index not in self._verified]
        if fresh:
            paths = [path for index in fresh for path in self.parts[index].paths]
            self._verify(deadline.checked([self.files[path] for path in paths]))
            self._verified.update(fresh)

    def check_again(self, parts: Iterable[Part]) -> None:
        """See `tables.PinnedTable.check_again`."""
        for path in (path for part in parts for path in part.paths):
            inventories.check(self.data.files, self.data.root, self.files[path])

    def ready_for(self, columns: Sequence[str]) -> None:
        """Check what a search of some columns reads."""
        self.know(columns)
        self.check(range(len(self.parts)))
        deadline.check()

    def paths_of_index(self, name: str) -> list[str]:
        """Return the absolute paths of the files of an index."""
        mine = {segment.id for segment in self.segments if segment.index == name}
        files = self.data.index_files(self.pin.folder, self.dataset, self.pin.inventory)
        return [str(self.data.root / path) for path in files if path.split("/")[-2] in mine]

    def _live(self, paths: Iterable[str]) -> dict[str, InventoryFile]:
        return self.data.inventories.live(self.pin.inventory, paths)

    def _ordered(self, fragments: Sequence[Any]) -> tuple[tuple[Part, ...], list[Any]]:
        parts: list[Part] = []
        start = 0
        for index, fragment in enumerate(fragments):
            metadata = fragment.metadata  # made anew for each who asks
            paths, rows = self._paths_of(fragment, metadata), metadata.num_rows
            stored = metadata.physical_rows
            parts.append(Part(metadata.id, start, rows, paths, index, start, stored))
            start += rows
        if len(parts) > 1:
            files = self._live(path for part in parts for path in part.paths)
            order = staging.in_seq_order(
                [[files[path] for path in p.paths] for p in parts],
                lambda index: self._first_row_id(fragments[index]),
            )
            parts = [parts[index] for index in order]
        starts = accumulate((part.rows for part in parts), initial=0)
        placed = tuple(
            part if part.start == at else replace(part, start=at)
            for part, at in zip(parts, starts, strict=False)
        )
        return placed, [fragments[part.index] for part in placed]

    def _paths_of(self, fragment: Any, metadata: Any) -> tuple[str, ...]:
        paths = tuple(f"{self.pin.folder}/data/{name}" for name in data_files(metadata))
        if metadata.overlays:
            raise CorruptionError(self.where, None, f"fragment {metadata.id} has overlays")
        hiding = self.hidden.path_of(metadata.id)
        if hiding is not None:
            return (*paths, hiding)
        if metadata.deletion_file is None:
            return paths
        deletions = f"{self.pin.folder}/{fragment.deletion_file()}"
        try:
            self._live([deletions])
        except CorruptionError as error:
            reason = f"fragment {metadata.id} has uncommitted deletions"
            # It names the inventory, which may be what is damaged.
            raise CorruptionError(error.path, error.offset, f"{error.reason}: {reason}") from error
        return (*paths, deletions)

    def _first_row_id(self, fragment: Any) -> int:
        """Return the stable id of its first row, from the manifest: rows get them as they come.

        A compaction keeps them, but gives its fragment a number, and so a place in Lance's order,
        behind what was written later.
        """
        with self.data.reading(self.pin.folder):
            scanner = self.dataset.scanner(
                columns=[], fragments=[fragment], with_row_id=True, limit=1
            )
            found: int = scanner.to_table().column(_ROW_ID)[0].as_py()
        return found
