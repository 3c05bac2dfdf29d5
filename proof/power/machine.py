"""Machine: a simulated disk on which the events of a trace happen again, one by one."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from proof.power.calls import TraceError
from proof.power.events import Event, Linked, Made, Removed, Renamed, Synced, Told, Written
from tests.support.simulated_disk import Disk, Node, Write

Answers = dict[str, object]


@dataclass(slots=True)
class Word:
    """What the process told so far.

    `acknowledged` is the last seq that it called durable, or showed to a reader of a recovered
    store; `begun` the last one that it may have written. `phase` names what it is about.
    """

    acknowledged: int = 0
    begun: int = 0
    phase: str = ""
    is_counting: bool = False
    answers: dict[str, Answers] = field(default_factory=dict[str, Answers])

    def hear(self, fields: dict[str, object]) -> None:
        """Take in one line of the process."""
        for name in ("acknowledged", "begun"):
            told = fields.get(name)
            if isinstance(told, int):
                setattr(self, name, max(told, getattr(self, name)))
        self.phase = str(fields.get("phase", self.phase))
        self.is_counting = bool(fields.get("is_counting", self.is_counting))
        answers = fields.get("answers")
        if isinstance(answers, dict):
            self.answers.update(answers)


@dataclass(frozen=True, slots=True)
class Moment:
    """The disk after the first `number` events, and what was told before the next change."""

    number: int
    what: str
    disk: Disk
    acknowledged: int
    begun: int
    phase: str


class Machine:
    """Goes through events. A `Moment` shares its disk: it is over when the next one comes."""

    def __init__(self, events: Sequence[Event]) -> None:
        self._events = events
        self.word = Word()
        self.disk = Disk()

    def moments(self) -> Iterator[Moment]:
        """Yield each moment at which the disk has just changed, from where the process says so on.

        Raises:
            TraceError: The events do not fit the disk.
        """
        clocks = [0]
        for number, event in enumerate(self._events, 1):
            if isinstance(event, Told):
                self.word.hear(dict(event.fields))
            else:
                self._happen(event, clocks)
            clocks.append(self.disk.clock)
            is_last = number == len(self._events)
            if self.word.is_counting and (is_last or not isinstance(self._events[number], Told)):
                yield self._moment(number, event)

    def _moment(self, number: int, event: Event) -> Moment:
        word = self.word
        return Moment(number, _named(event), self.disk, word.acknowledged, word.begun, word.phase)

    def _happen(self, event: Event, clocks: Sequence[int]) -> None:
        disk = self.disk
        try:
            if isinstance(event, Made):
                disk.make(event.path, Node(names={} if event.is_directory else None))
            elif isinstance(event, Written):
                disk.apply(Write(disk.file(event.path), event.offset, event.data))
            elif isinstance(event, Synced):
                disk.sync(disk.inode(event.path), before=clocks[event.began], within=event.within)
            elif isinstance(event, Renamed):
                disk.rename(event.old, event.new)
            elif isinstance(event, Linked):
                disk.link(event.old, event.new)
            elif isinstance(event, Removed):
                disk.remove(event.path)
        except OSError as error:
            raise TraceError(f"{_named(event)}: {error}") from error


def _named(event: Event) -> str:
    if isinstance(event, Told):
        return "told"
    path = event.new if isinstance(event, Renamed | Linked) else event.path
    return f"{type(event).__name__.lower()} {path}"


def require_same(disk: Disk, folder: Path) -> None:
    """See that a disk is what really lies in `folder`: else the account has a gap.

    Raises:
        TraceError: It is not.
    """
    told = dict(disk.tree())
    for path, directories, names in os.walk(folder):
        at = path.removeprefix(str(folder))
        found: dict[str, bytes | None] = {f"{at}/{name}": None for name in directories}
        found |= {f"{at}/{name}": (Path(path) / name).read_bytes() for name in names}
        for name, content in found.items():
            if name not in told or told.pop(name) != content:
                raise TraceError(f"{name} is not as the calls that were recorded made it")
    told.pop("", None)
    if told:
        raise TraceError(f"{sorted(told)} are not there, though nobody was seen removing them")
