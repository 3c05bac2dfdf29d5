"""A diff has exactly the rows that differ between two moments, wherever they lie."""

from __future__ import annotations

import datetime as dt
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import siltstone as st
from siltstone.query.diff import changed_keys
from tests.nightly import by_day
from tests.query.levels import LEVELS, Level, at_level
from tests.query.test_diff_values import is_same
from tests.server.stores import joined_to

COLUMNS = {"a": "string", "id": "int64", "x": "float64", "tags": "list<int64>"}
KEY = ["a", "id"]
VALUES: list[Any] = [None, float("nan"), 0.0, -0.0, 1.0]
LISTS: list[Any] = [None, [], [1], [1, 2]]
STEPS = (
    *("upsert", "upsert", "upsert", "delete", "delete", "again", "checkpoint", "merge"),
    *("truncate", "load", "optimize", "column", "drop", "rename"),
)


class Life:
    """A random life of the table `t`, which may be gone now and then."""

    def __init__(self, db: st.Store, seed: int) -> None:
        self.db, self.random = db, random.Random(seed)
        self.make()

    def make(self) -> None:
        self.db.create_table("t", COLUMNS, primary_key=KEY)

    @property
    def table(self) -> Any:
        return self.db["t"]

    def step(self) -> None:
        name = self.random.choice(STEPS)
        if "t" not in self.db:
            self.make()
        getattr(self, name)()

    def rows(self) -> list[dict[str, Any]]:
        pick, some = self.random.choice, self.random.sample(range(60), 12)
        rows = [{"a": f"k{n % 3}", "id": n, "x": pick(VALUES), "tags": pick(LISTS)} for n in some]
        names = self.table.schema.names
        return [{name: row.get(name) for name in names} for row in rows]

    def upsert(self) -> None:
        self.table.upsert(self.rows())

    def again(self) -> None:
        self.table.upsert(self.table.to_arrow())  # equal values are no changes

    def delete(self) -> None:
        self.table.delete([(row["a"], row["id"]) for row in self.rows()])

    def truncate(self) -> None:
        self.table.truncate()

    def load(self) -> None:
        stage = self.db.stage("t")
        with self.db.transaction() as tx:
            tx.attach(stage, [stage.run(pa.Table.from_pylist(self.rows(), self.table.schema))])

    def column(self) -> None:
        if "more" in self.table.schema.names:
            self.table.drop_column("more")
        else:
            self.table.add_column("more", "int64")

    def drop(self) -> None:
        self.db.drop_table("t")

    def rename(self) -> None:
        self.db.rename_table("t", f"old{self.db.seq}")

    def checkpoint(self) -> None:
        self.db.checkpoint()

    def merge(self) -> None:
        self.db.merge()

    def optimize(self) -> None:
        self.db.optimize()


def rows_at(db: st.Store, seq: int, name: str = "t") -> dict[Any, dict[str, Any]]:
    """Return the rows of the table at a seq, by key."""
    with db.snapshot(seq=seq) as past:
        found = past[name].to_arrow().to_pylist() if name in past else []
        key = past[name].primary_key if name in past else ()
    return {tuple(row[part] for part in key): row for row in found}


def compared(db: st.Store, a: int, b: int) -> dict[Any, tuple[str, Any, Any]]:
    """Return what differs, by key, as a comparison of all rows finds it."""
    old, new = rows_at(db, a), rows_at(db, b)
    names = {name for rows in (old, new) for row in rows.values() for name in row}
    found = dict[Any, tuple[str, Any, Any]]()
    for key in old.keys() | new.keys():
        before, after = old.get(key), new.get(key)
        if before is None or after is None:
            found[key] = ("removed" if after is None else "added", before, after)
        elif not all(is_same(before.get(name), after.get(name)) for name in names):
            found[key] = ("changed", before, after)
    return found


def told(found: list[dict[str, Any]]) -> dict[Any, tuple[str, Any, Any]]:
    """Return the rows of a diff in the same form."""
    keys = [{part: row[part] for part in KEY} for row in found]
    whole: list[Any] = [
        (row["_change"], *(each and {**key, **each} for each in (row["_old"], row["_new"])))
        for row, key in zip(found, keys, strict=True)
    ]
    return {tuple(key.values()): each for key, each in zip(keys, whole, strict=True)}


def same(one: dict[Any, Any], other: dict[Any, Any]) -> bool:
    return one.keys() == other.keys() and all(is_same(one[key], other[key]) for key in one)


@pytest.mark.parametrize("few", [0, 100_000], ids=["in-order", "by-key"])
@pytest.mark.parametrize("seed", range(by_day(3, 40)))
def test_a_diff_is_what_a_comparison_of_both_states_finds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int, few: int
) -> None:
    monkeypatch.setattr(changed_keys, "CHANGES_MAX", few)
    with st.connect(tmp_path / "s", background=False) as db:
        life = Life(db, seed)
        for _ in range(30):
            life.step()
        first = 1
        for _ in range(25):
            a, b = (life.random.randint(first, db.seq) for _ in range(2))
            wanted = compared(db, a, b)
            try:
                found = db.diff(a, b, ["t"])["t"]
            except st.TableNotFoundError:
                assert not wanted
                continue
            rows = found.to_pylist()
            assert same(told(rows), wanted), (a, b)
            assert [(row["a"], row["id"]) for row in rows] == sorted(wanted)
            changes = [change for change, _, _ in wanted.values()]
            counted = found.added, found.removed, found.changed
            assert counted == tuple(map(changes.count, ("added", "removed", "changed")))


