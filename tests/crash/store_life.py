"""What the crash and fault tests of a whole store run: lives of stores, and the oracle of them.

A scenario is a list of steps; each makes one commit or none. A run without faults tells what a
reader sees at each seq; whatever happens to another run, its store must show exactly one of these
states: not before what was acknowledged, not behind what was begun. That one comparison holds
guarantees 1 to 4: nothing lost, no hole, no half transaction, nothing invented, nothing twice.
"""

from __future__ import annotations

import contextlib
import itertools
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from siltstone.api.snapshot import Snapshot
from siltstone.errors import InDoubtError, PoisonedError, SiltstoneError
from siltstone.failpoints import crossings
from siltstone.local.snapshot import LocalSnapshot
from siltstone.local.store import LocalStore
from siltstone.open.environment import Env
from siltstone.options import Options
from siltstone.storage.files.files import Files
from tests.crash.moments import IS_LONG, MOMENTS, chance, chosen
from tests.support.fake_lance import fake_lance
from tests.support.simulated_files import Fault, Operation, SimFiles

ROOT = Path("/data/shop")
OPTIONS = Options(background=False, segment_bytes=16_384, sync_interval_ms=3_600_000)

IN_ORDER = "texts"
"""A table whose rows are read in the order of their keys, too."""
WRITING = {"pwrite", "sync", "sync_dir", "rename", "unlink", "link", "mkdir", "rmdir"}
SYNCS = {"sync", "sync_dir"}
_names = itertools.count(1)

Answer = dict[str, Any]


def env_of(files: Files, now_us: Callable[[], int] = lambda: 1) -> Env:
    """Return what one process has of a simulated machine."""

    def name() -> str:
        return f"{next(_names):032x}"

    return Env(
        files=files,
        tables=lambda root, files, verify: fake_lance(root, files, token=name),
        now_us=now_us,
        new_token=name,
        warm_up=lambda: None,
        load_rows_min=2,
        commit_parts_max=4,
    )


def open_store(
    files: SimFiles,
    *,
    read_only: bool = False,
    options: Options = OPTIONS,
    now_us: Callable[[], int] = lambda: 1,
) -> LocalStore:
    return LocalStore.open(ROOT, options, read_only=read_only, env=env_of(files, now_us))


def answer(source: LocalStore | Snapshot) -> Answer:
    """Return everything that a reader sees."""
    found: Answer = {}
    for name in source.tables():
        rows = source[name].to_arrow()
        assert source[name].count() == rows.num_rows
        if name == IN_ORDER:
            ordered = source[name].scan(order_by="id").read_all()
            assert ordered["id"].to_pylist() == sorted(rows["id"].to_pylist())
        found[name] = (rows.schema.names, sorted(repr(row) for row in rows.to_pylist()))
    with contextlib.ExitStack() as held:
        at = held.enter_context(source.snapshot()) if isinstance(source, LocalStore) else source
        assert isinstance(at, LocalSnapshot)
        spaces = at.namespaces()
        if spaces:
            found["namespaces"] = spaces
    if isinstance(source, LocalStore):
        found["(tags)"] = source.tags()
        claim, apps = source.claimed("an app that nobody has")[0], source.token_apps()
        if apps or claim:
            found["(apps)"] = [claim, *map(repr, apps)]
        found["(log)"] = [(entry.seq, entry.rows) for entry in source.log(limit=1000)]
        for name, versions in source.changes().items():
            rows = versions.read_all().to_pylist()
            found[f"(changes of {name})"] = sorted(repr(row) for row in rows)
    return found


@dataclass(frozen=True)
class Step:
    """One call. `is_commit`: it makes the next seq. `is_sync`: durable when it returns."""

    name: str
    act: Callable[[Life], object]
    is_commit: bool = True
    is_sync: bool = True


@dataclass
class Life:
    """A store in use: what is visible, what of it is acknowledged as durable, what is under way."""

    files: SimFiles
    options: Options = OPTIONS
    states: dict[int, Answer] = field(default_factory=dict)
    db: LocalStore | None = None
    seq: int = 0
    acknowledged: int = 0
    begun: int = 0

    @property
    def store(self) -> LocalStore:
        assert self.db is not None
        return self.db

    def open(self) -> None:
        self.db = open_store(self.files, options=self.options)

    def close(self) -> None:
        db, self.db = self.store, None
        db.close()

    def do(self, step: Step) -> None:
        self.begun = self.seq + step.is_commit
        step.act(self)
        self.seq = self.begun
        if self.db is None:
            self.acknowledged = self.seq
            return
        assert self.db.seq == self.seq, step.name
        assert self.db.durable_seq == self.seq or not step.is_sync, step.name
        self.acknowledged = self.db.durable_seq

    def abandon(self) -> None:
        """Let go of a store without a further word: its process was killed."""
        if self.db is not None:
            owner = self.db._parts.owner  # pyright: ignore[reportPrivateUsage]
            assert owner is not None
            owner.syncer.stop()
            self.db = None


