"""The past on the command line: what differs is shown, and put back after a look."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import siltstone as st
from siltstone.cli import sessions
from siltstone.cli.exits import Exit
from tests.cli.shell import Shell

ROWS = [{"id": n, "total": 1.0 * n} for n in range(1, 4)]


@pytest.fixture
def orders(shell: Shell, tmp_path: Path) -> Shell:
    """Return a shell on a store with a table that lost a row at seq 3, by mistake."""
    file = tmp_path / "orders.ndjson"
    file.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    assert shell("init") == 0
    assert shell("create", "orders", "-c", "id:int64", "-c", "total:float64", "--pk", "id") == 0
    assert shell("insert", "orders", file) == 0
    assert shell("delete", "orders", "1", "--yes") == 0
    return shell


def test_what_differs_is_counted_and_shown(orders: Shell) -> None:
    counts = [{"table": "orders", "added": 0, "removed": 1, "changed": 0}]
    assert orders.json("diff", "2") == counts
    assert orders.json("diff", "2", "3", "--table", "orders") == counts
    gone = {"_change": "removed", "id": 1, "_old": {"total": 1.0}, "_new": None}
    assert orders.json("diff", "2", "--rows") == [gone]
    assert orders("create", "other", "-c", "id:int64", "--pk", "id") == 0
    assert orders.json("diff", "2", "--rows") == [
        {
            "_table": "orders",
            "_change": "removed",
            "key": {"id": 1},
            "_old": {"total": 1.0},
            "_new": None,
        }
    ]
    assert orders("diff", "monday") == Exit.USAGE
    assert "no tag 'monday'" in orders.err


def test_an_undo_shows_what_it_would_do_and_asks(orders: Shell) -> None:
    assert orders.json("undo", "orders", "--to", "2", "--dry-run") == {"table": "orders", "rows": 1}
    assert "0 rows were added, 1 removed, 0 changed" in orders.err
    assert 'id=1  _old={"total":1.0}' in orders.err
    assert orders("undo", "orders", "--to", "2") == Exit.USAGE
    assert "Put back 1 rows of the table 'orders'?" in orders.err
    assert orders.json("log", "--limit", "1")[0]["seq"] == 3  # type: ignore[index]
    done = orders.json("undo", "orders", "--to", "2", "--yes")
    assert done == {"table": "orders", "seq": 4, "rows": 1}
    assert orders.json("diff", "2") == [{"table": "orders", "added": 0, "removed": 0, "changed": 0}]


def test_an_undo_of_what_others_wrote_is_refused_in_the_words_of_the_options(
    orders: Shell, tmp_path: Path
) -> None:
    with st.connect(orders.db) as db:
        db["orders"].update(2, total=-2.0)
    assert orders("undo", "orders", "--to", "2", "--yes") == Exit.CONFLICT
    assert "say --until 3 to undo the first one alone, --until the last one" in orders.err
    assert orders.json("undo", "orders", "--to", "2", "--until", "3", "--yes") == {
        "table": "orders", "seq": 5, "rows": 1
    }  # fmt: skip
    assert orders("undo", "orders", "--to", "2", "--yes", "--force", "--quiet") == 0
    assert not orders.out
    assert orders.json("diff", "2")[0]["removed"] == 0  # type: ignore[index]


@pytest.mark.parametrize("force", [[], ["--force"]])
def test_an_undo_takes_nothing_that_comes_while_its_user_reads(
    orders: Shell, monkeypatch: pytest.MonkeyPatch, force: list[str]
) -> None:
    with st.connect(orders.db) as db:
        db.serve_local()

        def answer(_: str, *, yes: bool) -> None:
            assert not yes
            db["orders"].insert({"id": 1, "total": 7.0})  # the row that would be put back

        monkeypatch.setattr(sessions, "confirm", answer)
        assert orders("undo", "orders", "--to", "2", *force) == Exit.CONFLICT
        assert db["orders"].get(1) == {"id": 1, "total": 7.0}


def test_a_plain_table_and_a_dropped_one_are_put_back(orders: Shell) -> None:
    with st.connect(orders.db) as db:
        db.create_table("plain", data=[{"v": 1}])
        seq = db.seq
        db["plain"].append([{"v": 2}])
        db.drop_table("orders")
    assert orders.json("undo", "plain", "--to", seq, "--yes")["rows"] == 1  # type: ignore[index]
    assert orders.json("undo", "orders", "--to", seq, "--yes")["rows"] == 2  # type: ignore[index]
    assert orders("undo", "none", "--to", seq, "--yes") == Exit.NOT_FOUND
    assert orders("diff", seq, "--table", "plain") == 0
