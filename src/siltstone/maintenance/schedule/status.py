"""Status: the state of an open store at one moment, as one value."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING

from siltstone.choices import JobState
from siltstone.engine.catalog import catalog as catalogs
from siltstone.engine.levels.history_run import HistoryRun
from siltstone.engine.levels.memtable import Memtable
from siltstone.engine.levels.sources import Source, vector_bytes
from siltstone.engine.read.view import State, View
from siltstone.errors import CorruptionError
from siltstone.formats.manifest import Pin
from siltstone.maintenance.index.index_plan import IndexStatus, declared_on, statuses
from siltstone.maintenance.schedule.mirror_status import MirrorStatus, mirrors
from siltstone.maintenance.schedule.overdue import Owed, due_steps
from siltstone.maintenance.schedule.pace import Backpressure
from siltstone.storage.cache.part_cache import CacheUse, PartCache
from siltstone.storage.files.files import Files
from siltstone.storage.site import Site
from siltstone.storage.tables.jobs import Job, Jobs
from siltstone.storage.tables.tables import TableReader
from siltstone.storage.wal.segments import parse_name
from siltstone.text import shown

if TYPE_CHECKING:
    from siltstone.maintenance.backup.following import Following


@dataclass(frozen=True, slots=True)
class TableStatus:
    """One table: rows and files of its base (or newest version), and rows not merged into it.

    `rows` are those that a snapshot has; `siltstone status` counts them, others leave None.
    `nbytes` are those of the files of base (or the newest version) and history.
    `indexes` show the rows of base that each index lacks. `refused` says why Lance does not take
    the newest flushed rows, which wait in `refused_bytes` of files; None: it took them.
    """

    name: str
    is_keyed: bool
    base_rows: int
    unmerged_rows: int
    merged_seq: int
    base_parts: int
    history_parts: int
    indexes: tuple[IndexStatus, ...] = ()
    refused: str | None = None
    refused_bytes: int = 0
    rows: int | None = None
    nbytes: int = 0

    def __str__(self) -> str:
        counted = "" if self.rows is None else f"{self.rows} rows; "
        text = (
            f"{self.name}: {counted}base has {self.base_rows} rows in {self.base_parts} parts,"
            f" {self.unmerged_rows} row versions not merged,"
            f" history in {self.history_parts} parts, {self.nbytes} bytes"
        )
        if self.indexes:
            text = f"{text}; indexes {', '.join(map(str, self.indexes))}"
        if self.refused is not None:
            text = f"{text}; Lance refuses rows: {self.refused} ({self.refused_bytes} bytes wait)"
        return text


@dataclass(frozen=True, slots=True)
class JobStatus:
    """A job of maintenance: its `state` is "running", "dead" or "finished"; times are us of 1970.

    `tasks` counts its finished tasks; a record that a crash left empty has no kind.
    """

    id: str
    state: JobState
    kind: str
    tables: tuple[str, ...]
    pid: int
    host: str
    started_us: int
    ended_us: int | None
    tasks: int

    def __str__(self) -> str:
        where = f"process {self.pid} on {self.host}"
        return f"{self.state} {self.kind or '?'} of {', '.join(self.tables) or '?'}, {where}"


@dataclass(frozen=True, slots=True)
class Memory:
    """The bytes that count against `bytes_max`, by use."""

    active: int
    sealed: int
    resident: int
    history_indexes: int
    base_indexes: int
    overlays: int
    images: int
    vectors: int
    recent_writes: int
    lance_caches: int
    bytes_max: int

    @property
    def total(self) -> int:
        """The sum of all parts."""
        return sum(getattr(self, f.name) for f in fields(self) if f.name != "bytes_max")


@dataclass(frozen=True, slots=True)
class Status:
    """The state of a store. Printable; `to_dict` gives plain values.

    Sequence numbers, sizes in bytes, numbers of rows, and what failed last.

    Examples:
        >>> db.status().to_dict()["visible_seq"] == db.seq
        True
    """

    path: str
    epoch: int
    record: int
    visible_seq: int
    durable_seq: int
    flushed_seq: int
    oldest_seq: int
    wal_segments: int
    wal_bytes: int
    active_rows: int
    sealed_rows: int
    sealed_generations: int
    tables: tuple[TableStatus, ...]
    jobs: tuple[JobStatus, ...]
    memory: Memory
    open_transactions: int
    tags: Mapping[str, int]
    leases: int
    commits_since_open: int
    is_read_only: bool
    backpressure: Backpressure
    failure: str | None
    unshipped: int | None
    """Commits that the bucket of the mirror lacks; None: none was to be shipped."""
    shipping: str | None
    """Why none is shipped now; None: they are."""
    owed: tuple[str, ...]
    """What is due, and did not fit into a close: "merge", "optimize", "vacuum", "mirror"."""
    mirrors: tuple[MirrorStatus, ...]
    """What buckets have of it."""
    cache: CacheUse
    """The rows in files of the user; all zeros where there are none."""

    def to_dict(self) -> dict[str, object]:
        """Return the status as plain values."""
        return {
            **asdict(self),
            "tags": dict(self.tags),
            "memory": {**asdict(self.memory), "total": self.memory.total},
        }

    def _repr_html_(self) -> str:
        """Return the facts and the tables as HTML, for a notebook."""
        facts = [(f.name, getattr(self, f.name)) for f in fields(self)]
        plain = [each for each in facts if isinstance(each[1], int | str)]
        plain += [("memory", f"{self.memory.total} of {self.memory.bytes_max} bytes")]
        more = (shown.listed(each) for each in (self.tables, self.jobs) if each)
        return shown.as_html(["fact", "value"], plain, ", ".join(self.tags)) + "".join(more)

    def __str__(self) -> str:
        memory = ", ".join(f"{k} {v}" for k, v in asdict(self.memory).items() if v)
        kind = "read-only" if self.is_read_only else f"epoch {self.epoch}"
        seqs = (
            f"visible {self.visible_seq}, durable {self.durable_seq},"
            f" flushed {self.flushed_seq}, oldest {self.oldest_seq}"
        )
        memtables = (
            f"{self.active_rows} rows, {self.sealed_rows} sealed"
            f" in {self.sealed_generations} generations"
        )
        held = (
            f"{self.open_transactions} open transactions, {self.leases} leases,"
            f" {len(self.tags)} tags, {self.commits_since_open} commits since open"
        )
        lines = [
            f"{self.path}: {kind}, record {self.record}",
            f"  seqs: {seqs}",
            f"  log: {self.wal_segments} segments, {self.wal_bytes} bytes",
            f"  memtables: {memtables}",
            f"  memory: {self.memory.total} bytes ({memory})",
            f"  cache: {_of_cache(self.cache)}",
            f"  writers: {self.backpressure}",
            f"  {held}",
            *(f"  {table}" for table in self.tables),
            *(f"  job: {job}" for job in self.jobs),
            *(f"  mirror at {each}" for each in self.mirrors),
        ]
        if self.owed:
            what = ", ".join(self.owed)
            lines.append(f"  owed: {what} did not fit into a close; run `siltstone maintain`")
        if self.unshipped is not None:
            why = "" if self.shipping is None else f": {self.shipping}"
            lines.append(f"  unshipped: {self.unshipped} commits{why}")
        if self.failure is not None:
            lines.append(f"  last failure: {self.failure}")
        return "\n".join(lines)


def _of_cache(use: CacheUse) -> str:
    return (
        f"{use.files} files, {use.bytes} bytes; of all stores {use.all_bytes} of {use.bytes_max};"
        f" {use.hits} hits, {use.misses} misses"
    )


@dataclass(frozen=True, slots=True)
class Counts:
    """Numbers of the owner's parts that are not in the state; zeros in a read-only process."""

    durable_seq: int
    first_seq: int
    open_transactions: int = 0
    recent_bytes: int = 0
    backpressure: Backpressure = field(default_factory=Backpressure)
    failure: str | None = None
    is_read_only: bool = False
    shipped_seq: int | None = None
    shipping: str | None = None
    mirror: Following | None = None


