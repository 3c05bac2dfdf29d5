"""An index is declared, built, listed and dropped; no answer changes, and nothing loses it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

import siltstone as st
from siltstone.maintenance.index.index_plan import IndexStatus
from siltstone.maintenance.repair.stored_rows import wrong_indexes
from siltstone.storage.tables.values import IndexSpec

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        ("customer", pa.int64()),
        ("state", pa.string()),
        ("note", pa.string()),
        ("place", pa.list_(pa.float32(), 4)),
        ("words", pa.list_(pa.string())),
    ]
)
OPTIONS = {"background": False, "segment_bytes": 65_536}


@pytest.fixture
def db(tmp_path: Path) -> Iterator[st.Store]:
    with st.connect(tmp_path / "db", **OPTIONS) as db:
        yield db


def row(n: int, turn: int = 0) -> dict[str, object]:
    return {
        "id": n,
        "customer": None if n % 11 == 0 else (n + turn) % 7,
        "state": "open" if n % 3 else "done",
        "note": f"note {n}",
        "place": [float(n), 0.0, 1.0, 2.0],
        "words": ["a"],
    }


def orders_in(db: st.Store, rows: int = 300, *, is_merged: bool = True) -> st.Table:
    orders = db.create_table("orders", SCHEMA, "id")
    orders.upsert([row(n) for n in range(rows)])
    if is_merged:
        db.checkpoint()
        db.merge()
    return orders


def named(table: st.Table) -> dict[str, IndexStatus]:
    return {index.name: index for index in table.indexes()}


def plan(db: st.Store, wanted: str) -> str:
    """Return how Lance would read the base with a filter."""
    (storage,) = db._core.state().view.record.keyed
    opened = db._parts.site.tables.reader.open(storage.base)
    return opened.dataset.scanner(filter=wanted).explain_plan()


def check_answers(table: st.Table, customers: int = 7) -> None:
    rows = table.to_arrow().to_pylist()
    for customer in range(customers):
        expected = sorted(r["id"] for r in rows if r["customer"] == customer)
        found = table.to_arrow(["id"], f"customer = {customer}").column("id").to_pylist()
        assert sorted(found) == expected
    nobody = [r["id"] for r in rows if r["customer"] is None]
    assert sorted(table.to_arrow(["id"], "customer IS NULL")["id"].to_pylist()) == sorted(nobody)


def test_a_created_index_is_built_and_used(db: st.Store) -> None:
    orders = orders_in(db)
    made = orders.create_index("customer")
    assert made == named(orders)["customer"]
    assert (made.column, made.kind, made.segments, made.lagging_rows) == ("customer", "btree", 1, 0)
    assert made.nbytes > 0
    assert "ScalarIndexQuery" in plan(db, "customer = 3")
    check_answers(orders)
    assert db.verify(deep=True).is_sound


@pytest.mark.parametrize(
    ("column", "kind", "options"),
    [
        ("state", "bitmap", {}),
        ("note", "fts", {"stem": False, "with_position": True}),
        ("place", "vector", {"metric": "cosine"}),
        ("id", "bitmap", {}),
    ],
)
def test_every_kind_is_built(
    db: st.Store, column: str, kind: str, options: dict[str, object]
) -> None:
    orders = orders_in(db)
    made = orders.create_index(column, kind, name="mine", **options)
    assert (made.name, made.kind, made.options, made.lagging_rows) == ("mine", kind, options, 0)
    assert made.segments == 1
    assert db.verify(deep=True).is_sound


def test_rows_that_come_later_are_found_and_the_index_catches_up(db: st.Store) -> None:
    orders = orders_in(db)
    orders.create_index("customer")
    orders.upsert([row(n, turn=1) for n in range(280, 310)])
    orders.delete([1, 2, 3])
    check_answers(orders)
    db.checkpoint()
    check_answers(orders)
    db.merge()
    check_answers(orders)
    db.optimize()
    assert named(orders)["customer"].lagging_rows == 0
    check_answers(orders)
    assert db.verify(deep=True).is_sound


def test_a_merge_that_leaves_an_index_far_behind_builds_it(db: st.Store) -> None:
    orders = orders_in(db, is_merged=False)
    assert orders.create_index("customer").segments == 0
    db.checkpoint()
    db.merge()
    assert named(orders)["customer"].lagging_rows == 0
    assert named(orders)["customer"].segments == 1


def test_a_small_lag_is_left_to_optimize(db: st.Store) -> None:
    orders = orders_in(db, 70_000)
    orders.create_index("customer")
    orders.insert([row(n) for n in range(70_000, 71_000)])
    db.checkpoint()
    db.merge()
    assert named(orders)["customer"].lagging_rows == 1000
    done = db.optimize(target_rows=1000)
    assert isinstance(done, st.Optimized)
    assert done.tables == ("orders",)
    assert (done.segments, done.indexed_rows) == (1, 1000)
    assert (named(orders)["customer"].lagging_rows, named(orders)["customer"].segments) == (0, 2)
    assert orders.count("customer = 3") == sum(r["customer"] == 3 for r in map(row, range(71_000)))


def test_an_index_of_rows_without_vectors_waits_for_one_and_others_are_built(
    db: st.Store,
) -> None:
    orders = orders_in(db, is_merged=False)
    orders.upsert([row(n) | {"place": None} for n in range(300)])
    db.checkpoint()
    db.merge()
    made = orders.create_index("place", "vector")
    assert (made.segments, made.lagging_rows) == (0, 300)
    assert orders.create_index("customer").lagging_rows == 0
    orders.upsert(row(5))
    db.checkpoint()
    db.merge()
    db.optimize()
    assert [index.segments for index in orders.indexes()] == [1, 1]


def test_an_index_that_is_not_built_at_once_waits_for_optimize(db: st.Store) -> None:
    orders = orders_in(db)
    made = orders.create_index("customer", build=False)
    assert (made.segments, made.lagging_rows) == (0, 300)
    db.optimize()
    assert named(orders)["customer"].lagging_rows == 0


def test_a_dropped_index_leaves_base_and_its_name_is_free(db: st.Store) -> None:
    orders = orders_in(db)
    orders.create_index("customer")
    orders.drop_index("customer")
    assert orders.indexes() == []
    assert "ScalarIndexQuery" not in plan(db, "customer = 3")
    made = orders.create_index("state", "bitmap", name="customer")
    assert (made.column, made.lagging_rows) == ("state", 0)
    assert "ScalarIndexQuery" not in plan(db, "customer = 3")


def test_indexes_outlive_the_process(tmp_path: Path) -> None:
    with st.connect(tmp_path / "db", **OPTIONS) as db:
        made = orders_in(db).create_index("customer")
    with st.connect(tmp_path / "db", read_only=True) as db:
        assert db["orders"].indexes() == [made]
    with st.connect(tmp_path / "db", **OPTIONS) as db:
        assert db["orders"].indexes() == [made]
        db["orders"].upsert(row(5, turn=3))
        db.checkpoint()
        assert db["orders"].indexes() == [made]


def test_an_index_follows_its_table_and_its_column(db: st.Store) -> None:
    orders = orders_in(db)
    orders.create_index("customer")
    orders.rename_column("customer", "client")
    db.rename_table("orders", "sales")
    assert named(orders)["customer"].column == "client"
    db.checkpoint()
    db.merge()
    db.optimize()
    assert (named(orders)["customer"].column, named(orders)["customer"].lagging_rows) == (
        "client",
        0,
    )
    assert "ScalarIndexQuery" in plan(db, "client = 3")


def test_an_index_goes_with_its_column(db: st.Store) -> None:
    orders = orders_in(db)
    orders.create_index("customer")
    orders.create_index("state", "bitmap")
    orders.drop_column("customer")
    assert set(named(orders)) == {"state"}
    db.checkpoint()
    db.merge()
    db.optimize()
    assert set(named(orders)) == {"state"}
    orders.add_column("customer", "int64")
    assert set(named(orders)) == {"state"}
    assert orders.create_index("customer").column == "customer"
    assert db.verify(deep=True).is_sound


def test_an_index_on_a_new_column_is_built_with_the_merge_that_brings_it(db: st.Store) -> None:
    orders = orders_in(db)
    orders.add_column("more", "int64")
    assert orders.create_index("more").lagging_rows == 300
    orders.update(5, more=9)
    db.checkpoint()
    db.merge()
    assert named(orders)["more"].lagging_rows == 0
    assert orders.to_arrow(["id"], "more = 9")["id"].to_pylist() == [5]


def test_a_truncated_table_keeps_its_declarations(db: st.Store) -> None:
    orders = orders_in(db)
    orders.create_index("customer")
    orders.truncate()
    orders.upsert([row(n) for n in range(40)])
    assert named(orders)["customer"].segments == 0
    db.checkpoint()
    db.merge()
    db.optimize()
    assert (named(orders)["customer"].segments, named(orders)["customer"].lagging_rows) == (1, 0)
    check_answers(orders)


def test_a_dropped_table_takes_its_indexes_along(db: st.Store) -> None:
    orders = orders_in(db)
    orders.create_index("customer")
    db.drop_table("orders")
    db.checkpoint()
    db.optimize()
    again = db.create_table("orders", SCHEMA, "id")
    assert again.indexes() == []
    again.create_index("customer")
    assert len(db._parts.site.manifests.newest().indexes) == 1


def test_an_index_is_seen_by_the_past_as_it_was(db: st.Store) -> None:
    orders = orders_in(db)
    before = db.snapshot()
    orders.create_index("customer")
    orders.upsert([row(n, turn=2) for n in range(100)])
    db.checkpoint()
    db.merge()
    db.optimize()
    with db.snapshot(seq=before.seq) as past:
        rows = past["orders"].to_arrow(["id", "customer"], "customer = 3").num_rows
        assert rows == before["orders"].count("customer = 3")


WRONG = [
    ({"column": "nowhere"}, "no column 'nowhere'"),
    ({"column": "customer", "kind": "hash"}, "be one of btree, bitmap, fts, vector"),
    ({"column": "customer", "kind": "fts"}, "a fts index does not support"),
    ({"column": "customer", "kind": "vector"}, "a vector index does not support"),
    ({"column": "words"}, "a btree index does not support"),
    ({"column": "words", "kind": "fts"}, "a fts index does not support"),
    ({"column": "place", "kind": "bitmap"}, "a bitmap index does not support"),
    ({"column": "customer", "name": "_key"}, "the first not '_'"),
    ({"column": "customer", "name": "\ud800"}, "half a surrogate pair"),
    ({"column": "customer", "name": ""}, "1 to 128 characters"),
    ({"column": "customer", "name": 7}, "1 to 128 characters"),
    ({"column": "customer", "stem": True}, "a btree index has no option 'stem'"),
    ({"column": "note", "kind": "fts", "stem": 1}, "stem must be of type bool"),
    ({"column": "note", "kind": "fts", "language": "\ud800"}, "half a surrogate pair"),
    ({"column": "place", "kind": "vector", "metric": "far"}, "metric must be one of"),
    ({"column": "place", "kind": "vector", "partitions": 0}, "partitions must be between"),
    ({"column": "place", "kind": "vector", "metric": "hamming"}, "metric must be one of"),
    ({"column": "place", "kind": "vector", "encoding": "ivf"}, "encoding must be one of"),
    ({"column": "place", "kind": "vector", "encoding": "rq"}, "a multiple of 8; 4 is not"),
    (
        {"column": "place", "kind": "vector", "encoding": "sq", "sub_vectors": 2},
        "needs encoding='pq'",
    ),
    ({"column": "place", "kind": "vector", "sub_vectors": 2}, "needs encoding='pq'"),
    ({"column": "place", "kind": "vector", "encoding": "pq", "sub_vectors": 3}, "must divide 4"),
    ({"column": "state"}, "has an index 'state' already"),
]


@pytest.mark.parametrize(("call", "reason"), WRONG, ids=[reason for _, reason in WRONG])
def test_a_wrong_index_is_refused_and_nothing_changes(
    tmp_path: Path, call: dict[str, object], reason: str
) -> None:
    with st.connect(tmp_path / "db", **OPTIONS) as db:
        orders = orders_in(db, 10)
        orders.create_index("state", "bitmap")
        before = db._parts.site.manifests.newest()
        with pytest.raises(st.RequestError, match=reason):
            orders.create_index(**call)
        assert db._parts.site.manifests.newest() == before
        assert set(named(orders)) == {"state"}


def test_what_cannot_be_dropped_is_refused(db: st.Store) -> None:
    orders = orders_in(db, 10)
    with pytest.raises(st.RequestError, match="no index 'customer'"):
        orders.drop_index("customer")


def test_a_reader_lists_and_changes_nothing(tmp_path: Path) -> None:
    with st.connect(tmp_path / "db", **OPTIONS) as db:
        orders_in(db, 10).create_index("customer")
    with st.connect(tmp_path / "db", read_only=True) as db:
        with pytest.raises(st.ReadOnlyError):
            db["orders"].create_index("state")
        with pytest.raises(st.ReadOnlyError):
            db["orders"].drop_index("customer")
        assert set(named(db["orders"])) == {"customer"}


def test_the_status_says_how_far_an_index_is_behind(db: st.Store) -> None:
    orders = orders_in(db)
    orders.create_index("customer", build=False)
    (table,) = db.status().tables
    assert table.indexes == tuple(orders.indexes())
    assert "customer (btree of customer, 300 rows behind)" in str(db.status())
    db.optimize()
    assert "customer (btree of customer)" in str(db.status())


def index_files(db: st.Store) -> set[str]:
    return {path.parent.name for path in db.path.rglob("_indices/*/*")}


def test_vacuum_keeps_the_files_of_indexes_as_long_as_their_bases(tmp_path: Path) -> None:
    with st.connect(tmp_path / "db", retention="0s", **OPTIONS) as db:
        orders = orders_in(db)
        orders.create_index("customer")
        old = index_files(db)
        db.tag("audit")
        orders.drop_index("customer")
        orders.create_index("state", "bitmap")
        new = index_files(db) - old
        orders.upsert(row(1, turn=5))
        db.checkpoint()
        db.merge()
        db.optimize()
        db.vacuum(dry_run=False, grace_s=0)
        assert index_files(db) > new  # the newest record that serves the tag has that index
        assert not index_files(db) & old
        with db.snapshot(tag="audit") as past:
            mine = sum(row(n)["customer"] == 3 for n in range(300))
            assert past["orders"].count("customer = 3") == mine
        db.untag("audit")
        db.checkpoint()
        assert orders.count() == 300  # a handle keeps the record of its last call
        db.vacuum(dry_run=False, grace_s=0)
        assert not index_files(db) & new
        assert len(index_files(db)) == 1
        assert {path.name for path in db.path.rglob("_indices/*")} == index_files(db)
        assert named(orders)["state"].lagging_rows == 0
        assert orders.count("state = 'open'") == 200
        assert db.verify(deep=True).is_sound


def damage(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


@pytest.fixture
def sold(tmp_path: Path) -> Path:
    """A closed store with an index, in two records."""
    with st.connect(tmp_path / "db", **OPTIONS) as db:
        orders_in(db).create_index("customer")
    return tmp_path / "db"


def index_file(root: Path) -> Path:
    return min(root.rglob("_indices/*/*"))


def test_reads_go_on_without_an_index_that_is_damaged(sold: Path) -> None:
    damage(index_file(sold))
    with st.connect(sold, read_only=True) as db:
        check_answers(db["orders"])


def test_verify_names_an_index_that_is_damaged_or_gone(sold: Path) -> None:
    found = index_file(sold)
    damage(found)
    with st.connect(sold, read_only=True) as db:
        assert db.verify().is_sound  # it has its size
        (finding,) = db.verify(deep=True).findings
        assert finding.path == str(found.relative_to(sold))
        found.unlink()
        assert [f.path for f in db.verify().findings] == [str(found.relative_to(sold))]
        check_answers(db["orders"])


@pytest.mark.parametrize("is_gone", [True, False], ids=["gone", "damaged"])
def test_repair_builds_a_broken_index_again(sold: Path, is_gone: bool) -> None:
    found = index_file(sold)
    if is_gone:
        found.unlink()
    else:
        damage(found)
    preview = st.repair(sold, deep=True)
    assert found.exists() is not is_gone
    assert preview.is_whole
    done = st.repair(sold, dry_run=False, deep=True)
    assert done.steps == preview.steps
    assert done.is_whole
    assert not found.exists()
    assert bool([*sold.rglob(f"quarantine/*/*{found.name}")]) is not is_gone
    with st.connect(sold, **OPTIONS) as db:
        assert db.verify(deep=True).is_sound
        assert named(db["orders"])["customer"].lagging_rows == 0
        assert "ScalarIndexQuery" in plan(db, "customer = 3")
        check_answers(db["orders"])
    assert st.repair(sold, dry_run=False, deep=True).steps == ()


def test_older_records_do_without_an_index_that_is_broken(tmp_path: Path) -> None:
    with st.connect(tmp_path / "db", **OPTIONS) as db:
        orders = orders_in(db)
        orders.create_index("customer")
        before = db.snapshot().seq
        orders.upsert([row(n, turn=1) for n in range(300)])
        db.checkpoint()
        found = index_file(db.path)
        db.merge()
    damage(found)
    done = st.repair(tmp_path / "db", dry_run=False, deep=True)
    assert done.is_whole
    assert done.steps
    with st.connect(tmp_path / "db", **OPTIONS) as db:
        assert db.verify(deep=True).is_sound
        assert named(db["orders"])["customer"].lagging_rows == 0
        with db.snapshot(seq=before) as past:
            check_answers(past["orders"])


def test_a_deep_verification_asks_indexes_what_scans_find(db: st.Store) -> None:
    orders = orders_in(db, 70_000)
    orders.insert([row(n) for n in range(70_000, 71_000)])
    db.checkpoint()
    db.merge()
    (storage,) = db._core.state().view.record.keyed
    tables = db._parts.site.tables
    spans = tables.reader.open(storage.base).spans
    assert len(spans) == 2
    spec = IndexSpec("customer.1", "customer", "btree")
    part, whole = (tables.indexer.build(storage.base, spec, some) for some in (spans[:1], spans))
    claims = json.loads(whole.described)["fragment_ids"]
    wrong = json.loads(part.described) | {"fragment_ids": claims}
    lie = replace(part, inputs=whole.inputs, described=json.dumps(wrong))
    pin = tables.indexer.put(storage.base, [lie])
    assert list(wrong_indexes(tables.reader.open(storage.base))) == []
    (told,) = wrong_indexes(tables.reader.open(pin))
    assert "'customer' miss" in told
