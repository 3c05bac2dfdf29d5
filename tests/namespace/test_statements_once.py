"""A statement is about the table that its client saw, is whole, and spends no other's token."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from lance_namespace import errors

import siltstone as st
from siltstone.engine.write.transaction import EngineTransaction
from siltstone.namespace import SiltstoneNamespace
from tests.server.rest import Rest, rest_of

ROWS = pa.table({"id": [1, 2]})


def swapped(monkeypatch: pytest.MonkeyPatch, verb: str, db: st.Store) -> None:
    """Let another table take the name of `t` while the first try of a statement is on its way."""
    done: Any = getattr(EngineTransaction, verb)
    tries: list[object] = []

    def first(tx: EngineTransaction, *given: Any) -> Any:
        found = done(tx, *given)
        tries.append(tx)
        if len(tries) == 1:
            db.rename_table("t", "archive")
            db.create_table("t", {"other": "int64"}).append([{"other": 7}])
        return found

    monkeypatch.setattr(EngineTransaction, verb, first)


def test_a_table_that_took_the_name_meanwhile_is_not_dropped(
    db: st.Store, ns: SiltstoneNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    db.create_table("t", {"id": "int64"}).append(ROWS)
    with monkeypatch.context() as patched:
        swapped(patched, "drop_table", db)
        with pytest.raises(errors.TableNotFoundError, match="renamed by another commit"):
            ns.drop_table({"id": ["t"]})
    assert db.tables() == ["archive", "t"]
    assert db["t"].to_arrow().to_pylist() == [{"other": 7}]


def test_a_table_that_took_the_name_meanwhile_is_not_renamed(
    db: st.Store, ns: SiltstoneNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    db.create_table("t", {"id": "int64"}).append(ROWS)
    with monkeypatch.context() as patched:
        swapped(patched, "rename_table", db)
        ns.rename_table({"id": ["t"], "new_table_name": "u"})  # the one that was `t` then
    assert db.tables() == ["t", "u"]
    assert db["t"].to_arrow().to_pylist() == [{"other": 7}]
    assert db["u"].count() == 2


def test_a_batch_that_is_refused_leaves_nothing_in_its_transaction(
    db: st.Store, ns: SiltstoneNamespace
) -> None:
    twice = [{"declare_table": {"id": ["n"]}}, {"declare_table": {"id": ["n"]}}]
    with ns.transaction() as tx:
        tx.declare_table({"id": ["kept"]})
        with pytest.raises(errors.TableAlreadyExistsError):
            tx.batch_commit_tables({"operations": twice})
    assert db.tables() == ["kept"]


@pytest.mark.parametrize("first", ["version/create", "describe"])
def test_a_statement_that_changes_nothing_spends_no_token(tmp_path: Any, first: str) -> None:
    with rest_of(tmp_path / "shop") as (db, _, rest):
        db.create_table("p", ROWS.schema).append(ROWS)
        db.create_table("w", ROWS.schema)
        _first(rest, first)
        inserted = rest.post("/v1/table/p/insert", ROWS, x_siltstone_token="app/1")
        assert inserted.status == 200
        assert db["p"].count() == 4


def _first(rest: Rest, path: str) -> None:
    token = {"x_siltstone_token": "app/1"}
    if path == "describe":
        assert rest.post("/v1/table/w/describe", {}, **token).status == 200
    else:
        wrong = {"version": 2, "manifest_path": "nonsense"}
        assert rest.post(f"/v1/table/p/{path}", wrong, **token).status == 400


def test_the_remote_client_gets_names_in_the_order_of_their_letters(tmp_path: Any) -> None:
    with rest_of(tmp_path / "shop") as (db, _, rest):
        for name in ("a-b", "a.b.t1", "a.t2", "t", "u"):
            db.create_table(name, {"id": "int64"})
        asked = {"x_lancedb_database": "dev"}
        assert rest.get("/v1/table", **asked).json["tables"] == ["a-b", "a.b.t1", "a.t2", "t", "u"]
        after = rest.get("/v1/table?page_token=a-b", **asked).json
        assert after["tables"] == ["a.b.t1", "a.t2", "t", "u"]


def test_a_parameter_that_is_empty_is_known_or_refused(tmp_path: Any) -> None:
    with rest_of(tmp_path / "shop") as (db, _, rest):
        assert rest.post("/v1/table/c/create?foo=", ROWS).code == (400, 13)
        assert rest.get("/v1/namespace/$/list?x=").code == (400, 13)
        assert rest.post("/v1/table/c/create?identity=", ROWS).code == (400, 13)
        assert db.tables() == []
        assert rest.post("/v1/table/c/create?mode=", ROWS).status == 200
