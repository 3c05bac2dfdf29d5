"""Soak: rounds of everything at once and kills at random, and what is checked between them.

Each process of the crew (`crew`) checks what it sees. After each round a new owner has to show all
that was acknowledged, the histories of all clients have to be those of their levels, the store has
to be sound to its last byte, and once it is settled nothing may lie on disk that it does not need.
"""

from __future__ import annotations

import random
import shutil
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import siltstone as st
from proof.isolation import clients
from proof.isolation.journal import LEVELS, entries, judge
from proof.soak import bank, care, copies, guest, mirrored, nested, players, stock
from proof.soak.acknowledged import Acknowledged
from proof.soak.crew import FULL, Crew
from proof.soak.post import Post, root_of, tally_of
from proof.soak.tally import counted
from siltstone import admin
from siltstone.formats.manifest import pins_of
from siltstone.maintenance.gc.sweep import distinct
from siltstone.storage.tables.kept_names import public_of

ROUND_S = 120.0
CHECK_S = 15.0
"""About what beginning and checking take, of each round."""


WORK = {
    "owner": "tag",
    "watcher": "look",
    "reader": "look",
    "joined": "joined's turn",
    "remote": "remote's turn",
    "stock": "stock append",
    "guest": "guest",
    "optimizer": "optimizer",
    "merger": care.HIDDEN,
    "vacuum": "vacuum",
    "indexer": "indexer",
    "backup": "backup",
    "mirror": mirrored.RESTORED,
}
"""What a role that did its work has counted."""
QUIET = {"background": False, "retention": "0s"}
"""While the store is checked nothing happens by itself, and nothing becomes garbage with time."""


class SoakError(AssertionError):
    """Something is wrong; it says what repeats it, and where everything lies."""


