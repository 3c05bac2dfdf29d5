"""An index of a plain table is a version of it: made at once, whoever commits meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import siltstone as st
from siltstone import admin
from siltstone.choices import IndexKind
from siltstone.namespace import SiltstoneNamespace
from siltstone.storage.lance.write.indexer import LanceIndexer
from tests.namespace.clients import append, opened
from tests.server.stores import joined_to

SCHEMA = pa.schema(
    [("id", pa.int64()), ("text", pa.string()), ("place", pa.list_(pa.float32(), 2))]
)


def rows(first: int, end: int) -> pa.Table:
    words = ("apple", "pear", "plum")
    made = [
        {"id": n, "text": f"a {words[n % 3]}", "place": [float(n), 1.0]} for n in range(first, end)
    ]
    return pa.Table.from_pylist(made, SCHEMA)


@pytest.fixture
def db(tmp_path: Path) -> Iterator[st.Store]:
    with st.connect(tmp_path / "db", background=False) as db:
        db.create_table("events", SCHEMA).append(rows(0, 600))
        yield db


def lags(table: st.Table) -> dict[str, int]:
    return {index.name: index.lagging_rows for index in table.indexes()}


@pytest.mark.parametrize(
    ("column", "kind", "shown"),
    [
        ("id", "btree", "BTree"),
        ("id", "bitmap", "Bitmap"),
        ("text", "fts", "Inverted"),
        ("place", "vector", "IVF_FLAT"),
    ],
)
def test_an_index_is_made_listed_seen_by_clients_and_dropped(
    db: st.Store, column: str, kind: IndexKind, shown: str
) -> None:
    events, seq = db["events"], db.seq
    made = events.create_index(column, kind)
    assert (made.name, made.kind, made.lagging_rows, made.indexed_rows) == (column, kind, 0, 600)
    assert made.options == ({"metric": "l2"} if kind == "vector" else {})
    assert db.seq == seq + 1
    ns = SiltstoneNamespace(db)
    assert [each.index_type for each in opened(ns, "events").describe_indices()] == [shown]
    assert db.verify().is_sound
    events.drop_index(column)
    assert (events.indexes(), events.count()) == ([], 600)
    assert opened(ns, "events").describe_indices() == []


def test_an_index_outlives_the_process_and_later_rows_are_scanned(tmp_path: Path) -> None:
    with st.connect(tmp_path / "db", background=False) as db:
        db.create_table("events", SCHEMA).append(rows(0, 600))
        db["events"].create_index("text", "fts")
    with st.connect(tmp_path / "db", background=False) as db:
        events = db["events"]
        events.append(rows(600, 603))
        assert lags(events) == {"text": 3}
        found = events.search("pear", column="text", k=500).to_arrow()["id"].to_pylist()
        assert sorted(found) == list(range(1, 603, 3))


def test_searches_and_filters_ask_the_index_and_answer_as_before(db: st.Store) -> None:
    events = db["events"]
    near = events.search([42.2, 1.0], column="place", k=2).to_arrow()["id"].to_pylist()
    events.create_index("place", "vector")
    events.create_index("id", "bitmap")
    assert events.search([42.2, 1.0], column="place", k=2).to_arrow()["id"].to_pylist() == near
    assert events.count("id in (7, 8)") == 2
    dataset = opened(SiltstoneNamespace(db), "events")
    assert "ScalarIndexQuery" in dataset.scanner(filter="id = 7").explain_plan()


def test_a_table_without_rows_gets_an_index_that_needs_none(db: st.Store) -> None:
    empty = db.create_table("empty", SCHEMA)
    assert empty.indexes() == []
    empty.create_index("id")
    empty.create_index("text", "fts")
    seq = db.seq
    for column, kind in (("id", "bitmap"), ("place", "vector")):
        with pytest.raises(st.RequestError, match=f"no rows: a {kind} index is made of some"):
            empty.create_index(column, kind, name="other")
    assert db.seq == seq
    empty.append(rows(0, 3))
    assert lags(empty) == {"id": 3, "text": 3}
    assert empty.search("plum", column="text").to_arrow()["id"].to_pylist() == [2]
    assert empty.count("id = 2") == 1


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda table: table.create_index("idx"), "no column 'idx'; did you mean 'id'"),
        (lambda table: table.create_index("id", "btre"), "got 'btre'; did you mean 'btree'"),
        (lambda table: table.create_index("text", "vector"), "does not support that type"),
        (lambda table: table.create_index("id", name="_id"), "the first not '_'"),
        (lambda table: table.create_index("id", name="\ud800"), "half a surrogate pair"),
        (lambda table: table.create_index("text", name="known"), "an index 'known' already"),
        (lambda table: table.create_index("id", build=False), "is built at once"),
        (lambda table: table.create_index("id", metric="l2"), "no option 'metric'"),
        (lambda table: table.create_index("text", "fts", language="Klingon"), "Klingon"),
        (lambda table: table.drop_index("knwn"), "no index 'knwn'; did you mean 'known'"),
    ],
)
def test_a_wrong_index_is_refused_and_nothing_changes(
    db: st.Store, ask: Callable[[st.Table], object], message: str
) -> None:
    db["events"].create_index("id", name="known")
    seq = db.seq
    with pytest.raises(st.RequestError, match=message):
        ask(db["events"])
    assert (db.seq, lags(db["events"])) == (seq, {"known": 0})


class Meanwhile:
    """Lets others commit when an index is built, before it is put on the table; once."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, act: Callable[[], object]) -> None:
        self.built, real = 0, LanceIndexer.build

        def build(indexer: LanceIndexer, *given: object) -> object:
            made = real(indexer, *given)  # type: ignore[arg-type]
            self.built += 1
            if self.built == 1:
                act()
            return made

        monkeypatch.setattr(LanceIndexer, "build", build)


