"""An optimize of plain tables is a frame of the owner, whoever did the work; no row changes."""

from __future__ import annotations

import random
from pathlib import Path

import msgspec
import pytest

import siltstone as st
from siltstone.admin import optimize_store
from siltstone.engine.catalog import catalog as catalogs
from siltstone.maintenance.compaction.compaction import Optimized
from siltstone.maintenance.merge.merge import Deferred
from siltstone.storage.manifest.manifest_store import ManifestStore
from tests.engine.seams import HookedTables, fake_env, jobs_of, open_store, until
from tests.maintenance.optimizers import optimizer_of

SCHEMA = {"id": "int64", "v": "int64"}


def rows(table) -> list[tuple[int, int]]:
    return sorted((row["id"], row["v"]) for row in table.to_arrow().to_pylist())


def files(db: st.Store, name: str = "log") -> int:
    incarnation = catalogs.incarnation_of(catalogs.find(db._core.state().view.catalog, name))
    version = catalogs.version_of(incarnation)
    return len(db._parts.site.tables.reader.open(version.pin).spans)


def write(db: st.Store) -> None:
    """Make six small files of a plain table, and two of a keyed one."""
    table = db.create_table("log", SCHEMA)
    keyed = db.create_table("t", SCHEMA, primary_key="id")
    for turn in range(6):
        table.append([{"id": n, "v": turn} for n in range(3)])
    for turn in range(2):
        keyed.upsert([{"id": n, "v": turn} for n in range(3)])
        db.checkpoint()


@pytest.fixture
def made(tmp_path: Path):
    hooked: list[HookedTables] = []
    with open_store(tmp_path / "db", fake_env(hooked=hooked)) as db:
        write(db)
        yield db, db["log"], hooked[0]


def test_the_owner_does_it_together_with_the_keyed_tables(made) -> None:
    db, table, _ = made
    before, seq = rows(table), db.seq
    assert db.optimize() == Optimized(("log", "t"), 8, 2, 24)
    assert files(db) == 1
    assert rows(table) == before
    assert rows(db.snapshot(seq=seq)["log"]) == before
    assert db.optimize() == Optimized((), 0, 0, 0)
    assert db.verify(deep=True).is_sound


def test_one_plain_table_is_optimized_also_before_a_record_knows_it(made) -> None:
    db, _, _ = made
    new = db.create_table("new", SCHEMA)
    for turn in range(2):
        new.append({"id": 1, "v": turn})
    assert db.optimize("new") == Optimized(("new",), 2, 1, 2)
    assert files(db) == 6


def test_beside_an_owner_that_does_not_look_it_is_deferred_and_taken_at_the_next_flush(
    made,
) -> None:
    db, table, tables = made
    expected = rows(table)
    found = optimizer_of(db.path, tables).optimize()
    assert isinstance(found, Deferred)
    assert "log" in found.reason
    table.append({"id": 7, "v": 7})
    assert files(db) == 7
    db.checkpoint()
    assert files(db) == 2
    assert rows(table) == [*expected, (7, 7)]
    assert jobs_of(db.path).list() == []


def test_what_is_left_to_the_owner_is_not_done_again(made) -> None:
    db, _, tables = made
    optimizer_of(db.path, tables).optimize()

    def refuse(*_: object) -> None:
        pytest.fail("it is written already")

    tables.hooks["compact"] = refuse
    assert isinstance(optimizer_of(db.path, tables).optimize(), Deferred)
    assert len(jobs_of(db.path).list()) == 1
    assert db.optimize().files_before == 6
    assert optimizer_of(db.path, tables).optimize() == Optimized((), 0, 0, 0)


def test_an_owner_that_takes_it_is_waited_for_and_what_it_took_is_counted(made) -> None:
    db, table, tables = made
    expected = rows(table)

    def owner() -> bool:
        return bool(db._parts.owner.optimizer.take_finished())

    assert optimizer_of(db.path, tables, owner).optimize() == Optimized(("log", "t"), 8, 2, 24)
    assert files(db) == 1
    assert rows(table) == expected


