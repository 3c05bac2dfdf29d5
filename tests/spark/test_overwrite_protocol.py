"""What Spark's short-lived processes tell each other is enough to lose no update; no JVM runs here.

A process that plans, reads or commits is a fresh value here, as it comes out of a pickle there.
Over 400 lines: all orders of reads and overwrites, over the same few values.
"""

from __future__ import annotations

import os
import pickle
import shutil
import stat
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar, cast

import pyarrow as pa
import pytest
from pyspark.sql.datasource import DataSourceArrowWriter
from pyspark.sql.types import LongType, StructField, StructType

import siltstone as st
from siltstone.spark.context import application
from siltstone.spark.context.application import APPLICATION, Application, Read, of_process
from siltstone.spark.context.kept_stores import close_idle
from siltstone.spark.context.options import WriteOptions
from siltstone.spark.sessions.source import SiltstoneSource
from siltstone.spark.writes.guards import Unchanged
from siltstone.spark.writes.staging import StageJob, commit, plan

ROWS = StructType([StructField(name, LongType()) for name in ("id", "v")])
Frame = tuple[SiltstoneSource, StructType]
T = TypeVar("T")
KEYS = StructType([StructField("id", LongType())])


def again(value: T) -> T:
    """Return a value as another process gets it."""
    return pickle.loads(pickle.dumps(value))


class App:
    """A Spark application: a folder of its own, and processes that know nothing but that."""

    def __init__(self, path: Path, folder: Path, uri: str | None = None) -> None:
        self.uri, self.folder = uri or str(path), folder / "blockmgr-of-it"
        self.folder.mkdir(parents=True)
        self.known = Application(str(self.folder))

    @contextmanager
    def process(self) -> Iterator[None]:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv(APPLICATION, f"{self.folder},/mnt/other/blockmgr-more")
            yield

    def source(self, table: str, **options: object) -> SiltstoneSource:
        given = {"uri": self.uri, "table": table}
        more = {name.lower(): str(value) for name, value in options.items()}
        return SiltstoneSource(given | more)

    def load(self, table: str = "o", **options: object) -> Frame:
        """Make a frame; nothing is read yet."""
        with self.process():
            source = self.source(table, **options)
            schema = source.schema()
            return again(source), schema

    def read(self, frame: Frame) -> list[dict[str, object]]:
        source, schema = frame
        with self.process():
            reader = source.reader(schema)
            parts = reader.partitions()
            batches = [batch for part in parts for batch in again(reader).read(part)]
        return [row for batch in batches for row in batch.to_pylist()]

    def planned(
        self,
        table: str = "o",
        *,
        overwrite: bool = True,
        schema: StructType = ROWS,
        **options: object,
    ) -> DataSourceArrowWriter:
        with self.process():
            writer = self.source(table, **options).writer(schema, overwrite)
        return again(cast("DataSourceArrowWriter", writer))

    def save(self, rows: list[dict[str, object]], writer: DataSourceArrowWriter) -> None:
        schema = pa.schema([(name, pa.int64()) for name in (rows[0] if rows else ["id", "v"])])
        batches = pa.Table.from_pylist(rows, schema).to_batches()
        messages = [again(writer).write(iter(batches))]
        again(writer).commit(messages)

    def overwrite(self, rows: list[dict[str, object]], table: str = "o", **options: object) -> None:
        self.save(rows, self.planned(table, **options))

    def append(self, key: int, table: str = "o", **options: object) -> None:
        self.save([{"id": key, "v": 1}], self.planned(table, overwrite=False, **options))


@pytest.fixture(params=["o", "e"])
def table(request: pytest.FixtureRequest) -> str:
    """A keyed table, and a plain one."""
    return request.param


@pytest.fixture
def db(tmp_path: Path) -> Iterator[st.Store]:
    with st.connect(tmp_path / "s", background=False, retention="0s") as found:
        for name, key in (("o", "id"), ("e", ())):
            handle = found.create_table(name, {"id": "int64", "v": "int64"}, primary_key=key)
            write(handle, 1)
        found.create_table("other", {"id": "int64"}, primary_key="id")
        found.serve_local()
        yield found


@pytest.fixture
def app(db: st.Store, tmp_path: Path) -> App:
    return App(db.path, tmp_path / "app")


def write(handle: st.Table, key: int) -> None:
    row = {"id": key, "v": 9}
    if handle.primary_key:
        handle.upsert(row)
    else:
        handle.append(row)