@pytest.mark.parametrize("level", LEVELS)
def test_a_diff_has_its_rows_at_each_level(tmp_path: Path, level: Level) -> None:
    with st.connect(tmp_path / "s", background=False) as db:
        table = db.create_table("t", {"id": "int64", "v": "string"}, primary_key="id")
        table.upsert([{"id": n, "v": "a"} for n in range(5)])
        before, time = db.seq, dt.datetime.now(dt.UTC)
        table.upsert([{"id": 1, "v": "b"}, {"id": 2, "v": "a"}, {"id": 9, "v": "n"}])
        table.delete([3])
        after = db.seq
        at_level(db, level)
        rows = [
            {"_change": "changed", "id": 1, "_old": {"v": "a"}, "_new": {"v": "b"}},
            {"_change": "removed", "id": 3, "_old": {"v": "a"}, "_new": None},
            {"_change": "added", "id": 9, "_old": None, "_new": {"v": "n"}},
        ]
        found = db.diff(before, after)
        assert (found.a, found.b, list(found), found.rows) == (before, after, ["t"], 3)
        assert found["t"].to_pylist() == rows
        assert pa.table(found["t"]).num_rows == 3
        assert str(found).splitlines()[2].split() == ["t", "1", "1", "1"]
        db.tag("before", seq=before)
        for moment in ("before", time, time.isoformat()):
            assert db.diff(moment, after)["t"].to_pylist() == rows
        turned = db.diff(after, before)["t"]
        assert (turned.added, turned.removed, turned.changed) == (1, 1, 1)
        assert db.diff(after, after).rows == db.diff(before, before).rows == 0


def test_a_diff_from_a_tag_below_the_history_reads_both_states(tmp_path: Path) -> None:
    with st.connect(tmp_path / "s", background=False, retention=0) as db:
        table = db.create_table("t", {"id": "int64", "v": "int64"}, primary_key="id")
        table.upsert([{"id": n, "v": n} for n in range(5)])
        db.tag("kept")
        kept = db.seq - 1
        table.update(1, v=7)
        db.checkpoint()
        db.merge()
        db.vacuum(dry_run=False, grace_s=0)
        with pytest.raises(st.SnapshotExpiredError):
            db.diff(kept - 1)
        assert db.diff("kept")["t"].to_pylist() == [
            {"_change": "changed", "id": 1, "_old": {"v": 1}, "_new": {"v": 7}}
        ]


def test_a_name_that_passed_to_a_table_with_another_key_has_all_rows_of_both(
    tmp_path: Path,
) -> None:
    with st.connect(tmp_path / "s", background=False) as db:
        db.create_table("t", data=[{"id": 1, "v": 2}], primary_key="id")
        before = db.seq
        db.drop_table("t")
        db.create_table("t", data=[{"id": "x"}], primary_key="id")
        assert db.diff(before)["t"].to_pylist() == [
            {"_change": "removed", "_old": {"id": 1, "v": 2}, "_new": None},
            {"_change": "added", "_old": None, "_new": {"id": "x"}},
        ]
        db.create_table("keys", data=[{"id": 1}, {"id": 2}], primary_key="id")
        made = db.seq
        db["keys"].delete([1])
        assert db.diff(made, tables="keys")["keys"].to_pylist() == [
            {"_change": "removed", "id": 1, "_old": {}, "_new": None}
        ]


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ((99,), st.SnapshotExpiredError, "seq 99"),
        ((-1,), st.SnapshotExpiredError, "seq -1"),
        ((True,), st.RequestError, "must be an integer"),
        ((1.5,), st.RequestError, "a datetime with a zone"),
        ((None,), st.RequestError, "must be an integer"),
        (("audit",), st.RequestError, "no tag 'audit'"),
        (("2026-01-01",), st.RequestError, "has no zone"),
        ((dt.datetime(2999, 1, 1, tzinfo=dt.UTC),), st.SnapshotExpiredError, "future"),
        ((1, 2, ["none"]), st.TableNotFoundError, "no table 'none'"),
        ((1, 2, 3), st.RequestError, "a list of names"),
        ((1, 2, [3]), st.RequestError, "a list of names"),
    ],
)
def test_what_is_no_moment_and_no_table_is_refused(
    tmp_path: Path, arguments: Any, error: type[Exception], text: str
) -> None:
    with st.connect(tmp_path / "s", background=False) as db:
        db.create_table("plain", {"id": "int64"})
        db.create_table("t", {"id": "int64"}, primary_key="id")
        assert list(db.diff(1)) == ["plain", "t"]
        with pytest.raises(error, match=text):
            db.diff(*arguments)


def test_other_processes_have_the_same_diff(tmp_path: Path) -> None:
    with st.connect(tmp_path / "s", background=False) as db:
        table = db.create_table("t", {"id": "int64", "v": "int64"}, primary_key="id")
        before = db.seq
        table.upsert({"id": 1, "v": 1})
        wanted = db.diff(before)
        with (
            st.connect(tmp_path / "s", read_only=True) as reader,
            st.connect(db.serve(port=0).url) as remote,
            joined_to(db) as joined,
        ):
            for other in (reader, remote, joined):
                found = other.diff(before)
                assert str(found) == str(wanted)
                assert found["t"].to_arrow().equals(wanted["t"].to_arrow())
            with pytest.raises(st.RequestError, match="no tag"):
                remote.diff("x")
