"""Backup: one consistent snapshot of a store in another directory, while writers go on.

    lease the newest record ─▶ copy the log up to MARK ─▶ the records of tags, leased ─▶
    copy files, each checked ─▶ sync ─▶ BACKUP-<seq>-<record>.json, whole or not at all

    <directory>/STORE                       the store of these backups
    <directory>/BACKUP-<seq>-<record>.json  one snapshot; without it files are no backup
    <directory>/log/<seq>-<record>.wal      its commits above the record
    <directory>/files/...                   the files, by their paths in the store, shared by all

Files of a store are written once, so an incremental backup uses those of an older backup in the
directory: it reads and compares them, and copies damaged ones again. Any process may run it, with
or without an owner; it makes no write call in the store. A crash leaves files that the next backup
into the directory uses. Lock: the flock of STORE, for one backup at a time.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path

from siltstone.engine.catalog import catalog as catalogs
from siltstone.engine.read.view import storage_folder
from siltstone.errors import BusyError, CorruptionError, RequestError
from siltstone.failpoints import Failpoint, cross
from siltstone.formats import backup as formats
from siltstone.formats import manifest
from siltstone.formats.backup import Backup, BackupFile
from siltstone.formats.inventory import InventoryFile
from siltstone.formats.log import group
from siltstone.formats.log.frame import Frame, Logged
from siltstone.formats.manifest import Pin, Record, pins_of
from siltstone.maintenance import retention
from siltstone.maintenance.gc.sweep import distinct
from siltstone.storage.files.copying import Copies, copy_file, hash_of, link_file
from siltstone.storage.files.files import Files, is_temporary, make_private, refusals
from siltstone.storage.manifest.manifest_store import Lease, ManifestStore, existing
from siltstone.storage.site import Site, held
from siltstone.storage.tables.inventories import describe
from siltstone.storage.tables.kept_names import place
from siltstone.storage.wal.follower import SegmentRecycled, WalFollower
from siltstone.storage.wal.log_copy import write_segment
from siltstone.units import SegmentNumber

ATTEMPTS_MAX = 64
FILES, LOG, MARKER = "files", "log", "STORE"
_NAME = re.compile(r"BACKUP-([0-9]{20})-([0-9]{20})\.json")
Progress = Callable[[str, int, int], object]
"""Called with the next file, the bytes done, and the bytes of all files."""


@dataclass(frozen=True, slots=True)
class BackedUp:
    """A finished backup: its seq, its files, and the new ones among them.

    `lost_tags` are tags whose seqs the store can no longer read, `damaged` the files that were left
    out.

    Examples:
        >>> db.backup("copy").seq == db.seq
        True
    """

    path: str
    seq: int
    record: int
    files: int
    nbytes: int
    copied: int
    copied_bytes: int
    lost_tags: tuple[str, ...]
    damaged: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, object]:
        """Return the result as plain values."""
        return asdict(self)

    def __str__(self) -> str:
        return (
            f"seq {self.seq} in {self.path}: {self.files} files, {self.nbytes} bytes;"
            f" {self.copied} files, {self.copied_bytes} bytes of them are new"
            f"{without(self.damaged)}"
        )


@dataclass(frozen=True, slots=True)
class _Source:
    """What is copied: a leased record, the commits above it, and the records of tags below it."""

    record: Record
    frames: tuple[Frame, ...]
    islands: tuple[Record, ...]
    lost_tags: tuple[str, ...]

    @property
    def seq(self) -> int:
        return self.frames[-1].last_seq if self.frames else self.record.flushed_seq

    @property
    def time_us(self) -> int:
        if not self.frames:
            return self.record.last_time_us
        head, _ = group.decode(self.frames[-1].payload)
        return head.time_us + len(head.members) - 1

    def pins(self) -> list[Pin]:
        """Return every version that is needed, each once."""
        named = [pin for record in (self.record, *self.islands) for pin in pins_of(record)]
        return list(distinct([*named, *named_by(self.frames)]).values())


@dataclass(frozen=True, slots=True)
class _Damage:
    """The damaged files of tables; `is_left_out`: they are named, and do not end the backup.

    Those that are `needed` end it: without them a restored store would flush no table any more.
    """

    is_left_out: bool
    needed: set[str] = field(default_factory=set)
    found: dict[str, str] = field(default_factory=dict)

    @contextmanager
    def of(self, path: str) -> Generator[None]:
        """Do something with a file; what it raises if the file is damaged may be noted instead."""
        try:
            yield
        except CorruptionError as error:
            is_of_tables = path.startswith(("tables/", "inventory/"))
            if not self.is_left_out or path in self.needed or not is_of_tables:
                raise
            self.found[path] = error.reason


def without(damaged: Sequence[str]) -> str:
    """Return what to add to the sentence of a backup that lacks some files."""
    if not damaged:
        return ""
    others = f" and {len(damaged) - 1} others" if len(damaged) > 1 else ""
    return f"; DAMAGED, without {damaged[0]}{others}"


class Backuper:
    """See the module."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self._files, self._root, self._now_us = site.files, site.root, site.now_us
        self._manifests, self._tables = site.manifests, site.tables.reader

    @held
    def run(
        self,
        directory: Path,
        *,
        incremental: bool = False,
        link: bool = False,
        skip_damaged: bool = False,
        on_progress: Progress | None = None,
    ) -> BackedUp:
        """Back up every commit that is durable now.

        Args:
            directory: The target: absent, empty, or with an earlier backup of this store.
            incremental: Use the files of backups in the directory.
            link: Use hard links instead of copies; docs/repair.md explains their risk.
            skip_damaged: Leave damaged files of tables out, and name them.
            on_progress: See `Progress`.

        Raises:
            RequestError: The directory contains other files, or backups without `incremental`, or
                backups of commits that this store lost when it was rolled back to a copy.
            CorruptionError: A file of the store, which the message names, is damaged. There is no
                new backup.
            BusyError: Another backup into the directory is running.
            ReplacedError: Another store is at the path by now, or none. Files of the backup may be
                there, which no backup names.
            UnavailableError: The file system refuses; there is no new backup.
        """
        say = on_progress or (lambda _what, _done, _all: None)
        with refusals(f"no backup into {directory}"), ExitStack() as held:
            source = self._source(held)
            cross(Failpoint.BACKUP_AFTER_PLAN)
            self._enter(directory, source.record.store_id, incremental, held)
            self._refuse_another_line(directory, source)
            copies = Copies(self._files, link_file if link else copy_file)
            return self._copy(directory, source, say, copies, _Damage(is_left_out=skip_damaged))

    # what to copy

    def _source(self, held: ExitStack) -> _Source:
        record, lease, frames = newest_with_log(self._files, self._root, self._manifests)
        held.enter_context(lease)
        islands, lost = islands_of(self._manifests, record, tags_of(record, frames), held)
        return _Source(record, frames, islands, lost)

    def _wanted(self, source: _Source, damage: _Damage) -> list[InventoryFile]:
        """Return all files of the snapshot but its log."""
        found: dict[str, InventoryFile] = {}
        for pin in source.pins():
            with damage.of(pin.path):
                files = {file.path: file for file in self._tables.files(pin)}
                found |= files
                if not pin.path.startswith("tables/"):
                    damage.needed.update(files)
        for record in (*source.islands, source.record):
            name = str(self._manifests.path(record.number).relative_to(self._root))
            found[name] = describe(self._files, self._root, name)
        return list(found.values())

    # copying

    def _enter(self, directory: Path, store_id: str, incremental: bool, held: ExitStack) -> None:
        """Take the directory for backups of this store, exclusively."""
        files = self._files
        if directory == self._root or directory.is_relative_to(self._root):
            raise RequestError(f"{directory} is in the store; choose another directory")
        make_private(files, directory)
        marker, text = directory / MARKER, b"siltstone-backups %s\n" % store_id.encode()
        names = set(files.list(directory))
        foreign = {n for n in names - {MARKER} if not is_temporary(n)}
        if MARKER not in names and foreign:
            reason = "is neither empty nor a directory of backups"
            raise RequestError(f"{directory} {reason}: it holds {min(foreign)!r}")
        files.create_if_absent(marker, text)
        if files.read(marker) != text:
            raise RequestError(f"{directory} holds backups of another store")
        lock = files.lock(marker)
        if lock is None:
            raise BusyError(f"another backup into {directory} is running")
        held.callback(lock.release)
        if not incremental and backups(files, directory):
            reason = "holds a backup; choose another directory, or use incremental"
            raise RequestError(f"{directory} {reason}")

    def _refuse_another_line(self, directory: Path, source: _Source) -> None:
        """Refuse a directory with a record of the same number that is whole, and another one.

        A store that was rolled back to a copy of its files goes on with the numbers of what it
        lost. The backups of that may be all that is left of it. Each owner publishes a record when
        it begins, so a line has its own from its first commit on.
        """
        for record in (*source.islands, source.record):
            name = self._manifests.path(record.number).relative_to(self._root)
            path = directory / FILES / name
            with suppress(FileNotFoundError, CorruptionError):  # damaged: it is copied again
                if manifest.decode(self._files.read(path), str(path)) != record:
                    raise RequestError(
                        f"{directory} has backups of another history of this store: its record"
                        f" {record.number} is another one, as after the store was rolled back to a"
                        " copy; nothing was changed there: choose another directory"
                    )

    def _copy(
        self, directory: Path, source: _Source, say: Progress, copies: Copies, damage: _Damage
    ) -> BackedUp:
        wanted = self._wanted(source, damage)
        total, done = sum(file.size for file in wanted), 0
        there: list[InventoryFile] = []
        copied: list[InventoryFile] = []
        for file in wanted:
            say(file.path, done, total)
            target = directory / FILES / file.path
            with damage.of(file.path):
                if copies.once(place(self._files, self._root, file.path), target, file):
                    copied.append(file)
                there.append(file)
            done += file.size
        cross(Failpoint.BACKUP_AFTER_COPY)
        log = self._write_log(directory, source)
        for folder in sorted(copies.folders):
            self._files.sync_dir(folder)
        made = Backup(
            store_id=source.record.store_id,
            seq=source.seq,
            record=source.record.number,
            time_us=source.time_us,
            made_us=self._now_us(),
            islands=tuple(record.number for record in source.islands),
            log=log,
            files=tuple(BackupFile(file.path, file.size, file.xxh3) for file in there),
            damaged=tuple(damage.found),
        )
        path = directory / f"BACKUP-{made.seq:020d}-{made.record:020d}.json"
        cross(Failpoint.BACKUP_BEFORE_PUBLISH)
        self._manifests.require_ours(source.record)
        self._files.replace(path, formats.encode(made))
        cross(Failpoint.BACKUP_AFTER_PUBLISH)
        say(path.name, total, total)
        return BackedUp(
            path=str(path),
            seq=made.seq,
            record=made.record,
            files=len(there),
            nbytes=made.nbytes,
            copied=len(copied),
            copied_bytes=sum(file.size for file in copied),
            lost_tags=source.lost_tags,
            damaged=made.damaged,
        )

    def _write_log(self, directory: Path, source: _Source) -> BackupFile:
        """Write the commits above the record; the same ones give the same bytes again."""
        name = f"{LOG}/{source.seq:020d}-{source.record.number:020d}.wal"
        path = directory / name
        self._files.mkdir(path.parent)
        temporary = self._files.temporary(path)
        write_segment(self._files, temporary, source.record, source.frames)
        size, xxh3 = hash_of(self._files, temporary)
        self._files.rename(temporary, path)
        self._files.sync_dir(path.parent)
        return BackupFile(name, size, xxh3)


