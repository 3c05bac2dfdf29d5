"""Arrow filters that Lance cannot take are evaluated by us: no sound store is called damaged."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import pyarrow.compute as pc
import pytest

import siltstone as st


@pytest.fixture
def table(tmp_path: Path):
    with st.connect(tmp_path / "db", background=False, segment_bytes=65_536) as db:
        made = db.create_table(
            "t", {"id": "int64", "p": "decimal(12,2)", "u": "uint64"}, primary_key="id"
        )
        made.upsert([{"id": n, "p": Decimal(n), "u": n} for n in range(5)])
        db.checkpoint()
        db.merge()
        yield made


def test_a_filter_that_cannot_be_written_down_for_lance_keeps_the_right_rows(table) -> None:
    assert table.count(pc.field("u") > 2) == 2
    assert table.count((pc.field("u") > 2) & (pc.field("id") < 4)) == 1


def test_a_filter_that_arrow_cannot_evaluate_is_a_request_error_in_every_level(table) -> None:
    with pytest.raises(st.RequestError, match="cannot be evaluated"):
        table.count(pc.field("p") > 0)
    table.upsert({"id": 9, "p": Decimal(9), "u": 9})
    with pytest.raises(st.RequestError, match="cannot be evaluated"):
        table.count(pc.field("p") > 0)
