"""Post: what a process of the soak is told, as one argument, and where its files are."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Self

from proof.soak.tally import Tally


@dataclass(frozen=True)
class Post:
    """One process's place in the crew.

    `number` is no other process's of the soak, also of none that was killed; `run` counts the
    rounds, and `begun` is when its round began, by the monotonic clock of the machine. `mirror`
    is the URL of the store's bucket, if it has one.
    """

    role: str
    folder: str
    seed: int
    number: int
    run: int
    begun: float
    mirror: str = ""

    def told(self) -> str:
        """Return it as an argument."""
        return json.dumps(asdict(self))

    @classmethod
    def of(cls, told: str) -> Self:
        """Return what `told` made."""
        return cls(**json.loads(told))

    @property
    def root(self) -> Path:
        """The store."""
        return root_of(Path(self.folder))

    @property
    def acknowledged(self) -> Path:
        """What the bank's writers were told is durable."""
        return acknowledged_of(Path(self.folder))

    @property
    def stocked(self) -> Path:
        """What the stock clients were told is committed."""
        return Path(self.folder) / "stocked"

    @property
    def shipped(self) -> Path:
        """What the owner was told is in the bucket."""
        return Path(self.folder) / "shipped"

    @property
    def journal(self) -> Path:
        """What this process's players saw."""
        return Path(self.folder) / f"journal-{self.run}-{self.number}"

    @property
    def tagged(self) -> Path:
        """What the bank was when a tag was set."""
        return Path(self.folder) / "tagged"

    @property
    def url(self) -> Path:
        """Where the owner's server is."""
        return Path(self.folder) / "url"

    @cached_property
    def tally(self) -> Tally:
        """Where it counts what it did."""
        return Tally(tally_of(Path(self.folder)))


def root_of(folder: Path) -> Path:
    """Return where a soak's store is."""
    return folder / "bank"


def acknowledged_of(folder: Path) -> Path:
    """Return where the bank's writers note what was acknowledged."""
    return folder / "acknowledged"


def tally_of(folder: Path) -> Path:
    """Return where a soak counts."""
    return folder / "tally"


def environment_of(failpoints: str | None) -> Mapping[str, str]:
    """Return what a process has in its environment so that it dies at a failpoint."""
    return {"SILTSTONE_FAILPOINTS": failpoints} if failpoints else {}
