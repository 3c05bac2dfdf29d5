"""The store answers like a dict of lists, whatever is committed, flushed, merged or lost between.

Every public operation in any order, in plain calls and in transactions that overlap, over a
checkpoint, a merge, a reopen, a kill and a power cut. After each step the newest state, all open
snapshots and all open transactions are read whole and compared. The profile `soak` runs for long.
Over 400 lines, for it is one machine: Hypothesis draws from all rules of a class.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import random
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import settings
from hypothesis import strategies as some
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

import siltstone as st
from siltstone.lance_versions.errors import NamespaceNotEmptyError
from siltstone.local.store import LocalStore
from siltstone.local.transaction import LocalTransaction
from siltstone.maintenance.thinning import Bounds
from siltstone.namespace import SiltstoneNamespace
from siltstone.open.environment import Env
from siltstone.options import Options
from siltstone.storage.cache.part_cache import PartCache
from siltstone.storage.site import Site
from tests.model import calls
from tests.model.reference import (
    APPENDS,
    EVERY,
    Column,
    Commit,
    Effect,
    History,
    Relation,
    World,
    above,
    in_order,
)
from tests.nightly import by_day
from tests.support.fake_lance import fake_lance
from tests.support.simulated_files import SimFiles

START_US, STEP_US = 1_700_000_000_000_000, 1_000
OPTIONS = Options(background=False, segment_bytes=65_536, sync_interval_ms=3_600_000)
NAMES = ("a", "b", "c", "d", "n.e", "n.s.f")
SPACES = ("n", "n.s", "m")
KINDS: dict[str, tuple[dict[str, str], tuple[str, ...]]] = {
    "int": ({"id": "int64", "v": "int64", "w": "string"}, ("id",)),
    "text": ({"v": "int64", "id": "string"}, ("id",)),
    "pair": (
        {"id": "int64", "w": "string", "region": "string", "u": "uuid", "m": "map"},
        ("region", "id"),
    ),
    "plain": ({"v": "int64", "w": "string", "i": "inside"}, ()),
}
SNAPSHOTS_MAX = TRANSACTIONS_MAX = 3
LOAD_ROWS_MIN = 2
"""So few rows: most bulk commits stay in the files that they were staged in."""
COMMIT_PARTS_MAX = 3
"""Nearly every checkpoint joins parts of the log of commits."""
FILE_BYTES = 2_500
"""The room for rows in files, where every read shall evict one."""
SELDOM = some.integers(0, 3).map(lambda n: n == 3)
"""A restart ends whatever is open: were it as likely as a write, no two transactions would meet."""


@dataclass(frozen=True)
class Read:
    """What a transaction read of a table that had these columns, and how to read it again."""

    table: int
    columns: dict[str, Column]
    again: Callable[[Relation], object]
    found: object

    def holds(self, world: World) -> bool:
        """Say whether it is still so, as far as the columns that it names are still the same."""
        table = world.tables.get(self.table)
        return table is None or table.columns != self.columns or self.again(table) == self.found


@dataclass
class Open:
    """One open transaction: its own world, and what it did to come there."""

    tx: Any
    read_seq: int
    own: World
    token: tuple[str, int] | None
    is_strict: bool
    effects: list[Effect] = field(default_factory=list)
    reads: list[Read] = field(default_factory=list)
    is_definition: bool = False

    def writes(self) -> dict[int, set[object]]:
        found: dict[int, set[object]] = {}
        for effect in self.effects:
            if effect.forgets:
                found[effect.table] = set()
            found.setdefault(effect.table, set()).update(effect.writes)
        return found

    def replaces(self, table: int) -> bool:
        """Say whether it drops rows of a plain table: then the table may not have moved."""
        effects = [effect for effect in self.effects if effect.table == table]
        return any(EVERY in effect.writes and not effect.is_loose for effect in effects)

    @property
    def is_loose(self) -> bool:
        return self.is_definition or any(effect.is_loose for effect in self.effects)


class Staging:
    """A table whose upserts are bulk commits."""

    def __init__(self, db: LocalStore, name: str) -> None:
        self._db, self._name, self.rows = db, name, 0

    def upsert(self, given: Any, missing: Any) -> None:
        if isinstance(given, dict):
            given = [given]
        if isinstance(given, list):
            given = pa.Table.from_pylist(given, self._db[self._name].schema)
        stage = self._db.stage(self._name, missing=missing)
        staged = stage.run_through(self._db._core.tables.writer, given)
        self.rows = staged.rows
        with self._db.transaction() as tx:
            tx.attach(stage, [staged])


class StoreMachine(RuleBasedStateMachine):
    """The rules; `Simulated` and `Real` say on what files."""

    def __init__(self) -> None:
        super().__init__()
        self.clock_us = START_US
        self.history = History()
        self.durable = 0
        self.next_table = 1
        self.numbers = itertools.count(1)
        self.snapshots: list[tuple[Any, World]] = []
        self.open: list[Open] = []
        self.beside: LocalStore | None = None
        self.db = self.opened()

    part_cache: Callable[[Site, Options], PartCache | None] | None = None

    def opened(self, *, read_only: bool = False) -> LocalStore:
        raise NotImplementedError

    def killed(self) -> None:
        """Go on with the files as a SIGKILL leaves them."""
        raise NotImplementedError

    def now_us(self) -> int:
        return self.clock_us

    # tables

    @initialize()
    def begin_with_one_of_each(self) -> None:
        for name, kind in zip(NAMES, KINDS, strict=False):
            self.create(name, kind)
            self.fill(name)

    def fill(self, name: str) -> None:
        table = self.history.now.named(name)
        assert table is not None
        call = calls.first_rows(table)
        self.committed(call.run(self.db[name]).seq, [call.effect])

    @rule(data=some.data())
    def create_any(self, data: Any) -> None:
        free = sorted(set(NAMES) - set(self.history.now.names()))
        if free:
            self.create(
                data.draw(some.sampled_from(free)), data.draw(some.sampled_from(sorted(KINDS)))
            )

    def create(self, name: str, kind: str) -> None:
        effect = self.creation(name, kind)
        self.db.create_table(name, *shape(kind))
        self.committed(self.db.seq, [effect], is_definition=True)

    # namespaces

    def respace(self, data: Any, world: World) -> tuple[Callable[[Any], Any], Effect] | None:
        """Return the creation or the drop of a namespace, for a transaction; None: it is refused.

        One that has something in it is not dropped.
        """
        space = data.draw(some.sampled_from(SPACES))
        if space not in world.spaces:
            number = next(self.numbers)

            def create(changed: World) -> None:
                changed.spaces[space] = number

            effect = Effect(0, create, is_loose=True, space=space)
            properties = {"number": str(number)}
            return (lambda tx: tx.lance.create_namespace(space, properties)), effect
        if world.inside(space):
            return None

        def drop(changed: World) -> None:
            del changed.spaces[space]

        effect = Effect(0, drop, is_loose=True, space=space)
        return (lambda tx: tx.lance.drop_namespace(space)), effect

    @rule(data=some.data())
    def change_a_namespace(self, data: Any) -> None:
        found = self.respace(data, self.history.now)
        if found is not None:
            self.did_alone(*found)

    @precondition(lambda self: self.open)
    @rule(data=some.data())
    def change_a_namespace_in_transaction(self, data: Any) -> None:
        one = self.any_open(data)
        found = self.respace(data, one.own)
        if found is not None:
            self.did(one, *found)

    @precondition(lambda self: len(self.open) < TRANSACTIONS_MAX)
    @rule(data=some.data())
    def race_for_a_namespace(self, data: Any) -> None:
        """Change a namespace, or what is in it, while others do."""
        self.begin_one(strict=False, token=None)
        one = self.open[-1]
        self.change_in_spaces(data, one.own, lambda work, effect: self.did(one, work, effect))
        for _ in range(data.draw(some.integers(1, 2))):
            self.change_in_spaces(data, self.history.now, self.did_alone)
        self.commit_one(one)

    def change_in_spaces(self, data: Any, world: World, do: Callable[..., None]) -> None:
        inside = [name for name in NAMES if "." in name]
        free = sorted(set(inside) - set(world.names()))
        what = data.draw(some.sampled_from(["space", "table"]))
        if what == "table" and free:
            name, kind = data.draw(some.sampled_from(free)), "int"
            do(lambda tx: tx.create_table(name, *shape(kind)), self.creation(name, kind))
            return
        found = self.respace(data, world) if what == "space" else self.redefinition(data, world)
        if found is not None:
            do(*found)

    def did(self, one: Open, work: Callable[[Any], Any], effect: Effect) -> None:
        work(one.tx)
        self.done(one, effect, is_definition=True)

    def did_alone(self, work: Callable[[Any], Any], effect: Effect) -> None:
        with self.db.transaction() as tx:
            work(tx)
        assert tx.receipt is not None
        self.committed(tx.receipt.seq, [effect], is_definition=True)

    @rule(space=some.sampled_from(SPACES))
    def drop_a_namespace_that_has_something_in_it(self, space: str) -> None:
        if not self.history.now.inside(space):
            return
        with pytest.raises(NamespaceNotEmptyError), self.db.transaction() as tx:
            tx.lance.drop_namespace(space)
        assert self.db.seq == self.history.seq

    @rule(space=some.sampled_from(SPACES), is_meant=SELDOM)
    def drop_a_namespace_with_all_in_it(self, space: str, is_meant: bool) -> None:
        world = self.history.now
        if not is_meant or space not in world.namespaces():
            return
        gone = [table.id for table in world.tables.values() if space in above(table.name)]

        def drop(changed: World) -> None:
            for number in gone:
                del changed.tables[number]
            for each in (space, *world.inside(space)):
                changed.spaces.pop(each, None)

        request = {"id": space.split("."), "behavior": "cascade"}
        SiltstoneNamespace(self.db).drop_namespace(request)  # type: ignore[arg-type]
        writes = {number: {EVERY} for number in gone}
        self.committed(self.db.seq, [], is_definition=True, writes=writes, change=drop)

    def creation(self, name: str, kind: str) -> Effect:
        columns, key = KINDS[kind]
        numbered = {n: Column(i, k) for i, (n, k) in enumerate(columns.items())}
        number, self.next_table = self.next_table, self.next_table + 1

        def apply(world: World) -> None:
            world.tables[number] = Relation(
                number, name, key, dict(numbered), next_column=len(numbered)
            )

        return Effect(number, apply, {EVERY}, is_loose=True, entered=name)

    def redefinition(self, data: Any, world: World) -> tuple[Callable[[Any], Any], Effect] | None:
        """Return a drop or a rename, for the store or for a transaction."""
        table = self.any_table(data, world)
        if table is None:
            return None
        if data.draw(some.booleans()):

            def drop(changed: World) -> None:
                del changed.tables[table.id]

            effect = Effect(table.id, drop, {EVERY}, is_loose=True, forgets=True)
            return (lambda t, name=table.name: t.drop_table(name)), effect
        free = sorted(set(NAMES) - set(world.names()))
        if not free:
            return None
        new = data.draw(some.sampled_from(free))

        def rename(changed: World) -> None:
            changed.tables[table.id].name = new

        effect = Effect(table.id, rename, is_loose=True, entered=new)
        return (lambda t, name=table.name: t.rename_table(name, new)), effect

    @rule(data=some.data())
    def redefine(self, data: Any) -> None:
        found = self.redefinition(data, self.history.now)
        if found is not None:
            receipt = found[0](self.db)
            self.committed(receipt.seq, [found[1]], is_definition=True)

    def any_table(self, data: Any, world: World) -> Relation | None:
        if not world.tables:
            return None
        contended = {number for one in self.open for number in one.writes()} & world.tables.keys()
        if contended and data.draw(some.booleans()):
            return world.tables[data.draw(some.sampled_from(sorted(contended)))]
        return world.tables[data.draw(some.sampled_from(sorted(world.tables)))]

    # one call, one transaction

    @rule(data=some.data())
    def write(self, data: Any) -> None:
        self.call(data, definition=False)

    @rule(data=some.data())
    def attach(self, data: Any) -> None:
        """An upsert whose rows are staged first: the same answer, or equal keys are refused."""
        table = self.any_table(data, self.history.now)
        if table is None or not table.key:
            return
        call = calls.upsert(data.draw, table, self.history.now)
        staging = Staging(self.db, table.name)
        try:
            call.run(staging)
        except st.DuplicateKeyError:
            assert staging.rows > call.effect.result
            return
        assert staging.rows == call.effect.result
        self.committed(self.db.seq, [call.effect])

    @rule(data=some.data())
    def define(self, data: Any) -> None:
        self.call(data, definition=True)

    def call(self, data: Any, *, definition: bool) -> None:
        table = self.any_table(data, self.history.now)
        if table is None:
            return
        call = calls.drawn(data.draw, table, self.history.now, definition=definition)
        if call is None:
            return
        in_sql = data.draw(some.booleans())
        if call.error is not None:
            with pytest.raises(call.error):
                call.run_by(self.db, table.name, in_sql=in_sql)
            return
        receipt = call.run_by(self.db, table.name, in_sql=in_sql)
        if call.effect.result is not None:
            assert receipt.rows == call.effect.result
        self.committed(receipt.seq, [call.effect], is_definition=definition)

    def committed(
        self,
        seq: int,
        effects: list[Effect],
        *,
        is_definition: bool = False,
        writes: dict[int, set[object]] | None = None,
        change: Callable[[World], None] | None = None,
        is_sync: bool = True,
    ) -> None:
        """Take over a commit; a call that changed nothing may have taken no seq."""
        if seq == self.history.seq:
            assert change is None
            assert all(effect.apply is None for effect in effects)
            return
        assert seq == self.history.seq + 1 == self.db.seq
        world = self.history.now.copy()
        for effect in effects:
            if effect.apply is not None:
                effect.apply(world)
        if change is not None:
            change(world)
        if writes is None:
            writes = {effect.table: set(effect.writes) for effect in effects}
        time_us = max(self.clock_us, self.history.commits[-1].time_us + 1)
        self.history.add(world, Commit(writes, is_definition, time_us=time_us))
        self.clock_us += STEP_US
        if is_sync:
            self.durable = seq

    # transactions

    @precondition(lambda self: len(self.open) < TRANSACTIONS_MAX)
    @rule(
        strict=some.booleans(),
        token=some.none() | some.tuples(some.sampled_from(["app", "ä"]), some.integers(0, 3)),
    )
    def begin(self, strict: bool, token: tuple[str, int] | None) -> None:
        self.begin_one(strict, token)

    def begin_one(self, strict: bool, token: tuple[str, int] | None) -> None:
        isolation = "serializable" if strict else "snapshot"
        tx = self.db.transaction(isolation=isolation, token=token)
        assert tx.read_seq == self.history.seq
        own = self.history.now.copy()
        if token is not None:
            own.is_retried = token[1] <= max(own.tokens.get(token[0], {}), default=-1)
        self.open.append(Open(tx, tx.read_seq, own, token, strict))

    def any_open(self, data: Any) -> Open:
        return data.draw(some.sampled_from(self.open))

    @precondition(lambda self: self.open)
    @rule(data=some.data())
    def write_in_transaction(self, data: Any) -> None:
        self.call_in_transaction(data, definition=False)

    @precondition(lambda self: self.open)
    @rule(data=some.data())
    def write_twice_in_transactions(self, data: Any) -> None:
        self.call_in_transaction(data, definition=False)
        self.call_in_transaction(data, definition=False)

    @precondition(lambda self: self.open)
    @rule(data=some.data())
    def define_in_transaction(self, data: Any) -> None:
        self.call_in_transaction(data, definition=True)

    def call_in_transaction(self, data: Any, *, definition: bool) -> None:
        self.change_one(data, self.any_open(data), definition=definition)

    def change_one(self, data: Any, one: Open, *, definition: bool) -> None:
        table = self.any_table(data, one.own)
        if table is None:
            return
        call = calls.drawn(data.draw, table, one.own, definition=definition)
        if call is None:
            return
        in_sql = data.draw(some.booleans())
        if call.error is not None:
            with pytest.raises(call.error):
                call.run_by(one.tx, table.name, in_sql=in_sql)
            return
        result = call.run_by(one.tx, table.name, in_sql=in_sql)
        if call.effect.result is not None:
            assert result == call.effect.result
        self.done(one, call.effect, is_definition=definition)

    @precondition(lambda self: self.open)
    @rule(data=some.data())
    def redefine_in_transaction(self, data: Any) -> None:
        one = self.any_open(data)
        free = sorted(set(NAMES) - set(one.own.names()))
        if free and data.draw(some.booleans()):
            name = data.draw(some.sampled_from(free))
            kind = data.draw(some.sampled_from(sorted(KINDS)))
            effect = self.creation(name, kind)
            one.tx.create_table(name, *shape(kind))
            self.done(one, effect, is_definition=True)
            return
        found = self.redefinition(data, one.own)
        if found is not None:
            found[0](one.tx)
            self.done(one, found[1], is_definition=True)

    def done(self, one: Open, effect: Effect, *, is_definition: bool) -> None:
        if effect.apply is not None:
            effect.apply(one.own)
            one.effects.append(effect)
            one.is_definition |= is_definition

    @precondition(lambda self: self.open)
    @rule(data=some.data())
    def read_in_transaction(self, data: Any) -> None:
        self.read_one(data, self.any_open(data))

    def read_one(self, data: Any, one: Open) -> None:
        table = self.any_table(data, one.own)
        if table is None:
            return
        is_own = table.id in one.writes() or one.is_definition
        if table.key and data.draw(some.booleans()):
            key = calls.key_in(data.draw, table)
            assert one.tx[table.name].get(key) == table.rows.get(key)
            read = lambda t, key=key: t.rows.get(key)  # noqa: E731
        else:
            text, keep = calls.condition(data.draw, table)
            names = tuple(table.columns)
            assert rows_of(one.tx[table.name].to_arrow(filter=text)) == table.shown(keep=keep)
            read = lambda t, keep=keep, names=names: t.shown(names, keep)  # noqa: E731
        if not is_own:
            one.reads.append(Read(table.id, dict(table.columns), read, read(table)))

    @precondition(lambda self: self.open)
    @rule(data=some.data())
    def roll_back(self, data: Any) -> None:
        one = self.any_open(data)
        self.open.remove(one)
        one.tx.rollback()
        assert self.db.seq == self.history.seq

    @precondition(lambda self: self.open)
    @rule(data=some.data())
    def commit_all(self, data: Any) -> None:
        for one in data.draw(some.permutations(self.open)):
            self.commit_one(one)

    @precondition(lambda self: self.open)
    @rule(data=some.data())
    def commit(self, data: Any) -> None:
        self.commit_one(self.any_open(data))

    def commit_one(self, one: Open) -> None:
        self.open.remove(one)
        if one.token is not None and self.is_repeated(one):
            return
        since = self.history.written_since(one.read_seq)
        is_redefined = any(c.is_definition for c in self.history.commits[one.read_seq + 1 :])
        must_conflict = self.conflicts(one, since)
        may_conflict = must_conflict or one.is_loose or is_redefined or (one.is_strict and since)
        try:
            receipt = one.tx.commit()
        except st.ConflictError:
            assert may_conflict
        except (st.TableExistsError, st.TableNotFoundError):
            assert is_redefined
        else:
            assert not must_conflict
            self.accept(one, receipt)
        assert self.db.seq == self.history.seq

    def conflicts(self, one: Open, since: dict[int, set[object]]) -> bool:
        """Say whether first committer wins, or a serializable read, forbids the commit."""
        for number, keys in one.writes().items():
            theirs = since.get(number, set())
            table = self.history.worlds[one.read_seq].tables.get(number)
            if table is not None and keys:
                is_gone = number not in self.history.now.tables
                now = None if is_gone else self.history.now.tables[number].incarnation
                if is_gone or now != table.incarnation:
                    return True
            if any(effect.forgets for effect in one.effects if effect.table == number):
                # Rows that it has not seen may not be lost.
                if table is not None and table.key and theirs - {EVERY}:
                    return True
                continue
            if keys & theirs - {APPENDS}:
                return True
            if theirs and one.replaces(number):
                return True
        then, now = self.history.worlds[one.read_seq], self.history.now
        return any(effect.collides(then, now) for effect in one.effects)

    def accept(self, one: Open, receipt: Any) -> None:
        if not one.effects and one.token is None and receipt.seq == one.read_seq:
            return  # it read only: serial at its snapshot
        if one.is_strict:
            assert all(read.holds(self.history.now) for read in one.reads)

        def with_token(world: World) -> None:
            assert one.token is not None
            app, batch = one.token
            world.tokens.setdefault(app, {})[batch] = (receipt.seq, receipt.rows)

        self.committed(
            receipt.seq,
            one.effects,
            is_definition=one.is_definition,
            writes=one.writes(),
            change=None if one.token is None else with_token,
        )

    def is_repeated(self, one: Open) -> bool:
        """Check a token that is not new: the old receipt, or a refusal."""
        app, batch = one.token  # type: ignore[misc]
        applied = self.history.now.tokens.get(app, {})
        if batch in applied:
            receipt = one.tx.commit()
            assert (receipt.seq, receipt.rows) == applied[batch]
        elif applied and batch < max(applied):
            with pytest.raises(st.RequestError, match="strictly increase"):
                one.tx.commit()
        else:
            return False
        assert self.db.seq == self.history.seq
        return True

    @precondition(lambda self: len(self.open) < TRANSACTIONS_MAX)
    @rule(data=some.data(), strict=some.booleans(), flush=some.booleans())
    def race(self, data: Any, strict: bool, flush: bool) -> None:
        """Begin, change and read, let others commit (and be merged away), commit."""
        self.begin_one(strict, None)
        one = self.open[-1]
        for _ in range(data.draw(some.integers(1, 3))):
            if data.draw(some.booleans()):
                self.read_one(data, one)
            self.change_one(data, one, definition=data.draw(some.integers(0, 5)) == 0)
        for _ in range(data.draw(some.integers(0, 2))):
            self.call(data, definition=data.draw(some.integers(0, 5)) == 0)
        if flush:
            self.checkpoint()
            self.merge_one(None)
            for seq in range(max(0, self.history.seq - 3), self.history.seq):
                self.look_back_at(seq)
        if one.is_strict or one.effects:
            self.commit_one(one)

    @precondition(lambda self: len(self.open) < TRANSACTIONS_MAX)
    @rule(data=some.data(), app=some.sampled_from(["app", "ä"]), batch=some.integers(0, 3))
    def apply_batch(self, data: Any, app: str, batch: int) -> None:
        for _ in range(data.draw(some.integers(1, 2))):
            self.begin_one(strict=False, token=(app, batch))
            one = self.open[-1]
            self.change_one(data, one, definition=False)
            self.commit_one(one)

    @rule(data=some.data())
    def write_asynchronously(self, data: Any) -> None:
        keyed = [t.id for t in self.history.now.tables.values() if t.key]
        if not keyed:
            return
        table = self.history.now.tables[data.draw(some.sampled_from(sorted(keyed)))]
        call = calls.upsert(data.draw, table, self.history.now)
        tx = self.db.transaction(durability="async")
        call.run(tx[table.name])
        self.committed(tx.commit().seq, [call.effect], is_sync=False)

    # the past

    @precondition(lambda self: len(self.snapshots) < SNAPSHOTS_MAX)
    @rule(data=some.data())
    def take_snapshot(self, data: Any) -> None:
        how = data.draw(some.sampled_from(["now", "seq", "at", "tag"]))
        seq = self.some_seq(data)
        if how == "now":
            snapshot, seq = self.db.snapshot(), self.history.seq
        elif how == "seq":
            snapshot = self.db.snapshot(seq=seq)
        elif how == "at":
            time_us = self.history.commits[seq].time_us + data.draw(some.integers(0, STEP_US // 2))
            seq = self.history.seq_at(time_us)
            snapshot = self.db.snapshot(at=moment(time_us))
        else:
            tags = self.history.now.tags
            if not tags:
                return
            tag = data.draw(some.sampled_from(sorted(tags)))
            snapshot, seq = self.db.snapshot(tag=tag), tags[tag]
        assert snapshot.seq == seq
        self.snapshots.append((snapshot, self.history.worlds[seq]))

    @rule(data=some.data())
    def look_back(self, data: Any) -> None:
        self.look_back_at(self.some_seq(data))

    def look_back_at(self, seq: int) -> None:
        with self.db.snapshot(seq=seq) as snapshot:
            compare(snapshot, self.history.worlds[seq])

    def some_seq(self, data: Any) -> int:
        """Return a seq, a young one rather than an old one: the first ones see empty tables."""
        return self.history.seq - data.draw(some.integers(0, self.history.seq))

    @precondition(lambda self: self.snapshots)
    @rule(data=some.data())
    def close_snapshot(self, data: Any) -> None:
        index = data.draw(some.integers(0, len(self.snapshots) - 1))
        self.snapshots.pop(index)[0].close()

    @rule(data=some.data(), name=some.sampled_from(["red", "blue"]))
    def tag(self, data: Any, name: str) -> None:
        seq = data.draw(some.integers(0, self.durable))
        receipt = self.db.tag(name, seq)
        self.committed(receipt.seq, [], change=lambda world: world.tags.update({name: seq}))

    @rule(name=some.sampled_from(["red", "blue"]))
    def untag(self, name: str) -> None:
        if name not in self.history.now.tags:
            with pytest.raises(st.RequestError):
                self.db.untag(name)
            return
        receipt = self.db.untag(name)
        self.committed(receipt.seq, [], change=lambda world: world.tags.pop(name))

    @rule(data=some.data())
    def read_changes(self, data: Any) -> None:
        since = data.draw(some.integers(0, self.durable))
        until = data.draw(some.integers(since, self.durable))
        world = self.history.worlds[until]
        keyed = [t.name for t in world.tables.values() if t.key]
        wanted = {name: self.history.feed(name, since, until) for name in keyed}
        fed = [name for name in keyed if wanted[name] is not None]
        if fed != keyed:
            with pytest.raises(st.SchemaMismatchError):
                self.db.changes(since, until)
        found = self.db.changes(since, until, None if fed == keyed else fed)
        assert sorted(found) == sorted(fed)
        for name, feed in found.items():
            table = world.named(name)
            assert table is not None
            rows = feed.read_all()
            assert rows.column_names == ["_seq", "_op", *table.columns]
            assert rows["_seq"].to_pylist() == sorted(rows["_seq"].to_pylist())
            assert rows_of(rows) == wanted[name], (since, until)

    # maintenance and misfortune

    @rule()
    def checkpoint(self) -> None:
        self.db.checkpoint()
        self.durable = self.history.seq

    @rule(data=some.data())
    def merge(self, data: Any) -> None:
        self.merge_one(data.draw(some.none() | some.sampled_from(NAMES)))

    def merge_one(self, name: str | None) -> None:
        with contextlib.suppress(st.TableNotFoundError):  # no checkpoint has seen it yet
            self.db.merge(name)

    @rule()
    def optimize(self) -> None:
        """Other files of a plain table are a commit that changes no row."""
        self.db.optimize()
        while self.history.seq < self.db.seq:
            time_us = max(self.clock_us, self.history.commits[-1].time_us + 1)
            self.history.add(self.history.now.copy(), Commit(time_us=time_us))
            self.durable = self.history.seq

    @rule()
    def vacuum(self) -> None:
        """All of it is within the retention: nothing that can be asked for may go."""
        self.db.vacuum(dry_run=False)

    @rule(is_meant=SELDOM)
    def reopen(self, is_meant: bool) -> None:
        if not is_meant:
            return
        self.db.close()
        self.durable = self.history.seq
        self.restarted(lambda: None)

    @rule(is_meant=SELDOM)
    def kill(self, is_meant: bool) -> None:
        if not is_meant:
            return
        self.restarted(self.killed)
        assert self.db.seq == self.history.seq
        self.durable = self.history.seq

    def restarted(self, between: Callable[[], None]) -> None:
        self.snapshots.clear()
        self.open.clear()
        self.leave()
        between()
        self.db = self.opened()

    @rule()
    def read_beside_the_owner(self) -> None:
        """A reader stays beside the owner, and goes on from record to record."""
        if self.beside is None:
            self.beside = self.opened(read_only=True)
        other = self.beside
        assert self.durable <= other.seq <= self.history.seq
        world = self.history.worlds[other.seq]
        assert other.tags() == world.tags
        with other.snapshot() as snapshot:
            compare(snapshot, world)
        compare(other, world)

    @rule(data=some.data())
    def read_the_past_beside_the_owner(self, data: Any) -> None:
        if self.beside is None or not self.snapshots:
            return
        snapshot, world = data.draw(some.sampled_from(self.snapshots))
        if snapshot.seq <= self.beside.seq:
            with self.beside.snapshot(seq=snapshot.seq) as same:
                compare(same, world)

    @rule(is_meant=SELDOM)
    def end_beside_the_owner(self, is_meant: bool) -> None:
        if is_meant:
            self.leave()

    def leave(self) -> None:
        if self.beside is not None:
            self.beside.close()
            self.beside = None

    @rule(data=some.data())
    def read_a_part(self, data: Any) -> None:
        table = self.any_table(data, self.history.now)
        if table is None:
            return
        handle = self.db[table.name]
        text, keep = calls.condition(data.draw, table)
        names = data.draw(some.permutations(sorted(table.columns)))
        names = names[: data.draw(some.integers(1, len(names)))]
        expected = table.shown(names, keep)
        assert handle.count(filter=text) == len(expected)
        assert rows_of(handle.to_arrow(columns=names, filter=text)) == expected
        limit = data.draw(some.integers(0, 3))
        some_rows = rows_of(handle.scan(names, text, limit).read_all())
        assert len(some_rows) == min(limit, len(expected))
        assert all(row in expected for row in some_rows)  # those with maps have no hash
        if table.key:
            turned, offset = data.draw(some.booleans()), data.draw(some.integers(0, 2))
            order = {"order_by": list(table.key), "descending": turned, "offset": offset}
            page = handle.scan(names, text, limit, **order).read_all()
            kept = [key for key in sorted(table.rows, reverse=turned) if keep(table.rows[key])]
            kept = kept[offset : offset + limit]
            assert unsorted(page) == [tuple(table.rows[k][n] for n in names) for k in kept]
            keys = data.draw(some.lists(calls.KEYS[calls.kind_of(table)], max_size=4, unique=True))
            found = handle.get_many(keys).to_pylist()
            assert found == [table.rows[key] for key in keys if key in table.rows]

    # what holds after every step

    @invariant()
    def the_store_is_the_model(self) -> None:
        assert self.db.seq == self.history.seq
        assert self.db.tags() == self.history.now.tags
        compare(self.db, self.history.now)

    @invariant()
    def snapshots_stand_still(self) -> None:
        for snapshot, world in self.snapshots:
            compare(snapshot, world)

    @invariant()
    def transactions_see_their_own_world(self) -> None:
        for one in self.open:
            if not one.is_strict:  # a whole read would make every later commit a conflict
                compare(one.tx, one.own)

    def teardown(self) -> None:
        self.leave()
        self.db.close()


class Simulated(StoreMachine):
    """On a simulated machine, with the fake of Lance."""

    def __init__(self) -> None:
        # Files of another time would look older than any work, and vacuum would delete them.
        self.files = SimFiles(now=lambda: self.clock_us / 1e6)
        super().__init__()

    def opened(self, *, read_only: bool = False) -> LocalStore:
        env = Env(
            files=self.files,
            tables=lambda root, files, _verify: fake_lance(root, files),
            now_us=self.now_us,
            warm_up=lambda: None,
            load_rows_min=LOAD_ROWS_MIN,
            commit_parts_max=COMMIT_PARTS_MAX,
            bounds=Bounds(recent_s=-1),  # all that may be thinned is
            part_cache=self.part_cache,
        )
        return LocalStore.open(Path("/data/shop"), OPTIONS, read_only=read_only, env=env)

    def killed(self) -> None:
        self.files = self.files.killed()

    @rule(is_meant=SELDOM, seed=some.integers(0, 1 << 16))
    def cut_power(self, is_meant: bool, seed: int) -> None:
        """Every synced commit is there; of the others a prefix."""
        if not is_meant:
            return
        images = list(self.files.images(random.Random(seed), limit=8))
        self.restarted(lambda: self.start(images[seed % len(images)].files))
        assert self.durable <= self.db.seq <= self.history.seq
        self.history.cut(self.db.seq)
        self.durable = self.history.seq

    def start(self, files: SimFiles) -> None:
        self.files = files


class Real(StoreMachine):
    """On real files, with real Lance."""

    def __init__(self) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="siltstone-model-"))
        self.number = 0
        super().__init__()

    @property
    def root(self) -> Path:
        return self.directory / str(self.number)

    def opened(self, *, read_only: bool = False) -> LocalStore:
        env = Env(
            now_us=self.now_us,
            load_rows_min=LOAD_ROWS_MIN,
            commit_parts_max=COMMIT_PARTS_MAX,
            part_cache=self.part_cache,
        )
        return LocalStore.open(self.root, OPTIONS, read_only=read_only, env=env)

    def killed(self) -> None:
        old, self.number = self.root, self.number + 1
        shutil.copytree(old, self.root)
        self.db.close()

    def teardown(self) -> None:
        super().teardown()
        shutil.rmtree(self.directory)


def of_evicting_reads(machine: type[StoreMachine]) -> type[StoreMachine]:
    """Return a machine whose rows are read from files, with room for one: the next one evicts it.

    The files outlive kills and power cuts, of which they must not know.
    """

    class Evicting(machine):
        def __init__(self) -> None:
            self.scratch = tempfile.mkdtemp(prefix="siltstone-parts-")
            super().__init__()

        def part_cache(self, site: Site, _options: Options) -> PartCache:
            return PartCache(
                Path(self.scratch),
                lambda: site.manifests.newest().store_id,
                bytes_max=FILE_BYTES,
                open_bytes_max=1 << 20,
                is_eager=True,
            )

        @invariant()
        def each_row_is_got(self) -> None:
            """Read each row by its key, of tables whose rows are mostly in base."""
            self.checkpoint()
            self.merge_one(None)
            for source, world in [(self.db, self.history.now), *self.snapshots]:
                for table in (each for each in world.tables.values() if each.key):
                    keys, handle = [*table.rows], source[table.name]
                    assert [handle.get(key) for key in keys] == [*map(table.rows.get, keys)]
                    assert rows_of(handle.get_many(keys)) == table.shown()

        def teardown(self) -> None:
            super().teardown()
            shutil.rmtree(self.scratch)

    return Evicting


def shape(kind: str) -> tuple[dict[str, pa.DataType], tuple[str, ...]]:
    """Return the columns and the key of a new table."""
    columns, key = KINDS[kind]
    return {name: calls.TYPES[each] for name, each in columns.items()}, key


def compare(source: Any, world: World) -> None:
    """Read everything and compare: names, columns, rows, counts."""
    assert source.tables() == world.names()
    assert namespaces_of(source) == world.namespaces()
    for table in world.tables.values():
        handle = source[table.name]
        assert handle.schema.names == list(table.columns), table.name
        assert handle.primary_key == table.key
        assert rows_of(handle.to_arrow()) == table.shown(), table.name
        assert handle.count() == len(table.rows)


def namespaces_of(source: Any) -> dict[str, dict[str, str]]:
    if isinstance(source, LocalTransaction):
        return dict(source.lance.namespaces())
    if isinstance(source, LocalStore):
        with source.snapshot() as now:
            return dict(now.namespaces())
    return dict(source.namespaces())


def rows_of(table: pa.Table) -> list[tuple]:
    return in_order(unsorted(table))


def unsorted(table: pa.Table) -> list[tuple]:
    columns = [column.to_pylist() for column in table.columns]
    return list(zip(*columns, strict=True))


def moment(time_us: int) -> object:
    return pa.scalar(time_us, pa.timestamp("us", tz="UTC")).as_py()


def budget(examples: int, steps: int) -> settings:
    factor = {"soak": 50, "quick": 0.1}.get(os.environ.get("HYPOTHESIS_PROFILE", ""), 1)
    return settings(max_examples=max(1, int(examples * factor)), stateful_step_count=steps)


def test_a_store_on_a_simulated_machine_is_its_model() -> None:
    run_state_machine_as_test(Simulated, settings=budget(by_day(30, 80), 40))


def test_a_store_whose_reads_evict_their_files_is_its_model_on_a_simulated_machine() -> None:
    machine = of_evicting_reads(Simulated)
    run_state_machine_as_test(machine, settings=budget(by_day(5, 40), 40))


def test_a_store_whose_reads_evict_their_files_is_its_model_on_real_lance() -> None:
    run_state_machine_as_test(of_evicting_reads(Real), settings=budget(by_day(1, 5), 40))


def test_a_store_on_real_files_and_lance_is_its_model() -> None:
    run_state_machine_as_test(Real, settings=budget(by_day(2, 5), 40))
