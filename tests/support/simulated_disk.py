"""Disk: directories and files in memory, of which a power cut spares only what was synced.

    what processes see        `cached` of a file, `names` of a directory
    what a power cut spares   `durable`, `durable_names`, and any part of the unsynced steps

Every unsynced step (bytes written, name set, name removed, renamed) lies in one list in its order.
A file's sync folds its writes into the durable state, a directory's sync its names. A failed sync
drops the writes: still readable, never durable (Rebello, ATC 2020). `images` lists the disks that a
power cut may leave. That is weaker than any journaling file system: what stands here stands on
ext4, XFS and Btrfs. No lock: `SimFiles` holds one.
"""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

SECTOR_BYTES = 512
_ROOT = 1
_RANDOM_SUBSETS = 8

Tree = tuple[tuple[str, bytes | None], ...]


@dataclass(frozen=True, slots=True)
class Write:
    """Bytes written to the file `inode`."""

    inode: int
    offset: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Naming:
    """In the directory `inode`, `removed` goes and then `name` (if any) means `target`."""

    inode: int
    name: str | None = None
    target: int = 0
    removed: str | None = None


Step = Write | Naming
Survivors = Iterator[tuple[str, Sequence[Step]]]


@dataclass(frozen=True, slots=True)
class Node:
    """A file, or a directory when `names` is not None. Copies of a disk share what is alike."""

    cached: bytes = b""
    durable: bytes = b""
    names: Mapping[str, int] | None = None
    durable_names: Mapping[str, int] = field(default_factory=dict[str, int])
    mtime: float = 0.0
    is_removed: bool = False


def handle_of(inode: int) -> Path:
    """Return a path that begins at a directory, wherever it is now."""
    return Path(f"/#{inode}")


