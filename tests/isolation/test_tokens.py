"""A token applies once, over any number of attempts and reopens; a claim fences the older ones."""

from __future__ import annotations

import pytest

import siltstone as st
from siltstone.storage.simulated_files import SimFiles
from tests.isolation.stores import opened, with_two_rows


def apply(db: st.Store, batch: int, key: int) -> st.Receipt:
    tx = db.transaction(token=("app", batch))
    tx["t"].upsert({"id": key, "v": batch})
    return tx.commit()


@pytest.mark.parametrize("way", ["log", "flushed"])
@pytest.mark.parametrize("later", [0, 1, 2])
def test_a_token_gives_its_old_receipt_after_a_kill_and_later_batches(way: str, later: int) -> None:
    files = SimFiles()
    db = with_two_rows(files)
    receipt = apply(db, 1, 100)
    for batch in range(2, 2 + later):
        apply(db, batch, 100 + batch)
    if way == "flushed":
        db.checkpoint()
        db.merge()
    for _ in range(2):
        files = files.killed()
        db = opened(files)
        again = apply(db, 1, 999)
        assert (again.seq, again.rows) == (receipt.seq, receipt.rows)
        assert db["t"].get(999) is None
    assert apply(db, 9, 9).seq == db.seq


def test_a_batch_below_the_last_that_was_never_applied_is_refused_after_a_kill() -> None:
    files = SimFiles()
    db = with_two_rows(files)
    apply(db, 5, 100)
    db.checkpoint()
    db = opened(files.killed())
    with pytest.raises(st.RequestError, match="strictly increase"):
        apply(db, 4, 101)
    assert db["t"].get(101) is None


def test_a_refused_commit_does_not_use_its_token_up() -> None:
    db = with_two_rows()
    losing = db.transaction(token=("app", 1))
    losing["t"].update(1, v=11)
    db["t"].update(1, v=12)
    with pytest.raises(st.ConflictError):
        losing.commit()
    assert apply(db, 1, 100).seq == db.seq
    assert db["t"].get(100) is not None


def test_a_token_alone_is_a_commit() -> None:
    db = with_two_rows()
    with db.transaction(token=("app", 1)) as tx:
        pass
    assert tx.seq == db.seq
    with db.transaction(token=("app", 1)) as again:
        pass
    assert again.seq == tx.seq


def test_a_claim_fences_the_transaction_that_began_before_it() -> None:
    db = with_two_rows()
    db.claim("app")
    old = db.transaction(token=("app", 1))
    old["t"].upsert({"id": 100, "v": 1})
    other = db.transaction(token=("other", 1))
    db.claim("app")
    with pytest.raises(st.FencedError):
        old.commit()
    other.commit()
    assert db["t"].get(100) is None
    apply(db, 1, 101)


def test_a_first_claim_fences_who_never_claimed() -> None:
    db = with_two_rows()
    old = db.transaction(token=("app", 1))
    old["t"].upsert({"id": 100, "v": 1})
    assert db.claim("app") == 1
    with pytest.raises(st.FencedError):
        old.commit()


def test_claims_rise_over_a_reopen() -> None:
    files = SimFiles()
    db = with_two_rows(files)
    assert [db.claim("app"), db.claim("app")] == [1, 2]
    db.checkpoint()
    db.close()
    assert opened(files).claim("app") == 3


def test_inserts_under_an_applied_token_return_the_old_receipt_when_tried_again() -> None:
    db = with_two_rows()
    seqs = []
    for _ in range(2):
        with db.transaction(token=("app", 1)) as tx:
            tx["t"].insert({"id": 7, "v": 1})
        seqs.append(tx.seq)
    assert seqs[0] == seqs[1]
    assert db["t"].count() == 3


def applied_by(db: st.Store, holder: str, batch: int, key: int) -> st.Receipt:
    tx = db.transaction(token=("app", batch), claim=db.claim("app", holder))
    tx["t"].upsert({"id": key, "v": batch})
    return tx.commit()


def test_a_holder_keeps_its_claim_until_another_one_claims() -> None:
    db = with_two_rows()
    assert [db.claim("app", "a"), db.claim("app", "a")] == [1, 1]
    seq = db.seq
    db.claim("app", "a")
    assert db.seq == seq
    assert db.claim("app", "b") == 2
    with pytest.raises(st.FencedError, match="our claim a of app 'app' ended: b claimed it"):
        db.claim("app", "a")
    assert db.claim("app", "b") == 2