def foreign(db: st.Store, table: str, key: int = 100) -> int:
    write(db[table], key)
    return db.seq


def ids(db: st.Store, table: str) -> list[int]:
    return sorted(db[table].to_arrow()["id"].to_pylist())


def refused(app: App, rows: list[dict[str, object]], table: str, since: int, at: int) -> None:
    said = f"'{table}' was read at seq {since} and has changed at seq {at}"
    with pytest.raises(st.ConflictError, match=said) as caught:
        app.overwrite(rows, table)
    assert (caught.value.read_seq, caught.value.written_seq) == (since, at)
    assert 'option("expectSeq", ' in str(caught.value)


def test_the_oldest_read_counts_whichever_frame_is_written(
    db: st.Store, app: App, table: str
) -> None:
    view, at = app.load(table), db.seq
    moved = foreign(db, table)
    assert len(app.read(app.load(table))) == 2
    rows = app.read(view)
    refused(app, rows, table, at, moved)
    refused(app, rows, table, at, moved)  # a refusal forgets nothing
    assert ids(db, table) == [1, 100]
    now = db.seq
    rows = app.read(app.load(table, seq=now))
    app.overwrite(rows, table, expectSeq=now)
    app.overwrite(rows[:1], table)  # its own overwrite is all that came
    assert ids(db, table) in ([1], [100])


def test_a_commit_beside_the_table_is_no_conflict(db: st.Store, app: App, table: str) -> None:
    rows = app.read(app.load(table))
    foreign(db, "e" if table == "o" else "o")
    db["other"].upsert({"id": 5})
    app.overwrite(rows, table)
    assert ids(db, table) == [1]


def test_what_maintenance_does_is_no_conflict(db: st.Store, app: App, table: str) -> None:
    write(db[table], 2)
    rows = app.read(app.load(table))
    db.checkpoint()
    db.merge()
    db.optimize()
    db.vacuum(dry_run=False, grace_s=0)
    app.overwrite(rows, table)
    assert ids(db, table) == [1, 2]


@pytest.mark.parametrize(
    "change",
    [
        lambda db, table: db[table].truncate(),
        lambda db, table: db[table].add_column("w", "int64"),
        lambda db, table: db[table].delete(1) if table == "o" else db[table].delete_where("id = 1"),
    ],
)
def test_whatever_changes_the_table_is_a_conflict(
    db: st.Store, app: App, table: str, change: Callable[[st.Store, str], object]
) -> None:
    rows, at = app.read(app.load(table)), db.seq
    change(db, table)
    refused(app, rows, table, at, db.seq)


def test_a_table_that_took_the_name_meanwhile_is_not_overwritten(
    db: st.Store, app: App, table: str
) -> None:
    rows, at = app.read(app.load(table)), db.seq
    db.drop_table(table)
    key = "id" if table == "o" else ()
    db.create_table(table, {"id": "int64", "v": "int64"}, primary_key=key)
    made = db.seq
    foreign(db, table)
    refused(app, rows, table, at, made)
    assert ids(db, table) == [100]
    with pytest.raises(st.ConflictError, match=f"at seq {at} and has changed at seq {made}"):
        app.overwrite(rows, table, expectSeq=at)
    app.overwrite(rows, table, expectSeq=db.seq)
    app.overwrite(rows, table)  # what the name meant before is forgotten by that
    assert ids(db, table) == [1]


def test_a_table_is_known_by_another_name(db: st.Store, app: App, table: str) -> None:
    rows, at = app.read(app.load(table)), db.seq
    db.rename_table(table, "renamed")
    renamed = db.seq
    foreign(db, "renamed")
    refused(app, rows, "renamed", at, renamed)


def test_a_table_that_is_dropped_before_the_commit_is_named(
    db: st.Store, app: App, table: str
) -> None:
    rows = app.read(app.load(table))
    writer = app.planned(table)
    db.drop_table(table)
    with pytest.raises(st.TableNotFoundError):
        app.save(rows, writer)


def test_a_commit_between_the_plan_and_the_commit_of_an_overwrite_is_a_conflict(
    db: st.Store, app: App, table: str
) -> None:
    rows, at = app.read(app.load(table)), db.seq
    writer = app.planned(table)
    moved = foreign(db, table)
    with pytest.raises(st.ConflictError, match=f"at seq {at} and has changed at seq {moved}"):
        app.save(rows, writer)


