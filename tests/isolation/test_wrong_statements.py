"""A statement with arguments of a wrong type is refused with one error, and leaves nothing."""

# pyright: reportArgumentType=false

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from siltstone.api.transaction import Transaction
from siltstone.errors import RequestError, SnapshotExpiredError
from tests.isolation.stores import opened, with_two_rows
from tests.support.simulated_files import SimFiles

WRONG = (None, 5, -1, 1.5, True, b"x", "", [], {}, (1, 2), 1 << 70, "x" * 300, "a\0b", "\ud800")
STATEMENTS: dict[str, Callable[[Transaction, Any], object]] = {
    "table": lambda tx, wrong: tx[wrong],
    "drop": lambda tx, wrong: tx.drop_table(wrong),
    "rename": lambda tx, wrong: tx.rename_table(wrong, "new"),
    "rename to": lambda tx, wrong: tx.rename_table("t", wrong),
    "create": lambda tx, wrong: tx.create_table(wrong, {"id": "int64"}),
    "column of": lambda tx, wrong: tx.create_table("new", {"id": wrong}),
    "add column": lambda tx, wrong: tx["t"].add_column(wrong, "int64"),
    "add column of": lambda tx, wrong: tx["t"].add_column("new", wrong),
    "rename column": lambda tx, wrong: tx["t"].rename_column(wrong, "new"),
    "rename column to": lambda tx, wrong: tx["t"].rename_column("v", wrong),
    "drop column": lambda tx, wrong: tx["t"].drop_column(wrong),
    "attach": lambda tx, wrong: tx.attach(wrong, []),
    "table by id": lambda tx, wrong: tx.table(wrong).upsert({"id": 1, "v": 2}),
    "changed since of": lambda tx, wrong: tx.changed_since(wrong, 0),
    "changed since": lambda tx, wrong: tx.changed_since(tx["t"].id, wrong),
    "changed since but by": lambda tx, wrong: tx.changed_since(tx["t"].id, 0, wrong or 5),
    "changed since but from": lambda tx, wrong: tx.changed_since(tx["t"].id, 0, [(wrong, 0)]),
    "tag": lambda tx, wrong: tx.tag("new", wrong if wrong is not None else "none"),
}


@pytest.mark.parametrize("name", STATEMENTS)
def test_a_wrong_argument_is_refused_and_the_transaction_goes_on(name: str) -> None:
    files = SimFiles()
    with with_two_rows(files) as db:
        before = db["t"].schema
        for wrong in WRONG:
            with db.transaction() as tx:
                with pytest.raises((RequestError, SnapshotExpiredError)):
                    STATEMENTS[name](tx, wrong)
                tx["t"].upsert({"id": 1, "v": 7})
        found = db.tables(), db.tags(), db.seq
        assert db["t"].schema == before
    with opened(files) as db:
        assert (db.tables(), db.tags(), db.seq) == found
        assert db["t"].get(1)["v"] == 7


def test_a_wrong_limit_of_the_log_is_refused() -> None:
    with with_two_rows(SimFiles()) as db:
        for wrong in (None, -1, 1.5, True, "x", []):
            with pytest.raises(RequestError, match="limit"):
                db.log(wrong)