def test_a_claim_without_a_holder_ends_that_of_a_holder() -> None:
    db = with_two_rows()
    db.claim("app", "a")
    assert db.claim("app") == 2
    with pytest.raises(st.FencedError, match="2 claimed it"):
        db.claim("app", "a")
    assert db.claim("app", "b") == 3


@pytest.mark.parametrize("way", ["log", "flushed"])
def test_a_superseded_holder_is_fenced_after_a_kill_and_the_new_one_goes_on(way: str) -> None:
    files = SimFiles()
    db = with_two_rows(files)
    first = applied_by(db, "a", 1, 100)
    if way == "flushed":
        db.checkpoint()
    again = applied_by(db, "b", 1, 999)
    assert (again.seq, again.rows) == (first.seq, first.rows)
    for _ in range(2):
        if way == "flushed":
            db.checkpoint()
        files = files.killed()
        db = opened(files)
        with pytest.raises(st.FencedError):
            applied_by(db, "a", 2, 101)
        with pytest.raises(st.FencedError):
            applied_by(db, "a", 1, 101)
    applied_by(db, "b", 2, 102)
    assert [db["t"].get(key) is not None for key in (999, 101, 102)] == [False, False, True]


def test_a_claim_that_another_one_followed_fences_a_transaction_that_begins_later() -> None:
    db = with_two_rows()
    claim = db.claim("app", "a")
    db.claim("app", "b")
    tx = db.transaction(token=("app", 1), claim=claim)
    tx["t"].upsert({"id": 100, "v": 1})
    with pytest.raises(st.FencedError):
        tx.commit()
    assert db["t"].get(100) is None


def test_of_two_holders_that_claim_at_once_the_later_commit_is_fenced() -> None:
    db = with_two_rows()
    one, other = db.transaction(), db.transaction()
    assert [one.claim("app", "a"), other.claim("app", "b")] == [1, 1]
    one.commit()
    with pytest.raises(st.FencedError):
        other.commit()
    assert db.claim("app", "a") == 1


def test_a_bounded_number_of_past_holders_is_known_and_batches_still_rise() -> None:
    db = with_two_rows()
    for number in range(10):
        applied_by(db, f"run {number}", number, 100 + number)
    with pytest.raises(st.FencedError):
        db.claim("app", "run 1")
    again = applied_by(db, "run 0", 9, 999)  # long forgotten: a new run
    assert again.seq < db.seq
    assert db["t"].get(999) is None
    with pytest.raises(st.FencedError):
        db.claim("app", "run 9")


def test_of_holders_that_claim_at_numbers_the_highest_has_the_app_whoever_comes_first() -> None:
    files = SimFiles()
    db = with_two_rows(files)
    assert db.claimed("app") == (0, "")
    assert db.claim("app", "b", 7) == 7
    for number in (0, 5, 7):
        with pytest.raises(st.FencedError, match="our claim a of app 'app' ended: b claimed it"):
            db.claim("app", "a", number)
    assert db.claim("app", "b", 3) == 7  # it has it, at the number of then
    for number in range(8, 30):
        assert db.claim("app", f"c{number}", number) == number
    db.checkpoint()
    db.close()
    db = opened(files)
    assert db.claimed("app") == (29, "c29")
    with pytest.raises(st.FencedError):
        db.claim("app", "b", 7)
    assert db.claim("app", "b", 30) == 30  # one that comes back at a new number is new
    assert db.claim("app") == 31
    assert db.claimed("app") == (31, "")


def test_a_store_keeps_so_many_apps_and_refuses_one_more_by_token_or_claim(monkeypatch) -> None:
    """Every record has them all, for ever; those that it has go on."""
    db = with_two_rows()
    monkeypatch.setattr("siltstone.engine.commit.admission.APPS_MAX", 2)
    apply(db, 1, 100)
    assert db.claim("b") == 1
    before = db.seq
    tx = db.transaction(token=("c", 1))
    tx["t"].upsert({"id": 101, "v": 1})
    with pytest.raises(st.RequestError, match="'c' would be token app 3"):
        tx.commit()
    with pytest.raises(st.RequestError, match="app 3"):
        db.claim("c")
    assert db.seq == before
    assert db.claim("b") == 2
    assert apply(db, 2, 100).seq == db.seq
