r"""Jobs: records of the plans and results of maintenance, which survive their process.

    jobs/FINISHED       the last successful jobs, one line each; unsynced, lines may be lost
    jobs/<uuid>.json    line 1: the job; then one line per finished task: <xxh3-64, hex> <JSON>\n

    create it, empty ─▶ flock it ─▶ write the job, sync, sync the directory ─▶ first data file
    ─▶ one synced line per finished task ─▶ publish ─▶ unlink

A job is *running* while the flock of its record is held, otherwise it is *dead*: a crash left it,
and another job may publish its finished tasks. A line that a crash tore ends the list. A record is
only evidence: without it, nothing is lost but time.

Lock: none; one thread writes a job's record.
"""

from __future__ import annotations

import contextlib
import os
import platform
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import msgspec
import xxhash

from siltstone.errors import CorruptionError, UnavailableError
from siltstone.formats.inventory import InventoryFile
from siltstone.formats.manifest import Record
from siltstone.storage.files.files import File, Files, discard, names_in, refusals
from siltstone.storage.files.locks import Lock, is_taken, releasing
from siltstone.storage.tables.inventories import check

DIRECTORY = "jobs"
_SUFFIX = ".json"
_ATTEMPTS_MAX = 8
_FINISHED = "FINISHED"
FINISHED_MAX = 20
FILE_TICK_S = 0.05
"""How far the times of files are behind the clock: the kernel takes them from its last tick."""


class GcHorizonError(Exception):
    """Work is older than the gc horizon; a vacuum may have deleted its files: start again."""

    def __init__(self, record: int, gc_horizon_us: int, started_us: int) -> None:
        self.gc_horizon_us = gc_horizon_us
        super().__init__(
            f"the gc horizon of record {record} is {gc_horizon_us}; this work was begun before, at"
            f" {started_us}"
        )


def refuse_below_gc_horizon(record: Record, started_us: int) -> None:
    """Check that work begun at `started_us` still has its files, before it publishes on `record`.

    Vacuum publishes a gc horizon before it deletes. It deletes nothing that is younger, and sets
    the horizon before the start of every running job. So work that is published on a record whose
    horizon is older still has all its files, even if a vacuum follows immediately.

    Raises:
        GcHorizonError: Vacuum may have deleted the files.
    """
    if record.gc_horizon_us > started_us:
        raise GcHorizonError(record.number, record.gc_horizon_us, started_us)


