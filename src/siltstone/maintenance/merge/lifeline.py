"""Lifeline: a pipe by which a child process ends when the process that started it does.

    owner   holds the writing end, and never writes
    child   reads from the other one, its standard input, in a thread: there is nothing to read
            until the owner has ended, however it did; then the child ends, wherever it is

The kernel closes the pipe of a dead process. PR_SET_PDEATHSIG would follow the thread that started
the child, and a signal or an alarm needs an owner that is still there. The child of a fork closes
its copy, which would outlive the owner.
"""

from __future__ import annotations

import os
import weakref

from siltstone.process import threads

VARIABLE = "SILTSTONE_LIFELINE"
"""In the environment of a child whose standard input is a lifeline."""
_ORPHANED = 1


class Lifeline:
    """The owner's side; `child_end` is what the child gets as its standard input."""

    def __init__(self) -> None:
        self.child_end, self._fd = os.pipe()  # no other program that is started inherits them
        _held.add(self)

    def given(self) -> None:
        """Close the child's end here: the child has its own copy."""
        end, self.child_end = self.child_end, -1
        if end >= 0:
            os.close(end)

    def release(self) -> None:
        """Close both ends; a child that is still there ends."""
        self.given()
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


_held: weakref.WeakSet[Lifeline] = weakref.WeakSet()


def _release_in_child() -> None:
    for lifeline in list(_held):
        lifeline.release()


os.register_at_fork(after_in_child=_release_in_child)


def end_with_owner() -> None:
    """If this process was started with a lifeline, have it end when the owner does.

    Raises:
        UnavailableError: The system has no more threads.
    """
    if os.environ.pop(VARIABLE, None):
        threads.started(_watch, "siltstone-lifeline")


def _watch() -> None:
    while os.read(0, 1):
        pass
    os._exit(_ORPHANED)  # what a merge has not published is inert
