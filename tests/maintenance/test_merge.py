"""A merge changes no answer: whoever else merges, flushes, alters or cleans up meanwhile."""

from __future__ import annotations

import datetime as dt
import subprocess
import sys
import threading
from pathlib import Path

import duckdb
import lance
import pyarrow as pa
import pytest

import siltstone as st
from siltstone.engine.read.past import PastRecords
from siltstone.engine.read.reader import Readers
from siltstone.formats.manifest import Pin
from siltstone.local.store import LocalStore
from siltstone.maintenance.merge import merge
from siltstone.maintenance.merge.merge import Deferred, Merger
from siltstone.storage.manifest.manifest_store import ManifestStore
from siltstone.storage.site import Site
from siltstone.storage.tables.store_tables import Tables
from siltstone.storage.tables.values import Span
from tests.engine.seams import HookedTables, Threads, fake_env, jobs_of, open_store
from tests.maintenance.optimizers import optimizer_of

SCHEMA = {"id": "int64", "v": "int64"}
ACCOUNTS, START = 12, 100


def merger_of(root: Path, tables: Tables, rows_max: int | None = None) -> Merger:
    """Return a merger as another process would have one."""
    manifests = ManifestStore(fake_env().files, root)
    readers = Readers(tables.reader, tables.keys, PastRecords(manifests), index_bytes_max=0)
    site = Site(root, fake_env().files, manifests, tables, jobs_of(root))
    return Merger(site, readers, rows_max=rows_max)


def rows(table) -> dict[int, int]:
    return {row["id"]: row["v"] for row in table.to_arrow().to_pylist()}


class Race:
    """Does `work` once, right before the merge writes its base: after its plan."""

    def __init__(self, tables: HookedTables, work) -> None:
        self._tables, self._work = tables, work
        tables.hooks["fold"] = self

    def __call__(self, *_: object) -> None:
        del self._tables.hooks["fold"]
        self._work()


@pytest.fixture
def made(tmp_path: Path):
    hooked: list[HookedTables] = []
    with open_store(tmp_path / "db", fake_env(hooked=hooked)) as db:
        table = db.create_table("t", SCHEMA, primary_key="id")
        table.upsert([{"id": n, "v": n} for n in range(10)])
        db.checkpoint()
        db.merge()
        yield db, table, hooked[0]


def test_rows_deleted_by_the_merge_that_won_the_race_stay_deleted(made) -> None:
    """The loser planned on a base that still had them; its rewrite must never be published."""
    db, table, tables = made
    table.upsert({"id": 1, "v": 11})
    db.checkpoint()

    def win() -> None:
        table.delete([3, 4, 5])
        db.checkpoint()
        assert merger_of(db.path, tables).merge().rows == 1

    Race(tables, win)
    db.merge()
    expected = {**{n: n for n in range(10) if n not in {3, 4, 5}}, 1: 11}
    assert rows(table) == expected
    with LocalStore.open(db.path, db.options, read_only=True, env=fake_env()) as other:
        assert rows(other["t"]) == expected


def test_rows_stay_deleted_by_a_merge_that_has_nothing_but_deletes(made) -> None:
    db, table, _ = made
    table.delete([3, 4, 5])
    db.checkpoint()
    assert db.merge().rows == 0
    expected = {n: n for n in range(10) if n not in {3, 4, 5}}
    assert rows(table) == expected
    with LocalStore.open(db.path, db.options, read_only=True, env=fake_env()) as other:
        assert rows(other["t"]) == expected


def test_a_merge_that_finds_its_work_done_is_done(made) -> None:
    db, table, tables = made
    table.upsert({"id": 1, "v": 11})
    db.checkpoint()
    Race(tables, lambda: merger_of(db.path, tables).merge())
    result = db.merge()
    assert not isinstance(result, Deferred)
    assert rows(table)[1] == 11
    assert db.merge().rows == 0


def test_a_merge_overtaken_by_one_that_goes_further_is_done(made) -> None:
    db, table, tables = made
    table.upsert({"id": 2, "v": 22})
    db.checkpoint()

    def overtake() -> None:
        table.upsert({"id": 1, "v": 11})
        db.checkpoint()
        merger_of(db.path, tables).merge()

    Race(tables, overtake)
    assert not isinstance(db.merge(), Deferred)
    assert rows(table) == {**{n: n for n in range(10)}, 1: 11, 2: 22}
    assert db.merge().rows == 0