@dataclass(frozen=True)
class Scenario:
    steps: Sequence[Step]
    options: Options = OPTIONS

    def run(self, life: Life) -> Life:
        for step in self.steps:
            life.do(step)
        return life

    @cached_property
    def recorded(self) -> tuple[dict[int, Answer], list[Operation]]:
        """What a reader sees at each seq, to read alone; and the file operations that it takes."""
        life = Life(SimFiles(), self.options)
        for step in self.steps:
            life.do(step)
            if life.db is not None:
                # `changes` ends at the durable seq
                life.db._core.writer().sync()  # pyright: ignore[reportPrivateUsage]
                found = answer(life.db)
                assert life.states.setdefault(life.seq, found) == found, step.name
        life.abandon()
        plain = self.run(Life(SimFiles(), self.options))
        plain.abandon()
        return life.states, plain.files.trace

    @cached_property
    def moments(self) -> list[Shot]:
        """The moments that are tried of it; by day and by night the same for each test."""
        return tried(every_moment(self), chance([step.name for step in self.steps]))


@dataclass(frozen=True)
class Shot:
    """The machine at one moment."""

    label: str
    files: SimFiles
    acknowledged: int
    begun: int
    after: frozenset[str] = frozenset()
    """The kind of the step before, and the failpoints since the shot before."""


class Camera:
    """A fault that never hits: it keeps the machine as it is before each step that matters."""

    def __init__(self, life: Life) -> None:
        self.shots: list[Shot] = []
        self._life, self._last = life, (-1, -1)
        self._crossed = crossings()

    def hits(self, operation: int) -> bool:
        trace = self._life.files.trace
        now = (self._life.acknowledged, self._life.begun)
        if len(trace) < 2 or trace[-2].what in WRITING | {"open"} or now != self._last:
            self._last = now
            self.take(f"before operation {operation}, {trace[-1].what} {trace[-1].path}")
        return False

    def take(self, label: str) -> None:
        life, after = self._life, self._after()
        self.shots.append(Shot(label, life.files.killed(), life.acknowledged, life.begun, after))

    def _after(self) -> frozenset[str]:
        trace, before, self._crossed = self._life.files.trace, self._crossed, crossings()
        crossed = {label for label, n in self._crossed.items() if n != before.get(label)}
        if len(trace) < 2:
            return frozenset(crossed)
        return frozenset({*crossed, kind_of(trace[-2])})


def kind_of(operation: Operation) -> str:
    """Return what an operation does in which directory of the store, as "sync wal"."""
    place = operation.path.parts[len(ROOT.parts) :][:1]
    return f"{operation.what} {'/'.join(place)}"


def photographed(scenario: Scenario) -> tuple[list[Shot], dict[int, Answer]]:
    """Return the moments of a life that are tried, and what a reader sees at each seq.

    Each call has copies of its own.
    """
    shots = every_moment(scenario) if IS_LONG else scenario.moments
    return [replace(s, files=s.files.killed()) for s in shots], scenario.recorded[0]


def every_moment(scenario: Scenario) -> list[Shot]:
    """Return the machine at each moment of a life."""
    life = Life(SimFiles(), scenario.options)
    camera = Camera(life)
    life.files.faults = [camera]  # pyright: ignore[reportAttributeAccessIssue]
    scenario.run(life)
    camera.take("at the end")
    life.abandon()
    return camera.shots


def tried(shots: Sequence[Shot], rng: random.Random, most: int = MOMENTS) -> list[Shot]:
    """Return the moments that are tried of all."""
    return [shots[at] for at in chosen([shot.after for shot in shots], rng, most)]


def images_of(shot: Shot, rng: random.Random) -> list[tuple[str, SimFiles]]:
    """Return disks that a power cut at this moment may leave: an extreme, or one in between."""
    chosen = range(10_000) if IS_LONG else [rng.choice([0, 1, rng.randrange(2, 30)])]
    every = itertools.islice(shot.files.images(rng), max(chosen) + 1)
    found = [(f"{shot.label}: {image.label}", image.files) for image in every]
    return found if IS_LONG else found[-1:]


# --- the oracle


