r"""Manifest store: the chain of records on disk; publishes, FLOOR and leases.

    manifest/00000000000000000042.json   one record, created whole (link) and never changed
    manifest/FLOOR                       which numbers are kept (`storage.manifest.floor`)
    manifest/FLOOR.lock                  flock'd while FLOOR is moved, so that it only rises

    publish   change(base) ─▶ look ─▶ create n+1 if absent ─▶ look ─▶ read FLOOR ─▶ done
                 ▲                       │ exists                       │ n+1 is not kept: dead,
                 └── newest ◀────────────┴──────────────────────────────┘ or we slept

LOOK  The directory may be moved or replaced, or an older copy put in its place file by file. So the
path must lead to the directories that `files` are bound to, as they were opened: a publish lands in
no other one. Record n must still be the one that it was planned on, by the same writer, and each
new file be there. If not, it ends with ReplacedError. If it is the second look that sees it, n+1 is
unlinked again, unless others built on it. A record that is gone proves nothing if FLOOR does not
keep it: a vacuum took it. Nor does a damaged one: the next record is whole again.

A record's writer token is new for each attempt, so after a lost acknowledgement the publisher reads
the record back. If its sync failed, the next record repeats the contents, and its sync counts.
Records that FLOOR does not keep (those below it, and thinned ones) are deleted, leased, or islands:
only reads by number see them. A lease is a shared flock
on the record's file: it needs no clock and no write, and ends with its process. No lock in memory:
any thread may use a store, and any number of processes may.
"""

from __future__ import annotations

import contextlib
import re
import sys
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

import msgspec

from siltstone.errors import (
    BusyError,
    CorruptionError,
    ReplacedError,
    RequestError,
    UnavailableError,
)
from siltstone.failpoints import Failpoint, cross
from siltstone.formats import manifest
from siltstone.formats.manifest import Record
from siltstone.storage.files.files import ABSENT, PRIVATE_MODE, Files, make_private, refusals
from siltstone.storage.files.locks import Hold, Lock, releasing
from siltstone.storage.files.place import in_place, require_in_place, require_links
from siltstone.storage.manifest.floor import Floor, floor_in, text_of
from siltstone.units import require

ATTEMPTS_MAX = 64
_RECORD_NAME = re.compile(r"[0-9]{20}\.json")  # not \d: other scripts have digits, too


class _End:
    """Releases a lock when its lease is gone.

    A lease has no `__del__`: while that ran, those who share leases would still find it.
    """

    __slots__ = ("_lock",)

    def __init__(self, lock: Hold) -> None:
        self._lock = lock

    def __del__(self, is_ending: Callable[[], bool] = sys.is_finalizing) -> None:
        if not is_ending():  # else modules may be gone, and the kernel releases it
            self._lock.release()


@dataclass(frozen=True, slots=True, weakref_slot=True)
class Lease:
    """While it is held, vacuum keeps record `number` and the files that it names.

    It ends with `release`, or with its last reference: views and readers hold it.
    """

    number: int
    lock: Hold
    _end: _End = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_end", _End(self.lock))

    @property
    def is_held(self) -> bool:
        """False after `release`, and in a forked child."""
        return self.lock.fd >= 0

    def release(self) -> None:
        self.lock.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


def system_time_us() -> int:
    return time.time_ns() // 1000


def random_token() -> str:
    return uuid.uuid4().hex


