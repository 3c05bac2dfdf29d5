"""Work that another writer defeats is tried again, as often as its policy says and no more."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from siltstone.errors import BusyError, ConflictError, FencedError, RequestError
from siltstone.process.retry import Retry

SRC = Path(__file__).parents[1] / "src" / "siltstone"


class Contended:
    """Work that loses to another writer so many times, and then returns 42."""

    def __init__(self, losses: int, error: Exception | None = None) -> None:
        self.losses, self.tries = losses, 0
        self.error = error or ConflictError("t", "k", 1, 2)

    def __call__(self) -> int:
        self.tries += 1
        if self.tries <= self.losses:
            raise self.error
        return 42


def test_work_that_lost_is_tried_again_until_it_wins() -> None:
    work = Contended(losses=3)
    assert Retry(10).run(work) == 42
    assert work.tries == 4


def test_the_last_try_that_lost_raises_its_error() -> None:
    work = Contended(losses=10)
    with pytest.raises(ConflictError) as caught:
        Retry(3).run(work)
    assert (work.tries, caught.value) == (3, work.error)


def test_an_error_that_the_policy_does_not_name_ends_it_at_once() -> None:
    work = Contended(losses=1, error=BusyError("full"))
    with pytest.raises(BusyError):
        Retry(10).run(work)
    assert work.tries == 1


def test_a_policy_names_its_errors() -> None:
    work = Contended(losses=1, error=FencedError("driver 1", "driver 2"))
    assert Retry(2, (FencedError,)).run(work) == 42


def test_work_that_cannot_be_repeated_raises_the_error_of_its_first_try() -> None:
    work = Contended(losses=1)
    with pytest.raises(ConflictError):
        Retry(10).run(work, may_repeat=lambda: False)
    assert work.tries == 1


@pytest.mark.parametrize("attempts", [0, -1])
def test_a_policy_without_a_try_is_refused(attempts: int) -> None:
    work = Contended(losses=0)
    with pytest.raises(RequestError, match=f"an integer from 1; got {attempts}"):
        Retry(attempts).run(work)
    assert work.tries == 0


def caught_in_loops(tree: ast.AST) -> Iterator[str]:
    """Yield the names of the errors that a loop catches to go on."""
    for loop in ast.walk(tree):
        if isinstance(loop, ast.For | ast.While):
            for found in ast.walk(loop):
                if isinstance(found, ast.ExceptHandler) and found.type is not None:
                    kinds = ast.walk(found.type)
                    yield from (kind.id for kind in kinds if isinstance(kind, ast.Name))


def test_no_other_loop_tries_again_what_lost_to_another_writer() -> None:
    found = {
        str(path.relative_to(SRC))
        for path in SRC.rglob("*.py")
        if "ConflictError" in caught_in_loops(ast.parse(path.read_text()))
    }
    awaited = "aio/runs.py"  # its work is a coroutine
    assert found == {"engine/write/submission.py", awaited}, "use `Retry`"