@pytest.fixture
def parted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A base of four parts of 30 rows each, of which merges hide rows."""
    monkeypatch.setattr(merge, "COMPACT_BELOW_ROWS", 0)
    hooked: list[HookedTables] = []
    with open_store(tmp_path / "db", fake_env(hooked=hooked)) as db:
        table = db.create_table("t", SCHEMA, primary_key="id")
        for part in range(4):
            table.upsert([{"id": n, "v": n} for n in range(30 * part, 30 * (part + 1))])
            db.checkpoint()
            db.merge()
        yield db, table, hooked[0]


def base_pin(db: st.Store) -> Pin:
    (storage,) = db._parts.site.manifests.newest().keyed
    assert storage.base is not None
    return storage.base


def test_a_merge_that_loses_to_an_index_build_keeps_the_index(parted) -> None:
    db, table, tables = parted
    table.upsert({"id": 1, "v": 11})
    db.checkpoint()
    built: list[str] = []

    def segments() -> list[str]:
        return [each.id for each in db._parts.site.tables.reader.open(base_pin(db)).segments]

    def build() -> None:
        table.create_index("v")
        built.extend(segments())

    Race(tables, build)
    assert merger_of(db.path, tables).merge().rows == 1
    assert built
    assert segments() == built
    assert (base_pin(db).rows, base_pin(db).hidden) == (120, 1)
    db._parts.owner.checkpointer.renew()
    assert rows(table) == {**{n: n for n in range(120)}, 1: 11}


def test_a_merge_that_loses_to_an_optimize_keeps_what_that_has_joined(parted) -> None:
    db, table, tables = parted
    table.upsert({"id": 1, "v": 11})
    db.checkpoint()
    joined: list[Span] = []

    def spans() -> list[Span]:
        return [*db._parts.site.tables.reader.open(base_pin(db)).spans]

    def optimize() -> None:
        optimizer_of(db.path, tables).optimize()
        joined.extend(spans())

    Race(tables, optimize)
    merged = merger_of(db.path, tables).merge()
    assert merged.rows == 1
    assert merged.replans == ("another process changed the base of 't' meanwhile",)
    assert joined == [(0, 120)]
    assert spans() == [*joined, (120, 121)]
    assert (base_pin(db).rows, base_pin(db).hidden) == (120, 1)
    db._parts.owner.checkpointer.renew()
    assert rows(table) == {**{n: n for n in range(120)}, 1: 11}


@pytest.mark.parametrize("is_further", [False, True], ids=["of the same rows", "of more rows"])
def test_of_two_folds_of_deletes_alone_that_race_the_winners_base_stays(
    parted, is_further: bool
) -> None:
    db, table, tables = parted
    table.delete([3, 33])
    db.checkpoint()
    won: list[Pin] = []

    def win() -> None:
        if is_further:
            table.delete([4, 63])
            db.checkpoint()
        assert merger_of(db.path, tables).merge().tables == ("t",)
        won.append(base_pin(db))

    Race(tables, win)
    assert not isinstance(merger_of(db.path, tables).merge(), Deferred)
    assert [base_pin(db)] == won
    gone = {3, 33, 4, 63} if is_further else {3, 33}
    assert (base_pin(db).rows, base_pin(db).hidden) == (120 - len(gone), len(gone))
    db._parts.owner.checkpointer.renew()
    assert rows(table) == {n: n for n in range(120) if n not in gone}
    again = db.merge()
    assert (again.tables, again.replans) == ((), ())


def test_a_checkpoint_that_publishes_while_a_merge_writes_loses_nothing(made) -> None:
    db, table, tables = made
    table.upsert({"id": 1, "v": 11})
    db.checkpoint()

    def flush() -> None:
        table.upsert({"id": 1, "v": 12})
        table.delete(2)
        db.checkpoint()

    Race(tables, flush)
    db.merge()
    expected = {**{n: n for n in range(10) if n != 2}, 1: 12}
    assert rows(table) == expected
    db.merge()
    assert rows(table) == expected


def test_a_merge_whose_records_are_vacuumed_before_their_lease_is_deferred(made, monkeypatch):
    db, table, _ = made
    table.upsert({"id": 1, "v": 11})
    db.checkpoint()
    monkeypatch.setattr(ManifestStore, "lease", lambda *_, **__: None)
    found = db.merge(attempts=2)
    assert isinstance(found, Deferred)
    assert found.attempts == 2
    assert isinstance(db.optimize(attempts=2), Deferred)
    monkeypatch.undo()
    assert db.merge().rows == 1


def test_a_truncate_or_drop_while_a_merge_writes_is_not_undone(made) -> None:
    db, table, tables = made
    other = db.create_table("gone", SCHEMA, primary_key="id")
    for handle in (table, other):
        handle.upsert({"id": 1, "v": 11})
    db.checkpoint()

    def define() -> None:
        table.truncate()
        table.upsert({"id": 7, "v": 7})
        db.drop_table("gone")
        db.checkpoint()

    Race(tables, define)
    db.merge()
    assert rows(table) == {7: 7}
    assert db.tables() == ["t"]


def test_a_dropped_column_is_seen_by_the_past_out_of_every_level(tmp_path: Path) -> None:
    """Written, dropped and added again before the flush, between flush and merge, and after."""
    root = tmp_path / "db"
    with open_store(root, fake_env(), memory_bytes_max=1 << 20) as db:
        table = db.create_table("t", {**SCHEMA, "note": "string"}, primary_key="id")
        moments: dict[int, list[dict]] = {}

        def remember() -> None:
            moments[db.seq] = table.to_arrow().to_pylist()

        for round_ in range(3):
            note = f"note{round_}" if round_ else "note"
            table.upsert([{"id": n, "v": round_, note: f"{round_}/{n}"} for n in range(3)])
            remember()
            if round_ == 1:
                db.checkpoint()
            table.drop_column(note)
            remember()
            table.add_column(f"note{round_ + 1}", "string")
            table.rename_column("v", f"w{round_}")
            table.rename_column(f"w{round_}", "v")
            remember()
            db.checkpoint()
            if round_ == 1:
                db.merge()
        check_moments(db, moments)
        db.merge()
        check_moments(db, moments)
    with open_store(root, fake_env()) as again:
        check_moments(again, moments)
    with LocalStore.open(root, again.options, read_only=True, env=fake_env()) as other:
        check_moments(other, moments)


def check_moments(db: st.Store, moments: dict[int, list[dict]]) -> None:
    for seq, expected in moments.items():
        with db.snapshot(seq=seq) as past:
            found = past["t"].to_arrow().to_pylist()
            assert sorted(found, key=lambda row: row["id"]) == expected, f"at seq {seq}"
            assert [past["t"].get(row["id"]) for row in expected] == expected, f"at seq {seq}"


def test_moments_are_found_though_the_clock_goes_backwards(tmp_path: Path) -> None:
    now = [1_700_000_000_000_000]
    env = fake_env(now_us=lambda: now[0])
    root, moments = tmp_path / "db", {}
    with open_store(root, env) as db:
        table = db.create_table("t", SCHEMA, primary_key="id")
        for n in range(12):
            now[0] += (7_000_000, -20_000_000, 1)[n % 3]
            seq = table.upsert({"id": 1, "v": n}).seq
            moments[seq] = next(entry.time for entry in db.log() if entry.seq == seq)
            if n in {4, 8}:
                db.checkpoint()
        times = list(moments.values())
        assert times == sorted(set(times)), "the times of commits strictly increase"
        check_times(db, moments)
    now[0] -= 3_600_000_000
    with open_store(root, env) as again:
        check_times(again, moments)
        last = again["t"].upsert({"id": 1, "v": 99}).seq
        assert next(entry.time for entry in again.log() if entry.seq == last) > max(times)


def check_times(db: st.Store, moments: dict) -> None:
    for seq, moment in moments.items():
        with db.snapshot(at=moment) as past:
            assert past.seq == seq


# real Lance from here on


def base_of(db: st.Store, name: str) -> Path:
    return next(Path(db.path, "tables").glob(f"{name}-*")) / "base"


def test_readers_of_the_plain_path_see_the_last_merge(tmp_path: Path) -> None:
    with st.connect(tmp_path / "db", segment_bytes=65_536, background=False) as db:
        table = db.create_table("t", SCHEMA, primary_key="id")
        for version in range(3):
            table.upsert([{"id": n, "v": version} for n in range(5)])
            table.delete(version)
            db.checkpoint()
            db.merge()
            merged = table.to_arrow().sort_by("id")
            table.upsert({"id": 100 + version, "v": 0})  # not merged: not on the plain path
            plain = lance.dataset(str(base_of(db, "t")))
            assert plain.to_table().sort_by("id").equals(merged)
            assert duckdb.sql("select count(*) from plain").fetchall() == [(merged.num_rows,)]


def test_an_external_clean_up_on_the_plain_path_spares_every_past(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(merge, "COMPACT_BELOW_ROWS", 0)  # merges hide rows, of few
    with st.connect(tmp_path / "db", segment_bytes=65_536, background=False) as db:
        table = db.create_table("t", SCHEMA, primary_key="id")
        plain = db.create_table("p", SCHEMA)
        table.upsert([{"id": n, "v": -1} for n in range(30)])
        moments: dict[int, tuple[dict, int]] = {}
        for version in range(4):
            table.upsert([{"id": n, "v": version} for n in (version, 30 + version)])
            table.delete(10 + version)
            plain.append([{"id": version, "v": version}])
            db.checkpoint()
            db.merge()
            moments[db.seq] = (rows(table), plain.count())
        assert len([*base_of(db, "t").glob("_deletions/*")]) >= 2
        tables = Path(db.path, "tables")
        for folder in (base_of(db, "t"), *tables.glob("p-*")):
            lance.dataset(str(folder)).cleanup_old_versions(
                older_than=dt.timedelta(0),
                delete_unverified=True,
                error_if_tagged_old_versions=False,
            )
        check_pasts(db, moments)
    with st.connect(tmp_path / "db", read_only=True) as other:
        check_pasts(other, moments)


def check_pasts(db: st.Store, moments: dict[int, tuple[dict, int]]) -> None:
    for seq, (expected, count) in moments.items():
        with db.snapshot(seq=seq) as past:
            assert rows(past["t"]) == expected, f"at seq {seq}"
            assert past["p"].count() == past["p"].to_arrow().num_rows == count


def transfer(db: st.Store, number: int) -> None:
    source, target = number % ACCOUNTS, (number + 1 + number // 5) % ACCOUNTS

    def work(tx: st.Transaction) -> None:
        for key, amount in ((source, -1), (target, 1)):
            row = tx["accounts"].get(key)
            tx["accounts"].update(key, v=row["v"] + amount)
        tx["ledger"].insert({"id": number, "v": source})

    db.run(work, attempts=1000)


def check_bank(snapshot) -> None:
    balances = snapshot["accounts"].to_arrow()["v"]
    assert len(balances) == ACCOUNTS
    assert pa.compute.sum(balances).as_py() == ACCOUNTS * START, f"at seq {snapshot.seq}"
    assert snapshot["ledger"].count() == snapshot.seq - 3, f"at seq {snapshot.seq}"


READER = """
import sys
import siltstone as st
from tests.maintenance.test_merge import check_bank
db, looks = st.connect(sys.argv[1], read_only=True), 0
sys.stdout.write("begun\\n"); sys.stdout.flush()
while db.snapshot()["ledger"].count() < int(sys.argv[2]):
    with db.snapshot() as now:
        check_bank(now)
    with db.snapshot(seq=3 + looks % (db.seq - 2)) as past:
        check_bank(past)
    looks += 1
