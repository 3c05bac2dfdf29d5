"""Histories: what clients saw of lists that they appended to, and which anomalies it tells of.

After Elle (Kingsbury and Alvaro, VLDB 2020): who reads a list learns in which order its values were
appended, hence which transaction wrote before, or after, what another one read.

    ww   wrote the next value of a list        wr   was read        rw   overwrote what was read
    rt   ended before the other one began

With D = ww, wr, rt: a history is serializable if D and rw have no cycle, and snapshot isolated if
D and D;rw (an edge of D, then one of rw) have none (Cerone and Gotsman, JACM 2018). The real time
in D makes them strict, and strong.

    G0              a cycle of ww           G1c    of ww and wr
    G-single        with one rw             G-nonadjacent   with several, no two of them in a row
    G2              with two in a row: all that snapshot isolation allows
    -realtime       the same with rt

Names are Adya's (1999) and Elle's. Which of them a cycle is counts only where there is one.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import reduce
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise

Edges = dict[int, set[int]]


class Status(Enum):
    """How a transaction ended, as its client knows."""

    COMMITTED = "committed"
    ABORTED = "aborted"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Read:
    """What a list held."""

    key: object
    values: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Append:
    """A value that no other transaction appends; its key was read before by the same one."""

    key: object
    value: int


@dataclass(frozen=True, slots=True)
class Transaction:
    """What one client did, and when: times of one clock, over all clients.

    `is_beside`: it read beside the owner, who may show a durable commit a little later.
    """

    number: int
    begun: float
    ended: float
    status: Status
    steps: tuple[Read | Append, ...]
    is_beside: bool = False

    @property
    def appends(self) -> list[Append]:
        """What it appended."""
        return [step for step in self.steps if isinstance(step, Append)]

    @property
    def reads(self) -> dict[object, tuple[int, ...]]:
        """Its first look at each list."""
        found: dict[object, tuple[int, ...]] = {}
        for step in self.steps:
            if isinstance(step, Read):
                found.setdefault(step.key, step.values)
        return found


@dataclass(frozen=True, slots=True)
class Anomaly:
    """What is wrong with a history, by its name."""

    name: str
    text: str

    def __str__(self) -> str:
        return f"{self.name}: {self.text}"


def anomalies(history: Sequence[Transaction], *, is_serializable: bool) -> list[Anomaly]:
    """Return what is wrong with a history.

    Args:
        history: By number, from 0; its last transaction read every list.
        is_serializable: Strict serializability is wanted, not strong snapshot isolation alone.
    """
    return [*_History(history).anomalies(is_serializable)]


@dataclass(frozen=True, slots=True)
class _Graph:
    ww: Edges
    wr: Edges
    rw: Edges
    rt: Edges


class _History:
    def __init__(self, history: Sequence[Transaction]) -> None:
        assert [each.number for each in history] == [*range(len(history))]
        self._all = history
        self._by_value = {(step.key, step.value): each for each in history for step in each.appends}
        self._reads = [each.reads for each in history]
        self._orders: dict[object, tuple[int, ...]] = {}

    def anomalies(self, is_serializable: bool) -> Iterator[Anomaly]:
        yield from self._internal()
        self._order()
        yield from self._reads_agree()
        yield from self._orders_are_sound()
        yield from self._all_or_none()
        yield from self._lost_updates()
        yield from _cycles(self._graph(), is_serializable=is_serializable)

    def _is_there(self, each: Transaction) -> bool:
        if each.status is Status.UNKNOWN:
            return any(step.value in self._orders.get(step.key, ()) for step in each.appends)
        return each.status is Status.COMMITTED

    def _internal(self) -> Iterator[Anomaly]:
        """A transaction sees its own appends, and a list as it was, however often it looks."""
        for each in self._all:
            known: dict[object, tuple[int, ...]] = {}
            for step in each.steps:
                if isinstance(step, Append):
                    known[step.key] = (*known[step.key], step.value)
                elif known.setdefault(step.key, step.values) != step.values:
                    text = f"{each.number} reads {step}, after {known[step.key]}"
                    yield Anomaly("internal", text)

    def _order(self) -> None:
        for each, reads in zip(self._all, self._reads, strict=True):
            if each.status is not Status.ABORTED:
                for key, values in reads.items():
                    if len(values) >= len(self._orders.get(key, ())):
                        self._orders[key] = values

    def _reads_agree(self) -> Iterator[Anomaly]:
        for number, reads in enumerate(self._reads):
            for key, values in reads.items():
                order = self._orders.get(key, ())
                if values != order[: len(values)]:
                    text = f"{number} reads {key}: {values}, others {order}"
                    yield Anomaly("incompatible order", text)
                writer = self._by_value.get((key, values[-1])) if values else None
                if writer and _last_of(writer, key) != values[-1]:
                    text = f"{number} reads {values[-1]} of {key}, a step of {writer.number}"
                    yield Anomaly("G1b", text)

    def _orders_are_sound(self) -> Iterator[Anomaly]:
        for key, order in self._orders.items():
            if len(set(order)) != len(order):
                yield Anomaly("duplicate", f"{key} has a value twice: {order}")
            nobodys = [value for value in order if (key, value) not in self._by_value]
            if nobodys:
                yield Anomaly("garbage", f"{key} has {nobodys}, which nobody appended")

    def _all_or_none(self) -> Iterator[Anomaly]:
        for each in self._all:
            there = [step.value in self._orders.get(step.key, ()) for step in each.appends]
            text = f"{each.number}: {each.appends}"
            if each.status is Status.COMMITTED and not all(there):
                yield Anomaly("lost commit", text)
            if each.status is Status.ABORTED and any(there):
                yield Anomaly("G1a", text)
            if each.status is Status.UNKNOWN and any(there) and not all(there):
                yield Anomaly("half a commit", text)

    def _lost_updates(self) -> Iterator[Anomaly]:
        """Two that are there saw the same of a list, and both appended to it."""
        seen: dict[tuple[object, tuple[int, ...]], int] = {}
        for each in self._all:
            if self._is_there(each):
                reads = self._reads[each.number]
                for key in {step.key for step in each.appends}:
                    other = seen.setdefault((key, reads[key]), each.number)
                    if other != each.number:
                        text = f"{other} and {each.number} append to {key}: {reads[key]}"
                        yield Anomaly("lost update", text)

    def _graph(self) -> _Graph:
        seen = [each for each in self._all if self._is_there(each)]
        ww, wr, rw = (defaultdict[int, set[int]](set) for _ in range(3))
        writers = {key: self._writers(key) for key in self._orders}
        for numbers in writers.values():
            for one, other in pairwise(numbers):
                ww[one].add(other)
        for each in seen:
            for key, values in self._reads[each.number].items():
                if values:
                    wr[writers[key][len(values) - 1]].add(each.number)
                rw[each.number].update(writers[key][len(values) : len(values) + 1])
        return _Graph(*map(_without_loops, (ww, wr, rw, _real_time(seen))))

    def _writers(self, key: object) -> list[int]:
        """Return who appended each value; what nobody did has a number of its own."""
        found = [self._by_value.get((key, value)) for value in self._orders[key]]
        return [each.number if each else -1 - place for place, each in enumerate(found)]


def _last_of(writer: Transaction, key: object) -> int:
    return [step.value for step in writer.appends if step.key == key][-1]


def _real_time(seen: Sequence[Transaction]) -> Edges:
    """Return who ended before whom, without what follows from two others.

    Who reads beside the owner sees all that was acknowledged before, and no less than others beside
    it saw before; the owner itself reveals a commit a moment after it is durable.
    """
    owners = [each for each in seen if not each.is_beside]
    beside = [each for each in seen if each.is_beside]
    return _union(_frontiers(owners, seen), _frontiers(beside, beside))


def _frontiers(before: Iterable[Transaction], after: Iterable[Transaction]) -> Edges:
    edges = defaultdict[int, set[int]](set)
    ended = deque(
        sorted(
            (each for each in before if each.status is Status.COMMITTED),
            key=lambda each: each.ended,
        )
    )
    frontier: list[Transaction] = []
    for one in sorted(after, key=lambda each: each.begun):
        while ended and ended[0].ended < one.begun:
            frontier.append(ended.popleft())
        latest = max((each.begun for each in frontier), default=0.0)
        frontier = [each for each in frontier if each.ended >= latest]
        for each in frontier:
            edges[each.number].add(one.number)
    return edges


# cycles


def _cycles(graph: _Graph, *, is_serializable: bool) -> Iterator[Anomaly]:
    """Name one cycle that the level forbids, if there is one."""
    ordered = _union(graph.ww, graph.wr, graph.rt)
    allowed = _after(ordered, graph.rw)
    if _has_cycle(_union(ordered, allowed)):
        yield _named(graph)
    elif is_serializable and (found := _cycle(_union(ordered, graph.rw))):
        yield Anomaly("G2", _told(found))


def _named(graph: _Graph) -> Anomaly:
    """Return the strongest anomaly of a graph that no snapshot isolated store has."""
    edges, realtime = graph.ww, _union(graph.ww, graph.wr, graph.rt)
    for name, more in (("G0", {}), ("G1c", graph.wr), ("G1c-realtime", graph.rt)):
        edges = _union(edges, more)
        if found := _cycle(edges):
            return Anomaly(name, _told(found))
    for name, edges in (("G-single", _union(graph.ww, graph.wr)), ("G-single-realtime", realtime)):
        for one, others in graph.rw.items():
            for other in others:
                if path := _path(edges, other, one):
                    return Anomaly(name, _told([*path, other]))
    return Anomaly("G-nonadjacent", _told(_cycle(_union(realtime, _after(realtime, graph.rw)))))


def _told(cycle: Sequence[int]) -> str:
    return " -> ".join(map(str, cycle[:20]))


def _without_loops(edges: Edges) -> Edges:
    return {one: others - {one} for one, others in edges.items()}


def _after(first: Edges, then: Edges) -> Edges:
    return {one: set().union(*(then.get(o, ()) for o in others)) for one, others in first.items()}


def _union(*all_edges: Edges) -> Edges:
    def both(one: Edges, other: Edges) -> Edges:
        return {node: one.get(node, set()) | other.get(node, set()) for node in {*one, *other}}

    return reduce(both, all_edges)


def _has_cycle(edges: Edges) -> bool:
    return bool(_cycle(edges))


def _cycle(edges: Edges) -> list[int]:
    """Return a cycle, [] if there is none."""
    try:
        TopologicalSorter(edges).prepare()
    except CycleError as error:
        return [*reversed(error.args[1])]  # its edges lead to predecessors
    return []


def _path(edges: Edges, start: int, end: int) -> list[int]:
    """Return a shortest way from `start` to `end`, [] if there is none."""
    came_from, waiting = {start: start}, deque([start])
    while waiting:
        node = waiting.popleft()
        for other in edges.get(node, ()):
            if other not in came_from:
                came_from[other] = node
                waiting.append(other)
            if other == end:
                way = [end]
                while way[-1] != start:
                    way.append(came_from[way[-1]])
                return way[::-1]
    return []


# what a history is worth


@dataclass(frozen=True, slots=True)
class Worth:
    """How much a history could show: of little worth is one in which nobody met anybody."""

    transactions: int
    committed: int
    contended: int
    concurrent_pairs: int

    @property
    def is_enough(self) -> bool:
        """At least 30 % committed, 5 % met another at a list, and 50 pairs ran at once."""
        return (
            self.committed >= 0.3 * self.transactions
            and self.contended >= 0.05 * self.transactions
            and self.concurrent_pairs >= 50
        )


def worth(history: Sequence[Transaction]) -> Worth:
    """Return how many wanted to append, committed, and met another that did at the same list."""
    writers = [each for each in history if each.appends]
    contended: set[int] = set()
    pairs = 0
    running: list[Transaction] = []
    for each in sorted(writers, key=lambda each: each.begun):
        running = [other for other in running if other.ended >= each.begun]
        pairs += len(running)
        for other in running:
            if {s.key for s in each.appends} & {s.key for s in other.appends}:
                contended |= {each.number, other.number}
        running.append(each)
    committed = sum(each.status is Status.COMMITTED for each in writers)
    return Worth(len(writers), committed, len(contended), pairs)