class ManifestStore:
    """The chain of records of the store at `root`. See the module."""

    is_copy = False
    """Whether the first records of the store may never have been here."""

    def __init__(
        self,
        files: Files,
        root: Path,
        *,
        now_us: Callable[[], int] = system_time_us,
        new_token: Callable[[], str] = random_token,
        first_missing: Callable[[Record, Record], str | None] = lambda _before, _after: None,
    ) -> None:
        """`first_missing` names a file that is missing, and that only the second record names."""
        self.folder = root / "manifest"
        self._files, self._root, self._now_us, self._new_token = files, root, now_us, new_token
        self._first_missing = first_missing

    # --- reading: no write call

    def path(self, number: int) -> Path:
        return self.folder / f"{number:020d}.json"

    def read(self, number: int) -> Record:
        """Return a record by number, also one below FLOOR.

        Raises:
            FileNotFoundError: The record does not exist (any more).
            CorruptionError: The file is not the record of that number.
            UnavailableError: The file system refuses.
        """
        path = self.path(number)
        with refusals(f"cannot read {path}", but=ABSENT):
            data = self._files.read(path)
        record = manifest.decode(data, str(path))
        if record.number != number:
            raise CorruptionError(path, None, f"it holds record {record.number}")
        return record

    def numbers(self, *, below_floor: bool = False) -> list[int]:
        """Return the numbers of the existing records, ascending: of those that FLOOR keeps.

        `below_floor`: of all.
        """
        floor = Floor() if below_floor else self.kept()
        with refusals(f"cannot read {self.folder}", but=ABSENT):
            names = self._files.list(self.folder)
        lowest = f"{floor.number:020d}"  # of as many digits: names have the order of numbers
        is_record = _RECORD_NAME.fullmatch
        found = [int(name[:20]) for name in names if name >= lowest and is_record(name)]
        return [number for number in found if floor.keeps(number)] if floor.upto else found

    def kept(self) -> Floor:
        """Return which numbers are kept; all before the first vacuum.

        Raises:
            UnsupportedFormatError: A siltstone of another format wrote FLOOR.
            CorruptionError: It is damaged.
        """
        path = self.folder / "FLOOR"
        try:
            with refusals(f"cannot read {path}", but=ABSENT):
                return floor_in(self._files.read(path), path)
        except FileNotFoundError:
            return Floor()

    def newest(self) -> Record:
        """Return the newest record.

        Raises:
            RequestError: There is no store at `root`.
            CorruptionError: The newest record is damaged, or all are gone.
            UnavailableError: The file system refuses.
        """
        with refusals(f"cannot read {self.folder}"):
            return self._newest()

    def store_id(self) -> str:
        """Return the id of the store; errors as of `newest`."""
        return self.newest().store_id

    def _newest(self) -> Record:
        for _ in range(ATTEMPTS_MAX):
            floor = self.kept()
            try:
                numbers = self.numbers()
            except ABSENT as error:
                raise RequestError(f"{self._root} is not a siltstone store") from error
            if numbers:
                try:
                    return self.read(numbers[-1])
                except FileNotFoundError:
                    continue  # vacuumed since the listing: there are newer ones
            elif self.kept() == floor:
                raise self._no_record(floor.number)
        raise BusyError(f"{self.folder} changed {ATTEMPTS_MAX} times while it was read; try again")

    def _no_record(self, floor: int) -> Exception:
        names = set(self._files.list(self._root))
        if RESTORING in names:
            return _half_restored(self._root)
        if floor or names & _MADE_AFTER_RECORD_1:
            return CorruptionError(self.folder, None, f"no record at or above FLOOR {floor}")
        return RequestError(f"{self._root} is not a siltstone store: it has no manifest record")

    def newer_record(self, after: Record) -> Record | None:
        """Return the newest record if it is newer than `after`: reads FLOOR, then n+1.

        If n+1 was vacuumed, n+1 alone would never show newer records.
        """
        following = after.number + 1
        with refusals(f"cannot read {self.folder}"):
            if self.kept().keeps(following) and not self._files.exists(self.path(following)):
                return None
        newest = self.newest()
        return newest if newest.number > after.number else None

    def look_now(self) -> None:
        """Have the next look see what is there by then. Here each does; one in a bucket may not."""

    # --- is it still the store that some work was planned on?

    def require_ours(self, known: Record, following: Record | None = None) -> None:
        """Check that the store is still the one of a record; before a batch of deletes, say.

        `following`: a record that is planned on it, whose new files must be there, too.

        Raises:
            ReplacedError: The directory was moved or replaced, or its contents were.
            CorruptionError, UnavailableError: FLOOR is damaged; the file system refuses.
        """
        require_in_place(self._files, self._root)
        with refusals(f"cannot look at {self._root}"):
            why = self._other(known)
            if why is None and following is not None:
                why = self._missing(known, following)
        if why is not None:
            raise ReplacedError(self._root, why)

    def require_follows(self, known: Record, newest: Record) -> None:
        """Check that a newest record followed from one that was known.

        Raises:
            ReplacedError: The directory was moved or replaced, or its contents were.
            CorruptionError, UnavailableError: FLOOR is damaged; the file system refuses.
        """
        self.require_ours(known)
        ours, theirs = (known.store_id, known.number), (newest.store_id, newest.number)
        if ours[0] != theirs[0] or theirs[1] < ours[1]:
            why = (
                f"its newest record is {theirs[1]} of store {theirs[0]}, not {ours[1]} of {ours[0]}"
            )
            raise ReplacedError(self._root, why)

    def _missing(self, known: Record, following: Record) -> str | None:
        """Return a new file that is not there; None: none, or another process won the race."""
        missing = self._first_missing(known, following)
        if missing is None or not self.kept().keeps(following.number):
            return None  # a vacuum that took the winner's record may have taken the files before
        with contextlib.suppress(FileNotFoundError, CorruptionError):
            winner = self.read(following.number)
            if winner.store_id == known.store_id and winner.writer != following.writer:
                return None
        return f"{missing} is not there, which was just written"

    def _other(self, known: Record) -> str | None:
        """Return what is wrong with a record that was known; None: nothing."""
        try:
            found = self.read(known.number)
        except FileNotFoundError:
            return f"record {known.number} is gone" if self.kept().keeps(known.number) else None
        except CorruptionError:
            return None
        if (found.store_id, found.writer) == (known.store_id, known.writer):
            return None
        return (
            f"record {known.number} there is of store {found.store_id}, by writer {found.writer},"
            f" not of {known.store_id}, by {known.writer}"
        )

    # --- publishing

    def publish(
        self, change: Callable[[Record], Record], *, base: Record, attempts: int = ATTEMPTS_MAX
    ) -> Record:
        """Publish `change(base)` as the next record, on top of the records that won before it.

        Args:
            change: Returns the next record's fields; `publish` sets number, writer and time. It is
                called again for each lost race, and may raise. If it returns its argument, nothing
                is left to publish and that record is the result. After a long sleep the argument
                may already contain the change: `change` must notice that.
            base: The newest record that the caller knows.
            attempts: The maximum number of records to try.

        Raises:
            BusyError: Every attempt lost.
            ReplacedError: The directory was moved or replaced, or its contents were.
            UnavailableError: The file system refused. The change may still be published, but may
                not be durable: read the newest record first.
        """
        with in_place(self._files, self._root):
            return self._publish(change, base, attempts)

    def _publish(self, change: Callable[[Record], Record], base: Record, attempts: int) -> Record:
        for _ in range(attempts):
            try:
                changed = change(base)
            except (FileNotFoundError, CorruptionError):
                # It has no lease, so a vacuum may have taken its files: then its race is lost.
                winner = self._winner_over(base)
                if winner.number == base.number:
                    raise
                base = winner
                continue
            with refusals(f"cannot publish after record {base.number}"):
                if changed is base:
                    self.sync()
                    return base
                published = self._attempt(self._stamp(changed, base), base)
            if published is not None:
                return published
            base = self._winner_over(base)
        raise BusyError(f"{self.folder}: {attempts} publishes lost their race; try again")

    def _stamp(self, changed: Record, base: Record) -> Record:
        record = msgspec.structs.replace(
            changed,
            number=base.number + 1,
            writer=self._new_token(),
            time_us=max(self._now_us(), base.time_us + 1),
        )
        require(record.store_id == base.store_id, "a publish changed the store id")
        for name in ("epoch", "last_seq", "flushed_seq", "wal_floor", "oldest_seq"):
            before, after = getattr(base, name), getattr(record, name)
            require(after >= before, f"record {record.number}: {name} {before} -> {after}")
        return record

    def _attempt(self, record: Record, base: Record) -> Record | None:
        """Create a record; return the one that holds its change, None when the race is lost."""
        self.require_ours(base, record)
        is_sure = True
        cross(Failpoint.PUBLISH_BEFORE_CREATE)
        try:
            is_made = self._create(record)
            cross(Failpoint.PUBLISH_AFTER_CREATE)
        except OSError:
            if not self._is_ours(record):
                raise
            is_made, is_sure = True, False
        if not is_made:
            if not self._is_ours(record):
                return None
            self.sync()  # it was made, and only the answer was lost
        try:
            self.require_ours(base, record)
        except ReplacedError:
            self._take_back(record)
            raise
        if self._is_dead(record):
            return None
        return record if is_sure else self._say_again(record)

    def _take_back(self, record: Record) -> None:
        """Unlink a record that was made in a directory that was replaced meanwhile, if we may."""
        lock = self._lock(record.number, shared=False)
        if lock is None:
            return  # it is gone, or leased
        with releasing(lock), contextlib.suppress(FileNotFoundError):
            following = self._files.exists(self.path(record.number + 1))
            if not following and self._is_ours(record):
                self._files.unlink(self.path(record.number))

    def _is_dead(self, record: Record) -> bool:
        """Say whether FLOOR gave up a record of ours while we slept; unlink it if it is not needed.

        Either its number had been vacuumed, and what stands above it does not know it; or we were
        in time, and others built on it. The change tells, when it is applied to the newest record.
        """
        if self.kept().keeps(record.number):
            return False
        lock = self._lock(record.number, shared=False)
        if lock is not None:  # else it is gone, or somebody leased it: it was in time
            with releasing(lock), contextlib.suppress(FileNotFoundError):
                self._files.unlink(self.path(record.number))
        return True

    def _say_again(self, record: Record) -> Record:
        """Make durable what a visible record of ours says whose sync failed.

        A second sync of the same name may lie; the next record is a new name, and whole.
        """
        again = self._stamp(record, record)
        if self._create(again) and not self._is_dead(again):
            return again
        return self._synced_newest()  # others built on our record: theirs holds the change

    def _create(self, record: Record) -> bool:
        return self._files.create_if_absent(self.path(record.number), manifest.encode(record))

    def _winner_over(self, base: Record) -> Record:
        """Return the newest record, whose name is durable."""
        with refusals(f"cannot publish after record {base.number}"):
            newest = self._synced_newest()
        if newest.store_id != base.store_id:  # it was put in the place of ours (restored)
            why = f"it is store {newest.store_id}, not {base.store_id}"
            raise ReplacedError(self._root, why)
        if newest.number < base.number:
            why = f"its newest record is {newest.number}, and was {base.number}"
            raise ReplacedError(self._root, why)
        return newest

    def _synced_newest(self) -> Record:
        newest = self.newest()
        self.sync()
        return newest

    def _is_ours(self, record: Record) -> bool:
        try:
            return self.read(record.number).writer == record.writer
        except FileNotFoundError:
            return False

    def sync(self) -> None:
        """Make the names of all records durable.

        Call it before deleting or retiring because of a record that another process wrote.
        """
        self._files.sync_dir(self.folder)

    # --- FLOOR and leases

    def replace_floor(self, seen: Floor, floor: Floor) -> bool:
        """Write `floor`, durably; False, and nothing is written, if FLOOR is not `seen` any more.

        Args:
            seen: What `floor` was made from.
            floor: It keeps nothing that `seen` does not. The newest record has the format for it.

        Raises:
            BusyError: Another process is raising it.
            UnavailableError: The file system refuses; FLOOR may still be the new one.
        """
        with refusals(f"cannot raise FLOOR to {floor.number}"):
            lock = self._files.lock(self.folder / "FLOOR.lock", create=True)
            if lock is None:
                raise BusyError(f"{self.folder / 'FLOOR'} is being raised by another process")
            with releasing(lock):
                if self.kept() != seen:
                    return False
                there = self._files.exists(self.path(floor.number))
                require(there, f"FLOOR {floor.number} has no record")
                # Also an equal one: a process may have died between its rename and its sync.
                self._files.replace(self.folder / "FLOOR", text_of(floor))
            return True

    def lease(self, number: int, *, below_floor: bool = False) -> Lease | None:
        """Lease a record, which vacuum then spares; None if vacuum deletes or deleted it.

        `below_floor`: the caller knows that the record is an island (tagged).
        """
        with refusals(f"cannot lease record {number}"):
            lock = self._shared(number)
            # Locked first: a vacuum that raised FLOOR before is seen now, one after it sees us.
            if lock is None or self._is_kept(number, lock, below_floor=below_floor):
                return None if lock is None else Lease(number, lock)
            lock.release()
            return None

    def _shared(self, number: int) -> Lock | None:
        """Lock a record; a vacuum that only asks who leases it lets go of it at once."""
        for _ in range(ATTEMPTS_MAX):
            lock = self._lock(number, shared=True)
            if lock is not None or not self._files.exists(self.path(number)):
                return lock
        return None

    def _is_kept(self, number: int, lock: Lock, *, below_floor: bool) -> bool:
        try:
            is_kept = below_floor or self.kept().keeps(number)
            return is_kept and lock.names(self.path(number))
        except BaseException:
            lock.release()
            raise

    def lease_newest(self, known: Record | None = None) -> tuple[Record, Lease]:
        """Return the newest record and a lease on it.

        `known`: a record that the caller worked on before, which this one must follow.

        Raises:
            ReplacedError: It does not: another store, or an older copy, is there by now.
        """
        for _ in range(ATTEMPTS_MAX):
            record = self.newest()
            if known is not None:
                self.require_follows(known, record)
            lease = self.lease(record.number)
            if lease is not None:
                return record, lease
        raise BusyError(f"{self.folder}: {ATTEMPTS_MAX} records were vacuumed before their lease")

    def try_exclusive(self, number: int) -> Lock | None:
        """Lock an unleased record for vacuum; None if it is leased or deleted."""
        with refusals(f"cannot lock record {number}"):
            return self._lock(number, shared=False)

    def _lock(self, number: int, *, shared: bool) -> Lock | None:
        try:
            return self._files.lock(self.path(number), shared=shared)
        except FileNotFoundError:
            return None