def test_rows_that_are_appended_meanwhile_are_not_covered_and_not_lost(
    db: st.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    events = db["events"]
    others = Meanwhile(monkeypatch, lambda: events.append(rows(600, 610)))
    assert events.create_index("id").lagging_rows == 10
    assert (others.built, events.count()) == (1, 610)


def test_an_index_whose_rows_are_deleted_meanwhile_is_built_again(
    db: st.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    events = db["events"]
    others = Meanwhile(monkeypatch, lambda: events.delete_where("id < 100"))
    assert events.create_index("id").lagging_rows == 0
    assert (others.built, events.count(), events.count("id = 5")) == (2, 500, 0)


def test_an_index_of_no_rows_stays_one_of_its_column_if_all_are_replaced_meanwhile(
    db: st.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    events = db["events"]
    events.delete_where("true")
    events.drop_column("id")  # the numbers that Lance gives to columns restart with other rows
    Meanwhile(monkeypatch, lambda: events.overwrite(rows(0, 9).drop_columns(["id"])))
    assert events.create_index("text").column == "text"
    assert events.count("text = 'a plum'") == 3


def test_an_index_comes_to_a_table_that_a_client_changes_meanwhile(
    db: st.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    ns = SiltstoneNamespace(db)
    Meanwhile(monkeypatch, lambda: append(ns, "events", rows(600, 610)))
    assert db["events"].create_index("id").lagging_rows == 10
    assert opened(ns, "events").count_rows("id >= 590") == 20


def test_of_two_that_make_one_index_one_does(db: st.Store, monkeypatch: pytest.MonkeyPatch) -> None:
    events = db["events"]
    Meanwhile(monkeypatch, lambda: events.create_index("id", name="one"))
    with pytest.raises(st.RequestError, match="an index 'one' already"):
        events.create_index("id", "bitmap", name="one")
    assert [(index.name, index.kind) for index in events.indexes()] == [("one", "btree")]


def test_an_index_comes_to_the_table_that_was_asked_though_it_is_renamed_meanwhile(
    db: st.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    events = db["events"]

    def replace() -> None:
        db.rename_table("events", "old")
        db.create_table("events", SCHEMA)

    Meanwhile(monkeypatch, replace)
    events.create_index("id")
    assert (lags(db["old"]), lags(db["events"])) == ({"id": 0}, {})


def test_a_table_that_is_dropped_meanwhile_gets_none(
    db: st.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    events = db["events"]

    def replace() -> None:
        db.drop_table("events")
        db.create_table("events", SCHEMA)

    Meanwhile(monkeypatch, replace)
    with pytest.raises((st.TableNotFoundError, st.ConflictError)):
        events.create_index("id")
    assert lags(db["events"]) == {}


def test_a_vacuum_beside_the_build_leaves_its_files(
    db: st.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    Meanwhile(monkeypatch, lambda: db.vacuum(dry_run=False, grace_s=0))
    db["events"].create_index("id")
    db.vacuum(dry_run=False, grace_s=0)
    assert db.verify(deep=True).is_sound
    assert (lags(db["events"]), db["events"].count("id = 7")) == ({"id": 0}, 1)


def test_a_statement_that_read_before_goes_on_since_no_row_changed(db: st.Store) -> None:
    with db.transaction() as tx:
        assert tx["events"].delete_where("id < 10") == 10
        db["events"].create_index("id")
    assert (db["events"].count(), [*lags(db["events"])]) == (590, ["id"])


@pytest.mark.parametrize("kind", ["btree", "bitmap", "fts"])
def test_an_optimize_keeps_an_index_beside_rows_that_it_lacks(
    db: st.Store, kind: IndexKind
) -> None:
    events, column = db["events"], "text" if kind == "fts" else "id"
    events.append(rows(600, 700))
    events.create_index(column, kind, name="i")
    for n in range(700, 703):
        events.append(rows(n, n + 1))
    assert db.optimize("events").files_before >= 5
    assert lags(events)["i"] <= 3
    assert (events.count(), events.count("id in (5, 650, 701)")) == (703, 3)
    assert opened(SiltstoneNamespace(db), "events").count_rows("id >= 650") == 53


def test_an_optimize_makes_an_index_again_that_lacks_a_fifth_of_the_rows(db: st.Store) -> None:
    events = db["events"]
    events.create_index("id")
    events.append(rows(600, 700))
    seq = db.seq
    assert db.optimize("events").segments == 0
    assert (lags(events), db.seq) == ({"id": 100}, seq)
    events.append(rows(700, 800))
    done = db.optimize()
    assert (done.tables, done.segments, done.indexed_rows) == (("events",), 1, 800)
    assert lags(events) == {"id": 0}
    assert (events.count("id >= 600"), db.verify(deep=True).is_sound) == (200, True)


def test_an_optimize_leaves_an_index_alone_that_is_dropped_meanwhile(
    db: st.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    events = db["events"]
    events.create_index("id")
    events.create_index("text", "bitmap")
    events.append(rows(600, 1200))
    Meanwhile(monkeypatch, lambda: events.drop_index("id"))
    db.optimize("events")
    assert lags(events) == {"text": 0}


def test_a_snapshot_reads_the_version_before_the_index(db: st.Store) -> None:
    with db.snapshot() as before:
        db["events"].create_index("id")
        assert before["events"].count("id < 5") == 5
        assert db["events"].count("id < 5") == 5


def test_a_backup_has_the_index(db: st.Store, tmp_path: Path) -> None:
    db["events"].create_index("text", "fts")
    db.backup(tmp_path / "copy")
    admin.restore(tmp_path / "copy", tmp_path / "back")
    with st.connect(tmp_path / "back", background=False) as back:
        assert lags(back["events"]) == {"text": 0}


def test_an_index_that_a_client_made_is_listed_and_dropped(db: st.Store) -> None:
    dataset = opened(SiltstoneNamespace(db), "events")
    dataset.create_scalar_index("text", "NGRAM")
    (found,) = db["events"].indexes()
    assert (found.name, found.kind) == ("text_idx", "NGram")
    db["events"].drop_index("text_idx")
    assert db["events"].indexes() == []


def test_a_process_that_joins_makes_lists_and_drops_one(db: st.Store) -> None:
    with joined_to(db) as joined:
        events = joined["events"]
        assert events.create_index("id", "bitmap", name="i").kind == "bitmap"
        assert [index.name for index in events.indexes()] == ["i"]
        events.drop_index("i")
    assert db["events"].indexes() == []


def test_another_process_that_owns_nothing_is_told_who_makes_it(db: st.Store) -> None:
    db.checkpoint()
    with pytest.raises(st.RequestError, match="only the process that owns the store"):
        admin.create_index_in(db.path, "events", "id")
    with pytest.raises(st.RequestError, match="only the process that owns the store"):
        admin.drop_index_in(db.path, "events", "id")


def _with_deleted_rows(db: st.Store, *texts: str) -> tuple[st.Table, SiltstoneNamespace]:
    """Return a table whose one part has no value of `n`, and rows that a client deleted."""
    table = db.create_table("notes", dict.fromkeys(texts, "string"))
    rows_of = {name: [f"word{n % 3}" for n in range(90)] for name in texts}
    table.append(pa.table(rows_of))
    table.add_column("n", "int64")
    for name in texts:
        table.create_index(name, "fts")
    ns = SiltstoneNamespace(db)
    opened(ns, "notes").delete(f"{texts[0]} = 'word1'")
    return table, ns


def test_the_last_stored_column_is_dropped_with_its_index_of_texts(db: st.Store) -> None:
    table, _ = _with_deleted_rows(db, "text")
    table.drop_column("text")
    assert (table.schema.names, table.count(), table.indexes()) == (["n"], 60, [])
    assert db.verify(deep=True).is_sound


def test_an_index_that_would_know_rows_that_are_gone_is_named_and_nothing_changes(
    db: st.Store,
) -> None:
    table, _ = _with_deleted_rows(db, "text")
    table.add_column("other", "string")
    table.create_index("other", "fts")
    seq = db.seq
    with pytest.raises(st.RequestError, match="text: index 'other' covers rows that were deleted"):
        table.drop_column("text")
    assert (db.seq, [*lags(table)]) == (seq, ["other", "text"])
    table.drop_index("other")
    table.drop_column("text")
    assert (table.schema.names, table.count()) == (["n", "other"], 60)


def test_a_vacuum_beside_a_renewal_leaves_the_versions_that_it_looks_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with st.connect(tmp_path / "brief", background=False, retention_s=0) as db:
        tables = [db.create_table(name, SCHEMA) for name in ("one", "two")]
        for table in tables:
            table.append(rows(0, 600))
            table.create_index("id")
            table.append(rows(600, 1200))

        def replace() -> None:
            tables[1].overwrite(rows(0, 3))
            db.checkpoint()
            db.vacuum(dry_run=False, grace_s=0)

        Meanwhile(monkeypatch, replace)
        db.optimize()
        assert (lags(tables[0]), tables[1].count()) == ({"id": 0}, 3)
        assert db.verify(deep=True).is_sound


def test_an_index_whose_numbers_cannot_be_read_is_not_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: object) -> list[st.IndexStatus]:
        raise st.UnavailableError("the disk is gone")

    with st.connect(tmp_path / "s", background=False) as db:
        table = db.create_table("p", {"id": "int64"})
        table.append([{"id": 1}])
        before = db.seq
        for module in ("siltstone.local.tables", "siltstone.maintenance.index.plain_indexes"):
            monkeypatch.setattr(f"{module}.plain_statuses", refuse)
        with pytest.raises(st.UnavailableError):
            table.create_index("id")
        monkeypatch.undo()
        assert db.seq == before
        assert table.indexes() == []
        assert table.create_index("id").indexed_rows == 1
