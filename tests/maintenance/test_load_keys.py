"""An attached load finds its rows by key runs beside its files; no index of it is in memory."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

import siltstone as st
from siltstone import admin
from siltstone.engine.levels.attached import Attached
from siltstone.engine.levels.history_run import HistoryRun
from siltstone.engine.write import bulk
from siltstone.errors import ConflictError, CorruptionError, DuplicateKeyError
from siltstone.formats.key_run import PAGE_BYTES
from siltstone.formats.manifest import Load
from siltstone.local.store import LocalStore
from siltstone.maintenance.flush.bulk_load import load
from siltstone.options import Options
from siltstone.storage.files.files import RealFiles
from siltstone.storage.manifest.manifest_store import ManifestStore
from tests.maintenance.stores import Clock, env_of

SCHEMA = {"region": "int64", "id": "int64", "name": "string", "v": "int64"}
# Python hashes by a modulus: each key of one region shares its code in memory with another one.
KEYS = {"id": ["id"], "name": ["name"], "region and id": ["region", "id"]}
Rows = dict[object, int]


@pytest.fixture(autouse=True)
def _each_load_has_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulk, "COVERED_ROWS_MIN", 1)


@pytest.fixture(params=KEYS.values(), ids=KEYS)
def key(request: pytest.FixtureRequest) -> list[str]:
    return request.param


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def reopen(tmp_path: Path, clock: Clock) -> Callable[..., LocalStore]:
    env = replace(env_of(clock, real_lance=True), load_rows_min=2)

    def opened(*, read_only: bool = False, **options: object) -> LocalStore:
        given = Options(background=False, segment_bytes=65_536, **options)
        return LocalStore.open(tmp_path / "s", given, env=env, read_only=read_only)

    return opened


def region(number: int) -> int:
    return 1 + number % 2 * sys.hash_info.modulus


def row(number: int, v: int) -> dict[str, object]:
    return {"region": region(number), "id": number, "name": f"n{number}", "v": v}


def key_of(key: list[str], number: int) -> object:
    found = tuple(row(number, 0)[name] for name in key)
    return found if len(found) > 1 else found[0]


def given(numbers: range | list[int], v: int) -> pa.Table:
    return pa.Table.from_pylist([row(n, v) for n in numbers])


def attach(db: st.Store, numbers: range | list[int], v: int, *, may_repeat: bool = True) -> None:
    table, table_schema = db["t"]._table_schema()
    rows = given(numbers, v)
    load(db._core, table, table_schema, rows, may_repeat=may_repeat, bytes_min=1)


def loads(root: Path) -> list[Load]:
    (storage,) = ManifestStore(RealFiles(), root).newest().keyed
    return [*storage.loads]


def without_indexes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no load be indexed in memory."""
    index = HistoryRun._load

    def others(run: HistoryRun) -> object:
        assert not isinstance(run.table, Attached)
        return index(run)

    monkeypatch.setattr(HistoryRun, "_load", others)


def check(source: object, key: list[str], rows: Rows, numbers: range) -> None:
    table = source["t"]  # type: ignore[index]
    assert table.count() == len(rows)
    found = table.scan(columns=["id", "v"]).read_all().to_pylist()
    assert {each["id"]: each["v"] for each in found} == rows
    for n in numbers:
        one = table.get(key_of(key, n))
        assert (one and one["v"]) == rows.get(n), n
    many = table.get_many([key_of(key, n) for n in numbers])
    assert {each["id"]: each["v"] for each in many.to_pylist()} == {
        n: rows[n] for n in numbers if n in rows
    }
    some = " OR ".join(f"(region = {region(n)} AND id = {n} AND name = 'n{n}')" for n in (3, 12))
    found = table.scan(filter=some).read_all().to_pylist()
    assert {each["id"] for each in found} == {n for n in (3, 12) if n in rows}


