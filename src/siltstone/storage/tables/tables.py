"""Tables: the interface of columnar datasets for the engine; see `lance.lance_tables`.

A dataset lies in a folder (relative to the store's root) and is only ever named by a `Pin`: one
immutable version. Every operation makes a new, private pin from an old one; all files of a pin are
durable when it is returned. A pin that no record names has no effect. What the methods take and
return is in `values`. The file is long because all parts of one interface are in it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from siltstone.formats.bits import Bits
from siltstone.formats.inventory import InventoryFile
from siltstone.formats.manifest import Pin
from siltstone.process.shares import LanceShares
from siltstone.storage.tables.values import (
    NOTHING_RETYPED,
    AdoptedLoad,
    Batches,
    BuiltSegment,
    Compacted,
    Ephemeral,
    ExternalVersion,
    ImportedVersion,
    IndexOption,
    IndexSpec,
    Lengths,
    NearestQuery,
    PartId,
    Ranked,
    Segment,
    Seqs,
    Span,
    StagedFiles,
    StagedVersion,
    TextIndex,
    TextTotals,
    WordsQuery,
)


class PinnedTable(Protocol):
    """One version of one dataset. Threads may share it; positions are 0, 1, ... in row order.

    `rows` counts positions, those of hidden rows, too; `pin.rows` live rows alone.
    """

    @property
    def pin(self) -> Pin: ...

    @property
    def schema(self) -> pa.Schema: ...

    @property
    def rows(self) -> int: ...

    @property
    def spans(self) -> Sequence[Span]:
        """The positions [first, end) that each part of the version holds, in row order.

        A part is what `scan` can read without the others: a fragment.
        """
        ...

    @property
    def part_ids(self) -> Sequence[PartId]:
        """What each of `spans` is called in all versions of the dataset that have its rows.

        Parts of one id have the same rows at the same offsets; some may be hidden in one version
        and not in another, and columns may have other names.
        """
        ...

    @property
    def live(self) -> Bits:
        """The positions of the rows that are not hidden: all but for a base with hidden rows."""
        ...

    @property
    def worn(self) -> Sequence[Span]:
        """Those of `spans` of whose stored rows other clients deleted `WORN_RATIO` or more."""
        ...

    @property
    def segments(self) -> Sequence[Segment]:
        """The segments of all indexes of the version."""
        ...

    def check_again(self, within: Span) -> None:
        """Check the bytes of the parts within a range, whatever was checked before.

        Raises:
            CorruptionError: A file is damaged.
            UnavailableError: The file system refuses to read it.
        """
        ...

    def scan(
        self,
        columns: Sequence[str] | None = None,
        *,
        prefilter: str | pc.Expression | None = None,
        seqs: Span | None = None,
        positions: bool = False,
        limit: int | None = None,
        within: Span | None = None,
        indexed: bool = False,
        with_hidden: bool = False,
    ) -> Iterator[pa.RecordBatch]:
        """Yield rows in row order; close or drop the iterator at any time.

        Args:
            columns: None is all; an empty list gives batches that have rows and no column.
            prefilter: A hint: a superset of the matching rows may come, the caller filters again.
                An expression only over tables of our own, as the log of commits: Lance takes it
                together with the types of all columns, and refuses many.
            seqs: `(lo, hi)`: rows with a `_seq` outside (lo, hi] may be left out, in whole files.
            positions: Add int64 `_position`: the row's position in the whole pin.
            limit: At most so many rows.
            within: Only the parts whose `spans` lie in [first, end), or, where that lies inside of
                one part, those rows of it (`prefilter` may do nothing then); positions stay those
                of the whole pin. Not together with `seqs`.
            indexed: Let indexes find the rows of the prefilter; the rows are the same without.
                They cost by the rows that are found: many are found better without.
            with_hidden: Yield the hidden rows of a base, too. A `limit` counts them.

        Raises:
            CorruptionError: The bytes of a file are not those that were written.
            RequestError: The table does not support a column or the prefilter.
        """
        ...

    def sample(self, columns: Sequence[str]) -> pa.Table:
        """Return at most `SAMPLED_ROWS` rows, spread over the whole version; kept, once read."""
        ...

    def take(self, positions: np.ndarray, columns: Sequence[str] | None = None) -> pa.Table:
        """Return the rows at `positions`, in that order; a position may repeat."""
        ...

    @property
    def search(self) -> PinnedSearch:
        """How its rows are ranked."""
        ...


class PinnedSearch(Protocol):
    """Ranks the rows of one pinned version; it may use the version's indexes."""

    def nearest(
        self, asked: NearestQuery, visible: Bits | None = None, *, is_kept: bool = True
    ) -> Ranked:
        """Return the rows with the nearest vectors; rows without a distance (nulls) never are.

        Args:
            asked: The search.
            visible: The positions of the rows that are ranked; None: those that are not hidden.
            is_kept: Whether other searches will ask for this very set, or for one like it.

        Raises:
            CorruptionError: The bytes of a file are not those that were written.
        """
        ...

    def has_index(self, column: str, metric: str) -> bool:
        """Say whether a sound index of vectors has a metric."""
        ...

    def lengths(self, column: str) -> Lengths:
        """Return the least and the greatest length of vectors, hidden ones included.

        The first call reads the column.
        """
        ...

    @property
    def text_indexes(self) -> Sequence[TextIndex]:
        """The sound indexes of texts of the version."""
        ...

    def with_words(
        self, asked: WordsQuery, visible: Bits | None = None, *, is_kept: bool = True
    ) -> Ranked:
        """Return the rows whose text has some words; the arguments are those of `nearest`.

        Of the rows that the index covers, all take part in the statistics behind the scores.
        """
        ...

    def text_totals(self, index: TextIndex, visible: Bits | None = None) -> TextTotals:
        """Return how many rows and words an index has; `visible`: of these rows alone."""
        ...

    def count_with_word(self, column: str, word: str, visible: Bits | None = None) -> int:
        """Return how many rows that the index covers have a word; `visible`: of these alone."""
        ...

    def row_ids(self, positions: np.ndarray) -> np.ndarray:
        """Return Lance's numbers of the rows at some positions."""
        ...

    def places_of(self, row_ids: np.ndarray) -> np.ndarray:
        """Return the positions of the rows with some of Lance's numbers, of those there are."""
        ...

    def values_in_order(self, column: str) -> OrderedValues | None:
        """Return the values of a column in order; None: no sound index has them so."""
        ...