class Soak:
    """One store, and what was done to it."""

    def __init__(
        self,
        folder: Path,
        seed: int,
        roles: Sequence[str] = FULL,
        round_s: float = ROUND_S,
        mirror: str = "",
    ) -> None:
        self.seed, self._round_s = seed, round_s
        self._roles = (*roles, *(["mirror"] if mirror else []))
        self._chance = random.Random(seed)
        self._post = Post(
            "", str(folder), seed, number=0, run=0, begun=time.monotonic(), mirror=mirror
        )
        self.kills, self.deaths = Counter[str](), Counter[str]()
        self.files, self.memory = Counter[str](), Counter[str]()
        self.checks, self.games = Counter[str](), Counter[str]()
        self.said = Counter[str]()
        self.stops = self.contended = self.write_skews = self.imported = 0
        self._seconds = 0.0
        with st.connect(self._post.root, **bank.OPTIONS) as db:
            bank.create(db)
            stock.create(db)
            nested.create(db)
            clients.create(db)
            if mirror:  # before anybody asks what it has
                db.checkpoint()
                admin.mirror_store(db.path, mirror)

    def run(self, seconds: float, say: Callable[[str], object] = lambda _: None) -> None:
        """Soak for so long, in rounds; raise at the first thing that is wrong.

        Args:
            seconds: What it takes to begin, and to check between the rounds, is part of it.
            say: Hears a line after each round.

        Raises:
            SoakError: Something is.
        """
        self._seconds = seconds
        until = time.monotonic() + seconds
        rounds = max(1, round(seconds / self._round_s))
        for left in range(rounds, 0, -1):
            length = max(until - time.monotonic(), 0.0) / left
            if left < rounds and length < CHECK_S:
                break  # too little is left for a round: the machine has other work
            try:
                self._round(max(length - CHECK_S, length / 2))
            except Exception as error:
                raise SoakError(f"{error}\n{self}\n{self.again}") from error
            say(f"round {self._post.run} of {rounds}: {self._headline}")

    @property
    def again(self) -> str:
        """Say what repeats it."""
        minutes = round(self._seconds / 60, 2)
        return (
            f"again: python -m proof.soak --minutes {minutes} --seed {self.seed}"
            f" (its files: {self._post.folder})"
        )

    def _round(self, seconds: float) -> None:
        self._post = replace(self._post, run=self._post.run + 1, begun=time.monotonic())
        crew = Crew(self._post, self._roles, self._chance)
        try:
            crew.run(seconds, self._have_all_worked)
            crew.end()
        finally:
            crew.close()
            self._post = replace(self._post, number=crew.number)
            self.kills += crew.kills
            self.deaths += crew.deaths
            self.stops += crew.stops
            self.said += crew.said
            self.files |= crew.files
            self.memory |= crew.memory
        self._check()

    def _have_all_worked(self) -> bool:
        return self.commits > 0 and not self.idle

    # between rounds

    def _check(self) -> None:
        self._check_mirror()
        self._check_copies()
        with players.own(self._post.root, **QUIET) as db:
            self._check_content(db)
            self._check_histories(db)
            self._check_sound(db)
            self.imported += guest.settle(db, Path(self._post.folder) / "moved away")
            self._check_content(db)
            db.checkpoint()
            db.merge()
            db.optimize()
            db.tag("settled")  # a commit: inventories that are younger than the last one are spared
            db.untag("settled")
            db.checkpoint()  # the optimized plain tables are in the log alone
            for _ in range(2):  # the first still meets what this process has just read
                db.vacuum(dry_run=False, grace_s=0)
            self._check_leaks(db)
            self._check_content(db)
        with players.own(self._post.root, **QUIET) as db:
            self._check_content(db)
            self._check_sound(db)
        for folder in Path(self._post.folder).iterdir():
            if folder.name.startswith((care.BACKUPS, care.RESTORED)):
                shutil.rmtree(folder)

    def _check_mirror(self) -> None:
        """Restore what the bucket has, and compare it with the store."""
        if self._post.mirror:
            mirrored.check_at_end(self._post, players.own)
            self.checks["mirrors"] += 1

    def _check_copies(self) -> None:
        """Close the store as any program does, copy it slowly, and replace the copy by the last."""
        players.own(self._post.root).close()
        folder = Path(self._post.folder)
        copy, older = folder / "copy", folder / "older copy"
        copies.slow_copy(self._post.root, copy)
        with players.own(copy, **QUIET) as db:
            self._check_content(db)
        self.checks["slow copies"] += 1
        if older.exists():
            copies.replace(copy, older, self._chance, self._post.tally.add)
            shutil.rmtree(older)
        copy.rename(older)

    def _check_content(self, db: st.Store) -> None:
        known = Acknowledged(self._post.acknowledged)
        known.read_on()
        noted = {each.name: each for each in bank.tagged(self._post.tagged)}
        with db.snapshot() as snapshot:
            known.check(bank.check(snapshot), snapshot.seq)
            stocked = stock.acknowledged(self._post.stocked)
            stock.check(snapshot["stock"].to_arrow().to_pylist(), stocked)
            nested.check(snapshot)
        for name in db.tags():
            assert bank.is_at_tag(db, noted[name]), f"the tag {name} cannot be read"
            self.checks["tags"] += 1
        self.checks["contents"] += 1

    def _check_histories(self, db: st.Store) -> None:
        folder = Path(self._post.folder)
        journals = [*folder.glob(f"journal-{self._post.run}-*")]
        with db.snapshot() as snapshot:
            verdict = judge(entries(journals), clients.lists_in(snapshot))
            wrong = [*verdict.violations, *clients.crowded_pairs(snapshot)]
        assert not wrong, "\n".join(wrong[:20])
        self.games.update(verdict.operations)
        self.contended += sum(verdict.worth[level].contended for level in LEVELS)
        self.write_skews += verdict.has_write_skew
        self.checks["histories"] += 1
        for journal in journals:
            journal.unlink()

    def _check_sound(self, db: st.Store) -> None:
        found = db.verify(deep=True)
        assert found.is_sound, found
        self.checks["verify --deep"] += 1

    def _check_leaks(self, db: st.Store) -> None:
        """Check that a second vacuum finds nothing, and that what lies there is what is needed."""
        found = db.vacuum(dry_run=True, grace_s=0)
        assert not found.files, f"garbage after a vacuum: {found.files[:5]}"
        manifests, tables = db._parts.site.manifests, db._parts.site.tables  # noqa: SLF001 - what it needs
        records = [manifests.read(number) for number in manifests.numbers(below_floor=True)]
        pins = distinct(pin for record in records for pin in pins_of(record)).values()
        # As Lance says it: vacuum reads the manifests itself.
        wanted = {file.path for pin in pins for file in tables.reader.files(pin)}
        lost = {name for name in _private(db.path) if name not in wanted}
        assert not lost, f"files that nothing needs: {sorted(lost)[:5]}"
        self.checks["leaks"] += 1

    # what it was worth

    @property
    def commits(self) -> int:
        """How many of the bank's were acknowledged."""
        path = self._post.acknowledged
        return path.read_bytes().count(b"\n") if path.exists() else 0

    @property
    def idle(self) -> set[str]:
        """The roles that have not done their work yet."""
        done = self.done
        return {role for role in self._roles if not done[WORK[role]]}

    @property
    def done(self) -> Counter[str]:
        """What the roles did."""
        return counted(tally_of(Path(self._post.folder)))

    @property
    def _headline(self) -> str:
        return (
            f"{self.commits} commits of the bank acknowledged, {self.kills.total()} kills,"
            f" {self.deaths.total()} deaths at {len(self.deaths)} failpoints, {self.stops} stops"
        )

    def __str__(self) -> str:
        return "\n".join(
            (
                f"seed {self.seed}, {self._post.run} rounds: {self._headline}",
                f"done: {_listed(self.done)}",
                f"games: {_listed(self.games)}",
                f"met at a list: {self.contended}; write skew in {self.write_skews} rounds",
                f"rows that were appended by path, and imported: {self.imported}",
                f"checks: {_listed(self.checks)}",
                f"killed: {_listed(self.kills)}",
                f"warnings: {_listed(self.said) or 'none'}",
                f"open files at most: {_listed(self.files)}",
                f"MiB at most: {_listed({k: v >> 20 for k, v in self.memory.items()})}",
            )
        )


def _listed(counts: Counter[str] | dict[str, int]) -> str:
    return ", ".join(f"{what} {count}" for what, count in sorted(counts.items()))


def _private(root: Path) -> set[str]:
    """Return the files of Lance and the inventories that no reader of the plain path looks for.

    One that has two names (`storage.tables.kept_names`) by its public one: both go together.
    """
    found = {
        public_of(str(path.relative_to(root)))
        for folder in ("tables", "commits", "inventory")
        for path in (root / folder).rglob("*")
        if path.is_file()
    }
    return {name for name in found if "/_versions/" not in name and "/_refs/" not in name}


def new(folder: Path, seed: int, mirror: str = "") -> Soak:
    """Return a soak in an empty folder; `mirror`: the URL of an empty bucket, if there is one."""
    if root_of(folder).exists():
        raise SystemExit(f"{folder} holds a soak already")
    folder.mkdir(parents=True, exist_ok=True)
    return Soak(folder, seed, mirror=mirror)
