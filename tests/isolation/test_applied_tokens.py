"""Statements under an applied token succeed again and change nothing, whatever came since."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest

import siltstone as st
from siltstone.api.transaction import Transaction
from tests.isolation.stores import opened, with_two_rows
from tests.support.simulated_files import SimFiles

KEYED = {"id": "int64", "v": "int64"}
Work = Callable[[Transaction], object]


def move(tx: Transaction) -> None:
    rows = tx["t"].to_arrow()
    tx.create_table("moved", {**KEYED, "more": "string"}, "id").insert(rows)
    tx.drop_table("t")
    tx.rename_table("moved", "t")
    assert tx["t"].count() == rows.num_rows


def fill(tx: Transaction) -> None:
    tx.create_table("new", KEYED, "id").insert({"id": 1, "v": 1})
    assert tx["new"].to_arrow().to_pylist() == [{"id": 1, "v": 1}]


def swap(tx: Transaction) -> None:
    tx.rename_table("t", "spare")
    tx.rename_table("p", "t")
    tx.rename_table("spare", "p")


DEFINITIONS: dict[str, Work] = {
    "create": fill,
    "create plain": lambda tx: tx.create_table("new", KEYED).append({"id": 1, "v": 1}),
    "declare": lambda tx: tx.lance.tx.declare_table("new"),
    "drop": lambda tx: tx.drop_table("t"),
    "drop plain": lambda tx: tx.drop_table("p"),
    "rename": lambda tx: tx.rename_table("t", "new"),
    "move": move,
    "add column": lambda tx: tx["t"].add_column("new", "int64"),
    "add column plain": lambda tx: tx["p"].add_column("new", "int64"),
    "drop column": lambda tx: tx["t"].drop_column("v"),
    "drop column plain": lambda tx: tx["p"].drop_column("v"),
    "rename column": lambda tx: tx["t"].rename_column("v", "new"),
    "rename column plain": lambda tx: tx["p"].rename_column("v", "new"),
    "truncate": lambda tx: tx["t"].truncate(),
    "tag": lambda tx: tx.tag("new", 1),
    "untag": lambda tx: tx.tag("audit", None),
}
ROWS: dict[str, Work] = {
    "upsert": lambda tx: tx["t"].upsert({"id": 1, "v": 11}),
    "insert": lambda tx: tx["t"].insert(pa.table({"id": [3, 4], "v": [3, 4]})),
    "update": lambda tx: tx["t"].update(1, v=11),
    "delete": lambda tx: tx["t"].delete([1]),
    "delete where": lambda tx: tx["t"].delete_where("id = 1"),
    "append": lambda tx: tx["p"].append({"id": 3, "v": 3}),
    "overwrite": lambda tx: tx["p"].overwrite({"id": 3, "v": 3}),
    "delete where plain": lambda tx: tx["p"].delete_where("id = 1"),
}
STATEMENTS = {**DEFINITIONS, **ROWS, "swap": swap}


def store() -> st.Store:
    db = with_two_rows()
    db.create_table("p", KEYED).append({"id": 1, "v": 10})
    db.tag("audit")
    return db


def applied(db: st.Store, work: Work, batch: int = 1) -> tuple[int, int]:
    with db.transaction(token=("app", batch)) as tx:
        work(tx)
    assert tx.receipt is not None
    return tx.receipt.seq, tx.receipt.rows


def content(db: st.Store) -> object:
    tables = {name: db[name].to_arrow() for name in db.tables()}
    return {n: (t.schema, sorted(map(str, t.to_pylist()))) for n, t in tables.items()}, db.tags()


@pytest.mark.parametrize("name", STATEMENTS)
def test_a_statement_under_an_applied_token_succeeds_again_and_changes_nothing(name: str) -> None:
    db = store()
    first = applied(db, STATEMENTS[name])
    before = content(db)
    for _ in range(2):
        assert applied(db, STATEMENTS[name]) == first
        assert (db.seq, content(db)) == (first[0], before)


def drop_all(db: st.Store) -> None:
    for name in db.tables():
        db.drop_table(name)


def rename_all(db: st.Store) -> None:
    for name in db.tables():
        db.rename_table(name, f"{name}-2")


def make_anew(db: st.Store) -> None:
    drop_all(db)
    db.create_table("t", KEYED, "id")
    db.create_table("p", KEYED)
    db.create_table("new", {"other": "string"})


LATER = {"dropped": drop_all, "renamed": rename_all, "made anew": make_anew}


@pytest.mark.parametrize("later", LATER)
@pytest.mark.parametrize("name", STATEMENTS)
def test_it_succeeds_whatever_became_of_its_tables_since(name: str, later: str) -> None:
    db = store()
    first = applied(db, STATEMENTS[name])
    LATER[later](db)
    before, seq = content(db), db.seq
    assert applied(db, STATEMENTS[name]) == first
    assert (db.seq, content(db)) == (seq, before)


def test_a_definition_under_an_older_token_gets_its_own_receipt_after_a_kill() -> None:
    files = SimFiles()
    db = with_two_rows(files)
    first = applied(db, fill)
    applied(db, lambda tx: tx.drop_table("new"), 2)
    db.checkpoint()
    db = opened(files.killed())
    assert applied(db, fill) == first
    assert db.tables() == ["t"]


def test_of_two_that_create_a_table_under_one_token_at_once_both_get_the_receipt() -> None:
    db = with_two_rows()
    one, other = (db.transaction(token=("app", 1)) for _ in range(2))
    fill(one)
    fill(other)
    assert one.commit().seq == other.commit().seq == db.seq
    assert db["new"].count() == 1


def test_what_was_never_applied_is_refused_whatever_its_statements_find() -> None:
    db = with_two_rows()
    applied(db, fill, 5)
    before = db.seq
    with pytest.raises(st.RequestError, match="strictly increase"):
        applied(db, fill, 4)
    assert db.seq == before


@pytest.mark.parametrize(
    "work",
    [
        lambda tx: tx.create_table("_new", KEYED),
        lambda tx: tx.create_table("new", {"id": "nothing"}),
        lambda tx: tx.create_table("new", KEYED, "other"),
        lambda tx: tx.lance.tx.declare_table(7),
        lambda tx: tx.rename_table("t", "a/b"),
        lambda tx: tx["t"].add_column("another", "nothing"),
        lambda tx: tx["t"].upsert({"id": "one"}),
        lambda tx: tx["none"],
    ],
)
def test_bad_arguments_are_refused_under_an_applied_token_too(work: Work) -> None:
    db = with_two_rows()
    applied(db, fill)
    with pytest.raises(st.RequestError):
        applied(db, work)
    assert applied(db, fill)[0] == db.seq


def test_without_a_token_a_definition_that_is_there_is_refused_as_ever() -> None:
    db = with_two_rows()
    applied(db, fill)
    for token in (None, ("app", 2), ("other", 1)):
        with pytest.raises(st.TableExistsError), db.transaction(token=token) as tx:
            tx.create_table("new", KEYED)
        with pytest.raises(st.TableNotFoundError), db.transaction(token=token) as tx:
            tx.drop_table("gone")


def test_a_claim_under_an_applied_token_is_told_again_to_its_holder_alone() -> None:
    db = with_two_rows()
    claims: list[int] = []

    def claim(tx: Transaction) -> None:
        claims.append(tx.claim("other", "a"))

    first = applied(db, claim)
    assert applied(db, claim) == first
    assert claims == [1, 1]
    db.claim("other", "b")
    with pytest.raises(st.FencedError, match="our claim a of app 'other' ended: b claimed it"):
        applied(db, claim)


def test_a_claim_of_nobody_under_an_applied_token_is_not_told_again() -> None:
    """It may be that of whoever claimed the app since."""
    db = with_two_rows()
    applied(db, lambda tx: tx.claim("other"))
    with pytest.raises(st.FencedError):
        applied(db, lambda tx: tx.claim("other"))
    assert db.claim("other") == 2