@dataclass(frozen=True, slots=True)
class Begun:
    """The start of work: by the clock that dates its files, and by a monotonic clock.

    `above_us` is the gc horizon of the record on which it began.
    """

    clock_us: int
    steady_us: int
    above_us: int

    @property
    def first_us(self) -> int:
        """The start time, before it had written anything."""
        return max(self.clock_us, self.above_us)

    @classmethod
    def at(cls, now_us: Callable[[], int], above_us: int) -> Self:
        """Return a start at this moment."""
        clock_us = now_us()
        return cls(clock_us, time.monotonic_ns() // 1000, above_us)

    def started_us(self, now_us: Callable[[], int]) -> int:
        """Return the start time according to the files written until now.

        If the clock was set back since, the files look older than the work that wrote them.
        """
        passed_us = time.monotonic_ns() // 1000 - self.steady_us
        set_back_us = max(0, self.clock_us + passed_us - now_us())
        return max(self.clock_us - set_back_us, self.above_us)


class Job(msgspec.Struct, frozen=True):
    """The plan of a job: `inputs` are the parts that it reads, for users.

    `started_us` is never before the gc horizon of the record on which it began: a vacuum with a
    fast clock must not delete files of later work.
    """

    id: str
    kind: str
    tables: tuple[str, ...]
    inputs: tuple[str, ...]
    pid: int
    host: str
    started_us: int


class SeenJob(msgspec.Struct, frozen=True):
    """A record on disk; `job` is None if a crash left it empty, or it may not be read.

    A record that may not be read counts as running, so vacuum spares files that may be its own.
    """

    id: str
    job: Job | None
    finished: tuple[bytes, ...]
    is_running: bool
    nbytes: int
    changed_us: int


class FinishedJob(msgspec.Struct, frozen=True):
    """A successful job, from the list of the last ones."""

    job: Job
    ended_us: int


class OpenJob(msgspec.Struct):
    """The record of a job of this process; its flock ends with `finish` or `abandon`."""

    job: Job
    _begun: Begun
    _files: Files
    _path: Path
    _file: File
    _lock: Lock
    _now_us: Callable[[], int]
    _end: int = 0
    _is_of_use: bool = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._is_of_use:
            self.abandon()
        else:
            self.drop()

    def as_written(self) -> Job:
        """Return the job with a start before all its files: see `Begun`."""
        started_us = min(self.job.started_us, self._begun.started_us(self._now_us))
        return msgspec.structs.replace(self.job, started_us=started_us)

    def append(self, task: bytes) -> None:
        """Add the JSON of a finished task, durably.

        Raises:
            UnavailableError: The file system refuses; the job may continue without a record.
        """
        with _refusals(self._path):
            self.write(task, is_durable=True)
        self._is_of_use = True

    def write(self, text: bytes, *, is_durable: bool) -> None:
        """Add a line: the job itself, or as `append` does."""
        line = xxhash.xxh3_64_hexdigest(text).encode() + b" " + text + b"\n"
        self._file.pwrite(line, self._end)
        self._end += len(line)
        if is_durable:
            self._file.sync()

    def finish(self) -> None:
        """Remove the record and list the job as finished: its work is published."""
        if self._lock.fd >= 0:
            _remember(self._files, self._path.with_name(_FINISHED), self.job, self._now_us())
        self.drop()

    def drop(self) -> None:
        """Remove the record: its files are not needed."""
        if self._lock.fd >= 0:
            with contextlib.suppress(OSError):  # then it is found dead, and of no use to anybody
                self._files.unlink(self._path)
        self.abandon()

    def abandon(self) -> None:
        """Leave the record as a dead one for the next job; after `finish` do nothing."""
        self._file.close()
        self._lock.release()


class Jobs:
    """The job records of the store at `root`. Holds no state."""

    def __init__(
        self, files: Files, root: Path, now_us: Callable[[], int], new_token: Callable[[], str]
    ) -> None:
        self.folder = root / DIRECTORY
        self._files, self._now_us, self._new_token = files, now_us, new_token

    def begin(
        self, kind: str, tables: tuple[str, ...], inputs: tuple[str, ...] = (), *, above_us: int = 0
    ) -> OpenJob:
        """Begin a job; its record is durable before this returns.

        Args:
            kind: The kind of work.
            tables: The names of its tables.
            inputs: The parts that it reads.
            above_us: The gc horizon of the record on which it begins.

        Raises:
            UnavailableError: The file system refuses; nothing was begun.
        """
        begun = Begun.at(self._now_us, above_us)
        plan = Job("", kind, tables, inputs, os.getpid(), platform.node(), begun.first_us)
        return self._open(plan, begun, is_durable=True)

    def hold(self, started_us: int) -> OpenJob:
        """Keep files staged since `started_us` from vacuum, while a commit names them.

        The record is like that of a job, but not durable: it ends with the committing process.

        Raises:
            UnavailableError: The file system refuses.
        """
        begun = Begun(started_us, time.monotonic_ns() // 1000, started_us)
        plan = Job("", "commit", (), (), os.getpid(), platform.node(), begun.first_us)
        return self._open(plan, begun, is_durable=False)

    def _open(self, plan: Job, begun: Begun, *, is_durable: bool) -> OpenJob:
        with _refusals(self.folder):
            if is_durable or not self._files.exists(self.folder):
                self._files.mkdir(self.folder)
            for _ in range(_ATTEMPTS_MAX):
                job = msgspec.structs.replace(plan, id=self._new_token())
                found = self._begin(job, begun, is_durable=is_durable)
                if found is not None:
                    return found
        raise UnavailableError(f"{self.folder}: {_ATTEMPTS_MAX} records were taken away at birth")

    def _begin(self, job: Job, begun: Begun, *, is_durable: bool) -> OpenJob | None:
        """Write the record under a hidden name, so that others see it locked and whole.

        None if a vacuum took it for what a crash had left.
        """
        path = self.path(job.id)
        temporary = self._files.temporary(path)
        lock = self._files.lock(temporary, create=True)
        if lock is None:
            return None
        with contextlib.ExitStack() as if_it_fails:
            if_it_fails.callback(lock.release)
            if_it_fails.callback(discard, self._files, temporary)
            try:
                file = self._files.open(temporary)
                opened = OpenJob(job, begun, self._files, path, file, lock, self._now_us)
                if_it_fails.callback(opened.drop)
                opened.write(msgspec.json.encode(job), is_durable=is_durable)
                self._files.rename(temporary, path)
                if is_durable:
                    self._files.sync_dir(self.folder)
            except FileNotFoundError:
                return None
            if_it_fails.pop_all()
            return opened

    def remember(self, kind: str, started_us: int) -> None:
        """List work of this process as finished that needed no record, for users alone."""
        about = (kind, (), (), os.getpid(), platform.node(), started_us)
        with contextlib.suppress(OSError):
            if not self._files.exists(self.folder):
                self._files.mkdir(self.folder)
        path = self.folder / _FINISHED
        _remember(self._files, path, Job(self._new_token(), *about), self._now_us())

    def list(self) -> list[SeenJob]:
        """Return the jobs, oldest first; makes no write call.

        Raises:
            UnavailableError: The file system refuses.
        """
        with _refusals(self.folder):
            names = names_in(self._files, self.folder)
            ids = [name.removesuffix(_SUFFIX) for name in names if name.endswith(_SUFFIX)]
            seen = [found for job_id in ids if (found := self._seen(job_id)) is not None]
        return sorted(seen, key=lambda one: (one.changed_us if one.job is None else
                                             one.job.started_us, one.id))  # fmt: skip

    def _seen(self, job_id: str) -> SeenJob | None:
        path = self.path(job_id)
        try:
            if self._files.is_dir(path):
                return None  # none of ours
            is_running = is_taken(self._files.lock(path, shared=True))
            data, changed = self._files.read(path), self._files.mtime(path)
        except FileNotFoundError:  # finished since it was listed
            return None
        except PermissionError:  # another user's: it cannot be known to be dead
            changed_us = int(self._files.mtime(path) * 1e6)
            return SeenJob(job_id, None, (), True, self._files.size(path), changed_us)
        lines = _lines(data)
        job = _job(lines[0], job_id) if lines else None
        finished = () if job is None else tuple(lines[1:])
        return SeenJob(job_id, job, finished, is_running, len(data), int(changed * 1e6))

    def finished(self) -> list[FinishedJob]:
        """Return the last successful jobs, oldest first; at most `FINISHED_MAX`.

        Raises:
            UnavailableError: The file system refuses.
        """
        with _refusals(self.folder):
            lines = _read(self._files, self.folder / _FINISHED).splitlines()
        found: list[FinishedJob] = []
        for line in lines:
            with contextlib.suppress(msgspec.MsgspecError):
                found.append(msgspec.json.decode(line, type=FinishedJob))
        return found

    def remove(self, job_id: str) -> bool:
        """Remove the record of a dead job; False if it runs, or no longer exists.

        Raises:
            UnavailableError: The file system refuses.
        """
        path = self.path(job_id)
        with _refusals(path), contextlib.suppress(FileNotFoundError):
            lock = self._files.lock(path)
            if lock is not None:
                with releasing(lock):
                    self._files.unlink(path)
                    return True
        return False

    def written_us(self, files: Iterable[InventoryFile]) -> int | None:
        """Return the time of the oldest of some files of a dead job, as vacuum counts it.

        None: a file is changed or missing. The record of the job is only evidence.

        Raises:
            UnavailableError: The file system refuses.
        """
        root, oldest = self.folder.parent, 1 << 62
        with _refusals(self.folder), contextlib.suppress(CorruptionError, FileNotFoundError):
            for file in files:
                check(self._files, root, file)
                oldest = min(oldest, int(self._files.mtime(root / file.path) * 1e6))
            return oldest
        return None

    def path(self, job_id: str) -> Path:
        """Return the path of a job's record."""
        return self.folder / f"{job_id}{_SUFFIX}"


def _remember(files: Files, path: Path, job: Job, ended_us: int) -> None:
    with contextlib.suppress(OSError):  # a memory, nothing depends on it
        lines = [line for line in _read(files, path).splitlines(keepends=True) if line]
        ended = msgspec.json.encode(FinishedJob(job, ended_us)) + b"\n"
        data = b"".join([*lines, ended][-FINISHED_MAX:])
        files.replace(path, data, durable=False)


def _read(files: Files, path: Path) -> bytes:
    try:
        return files.read(path)
    except (FileNotFoundError, IsADirectoryError):
        return b""


def _lines(data: bytes) -> list[bytes]:
    """Return the whole lines, up to the first that a crash (or anybody) damaged."""
    found: list[bytes] = []
    for line in data.split(b"\n")[:-1]:
        check, _, text = line.partition(b" ")
        if xxhash.xxh3_64_hexdigest(text).encode() != check:
            break
        found.append(text)
    return found


def _job(text: bytes, job_id: str) -> Job | None:
    try:
        job = msgspec.json.decode(text, type=Job)
    except msgspec.MsgspecError:
        return None
    return job if job.id == job_id else None


def _refusals(path: Path) -> contextlib.AbstractContextManager[None]:
    return refusals(f"cannot keep the record of a job in {path}")