def test_a_commit_after_the_check_is_found_in_the_commit_itself(
    db: st.Store, app: App, table: str
) -> None:
    """The check ends with the snapshot of the overwrite; admission sees what comes after."""
    rows, at = app.read(app.load(table)), db.seq
    with app.process(), st.connect(db.path, read_only=True) as reader:
        known = of_process(os.environ)
        options = WriteOptions(str(db.path), table)
        piece = plan(reader, options, ROWS, known, is_overwrite=True)
    guard = LateCommit(
        Unchanged.plan(piece.stage, piece.stage.table_id, known, None), lambda: foreign(db, table)
    )
    batch = pa.RecordBatch.from_pylist(rows, pa.schema([("id", pa.int64()), ("v", pa.int64())]))
    job = piece.job((piece.write([batch]),), cast("Unchanged", guard), is_near=True)
    with pytest.raises(st.ConflictError, match=f"'{table}' was read at seq {at} and has changed"):
        commit(db, [job], None)
    assert guard.checks == 2
    assert ids(db, table) == [1, 100]


class LateCommit:
    """A guard that lets others commit right after it looked, once."""

    def __init__(self, guard: Unchanged, late: Callable[[], object]) -> None:
        self._guard, self._late, self.checks = guard, late, 0

    def check(self, tx: st.Transaction) -> None:
        self.checks += 1
        self._guard.check(tx)
        if self.checks == 1:
            self._late()


@pytest.mark.parametrize("kept", [True, False])
def test_an_owner_that_is_opened_anew_still_knows_or_refuses(
    tmp_path: Path, table: str, kept: bool
) -> None:
    """The index of recent writes begins anew; the log of commits tells, until vacuum took it."""
    path = tmp_path / "s"
    with st.connect(path, background=False, retention="0s") as db:
        for name, key in (("o", "id"), ("e", ()), ("other", "id")):
            write(db.create_table(name, {"id": "int64", "v": "int64"}, primary_key=key), 1)
    app = App(path, tmp_path / "app")
    rows = app.read(app.load(table))
    close_idle(0)  # a store that is kept for the next plan leases what vacuum takes below
    with st.connect(path, background=False, retention="0s") as db:
        at = db.seq
        moved = foreign(db, table) if kept else 0
        for key in range(3):
            foreign(db, "other", key)
            db.checkpoint()
        if not kept:
            db.merge()
            db.vacuum(dry_run=False, grace_s=0)
            foreign(db, "other", 7)
            db.checkpoint()
            db.vacuum(dry_run=False, grace_s=0)
    if kept:
        refused(app, rows, table, at, moved)
    else:
        with pytest.raises(st.ConflictError, match=f"read at seq {at} and the store no longer"):
            app.overwrite(rows, table)
    with st.connect(path, read_only=True) as db:
        app.overwrite(rows, table, expectSeq=db.seq)
        assert ids(db, table) == [1]


def test_each_application_has_its_own_reads_and_commits(
    db: st.Store, app: App, tmp_path: Path, table: str
) -> None:
    other, blind = App(db.path, tmp_path / "2"), App(db.path, tmp_path / "3")
    rows, at = app.read(app.load(table)), db.seq
    other.read(other.load(table))
    app.append(2, table)
    moved = db.seq
    refused(other, rows, table, at, moved)
    app.overwrite(rows, table)
    blind.append(5, table)
    refused(app, rows, table, db.seq - 1, db.seq)  # it read nothing since it overwrote the table
    blind.overwrite(rows, table)  # it wrote, and never read
    assert ids(db, table) == [1]


def test_a_read_in_flight_counts_though_the_table_is_overwritten_meanwhile(
    db: st.Store, app: App, table: str
) -> None:
    rows, at = app.read(app.load(table)), db.seq
    writer = app.planned(table)  # a thread of the application that is slow
    moved = foreign(db, table)
    now = app.read(app.load(table))
    app.overwrite(now, table, expectSeq=moved)  # another thread
    with pytest.raises(st.ConflictError, match=f"at seq {at} and has changed at seq {moved}"):
        app.save(rows, writer)
    assert ids(db, table) == [1, 100]


