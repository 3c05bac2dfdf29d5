"""A log in a simulated bucket, the processes that write it, and what its next reader finds."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field

from siltstone.errors import FencedError, UnavailableError
from siltstone.formats.log.log_object import BEGINNING, LoggedGroup, LogPlace
from siltstone.storage.objects.log.claim import TakenOver, take_over
from siltstone.storage.objects.log.log import ObjectLog
from siltstone.storage.objects.log.retire import Retirer
from siltstone.storage.objects.log.writer import LogWriter
from siltstone.storage.objects.objects import Objects
from siltstone.storage.objects.server import BucketServer
from siltstone.units import Seq
from tests.support.simulated_objects import SimBucket, SimServer

_tokens = itertools.count(1)


def new_token() -> bytes:
    return next(_tokens).to_bytes(16, "big")


def log_at(server: BucketServer) -> ObjectLog:
    """Return the log as a process sees it, which gives a request up soon."""
    ticks = itertools.count()
    return ObjectLog(Objects(server, "tests", lambda: float(next(ticks)), lambda _: None))


def group(seq: int, text: str, count: int = 1) -> LoggedGroup:
    return LoggedGroup(Seq(seq), Seq(seq + count - 1), memoryview(text.encode()))


def texts(groups: Iterable[LoggedGroup]) -> list[tuple[int, str]]:
    return [(each.first_seq, bytes(each.payload).decode()) for each in groups]


@dataclass
class Bucket:
    """A bucket, with the newest record of its chain: where the log begins, and what it holds."""

    objects: SimBucket = field(default_factory=SimBucket)
    floor: LogPlace = BEGINNING
    held: list[tuple[int, str]] = field(default_factory=list)

    def server(self) -> SimServer:
        return SimServer(self.objects, below="shop/")

    def content(self) -> list[tuple[int, str]]:
        """Return all commits, as the next process that takes the log over finds them."""
        log = log_at(self.server())
        found = take_over(log, lambda: self.floor, new_token())
        last = self.held[-1][0] if self.held else 0
        frames = [each for frame in found.frames for each in log.groups(frame)]
        return self.held + [each for each in texts(frames) if each[0] > last]


@dataclass
class Process:
    """A process that takes the log over, and appends commits of its own name."""

    name: str
    bucket: Bucket
    server: SimServer
    told: list[tuple[int, str]] = field(default_factory=list)
    """What was acknowledged."""
    refused: list[tuple[int, str]] = field(default_factory=list)
    """What is not in the log, for good."""

    known: list[tuple[int, str]] = field(default_factory=list)
    epoch: int = 0
    _writer: LogWriter | None = None

    def run(self, count: int, *, publishes: bool = False) -> None:
        """Append `count` commits, and have a record of the first ones; end where others go on."""
        log = log_at(self.server)
        try:
            found = take_over(log, lambda: self.bucket.floor, new_token())
        except (FencedError, UnavailableError):
            return
        self.known, self.epoch, self._writer = self._known(log, found), found.epoch, found.writer
        for _ in range(count):
            if not self.append():
                return
            if publishes and len(self.told) == 2:
                self._publish(log, self.known, found.writer.at)

    def append(self) -> bool:
        """Append a commit; say whether it was acknowledged."""
        assert self._writer is not None
        made = self.known[-1][0] + 1 if self.known else 1, self.name
        try:
            _settle(self._writer, group(*made))
        except FencedError:
            self.refused.append(made)
            return False
        except UnavailableError:
            return False
        self.known.append(made)
        self.told.append(made)
        return True

    def _known(self, log: ObjectLog, found: TakenOver) -> list[tuple[int, str]]:
        frames = [each for frame in found.frames for each in log.groups(frame)]
        held = list(self.bucket.held)
        last = held[-1][0] if held else 0
        return held + [each for each in texts(frames) if each[0] > last]

    def _publish(self, log: ObjectLog, known: list[tuple[int, str]], floor: LogPlace) -> None:
        if len(self.bucket.held) < len(known):
            self.bucket.floor, self.bucket.held = floor, list(known)
            with suppress(UnavailableError):  # the next one deletes them
                Retirer(log).retire(floor)


def _settle(writer: LogWriter, made: LoggedGroup) -> None:
    """Append a commit, however often its put has no answer."""
    try:
        writer.append([made])
    except UnavailableError:
        writer.again()


@dataclass
class SleepyServer(SimServer):
    """A server whose process sleeps at some requests: before it, or before it hears the answer."""

    asleep: dict[int, Callable[[], object]] = field(default_factory=dict)
    is_behind: bool = False

    def _do(
        self, what: str, request: Callable[[], object], *, has_condition: bool = False
    ) -> object:
        meanwhile = self.asleep.pop(len(self.trace) + 1, None)
        if meanwhile is not None and not self.is_behind:
            meanwhile()
        try:
            return super()._do(what, request, has_condition=has_condition)
        finally:
            if meanwhile is not None and self.is_behind:
                meanwhile()