def check(
    files: SimFiles, shot: Shot, states: dict[int, Answer], rng: random.Random, label: str
) -> None:
    """The store opens with a state that it had, goes on, and opens with that again."""
    db = open_store(files)
    seq = db.seq
    assert shot.acknowledged <= seq <= shot.begun, label
    now = answer(db)
    assert seq not in states or now == states[seq], label
    assert db.durable_seq == seq, label
    past = rng.choice([n for n in states if n <= seq] or [seq])
    with db.snapshot(seq=past) as snapshot:
        found = answer(snapshot)
        assert past not in states or found == rows_of(states[past]), f"{label}, seq {past}"
    _goes_on(files, db, seq, now, rng, label)


def rows_of(state: Answer) -> Answer:
    return {name: rows for name, rows in state.items() if not name.startswith("(")}


def _goes_on(
    files: SimFiles, db: LocalStore, seq: int, now: Answer, rng: random.Random, label: str
) -> None:
    after = db.create_table("after", {"id": "int64"}, primary_key="id")
    assert after.upsert({"id": seq}).seq == seq + 2, label
    if rng.random() < 0.3:
        db.checkpoint()
        db.merge()
    found = answer(db)
    change = found.pop("(changes of after)")
    log = [(seq + 2, 1), (seq + 1, 0), *now["(log)"]]
    assert found == {**now, "(log)": log, "after": (["id"], [repr({"id": seq})])}, label
    cut = next(files.images(rng))
    again = open_store(cut.files)
    expected = {**found, "(changes of after)": change}
    assert (again.seq, answer(again)) == (seq + 2, expected), f"{label}, then {cut.label}"


def follow(files: SimFiles, shot: Shot, states: dict[int, Answer], label: str) -> int | None:
    """Read the disk as a process that owns nothing: all that was acknowledged, not one write call.

    It may sync the log, so that what it shows is durable.

    Returns:
        The seq of it, None where no store is there yet.
    """
    before, steps = files.tree(), files.operations
    try:
        db = open_store(files, read_only=True)
    except SiltstoneError:
        assert not shot.acknowledged, label
        return None
    seq = db.seq
    assert shot.acknowledged <= seq <= shot.begun, label
    assert answer(db) == states.get(seq, {"(tags)": {}, "(log)": []}), label
    written = [
        step
        for step in files.trace[steps:]
        if step.what in WRITING and not (step.what in SYNCS and "wal" in step.path.parts)
    ]
    assert not written, f"{label}: {written}"
    assert files.tree() == before, label
    return seq


# --- failing disks


def persist(life: Life, step: Step) -> bool:
    """Do a step; should it fail, see that nothing is lost, and do it again when the cause is gone.

    Returns:
        Whether it failed.
    """
    try:
        life.do(step)
    except SiltstoneError as error:
        _look_back(life)
        life.files.faults = ()
        if not _is_done(life, step, error):
            life.do(step)
        return True
    return False


def _look_back(life: Life) -> None:
    """What was there before is there, as far as the disk lets itself be read."""
    if life.db is not None and life.states:
        with contextlib.suppress(SiltstoneError):
            assert life.db.seq == life.seq
            assert answer(life.db.snapshot()) == rows_of(life.states[life.seq])


def _is_done(life: Life, step: Step, error: SiltstoneError) -> bool:
    """Say whether the failed step happened all the same; reopen where the error says so."""
    if isinstance(error, InDoubtError | PoisonedError) or life.db is None:
        return _reopened(life, step, error)
    assert life.db.seq == life.seq, f"{step.name}: {error!r}, but it is visible"
    if life.states:
        assert answer(life.db.snapshot()) == rows_of(life.states[life.seq]), step.name
    return False


def _reopened(life: Life, step: Step, error: SiltstoneError) -> bool:
    if life.db is not None:
        life.close()
    if not isinstance(error, InDoubtError) and life.seq == 0:
        return False  # it was the first open
    life.open()
    seq = life.store.seq
    assert life.acknowledged <= seq <= life.begun, step.name
    assert answer(life.store) == life.states[seq], step.name
    if isinstance(error, InDoubtError):
        wanted = "committed" if seq == life.begun else "not committed"
        assert life.store.outcome(error.transaction_id) == wanted
    is_done = bool(step.is_commit and seq == life.begun)
    life.seq = life.acknowledged = seq
    return is_done or step.act == Life.open


def with_fault(scenario: Scenario, states: dict[int, Answer], fault: Fault) -> tuple[Life, int]:
    """Run a life with a fault; return it and how many steps failed."""
    life = Life(SimFiles([fault]), scenario.options, states)
    failed = sum(persist(life, step) for step in scenario.steps)
    life.files.faults = ()
    return life, failed


def smaller(options: Options = OPTIONS, **changes: object) -> Options:
    return replace(options, **changes)
