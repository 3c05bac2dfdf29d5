"""Images: disks that a power cut may leave, chosen by a seed and told apart by their bytes."""

from __future__ import annotations

import itertools
import os
import random
import zlib
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import xxhash

from proof.power.events import Event
from proof.power.machine import Machine, Moment
from tests.support.simulated_disk import Disk, Step, Survivors

_NOTHING, _EVERYTHING, _OTHERS = 0, 1, 2  # the order in which a disk yields its survivors
_NOTHING_SHARE, _EVERYTHING_SHARE = 0.3, 0.1
_ROUNDS_MAX = 12


@dataclass(frozen=True, slots=True)
class Image:
    """What the power cut after `number` events left, and what had been told by then."""

    number: int
    what: str
    label: str
    phase: str
    acknowledged: int
    begun: int
    disk: Disk

    @property
    def chance(self) -> int:
        """A number that is its own: which of several ways it is checked is up to it."""
        return zlib.crc32(f"{self.number} {self.label}".encode())

    def lay_out(self, folder: Path) -> None:
        """Make the disk in a new folder; files with several names have them there, too."""
        laid: dict[int, Path] = {}
        stack = [(self.disk.inode(Path("/")), folder)]
        while stack:
            inode, path = stack.pop()
            node = self.disk.node(inode)
            if node.names is not None:
                path.mkdir()
                stack += [(child, path / name) for name, child in node.names.items()]
            elif inode in laid:
                os.link(laid[inode], path)
            else:
                path.write_bytes(node.cached)
                laid[inode] = path


@dataclass(frozen=True, slots=True)
class Space:
    """How many moments there are, and how many disks at all of them; equal ones counted again."""

    moments: int
    disks: int


def space_of(events: Sequence[Event], seed: int) -> Space:
    """Count what may be left at each moment."""
    counts = [_count(_survivors(moment, seed)) for moment in Machine(events).moments()]
    return Space(len(counts), sum(counts))


def every(events: Sequence[Event], seed: int) -> Iterator[Image]:
    """Yield each different image, in the order of the moments."""
    seen: set[bytes] = set()
    for moment in Machine(events).moments():
        for label, steps in _survivors(moment, seed):
            yield from _new(moment, label, steps, seen)


def sample(events: Sequence[Event], seed: int, count: int) -> Iterator[Image]:
    """Yield `count` different images, or fewer where chance finds no more.

    First of all what is left of nothing unsynced just behind an acknowledgement. Then all moments
    are alike; at each, nothing unsynced and all of it come more often than others.
    """
    told = [(moment.number, moment.acknowledged) for moment in Machine(events).moments()]
    numbers = [number for number, _ in told]
    rng, seen = random.Random(seed), set[bytes]()
    first = [now[0] for before, now in itertools.pairwise(told) if before[1] < now[1]]
    chosen = rng.sample(first, min(len(first), count // 2))
    for _ in range(_ROUNDS_MAX if numbers else 0):
        picks: dict[int, list[float]] = defaultdict(list)
        picks.update({number: [0.0] for number in chosen})
        chosen = []
        for _ in range(count - len(seen) - len(picks)):
            picks[rng.choice(numbers)].append(rng.random())
        if not picks:
            return
        yield from _picked(events, picks, seed, seen)


def ends(events: Sequence[Event], seed: int) -> Iterator[Image]:
    """Yield what is left of nothing unsynced at the end of each phase.

    A step that returned has synced all that it promised: what one sync too few loses is lost here,
    and the syncs of the next step have not made up for it yet.
    """
    told = [(moment.number, moment.phase) for moment in Machine(events).moments()]
    last = [now[0] for now, after in itertools.pairwise([*told, (0, None)]) if now[1] != after[1]]
    yield from _picked(events, {number: [0.0] for number in last}, seed, set())


def one(events: Sequence[Event], seed: int, number: int, label: str) -> Image:
    """Return one image again.

    Raises:
        KeyError: There is none of that label after so many events.
    """
    for moment in Machine(events).moments():
        if moment.number == number:
            for name, steps in _survivors(moment, seed):
                if name == label:
                    return _image(moment, label, moment.disk.after(steps))
    raise KeyError(f"no image {label!r} after {number} events")


def _picked(
    events: Sequence[Event], picks: Mapping[int, Sequence[float]], seed: int, seen: set[bytes]
) -> Iterator[Image]:
    for moment in Machine(events).moments():
        chances = picks.get(moment.number)
        if chances is None:
            continue
        survivors = list(_survivors(moment, seed))
        for index in sorted({_index(chance, len(survivors)) for chance in chances}):
            yield from _new(moment, *survivors[index], seen)


def _index(chance: float, count: int) -> int:
    """Return which of `count` survivors a number from 0 to 1 stands for."""
    if chance < _NOTHING_SHARE or count <= _OTHERS:
        return _NOTHING
    if chance < _NOTHING_SHARE + _EVERYTHING_SHARE:
        return _EVERYTHING
    rest = (chance - _NOTHING_SHARE - _EVERYTHING_SHARE) / (1 - _NOTHING_SHARE - _EVERYTHING_SHARE)
    return min(_OTHERS + int(rest * (count - _OTHERS)), count - 1)


def _new(moment: Moment, label: str, steps: Sequence[Step], seen: set[bytes]) -> Iterator[Image]:
    """Yield an image unless an equal one was seen."""
    image = _image(moment, label, moment.disk.after(steps))
    digest = _digest(image)
    if digest not in seen:
        seen.add(digest)
        yield image


def _count(survivors: Survivors) -> int:
    return sum(1 for _ in survivors)


def _survivors(moment: Moment, seed: int) -> Survivors:
    return moment.disk.survivors(random.Random(f"{seed}/{moment.number}"))


def _image(moment: Moment, label: str, disk: Disk) -> Image:
    return Image(
        number=moment.number,
        what=moment.what,
        label=label,
        phase=moment.phase,
        acknowledged=moment.acknowledged,
        begun=moment.begun,
        disk=disk,
    )


def _digest(image: Image) -> bytes:
    """Tell images apart that have other bytes, or are held to other promises."""
    hashed = xxhash.xxh3_128(f"{image.acknowledged} {image.begun}".encode())
    for path, content in image.disk.tree():
        hashed.update(f"{path}\0{-1 if content is None else len(content)}\0".encode())
        hashed.update(content or b"")
    return hashed.digest()