def newest_with_log(
    files: Files, root: Path, manifests: ManifestStore
) -> tuple[Record, Lease, tuple[Frame, ...]]:
    """Return the newest record, a lease on it, and copies of the durable frames above it.

    It makes no write call.

    Raises:
        CorruptionError: The log is damaged.
        BusyError: The owner recycled the log faster than this process could read it.
    """
    recycled: SegmentRecycled | None = None
    for _ in range(ATTEMPTS_MAX):
        record, lease = manifests.lease_newest()
        if recycled is not None and record.wal_floor <= recycled.segment:
            raise recycled.damage from recycled
        try:
            return record, lease, _frames(files, root / "wal", record)
        except SegmentRecycled as signal:
            recycled = signal  # the owner went on: a newer record begins behind it
            lease.release()
    raise BusyError(f"{root}: the log moved on {ATTEMPTS_MAX} times; try again")


def _frames(files: Files, wal: Path, record: Record) -> tuple[Frame, ...]:
    follower = WalFollower(files, wal, store_id=bytes.fromhex(record.store_id))
    found = follower.poll(SegmentNumber(record.wal_floor))
    frames = tuple(frame for frame in found if frame.last_seq > record.flushed_seq)
    if frames and frames[0].first_seq > record.flushed_seq + 1:
        reason = f"it begins at seq {frames[0].first_seq}, after {record.flushed_seq}"
        raise CorruptionError(wal, None, reason)
    end = frames[-1].last_seq if frames else record.flushed_seq
    if end < record.last_seq:
        reason = f"it ends at seq {end}, but seq {record.last_seq} was durable"
        raise CorruptionError(wal, None, reason)
    return frames