def existing(manifests: ManifestStore, numbers: Iterable[int]) -> Iterator[Record]:
    """Yield the records with these numbers that no vacuum has deleted since the listing."""
    for number in numbers:
        with contextlib.suppress(FileNotFoundError):
            yield manifests.read(number)


RESTORING = "RESTORING"
_MADE_AFTER_RECORD_1 = {"inventory", "wal", "tables", "commits", "jobs", "quarantine", "RESERVE"}
_MADE_BEFORE_RECORD_1 = {"manifest", "LOCK"}


def initialise(
    files: Files,
    root: Path,
    *,
    now_us: Callable[[], int] = system_time_us,
    new_token: Callable[[], str] = random_token,
    mode: int = PRIVATE_MODE,
) -> Record:
    """Return the newest record of the store at `root`; create the store if there is none.

    A directory that it makes has `mode`; one that is there keeps its own.

    It completes a half-created store. Two processes may call it at the same time: one record 1
    wins.

    Raises:
        RequestError: `root` is neither a store nor an empty directory.
        UnavailableError: The file system refuses.
    """
    store = ManifestStore(files, root, now_us=now_us, new_token=new_token)
    try:
        if _is_new(files, root):
            _make_directories(files, root, mode)
            first = Record(
                store_id=new_token(), number=1, epoch=0, writer=new_token(), time_us=now_us()
            )
            files.create_if_absent(store.path(1), manifest.encode(first))
        newest = store.newest()
        store.sync()  # the process that made the record may have died before its sync
    except NotADirectoryError as error:
        raise RequestError(f"{root} lies below a file; a store is a directory") from error
    except OSError as error:
        raise UnavailableError(f"cannot make a store in {root}: {error}") from error
    return newest


