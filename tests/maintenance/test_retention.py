"""Whatever is written, tagged, read, merged and vacuumed, the kept past answers as it did."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as hs

import siltstone as st
from siltstone.engine.catalog import catalog as catalogs
from siltstone.engine.catalog.table_schema import table_schema_of
from siltstone.maintenance.flush.bulk_load import load
from siltstone.maintenance.thinning import BOUNDS, Bounds
from tests.maintenance.stores import EAGER, Clock, open_store, rows
from tests.nightly import by_day

KEYED = {"id": "int64", "v": "int64"}
STEPS = (
    *("upsert", "delete", "append", "overwrite", "truncate", "rename", "alter", "drop"),
    *("checkpoint", "merge", "vacuum", "day", "tag", "untag", "hold", "release", "reopen"),
    *("follow", "follow_on", "load", "load"),
)


class World:
    """A store, and what each of its seqs showed when it was the newest."""

    def __init__(self, root: Path, bounds: Bounds) -> None:
        self.root, self.clock, self.count, self.bounds = root, Clock(), 0, bounds
        self.answers: dict[int, dict] = {}
        self.tags: dict[str, int] = {}
        self.held: list[st.Snapshot] = []
        self.times: dict[int, int] = {}
        self.followed: int | None = None
        self.open()

    def open(self) -> None:
        named = {"load_rows_min": 2, "bounds": self.bounds}  # history names a load without a copy
        self.db = open_store(self.root, self.clock, retention_s=86_400, **named)
        for name, key in (("t", "id"), ("p", ())):
            if name not in self.db.tables():
                self.db.create_table(name, KEYED, primary_key=key)
        self.note()

    def note(self) -> None:
        self.answers[self.db.seq] = answer(self.db)
        self.times[self.db.seq] = self.clock()

    def step(self, what: str) -> None:
        self.count += 1
        getattr(self, what)()
        self.note()

    def upsert(self) -> None:
        rows = [{"id": (self.count + n) % 7, "v": self.count} for n in range(3)]
        self.db["t"].upsert(rows, missing="null")

    def load(self) -> None:
        """Load rows in files of their own: straight to base, if the table never had a row."""
        table = catalogs.find(self.db._core.state().view.catalog, "t")
        table_schema = table_schema_of(catalogs.schema_of(table))
        ids = [(self.count + n) % 7 for n in range(2)]
        batch = pa.table({"id": ids, "v": [self.count] * 2})
        load(self.db._core, table, table_schema, batch, may_repeat=True, bytes_min=1)

    def delete(self) -> None:
        self.db["t"].delete(self.count % 7)

    def append(self) -> None:
        self.db["p"].append([{"id": self.count, "v": self.count}])

    def overwrite(self) -> None:
        self.db["p"].overwrite([{"id": self.count, "v": self.count}])

    def truncate(self) -> None:
        self.db["tp"[self.count % 2]].truncate()

    def rename(self) -> None:
        self.db.rename_table("t", "u")
        self.note()
        self.db.rename_table("u", "t")

    def alter(self) -> None:
        table = self.db["t"]
        extra = [name for name in table.schema.names if name not in KEYED]
        if extra:
            table.drop_column(extra[0])
        else:
            table.add_column(f"x{self.count}", "int64")

    def drop(self) -> None:
        name, key = ("t", "id") if self.count % 2 else ("p", ())
        self.db.drop_table(name)
        self.note()
        self.db.create_table(name, KEYED, primary_key=key)

    def checkpoint(self) -> None:
        self.db.checkpoint()

    def merge(self) -> None:
        self.db.checkpoint()
        self.db.merge()

    def vacuum(self) -> None:
        self.db.vacuum(dry_run=False, grace_s=0)

    def day(self) -> None:
        self.clock.move(days=0.7)

    def tag(self) -> None:
        kept = [seq for seq in self.answers if seq >= self.oldest]
        name, seq = f"tag{self.count}", kept[self.count % len(kept)]
        self.db.tag(name, seq)
        self.tags[name] = seq

    def untag(self) -> None:
        if self.tags:
            self.db.untag(self.tags.popitem()[0])

    def follow(self) -> None:
        """Follow the changes of `t` from the newest seq on."""
        self.followed = self.db.seq
        self.db.tag("follow", self.followed, lasts="400d")

    def follow_on(self) -> None:
        """Take over some of the changes that came since, as whoever follows does."""
        if self.followed is None:
            return
        since, answers = self.followed, self.answers
        seqs = sorted(seq for seq in answers if seq >= since and "t" in answers[seq])
        until = seqs[self.count % len(seqs)]
        self.check_changes(self.followed, until)
        self.followed = until
        self.db.tag("follow", self.followed, lasts="400d")

    def check_changes(self, since: int, until: int) -> None:
        copy = {row[0] for row in self.answers[since]["t"][1]}
        fed = self.db.changes(since, until, ["t"])["t"].read_all()
        for row in fed.select(["_op", "id"]).to_pylist():
            (copy.discard if row["_op"] == "delete" else copy.add)(row["id"])
        assert copy == {row[0] for row in self.answers[until]["t"][1]}

    def hold(self) -> None:
        kept = [seq for seq in self.answers if seq >= self.oldest]
        self.held.append(self.db.snapshot(seq=kept[self.count % len(kept)]))

    def release(self) -> None:
        self.held = self.held[1:]

    def reopen(self) -> None:
        self.held = []
        self.db.close()
        self.open()

    @property
    def oldest(self) -> int:
        return self.db.status().oldest_seq

    def check(self) -> None:
        for snapshot in self.held:
            assert answer(snapshot) == self.answers[snapshot.seq]
        wanted = {seq for seq in self.answers if seq >= self.oldest} | set(self.tags.values())
        for seq in sorted(wanted):
            with self.db.snapshot(seq=seq) as past:
                assert answer(past) == self.answers[seq], seq
        if self.followed is not None:
            self.check_changes(self.followed, self.db.seq)
        young = [s for s, at in self.times.items() if at >= self.clock() - 86_400_000_000]
        assert self.oldest <= min(young)
        assert self.db.verify(deep=True).findings == ()


def answer(source) -> dict:
    return {name: (source[name].schema.names, rows(source[name])) for name in source.tables()}


def play(steps: list[str], root: Path, bounds: Bounds = BOUNDS) -> None:
    world = World(root, bounds)
    try:
        for step in steps:
            world.step(step)
        world.check()
    finally:
        world.db.close()


def test_a_floor_below_the_newest_record_does_not_jump_onto_it(tmp_path):
    steps = ("day", "day", "append", "checkpoint", "vacuum", "delete", "checkpoint", "day")
    play([*steps, "vacuum"], tmp_path / "s")


@pytest.mark.parametrize("bounds", [BOUNDS, EAGER], ids=["usual", "eager"])
@settings(max_examples=by_day(15, 60))
@given(hs.lists(hs.sampled_from(STEPS), min_size=8, max_size=30))
def test_the_kept_past_reads_as_it_did_when_it_was_the_present(bounds, steps):
    with tempfile.TemporaryDirectory() as folder:
        play([*steps, "vacuum"], Path(folder) / "s", bounds)
