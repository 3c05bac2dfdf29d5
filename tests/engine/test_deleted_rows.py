"""A delete by keys counts the rows that lived, and refuses a filter in the place of a key."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import siltstone as st
from siltstone.choices import Isolation
from siltstone.errors import SchemaMismatchError

NAMED = {"id": "string", "n": "int64", "is_new": "bool"}
NUMBERED = {"id": "int64", "n": "int64", "vector": "vector(float32, 4)"}
PAIRS = {"region": "string", "id": "int64", "n": "int64"}
MANY = 12_000
Call = Callable[..., int | None]


@pytest.fixture
def db(tmp_path: Path) -> Iterator[st.Store]:
    with st.connect(tmp_path / "s", background=False) as made:
        ids = ["a", "b", "it's", "n = 9", "z"]
        named = made.create_table("named", NAMED, primary_key="id")
        named.insert([{"id": each, "n": place, "is_new": True} for place, each in enumerate(ids)])
        made.create_table("pairs", PAIRS, primary_key=["region", "id"]).insert(
            [{"region": region, "id": number} for region in ("eu", "us") for number in range(3)]
        )
        numbers = pa.array(range(MANY), pa.int64())
        made.create_table("numbered", NUMBERED, primary_key="id").insert(pa.table({"id": numbers}))
        yield made


@pytest.fixture(params=["table", "transaction", "serializable", "merged"])
def delete(request: pytest.FixtureRequest, db: st.Store) -> Call:
    """Return what deletes keys of a table; it returns the number of rows."""
    if request.param == "merged":
        db.merge()

    def alone(table: str, keys: object) -> int | None:
        return db[table].delete(keys).rows

    def within(table: str, keys: object) -> int | None:
        isolation = "serializable" if request.param == "serializable" else "snapshot"
        with db.transaction(isolation=isolation) as tx:
            return tx[table].delete(keys)

    return alone if request.param in {"table", "merged"} else within


def names_of(db: st.Store) -> list[str]:
    return sorted(row["id"] for row in db["named"].to_arrow(["id"]).to_pylist())


def test_only_rows_that_lived_count(db: st.Store, delete: Call) -> None:
    assert delete("named", "a") == 1
    assert delete("named", "a") == 0
    assert delete("named", ["b", "b", "it's", "nobody"]) == 2
    assert delete("pairs", [("eu", 1), ("eu", 7)]) == 1
    assert delete("numbered", range(MANY - 100, MANY - 100 + 10_000)) == 100
    assert delete("numbered", pa.table({"id": [0, 1, MANY - 1]})) == 2
    assert delete("numbered", []) == 0
    assert names_of(db) == ["n = 9", "z"]
    assert (db["pairs"].count(), db["numbered"].count()) == (5, MANY - 102)


def test_of_more_than_ten_thousand_keys_nobody_counts(db: st.Store, delete: Call) -> None:
    assert delete("numbered", range(10_001)) is None
    assert db["numbered"].count() == MANY - 10_001
    assert delete("numbered", range(10_000)) == 0


def test_a_transaction_counts_by_its_own_writes_and_its_snapshot(db: st.Store) -> None:
    with db.transaction() as tx:
        tx["named"].upsert({"id": "mine", "n": 1, "is_new": False})
        db["named"].insert({"id": "later", "n": 1, "is_new": False})
        assert tx["named"].delete(["mine", "later", "a"]) == 2
        assert tx["named"].delete(["mine", "a"]) == 0
        assert tx["named"].delete([*map(str, range(20)), "b"]) == 1
        tx["named"].upsert({"id": "a", "n": 1, "is_new": False})
        assert tx["named"].delete(["a", *map(str, range(20))]) == 1
        with pytest.raises(st.ConflictError):  # "later" is written after the snapshot, as ever
            tx.commit()


@pytest.mark.parametrize("isolation", ["snapshot", "serializable"])
def test_a_count_is_no_read_that_conflicts(db: st.Store, isolation: Isolation) -> None:
    with db.transaction(isolation=isolation) as tx:
        assert tx["named"].delete("nobody") == 0
        db["named"].update("a", n=5)
        db["numbered"].update(3, n=5)
    assert db["named"].delete("nobody").rows == 0


def test_a_blind_delete_takes_a_row_that_came_meanwhile(db: st.Store) -> None:
    receipt = db["named"].delete("nobody")
    assert receipt.rows == 0
    assert receipt.seq == db.seq  # it is a commit: of a race it is the later one


def test_rows_that_python_cannot_hold_count(db: st.Store) -> None:
    made = db.create_table("m", {"id": "int64", "at": "timestamp[s]"}, primary_key="id")
    far = pa.array([1 << 40, 0], pa.timestamp("s"))
    made.insert(pa.table({"id": [1, 2], "at": far}))
    assert made.delete(1).rows == 1
    made.insert(pa.table({"id": [1], "at": far[:1]}))
    assert made.delete([1, 2, 3]).rows == 2


def test_a_batch_that_was_applied_may_delete_again_what_reads_like_a_filter(db: st.Store) -> None:
    seqs: list[int | None] = []
    for _ in range(2):
        with db.transaction(token=("app", 1)) as tx:
            tx["named"].delete("n = 9")
        seqs.append(tx.seq)
    assert seqs == [db.seq, db.seq]
    assert "n = 9" not in names_of(db)


FILTERS = [
    "id = 'a'",
    "id == 'a'",
    "n > 5",
    "n = 3",
    "(id = 'a' or id = 'b') and not n < 0",
    "id in ('a', 'b')",
    "id IS NULL",
    "id like 'a%'",
    "n between 1 and 3",
    "'a' = id",
    "id = n",
    "id = 5",
    "lower(id) = 'a'",
    'id = "a"',
    "named.id = 'a'",
]


@pytest.mark.parametrize("text", FILTERS)
def test_a_filter_in_the_place_of_a_key_is_refused(db: st.Store, delete: Call, text: str) -> None:
    before = db.seq
    with pytest.raises(st.RequestError, match="use delete_where") as caught:
        delete("named", text)
    assert repr(text) in str(caught.value)
    assert "{'id': ...}" in str(caught.value)  # how a key of this text is deleted
    assert db.seq == before
    assert len(names_of(db)) == 5


def test_a_filter_is_refused_where_no_text_is_a_key(db: st.Store, delete: Call) -> None:
    for table, text in (("numbered", "id = 1"), ("pairs", "region = 'eu' and id = 1")):
        with pytest.raises(st.RequestError, match="use delete_where"):
            delete(table, text)
    with pytest.raises(SchemaMismatchError):
        delete("numbered", "one")
    with pytest.raises(SchemaMismatchError):
        delete("pairs", "eu")


def test_a_key_that_reads_like_a_filter_is_deleted_if_a_row_has_it(
    db: st.Store, delete: Call
) -> None:
    assert delete("named", "n = 9") == 1
    with pytest.raises(st.RequestError, match="use delete_where"):
        delete("named", "n = 9")
    assert delete("named", ["n = 9"]) == 0
    assert delete("named", {"id": "n = 9"}) == 0
    assert names_of(db) == ["a", "b", "it's", "z"]


KEYS = [
    "nobody",
    "",
    "total = 5",  # no column is called so
    "is_new",
    "not n",
    "n",
    "a=",
    "=",
    "'id' = 'a'",
    "id = ",
    "YWJjZA==",
    "n - 5",
    "n = 3; drop table named",
    "id = 'a' -- and more " + "x" * 70_000,
    "(" * 5_000 + "id = 'a'",
    "\ud800 = id",
    "https://example.org/?a=1&b=2",
]


@pytest.mark.parametrize("key", KEYS, ids=lambda key: repr(key)[:30])
def test_any_other_key_that_no_row_has_is_no_error(db: st.Store, key: str) -> None:
    if "\ud800" in key:
        with pytest.raises(SchemaMismatchError):
            db["named"].delete(key)
        return
    assert db["named"].delete(key).rows == 0
    assert len(names_of(db)) == 5
