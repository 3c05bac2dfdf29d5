"""A method of a public class that is called by way of the class does what the handle does."""

from __future__ import annotations

from pathlib import Path

import siltstone as st


def test_methods_called_by_their_public_class_reach_the_store(tmp_path: Path) -> None:
    with st.connect(tmp_path / "s") as db:
        table = db.create_table("t", {"id": "int64"}, primary_key="id")
        assert st.Table.upsert(table, [{"id": 1}, {"id": 2}]).rows == 2
        assert list(map(st.Table.count, [table])) == [2]
        assert st.Store.checkpoint(db).flushed_seq == db.status().visible_seq
        with st.Store.snapshot(db) as past:
            assert st.SnapshotTable.get(past["t"], 1) == {"id": 1}
        with st.Store.transaction(db) as tx:
            assert st.Transaction.tables(tx) == ["t"]