def status_of(
    site: Site, state: State, counts: Counts, *, memory_bytes_max: int, parts: PartCache | None
) -> Status:
    """Return the status of a store in `state`, with its running and dead jobs."""
    view, record = state.view, state.view.record
    sizes = _segments(site.files, site.root / "wal")
    levels = view.levels.values()
    mirrored = mirrors(site, record, state.visible, counts.mirror)
    return Status(
        path=str(site.root),
        epoch=record.epoch,
        record=record.number,
        visible_seq=state.visible,
        durable_seq=counts.durable_seq,
        flushed_seq=record.flushed_seq,
        oldest_seq=record.oldest_seq,
        wal_segments=len(sizes),
        wal_bytes=sum(sizes),
        active_rows=sum(found.active.rows for found in levels),
        sealed_rows=sum(_rows(s) for found in levels for s in found.sealed),
        sealed_generations=len(view.sealed),
        tables=tuple(_tables(view, site.tables.reader)),
        jobs=tuple(_seen(site.jobs)),
        memory=memory_of(
            view, counts.recent_bytes, site.tables.reader.cached_bytes(), memory_bytes_max
        ),
        open_transactions=counts.open_transactions,
        tags=catalogs.store_tags(view.catalog),
        leases=len(_leases(view)),
        commits_since_open=state.visible - counts.first_seq,
        is_read_only=counts.is_read_only,
        backpressure=counts.backpressure,
        failure=counts.failure,
        unshipped=(
            None if counts.shipped_seq is None else max(0, state.visible - counts.shipped_seq)
        ),
        shipping=counts.shipping,
        owed=(
            *_owed(site, view, memory_bytes_max),
            *(["mirror"] if any(each.is_owed and each.behind for each in mirrored) else []),
        ),
        mirrors=mirrored,
        cache=CacheUse() if parts is None else parts.use(),
    )


def _owed(site: Site, view: View, memory_bytes_max: int) -> tuple[str, ...]:
    """Return the steps that did not fit into a close, and that were not done since."""
    owed = Owed(site).read()
    due = due_steps(view, site, memory_bytes_max) if owed else {}
    return tuple(step for step in due if step in owed)


