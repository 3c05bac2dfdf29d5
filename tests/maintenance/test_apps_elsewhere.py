# pyright: basic
"""What became of token apps is the same in a reader, in a restored store and behind every door."""

from __future__ import annotations

from pathlib import Path

import pytest

import siltstone as st
from siltstone.api import results
from siltstone.server.rest.tokens import Role, new_token, tokens_of
from tests.server.stores import DOORS, behind, opened


def apply(db: st.Store, app: str, batch: int) -> st.Receipt:
    with db.transaction(token=(app, batch)) as tx:
        tx["t"].upsert({"id": batch})
    assert tx.receipt is not None
    return tx.receipt


def told(db: st.Store) -> tuple[object, ...]:
    return db.claimed("an app that nobody has"), db.token_apps()


@pytest.fixture
def db(tmp_path: Path):
    """One app was forgotten and began anew in a record, another one in the log."""
    with opened(tmp_path / "s") as store:
        store.create_table("t", {"id": "int64"}, primary_key="id")
        store.claim("a", "run 1", 7)
        apply(store, "a", 5)
        apply(store, "b", 5)
        store.forget_token_app("a")
        apply(store, "a", 1)
        store.checkpoint()
        store.merge()
        store.forget_token_app("b")
        apply(store, "b", 2)
        yield store


def test_a_reader_sees_an_app_go_and_cannot_forget_one(db, tmp_path: Path) -> None:
    with st.connect(tmp_path / "s", read_only=True) as reader:
        assert told(reader) == told(db)
        assert [app.name for app in reader.token_apps()] == ["a", "b"]
        with pytest.raises(st.ReadOnlyError):
            reader.forget_token_app("b")
        db.forget_token_app("b")
        assert [app.name for app in reader.token_apps()] == ["a"]
        assert told(reader) == told(db)
        db.checkpoint()
        assert told(reader) == told(db)


def test_a_restored_store_fences_and_applies_as_the_one_that_it_is_of(db, tmp_path: Path) -> None:
    db.backup(tmp_path / "backup")
    st.restore(tmp_path / "backup", tmp_path / "restored")
    with opened(tmp_path / "restored") as restored:
        assert told(restored) == told(db)
        again = apply(restored, "b", 2)
        assert again.seq == db.seq
        with pytest.raises(st.RequestError, match="batch 1 of app 'b' was never applied"):
            apply(restored, "b", 1)
        with pytest.raises(st.FencedError), restored.transaction(token=("a", 9), claim=7):
            pass
        assert restored.claim("a") == 8
        assert restored.verify(deep=True).is_sound


def test_the_past_stays_readable_through_a_vacuum_of_what_was_forgotten(db) -> None:
    db.tag("then", 4)
    db.checkpoint()
    db.merge()
    db.vacuum(dry_run=False, grace_s=0)
    with db.snapshot(tag="then") as then:
        assert then["t"].count() == 1
    assert [app.name for app in db.token_apps()] == ["a", "b"]


@pytest.mark.parametrize("door", DOORS)
def test_every_door_tells_and_forgets_apps_alike(door: str, tmp_path: Path) -> None:
    with behind(door, tmp_path / "s") as db:
        db.create_table("t", {"id": "int64"}, primary_key="id")
        apply(db, "a", 5)
        db.claim("b", "run 1")
        a, b = db.token_apps()
        assert type(a) is results.TokenApp
        assert (a.name, a.batch, b.claim, b.holder) == ("a", 5, 1, "run 1")
        tx = db.transaction(token=("a", 6))
        tx["t"].upsert({"id": 6})
        if door == "socket":  # it runs here, and its owner hears of it when it is committed
            receipt = db.forget_token_app("a")
            with pytest.raises(st.FencedError):
                tx.commit()
            assert db["t"].get(6) is None
        else:
            with pytest.raises(st.BusyError, match="a transaction of app 'a' is open"):
                db.forget_token_app("a")
            tx.rollback()
            receipt = db.forget_token_app("a")
        assert receipt.seq == db.seq
        assert db.outcome(receipt.transaction_id) == "committed"
        assert db.token_apps() == [b]
        with pytest.raises(st.RequestError, match="no token app 'a'"):
            db.forget_token_app("a")
        assert apply(db, "a", 1).seq == db.seq


def test_only_an_admin_forgets_an_app_over_the_network(db) -> None:
    secrets = {role: new_token() for role in (Role.READ, Role.WRITE, Role.ADMIN)}
    lines = ";".join(f"{role.name} {role.name} {secret}" for role, secret in secrets.items())
    service = db.serve(port=0, tokens=tokens_of(lines, "test"))
    for role in (Role.READ, Role.WRITE):
        with st.connect(service.url, token=secrets[role]) as client:
            assert client.token_apps() == db.token_apps()
            with pytest.raises(st.AccessError, match="needs admin"):
                client.forget_token_app("a")
    with st.connect(service.url, token=secrets[Role.ADMIN]) as client:
        client.forget_token_app("a")
    assert [app.name for app in db.token_apps()] == ["b"]
