"""Whoever died over a log in a bucket, it has no hole, unless an object of it is gone."""

from __future__ import annotations

import random
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise

import pytest

from siltstone.errors import CorruptionError, FencedError, SiltstoneError
from siltstone.formats.log.log_object import BEGINNING, LogObject, LogPlace
from siltstone.storage.objects.log.claim import take_over
from siltstone.storage.objects.log.log import LogWalk
from siltstone.storage.objects.log.retire import Retirer
from siltstone.storage.objects.log.writer import LogWriter
from tests.nightly import SEED, by_day
from tests.storage.objects.logs import Bucket, group, log_at, new_token, texts
from tests.support.simulated_objects import Fault, SimulatedKill

LIVES = by_day(40, 2_000)
KILLS = [Fault.KILLED_BEFORE, Fault.KILLED_AFTER]
Commits = list[tuple[int, str]]


def walked(bucket: Bucket) -> tuple[Commits, list[LogObject]]:
    """Return the commits that a reader finds, and the objects on its way."""
    log = log_at(bucket.server())
    walk, found, way = LogWalk(log, bucket.floor), Commits(), list[LogObject]()
    while (each := walk.step_to_the_end()) is not None:
        way.append(each)
        found += texts(log.groups(each)) if each.is_frame else ()
    return found, way


@dataclass
class Life:
    """A log of which owners write, retire and take over; and claimers die, with any floor."""

    rng: random.Random
    bucket: Bucket = field(default_factory=Bucket)
    floors: list[LogPlace] = field(default_factory=lambda: [BEGINNING])
    above: Commits = field(default_factory=list)
    seq: int = 0

    def __post_init__(self) -> None:
        self.writer = self.owner()

    def owner(self) -> LogWriter:
        floor = self.bucket.floor
        return take_over(log_at(self.bucket.server()), lambda: floor, new_token()).writer

    def write(self) -> None:
        try:
            self.writer.append([group(self.seq + 1, "x")])
        except FencedError:  # by who died after he had come another way
            self.take()
            return
        self.seq += 1
        self.above.append((self.seq, "x"))

    def retire(self) -> None:
        self.bucket.floor, self.above = self.writer.at, []
        self.floors.append(self.bucket.floor)
        most = self.rng.choice([1, 2, 100])  # deletes that others do not see yet
        Retirer(log_at(self.bucket.server())).retire(self.bucket.floor, most=most)

    def die(self) -> None:
        """Claim with a floor that may be one of before, and end somewhere."""
        stale = self.rng.choice(self.floors)
        floors = iter([stale] * self.rng.randrange(1, 3) + [self.bucket.floor])
        server = self.bucket.server()
        server.faults[self.rng.randrange(1, 40)] = self.rng.choice(KILLS)
        with suppress(StopIteration, SimulatedKill, SiltstoneError):
            take_over(log_at(server), lambda: next(floors), new_token())

    def take(self) -> None:
        """Become the owner, perhaps by a second look: with a floor of before at first."""
        late = [self.rng.choice(self.floors)] * self.rng.choice([0, 0, 1, 2])
        floors = iter(late)
        log = log_at(self.bucket.server())
        floor = lambda: next(floors, self.bucket.floor)  # noqa: E731
        self.writer = take_over(log, floor, new_token()).writer

    def step(self) -> None:
        what = self.rng.choice([self.write] * 3 + [self.retire, self.take] + [self.die] * 3)
        for _ in range(self.rng.randrange(1, 5) if what == self.die else 1):
            what()
        if what == self.die:
            assert walked(self.bucket)[0] == self.above
            self.take()  # who died may have ended the log of the owner


@pytest.mark.parametrize("shard", range(4))
def test_a_log_has_a_hole_where_an_object_is_gone_and_nowhere_else(shard: int) -> None:
    for number in range(shard, LIVES, 4):
        life = Life(random.Random(f"{SEED} {number}"))
        bucket = life.bucket
        for _ in range(life.rng.randrange(4, 14)):
            life.step()
            assert walked(bucket)[0] == life.above, number
        way = walked(bucket)[1]
        if any(behind.previous != each.checksum for each, behind in pairwise(way)):
            continue  # a fence of who came another way says nothing of what is before it
        for key in [f"shop/{each.place.key}" for each in way[:-1]]:
            gone = bucket.objects.objects.pop(key)
            with pytest.raises(CorruptionError, match=f"{key}.*missing"):
                walked(bucket)
            bucket.objects.objects[key] = gone