def memory_of(view: View, recent_bytes: int, lance_bytes: int, bytes_max: int) -> Memory:
    """Return the memory use of the parts of a view, and of the rest."""
    levels = list(view.levels.values())
    flushed = [source for found in levels for source in found.flushed]
    sealed = [source for found in levels for source in found.sealed]
    runs = [source for source in (*flushed, *sealed) if isinstance(source, HistoryRun)]
    return Memory(
        active=sum(found.active.nbytes for found in levels),
        sealed=sum(source.nbytes for source in sealed if isinstance(source, Memtable)),
        resident=sum(source.nbytes for source in flushed if isinstance(source, Memtable)),
        history_indexes=sum(run.nbytes for run in runs),
        base_indexes=sum(found.base.nbytes for found in levels if found.base is not None),
        overlays=sum(found.kept.nbytes for found in levels),
        images=sum(found.images.nbytes for found in levels),
        vectors=sum(vector_bytes(source) for found in levels for source in found.sources),
        recent_writes=recent_bytes,
        lance_caches=lance_bytes,
        bytes_max=bytes_max,
    )


def jobs_of(jobs: Jobs) -> list[JobStatus]:
    """Return the running, the dead and the last finished jobs; oldest first."""
    ended = (_job(one.job, "finished", one.ended_us, 0) for one in jobs.finished())
    return sorted([*ended, *_seen(jobs)], key=lambda job: job.started_us)


def _seen(jobs: Jobs) -> Iterator[JobStatus]:
    for seen in jobs.list():
        state: JobState = "running" if seen.is_running else "dead"
        tasks = len(seen.finished)
        if seen.job is None:
            yield JobStatus(seen.id, state, "", (), 0, "", seen.changed_us, None, tasks)
        else:
            yield _job(seen.job, state, None, tasks)


def _job(job: Job, state: JobState, ended_us: int | None, tasks: int) -> JobStatus:
    about = (job.kind, job.tables, job.pid, job.host)
    return JobStatus(job.id, state, *about, job.started_us, ended_us, tasks)


def _tables(view: View, tables: TableReader) -> Iterator[TableStatus]:
    for name in catalogs.names(view.catalog):
        table = catalogs.find(view.catalog, name)
        incarnation = catalogs.incarnation_of(table)
        levels = view.levels.get(incarnation.id)
        if levels is not None:
            stored, unmerged = levels.storage, sum(_rows(source) for source in levels.sources)
            base = 0 if stored.base is None else stored.base.rows
            shape, history = _shape(tables, stored.base), _shape(tables, stored.history)
            has_indexes = shape.has_segments or declared_on(view.record, table.id)
            indexes = tuple(statuses(view.record, table, stored, tables)) if has_indexes else ()
            yield TableStatus(
                *(name, True, base, unmerged, stored.merged_seq, shape.parts, history.parts),
                indexes,
                stored.fallbacks[-1].reason if stored.fallbacks else None,
                refused_bytes=sum(each.pin.size for each in stored.fallbacks),
                nbytes=shape.nbytes + history.nbytes,
            )
            continue
        version = catalogs.version_of(incarnation)
        rows, seq = (0, 0) if version is None else (version.pin.rows, version.seq)
        shape = _shape(tables, None if version is None else version.pin)
        yield TableStatus(name, False, rows, 0, seq, shape.parts, 0, nbytes=shape.nbytes)


_SHAPES_MAX = 16_384


@dataclass(frozen=True, slots=True)
class _VersionShape:
    """How many parts a version has, whether it has segments of indexes, the bytes of its files."""

    parts: int = 0
    has_segments: bool = False
    nbytes: int = 0


_NO_SHAPE = _VersionShape()
_shapes: dict[Pin, _VersionShape] = {}


def _shape(tables: TableReader, pin: Pin | None) -> _VersionShape:
    """Return the shape of a version.

    It never changes, and only some versions are kept open: the others Lance would open each time.
    """
    if pin is None:
        return _NO_SHAPE
    found = _shapes.get(pin)
    if found is None:
        opened = tables.open(pin)
        if len(_shapes) >= _SHAPES_MAX:
            _shapes.clear()
        files = (file for file in tables.files(pin) if file.path.startswith(f"{pin.folder}/"))
        nbytes = sum(file.size for file in files)  # without inventories, which tables share
        found = _shapes[pin] = _VersionShape(len(opened.spans), bool(opened.segments), nbytes)
    return found


def _rows(source: Source) -> int:
    """Return the row versions of a source; 0 if they cannot be read: who reads them hears why."""
    try:
        return source.rows
    except CorruptionError:
        return 0


def _leases(view: View) -> set[int]:
    runs = (s for found in view.levels.values() for s in found.flushed)
    held = [view.lease, *(run.lease for run in runs if isinstance(run, HistoryRun))]
    return {id(lease) for lease in held if lease is not None}


def _segments(files: Files, folder: Path) -> list[int]:
    try:
        names = [name for name in files.list(folder) if parse_name(name) is not None]
        return [files.size(folder / name) for name in names]
    except FileNotFoundError:  # not made yet, or recycled meanwhile
        return []