class Disk:
    """See the module. Paths are absolute; `inode` numbers are never used again."""

    def __init__(self, nodes: dict[int, Node] | None = None, unsynced: Sequence[Step] = ()) -> None:
        self._nodes = nodes or {_ROOT: Node(names={})}
        self._next_inode = max(self._nodes) + 1
        self._unsynced = list(enumerate(unsynced))
        self._clock = len(self._unsynced)

    # --- what processes see

    def find(self, path: Path) -> int | None:
        inode, parts = _ROOT, path.parts[1:] if path.is_absolute() else path.parts
        if parts and parts[0].startswith("#"):
            inode, parts = int(parts[0][1:]), parts[1:]
        for part in parts:
            names = self._nodes[inode].names
            if names is None or part not in names:
                return None
            inode = names[part]
        return inode

    def inode(self, path: Path) -> int:
        inode = self.find(path)
        if inode is None:
            raise _os_error(FileNotFoundError, errno.ENOENT, path)
        return inode

    def is_named(self, inode: int) -> bool:
        """Return whether any directory has a name for the file."""
        return any(inode in (node.names or {}).values() for node in self._nodes.values())

    def node(self, inode: int) -> Node:
        return self._nodes[inode]

    def touch(self, inode: int, mtime: float) -> None:
        self._nodes[inode] = replace(self._nodes[inode], mtime=mtime)

    def file(self, path: Path) -> int:
        inode = self.inode(path)
        if self._nodes[inode].names is not None:
            raise _os_error(IsADirectoryError, errno.EISDIR, path)
        return inode

    def directory(self, path: Path) -> int:
        self.names(path)
        return self.inode(path)

    def names(self, path: Path) -> Mapping[str, int]:
        names = self._nodes[self.inode(path)].names
        if names is None:
            raise _os_error(NotADirectoryError, errno.ENOTDIR, path)
        return names

    def refuse_taken(self, path: Path) -> None:
        if self.find(path) is not None:
            raise _os_error(FileExistsError, errno.EEXIST, path)

    def tree(self) -> Tree:
        """Return every path with its content (None: a directory), sorted."""
        found: list[tuple[str, bytes | None]] = []
        stack = [(_ROOT, "")]
        while stack:
            inode, path = stack.pop()
            node = self._nodes[inode]
            found.append((path, node.cached if node.names is None else None))
            stack.extend((child, f"{path}/{name}") for name, child in (node.names or {}).items())
        return tuple(sorted(found))

    # --- changes

    def make(self, path: Path, node: Node) -> int:
        """Give a new file or directory its name."""
        self.refuse_taken(path)
        parent = self._living(path.parent)
        inode, self._next_inode = self._next_inode, self._next_inode + 1
        self._nodes[inode] = node
        self.apply(Naming(parent, path.name, inode))
        return inode

    def rename(self, old: Path, new: Path) -> None:
        source, target, inode = (
            self.directory(old.parent),
            self._living(new.parent),
            self.inode(old),
        )
        if self._nodes[inode].names is None and self.find(new) is not None:
            self.file(new)
        if source == target:
            self.apply(Naming(source, new.name, inode, removed=old.name))
        else:  # two journals in the worst case: a power cut may keep either half
            self.apply(Naming(target, new.name, inode))
            self.apply(Naming(source, removed=old.name))

    def remove(self, path: Path) -> None:
        self.apply(Naming(self.directory(path.parent), removed=path.name))

    def link(self, old: Path, new: Path) -> None:
        inode = self.file(old)
        self.refuse_taken(new)
        self.apply(Naming(self._living(new.parent), new.name, inode))

    def remove_directory(self, path: Path) -> None:
        """Take the name of a directory away: nothing can be made in it any more."""
        inode = self.directory(path)
        self._nodes[inode] = replace(self._nodes[inode], is_removed=True)
        self.remove(path)

    def _living(self, path: Path) -> int:
        inode = self.directory(path)
        if self._nodes[inode].is_removed:
            raise _os_error(FileNotFoundError, errno.ENOENT, path)
        return inode

    def apply(self, step: Step) -> None:
        """Let processes see a step, and remember that it is not durable."""
        node = self._nodes[step.inode]
        if isinstance(step, Write):
            content = _overwritten(node.cached, step.offset, step.data)
            self._nodes[step.inode] = replace(node, cached=content)
        elif node.names is not None:
            self._nodes[step.inode] = replace(node, names=_renamed(node.names, step))
        self._unsynced.append((self._clock, step))
        self._clock += 1

    @property
    def clock(self) -> int:
        """How many steps were applied so far."""
        return self._clock

    def sync(self, inode: int, *, before: int | None = None, within: range | None = None) -> None:
        """Make the steps on a file or a directory durable.

        Args:
            inode: Of the file or directory.
            before: What `clock` was when the sync began: it says nothing of later steps.
            within: The bytes of the file that are synced; a write that is partly elsewhere is not.
        """
        end = self._clock if before is None else before
        covered = [
            (at, step)
            for at, step in self._unsynced
            if step.inode == inode and at < end and (within is None or _is_within(step, within))
        ]
        for _, step in covered:
            _keep(self._nodes, step)
        done = {at for at, _ in covered}
        self._unsynced = [(at, step) for at, step in self._unsynced if at not in done]

    def fail_sync(self, inode: int) -> None:
        """Mark the file's dirty pages clean without writing them."""
        self._unsynced = [
            (at, s) for at, s in self._unsynced if not (isinstance(s, Write) and s.inode == inode)
        ]

    def stored(self, inode: int) -> bytes:
        """Return the file without what a failed sync left of it in memory alone."""
        content = self._nodes[inode].durable
        for _, step in self._unsynced:
            if isinstance(step, Write) and step.inode == inode:
                content = _overwritten(content, step.offset, step.data)
        return content

    # --- power

    def killed(self) -> Disk:
        """Return a copy as after a SIGKILL of all processes: nothing lost, nothing more durable."""
        return Disk(dict(self._nodes), [step for _, step in self._unsynced])

    def images(self, rng: random.Random) -> Iterator[tuple[str, Disk]]:
        """Yield (label, disk) for the different disks that a power cut now may leave.

        The likely ones first: nothing and everything unsynced; a torn last write; names without
        content and content without names; sizes without bytes; prefixes; one step lost; and random
        subsets, chosen by `rng`.
        """
        seen: set[Tree] = set()
        for label, steps in self.survivors(rng):
            disk = self.after(steps)
            tree = disk.tree()
            if tree not in seen:
                seen.add(tree)
                yield label, disk

    def survivors(self, rng: random.Random) -> Survivors:
        """Yield (label, steps): which unsynced steps a power cut now may spare; see `images`.

        The same set may come twice. Cheap, where few of many disks are wanted: `after` makes them.
        """
        return _survivors(tuple(step for _, step in self._unsynced), rng)

    def after(self, steps: Sequence[Step]) -> Disk:
        """Return the disk after a power cut that spares `steps` of the unsynced ones."""
        nodes = dict(self._nodes)
        for step in steps:
            _keep(nodes, step)
        return Disk({inode: _restarted(node) for inode, node in nodes.items()})


