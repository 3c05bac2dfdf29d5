"""Ledger: a store at work, and beside it what it must hold: each acknowledged row, no refused one.

Where the cause may end the process there is a journal: a change is begun in it before it is
committed, and ended when its fate is known. Who comes next commits what is open in it once more,
under the same token, so each is there exactly once or not at all. So does this process with a
change that ended in an error that is not ours: nobody can say how far it came. No other begins
before, so what is taken is taken in the order of the numbers.
"""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import pyarrow as pa

import siltstone as st
from siltstone.local.store import LocalStore
from siltstone.open.environment import Env
from siltstone.options import resolve

KEYS = 40
COLD_KEYS = range(1000, 1240)
"""Rows of each store's first base that nobody changes: so merges hide the few rows that change."""
CYCLES_PER_STORE = 100
"""Then a new store begins: else its past would be what grows."""
APP = "ledger"


class BrokenPromiseError(Exception):
    """The store does not hold what it acknowledged, or holds what it refused."""


@dataclass(frozen=True, slots=True)
class Change:
    """What one transaction does; `sizes` are key -> bytes of a value that is drawn from `seed`."""

    number: int
    seed: int
    sizes: dict[str, int]
    gone: list[int]
    lines: list[int]
    is_sync: bool = True

    def upserts(self) -> dict[int, bytes]:
        rng = random.Random(self.seed)
        return {int(key): rng.randbytes(size) for key, size in self.sizes.items()}


