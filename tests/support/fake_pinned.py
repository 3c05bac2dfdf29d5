"""Fake pinned: one version of a fake table, its manifest in JSON, its rows in Arrow."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate
from typing import TYPE_CHECKING, cast

import numpy as np
import pyarrow as pa

from siltstone.errors import RequestError, SchemaMismatchError, no_such
from siltstone.formats.bits import Bits, without_some
from siltstone.formats.inventory import InventoryFile
from siltstone.formats.manifest import Pin
from siltstone.storage.tables import staging
from siltstone.storage.tables.values import (
    POSITION,
    PartId,
    Segment,
)

if TYPE_CHECKING:
    import pyarrow.compute as pc

    from siltstone.storage.tables.tables import PinnedSearch

_BATCHES = 3  # into which a scan is cut: who forgets that there may be several is found out


@dataclass(frozen=True)
class FakeManifest:
    """One version. `ids` are the column ids in order; `paths` the data files, in row order.

    `segments` are JSON texts: id, index, kind, column (its id), file, covered (data files).
    `hidden` are JSON texts, too: path (a data file), file (JSON: its hidden offsets), count.
    `adopted` also: path (a file of a load), columns (its names of columns -> those of here).
    """

    schema: pa.Schema
    ids: tuple[int, ...]
    next_id: int
    paths: tuple[str, ...]
    rows: tuple[int, ...]
    segments: tuple[str, ...] = ()
    hidden: tuple[str, ...] = ()
    adopted: tuple[str, ...] = ()

    @property
    def live(self) -> list[str]:
        more = (json.loads(text)["file"] for text in (*self.segments, *self.hidden))
        return [*self.paths, *more]

    @property
    def hidden_rows(self) -> int:
        return sum(json.loads(text)["count"] for text in self.hidden)

    def hiding(self, path: str) -> str | None:
        """Return the file with the hidden offsets of a data file."""
        found = (each for each in map(json.loads, self.hidden) if each["path"] == path)
        return next((each["file"] for each in found), None)

    def as_here(self, path: str, table: pa.Table) -> pa.Table:
        """Return the rows of a data file with the columns of the version."""
        for each in map(json.loads, self.adopted):
            if each["path"] == path:
                known = {here: table.column(own) for own, here in each["columns"].items()}
                blank = pa.nulls(table.num_rows)
                columns = [known.get(f.name, blank).cast(f.type) for f in self.schema]
                return pa.table(columns, schema=self.schema)
        return table

    @property
    def columns(self) -> tuple[staging.Column, ...]:
        pairs = zip(self.schema, self.ids, strict=True)
        return tuple((field.name, number, str(field.type)) for field, number in pairs)

    def encode(self) -> bytes:
        schema = base64.b64encode(self.schema.serialize().to_pybytes()).decode()
        return json.dumps({**vars(self), "schema": schema}).encode()

    @classmethod
    def decode(cls, data: bytes) -> FakeManifest:
        value = json.loads(data)
        schema = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(value.pop("schema"))))
        lists = {name: tuple(value[name]) for name in _LISTS}
        return cls(schema=schema, next_id=value["next_id"], **lists)


_LISTS = ("ids", "paths", "rows", "segments", "hidden", "adopted")


class NoSearch:
    """What has no index that is asked."""

    def values_in_order(self, column: str) -> None:
        """See `tables.PinnedSearch.values_in_order`."""


class FakePinned:
    """See `tables.PinnedTable`. A string prefilter is not applied: a superset is allowed."""

    def __init__(
        self,
        pin: Pin,
        manifest: FakeManifest,
        read: Callable[[str], pa.Table],
        known: dict[str, InventoryFile],
        offsets: Callable[[str], list[int]],
    ) -> None:
        order = staging.in_seq_order([[known[path]] for path in manifest.paths])
        paths = tuple(manifest.paths[index] for index in order)
        rows = tuple(manifest.rows[index] for index in order)
        self.pin, self.manifest = pin, replace(manifest, paths=paths, rows=rows)
        self.schema, self.rows = manifest.schema, sum(rows)
        self._read, self._known, self._offsets = read, known, offsets

    @property
    def part_ids(self) -> list[PartId]:
        return [PartId(zlib.crc32(path.encode()), (path,)) for path in self.manifest.paths]

    @property
    def live(self) -> Bits:
        return self._live

    @cached_property
    def _live(self) -> Bits:
        gone: list[np.ndarray] = []
        for path, (first, _) in zip(self.manifest.paths, self.spans, strict=True):
            file = self.manifest.hiding(path)
            if file is not None:
                gone.append(np.array(self._offsets(file), np.int64) + first)
        return without_some(self.rows, gone)

    @property
    def spans(self) -> list[tuple[int, int]]:
        ends = list(accumulate(self.manifest.rows))
        return list(zip([0, *ends[:-1]], ends, strict=True)) if ends else []

    def check_again(self, within: tuple[int, int]) -> None:
        """See `tables.PinnedTable.check_again`: what is read is checked each time."""

    @property
    def worn(self) -> list[tuple[int, int]]:
        """See `tables.PinnedTable.worn`: nothing is ever deleted in place."""
        return []

    def scan(
        self,
        columns: Sequence[str] | None = None,
        *,
        prefilter: str | pc.Expression | None = None,
        seqs: tuple[int, int] | None = None,
        positions: bool = False,
        limit: int | None = None,
        within: tuple[int, int] | None = None,
        indexed: bool = False,  # the seam: no index is ever asked
        with_hidden: bool = False,
    ) -> Iterator[pa.RecordBatch]:
        table = self._with_positions
        if within is not None:
            table = table.slice(within[0], within[1] - within[0])
        if seqs is not None:
            table = pa.concat_tables([table.slice(0, 0), *self._within(*seqs)])
        if not with_hidden and self.manifest.hidden:
            table = table.filter(pa.array(self.live.has(table[POSITION].to_numpy())))
        if prefilter is not None and not isinstance(prefilter, str):
            table = table.filter(prefilter)
        names = [*(self.schema.names if columns is None else columns), *[POSITION] * positions]
        found = _select(table.slice(0, limit), names)
        return iter(found.to_batches(max_chunksize=max(1, found.num_rows // _BATCHES)))

    @property
    def segments(self) -> list[Segment]:
        spans = dict(zip(self.manifest.paths, self.spans, strict=True))
        names = {number: name for name, number, _ in self.manifest.columns}
        return [
            Segment(
                id=found["id"],
                index=found["index"],
                kind=found["kind"],
                columns=(names[found["column"]],),
                covered=tuple(sorted(spans[path] for path in found["covered"] if path in spans)),
                nbytes=self._known[found["file"]].size,
                type=found["kind"],
            )
            for found in map(json.loads, self.manifest.segments)
        ]

    def sample(self, columns: Sequence[str]) -> pa.Table:
        some = staging.spread(self.rows)
        return self.take(some[self.live.has(some)], columns)

    def take(self, positions: np.ndarray, columns: Sequence[str] | None = None) -> pa.Table:
        wanted = np.asarray(positions, dtype=np.int64)
        if len(wanted) and not 0 <= wanted.min() <= wanted.max() < self.rows:
            raise RequestError(f"positions {wanted.min()}..{wanted.max()} of {self.rows} rows")
        names = self.schema.names if columns is None else list(columns)
        taken = self._with_positions.take(pa.array(wanted, pa.int64()))
        return _select(taken, names)

    @property
    def search(self) -> PinnedSearch:
        """See `tables.PinnedTable.search`: no search of these tests comes as far as base."""
        return cast("PinnedSearch", NoSearch())

    def part(self, index: int) -> pa.Table:
        """Return the rows of one data file, with their positions."""
        start = sum(self.manifest.rows[:index])
        return self._with_positions.slice(start, self.manifest.rows[index])

    @cached_property
    def _with_positions(self) -> pa.Table:
        batches = [
            staging.arranged(batch, self.schema)  # a column added after the rows were staged
            for path in self.manifest.paths
            for batch in self._read(path).to_batches()
        ]
        table = pa.Table.from_batches(batches, self.schema).combine_chunks()
        field = pa.field(POSITION, pa.int64(), nullable=False)
        return table.append_column(field, pa.array(np.arange(self.rows)))

    def _within(self, low: int, high: int) -> Iterator[pa.Table]:
        for index, path in enumerate(self.manifest.paths):
            if self._known[path].may_hold(low, high):
                yield self.part(index)


def _select(table: pa.Table, names: Sequence[str]) -> pa.Table:
    unknown = sorted(set(names) - set(table.schema.names))
    if unknown:
        raise SchemaMismatchError(no_such("column", unknown, table.schema.names))
    return table.select(names)