def _is_within(step: Step, bytes_of: range) -> bool:
    if not isinstance(step, Write):
        return False
    return bytes_of.start <= step.offset and step.offset + len(step.data) <= bytes_of.stop


def _keep(nodes: dict[int, Node], step: Step) -> None:
    """Make a step durable."""
    node = nodes[step.inode]
    if isinstance(step, Write):
        content = _overwritten(node.durable, step.offset, step.data)
        nodes[step.inode] = replace(node, durable=content)
    else:
        nodes[step.inode] = replace(node, durable_names=_renamed(node.durable_names, step))


def _restarted(node: Node) -> Node:
    """Return what of a file or directory is there after a power cut."""
    names = None if node.names is None else node.durable_names
    return Node(node.durable, node.durable, names, node.durable_names, node.mtime)


def _os_error(kind: type[OSError], number: int, path: Path) -> OSError:
    return kind(number, os.strerror(number), str(path))


def _overwritten(content: bytes, offset: int, data: bytes) -> bytes:
    before = content[:offset]
    if data:
        before = before.ljust(offset, b"\0")
    return b"".join([before, data, content[offset + len(data) :]])


def _renamed(names: Mapping[str, int], step: Naming) -> dict[str, int]:
    after = dict(names)
    if step.removed is not None:
        after.pop(step.removed, None)
    if step.name is not None:
        after[step.name] = step.target
    return after


def _survivors(steps: tuple[Step, ...], rng: random.Random) -> Survivors:
    """Yield which unsynced steps a power cut may spare; the same set may come twice."""
    yield "nothing unsynced", ()
    yield "everything", steps
    yield from _torn(steps)
    names = [step for step in steps if isinstance(step, Naming)]
    writes = [step for step in steps if isinstance(step, Write)]
    yield "names alone", names
    yield "content alone", writes
    yield "sizes, not bytes", [_blank(step) for step in steps]
    for count in range(1, len(steps)):
        yield f"the first {count} of {len(steps)} steps", steps[:count]
    for lost in range(len(steps)):
        yield f"all but step {lost + 1} of {len(steps)}", steps[:lost] + steps[lost + 1 :]
    if len(steps) > 2:
        for number in range(_RANDOM_SUBSETS):
            kept = [step for step in steps if rng.random() < 0.5]
            yield f"random subset {number}", kept


def _blank(step: Step) -> Step:
    return replace(step, data=bytes(len(step.data))) if isinstance(step, Write) else step


def _torn(steps: tuple[Step, ...]) -> Survivors:
    """Yield all steps with the last write torn: cut, cut and zero filled, without its beginning."""
    last = next((n for n in reversed(range(len(steps))) if isinstance(steps[n], Write)), None)
    if last is None:
        return
    step = steps[last]
    if not isinstance(step, Write):
        return
    size = len(step.data)
    sectors = range(SECTOR_BYTES - step.offset % SECTOR_BYTES, size, SECTOR_BYTES)
    for cut in sorted({1, size // 2, size - 1, *sectors[:2], *sectors[-2:]} - {0, size}):
        head, tail = step.data[:cut], step.data[cut:]
        for how, data, at in (
            ("cut", head, 0),
            ("zeros", head + bytes(len(tail)), 0),
            ("headless", tail, cut),
        ):
            torn = replace(step, data=data, offset=step.offset + at)
            yield f"last write {how} at {cut} of {size}", (*steps[:last], torn, *steps[last + 1 :])
