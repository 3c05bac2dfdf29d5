"""Registers: is there an order of reads and writes in which each took effect while it ran?

After Wing and Gong (1993), with the memory of Lowe (2017): take any operation that nobody ended
before, if the register agrees, and go on; never look twice at the same done with the same value.
A write of which nobody knows whether it happened may take effect at any time, or never.

And forks: who reads several registers that have a writer each, who only counts up, sees vectors of
which one is always behind the other. Two that are each ahead of the other are a long fork.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import pairwise


class Kind(Enum):
    """What is done to a register."""

    READ = "read"
    WRITE = "write"
    SWAP = "swap"


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation on one register, as its client saw it.

    `value` is what was read or written; a swap also has what it `expected` and found there.
    """

    begun: float
    ended: float
    kind: Kind
    value: int
    expected: int = 0
    is_certain: bool = True


def is_linearizable(operations: Sequence[Operation], start: int = 0) -> bool:
    """Say whether one register, with `start` in it, can have behaved so.

    Every value is written once. An uncertain write that nobody saw may be left out: it could only
    be in the way.
    """
    seen_values = {each.value for each in operations if each.kind is Kind.READ and each.is_certain}
    seen_values |= {each.expected for each in operations if each.kind is Kind.SWAP}
    told = sorted(
        (
            each
            for each in operations
            if each.is_certain or (each.kind is not Kind.READ and each.value in seen_values)
        ),
        key=lambda each: each.begun,
    )
    wanted = sum(1 << place for place, each in enumerate(told) if each.is_certain)
    stack, seen = [(0, start)], {(0, start)}
    while stack:
        done, value = stack.pop()
        if done & wanted == wanted:
            return True
        for place in _next(told, done):
            state = _state(told[place], value)
            after = (done | 1 << place, state)
            if state is not None and after not in seen:
                seen.add(after)
                stack.append((done | 1 << place, state))
    return False


def _next(told: Sequence[Operation], done: int) -> Iterator[int]:
    """Yield who may be next: nobody of the others ended before it began."""
    first_end = math.inf
    place = ((done + 1) & ~done).bit_length() - 1  # all before it are done
    while place < len(told) and told[place].begun <= first_end:
        if not done >> place & 1:
            yield place
            if told[place].is_certain:
                first_end = min(first_end, told[place].ended)
        place += 1


def _state(operation: Operation, value: int) -> int | None:
    """Return what the register holds afterwards, None if it cannot have been so."""
    if operation.kind is Kind.READ:
        return value if operation.value == value else None
    if operation.kind is Kind.SWAP and operation.expected != value:
        return None
    return operation.value


def long_forks(seen: Sequence[Sequence[int]]) -> list[tuple[Sequence[int], Sequence[int]]]:
    """Return pairs of vectors that are each ahead of the other in some place."""
    in_order = sorted(seen, key=sum)
    return [
        (one, other)
        for one, other in pairwise(in_order)
        if any(mine > its for mine, its in zip(one, other, strict=True))
    ]
