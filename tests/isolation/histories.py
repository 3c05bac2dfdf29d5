"""Histories: what clients saw of lists that they appended to, and what it says of isolation.

After Elle (Kingsbury and Alvaro, VLDB 2020): who reads a list learns in which order its values were
appended, hence which transaction wrote before, or after, what another one read.

    ww   wrote the next value of a list        wr   was read        rw   overwrote what was read
    rt   ended before the other one began

With D = ww, wr, rt: a history is serializable if D and rw have no cycle, and snapshot isolated if D
and D;rw (an edge of D, then one of rw) have none (Cerone and Gotsman, JACM 2018).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise

Edges = dict[int, set[int]]


class Status(Enum):
    COMMITTED = "committed"
    ABORTED = "aborted"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Read:
    key: object
    values: tuple[int, ...]


@dataclass(frozen=True)
class Append:
    """A value that no other transaction appends; its key was read before by the same one."""

    key: object
    value: int


@dataclass(frozen=True)
class Transaction:
    """What one client did, and when: times of one clock, over all clients."""

    number: int
    begun: float
    ended: float
    status: Status
    steps: tuple[Read | Append, ...]

    @property
    def appends(self) -> list[Append]:
        return [step for step in self.steps if isinstance(step, Append)]


def violations(history: Sequence[Transaction], *, is_serializable: bool) -> list[str]:
    """Return what is wrong with a history; its last transaction read every list."""
    return [*_History(history).violations(is_serializable)]


class _History:
    def __init__(self, history: Sequence[Transaction]) -> None:
        self._all = history
        self._by_value = {(step.key, step.value): each for each in history for step in each.appends}
        self._first: dict[tuple[int, object], tuple[int, ...]] = {}
        self._orders: dict[object, tuple[int, ...]] = {}

    def violations(self, is_serializable: bool) -> Iterator[str]:
        yield from self._within()
        self._order()
        yield from self._orders_agree()
        yield from self._all_or_none()
        seen = [each for each in self._all if self._is_there(each)]
        ordered, overwrites = self._edges(seen)
        if not is_serializable:
            overwrites = _after(ordered, overwrites)
        cycle = _cycle(_union(ordered, overwrites))
        if cycle:
            yield f"a cycle: {cycle}"

    def _is_there(self, each: Transaction) -> bool:
        if each.status is Status.UNKNOWN:
            return any(step.value in self._orders.get(step.key, ()) for step in each.appends)
        return each.status is Status.COMMITTED

    def _within(self) -> Iterator[str]:
        """A transaction sees its own appends, and a list as it was, however often it looks."""
        for each in self._all:
            known: dict[object, tuple[int, ...]] = {}
            for step in each.steps:
                if isinstance(step, Append):
                    known[step.key] = (*known[step.key], step.value)
                elif step.key not in known:
                    known[step.key] = self._first[each.number, step.key] = step.values
                elif known[step.key] != step.values:
                    yield f"{each.number} reads {step}, after {known[step.key]}"

    def _order(self) -> None:
        for (number, key), values in self._first.items():
            is_ours = self._all[number].status is not Status.ABORTED
            if is_ours and len(values) >= len(self._orders.get(key, ())):
                self._orders[key] = values

    def _orders_agree(self) -> Iterator[str]:
        for (number, key), values in self._first.items():
            order = self._orders.get(key, ())
            if values != order[: len(values)]:
                yield f"{number} reads {key}: {values}, others {order}"
            if values:
                writer = self._by_value[key, values[-1]]
                last = [step.value for step in writer.appends if step.key == key][-1]
                if last != values[-1]:
                    yield f"{number} reads {values[-1]} of {key}, a step of {writer.number}"
        for key, order in self._orders.items():
            if len(set(order)) != len(order):
                yield f"{key} has a value twice: {order}"

    def _all_or_none(self) -> Iterator[str]:
        for each in self._all:
            there = [step.value in self._orders.get(step.key, ()) for step in each.appends]
            if each.status is Status.COMMITTED and not all(there):
                yield f"{each.number} committed, and is lost: {each.appends}"
            if each.status is Status.ABORTED and any(there):
                yield f"{each.number} did not commit, and is read: {each.appends}"
            if each.status is Status.UNKNOWN and any(there) and not all(there):
                yield f"{each.number} is there in part: {each.appends}"

    def _edges(self, seen: Sequence[Transaction]) -> tuple[Edges, Edges]:
        """Return D and rw."""
        ordered, overwrites = defaultdict[int, set[int]](set), defaultdict[int, set[int]](set)
        writers = {
            key: [self._by_value[key, value].number for value in order]
            for key, order in self._orders.items()
        }
        for numbers in writers.values():
            for one, other in pairwise(numbers):
                ordered[one].add(other)
        numbers = {each.number for each in seen}
        for (number, key), values in self._first.items():
            if number in numbers:
                if values:
                    ordered[writers[key][len(values) - 1]].add(number)
                overwrites[number].update(writers[key][len(values) : len(values) + 1])
        for one in seen:
            if one.status is Status.COMMITTED:
                ordered[one.number].update(o.number for o in seen if one.ended < o.begun)
        return _without_loops(ordered), _without_loops(overwrites)


def _without_loops(edges: Edges) -> Edges:
    return {one: others - {one} for one, others in edges.items()}


def _after(first: Edges, then: Edges) -> Edges:
    return {one: set().union(*(then.get(o, ()) for o in others)) for one, others in first.items()}


def _union(one: Edges, other: Edges) -> Edges:
    return {node: one.get(node, set()) | other.get(node, set()) for node in {*one, *other}}


def _cycle(edges: Edges) -> list[int]:
    """Return a cycle, [] if there is none."""
    try:
        TopologicalSorter(edges).prepare()
    except CycleError as error:
        return list(error.args[1])[:20]
    return []