assert looks
"""


def test_the_bank_is_whole_beside_merge_processes_and_in_a_read_only_process(
    tmp_path: Path,
) -> None:
    transfers = 80
    root = tmp_path / "db"
    with st.connect(root, segment_bytes=65_536, memory_bytes_max=1 << 20) as db:
        for name in ("accounts", "ledger"):
            db.create_table(name, SCHEMA, primary_key="id")
        db["accounts"].insert([{"id": n, "v": START} for n in range(ACCOUNTS)])
        reader = subprocess.Popen(
            [sys.executable, "-c", READER, str(root), str(transfers)],
            cwd=Path(__file__).parents[2],
            stdout=subprocess.PIPE,
        )
        assert reader.stdout.readline() == b"begun\n"
        stop = threading.Event()

        def maintain() -> None:
            while not stop.is_set():
                db.checkpoint()
                db._parts.owner.merge_child.start()

        def read() -> None:
            while not stop.is_set():
                with db.snapshot() as now:
                    check_bank(now)
                with db.snapshot(seq=(3 + db.seq) // 2) as past:
                    check_bank(past)

        others = Threads()
        others.start(maintain)
        others.start(read)
        for number in range(transfers):
            transfer(db, number)
        merged = db.merge()
        stop.set()
        others.join()
        assert not isinstance(merged, Deferred)
        assert reader.wait(60) == 0
        reader.stdout.close()
        with db.snapshot() as now:
            check_bank(now)


@pytest.mark.parametrize("way", ["upsert", "insert", "transaction", "append", "overwrite"])
def test_columns_are_matched_by_name_in_every_way_of_writing(tmp_path: Path, way: str) -> None:
    """Same types, another order, one missing: by position every value would land elsewhere."""
    is_keyed = way not in {"append", "overwrite"}
    names = ["id", "a", "b", "c"]
    with st.connect(tmp_path / "db", segment_bytes=65_536, background=False) as db:
        key = "id" if is_keyed else ()
        table = db.create_table("t", dict.fromkeys(names, "int64"), primary_key=key)
        expected = []
        for start, count in ((0, 3), (1000, 2000)):
            batch = pa.table({name: range(start, start + count) for name in ("c", "id", "a")})
            batch = batch.set_column(0, "c", pa.array([-n for n in range(start, start + count)]))
            write(db, table, way, batch)
            wanted = [{"id": n, "a": n, "b": None, "c": -n} for n in range(start, start + count)]
            expected = wanted if way == "overwrite" else expected + wanted
        for _ in range(2):
            found = sorted(table.to_arrow().to_pylist(), key=lambda row: row["id"])
            assert found == expected
            db.checkpoint()
            db.merge()


def write(db: st.Store, table, way: str, batch: pa.Table) -> None:
    if way == "transaction":
        with db.transaction() as tx:
            tx["t"].upsert(batch, missing="null")
    elif way == "upsert":
        table.upsert(batch, missing="null")
    else:
        getattr(table, way)(batch)
