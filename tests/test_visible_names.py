"""What `dir` shows of a handle is public; what calls return shows itself in a notebook."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest

import siltstone as st
from siltstone.api.tables import TransactionTable
from tests.server.stores import joined_to

INTERNAL = {"core", "numbered", "open", "tag_turns", "share_locally", "take_turns", "pool"}
OF_TRANSACTION = {
    *("attach", "changed_since", "claim", "commit", "create_table", "drop_table", "is_applied"),
    "put_back",
    *("is_open", "phase", "read_seq", "receipt", "rename_table", "rollback", "seq", "sql"),
    *("sql_reader", "table", "tables", "tag"),
}


@pytest.fixture(params=["owner", "joined"])
def db(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[st.Store]:
    with ExitStack() as held:
        owner = held.enter_context(st.connect(tmp_path / "s", background=False))
        owner.create_table("t", {"id": "int64", "v": "string"}, primary_key="id")
        owner.create_table("u", {"id": "int64"})
        owner["t"].upsert([{"id": 1, "v": "<a>"}, {"id": 2, "v": None}])
        yield owner if request.param == "owner" else held.enter_context(joined_to(owner))


def _public(handle: object) -> set[str]:
    return {name for name in dir(handle) if not name.startswith("_")}


def _html(value: Any) -> str:
    return value._repr_html_()


def test_dir_of_a_store_shows_no_internal_name(db: st.Store) -> None:
    found = _public(db)
    assert not found & INTERNAL
    assert found >= {"path", "transaction", "sql", "status", "tables", "checkpoint", "log"}


def test_dir_of_a_transaction_shows_its_public_names(db: st.Store) -> None:
    with db.transaction() as tx:
        assert _public(tx) == OF_TRANSACTION
        assert _public(tx["t"]) == _public(TransactionTable)


def test_what_dir_shows_is_there(db: st.Store) -> None:
    with db.snapshot() as snapshot:
        for handle in (db, db["t"], snapshot, snapshot["t"]):
            assert all(hasattr(handle, name) for name in _public(handle)), handle


def test_a_transaction_of_the_owner_prints_how_many_tables_it_has() -> None:
    with st.connect(":memory:") as db, db.transaction() as tx:
        tx.create_table("t", {"id": "int64"})
        tx.create_table("u", {"id": "int64"})
        assert repr(tx).endswith(", 2 tables>")
        tx.create_table("more", {"id": "int64"})
        assert repr(tx).endswith(", 3 tables>")
    assert repr(tx).startswith("<Transaction committed, ")


def test_a_checkpoint_says_which_record_it_made_and_how_far_it_is(db: st.Store) -> None:
    made = db.checkpoint()
    assert isinstance(made, st.Checkpointed)
    assert made == st.Checkpointed(db.status().record, db.status().flushed_seq)
    assert repr(made) == f"Checkpointed(number={made.number}, flushed_seq={db.seq})"


def test_log_jobs_and_status_are_tables_in_a_notebook(db: st.Store) -> None:
    db.checkpoint()
    db.merge()
    log, jobs, status = db.log(), db.jobs(), db.status()
    assert "<th>transaction</th>" in _html(log)
    assert "create t" in _html(log)
    assert "(3 rows)" in _html(log)
    assert "<th>kind</th>" in _html(jobs)
    assert "<td>merge</td>" in _html(jobs)
    assert f"<td>{db.seq}</td>" in _html(status)
    assert "<th>base_rows</th>" in _html(status)


def test_lists_in_a_notebook_are_lists(db: st.Store) -> None:
    assert db.log() == list(db.log())
    assert isinstance(db.jobs(), list)
    assert _html(db.log(0)) == "<div><p>(0 rows)</p></div>"


def test_names_in_a_notebook_are_no_html(tmp_path: Path) -> None:
    with st.connect(tmp_path / "s") as db:
        db.tag("<b>")
        assert "&lt;b&gt;" in _html(db.log())
        assert "<b>" not in _html(db.status())


def test_a_result_is_read_by_the_names_of_tables(db: st.Store) -> None:
    found = db.sql("select id, v from t order by id")
    rows = [{"id": 1, "v": "<a>"}, {"id": 2, "v": None}]
    assert found.to_arrow() == found.arrow() == pa.table(found)
    assert found.to_pylist() == rows
    assert found.to_pandas().equals(found.df())
    assert found.to_polars().to_dicts() == pl.DataFrame(found).to_dicts() == rows
