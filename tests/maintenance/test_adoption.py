"""A load into a table with rows is written once: history names its files, a merge adopts them."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest

import siltstone as st
from siltstone import admin
from siltstone.engine.write import bulk
from siltstone.formats.manifest import KeyedStorage
from siltstone.local.store import LocalStore
from siltstone.maintenance.flush import checkpoint
from siltstone.maintenance.flush.bulk_load import load
from siltstone.options import Options
from tests.maintenance.stores import Clock, env_of

COLUMNS = {"id": "int64", "v": "string", "n": "float64"}
LOADED = range(10, 60)
Rows = dict[int, tuple[Any, ...]]


@pytest.fixture(params=[False, True], ids=["fake", "lance"])
def real_lance(request: pytest.FixtureRequest) -> bool:
    return request.param


@pytest.fixture(autouse=True, params=[1, bulk.COVERED_ROWS_MIN], ids=["runs", "no runs"])
def _with_key_runs(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let loads have key runs from so many rows on."""
    monkeypatch.setattr(bulk, "COVERED_ROWS_MIN", request.param)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def reopen(tmp_path: Path, clock: Clock, real_lance: bool) -> Callable[..., LocalStore]:
    env = replace(env_of(clock, real_lance=real_lance), load_rows_min=2)

    def opened(*, read_only: bool = False, **options: object) -> LocalStore:
        given = Options(background=False, segment_bytes=65_536, **options)
        return LocalStore.open(tmp_path / "s", given, env=env, read_only=read_only)

    return opened


@pytest.fixture
def db(reopen: Callable[..., LocalStore]) -> Iterator[LocalStore]:
    with reopen(retention_s=0) as store:
        store.create_table("t", COLUMNS, primary_key="id")
        store["t"].upsert([{"id": i, "v": f"old{i}", "n": i / 2} for i in range(20)])
        yield store


def given(ids: Any, v: str = "load") -> pa.Table:
    return pa.table({"id": list(ids), "v": [f"{v}{i}" for i in ids], "n": [i / 4 for i in ids]})


def attach(db: st.Store, rows: pa.Table | None = None, op: str = "upsert") -> None:
    stage = db.stage("t", op)
    piece = stage.run_through(db._core.tables.writer, given(LOADED) if rows is None else rows)
    with db.transaction() as tx:
        tx.attach(stage, [piece])


def storage(db: st.Store) -> KeyedStorage:
    """Return the storage of the newest incarnation."""
    mine = [s for s in db._core.state().view.record.keyed if "/t-" in s.folder]
    return max(mine, key=lambda found: found.incarnation)


def record(db: st.Store) -> Any:
    return db._core.state().view.record


def rows(source: Any) -> Rows:
    table = source["t"].to_arrow()
    assert table.num_rows == source["t"].count()
    return {row["id"]: tuple(row.values())[1:] for row in table.to_pylist()}


def merged(db: st.Store) -> None:
    db.checkpoint()
    db.merge()


def vacuumed(db: st.Store) -> None:
    """Vacuum without mercy for what is not published."""
    db.vacuum(dry_run=False, grace_s=0)


def files(db: st.Store, folder: str) -> dict[str, tuple[int, int]]:
    """Return the data files in a folder of the table, with their identities."""
    found: dict[str, tuple[int, int]] = {}
    for path in (db.path / storage(db).folder / folder).rglob("data/*"):
        if "_siltstone" not in path.parts[:-2]:
            at = path.stat()
            found[path.name] = (at.st_dev, at.st_ino)
    return found


def expected() -> Rows:
    old: Rows = {i: (f"old{i}", i / 2) for i in range(20)}
    return old | {i: (f"load{i}", i / 4) for i in LOADED}


def test_base_and_history_have_the_file_of_a_load_and_no_copy(db: LocalStore) -> None:
    db.checkpoint()
    history = files(db, ".history")
    attach(db)
    (staged,) = files(db, ".attached").values()
    db.checkpoint()
    assert files(db, ".history") == history
    assert [load.seq for load in storage(db).loads] == [db.seq]
    assert rows(db) == expected()
    db.merge()
    assert staged in files(db, "base").values()
    assert len(files(db, "base")) == 2  # the load, and the rows that are not in it
    assert rows(db) == expected()


