"""Namespaces are those of a dict of sets, whatever is committed, flushed, trimmed or lost between.

After each step the newest state and every kept seq are compared, in the owner and in a reader.
"""

from __future__ import annotations

import random
from collections.abc import Mapping

from hypothesis import settings
from hypothesis import strategies as some
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from siltstone.errors import TableExistsError, TableNotFoundError
from siltstone.lance_versions.errors import NamespaceNotEmptyError
from siltstone.local.store import LocalStore
from tests.crash.store_life import open_store
from tests.nightly import by_day
from tests.support.simulated_files import SimFiles

PATHS = ["a", "b", "a.a", "a.b", "b.a", "b.b"]
TABLES = [*(f"{path}.t" for path in PATHS), "t"]
Spaces = Mapping[str, Mapping[str, str]]


def above(name: str) -> list[str]:
    levels = name.split(".")
    return [".".join(levels[:n]) for n in range(1, len(levels))]


class Namespaces(RuleBasedStateMachine):
    """See the module. `created` has the properties of what was created, `tables` are names."""

    def __init__(self) -> None:
        super().__init__()
        self.files = SimFiles()
        self.db: LocalStore = open_store(self.files)
        self.created: dict[str, dict[str, str]] = {}
        self.tables: set[str] = set()
        self.past: dict[int, Spaces] = {}

    def expected(self) -> Spaces:
        inside = {*self.created, *self.tables}
        found: dict[str, dict[str, str]] = {space: {} for name in inside for space in above(name)}
        return found | self.created

    def has(self, name: str) -> bool:
        return any(name in above(each) for each in (*self.created, *self.tables))

    @rule(name=some.sampled_from(PATHS), value=some.text("xyz", max_size=2))
    def create(self, name: str, value: str) -> None:
        if name in self.created:
            return
        with self.db.transaction() as tx:
            tx.lance.create_namespace(name, {"value": value})
        self.created[name] = {"value": value}

    @rule(name=some.sampled_from(PATHS))
    def drop(self, name: str) -> None:
        if name not in self.created:
            return
        is_refused = False
        try:
            with self.db.transaction() as tx:
                tx.lance.drop_namespace(name)
        except NamespaceNotEmptyError:
            is_refused = True
        assert is_refused == self.has(name)
        if not is_refused:
            del self.created[name]

    @rule(name=some.sampled_from(TABLES))
    def create_table(self, name: str) -> None:
        try:
            self.db.create_table(name, {"n": "int64"}, primary_key="n")
            assert name not in self.tables
            self.tables.add(name)
        except TableExistsError:
            assert name in self.tables

    @rule(name=some.sampled_from(TABLES))
    def drop_table(self, name: str) -> None:
        try:
            self.db.drop_table(name)
            self.tables.remove(name)
        except TableNotFoundError:
            assert name not in self.tables

    @rule()
    def flush(self) -> None:
        self.db.checkpoint()

    @rule()
    def vacuum(self) -> None:
        self.db.vacuum(dry_run=False, grace_s=-1e9)

    @rule(is_cut=some.booleans(), seed=some.integers(0, 9))
    def restart(self, is_cut: bool, seed: int) -> None:
        self.db._core.writer().sync()  # pyright: ignore[reportPrivateUsage]
        if is_cut:
            owner = self.db._parts.owner  # pyright: ignore[reportPrivateUsage]
            assert owner is not None
            owner.syncer.stop()
            self.files = next(self.files.images(random.Random(seed))).files
        else:
            self.db.close()
        self.db = open_store(self.files)

    @invariant()
    def now_and_before(self) -> None:
        self.past[self.db.seq] = self.expected()
        for seq, wanted in self.past.items():
            if seq:
                with self.db.snapshot(seq=seq) as snapshot:
                    assert snapshot.namespaces() == wanted, f"seq {seq}"

    @precondition(lambda self: self.past)
    @invariant()
    def read_only(self) -> None:
        with open_store(self.files, read_only=True) as reader, reader.snapshot() as snapshot:
            assert snapshot.namespaces() == self.past[snapshot.seq]

    def teardown(self) -> None:
        self.db.close()


TestNamespaces = Namespaces.TestCase
TestNamespaces.settings = settings(max_examples=by_day(15, 200))
