"""The end of a `with` block commits, rolls back or closes, and hides no error of the block."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Self

import pytest

from siltstone.process.context_exits import close_on_exit, commit_on_exit


class Closing:
    """Counts how often it was closed."""

    closed = 0

    def __enter__(self) -> Self:
        return self

    def close(self) -> None:
        self.closed += 1

    __exit__ = close_on_exit


class Committing:
    """Knows how it ended."""

    ended = ""

    def __enter__(self) -> Self:
        return self

    @property
    def is_open(self) -> bool:
        return not self.ended

    def commit(self) -> int:
        self.ended = "committed"
        return 42

    def rollback(self) -> None:
        self.ended = "rolled back"

    __exit__ = commit_on_exit


def test_a_block_that_returns_closes_and_commits() -> None:
    with Closing() as held, Committing() as tx:
        pass
    assert (held.closed, tx.ended) == (1, "committed")


def test_a_block_that_raises_closes_and_rolls_back_and_its_error_goes_on() -> None:
    held, tx = Closing(), Committing()
    with pytest.raises(KeyError, match="mine"), held, tx:
        raise KeyError("mine")
    assert (held.closed, tx.ended) == (1, "rolled back")


@pytest.mark.parametrize("end", [Committing.commit, Committing.rollback])
def test_what_ended_within_the_block_stays_as_it_ended(end: object) -> None:
    with Committing() as tx:
        assert callable(end)
        end(tx)
        ended = tx.ended
    assert tx.ended == ended
    with pytest.raises(KeyError), tx:
        raise KeyError
    assert tx.ended == ended


def test_only_what_ends_in_a_way_of_its_own_has_an_exit_of_its_own() -> None:
    src = Path(__file__).parents[1] / "src" / "siltstone"
    found = {
        kind.name
        for path in src.rglob("*.py")
        for kind in ast.walk(ast.parse(path.read_text()))
        if isinstance(kind, ast.ClassDef)
        for method in kind.body
        if isinstance(method, ast.FunctionDef) and method.name == "__exit__"
    }
    assert found == {
        "ClosedTables",  # begins the run again, and ends nothing
        "DeferredSignals",  # puts the handlers of signals back, and calls those that were due
        "Lease",  # has no `close`: it is released
        "StoreConnection",  # commits, and stays open, as one of sqlite3
        "ShellSession",  # has no upkeep if something went wrong
        "StoreSession",  # says errors as PEP 249 does
        "RequestTransaction",  # an answer that says no takes it back
        "OpenJob",  # is kept for others if it finished a task
        "SparkTransaction",  # merges on Spark after the commit
        "Store",  # has no upkeep if the block raised
    }, "use `close_on_exit` or `commit_on_exit`"