class Ledger:
    """One store after the other below `folder`, with what each must hold.

    Args:
        folder: Of our own; what an earlier process left there is taken up.
        env: The seam to the outside.
        rng: What is done next.
        options: As for `connect`.
        excused: Errors that are not ours, and say enough.
        bytes_max: The largest value of a row.
        is_mortal: The cause may end the process; another one goes on with what it left.
    """

    def __init__(
        self,
        folder: Path,
        env: Env,
        rng: random.Random,
        *,
        options: dict[str, object] | None = None,
        excused: tuple[type[Exception], ...] = (),
        bytes_max: int = 2_000,
        is_mortal: bool = False,
    ) -> None:
        self.env, self.rng, self._folder = env, rng, folder
        self._options = {"background": False, "segment_bytes": 65_536, **(options or {})}
        self.typed = (st.SiltstoneError, *excused)
        self._bytes_max = bytes_max
        self.errors: dict[str, int] = {}
        self.db: LocalStore | None = None
        self.root = folder / "store"
        self._journal = (folder / "journal").open("a+") if is_mortal else None
        self._forget()
        if self.root.exists():
            self._take_up()
        else:
            self._begin()

    def _forget(self) -> None:
        self.rows: dict[int, bytes] = {}
        self.lines: list[int] = []
        self._open_changes: dict[int, tuple[Change, dict[int, bytes]]] = {}
        self._doubts: list[tuple[str, int]] = []
        self._count = self._number = 0
        self._is_reading = False

    def _begin(self) -> None:
        """Begin a new store."""
        self.close()
        if self.root.exists():
            shutil.rmtree(self.root)
        self._forget()
        if self._journal is not None:
            self._journal.truncate(0)
        self.reopen()
        assert self.db is not None
        self.db.create_table("keyed", {"id": "int64", "v": "binary"}, primary_key="id")
        self.db.create_table("plain", {"n": "int64"})
        self._change(sizes={str(key): 16 for key in (*range(KEYS), *COLD_KEYS)})
        self.db.checkpoint()
        self.db.merge()

    def _take_up(self) -> None:
        """Go on with the store of a process that died: at any point, also before its tables."""
        assert self._journal is not None
        self._journal.seek(0)
        self._is_reading = True
        for line in self._journal.read().splitlines():
            what, _, rest = line.partition(" ")
            if what == "begin":
                change = Change(**json.loads(rest))
                self._open_changes[change.number] = change, change.upserts()
                self._number = change.number
            elif int(rest) in self._open_changes:  # else it was ended twice: there was no memory
                self._end(int(rest), is_taken=what == "taken")
        self._is_reading = False
        self.reopen()
        assert self.db is not None
        if "plain" not in self.db.tables():
            self._begin()
            return
        self._settle()
        self.check()

    def _settle(self) -> None:
        """Commit what nobody knows the fate of, once more: with its token, so once."""
        hanging = {number for _, number in self._doubts}
        for number in sorted(set(self._open_changes) - hanging):
            try:
                self._commit(self._live(), self._open_changes[number][0])
            except st.RequestError:  # a later one was applied, so this one never was
                continue

    def cycle(self, hurt: Callable[[], object], heal: Callable[[], object]) -> None:
        """Work while it hurts, then while it does not; check all that the store holds."""
        hurt()
        try:
            for _ in range(self.rng.randint(1, 4)):
                self._try(self._drawn())
        finally:
            heal()
        if self.db is None or self.db._core.writer().poisoned:  # noqa: SLF001 - at most a reopen
            self._open()
        self._settle()
        self._write()
        self.check()
        self._count += 1
        if self._count == CYCLES_PER_STORE:
            self._begin()

    def _drawn(self) -> Callable[[], object]:
        steps = {
            self._write: 8, self._read: 4, self._append: 0.5, self._checkpoint: 1,
            self._merge: 0.3, self._open: 2,
        }  # fmt: skip
        return self.rng.choices(list(steps), list(steps.values()))[0]

    def _try(self, step: Callable[[], object]) -> None:
        try:
            step()
        except st.CorruptionError:  # nothing is damaged: people would restore a backup for nothing
            raise
        except self.typed as error:
            name = type(error).__name__
            self.errors[name] = self.errors.get(name, 0) + 1

    # a store that comes and goes

    def _open(self) -> None:
        self.close()
        self.reopen()

    def reopen(self) -> None:
        """Open; what was in doubt is decided now."""
        self.db = LocalStore.open(self.root, resolve(self.root, self._options), env=self.env)
        while self._doubts:
            name, number = self._doubts[0]
            self._end(number, is_taken=self.db.outcome(name) == "committed")
            self._doubts.pop(0)

    def close(self) -> None:
        """Close; a close that fails has let go all the same."""
        db, self.db = self.db, None
        if db is not None:
            self._try(db.close)

    def _live(self) -> LocalStore:
        if self.db is None:
            self.reopen()
        assert self.db is not None
        return self.db

    # changes

    def _write(self) -> None:
        keys = self.rng.sample(range(KEYS), self.rng.randint(1, 5))
        upserts = keys[: self.rng.randint(1, len(keys))]
        self._change(
            sizes={str(key): self.rng.randint(1, self._bytes_max) for key in upserts},
            gone=keys[len(upserts) :],
            is_sync=self.rng.random() < 0.9,
        )

    def _append(self) -> None:
        self._change(lines=[self.rng.randrange(1 << 40)])

    def _change(
        self,
        *,
        sizes: dict[str, int] | None = None,
        gone: list[int] | None = None,
        lines: list[int] | None = None,
        is_sync: bool = True,
    ) -> None:
        self._settle()
        db = self._live()
        self._number += 1
        seed = self.rng.randrange(1 << 40)
        change = Change(self._number, seed, sizes or {}, gone or [], lines or [], is_sync)
        values = change.upserts()  # now: later there may be no memory for it
        self._note(f"begin {json.dumps(asdict(change))}")
        self._open_changes[change.number] = change, values
        self._commit(db, change)

    def _commit(self, db: LocalStore, change: Change) -> None:
        """Commit a change; whatever comes of it is noted."""
        number = change.number
        durability = "sync" if change.is_sync else "async"
        tx = None
        try:
            tx = db.transaction(durability=durability, token=(APP, number))
            _fill(tx, change)
            tx.commit()
            if not change.is_sync:
                db._core.writer().sync()  # noqa: SLF001 - until then a crash may forget it
        except st.InDoubtError as error:
            self._doubts.append((error.transaction_id, number))
            raise
        except st.SiltstoneError:
            if tx is not None and tx.receipt is not None:
                self._doubts.append((tx.receipt.transaction_id, number))
            else:
                self._end(number, is_taken=False)
            raise
        finally:
            if tx is not None:
                tx.rollback()
        self._end(number, is_taken=True)

    def _end(self, number: int, *, is_taken: bool) -> None:
        """Note the fate of a change: all of it, or it stays open."""
        change, values = self._open_changes[number]
        self._note(f"{'taken' if is_taken else 'refused'} {number}")
        if is_taken:
            rows = {**self.rows, **values}
            for key in change.gone:
                rows.pop(key, None)
            self.rows, self.lines = rows, [*self.lines, *change.lines]
        del self._open_changes[number]

    def _note(self, line: str) -> None:
        if self._journal is not None and not self._is_reading:
            self._journal.write(line + "\n")
            self._journal.flush()

    # looks

    def _read(self) -> None:
        db = self._live()
        key = self.rng.randrange(KEYS)
        row = db["keyed"].get(key)
        if not self._open_changes and (None if row is None else row["v"]) != self.rows.get(key):
            raise BrokenPromiseError(f"key {key} has another value")
        self._compare(db)

    def _checkpoint(self) -> None:
        self._live().checkpoint()

    def _merge(self) -> None:
        self._live().merge()

    def check(self) -> None:
        """Compare all rows with what was acknowledged.

        Raises:
            BrokenPromiseError: They differ.
        """
        assert not self._open_changes
        self._compare(self._live())

    def _compare(self, db: LocalStore) -> None:
        with db.snapshot() as snapshot:
            found = snapshot["keyed"].to_arrow().to_pylist()
            lines = snapshot["plain"].to_arrow()["n"].to_pylist()
        if self._doubts or self._open_changes:
            return
        rows = {row["id"]: row["v"] for row in found}
        if rows != self.rows or len(found) != len(self.rows):
            wrong = [
                key for key in sorted({*rows, *self.rows}) if rows.get(key) != self.rows.get(key)
            ]
            raise BrokenPromiseError(
                f"keyed has {len(found)} rows, {len(self.rows)} were promised; not as promised:"
                f" {wrong}"
            )
        if sorted(lines) != sorted(self.lines):
            raise BrokenPromiseError(f"plain has {len(lines)} rows of {len(self.lines)}")


def _fill(tx: st.Transaction, change: Change) -> None:
    if change.sizes:
        tx["keyed"].upsert([{"id": key, "v": value} for key, value in change.upserts().items()])
    if change.gone:
        tx["keyed"].delete(change.gone)
    if change.lines:
        tx["plain"].append(pa.table({"n": change.lines}))
