r"""Manifest record: the immutable value that names all live files of a store.

    line 1   "siltstone-manifest <format> <check>\n"
    body     JSON, UTF-8: the fields of `Record`

See `formats.checked_json` and `formats.store_format`.

The records 1, 2, 3, ... form a chain; each is complete, none needs its predecessor. A record grows
with the number of tables, not with rows, files or history: files live in inventories.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from siltstone.formats.checked_json import CheckedJson
from siltstone.units import require

PRIVATE_DIRECTORY = "_siltstone"
PHYSICAL = "physical.manifest"  # the suffix is Lance's: another one is a manifest not committed


class KeyRun(msgspec.Struct, frozen=True, omit_defaults=True):
    """A run of a base: `xxh3` (64 bits, hex) is its foot's; see `key_run`.

    `is_ordered`: it has the keys themselves, in their order (`order.ordered_run`), and no codes.
    """

    path: str
    size: int
    xxh3: str
    entries: int
    is_ordered: bool = False


class Pin(msgspec.Struct, frozen=True, omit_defaults=True):
    """One version of one Lance dataset, by the private manifest that defines it.

    `path` is relative to the store's root; `size` (bytes) and `xxh3` (64 bits, hex) are the
    manifest file's; `inventory` names the inventory of all data files the version needs.

    A base has `rows` live rows; `hidden` more are in its files. Its manifest has them in
    deletion files. A second one, at `physical_path`, has the same files without deletion files.

    The key runs find rows of a base by key, oldest first, and ordered runs give them in the order
    of their keys where codes do not: each kind covers parts by itself. Parts that no run covers are
    found in other ways.

    `version` 0: no Lance dataset but one Arrow file, the file at `path` (see `Fallback`).
    """

    version: int
    path: str
    size: int
    xxh3: str
    rows: int
    inventory: str
    hidden: int = 0
    runs: tuple[KeyRun, ...] = ()

    @property
    def is_arrow(self) -> bool:
        """Whether it is an Arrow file of ours, which Lance cannot open."""
        return self.version == 0

    @property
    def physical_path(self) -> str:
        """The path of the manifest by which our readers open it."""
        return physical_of(self.path) if self.hidden else self.path

    @property
    def folder(self) -> str:
        """The dataset's folder: `path` is `<folder>/_siltstone/<transaction>/<manifest>`."""
        return self.path.split(f"/{PRIVATE_DIRECTORY}/")[0]


def physical_of(path: str) -> str:
    """Return the path of the manifest without deletion files, by that of the one with them."""
    return f"{path.rpartition('/')[0]}/{PHYSICAL}"


Metadata = tuple[tuple[str, str], ...]
"""Texts by name, in the order of the names; see `types.metadata`."""


class Column(msgspec.Struct, frozen=True, omit_defaults=True):
    """A column: its id never changes and is never reused, its name may; `type`: see `schema`.

    `default` and `initial` are texts of values: see `types.defaults`.
    """

    id: int
    name: str
    type: object
    nullable: bool = True
    metadata: Metadata = ()
    default: str | None = None
    initial: str | None = None

    def __post_init__(self) -> None:
        """Freeze a nested type: a schema is a key of caches."""
        if isinstance(self.type, list):
            msgspec.structs.force_setattr(self, "type", _frozen(self.type))


def _frozen(stored: object) -> object:
    return tuple(map(_frozen, stored)) if isinstance(stored, list | tuple) else stored


class Schema(msgspec.Struct, frozen=True, omit_defaults=True):
    """The columns of a table, in order; `key` holds column ids, empty for a plain table.

    `secret` (64 bits) keys the hashes of keys (`keys`), in all schemas of a table the same; 0 where
    none are hashed.
    """

    id: int
    columns: tuple[Column, ...]
    key: tuple[int, ...] = ()
    metadata: Metadata = ()
    secret: int = 0


class Version(msgspec.Struct, frozen=True, omit_defaults=True):
    """The version of a plain table from `seq` on (keyed table: a bulk load straight to base).

    The store no longer lists a hidden version to Lance clients; snapshots at its seqs still read
    it. `is_same_rows` marks the version of an optimize: it has the rows of the version below it.
    """

    seq: int
    pin: Pin
    is_hidden: bool = False
    is_same_rows: bool = False


