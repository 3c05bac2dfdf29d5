"""A store keeps a token app until it is told to forget it; then its batches and claims begin anew.

What is given up is said by the second test: an old batch of a forgotten app is a new one.
"""

from __future__ import annotations

import pytest

import siltstone as st
from tests.isolation.groups import in_one_group
from tests.isolation.stores import opened, with_two_rows
from tests.support.simulated_files import SimFiles

WAYS = pytest.mark.parametrize("way", ["log", "flushed"])


def apply(db: st.Store, batch: int, key: int, app: str = "app", **options) -> st.Receipt:
    tx = db.transaction(token=(app, batch), **options)
    tx["t"].upsert({"id": key, "v": batch})
    return tx.commit()


def names(db: st.Store) -> list[str]:
    return [app.name for app in db.token_apps()]


def test_a_store_at_its_limit_of_apps_takes_a_new_one_when_it_forgot_one(monkeypatch) -> None:
    db = with_two_rows()
    monkeypatch.setattr("siltstone.engine.commit.admission.APPS_MAX", 2)
    apply(db, 1, 100, "a")
    db.claim("b")
    apply(db, 2, 101, "a")
    for refused in (lambda: apply(db, 1, 102, "c"), lambda: db.claim("c")):
        with pytest.raises(st.RequestError, match=r"'c' would be token app 3.*forget_token_app"):
            refused()
    with pytest.raises(st.RequestError, match=r"the least recently used one is 'b' \(claim 1\)"):
        db.claim("c")
    receipt = db.forget_token_app("b")
    assert receipt.seq == db.seq == db.durable_seq
    assert apply(db, 1, 102, "c").seq == db.seq
    assert names(db) == ["a", "c"]


@WAYS
def test_a_batch_of_a_forgotten_app_is_a_new_one(way: str) -> None:
    files = SimFiles()
    db = with_two_rows(files)
    first = apply(db, 5, 100)
    db.forget_token_app("app")
    for _ in range(2):
        if way == "flushed":
            db.checkpoint()
            db.merge()
        files = files.killed()
        db = opened(files)
        assert db.token_apps() == []
    with db.transaction(token=("app", 3)) as tx:
        assert not tx.is_applied
        tx["t"].upsert({"id": 101, "v": 3})
    assert first.seq < tx.seq == db.seq
    again = apply(db, 3, 999)
    assert (again.seq, again.rows) == (tx.seq, 1)
    assert db["t"].get(999) is None


@WAYS
def test_a_commit_of_before_is_no_receipt_of_a_batch_of_the_app_that_began_anew(way: str) -> None:
    """Its own lower batches are looked up among all commits that the store keeps."""
    files = SimFiles()
    db = with_two_rows(files)
    apply(db, 2, 100)
    apply(db, 3, 101)
    db.forget_token_app("app")
    own = apply(db, 3, 102)
    apply(db, 5, 103)
    if way == "flushed":
        db.checkpoint()
    for _ in range(2):
        assert apply(db, 3, 999).seq == own.seq
        with pytest.raises(st.RequestError, match="batch 2 of app 'app' was never applied"):
            apply(db, 2, 999)
        db = opened(files.killed())
    assert db["t"].get(999) is None


@WAYS
def test_a_claim_of_before_stays_fenced_when_the_app_was_forgotten_and_claimed_again(
    way: str,
) -> None:
    files = SimFiles()
    db = with_two_rows(files)
    for holder in "abc":
        db.claim("app", holder)
    assert db.claim("other") == 1
    db.forget_token_app("app")
    for _ in range(2):
        if way == "flushed":
            db.checkpoint()
        files = files.killed()
        db = opened(files)
        for old in (1, 2, 3):
            with pytest.raises(st.FencedError, match="or it was forgotten; stop this process"):
                apply(db, 9, 999, claim=old)
            with pytest.raises(st.FencedError):
                db.claim("app", "c", old)
    assert db.claimed("app") == (3, "")
    assert db.claim("app", "d") == 4
    for old in (1, 2, 3):
        with pytest.raises(st.FencedError):
            apply(db, 9, 999, claim=old)
    assert db["t"].get(999) is None
    apply(db, 1, 100, claim=4)
    assert db.claim("new") == 4
    assert db.claim("other") == 2
    db.forget_token_app("other")
    db.forget_token_app("app")
    assert db.claim("app") == 5