def test_every_seq_reads_the_same_whatever_became_of_the_load(
    db: LocalStore, reopen: Callable[..., LocalStore]
) -> None:
    steps: list[Callable[[], object]] = [
        lambda: attach(db),
        lambda: db["t"].upsert(
            [{"id": 12, "v": "later", "n": 0.0}, {"id": 70, "v": "x", "n": 0.0}]
        ),
        lambda: db["t"].delete([11, 13]),
        lambda: attach(db, given(range(50, 80), "second")),
        lambda: attach(db, given([10, 55]).select(["id"]), "delete"),
        lambda: db["t"].upsert({"id": 10, "v": "last", "n": 0.0}),
    ]
    tags, was = [], dict[str, Rows]()
    with ExitStack() as held:
        for number, step in enumerate(steps):
            step()
            was[f"tag{number}"] = rows(db)
            db.tag(f"tag{number}")
            tags.append(f"tag{number}")
        for work in (db.checkpoint, db.merge, db.optimize, lambda: vacuumed(db)):
            work()
            assert {tag: rows(held.enter_context(db.snapshot(tag=tag))) for tag in tags} == was
            assert rows(db) == was["tag5"]
    db.close()
    with reopen() as again, reopen(read_only=True) as other:
        for source in (again, other):
            assert rows(source) == was["tag5"]
            for tag in tags:
                with source.snapshot(tag=tag) as past:
                    assert rows(past) == was[tag]


def test_later_deletes_and_updates_are_hidden_in_the_adopted_file(db: LocalStore) -> None:
    attach(db)
    db["t"].upsert({"id": 20, "v": "later", "n": 1.0})
    db["t"].delete([21])
    merged(db)
    found = storage(db).base
    assert found is not None
    assert (found.rows, found.hidden) == (59, 2)
    wanted = {**expected(), 20: ("later", 1.0)}
    del wanted[21]
    assert rows(db) == wanted


def test_a_load_with_many_replaced_rows_is_written_as_rows_are(db: LocalStore) -> None:
    attach(db)
    db["t"].delete(list(range(10, 30)))
    db.checkpoint()
    (staged,) = files(db, ".attached").values()
    db.merge()
    assert staged not in files(db, "base").values()
    assert rows(db) == {k: v for k, v in expected().items() if not 10 <= k < 30}


def test_columns_go_by_id_from_the_load_into_base(db: LocalStore) -> None:
    merged(db)
    attach(db)
    db["t"].drop_column("n")
    db["t"].add_column("n", "float64")
    db["t"].rename_column("v", "w")
    db["t"].add_column("v", "string")
    db["t"].upsert({"id": 100, "w": "after", "n": 7.0, "v": "new"})
    (staged,) = files(db, ".attached").values()
    wanted = {i: (v, None, None) for i, (v, _) in expected().items()} | {100: ("after", 7.0, "new")}
    assert rows(db) == wanted
    merged(db)
    assert staged in files(db, "base").values()
    assert rows(db) == wanted
    db["t"].upsert({"id": 30, "w": "x", "n": 1.0, "v": "y"})
    merged(db)
    assert rows(db) == {**wanted, 30: ("x", 1.0, "y")}


def test_a_load_that_lacks_a_column_with_a_default_is_merged_as_rows(db: LocalStore) -> None:
    merged(db)
    attach(db)
    (staged,) = files(db, ".attached").values()
    db["t"].add_column("more", "int64", 7)
    db["t"].upsert({"id": 100, "v": "after", "n": 7.0, "more": None})
    wanted = {i: (*row, 7) for i, row in expected().items()} | {100: ("after", 7.0, None)}
    assert rows(db) == wanted
    merged(db)
    assert staged not in files(db, "base").values()
    assert rows(db) == wanted