class ValueRun(Protocol):
    """The values of a column in some parts of a version, ascending; `rows` of them have one."""

    @property
    def rows(self) -> int: ...

    @property
    def nulls(self) -> int:
        """How many rows have none."""
        ...

    def read(self, first: int, end: int) -> tuple[pa.Array, np.ndarray]:
        """Return the values from the `first` on and the positions of their rows; -1: it is gone."""
        ...

    def find(self, value: pa.Scalar[Any], *, is_after: bool) -> int:
        """Return how many values are below one, or equal to it if `is_after`."""
        ...


class OrderedValues(NamedTuple):
    """The values of a column that runs have, and the parts that no run has."""

    runs: Sequence[ValueRun]
    uncovered: Sequence[Span]


class TextAnalyzer(Protocol):
    """What an index of texts with certain options does with texts, for texts that it lacks."""

    def tokens(self, text: str) -> Sequence[str]:
        """Return the words of a text."""
        ...

    def places(self, text: str) -> Sequence[int]:
        """Return where in the text each of its words is; those at one place are alternatives."""
        ...

    def with_phrase(self, texts: pa.Array, phrase: str) -> np.ndarray:
        """Return in which texts the words of a phrase follow each other."""
        ...

    def near(self, words: pa.Array, word: str, edits: int) -> np.ndarray:
        """Return which of some words (different, as `tokens` gives them) are like one.

        So many letters (Unicode code points) at most are more, less or changed.
        """
        ...


class TableReader(Protocol):
    """Reads of datasets, and of the files that a pin needs."""

    def analyzer(self, options: Mapping[str, IndexOption | None]) -> TextAnalyzer:
        """Return what an index of texts with these options does.

        Raises:
            RequestError: There is no such tokenizer or language.
        """
        ...

    def open(self, pin: Pin) -> PinnedTable:
        """Return the version; its manifest is verified here, its data files at their first use."""
        ...

    def files(self, pin: Pin) -> list[InventoryFile]:
        """Return every file that the pin needs, its manifest and inventories included."""
        ...

    def read_arrow(self, pin: Pin) -> pa.Table:
        """Return all rows of an Arrow file of ours (`Pin.is_arrow`), into memory.

        Raises:
            CorruptionError: The bytes are not those that were written.
        """
        ...

    def derived(self, pin: Pin) -> dict[str, bytes]:
        """Return the bytes that files of the pin must have, because its manifest says so, by path.

        Raises:
            CorruptionError: The manifest is damaged.
        """
        ...

    def check(self, pin: Pin) -> None:
        """Read every file that the pin needs; CorruptionError names the first that is damaged."""
        ...

    def release(self) -> None:
        """Close the files that reads of single rows keep open; the next such read opens its own."""
        ...

    def bound(self, shares: LanceShares) -> None:
        """Say what caches and scans may hold; before threads share it, and before it is used."""
        ...

    def cached_bytes(self) -> int:
        """Return the bytes that caches of metadata and of opened indexes hold."""
        ...


