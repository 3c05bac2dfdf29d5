"""Images: disks that a power cut may leave, chosen by a seed and told apart by their bytes."""

from __future__ import annotations

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
from siltstone.storage.simulated_disk import Disk, Survivors

_NOTHING, _EVERYTHING, _OTHERS = 0, 1, 2  # the order in which a disk yields its survivors
_ROUNDS_MAX = 6


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
    """How many disks there are to choose from: per moment, equal ones counted again."""

    counts: Mapping[int, int]

    @property
    def disks(self) -> int:
        """How many there are over all moments."""
        return sum(self.counts.values())


def space_of(events: Sequence[Event], seed: int) -> Space:
    """Count what may be left at each moment."""
    return Space(
        {
            moment.number: sum(1 for _ in _survivors(moment, seed))
            for moment in Machine(events).moments()
        }
    )


def every(events: Sequence[Event], seed: int) -> Iterator[Image]:
    """Yield each different image, in the order of the moments."""
    picks = {number: range(count) for number, count in space_of(events, seed).counts.items()}
    yield from _distinct(events, picks, seed, set())


def sample(events: Sequence[Event], seed: int, count: int) -> Iterator[Image]:
    """Yield `count` different images, or fewer where chance finds no more.

    All moments are alike; at each, nothing unsynced and all of it come more often than others.
    """
    space, rng, seen = space_of(events, seed), random.Random(seed), set[bytes]()
    for _ in range(_ROUNDS_MAX):
        picks: dict[int, set[int]] = defaultdict(set)
        for _ in range(count - len(seen)):
            number = rng.choice([*space.counts])
            picks[number].add(_picked(rng, space.counts[number]))
        yield from _distinct(events, picks, seed, seen)


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


def _picked(rng: random.Random, count: int) -> int:
    chance = rng.random()
    if chance < 0.3 or count <= _OTHERS:
        return _NOTHING
    return _EVERYTHING if chance < 0.4 else rng.randrange(_OTHERS, count)


def _distinct(
    events: Sequence[Event],
    picks: Mapping[int, Sequence[int] | set[int]],
    seed: int,
    seen: set[bytes],
) -> Iterator[Image]:
    for moment in Machine(events).moments():
        wanted = picks.get(moment.number, ())
        if not wanted:
            continue
        for index, (label, steps) in enumerate(_survivors(moment, seed)):
            if index in wanted:
                image = _image(moment, label, moment.disk.after(steps))
                digest = _digest(image)
                if digest not in seen:
                    seen.add(digest)
                    yield image


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