def test_a_load_over_an_altered_base_is_adopted(db: LocalStore) -> None:
    merged(db)
    db["t"].drop_column("v")
    db["t"].add_column("w", "string")
    merged(db)
    db["t"].add_column("v", "string")
    more = given(LOADED).select(["id", "n", "v"]).rename_columns(["id", "n", "w"])
    attach(db, more.append_column("v", pa.array([f"v{i}" for i in LOADED])))
    (staged,) = files(db, ".attached").values()
    merged(db)
    assert staged in files(db, "base").values()
    old: Rows = {i: (i / 2, None, None) for i in range(10)}
    assert rows(db) == old | {i: (i / 4, f"load{i}", f"v{i}") for i in LOADED}


def test_loads_and_other_rows_of_one_commit_keep_their_order(db: LocalStore) -> None:
    jobs = [db.stage("t"), db.stage("t", "delete"), db.stage("t")]
    ids = [range(30, 40), [35, 36], [36, 37]]
    pieces = [
        job.run_through(
            db._core.tables.writer,
            given(some, f"job{n}") if job.op == "upsert" else pa.table({"id": list(some)}),
        )
        for n, (job, some) in enumerate(zip(jobs, ids, strict=True))
    ]
    with db.transaction() as tx:
        for job, piece in zip(jobs, pieces, strict=True):
            tx.attach(job, [piece])
    wanted = rows(db)
    assert 35 not in wanted
    assert wanted[36][0] == wanted[37][0].replace("37", "36") == "job236"
    for work in (db.checkpoint, db.merge):
        work()
        assert rows(db) == wanted


def test_the_feed_has_each_row_of_a_load_once(db: LocalStore) -> None:
    begin = db.seq
    attach(db)
    db["t"].upsert({"id": 12, "v": "later", "n": 0.0})
    db.tag("keep", begin, lasts="1d")

    def changes() -> list[tuple[int, int, str]]:
        found = db.changes(since=begin)["t"].read_all()
        return [(r["_seq"] - begin, r["id"], r["v"]) for r in found.to_pylist()]

    wanted = [(1, i, f"load{i}") for i in LOADED] + [(2, 12, "later")]
    for work in (lambda: None, db.checkpoint, db.merge, lambda: db.vacuum(dry_run=False)):
        work()
        assert changes() == wanted


def test_vacuum_takes_a_load_when_no_kept_seq_needs_it(db: LocalStore, clock: Clock) -> None:
    attach(db)
    db["t"].delete([11])
    with db.snapshot():
        merged(db)
        (name,) = files(db, ".attached")
        db.vacuum(dry_run=False, grace_s=0)
        assert name in files(db, ".attached")
    clock.move(seconds=1)
    db["t"].upsert({"id": 1, "v": "z", "n": 0.0})
    merged(db)
    db.vacuum(dry_run=False, grace_s=0)
    db.vacuum(dry_run=False, grace_s=0)
    assert storage(db).loads == ()
    assert files(db, ".attached") == {}
    wanted = {**expected(), 1: ("z", 0.0)}
    del wanted[11]
    assert rows(db) == wanted


def test_who_reads_from_before_a_load_keeps_its_file_from_vacuum(
    db: LocalStore, reopen: Callable[..., LocalStore], clock: Clock
) -> None:
    db.checkpoint()
    with reopen(read_only=True) as other:
        attach(db)
        with other.snapshot() as held:  # by the frame: its record does not name the load
            merged(db)
            db["t"].truncate()
            for _ in range(3):
                clock.move(seconds=1)
                db["t"].upsert({"id": 1, "v": "z", "n": 0.0})
                merged(db)
                vacuumed(db)
            other["t"].count()  # another view
            assert rows(held) == expected()


