"""View: all tables and rows, as one immutable value; a snapshot is a view and a seq.

    State (view, visible)      replaced in one assignment: by the leader when it reveals, and under
                               the same lock when maintenance swaps the view
    View                       one manifest record (leased), the catalog, every keyed table's levels
    Levels                     of one incarnation: history not merged, sealed and active memtables

Views differ by the work of seal, flush, merge and DDL, which change no result at a given seq.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace

import msgspec

from siltstone.engine.catalog import catalog as catalogs
from siltstone.engine.catalog.commit_log import CommitLog
from siltstone.engine.catalog.table_schema import TableSchema, table_schema_of
from siltstone.engine.columns.images import Images
from siltstone.engine.levels.attached import Attached
from siltstone.engine.levels.base import Base
from siltstone.engine.levels.history_run import HistoryRun
from siltstone.engine.levels.memtable import Memtable
from siltstone.engine.levels.sources import Source
from siltstone.engine.levels.visibility import VisibilityCache
from siltstone.errors import ClosedError
from siltstone.formats.log import group
from siltstone.formats.manifest import Catalog, KeyedStorage, Pin, Record
from siltstone.storage.tables.keys.key_places import PinnedKeys
from siltstone.storage.tables.tables import PinnedTable


@dataclass(frozen=True, slots=True, eq=False)
class Levels:
    """One incarnation of a keyed table: each row version is in exactly one level.

    The last `pending` of `sealed` belong to the active generation: an attach pushed them there.
    `kept` stays with the base from view to view: the results of readers, for the next reader.
    `images` stay with the incarnation: what lies where does not matter to them.
    """

    storage: KeyedStorage
    flushed: tuple[Source, ...]
    sealed: tuple[Source, ...]
    active: Memtable
    base: Base | None
    pending: int = 0
    kept: VisibilityCache = field(default_factory=VisibilityCache)
    images: Images = field(default_factory=Images)

    @property
    def unsealed(self) -> tuple[Source, ...]:
        """Its levels of the active generation, oldest first."""
        own = self.sealed[len(self.sealed) - self.pending :]
        return (*own, self.active) if self.active.rows else own

    @property
    def sources(self) -> tuple[Source, ...]:
        """The levels above base, oldest first."""
        return (*self.flushed, *self.sealed, self.active)


class GivenUp(Mapping[int, Levels]):
    """The levels of a closed store: readers that still use them get an error.

    With empty levels, readers would miss every row that only the log has.
    """

    def __init__(self, why: str) -> None:
        self._why = why

    def __getitem__(self, number: int) -> Levels:
        raise ClosedError(self._why)

    def __iter__(self) -> Iterator[int]:
        raise ClosedError(self._why)

    def __len__(self) -> int:
        raise ClosedError(self._why)


class Generation(msgspec.Struct, frozen=True, eq=False):
    """A sealed set of memtables: exactly the frames of the segments below `segment_end`."""

    number: int
    last_seq: int
    last_time_us: int
    segment_end: int
    catalog: Catalog
    log: CommitLog
    sources: Mapping[int, tuple[Source, ...]]


@dataclass(frozen=True, slots=True, eq=False)
class View:
    """See the module. `log` are the commits of the active generation."""

    record: Record
    lease: object
    catalog: Catalog
    levels: Mapping[int, Levels]
    sealed: tuple[Generation, ...]
    log: CommitLog
    generation: int
    memo: dict[object, object] = field(default_factory=dict)

    def changed(self, **changes: object) -> View:
        """Return the view with some fields changed, and with an empty cache."""
        return replace(self, memo={}, **changes)  # type: ignore[arg-type]


class State(msgspec.Struct, frozen=True, eq=False):
    """The value that readers take in one reference: a snapshot sees `view` up to `visible`."""

    view: View
    visible: int


def storage_folder(name: str, incarnation: int) -> str:
    """Return the folder of an incarnation's datasets; the name is for users, the id decides."""
    return f"tables/{name}-{incarnation}"


def new_levels(catalog: Catalog, incarnation: int, seq: int) -> Levels | None:
    """Return the empty levels of a keyed incarnation that begins at `seq`; None if plain."""
    table = catalogs.owner_of(catalog, incarnation)
    schema = catalogs.schema_of(table)
    if not schema.key:
        return None
    folder = storage_folder(catalogs.name_of(table, seq), incarnation)
    storage = KeyedStorage(incarnation=incarnation, folder=folder, history_from=0)
    return Levels(storage, (), (), Memtable(table_schema_of(schema)), None)


def with_attached(
    view: View,
    entry: group.Attach,
    seq: int,
    opened: PinnedTable,
    table_schema: TableSchema,
    keys: Callable[[Pin], PinnedKeys],
) -> View:
    """Return the view after a bulk commit: its run lies between two active memtables."""
    old = view.levels[entry.incarnation]

    def attached() -> Attached:
        return Attached(opened, seq, entry.op, lambda: keys(entry.pin))

    run = HistoryRun(attached, table_schema.schema, seq - 1, seq)
    added: tuple[Source, ...] = (old.active, run) if old.active.rows else (run,)
    changed = replace(
        old,
        sealed=(*old.sealed, *added),
        pending=old.pending + len(added),
        active=Memtable(old.active.contents.tail.table_schema),
    )
    return view.changed(levels={**view.levels, entry.incarnation: changed})


def is_empty(levels: Levels) -> bool:
    """Return whether the incarnation has no row version at all."""
    storage = levels.storage
    return (
        storage.base is None
        and storage.history is None
        and not storage.loads
        and not levels.flushed
        and not levels.sealed
        and not levels.active.rows
    )


def with_entry(view: View, entry: group.Entry, seq: int, time_us: int) -> View:
    """Return the view after the catalog change `entry` of the commit `seq`."""
    catalog = catalogs.apply(view.catalog, entry, seq, time_us)
    levels = view.levels
    if isinstance(entry, group.Create | group.Truncate):
        incarnation = entry.table if isinstance(entry, group.Create) else entry.incarnation
        added = new_levels(catalog, incarnation, seq)
        if added is not None:
            levels = {**levels, incarnation: added}
    return view.changed(catalog=catalog, levels=levels)


def with_token(view: View, token: group.Token, seq: int, rows: int) -> View:
    """Return the view after a commit that carried `token`."""
    return view.changed(catalog=catalogs.apply_token(view.catalog, token, seq, rows))


def with_load(view: View, entry: group.Advance, seq: int, base: Base) -> View:
    """Return the view after a bulk load straight to the base of a keyed table without rows."""
    old = view.levels[entry.incarnation]
    schema = catalogs.schema_of(catalogs.owner_of(view.catalog, entry.incarnation), seq)
    storage = msgspec.structs.replace(
        old.storage, base=entry.pin, base_schema=schema.id, merged_seq=seq
    )
    changed = replace(old, storage=storage, base=base)
    return view.changed(levels={**view.levels, entry.incarnation: changed})