class Incarnation(msgspec.Struct, frozen=True):
    """The storage of a table from `seq` on; a truncate starts a new incarnation."""

    seq: int
    id: int
    versions: tuple[Version, ...] = ()


class Named(msgspec.Struct, frozen=True):
    seq: int
    name: str


class Shaped(msgspec.Struct, frozen=True):
    seq: int
    schema: Schema


class TableDefinition(msgspec.Struct, frozen=True):
    """A table with its whole retained past, so that every kept seq has its own schema."""

    id: int
    created: int
    names: tuple[Named, ...]
    schemas: tuple[Shaped, ...]
    incarnations: tuple[Incarnation, ...]
    dropped: int | None = None
    next_column: int = 1


class Tag(msgspec.Struct, frozen=True, omit_defaults=True):
    """A name of a seq, set at `time_us`; it lasts for some seconds from then (0: for ever)."""

    name: str
    seq: int
    time_us: int
    lasts_s: int = 0


class TokenApp(msgspec.Struct, frozen=True, omit_defaults=True):
    """The highest batch that the token app `name` applied, and the last claim of the app.

    `holder` claimed it by name ("": none); `superseded` are the earlier holders, oldest first.
    Commits up to the seq `since` are not of this app: one of its name may have been forgotten.
    """

    name: str
    batch: int = -1
    seq: int = 0
    claim: int = 0
    rows: int = 0
    holder: str = ""
    superseded: tuple[str, ...] = ()
    since: int = 0

    @property
    def is_known(self) -> bool:
        """Whether it has applied a batch, or was claimed."""
        return self.batch >= 0 or self.claim > 0


class ForgottenApps(msgspec.Struct, frozen=True):
    """What is left of forgotten token apps: the seq of the last such commit, the highest claim."""

    seq: int = 0
    claim: int = 0


class NamespaceDefinition(msgspec.Struct, frozen=True, omit_defaults=True):
    """A namespace that was created at the seq `created`; its levels are separated by dots.

    Other namespaces exist because a table is in them; they have no definition.
    """

    name: str
    created: int
    properties: tuple[tuple[str, str], ...] = ()
    dropped: int | None = None

    def is_alive(self, seq: int = 1 << 62) -> bool:
        """Return whether it exists at `seq` (default: now)."""
        return self.created <= seq and (self.dropped is None or self.dropped > seq)


class Catalog(msgspec.Struct, frozen=True, omit_defaults=True):
    """All definitions from frames, as of one seq, and the next free ids.

    `namespaces` are those that were created, with those that were dropped since; `forgotten` is
    what is left of the token apps that were forgotten.
    """

    tables: tuple[TableDefinition, ...] = ()
    tags: tuple[Tag, ...] = ()
    apps: tuple[TokenApp, ...] = ()
    next_id: int = 1
    namespaces: tuple[NamespaceDefinition, ...] = ()
    forgotten: ForgottenApps = ForgottenApps()


class Load(msgspec.Struct, frozen=True):
    """A part of history that was not copied into it: the upserts of the bulk commit `seq`.

    Its dataset names columns by id; `seq` is not in it.
    """

    seq: int
    pin: Pin


class Fallback(msgspec.Struct, frozen=True):
    """Flushed row versions that Lance refused, and why; `first_seq` <= _seq <= `last_seq`.

    They are in an Arrow file of ours, with the columns of history, in seq order.
    """

    first_seq: int
    last_seq: int
    pin: Pin
    reason: str


