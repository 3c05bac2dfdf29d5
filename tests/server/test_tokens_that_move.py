"""A transaction with a token that moves to its owner is fenced as of its begin, not of its move."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest

import siltstone as st
from siltstone.joined.store import JoinedStore
from siltstone.joined.transactions import large_writes

Both = tuple[st.Store, JoinedStore]
Call = Callable[[st.Transaction], None]
MANY = 1_000


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(large_writes, "STAGED_BYTES_MIN", 10_000)  # `MANY` rows have more


def few(tx: st.Transaction) -> None:
    tx["t"].upsert({"id": 3, "v": 30})


def many(tx: st.Transaction) -> None:
    tx["t"].upsert(pa.table({"id": range(10, 10 + MANY), "v": [1] * MANY}))


def nothing(tx: st.Transaction) -> None:
    del tx


def stay(tx: st.Transaction) -> None:
    del tx


def move(tx: st.Transaction) -> None:
    tx.create_table("new", {"n": "int64"})


def committed(tx: st.Transaction, end: Call) -> None:
    end(tx)
    tx.commit()


WRITES = [(few, stay), (few, move), (many, stay), (many, move), (nothing, move)]
writes = pytest.mark.parametrize(("write", "end"), WRITES, ids=lambda call: call.__name__)


@writes
def test_a_claim_that_came_before_the_move_fences_it(both: Both, write: Call, end: Call) -> None:
    owner, joined = both
    tx = joined.transaction(token=("app", 1))
    write(tx)
    owner.claim("app", "other")
    with pytest.raises(st.FencedError):
        committed(tx, end)
    tx.rollback()
    assert owner["t"].count() == 2
    assert owner.token_apps()[0].batch == -1


@writes
def test_an_app_that_was_forgotten_before_the_move_is_another_one(
    both: Both, write: Call, end: Call
) -> None:
    owner, joined = both
    with owner.transaction(token=("app", 1)) as first:
        first["t"].update(1, v=11)
    tx = joined.transaction(token=("app", 2))
    write(tx)
    owner.forget_token_app("app")
    with owner.transaction(token=("app", 1)) as again:
        again["t"].update(1, v=12)
    with pytest.raises(st.FencedError):
        committed(tx, end)
    tx.rollback()
    assert owner["t"].count() == 2
    assert owner.token_apps()[0].batch == 1


def test_one_whose_token_was_applied_meanwhile_never_reads_at_another_seq(both: Both) -> None:
    """It runs again, and hears that its token was applied."""
    owner, joined = both
    tx = joined.transaction(token=("app", 1))
    assert tx["t"].get(1) == {"id": 1, "v": 10}
    with owner.transaction(token=("app", 1)) as other:
        other["t"].update(1, v=11)
    with pytest.raises(st.ConflictError, match="applied"):
        move(tx)
    with joined.transaction(token=("app", 1)) as again:
        assert again.is_applied
    assert again.seq == other.seq


def test_many_rows_of_a_token_that_was_applied_meanwhile_return_its_receipt(both: Both) -> None:
    owner, joined = both
    tx = joined.transaction(token=("app", 1))
    many(tx)
    with owner.transaction(token=("app", 1)) as other:
        few(other)
    assert tx.commit().seq == other.seq
    assert owner["t"].count() == 3