def test_a_delete_meanwhile_wins_and_the_rest_is_planned_anew(made) -> None:
    db, table, tables = made

    def owner() -> bool:
        nonlocal deletes
        if deletes:
            deletes -= 1
            table.delete_where("v = 2 and id = 1")
        db._parts.owner.optimizer.take_finished()
        return True

    deletes = 1
    found = optimizer_of(db.path, tables, owner).optimize()
    assert found.files_before == 2 + 6
    assert files(db) == 1
    assert (1, 2) not in rows(table)
    assert len(rows(table)) == 17


def test_what_a_dead_optimizer_finished_is_taken_by_the_owner(made) -> None:
    db, table, tables = made
    expected = rows(table)

    class DiedError(BaseException):
        pass

    def die(*_: object) -> None:
        del tables.hooks["swap"]
        raise DiedError

    tables.hooks["swap"] = die
    with pytest.raises(DiedError):
        optimizer_of(db.path, tables).optimize()
    tables.hooks["compact"] = lambda *_: pytest.fail("it is written already")
    assert db.optimize() == Optimized(("log", "t"), 8, 2, 24)
    assert files(db) == 1
    assert rows(table) == expected


def test_what_is_condemned_is_not_taken(made) -> None:
    db, table, tables = made
    expected = rows(table)
    optimizer_of(db.path, tables).optimize()
    manifests = ManifestStore(fake_env().files, db.path)
    now = fake_env().now_us() + 1
    manifests.publish(
        lambda record: msgspec.structs.replace(record, gc_horizon_us=now),
        base=manifests.newest(),
    )
    db.checkpoint()
    assert files(db) == 6
    assert jobs_of(db.path).list() == []
    assert db.optimize().files_before == 6
    assert rows(table) == expected


def test_files_of_a_table_that_is_dropped_meanwhile_are_dropped(made) -> None:
    db, _, tables = made
    optimizer_of(db.path, tables).optimize()
    db.drop_table("log")
    db.checkpoint()
    assert jobs_of(db.path).list() == []
    assert db.verify(deep=True).is_sound


def test_without_an_owner_the_store_is_owned_for_a_moment(tmp_path: Path) -> None:
    with st.connect(tmp_path / "db", background=False, segment_bytes=65_536) as db:
        write(db)
        db["log"].delete_where("v = 1 and id = 2")
        expected = rows(db["log"])
    assert optimize_store(tmp_path / "db") == Optimized(("log", "t"), 8, 2, 23)
    assert optimize_store(tmp_path / "db") == Optimized((), 0, 0, 0)
    with st.connect(tmp_path / "db", background=False, segment_bytes=65_536) as db:
        assert files(db) == 1
        assert rows(db["log"]) == expected
        db.checkpoint()
        assert db.verify(deep=True).is_sound


def test_an_owner_in_the_background_takes_it_over_unasked(tmp_path: Path) -> None:
    env = fake_env()
    with open_store(tmp_path / "db", env, background=True) as db:
        write(db)
        expected = rows(db["log"])
        found = optimizer_of(db.path, HookedTables(env.tables(db.path, env.files, ""))).optimize()
        assert isinstance(found, Deferred)
        until(lambda: files(db) == 1)
        until(lambda: not jobs_of(db.path).list())
        assert rows(db["log"]) == expected


def test_little_is_in_vain_beside_a_writer_that_touches_a_hundredth_of_the_files_in_each_task(
    tmp_path: Path,
) -> None:
    hooked: list[HookedTables] = []
    with open_store(tmp_path / "db", fake_env(hooked=hooked)) as db:
        table = db.create_table("log", SCHEMA)
        for part in range(100):
            table.append([{"id": part, "v": n} for n in range(10)])
        written, chance = [], random.Random(1)

        def touch(_pin: object, within: tuple[int, int]) -> None:
            written.append(within[1] - within[0])
            table.delete_where(f"id = {chance.randrange(100)} and v = {chance.randrange(10)}")

        hooked[0].hooks["compact"] = touch
        done = db.optimize(target_rows=100, workers=1)
        assert isinstance(done, Optimized)
        assert len(written) >= 10
        assert 1 - done.rows / sum(written) <= 0.2
        assert files(db) <= 15
