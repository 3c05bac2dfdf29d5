"""Values: what crosses the interface of columnar datasets, see `tables`. All are immutable."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import accumulate
from types import MappingProxyType
from typing import NamedTuple, TypeVar

import msgspec
import numpy as np
import pyarrow as pa

from siltstone.choices import Encoding, IndexKind
from siltstone.errors import RequestError
from siltstone.formats.inventory import InventoryFile
from siltstone.formats.manifest import KeyRun, Pin

T = TypeVar("T")
WORN_RATIO = 0.1  # as in Lance: from so much on a compaction materializes deletions
POSITION = "_position"
INDEX_DIRECTORY = "_indices"

SAMPLED_ROWS = 1024
NOTHING_RETYPED: Mapping[str, pa.DataType] = MappingProxyType({})

IndexOption = str | int | bool
Span = tuple[int, int]
Seqs = tuple[int, int]
"""The lowest and the highest `_seq` of some rows, both inclusive."""
Batches = Iterable[pa.RecordBatch]
Entries = Iterable[InventoryFile]


class PartId(NamedTuple):
    """A part of a dataset: a number below 2**32, and the names of its data files.

    A later version never has the number for another part, unless `overwrite` is between them.
    """

    number: int
    paths: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ExternalVersion:
    """A version that another program wrote by path.

    `path` is the path of its manifest, relative to the store's root.

    `by` describes its writer. `added` counts the rows that it appended; None if it did not only
    append, or cannot be read. `files` hold those rows (names below `data/`). `named` are all files
    that its manifest names, relative to the root; None: it cannot be read.
    """

    path: str
    version: int
    rows: int
    by: str
    added: int | None = None
    files: tuple[str, ...] = ()
    named: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class StagedKeys:
    """The sorted codes of the keys of staged rows, see `staged_keys`: of `rows` [first, end)."""

    rows: Span
    run: KeyRun


@dataclass(frozen=True, slots=True)
class StagedFiles:
    """Durable data files that no pin names yet. Pickles; `commit` puts it on any pin that fits.

    `fragments` is opaque. `columns` is (name, id, type) of each column written: the same id under
    another name, or the same name with another id, is another column and does not fit. `keys` are
    of some of the rows, not durable, and need not be there.
    """

    rows: int
    fragments: tuple[str, ...]
    files: tuple[InventoryFile, ...]
    columns: tuple[tuple[str, int, str], ...]
    keys: tuple[StagedKeys, ...] = ()


NO_FILES = StagedFiles(0, (), (), ())


class AdoptedLoad(msgspec.Struct, frozen=True, eq=False):
    """A load whose files a fold makes parts of base: the pin of its own dataset.

    `columns` are (its name, base's name); what base has besides is null, what it has not is gone.
    `gone` are the positions, in the load, of the rows that are hidden from the first, ascending.
    """

    pin: Pin
    columns: tuple[tuple[str, str], ...]
    gone: np.ndarray


class Compacted(msgspec.Struct, frozen=True):
    """The rows of some parts of a pin in fewer files, durable; no pin names them yet. Pickles.

    `swap` puts it on any pin that has the inputs as they were. `inputs` and `fragments` are opaque.
    """

    rows: int
    inputs: tuple[str, ...]
    fragments: tuple[str, ...]
    files: tuple[InventoryFile, ...]


class StagedVersion(msgspec.Struct, frozen=True):
    """A version that another Lance client staged: where its manifest is, and its size in bytes."""

    version: int
    path: str
    size: int | None = None


class OtherLineError(RequestError):
    """A client's version was built on one that was written by path: it may commit again."""


class ImportedVersion(msgspec.Struct, frozen=True):
    """An imported version of another Lance client: durable, but not yet named.

    `operation` is Lance's name of the change ("Append", "Delete", ...); it was planned on
    `read_version`, and perhaps rebased from there. `added` are the paths of the files that the
    client wrote, the manifest among them; `back` those that an older version has, but not the
    version below: the version `restored`, if the client names it.
    """

    pin: Pin
    schema: pa.Schema
    operation: str
    read_version: int
    added: tuple[str, ...]
    back: tuple[str, ...] = ()
    restored: int = 0


class IndexSpec(msgspec.Struct, frozen=True):
    """An index as a dataset has it: its name there, the column as the pin calls it, its kind."""

    name: str
    column: str
    kind: IndexKind
    options: tuple[tuple[str, IndexOption], ...] = ()


class Lengths(msgspec.Struct, frozen=True):
    """The least and the greatest length of the vectors of a column that have one above 0."""

    least: float
    most: float


@dataclass(frozen=True, slots=True, eq=False)
class NearestQuery:
    """A search for the rows with the nearest vectors.

    Args:
        column: The pin's name of the column.
        vectors: One row for each query, of the element type of the column.
        k: How many rows are wanted of each query.
        metric: "l2" (squared), "cosine" or "dot" of floats, "hamming" of bytes.
        indexed: Whether indexes may be asked, which find nearly the nearest.
        probes: How many partitions of an index are looked into; None: Lance decides.
        refine: Measure so many times k rows of an index by their vectors; None: as many as its
            encoding needs.
        least: The rows nearer than that are left out, by the distance as an index has it.
        prefilter: The rows that match it are ranked, and no others: SQL on which Lance and we
            agree, see `engine.filter.pushed`.
        bringing: The columns that the found rows bring along; none of blobs.
        index: The one to ask, by its name; None: of those with the metric that with most rows.
        wanted: How many of the k the caller wants, who ranks them again; None: all. An index looks
            into as many partitions as for these.
    """

    column: str
    vectors: np.ndarray
    k: int
    metric: str
    indexed: bool = True
    probes: int | None = None
    refine: int | None = None
    least: float | None = None
    prefilter: str | None = None
    bringing: tuple[str, ...] = ()
    index: str | None = None
    wanted: int | None = None


@dataclass(frozen=True, slots=True)
class WordsQuery:
    """A search for the rows whose text has some words.

    Args:
        column: The pin's name of the column, which has an index of texts.
        words: The text that is searched for; the index's own tokenizer takes it apart.
        limit: How many rows are wanted, those with the highest scores.
        has_all: A row must have all of the words; else one is enough.
        is_phrase: The words must follow each other.
        terms: The words, taken apart: a fuzzy search asks for these.
        edits: A word is found with so many letters more, less or changed.
        covered: Only rows that the index covers; else those of all parts.
        prefilter: See `NearestQuery`.
    """

    column: str
    words: str
    limit: int
    has_all: bool = False
    is_phrase: bool = False
    terms: tuple[str, ...] = ()
    edits: int = 0
    covered: bool = False
    prefilter: str | None = None


class TextIndex(msgspec.Struct, frozen=True):
    """An index of texts that a pin has: its name there, the pin's name of the column, all options.

    `covered` are the spans of the parts that it covers.
    """

    name: str
    column: str
    options: tuple[tuple[str, IndexOption | None], ...]
    covered: tuple[Span, ...]


class TextTotals(msgspec.Struct, frozen=True):
    """Of some rows of an index of texts: those that have a word, and their words together."""

    texts: int
    words: int


class Ranked(msgspec.Struct, frozen=True, eq=False):
    """The rows that a search found: by row its query (counted from 0), position and distance.

    Of a search for words it is the score. `brought` are the columns that the query asked for.
    """

    queries: np.ndarray
    positions: np.ndarray
    distances: np.ndarray
    brought: pa.Table


class Segment(msgspec.Struct, frozen=True):
    """A part of the index `index` in a pin: the rows of the parts with the spans `covered`.

    `id` is the name of its folder, below `INDEX_DIRECTORY` in the dataset's. A compaction leaves
    the parts `tied` of a segment for search: their rows would go, or get other row ids, and the
    segment would be wrong. An index of vectors has an `encoding`, that of its first segment, and a
    `metric`. `type` is its kind, or what Lance calls it if it is of none of ours.
    """

    id: str
    index: str
    kind: IndexKind
    columns: tuple[str, ...]
    covered: tuple[Span, ...]
    nbytes: int
    tied: tuple[Span, ...] = ()
    encoding: Encoding | None = None
    metric: str | None = None
    type: str = ""

    @property
    def is_for_search(self) -> bool:
        """Whether it is of texts or vectors: costly to build, and asked by searches alone."""
        return self.kind in {"fts", "vector"}


@dataclass(frozen=True, slots=True)
class BuiltSegment:
    """A segment of the index `index`, durable; no pin names it yet. Pickles.

    `TableIndexer.put` puts it on any pin that has some of the inputs as they were. `inputs` and
    `described` are opaque.
    """

    index: str
    inputs: tuple[str, ...]
    described: str
    files: tuple[InventoryFile, ...]


class Ephemeral(msgspec.Struct, frozen=True):
    """A version for other Lance clients that no record names; `files` were written for it alone.

    Nothing of it is durable: after a crash it is garbage. `pin` is over it all the same, without an
    inventory.
    """

    pin: Pin
    files: tuple[InventoryFile, ...]


class InputsMovedError(Exception):
    """The pin lacks an input of a compaction, or the input has other rows: plan again."""


def put_fitting(
    pin: Pin, items: Sequence[T], put: Callable[[Pin, Sequence[T]], Pin]
) -> tuple[Pin, Sequence[T]]:
    """Put work on a pin, all at once, or else each by itself; return the pin, and what fitted."""
    try:
        return put(pin, items), items
    except InputsMovedError:
        fitting: list[T] = []
        for one in items:
            with suppress(InputsMovedError):
                pin = put(pin, [one])
                fitting.append(one)
        return pin, fitting


def join(parts: Sequence[StagedFiles]) -> StagedFiles:
    """Return several stagings as one; their rows follow each other in the order of `parts`."""
    firsts = accumulate((part.rows for part in parts), initial=0)
    return StagedFiles(
        rows=sum(part.rows for part in parts),
        fragments=tuple(text for part in parts for text in part.fragments),
        files=tuple(file for part in parts for file in part.files),
        columns=tuple(dict.fromkeys(column for part in parts for column in part.columns)),
        keys=tuple(
            _behind(k, n) for n, part in zip(firsts, parts, strict=False) for k in part.keys
        ),
    )


def _behind(keys: StagedKeys, rows: int) -> StagedKeys:
    """Return staged keys as they are behind so many rows."""
    first, end = keys.rows
    return replace(keys, rows=(first + rows, end + rows))
