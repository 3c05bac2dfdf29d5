"""Two clients that ask for a table without a version both find the first one."""

from __future__ import annotations

from pathlib import Path

import siltstone as st
from siltstone.namespace import SiltstoneNamespace


def test_a_transaction_that_begins_a_version_that_is_there_meanwhile_has_nothing_to_commit(
    tmp_path: Path,
) -> None:
    with st.connect(tmp_path / "db") as db:
        db.create_table("p", {"n": "int64"})
        space = SiltstoneNamespace(db)
        with space.transaction() as tx:
            inside = tx.describe_table({"id": ["p"], "load_detailed_metadata": True})
            outside = space.describe_table({"id": ["p"], "load_detailed_metadata": True})
        again = space.describe_table({"id": ["p"], "load_detailed_metadata": True})
        assert inside.version == outside.version == again.version == 1