def test_a_token_that_was_applied_is_no_conflict_with_itself(
    db: st.Store, app: App, table: str
) -> None:
    rows = app.read(app.load(table))
    app.overwrite(rows, table, token="nightly:1")
    foreign(db, table)
    app.read(app.load(table))
    before = db.seq
    app.overwrite(rows, table, token="nightly:1", expectSeq=1)
    app.overwrite(rows, table, token="nightly:1")
    assert db.seq == before
    assert ids(db, table) == [1, 100]


def test_a_write_that_fails_leaves_what_is_known(db: st.Store, app: App) -> None:
    rows, at = app.read(app.load()), db.seq
    moved = foreign(db, "o")
    before = (app.folder / "siltstone-reads.json").read_bytes()
    with pytest.raises(st.DuplicateKeyError):
        app.overwrite([*rows, *rows], "o", expectSeq=moved)
    assert (app.folder / "siltstone-reads.json").read_bytes() == before
    refused(app, rows, "o", at, moved)


@pytest.mark.parametrize("by_url", [True, False])
def test_a_store_of_another_process_judges_alike(
    db: st.Store, tmp_path: Path, table: str, by_url: bool
) -> None:
    app = App(db.path, tmp_path / "app", db.serve(port=0).url if by_url else None)
    rows, at = app.read(app.load(table)), db.seq
    moved = foreign(db, table)
    refused(app, rows, table, at, moved)
    with pytest.raises(st.RequestError, match=f"expectSeq {moved + 1} is in the future"):
        app.overwrite(rows, table, expectSeq=moved + 1)
    app.overwrite(rows, table, expectSeq=moved, token="a:1")
    app.overwrite([], table, expectSeq=1, token="a:1")
    app.append(7, table)
    app.overwrite(rows, table)
    assert ids(db, table) == [1]


def test_a_read_of_the_past_counts_at_its_seq(db: st.Store, app: App) -> None:
    at = db.seq
    db.tag("audit")
    moved = foreign(db, "o")
    rows = app.read(app.load("o", tag="audit"))
    refused(app, rows, "o", at, moved)


def test_without_an_application_only_an_expected_seq_overwrites(db: st.Store) -> None:
    source = SiltstoneSource({"uri": str(db.path), "table": "o"})
    with pytest.raises(st.UnavailableError, match=r"overwrite with .*expectSeq"):
        source.writer(ROWS, overwrite=True)
    assert of_process({APPLICATION: "/scratch"}) is None  # a setting that many share
    expecting = SiltstoneSource({"uri": str(db.path), "table": "o", "expectseq": str(db.seq)})
    expecting.writer(ROWS, overwrite=True)
    source.writer(ROWS, overwrite=False)


def test_what_an_application_knows_is_private_and_is_never_taken_for_nothing(
    db: st.Store, app: App
) -> None:
    rows = app.read(app.load())
    path = app.folder / "siltstone-reads.json"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    path.write_bytes(b"{ torn")
    with pytest.raises(st.UnavailableError, match="not known"):
        app.overwrite(rows)
    with pytest.raises(st.UnavailableError, match="not known"):
        app.read(app.load())
    path.unlink()
    app.folder.rename(app.folder.with_name("gone"))
    with pytest.raises(st.UnavailableError, match="not known"):
        app.overwrite(rows)


def test_a_commit_that_was_not_told_stands_and_is_taken_for_a_foreign_one(
    db: st.Store, app: App, table: str, caplog: pytest.LogCaptureFixture
) -> None:
    """As one whose process was killed right after it: too much is refused, never too little."""
    rows, at = app.read(app.load(table)), db.seq
    writer = app.planned(table, overwrite=False)
    away = app.folder.rename(app.folder.with_name("away"))
    app.save([{"id": 2, "v": 1}], writer)
    away.rename(app.folder)
    assert "it is committed; an overwrite may find the commit foreign" in caplog.text
    assert ids(db, table) == [1, 2]
    refused(app, rows, table, at, db.seq)


def test_what_a_process_left_that_was_killed_while_it_told_is_in_nobodys_way(
    db: st.Store, app: App, table: str
) -> None:
    (app.folder / f"siltstone-reads.json.{os.getpid()}").write_bytes(b"{ torn")
    rows, at = app.read(app.load(table)), db.seq
    refused(app, rows, table, at, foreign(db, table))


