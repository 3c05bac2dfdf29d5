"""Events: what a traced process did to the disk of its store, and what it told meanwhile.

Paths are of a disk whose root is the folder in which the store lies. What changes nothing there
(reads, other files, calls that failed) is no event; what changes it in a way that `Machine` does
not know is refused, never skipped.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from proof.power.calls import Call, Descriptor, TraceError

_RENAME_EXCHANGE = b"RENAME_EXCHANGE"


@dataclass(frozen=True, slots=True)
class Made:
    """A new, empty file or directory."""

    path: Path
    is_directory: bool


@dataclass(frozen=True, slots=True)
class Written:
    path: Path
    offset: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Synced:
    """A file or directory; what was done after the first `began` events is not covered.

    `within`: the bytes of the file that alone are covered; None: all.
    """

    path: Path
    began: int
    within: range | None = None


@dataclass(frozen=True, slots=True)
class Renamed:
    old: Path
    new: Path


@dataclass(frozen=True, slots=True)
class Linked:
    old: Path
    new: Path


@dataclass(frozen=True, slots=True)
class Removed:
    path: Path


@dataclass(frozen=True, slots=True)
class Told:
    """A line that the process wrote for us: its fields."""

    fields: Mapping[str, object]


Event = Made | Written | Synced | Renamed | Linked | Removed | Told
Position = tuple[int, int]


def read_events(
    calls: Iterable[Call], folder: Path, told: Path, given: Sequence[Event] = ()
) -> list[Event]:
    """Return the events of a trace, in their order, behind those that were `given`.

    Args:
        calls: Of one traced process, with its threads and children.
        folder: The one above the store. It is there before the first call.
        told: The file into which the process writes lines for us.
        given: What made that which is in the folder before the first call.
    """
    listed = list(calls)
    reader = _Reader(folder, told, _processes(listed), given)
    return [*given, *reader.read(listed, len(given))]


def events_that_make(folder: Path) -> list[Event]:
    """Return events that lead to a durable disk as it lies in a folder."""
    events: list[Event] = []
    seen: dict[int, Path] = {}
    for path in sorted(folder.rglob("*")):
        at, status = Path("/") / path.relative_to(folder), path.stat()
        if path.is_dir():
            events.append(Made(at, is_directory=True))
        elif status.st_ino in seen:
            events.append(Linked(seen[status.st_ino], at))
        else:
            seen[status.st_ino] = at
            events += [Made(at, is_directory=False), Written(at, 0, path.read_bytes())]
    made = [event.path for event in events if isinstance(event, Made)]
    return [*events, *(Synced(path, len(events)) for path in (Path("/"), *made))]


def _processes(calls: Iterable[Call]) -> dict[int, int]:
    """Return the process of each thread that another made, by their ids."""
    made: dict[int, tuple[int, bool]] = {}
    for call in calls:
        if call.name in _FORKS and call.is_done and call.result is not None:
            made[call.result] = (call.thread, b"CLONE_THREAD" in call.text)
    found: dict[int, int] = {}
    for child in made:
        thread = child
        while thread in made and made[thread][1]:
            thread = made[thread][0]
        found[child] = thread
    return found


class _Reader:
    """Keeps what calls assume of earlier ones: where each open file stands."""

    def __init__(
        self, folder: Path, told: Path, processes: Mapping[int, int], given: Iterable[Event]
    ) -> None:
        self._folder, self._told, self._processes = folder, str(told), processes
        self._positions: dict[Position, int] = {}
        self._known = {event.path for event in given if isinstance(event, Made)}
        self._known |= {event.new for event in given if isinstance(event, Linked)}

    def read(self, calls: Iterable[Call], given: int) -> Iterator[Event]:
        ended = [-1] * given  # the line of each event
        for call in calls:
            for event in self._events(call, ended):
                ended.append(call.ended)
                yield event

    def _events(self, call: Call, ended: list[int]) -> Iterator[Event]:
        if not call.is_done or call.name in _FORKS:
            return
        if call.name in _OPENS:
            yield from self._opened(call)
        elif call.name in _WRITES:
            yield from self._written(call, ended)
        elif call.name in _SYNCS:
            yield from self._synced(call, ended)
        elif call.name in _NAMINGS:
            yield from self._named(call)
        elif call.name == "lseek":
            self._moved(call)
        else:
            self._refuse_change(call)

    # --- which disk

    def _inside(self, path: str) -> Path | None:
        """Return the path on our disk, None where it is elsewhere."""
        if not Path(path).is_relative_to(self._folder):
            return None
        return Path("/") / Path(path).relative_to(self._folder)

    def _file(self, descriptor: Descriptor) -> Path | None:
        """Return which file of our disk is open; None also where it has no name any more."""
        return None if descriptor.is_deleted else self._inside(descriptor.path)

    # --- calls on open files

    def _opened(self, call: Call) -> Iterator[Event]:
        path = self._inside(call.paths()[0])
        if path is None:
            return
        if b"O_TMPFILE" in call.text:
            raise TraceError(f"a file without a name in {path}")
        self._positions[self._process(call), call.result or 0] = 0
        is_there = path in self._known
        if b"O_CREAT" in call.text and not is_there:
            self._known.add(path)
            yield Made(path, is_directory=False)
        elif b"O_TRUNC" in call.text or b"O_APPEND" in call.text:
            raise TraceError(f"a file that was there is cut or appended to: {path}")

    def _process(self, call: Call) -> int:
        return self._processes.get(call.thread, call.thread)

    def _moved(self, call: Call) -> None:
        descriptor = call.descriptors()[0]
        if self._file(descriptor) is not None:
            self._positions[self._process(call), descriptor.number] = call.result or 0

    def _written(self, call: Call, ended: list[int]) -> Iterator[Event]:
        descriptor = call.descriptors()[0]
        if descriptor.path == self._told:
            yield Told(json.loads(b"".join(call.strings())))
            return
        path = self._file(descriptor)
        if path is None:
            return
        data = b"".join(call.strings())[: call.result]
        offset = self._offset(call, descriptor, len(data))
        yield Written(path, offset, data)
        if b"RWF_DSYNC" in call.text or b"RWF_SYNC" in call.text:
            yield Synced(path, len(ended), range(offset, offset + len(data)))

    def _offset(self, call: Call, descriptor: Descriptor, size: int) -> int:
        if call.name == "pwrite64":
            return call.numbers()[1]
        if call.name.startswith("pwritev"):
            return call.numbers()[2]
        position = (self._process(call), descriptor.number)
        if position not in self._positions:
            raise TraceError(f"nobody saw where {descriptor.path} stands")
        offset = self._positions[position]
        self._positions[position] = offset + size
        return offset

    def _synced(self, call: Call, ended: list[int]) -> Iterator[Event]:
        path = self._file(call.descriptors()[0])
        if path is not None:
            yield Synced(path, bisect_left(ended, call.began))

    # --- calls on names

    def _named(self, call: Call) -> Iterator[Event]:
        found = [self._inside(path) for path in call.paths()]
        inside = [path for path in found if path is not None]
        if not inside:
            return
        if len(inside) != len(found) or _RENAME_EXCHANGE in call.text:
            raise TraceError(f"{call.name} between our disk and another: {call.paths()}")
        yield self._naming(call.name, inside)

    def _naming(self, name: str, paths: list[Path]) -> Event:
        if name.startswith("mkdir"):
            self._known.add(paths[0])
            return Made(paths[0], is_directory=True)
        if name.startswith("link"):
            self._known.add(paths[1])
            return Linked(*paths)
        if name.startswith("rename"):
            self._known = {_moved(path, *paths) for path in self._known}
            return Renamed(*paths)
        self._known.discard(paths[0])
        return Removed(paths[0])

    def _refuse_change(self, call: Call) -> None:
        """Let a call that we cannot replay pass where it is not about our disk."""
        paths = [*call.paths(), *(descriptor.path for descriptor in call.descriptors())]
        touched = [path for path in paths if self._inside(path) is not None]
        if touched and not (call.name == "ioctl" and b"FICLONE" not in call.text):
            raise TraceError(f"{call.name} on {touched}: nobody here can replay it")


def _moved(path: Path, old: Path, new: Path) -> Path:
    return new / path.relative_to(old) if path.is_relative_to(old) else path


_FORKS = frozenset({"clone", "clone3", "fork", "vfork"})
_OPENS = frozenset({"open", "openat", "openat2", "creat"})
_WRITES = frozenset({"write", "writev", "pwrite64", "pwritev", "pwritev2"})
_SYNCS = frozenset({"fsync", "fdatasync"})
_NAMINGS = frozenset(
    {
        *("mkdir", "mkdirat", "rmdir", "unlink", "unlinkat", "rename", "renameat", "renameat2"),
        *("link", "linkat"),
    }
)
_REFUSED = frozenset(
    {
        *("symlink", "symlinkat", "mknod", "mknodat", "truncate", "ftruncate", "fallocate"),
        *("copy_file_range", "sendfile", "splice", "ioctl", "msync"),
    }
)
TRACED = sorted(_FORKS | _OPENS | _WRITES | _SYNCS | _NAMINGS | _REFUSED | {"lseek"})
"""What strace has to record."""
