"""Shown: the state that readers take; while a commit is being shown to all, they wait.

    state is there ──▶ it is taken away ─▶ MARK is written ─▶ the new state is there
                       who asks now waits for the new one

Other processes see a commit from MARK on. A caller that hears of it from one of them, and then
reads here, has to see it, too: a read here that begins after MARK was written must not get the
state before. The sign is that `state` is not there: a read that finds it pays nothing for the
question.

Lock: `lock`, held by who replaces the state, over no more than the write of MARK, which waits for
no disk. Readers take it only if there is no state. A finalizer that reads may run in the thread
that holds it: it gets the state before, instead of waiting for itself. The committer takes the
state away by itself: a call more, after a sync, costs each commit a microsecond.
"""

from __future__ import annotations

from _thread import RLock

from siltstone.engine.read.view import State


class Shown:
    """See the module. `before`: the state while it is away, None otherwise."""

    __slots__ = ("before", "lock", "state")

    def __init__(self, state: State) -> None:
        self.state = state
        self.lock = RLock()
        self.before: State | None = None

    def __getattr__(self, name: str) -> State:
        """Return the state once it is there; Python asks for what it does not find."""
        if name != "state":
            raise AttributeError(name)
        with self.lock:
            before = self.before  # of this very thread, which shows a state just now
            return object.__getattribute__(self, "state") if before is None else before

    def put_back(self) -> None:
        """Put back the state that is away, if it is: other processes could not be told."""
        before = self.before
        if before is not None:
            self.state, self.before = before, None

    def free_in_child(self) -> None:
        """In the child of a fork: the thread that would show a state is not there."""
        self.lock = RLock()
        self.put_back()