def test_executors_that_cannot_tell_make_every_read_count(
    db: st.Store, app: App, table: str, tmp_path: Path
) -> None:
    """On another machine a task by an old plan tells nobody, so the oldest read of all is meant."""
    app.read(app.load(table))
    at, moved = db.seq, foreign(db, table)
    app.overwrite(app.read(app.load(table)), table, expectSeq=moved)
    rows = app.read(app.load(table))
    writer = app.planned(table)
    batches = pa.Table.from_pylist(rows).to_batches()
    app.folder.rename(tmp_path / "away")
    messages = [again(writer).write(iter(batches))]
    (tmp_path / "away").rename(app.folder)
    with pytest.raises(st.ConflictError, match=f"at seq {at} and has changed at seq {moved}"):
        again(writer).commit(messages)
    app.overwrite(rows, table)  # by tasks that can


def test_a_task_tells_what_it_reads_by_an_old_plan(db: st.Store, app: App, table: str) -> None:
    (source, schema), at = app.load(table), db.seq
    with app.process():
        reader = source.reader(schema)
        parts = reader.partitions()
    moved = foreign(db, table)
    app.overwrite(app.read(app.load(table)), table, expectSeq=moved)
    rows = [r for part in parts for b in again(reader).read(part) for r in b.to_pylist()]
    refused(app, rows, table, at, moved)


def test_a_store_that_is_made_anew_at_the_path_is_another_one(tmp_path: Path, table: str) -> None:
    """Its seqs say nothing of the old one's: a commit of others is not taken for an own one."""
    path = tmp_path / "s"

    def make() -> None:
        with st.connect(path, background=False) as db:
            for name, key in (("o", "id"), ("e", ())):
                write(db.create_table(name, {"id": "int64", "v": "int64"}, primary_key=key), 1)

    make()
    app = App(path, tmp_path / "app")
    app.read(app.load(table))
    for key in range(2, 6):
        app.append(key, table)
    shutil.rmtree(path)
    make()
    app.overwrite([{"id": 7, "v": 1}], table)  # of this one it has read nothing
    rows = app.read(app.load(table))
    with st.connect(path, background=False) as db:
        at, moved = db.seq, foreign(db, table)
    refused(app, rows, table, at, moved)
    with st.connect(path, read_only=True) as db:
        assert ids(db, table) == [7, 100]


def test_a_link_to_a_store_leads_to_what_is_known_of_it(
    db: st.Store, app: App, tmp_path: Path, table: str
) -> None:
    (tmp_path / "link").symlink_to(db.path)
    rows, at = app.read(app.load(table)), db.seq
    moved = foreign(db, table)
    app.uri = str(tmp_path / "link")
    refused(app, rows, table, at, moved)
    app.uri = db.serve(port=0).url
    refused(app, rows, table, at, moved)