def test_rows_of_loads_are_found_without_an_index_of_them(
    reopen: Callable[..., LocalStore], key: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    rng, rows, snapshots = random.Random(1), dict[int, int](), []
    with reopen() as db:
        db.create_table("t", SCHEMA, primary_key=key)
        for turn in range(24):
            some = rng.sample(range(40), 12)
            if turn % 3 == 1:
                attach(db, some, turn)
                rows = rows | dict.fromkeys(some, turn)
            elif turn % 3 == 2:
                db["t"].delete([key_of(key, n) for n in some[:3]])
                db["t"].upsert([row(n, turn) for n in some[3:6]])
                rows = {n: v for n, v in rows.items() if n not in some[:3]}
                rows |= dict.fromkeys(some[3:6], turn)
            else:
                db["t"].upsert([row(n, turn) for n in some])
                rows = rows | dict.fromkeys(some, turn)
            check(db, key, rows, range(42))
            snapshots.append((db.snapshot(), rows))
            if turn % 4 == 3:
                db.checkpoint()
            if turn % 8 == 7:
                db.merge()
            for snapshot, seen in rng.sample(snapshots, min(3, len(snapshots))):
                check(snapshot, key, seen, range(0, 42, 5))
        for snapshot, _ in snapshots:
            snapshot.close()
        db.merge()
        attach(db, range(5, 30), 99)
        rows |= dict.fromkeys(range(5, 30), 99)
    without_indexes(monkeypatch)
    with reopen() as db:
        check(db, key, rows, range(42))
        db.checkpoint()
        assert loads(db.path)[-1].pin.rows == 25
        check(db, key, rows, range(42))
        with reopen(read_only=True) as reader:
            check(reader, key, rows, range(42))
        db.merge()
        check(db, key, rows, range(42))
        assert db.verify(deep=True).is_sound


def test_another_process_finds_them_whatever_its_hashes_are(
    reopen: Callable[..., LocalStore],
) -> None:
    with reopen() as db:
        db.create_table("t", SCHEMA, primary_key="name")
        db["t"].upsert([row(1, 0)])
        attach(db, range(50), 1)
        root = db.path
        db.checkpoint()
    said = (
        "import sys, siltstone as st\n"
        "from siltstone.engine.levels.history_run import HistoryRun\n"
        "from siltstone.engine.levels.attached import Attached\n"
        "index = HistoryRun._load\n"
        "HistoryRun._load = lambda run: None if isinstance(run.table, Attached) else index(run)\n"
        "with st.connect(sys.argv[1], read_only=True) as db:\n"
        "    print([db['t'].get(f'n{n}')['v'] for n in range(50)] == [1] * 50, db['t'].count())\n"
    )
    for seed in ("1", "2"):
        done = subprocess.run(
            [sys.executable, "-c", said, str(root)],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout.split() == ["True", "50"]


def test_a_transaction_that_began_before_a_load_conflicts_with_its_keys_alone(
    reopen: Callable[..., LocalStore], key: list[str]
) -> None:
    with reopen() as db:
        db.create_table("t", SCHEMA, primary_key=key)
        db["t"].upsert([row(0, 0)])
        for number, as_arrow in ((7, False), (70, False), (7, True), (70, True)):
            tx = db.transaction()
            tx["t"].get(key_of(key, 0))
            attach(db, range(5, 20), 1)
            tx["t"].upsert(given([number], 2) if as_arrow else [row(number, 2)])
            if number == 7:
                with pytest.raises(ConflictError):
                    tx.commit()
            else:
                tx.commit()
        for first in (100, 15):
            tx = db.transaction()
            tx["t"].get(key_of(key, 0))
            stage = db.stage("t")
            tx.attach(stage, [stage.run(given(range(first, first + 10), 3))])
            attach(db, range(5, 20), 1)
            if first == 15:
                with pytest.raises(ConflictError):
                    tx.commit()
            else:
                tx.commit()
        assert db["t"].get(key_of(key, 104))["v"] == 3


def test_keys_that_repeat_in_a_load_are_dropped_or_refused(
    reopen: Callable[..., LocalStore], key: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    without_indexes(monkeypatch)
    with reopen() as db:
        db.create_table("t", SCHEMA, primary_key=key)
        db["t"].upsert([row(100, 0)])
        attach(db, [*range(20), *range(5), 3, 19], 1)
        assert db["t"].count() == 21
        with pytest.raises(DuplicateKeyError):
            attach(db, [*range(30, 40), 35], 2, may_repeat=False)
        with pytest.raises(DuplicateKeyError):
            attach(db, range(15, 40), 2, may_repeat=False)
        attach(db, range(30, 40), 2, may_repeat=False)
        stage = db.stage("t", order_by="v")
        pieces = [stage.run(given([50, 51, 52], v)) for v in (9, 3)]
        with db.transaction() as tx:
            tx.attach(stage, pieces)
        assert [db["t"].get(key_of(key, n))["v"] for n in (50, 52)] == [9, 9]
        assert db["t"].count() == 34
        db.checkpoint()
        db.merge()
        assert db["t"].count() == 34
        assert db.verify(deep=True).is_sound


def forget_the_load(db: LocalStore, clock: Clock) -> None:
    """Let the retention of a merged load end, and vacuum."""
    for n in range(3):
        clock.move(seconds=10)
        db["t"].upsert([row(0, n)])
        db.checkpoint()
        db.merge()
        db.vacuum(dry_run=False, grace_s=0)


def damaged(root: Path, at: str) -> Path:
    (run,) = loads(root)[-1].pin.runs
    path = root / run.path
    data = bytearray(path.read_bytes())
    if at == "gone":
        path.unlink()
        return path
    data[100 if at == "page" else len(data) - 60] ^= 1
    path.chmod(0o644)
    path.write_bytes(data)
    return path


@pytest.mark.parametrize("at", ["page", "foot"])
def test_a_damaged_run_of_a_load_is_named_and_goes_with_a_merge(
    reopen: Callable[..., LocalStore], at: str
) -> None:
    with reopen(retention_s=0) as db:
        db.create_table("t", SCHEMA, primary_key="name")
        db["t"].upsert([row(0, 0)])
        attach(db, range(1, 90), 1)
        db.checkpoint()
        root = db.path
    path = damaged(root, at)
    assert path.stat().st_size >= PAGE_BYTES
    report = admin.verify_store(root, deep=True)
    assert [root / found.path for found in report.findings] == [path]
    with reopen(retention_s=0) as db:
        with pytest.raises(CorruptionError) as caught:
            db["t"].get("n7")
        assert Path(str(caught.value.path)) == path
        db.merge()
        assert db["t"].get("n7")["v"] == 1
        assert db["t"].count() == 90


@pytest.mark.parametrize("at", ["page", "foot", "gone"])
def test_a_damaged_run_of_a_load_is_repaired(
    reopen: Callable[..., LocalStore], monkeypatch: pytest.MonkeyPatch, at: str
) -> None:
    with reopen() as db:
        db.create_table("t", SCHEMA, primary_key="name")
        db["t"].upsert([row(0, 0)])
        attach(db, range(1, 90), 1)
        db.checkpoint()
        root = db.path
    damaged(root, at)
    done = admin.repair(root, dry_run=False, deep=True)
    assert done.is_whole, str(done)
    assert "the key run is written again" in str(done)
    assert admin.verify_store(root, deep=True).is_sound
    without_indexes(monkeypatch)
    with reopen() as db:
        assert [db["t"].get(f"n{n}")["v"] for n in (0, 7, 89)] == [0, 1, 1]
        assert db["t"].count() == 90
        db.vacuum(dry_run=False, grace_s=0)
        assert db.verify(deep=True).is_sound


def test_a_run_that_an_older_siltstone_took_for_garbage_is_done_without(
    reopen: Callable[..., LocalStore],
) -> None:
    with reopen() as db:
        db.create_table("t", SCHEMA, primary_key="name")
        db["t"].upsert([row(0, 0)])
        attach(db, range(1, 90), 1)
        db.checkpoint()
        root = db.path
    damaged(root, "gone")
    with reopen() as db:
        assert [db["t"].get(f"n{n}")["v"] for n in (0, 7, 89)] == [0, 1, 1]
        assert db["t"].count() == 90
        db.merge()
        assert db["t"].get("n7")["v"] == 1


def test_vacuum_keeps_the_runs_of_a_load_as_long_as_the_load(
    reopen: Callable[..., LocalStore],
    clock: Clock,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with reopen(retention_s=0) as db:
        db.create_table("t", SCHEMA, primary_key="name")
        db["t"].upsert([row(0, 0)])
        attach(db, range(1, 90), 1)
        without_indexes(monkeypatch)
        for _ in range(2):  # named by a frame alone, then by a record
            db.vacuum(dry_run=False, grace_s=0)
            assert db["t"].get("n7")["v"] == 1
            assert db["t"].count() == 90
            db.checkpoint()
        (run,) = loads(db.path)[0].pin.runs
        db.backup(tmp_path / "b")
        db.merge()
        forget_the_load(db, clock)
        assert not (db.path / run.path).exists()
        assert db["t"].get("n7")["v"] == 1
    st.restore(tmp_path / "b", tmp_path / "r")
    with st.connect(tmp_path / "r", background=False) as db:
        assert db["t"].get("n7")["v"] == 1
        assert db["t"].count() == 90
        assert db.verify(deep=True).is_sound


VICTIM = """
import sys
import pyarrow as pa
import siltstone as st
from siltstone.engine.write import bulk
from siltstone.failpoints import arm
from siltstone.maintenance.flush.bulk_load import load

bulk.COVERED_ROWS_MIN = 1
with st.connect(sys.argv[1], background=False) as db:
    table, table_schema = db["t"]._table_schema()
    rows = pa.table({"id": range(5, 50), "v": [1] * 45})
    arm(sys.argv[2])
    load(db._core, table, table_schema, rows, may_repeat=True, bytes_min=1)
"""


@pytest.mark.parametrize("order", ["keys.before_write=kill", "keys.after_write=kill"])
def test_a_kill_while_the_runs_of_a_load_are_written_leaves_the_table_as_it_was(
    tmp_path: Path, order: str
) -> None:
    root = tmp_path / "s"
    with st.connect(root, background=False) as db:
        db.create_table("t", {"id": "int64", "v": "int64"}, primary_key="id")
        db["t"].upsert([{"id": n, "v": 0} for n in range(10)])
    done = subprocess.run([sys.executable, "-c", VICTIM, str(root), order], check=False)
    assert done.returncode == -signal.SIGKILL
    with st.connect(root, background=False) as db:
        assert db["t"].count() == 10
        assert db["t"].get(7)["v"] == 0
        db.vacuum(dry_run=False, grace_s=0)
        assert db.verify(deep=True).is_sound
