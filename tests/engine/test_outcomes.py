"""What `outcome` says of a transaction's id stays true: also of one that nobody has yet."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

import siltstone as st
from tests.server.rest import Rest
from tests.server.stores import joined_to, opened


@pytest.fixture
def db(tmp_path: Path) -> Iterator[st.Store]:
    with opened(tmp_path / "s") as store:
        store.create_table("t", {"id": "int64"}, primary_key="id")
        yield store


def later(transaction_id: str, more: int) -> str:
    epoch, _, number = transaction_id.partition("-")
    return f"{epoch}-{int(number) + more}"


def test_an_id_that_the_store_has_not_given_out_is_no_transaction(db: st.Store) -> None:
    first = db["t"].upsert({"id": 1}).transaction_id
    for more in (1, 5, 10**6, 10**30):
        with pytest.raises(st.RequestError, match=f"no transaction .*'{later(first, more)}'"):
            db.outcome(later(first, more))
    ids = [db["t"].upsert({"id": n}).transaction_id for n in range(10)]
    assert {db.outcome(each) for each in ids} == {"committed"}


def test_not_committed_is_told_of_no_id_that_commits_later(db: st.Store) -> None:
    told: dict[str, str] = {}
    ids = [db["t"].upsert({"id": 0}).transaction_id]
    for step in range(60):
        for more in range(1, 1 + step % 4):
            wanted = later(ids[-1], more)
            with contextlib.suppress(st.RequestError):
                told[wanted] = db.outcome(wanted)
        ids.append(db["t"].upsert({"id": step}).transaction_id)
    assert {db.outcome(each) for each in ids} == {"committed"}
    assert {each: db.outcome(each) for each in told} == told


def test_an_id_of_an_owner_before_was_given_out_or_never_will_be(tmp_path: Path) -> None:
    with opened(tmp_path / "s") as db:
        first = db.create_table("t", {"id": "int64"}, primary_key="id").upsert({"id": 1})
    with opened(tmp_path / "s") as db:
        assert db.outcome(first.transaction_id) == "committed"
        assert db.outcome(later(first.transaction_id, 9)) == "not committed"


def test_joined_processes_and_clients_of_rest_are_told_the_same(db: st.Store) -> None:
    first = db["t"].upsert({"id": 1}).transaction_id
    with joined_to(db) as joined, st.connect(db.serve(port=0).url) as http:
        for store in (joined, http):
            with pytest.raises(st.RequestError, match="no transaction"):
                store.outcome(later(first, 50))
            done = store["t"].upsert({"id": 2})
            assert store.outcome(done.transaction_id) == "committed"


def test_rest_knows_no_such_transaction(db: st.Store) -> None:
    first = db["t"].upsert({"id": 1}).transaction_id
    rest = Rest(db.serve(port=0))
    assert rest.get(f"/v1/transaction/{later(first, 50)}").status in {400, 404}
    rest.close()


def test_a_reader_does_not_deny_an_id(db: st.Store) -> None:
    first = db["t"].upsert({"id": 1}).transaction_id
    with st.connect(db.path, read_only=True) as reader:
        assert reader.outcome(later(first, 1)) == "in doubt"
