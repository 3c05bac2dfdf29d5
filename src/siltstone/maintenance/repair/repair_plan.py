"""Repair plan: what a repair is to do, step by step, and what is told of it."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field

from siltstone.formats.manifest import KeyedStorage, Record
from siltstone.maintenance.repair.quarantine import Item
from siltstone.maintenance.repair.verify import Finding


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a repair: its file, the damage, the action."""

    path: str
    wrong: str
    done: str

    def __str__(self) -> str:
        return f"{self.path}: {self.wrong} -> {self.done}"


@dataclass(frozen=True, slots=True)
class Repaired:
    """The steps of a repair, and the damage that it cannot repair: restore it from a backup.

    `quarantine` is the folder with the moved files, "" for none.
    """

    is_dry_run: bool
    steps: tuple[Step, ...]
    unproven: tuple[Finding, ...]
    quarantine: str = ""

    @property
    def is_whole(self) -> bool:
        """Whether no damage is left."""
        return not self.unproven

    def to_dict(self) -> dict[str, object]:
        """Return the result as plain values."""
        return {**asdict(self), "is_whole": self.is_whole}

    def __str__(self) -> str:
        verb = "would repair" if self.is_dry_run else "repaired"
        lines = [f"{verb} {len(self.steps)} things, {len(self.unproven)} cannot be repaired"]
        return "\n".join([*lines, *map(str, self.steps), *map(str, self.unproven)])


@dataclass(frozen=True, slots=True)
class RecordCopy:
    """An older record that is to do without some bases, or without indexes of some."""

    record: Record
    wrong: str
    broken: tuple[KeyedStorage, ...]
    unindexed: tuple[KeyedStorage, ...]


@dataclass(slots=True)
class RepairPlan:
    """What to do: the FLOOR to write, the record to publish, the files to move aside.

    `broken` are bases to begin again, empty, `unindexed` those to go on without the segments of
    indexes that are `rotten`; `copies` of older records and the files `late` go when that is
    published. Files of the datasets `united` get their second names again. The records of jobs
    that are `dead` are nobody's: an owner may be there.
    """

    floor: int | None = None
    base: Record | None = None
    epoch: int = 0
    top: int = 0
    broken: tuple[KeyedStorage, ...] = ()
    unindexed: tuple[KeyedStorage, ...] = ()
    rotten: set[str] = field(default_factory=set)
    united: set[str] = field(default_factory=set)
    copies: list[RecordCopy] = field(default_factory=list)
    items: list[Item] = field(default_factory=list)
    late: list[Item] = field(default_factory=list)
    dead: list[Item] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    cured: set[str] = field(default_factory=set)

    @property
    def needs_owner(self) -> bool:
        return len(self.steps) > len(self.dead)

    def add(self, path: str, wrong: str, done: str) -> None:
        self.steps.append(Step(path, wrong, done))
        self.cured.add(path)