def test_an_app_is_not_forgotten_while_a_transaction_of_it_is_open() -> None:
    db = with_two_rows()
    apply(db, 1, 100)
    apply(db, 1, 101, "other")
    for end in ("commit", "rollback"):
        tx = db.transaction(token=("app", 2))
        before = db.seq
        with pytest.raises(st.BusyError, match="a transaction of app 'app' is open"):
            db.forget_token_app("app")
        assert db.seq == before
        getattr(tx, end)()
    db.transaction(token=("app", 3))  # nobody ends it: it is collected
    tx = db.transaction(token=("other", 2))
    db.forget_token_app("app")
    tx.commit()
    assert names(db) == ["other"]


@pytest.mark.parametrize("claims", [False, True])
@pytest.mark.parametrize("again", [False, True])
def test_a_transaction_that_began_while_its_app_was_being_forgotten_is_fenced(
    claims: bool, again: bool
) -> None:
    db = with_two_rows()
    if claims:
        db.claim("app")
    apply(db, 1, 100)
    late: list[st.Transaction] = []

    def begin() -> None:
        late.append(db.transaction(token=("app", 2)))
        late[0]["t"].upsert({"id": 101, "v": 2})

    in_one_group(db, [lambda: db.forget_token_app("app")], before=begin)
    assert db.token_apps() == []
    if again:
        apply(db, 1, 102)
    with pytest.raises(st.FencedError):
        late[0].commit()
    assert db["t"].get(101) is None


def test_the_first_transaction_of_an_app_commits_though_another_app_is_forgotten_meanwhile() -> (
    None
):
    db = with_two_rows()
    apply(db, 1, 100, "old")
    db.claim("old")
    tx = db.transaction(token=("app", 1))
    tx["t"].upsert({"id": 101, "v": 1})
    db.forget_token_app("old")
    tx.commit()
    assert names(db) == ["app"]


def test_apps_are_told_as_they_are_the_one_that_was_used_last_behind() -> None:
    files = SimFiles()
    db = with_two_rows(files)
    apply(db, 7, 100)
    db.claim("claimed", "run 1")
    receipt = apply(db, 8, 101)

    def told(store: st.Store) -> list[tuple[object, ...]]:
        apps = store.token_apps()
        return [(a.name, a.batch, a.seq, a.rows, a.claim, a.holder) for a in apps]

    found = [("claimed", -1, 0, 0, 1, "run 1"), ("app", 8, receipt.seq, 1, 0, "")]
    assert told(db) == found
    db.checkpoint()
    assert told(opened(files.killed())) == found


@pytest.mark.parametrize("name", ["none", "", 7, None, "x" * 1000], ids=lambda n: repr(n)[:8])
def test_an_app_that_the_store_has_not_is_refused_and_nothing_is_written(name: object) -> None:
    db = with_two_rows()
    apply(db, 1, 100)
    before = db.seq
    with pytest.raises(st.RequestError):
        db.forget_token_app(name)  # type: ignore[arg-type]
    assert (db.seq, names(db)) == (before, ["app"])


def test_of_two_that_forget_an_app_at_once_one_is_told_that_there_is_none() -> None:
    db = with_two_rows()
    apply(db, 1, 100)
    forget = lambda: db.forget_token_app("app")  # noqa: E731
    first, second = in_one_group(db, [forget, forget])
    assert first.seq == db.seq  # type: ignore[attr-defined]
    assert isinstance(second, st.RequestError)


def test_the_past_is_as_it_was_before_and_after_an_app_was_forgotten() -> None:
    db = with_two_rows()
    before = apply(db, 1, 100).seq
    gone = db.forget_token_app("app").seq
    apply(db, 1, 101)
    with db.snapshot(seq=before) as old, db.snapshot(seq=gone) as then:
        assert (old["t"].count(), then["t"].count(), db["t"].count()) == (3, 3, 4)
    entry = next(entry for entry in db.log() if entry.seq == gone)
    assert (entry.rows, entry.tables, entry.token) == (0, (), None)


def test_a_claim_number_that_was_only_asked_for_is_not_held_by_two() -> None:
    """A transaction claims, and its app is forgotten and claimed again before it commits."""
    db = with_two_rows()
    db.claim("app")
    late = db.transaction()
    assert late.claim("app") == 2
    db.forget_token_app("app")
    assert db.claim("app") == 2
    with pytest.raises(st.FencedError):
        late.commit()
    late = db.transaction()
    assert late.claim("app") == 3
    db.forget_token_app("app")
    late.commit()
    assert db.claimed("app") == (3, "")