def _make_directories(files: Files, root: Path, mode: int) -> None:
    """Make the directories of a store; where none may be, nothing is left."""
    folder = root / "manifest"
    made = [path for path in (folder, root) if not files.exists(path)]
    make_private(files, root, mode)
    files.mkdir(folder)
    try:
        require_links(files, folder)
    except UnavailableError:
        for path in made:
            files.rmdir(path)
        raise


def _is_new(files: Files, root: Path) -> bool:
    """Tell whether there is no store at `root` yet, and may be one."""
    if not files.exists(root):
        return True
    if not files.is_dir(root):
        raise RequestError(f"{root} is a file, not a store")
    names = set(files.list(root))
    inside = files.list(root / "manifest") if files.is_dir(root / "manifest") else []
    if any(name == "FLOOR" or _RECORD_NAME.fullmatch(name) for name in inside):
        return False
    if RESTORING in names:
        raise _half_restored(root)
    if names & _MADE_AFTER_RECORD_1 and "manifest" in names:
        return False  # `newest` says what is missing
    foreign = names - _MADE_BEFORE_RECORD_1 or {n for n in inside if not n.startswith(".")}
    if foreign:
        raise RequestError(f"{root} is not a store, and not empty: it holds {min(foreign)!r}")
    return True


def _half_restored(root: Path) -> RequestError:
    return RequestError(f"{root} is half restored and no store yet; run the restore again")


def begin_chain(files: Files, root: Path, record: Record, islands: Sequence[Record]) -> None:
    """Create the chain of a restored store: FLOOR is its first record, `islands` lie below.

    The record comes last: without it there is no store. Running it again completes it.
    """
    store = ManifestStore(files, root)
    files.mkdir(store.folder)
    files.replace(store.folder / "FLOOR", text_of(Floor(record.number)))
    for island in islands:  # without a FLOOR above it one would be the newest record
        files.replace(store.path(island.number), manifest.encode(island))
    files.create_if_absent(store.path(record.number), manifest.encode(record))


def claim_epoch(manifests: ManifestStore, base: Record) -> Record:
    """Publish the next epoch: from here on the owner of an older one is fenced."""
    return manifests.publish(
        lambda record: msgspec.structs.replace(record, epoch=record.epoch + 1), base=base
    )