class PinPaths(Protocol):
    """Which files versions need, of any number of them at once."""

    def needed(self, pins: Iterable[Pin]) -> set[str]:
        """Return the paths of all files in `TableReader.files` of each of the pins.

        It costs a small read each, and what one version has and the one before it has not.

        Raises:
            CorruptionError: A pin cannot be read, so its files are not known.
            UnavailableError: The file system refuses to read a manifest.
        """
        ...


class TableWriter(Protocol):
    """New datasets, rows and columns."""

    def create(self, folder: str, schema: pa.Schema) -> Pin:
        """Make an empty dataset."""
        ...

    def stage(self, pin: Pin, batches: Batches, *, seqs: Seqs | None = None) -> StagedFiles:
        """Write rows, columns matched by name; nullable columns may be missing.

        `seqs` are those of all these rows.
        """
        ...

    def commit(self, pin: Pin, staged: StagedFiles) -> Pin:
        """Append what `stage` wrote, perhaps on another pin. Never twice on one line of pins."""
        ...

    def commit_first(self, pin: Pin, staged: StagedFiles) -> Pin:
        """Make version 1 of what `stage` wrote on `pin`, the version 1 that `create` made.

        Without a row it is the pin itself.
        """
        ...

    def write_arrow(self, folder: str, schema: pa.Schema, batches: Batches) -> Pin:
        """Write rows to an Arrow file of ours in a new folder: for rows that Lance refuses."""
        ...

    def append(self, pin: Pin, batches: Batches, *, seqs: Seqs | None = None) -> Pin:
        """`stage`, then `commit`; without a row the pin itself."""
        ...

    def overwrite(self, pin: Pin, schema: pa.Schema, batches: Batches) -> Pin:
        """Replace all rows and the schema."""
        ...

    def renumbered(self, pin: Pin, version: int) -> Pin:
        """Return the same version with the number `version`, which shows these rows already."""
        ...

    def alter(
        self,
        pin: Pin,
        *,
        rename: Mapping[str, str],
        drop: Sequence[str],
        add: Sequence[pa.Field],
        relax: Sequence[str] = (),
        retype: Mapping[str, pa.DataType] = NOTHING_RETYPED,
        forbid: Sequence[str] = (),
    ) -> Pin:
        """Give columns other types; let those of `relax` be null; rename, drop, then add columns.

        Each value of a column of `retype` has one in its new type (`casts`). Columns of `forbid`,
        by their names in the end, have no null and take none; of a table without a key.

        New columns are at the end, and have the initial values that their fields carry, or null.
        No part may lose its last stored column: see `bare`.
        """
        ...


class TableRewriter(Protocol):
    """Rows dropped, by writing the files that hold them anew, or by hiding them."""

    def fold(
        self,
        pin: Pin,
        *,
        drop: np.ndarray,
        batches: Batches,
        compact_below: int,
        loads: Sequence[AdoptedLoad] = (),
    ) -> Pin:
        """Hide the rows at the positions `drop` of a base and append `batches`, in one step.

        Then the files of `loads`, which `adopts`, become parts behind all others, as they are.

        `drop` includes the rows that are hidden already. Parts with too many hidden rows, or with
        fewer than `compact_below` rows, are rewritten: their other rows move, in order, behind the
        parts that stay and before the new rows.
        """
        ...

    def adopts(self, pin: Pin, load: Pin, columns: Sequence[tuple[str, str]]) -> bool:
        """Say whether the files of a load may be parts of a base; see `values.AdoptedLoad`."""
        ...

    def outworn(
        self, pin: Pin, drop: np.ndarray, *, compact_below: int, has_more: bool
    ) -> list[Span]:
        """Return the spans of the parts that `fold` would rewrite; `has_more`: with new rows."""
        ...

    def fold_staged(
        self,
        pin: Pin,
        gone: Sequence[Span],
        staged: StagedFiles,
        drop: np.ndarray,
        loads: Sequence[AdoptedLoad] = (),
    ) -> Pin:
        """Do a `fold` whose writing was shared out.

        `gone` are the spans of the parts that are `outworn`. What is left of them, and the new
        rows, were staged upon this pin.
        """
        ...

    def rewrite(
        self,
        pin: Pin,
        *,
        drop: np.ndarray,
        batches: Batches,
        seqs: Seqs | None = None,
        is_numbered: bool = False,
    ) -> Pin:
        """Drop the rows at the positions `drop` and append `batches`, in one step.

        Only files that hold a dropped row are rewritten; their other rows move, in order, behind
        the files that stay and before the new rows; where every file says its seqs, files stand
        in the order of the lowest. With `is_numbered` the version's number is the next one, and
        its transaction tells other clients all of it.
        """
        ...