def test_threads_and_processes_of_an_application_lose_no_word(tmp_path: Path) -> None:
    folder = tmp_path / "blockmgr-1"
    folder.mkdir()

    def tell(first: int) -> None:
        for n in range(20):
            Application(str(folder)).tell_read(Read("/s", first + n, f"t{first + n}", 7))
            Application(str(folder)).tell_commit("/s", 2 * (first + n), [])

    threads = [threading.Thread(target=tell, args=(100 * n,)) for n in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    known = Application(str(folder))
    numbers = [100 * n + k for n in range(1, 5) for k in range(20)]
    assert all(known.seen("/s", number, "x").since == 7 for number in numbers)
    own = known.seen("/s", 1, "x").own
    assert all(any(a <= 2 * n <= b for a, b in own) for n in numbers)


def test_what_does_not_fit_is_taken_for_read_or_for_foreign(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, bound in (("STORES_MAX", 2), ("TABLES_MAX", 3), ("SPANS_MAX", 4), ("NAMES_MAX", 2)):
        monkeypatch.setattr(application, name, bound)
    folder = tmp_path / "blockmgr-1"
    folder.mkdir()
    known = Application(str(folder))
    for table in range(5):
        known.tell_read(Read("/a", table, f"t{table}", 10 + table))
    assert [known.seen("/a", n, f"t{n}").since for n in range(6)] == [10, 10, 12, 13, 14, 10]
    for name in ("x", "y", "z"):
        known.tell_read(Read("/a", 4, name, 9))
    assert known.seen("/a", 77, "t4").since == 9
    for seq in range(2, 20, 2):
        known.tell_commit("/a", seq, [])
    assert known.seen("/a", 1, "t1").own == ((12, 12), (14, 14), (16, 16), (18, 18))
    known.tell_commit("/a", 15, [])
    assert known.seen("/a", 1, "t1").own == ((12, 12), (14, 16), (18, 18))
    for root in ("/b", "/c"):
        known.tell_commit(root, 3, [])
    assert [known.seen(root, 1, "t1").since for root in ("/a", "/b", "/c", "/d")] == [0, None, 0, 0]


def test_an_overwrite_says_that_reads_are_forgotten_and_not_that_seq_0_was_read(
    db: st.Store, app: App
) -> None:
    for number in range(application.STORES_MAX + 1):
        app.known.tell_commit(f"/{number}", 3, [])
    with pytest.raises(st.ConflictError, match=r"'o' may have been read.* after 256 stores, and"):
        app.overwrite([{"id": 1, "v": 1}])
    app.overwrite([{"id": 1, "v": 1}], expectSeq=db.seq)


def test_an_upsert_without_a_column_is_judged_again_at_its_commit(db: st.Store, app: App) -> None:
    def upsert(schema: StructType, **options: object) -> DataSourceArrowWriter:
        return app.planned("o", overwrite=False, schema=schema, **options)

    with pytest.raises(st.SchemaMismatchError, match=r"have no column 'v'.*missing"):
        upsert(KEYS)
    db["o"].truncate()
    with pytest.raises(st.SchemaMismatchError, match=r"have no column 'v'.*keep.*null.*insert"):
        upsert(KEYS)  # whether the table has rows or not
    whole = upsert(ROWS)
    db["o"].upsert({"id": 2, "v": 5})
    db["o"].add_column("w", "int64")
    db["o"].upsert({"id": 2, "v": 5, "w": 6})
    with pytest.raises(st.SchemaMismatchError, match="have no column 'w'"):
        app.save([{"id": 2, "v": 0}], whole)
    assert db["o"].get(2) == {"id": 2, "v": 5, "w": 6}
    app.save([{"id": 2}], upsert(KEYS, missing="null"))
    assert db["o"].get(2) == {"id": 2, "v": None, "w": None}
    for word in ("drop", "refused"):
        with pytest.raises(st.RequestError, match="option 'missing' must be one of refuse, keep, "):
            upsert(KEYS, missing=word)


def test_rows_of_an_upsert_keep_what_they_do_not_name(db: st.Store, app: App) -> None:
    db["o"].add_column("w", "int64")
    db["o"].upsert([{"id": 2, "v": 5, "w": 6}, {"id": 3, "v": 7, "w": 8}])
    planned = app.planned("o", overwrite=False, missing="keep")
    db["o"].add_column("x", "int64")
    db["o"].update(2, x=9)
    app.save([{"id": 2, "v": 0}, {"id": 4, "v": 1}], planned)
    assert db["o"].get(2) == {"id": 2, "v": 0, "w": 6, "x": 9}
    assert db["o"].get(3) == {"id": 3, "v": 7, "w": 8, "x": None}
    assert db["o"].get(4) == {"id": 4, "v": 1, "w": None, "x": None}


def test_a_token_that_was_applied_needs_no_column(db: st.Store, app: App) -> None:
    app.append(2, token="a:1")
    whole = app.planned("o", overwrite=False, token="a:1")
    db["o"].add_column("w", "int64")
    before = db.seq
    app.save([{"id": 2, "v": 0}], whole)
    assert db.seq == before


class Races:
    """A guard that lets another commit win, so many times."""

    def __init__(self, wins: int, win: Callable[[], object]) -> None:
        self._wins, self._win = wins, win

    def check(self, tx: st.Transaction) -> None:
        if self._wins:
            self._wins -= 1
            self._win()


def test_a_commit_is_tried_as_often_as_its_session_says(db: st.Store) -> None:
    piece = plan(db, WriteOptions(str(db.path), "o"), ROWS, None, is_overwrite=False)
    batch = pa.RecordBatch.from_pylist(
        [{"id": 7, "v": 0}], pa.schema({"id": "int64", "v": "int64"})
    )

    def job() -> StageJob:
        races = Races(2, lambda: db["o"].upsert({"id": 7, "v": 1}))
        return piece.job((piece.write([batch]),), cast("Unchanged", races), is_near=True)

    with pytest.raises(st.ConflictError):
        commit(db, [job()], None, attempts=2)
    assert db["o"].get(7) == {"id": 7, "v": 1}
    commit(db, [job()], None, attempts=3)
    assert db["o"].get(7) == {"id": 7, "v": 0}
