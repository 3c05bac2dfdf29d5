"""Groups on order: a step of the leader blocks until the commits of several threads queue up."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from siltstone.api.store import Store
from siltstone.errors import SiltstoneError

WAIT_S = 20


def in_one_group(
    db: Store, calls: Sequence[Callable[[], object]], before: Callable[[], object] = lambda: None
) -> list[object]:
    """Run `calls`, which commit once each, as one group in their order; return results and errors.

    `before` runs in the leader's step, when all stand in line.
    """
    committer = db._core.writer()
    results: list[object] = [None] * len(calls)
    is_held, may_go = threading.Event(), threading.Event()

    def hold() -> None:
        is_held.set()
        assert may_go.wait(WAIT_S)
        before()

    def run(index: int) -> None:
        try:
            results[index] = calls[index]()
        except SiltstoneError as error:
            results[index] = error

    threads = [threading.Thread(target=committer.run, args=(hold,))]
    threads[0].start()
    assert is_held.wait(WAIT_S)
    for index in range(len(calls)):
        threads.append(threading.Thread(target=run, args=(index,)))
        threads[-1].start()
        _until(lambda wanted=index + 1: len(committer._queue) == wanted)
    may_go.set()
    for thread in threads:
        thread.join(WAIT_S)
        assert not thread.is_alive()
    return results


def _until(claim: Callable[[], bool]) -> None:
    """Wait until another thread has come as far; it only has to run, so nothing is slept."""
    turn = threading.Event()
    for _ in range(20_000):
        if claim():
            return
        turn.wait(0.001)
    raise AssertionError("a commit does not come to stand in line")
