"""Units: integers with a meaning, and the check that `python -O` keeps.

A seq is the number of a commit in one store: 1, 2, 3, ...; 0 is the seq of the empty store.
"""

from typing import NewType

from siltstone.errors import InvariantError

Seq = NewType("Seq", int)
Epoch = NewType("Epoch", int)
SegmentNumber = NewType("SegmentNumber", int)

EMPTY_SEQ = Seq(0)


def require(claim: object, message: str) -> None:
    """Stop if an invariant that guards data does not hold (also under `python -O`).

    Raises:
        InvariantError: `claim` is false. It is a bug of siltstone, never of the caller.
    """
    if not claim:
        raise InvariantError(message)
