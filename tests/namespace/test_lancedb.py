"""LanceDB in the process of the store sees rows that are not merged, and writes plain tables."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from lancedb.namespace import LanceNamespaceDBConnection

from siltstone.api.store import Store
from siltstone.lance_versions.fresh import FreshVersions
from siltstone.namespace import SiltstoneNamespace
from tests.namespace.clients import rows

pytestmark = pytest.mark.filterwarnings("ignore")  # of the client's own making


@pytest.fixture
def connected(db: Store) -> Any:
    """A keyed table with one row merged and one not, for a client that asks for both."""
    db._parts.fresh = FreshVersions(db._core, interval_s=0)
    table = db.create_table("k", {"id": "int64", "v": "string"}, "id")
    table.upsert(rows(0, 1))
    db.checkpoint()
    db.merge()
    table.upsert(rows(1, 2))
    space = SiltstoneNamespace(db, keyed="fresh")
    return LanceNamespaceDBConnection(space, read_consistency_interval=timedelta(0))


def test_it_sees_rows_that_were_committed_a_moment_ago(db: Store, connected: Any) -> None:
    table = connected.open_table("k")
    assert sorted(table.to_arrow()["id"].to_pylist()) == [0, 1]
    db["k"].upsert({"id": 7, "v": "new"})
    assert table.search().where("v = 'new'").limit(9).to_arrow()["id"].to_pylist() == [7]
    assert table.count_rows() == 3


def test_it_writes_plain_tables_and_no_keyed_one(db: Store, connected: Any) -> None:
    plain = connected.create_table("p", rows(0, 3))
    plain.add(rows(3, 4))
    plain.delete("id = 0")
    assert sorted(db["p"].to_arrow()["id"].to_pylist()) == [1, 2, 3]
    seq = db.seq
    with pytest.raises(RuntimeError, match="unknown"):
        connected.open_table("k").add(rows(9, 10))
    assert (db.seq, db["k"].count()) == (seq, 2)
    connected.drop_table("p")
    assert db.tables() == ["k"]