def test_vacuum_spares_names_that_a_running_merge_gives(db: LocalStore) -> None:
    attach(db)
    db.checkpoint()
    (staged,) = (db.path / storage(db).folder / ".attached").rglob("data/*")
    os.utime(staged, (1, 1))
    base = db.path / storage(db).folder / "base" / "data"
    base.mkdir(parents=True)
    os.link(staged, base / "named.lance")
    (base / "other.lance").write_bytes(b"of a crash")
    os.utime(base / "other.lance", (1, 1))
    db.vacuum(dry_run=False)
    assert (base / "named.lance").exists()
    assert not (base / "other.lance").exists()


def test_no_more_loads_are_named_than_the_bound(
    db: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoint, "LOADS_MAX", 2)
    wanted = rows(db)
    for n in range(4):
        attach(db, given([30 + n, 40 + n], f"n{n}"))
        wanted |= {i: (f"n{n}{i}", i / 4) for i in (30 + n, 40 + n)}
        db.checkpoint()
    assert len(storage(db).loads) == 2
    assert rows(db) == wanted
    db.merge()
    assert rows(db) == wanted


def test_a_shared_out_merge_adopts_as_well(db: LocalStore) -> None:
    merged(db)
    attach(db)
    db["t"].delete([11])
    db.checkpoint()
    (staged,) = files(db, ".attached").values()
    owner, tables = db._owner(), db._parts.site.tables
    owner.merger.merge(execute=lambda tasks: [task.run_on(tables) for task in tasks])
    owner.checkpointer.refresh()
    assert staged in files(db, "base").values()
    wanted = expected()
    del wanted[11]
    assert rows(db) == wanted


def test_a_first_load_that_lost_to_a_row_becomes_a_load_like_others(db: LocalStore) -> None:
    db.create_table("u", COLUMNS, primary_key="id")
    stage = db.stage("u")
    piece = stage.run_through(db._core.tables.writer, given(LOADED))
    db["u"].upsert({"id": 1, "v": "first", "n": 0.0})
    with db.transaction() as tx:
        tx.attach(stage, [piece])
    merged(db)
    assert db["u"].count() == 51


@pytest.mark.parametrize("real_lance", [True], indirect=True)
def test_other_clients_read_adopted_parts(db: LocalStore, real_lance: bool) -> None:
    merged(db)
    attach(db)
    db["t"].delete([11])
    db["t"].add_column("more", "int64")
    merged(db)
    found = lance.dataset(db.path / storage(db).folder / "base")
    found.validate()
    assert found.count_rows() == db["t"].count() == 59
    by_path = {r["id"]: (r["v"], r["n"], r["more"]) for r in found.to_table().to_pylist()}
    assert by_path == rows(db)
    assert found.to_table(filter="id = 11 or v = 'load30'")["id"].to_pylist() == [30]


@pytest.mark.parametrize("real_lance", [True], indirect=True)
def test_columns_of_all_types_are_adopted(db: LocalStore, real_lance: bool) -> None:
    shown = {
        "id": pa.array([1, 2, 3, 4]),
        "list": pa.array([[1], None, [], [2, 3]]),
        "struct": pa.array([{"a": 1, "b": ["x"]}, None, {"a": None, "b": []}, {"a": 2, "b": None}]),
        "vector": pa.FixedSizeListArray.from_arrays(pa.array([0.5] * 8, pa.float32()), 2),
        "time": pa.array([1, None, 3, 4], pa.timestamp("us", "UTC")),
        "decimal": pa.array([1, None, 3, 4], pa.decimal128(20, 2)),
        "map": pa.array([[("a", 1)], None, [], [("b", None)]], pa.map_(pa.string(), pa.int64())),
        "bool": pa.array([True, None, False, True]),
        "bytes": pa.array([b"", None, b"x", b"y" * 999]),
    }
    table = pa.table(shown)
    db.create_table("all", table.schema, primary_key="id")
    db["all"].upsert([{"id": 9}], missing="null")
    merged(db)
    stage = db.stage("all")
    piece = stage.run_through(db._core.tables.writer, table)
    with db.transaction() as tx:
        tx.attach(stage, [piece])
    wanted = db["all"].to_arrow().sort_by("id")
    merged(db)
    (found,) = [s for s in record(db).keyed if "/all-" in s.folder]
    staged = next((db.path / found.folder / ".attached").rglob("data/*.lance"))
    assert staged.stat().st_nlink == 3
    assert db["all"].to_arrow().sort_by("id").equals(wanted)
    path = lance.dataset(db.path / found.folder / "base").to_table().sort_by("id")
    assert path.to_pylist() == wanted.to_pylist()