class KeyedStorage(msgspec.Struct, frozen=True, omit_defaults=True):
    """The Lance datasets of one incarnation of a keyed table.

    `base` is the fold of history up to exactly `merged_seq`, written with schema `base_schema`;
    `history`, the `loads` (by seq, ascending) and the `fallbacks` (likewise) together hold every
    row version with `history_from < _seq <= the record's flushed_seq`. History has nothing from the
    first seq of the fallbacks on, and a merge folds nothing from there on.
    """

    incarnation: int
    folder: str
    base: Pin | None = None
    base_schema: int = 0
    merged_seq: int = 0
    history: Pin | None = None
    history_columns: tuple[int, ...] = ()
    history_from: int = 0
    loads: tuple[Load, ...] = ()
    fallbacks: tuple[Fallback, ...] = ()

    def with_loads(self, loads: Iterable[Load]) -> KeyedStorage:
        """Return this storage with other loads, which have different seqs."""
        found = tuple(sorted(loads, key=lambda load: load.seq))
        return msgspec.structs.replace(self, loads=found)

    def with_fallbacks(self, fallbacks: Iterable[Fallback]) -> KeyedStorage:
        """Return this storage with other fallbacks, oldest first."""
        return msgspec.structs.replace(self, fallbacks=tuple(fallbacks))

    def foldable_seq(self, flushed_seq: int) -> int:
        """Return the highest seq up to which a merge can fold, of a record's `flushed_seq`."""
        first = self.fallbacks[0].first_seq if self.fallbacks else flushed_seq + 1
        return min(flushed_seq, first - 1)

    def above(self, seq: int) -> KeyedStorage:
        """Return this storage with the history above `seq` alone; the files of it stay."""
        loads = self.with_loads(load for load in self.loads if load.seq > seq)
        left = loads.with_fallbacks(each for each in self.fallbacks if each.last_seq > seq)
        return msgspec.structs.replace(left, history_from=seq)

    def with_base_of(self, other: KeyedStorage) -> KeyedStorage:
        """Return this storage with the base of another one."""
        base, schema, seq = other.base, other.base_schema, other.merged_seq
        return msgspec.structs.replace(self, base=base, base_schema=schema, merged_seq=seq)


IndexOption = str | int | bool


class Index(msgspec.Struct, frozen=True, omit_defaults=True):
    """A declared index on a column of a keyed table; table and column by their ids.

    `declared` is the number of the first record with the index. It distinguishes two indexes that
    had the same name one after the other. `kind` is "btree", "bitmap", "fts" or "vector". `recall`
    is that of a vector index when half of base or more was built, from 0 to 1; None: not measured.
    """

    table: int
    name: str
    column: int
    kind: str
    declared: int
    options: tuple[tuple[str, IndexOption], ...] = ()
    recall: float | None = None


class Record(msgspec.Struct, frozen=True, omit_defaults=True):
    """One record of the chain. Seqs and counts are integers, times microseconds since 1970 UTC.

    Commits at or below `flushed_seq` are in history, base or plain versions; those above it are in
    WAL segments from `wal_floor` on. `writer` is the publisher's token, unique to the publish.

    Vacuum may delete unpublished work that began before `gc_horizon_us`. Some of the `indexes` may
    be on tables or columns that no longer exist. Where older records `may_be_thinned`, FLOOR says
    which.
    """

    store_id: str
    number: int
    epoch: int
    writer: str
    time_us: int
    last_seq: int = 0
    flushed_seq: int = 0
    last_time_us: int = 0
    wal_floor: int = 1
    catalog: Catalog = Catalog()
    keyed: tuple[KeyedStorage, ...] = ()
    commits: Pin | None = None
    oldest_seq: int = 0
    gc_horizon_us: int = 0
    indexes: tuple[Index, ...] = ()
    may_be_thinned: bool = False


def pins_of(record: Record) -> Iterator[Pin]:
    """Yield every pin that a record names."""
    for storage in record.keyed:
        yield from (pin for pin in (storage.base, storage.history) if pin is not None)
        yield from (part.pin for part in (*storage.loads, *storage.fallbacks))
    if record.commits is not None:
        yield record.commits
    yield from versions_of(record.catalog)


def versions_of(catalog: Catalog) -> Iterator[Pin]:
    """Yield every pin of a plain version, or of a bulk load, that a catalog names."""
    for table in catalog.tables:
        for step in table.incarnations:
            yield from (version.pin for version in step.versions)


_FILE = CheckedJson(
    b"siltstone-manifest", msgspec.json.Decoder(Record),
    file="manifest record", whole="record", value="record",
)  # fmt: skip


def decode(data: bytes, path: str) -> Record:
    """Return the record in the bytes `data` of the file `path`.

    Raises:
        UnsupportedFormatError: A siltstone of another format wrote it.
        CorruptionError: The bytes are not those that siltstone wrote.
    """
    return _FILE.decode(data, path)


def encode(record: Record) -> bytes:
    """Return the bytes of a record's file."""
    require(
        record.flushed_seq <= record.last_seq,
        f"flushed {record.flushed_seq} > last {record.last_seq}",
    )
    return _FILE.encode(record)