class TableCompactor(Protocol):
    """Parts rewritten as fewer files: planned on one pin, put on a later one."""

    def compact(self, pin: Pin, within: Span) -> Compacted:
        """Rewrite the rows of the parts in [first, end), in order, as few files.

        Raises:
            CorruptionError: The bytes of an input are not those that were written.
        """
        ...

    def untouched(self, pin: Pin, planned: Pin, within: Sequence[Span]) -> list[bool]:
        """Return for each [first, end) of `planned` whether `pin` has those parts unchanged."""
        ...

    def swap(self, pin: Pin, compacted: Sequence[Compacted], *, keeps_indexes: bool = False) -> Pin:
        """Replace the inputs of `compacted` by its results; the rows stay the same.

        A segment of values that covers some of the inputs of one result, but not all, goes. Without
        `compacted` the pin is returned as it is.

        Raises:
            InputsMovedError: `pin` lacks an input, or has it in another form; or a segment would go
                and `keeps_indexes`. Nothing was done.
        """
        ...

    def bare(self, pin: Pin, drop: Sequence[str]) -> list[Span]:
        """Return the spans of the parts whose files have only columns of `drop`.

        Columns that were added after a part was written are in none of its files. If all others are
        dropped, the part would lose its rows: `compact` rewrites it first.
        """
        ...


class TableIndexer(Protocol):
    """Indexes: built on one pin, put on a later one."""

    def build(self, pin: Pin, spec: IndexSpec, within: Sequence[Span]) -> BuiltSegment:
        """Build a segment of an index over the parts of the pin with the spans `within`.

        Raises:
            CorruptionError: The bytes of an input are not those that were written.
        """
        ...

    def put(self, pin: Pin, built: Sequence[BuiltSegment], gone: Sequence[str] = ()) -> Pin:
        """Add segments, and remove those with the ids `gone`; the rows stay the same.

        A segment then covers those of its inputs that `pin` has as they were.

        Raises:
            InputsMovedError: `pin` has no input of one of them any more, or another segment of the
                same index covers one already; nothing was done.
        """
        ...


class PublicNames(Protocol):
    """The names by which programs that know nothing of siltstone find versions and files."""

    def show(self, folder: str, pins: Iterable[Pin], *, is_whole: bool = False) -> None:
        """Show pins to readers and writers of the plain path, too; removes none. Idempotent.

        `is_whole`: they are all pins of the table, the newest first; the next call takes only the
        newer ones from `pins`.
        """
        ...

    def promote(self, pins: Sequence[Pin], newest: Pin) -> None:
        """Show `pins` (with `newest`) and no other pin to readers of the plain path. Idempotent."""
        ...

    def set_aside(self, folder: str, above: int) -> list[tuple[int, str]]:
        """Remove the public names of external versions above `above`.

        The versions are kept, see `ExternalTables.versions`. Return their numbers, highest first,
        and paths.
        """
        ...

    def unite(self, folder: str) -> None:
        """Give every file of a dataset its public name and its kept name."""
        ...

    def unite_all(self) -> None:
        """`unite` all datasets of the store that other programs can open."""
        ...

    def lacking(self, paths: Iterable[str]) -> tuple[list[str], list[str]]:
        """Return the files without a kept name, and those without a public name.

        A clean-up by another program may delete the first; one deleted a name of the second.
        """
        ...


class ExternalTables(Protocol):
    """Versions that other Lance clients made."""

    def import_version(self, folder: str, pin: Pin | None, given: StagedVersion) -> ImportedVersion:
        """Make a pin of a version that another Lance client staged on `pin` (None: the first one).

        If the version is not committed, unused files are left.

        Raises:
            RequestError: It is not a complete version in the table's own folder.
        """
        ...

    def versions(self, folder: str) -> list[ExternalVersion]:
        """Return the external versions, lowest first."""
        ...

    def added(self, folder: str, external: ExternalVersion) -> Iterator[pa.RecordBatch]:
        """Yield the rows that an external version added.

        Raises:
            CorruptionError: The rows cannot be read.
        """
        ...


class ClientViews(Protocol):
    """What is written for other Lance clients alone; no pin names it."""

    def overlaid(self, pin: Pin, *, drop: np.ndarray, batches: Batches, version: int) -> Ephemeral:
        """Create a version with rows over a pin, for other Lance clients; rewrite no file of it.

        Without the rows at the positions `drop`, with `batches` behind the others. It has the
        number `version`, which no pin has and no other overlay of the dataset ever had.
        """
        ...
