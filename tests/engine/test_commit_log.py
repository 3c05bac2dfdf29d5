"""The commits of a generation are read by any thread while the leader adds the next ones."""

from __future__ import annotations

import pytest

from siltstone.engine.catalog.commit_log import CommitLog
from siltstone.formats.log.group import Token
from tests.engine.seams import Threads

COMMITS, OLD = 10_000, 500


@pytest.mark.usefixtures("hasty")
def test_an_old_token_is_found_while_others_commit_with_tokens() -> None:
    """Who comes again with an older batch gets its receipt, also from a log that grows."""
    log = CommitLog(1)
    is_over = False

    def commit(number: int) -> None:
        log.append(number, 1, number, Token("writer", number), (1,), 1)

    def lead() -> None:
        nonlocal is_over
        for number in range(OLD, COMMITS):
            commit(number)
        is_over = True

    def come_again() -> None:
        while not is_over:
            found = log.token(Token("writer", OLD - 1))
            assert found is not None
            assert found.seq == OLD
            assert log.token(Token("another", 1)) is None

    for number in range(OLD):
        commit(number)
    threads = Threads()
    threads.start(lead)
    threads.start(come_again)
    threads.join()