@pytest.mark.parametrize("real_lance", [True], indirect=True)
def test_a_store_with_adopted_parts_verifies_and_is_backed_up_once(
    db: LocalStore, tmp_path: Path, real_lance: bool
) -> None:
    attach(db)
    db["t"].delete([11])
    merged(db)
    wanted, path = rows(db), db.path
    db.close()
    verified = admin.verify_store(path, deep=True)
    assert verified.is_sound, verified
    backup, again = tmp_path / "backup", tmp_path / "again"
    admin.backup_store(path, backup)
    admin.restore(backup, again)
    for place in (backup / "files", again):
        inodes = [p.stat().st_ino for p in place.rglob("*.lance") if p.stat().st_size > 900]
        assert len(inodes) > len(set(inodes))
    with st.connect(again, background=False) as restored:
        assert rows(restored) == wanted


def test_a_small_load_goes_by_way_of_history(db: LocalStore) -> None:
    db.checkpoint()
    incarnation = db._core.state().view.catalog.tables[0]
    table_schema = db._core.state().view.levels[incarnation.incarnations[0].id].active
    load(db._core, incarnation, table_schema.contents.tail.table_schema, given([99]),
         may_repeat=True, bytes_min=1)  # fmt: skip
    db.checkpoint()
    assert storage(db).loads == ()
    assert rows(db)[99] == ("load99", 99 / 4)


def overwritten(db: LocalStore) -> None:
    """Leave a table of which history has a load alone, and base adopted it."""
    stage = db.stage("t")
    piece = stage.run_through(db._core.tables.writer, given(LOADED))
    with db.transaction() as tx:
        tx.attach(stage, [piece], overwrite=True)
    merged(db)
    assert storage(db).history is None
    assert len(storage(db).loads) == 1


def damage(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize("real_lance", [True], indirect=True)
def test_a_damaged_copy_of_a_load_in_base_is_folded_again(
    db: LocalStore, tmp_path: Path, real_lance: bool
) -> None:
    db.tag("keep", lasts="1d")
    overwritten(db)
    db.vacuum(dry_run=False, grace_s=0)  # no older record serves instead
    wanted, folder = rows(db), db.path / storage(db).folder
    db.close()
    copied = tmp_path / "copied"  # without hard links
    shutil.copytree(tmp_path / "s", copied)
    for path in (copied / folder.relative_to(tmp_path / "s") / "base").rglob("data/*.lance"):
        damage(path)
    assert not admin.verify_store(copied, deep=True).is_sound
    assert admin.repair(copied, dry_run=False, deep=True).is_whole
    with st.connect(copied, background=False) as repaired:
        assert rows(repaired) == wanted
        repaired.merge()
        assert rows(repaired) == wanted
    assert admin.verify_store(copied, deep=True).is_sound


@pytest.mark.parametrize("real_lance", [True], indirect=True)
def test_a_damaged_load_is_named_by_all_its_names_and_gives_no_row(
    db: LocalStore, real_lance: bool
) -> None:
    overwritten(db)
    where = db.path
    (path,) = where.rglob(".attached/*/data/*.lance")
    db.close()
    damage(path)  # in place: of all names
    found = admin.verify_store(where, deep=True)
    named = {finding.path for finding in found.findings if finding.severity == "error"}
    assert len([name for name in named if name.endswith(".lance") and name[0] != "/"]) == 2
    repaired = admin.repair(where, dry_run=False, deep=True)
    assert not repaired.is_whole
    with st.connect(where, background=False) as again, pytest.raises(st.CorruptionError):
        again["t"].to_arrow()