def backups(files: Files, directory: Path) -> list[Path]:
    """Return the manifests of the backups in a directory, oldest seq first."""
    found = [name for name in files.list(directory) if _NAME.fullmatch(name)]
    return [directory / name for name in sorted(found)]


def read_backup(files: Files, path: Path) -> Backup:
    """Return a backup by its manifest.

    Raises:
        CorruptionError, UnsupportedFormatError: It is damaged, or of another format.
    """
    return formats.decode(files.read(path), str(path))


def islands_of(
    manifests: ManifestStore, record: Record, tags: dict[str, int], held: ExitStack
) -> tuple[tuple[Record, ...], tuple[str, ...]]:
    """Return older records, leased, that serve tags which `record` does not; and lost tags."""
    if not retention.islands_of([record], tags.values()).lost:
        return (), ()
    numbers = manifests.numbers(below_floor=True)
    older = list(existing(manifests, (n for n in numbers if n < record.number)))
    islands = retention.islands_of([*older, record], tags.values())
    found: dict[int, Record] = {}
    lost = set(islands.lost)
    for island, seq in islands.serving:
        if island.number not in found:
            lease = manifests.lease(island.number, below_floor=True)
            if lease is None:
                lost.add(seq)
                continue
            held.enter_context(lease)
            found[island.number] = island
    names = tuple(name for name, seq in tags.items() if seq in lost)
    return tuple(found[number] for number in sorted(found)), names


def _entries(frames: Iterable[Frame]) -> Iterator[group.Entry]:
    for frame in frames:
        for member in group.decode(frame.payload)[0].members:
            yield from member.entries


def named_by(frames: Iterable[Logged]) -> Iterator[Pin]:
    """Yield the versions in frames: bulk commits, and steps of plain tables."""
    for frame in frames:
        yield from group.pins(frame.payload)


def created_by(frames: Iterable[Frame]) -> Iterator[str]:
    """Yield the folders of the plain tables that frames create; they may have no version yet."""
    for entry in _entries(frames):
        if isinstance(entry, group.Create) and not entry.schema.key:
            yield storage_folder(entry.name, entry.table)


def tags_of(record: Record, frames: Sequence[Frame]) -> dict[str, int]:
    """Return the tags and their seqs after `frames`."""
    found = {tag.name: tag.seq for tag in record.catalog.tags}
    for entry in _entries(frames):
        if isinstance(entry, group.Drop):
            above = catalogs.table_tag(entry.table, "")
            found = {name: seq for name, seq in found.items() if not name.startswith(above)}
        if isinstance(entry, group.Tagged):
            found.pop(entry.name, None)
            if entry.seq is not None:
                found[entry.name] = entry.seq
    return found
