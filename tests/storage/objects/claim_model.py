"""Claim model: all interleavings of owners, claimers and a vacuum at one small log in a bucket.

    an owner    puts frames, some at once; a put may land late, and be done again after its answer
                was lost; a frame is acknowledged when it and all before it are there
    a claimer   claims the next epoch ─▶ reads the floor ─▶ walks ─▶ fence ─▶ looks for a later
                claim ─▶ looks at the floor again ─▶ begins as an owner
    a record    holds frames, and raises the floor; below it frames may be deleted, one by one

Between any two steps of one, the others may do anything, as often as they like: so all of them may
sleep as long as they like. (A claimer that meets the floor of a later epoch ends at once; here it
goes on, and does no harm.) In every state: what was acknowledged in an epoch was found by each
later owner, or is in a record. The steps are those of `storage.objects.log.claim`; two puts in
flight are more than the log has now, and the format is made for them.

`defect` names a step that is left out, or done wrongly (`DEFECTS`); each must be found.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

FLIGHT = 2
AHEAD = 2
FRAME = 0
"""What an object is: a frame, or a fence with the epoch that it names."""
Where = tuple[int, int]
Flight = tuple[int, int]
Answer = tuple[int, bool]

DEFECTS = {
    "acknowledged alone": 1,
    "any exists is mine": 1,
    "no fence": 1,
    "fences are deleted": 2,
    "the fence goes behind a hole": 1,
    "ends at an older fence": 2,
    "the floor has no epoch": 2,
    "no second look at claims": 2,
    "no second look at the floor": 1,
    "the floor may rise": 2,
}
"""Each with the number of claimers that it takes."""


class Owner(NamedTuple):
    """One epoch's writer. `flight`: numbers under way and how often each may be done again."""

    epoch: int
    first: int
    next: int
    left: int
    acknowledged: int
    may_retry: bool = False
    flight: tuple[Flight, ...] = ()
    answers: tuple[Answer, ...] = ()
    landed: frozenset[int] = frozenset()
    is_fenced: bool = False


class Claimer(NamedTuple):
    """`at`: the next object; `start`: the floor that was read.

    `step`: idle, floor, walk, claims, look, begin, owner, lost.
    """

    step: str = "idle"
    epoch: int = 0
    at: Where = (0, 0)
    start: Where = (0, 0)
    is_barred: bool = False
    found: frozenset[Where] = frozenset()


class State(NamedTuple):
    """`floor`: where the log of the newest record begins; `held`: the frames in records."""

    objects: frozenset[tuple[Where, int]]
    claimed: int
    floor: Where
    held: frozenset[Where]
    owners: tuple[Owner, ...]
    claimers: tuple[Claimer, ...]
    records: int

    def at(self, where: Where) -> int | None:
        return next((what for place, what in self.objects if place == where), None)

    def put(self, where: Where, what: int) -> State:
        """Put an object if its place is free."""
        if self.at(where) is not None:
            return self
        return self._replace(objects=self.objects | {(where, what)})

    def with_owner(self, at: int, owner: Owner) -> State:
        return self._replace(owners=(*self.owners[:at], owner, *self.owners[at + 1 :]))

    def with_claimer(self, at: int, claimer: Claimer) -> State:
        return self._replace(claimers=(*self.claimers[:at], claimer, *self.claimers[at + 1 :]))


Step = tuple[str, State]


def beginning(claimers: int, frames: int) -> State:
    """Return the log of an owner with epoch 1 that has `frames` to put."""
    owner = Owner(epoch=1, first=1, next=1, left=frames, acknowledged=0, may_retry=True)
    idle = tuple(Claimer() for _ in range(claimers))
    return State(frozenset(), 1, (1, 1), frozenset(), (owner,), idle, records=1)


def steps(state: State, defect: str) -> Iterator[Step]:
    """Yield what may happen next."""
    for index in range(len(state.owners)):
        yield from _owner_steps(state, index, defect)
    for index in range(len(state.claimers)):
        yield from _claimer_steps(state, index, defect)
    yield from _deletions(state, defect)


def _owner_steps(state: State, index: int, defect: str) -> Iterator[Step]:
    owner = state.owners[index]
    name = f"of {owner.epoch}"
    if not owner.is_fenced and owner.left and len(owner.flight) + len(owner.answers) < FLIGHT:
        flight = (*owner.flight, (owner.next, int(owner.may_retry)))
        asked = owner._replace(next=owner.next + 1, left=owner.left - 1, flight=flight)
        yield f"put {owner.next} {name}", state.with_owner(index, asked)
    for at, (number, retries) in enumerate(owner.flight):
        rest = owner._replace(flight=owner.flight[:at] + owner.flight[at + 1 :])
        where = owner.epoch, number
        done = state.put(where, FRAME)
        if owner.is_fenced:
            yield f"{number} {name} lands late", done.with_owner(index, rest)
            continue
        is_mine = done.at(where) == FRAME
        answered = rest._replace(answers=(*rest.answers, (number, is_mine)))
        yield f"{number} {name} lands", done.with_owner(index, answered)
        if retries and done is not state:
            again = rest._replace(flight=(*rest.flight, (number, retries - 1)))
            yield f"answer to {number} {name} is lost", done.with_owner(index, again)
    for at in range(len(owner.answers)):
        yield _heard(state, index, at, defect)
    if state.records and (owner.epoch, owner.acknowledged + 1) > state.floor:
        yield f"record {name}", _published(state, owner)


def _heard(state: State, index: int, at: int, defect: str) -> Step:
    owner = state.owners[index]
    number, is_mine = owner.answers[at]
    rest = owner.answers[:at] + owner.answers[at + 1 :]
    if not is_mine and defect != "any exists is mine":
        fenced = owner._replace(answers=(), landed=frozenset(), is_fenced=True)
        return f"{owner.epoch} is fenced", state.with_owner(index, fenced)
    landed, last = owner.landed | {number}, owner.acknowledged
    while last + 1 in landed:
        last += 1
    if defect == "acknowledged alone":
        last = max(last, number)
    told = owner._replace(answers=rest, landed=landed, acknowledged=last)
    return f"{last} of {owner.epoch} is acknowledged", state.with_owner(index, told)


def _published(state: State, owner: Owner) -> State:
    """Return the log after a record that holds what an owner knows to be there."""
    claimer = next((c for c in state.claimers if c.epoch == owner.epoch), Claimer())
    own = {(owner.epoch, number) for number in range(owner.first, owner.acknowledged + 1)}
    floor = owner.epoch, owner.acknowledged + 1
    held = state.held | claimer.found | own
    return state._replace(floor=floor, held=held, records=state.records - 1)


def _claimer_steps(state: State, index: int, defect: str) -> Iterator[Step]:
    claimer = state.claimers[index]
    steps_of: dict[str, Callable[[State, int, Claimer, str], Iterator[Step]]] = {
        "idle": _claims,
        "floor": _reads_floor,
        "walk": _walks,
        "claims": _looks_at_claims,
        "look": _looks_at_floor,
        "begin": _begins,
    }
    if claimer.step in steps_of:
        yield from steps_of[claimer.step](state, index, claimer, defect)


def _claims(state: State, index: int, claimer: Claimer, _: str) -> Iterator[Step]:
    claimed = claimer._replace(step="floor", epoch=state.claimed + 1)
    after = state._replace(claimed=claimed.epoch)
    yield f"claim {claimed.epoch}", after.with_claimer(index, claimed)


def _reads_floor(state: State, index: int, claimer: Claimer, defect: str) -> Iterator[Step]:
    read = claimer._replace(step="walk", at=_seen_floor(state, defect), start=state.floor)
    yield f"{claimer.epoch} reads the floor", state.with_claimer(index, read)


def _seen_floor(state: State, defect: str) -> Where:
    return (1, state.floor[1]) if defect == "the floor has no epoch" else state.floor


def _walks(state: State, index: int, claimer: Claimer, defect: str) -> Iterator[Step]:
    epoch, number = claimer.at
    there = state.at(claimer.at)
    behind = claimer._replace(at=(epoch, number + 1))
    if there is None:
        yield from _ends_log(state, index, claimer, defect)
    elif there == FRAME:
        read = behind._replace(found=claimer.found | {claimer.at})
        yield f"{claimer.epoch} reads {number}", state.with_claimer(index, read)
    elif there > claimer.epoch:
        yield f"{claimer.epoch} is late", state.with_claimer(index, claimer._replace(step="lost"))
    elif there == claimer.epoch or defect == "ends at an older fence":
        done = claimer._replace(step="claims", at=(claimer.epoch, number + 1))
        yield f"{claimer.epoch} meets its fence", state.with_claimer(index, done)
    else:
        on = claimer._replace(at=(there, number + 1))
        yield f"{claimer.epoch} goes on in {there}", state.with_claimer(index, on)


def _ends_log(state: State, index: int, claimer: Claimer, defect: str) -> Iterator[Step]:
    """Put the fence at the first number that is absent: seen absent now, put at any later time.

    That it was taken meanwhile is the same as that the claimer walks on; then a barrier may follow.
    """
    epoch, number = claimer.at
    if defect == "the fence goes behind a hole":
        frames = [n for (e, n), what in state.objects if e == epoch and what == FRAME]
        number = max([number - 1, *frames]) + 1
    fenced = state if defect == "no fence" else state.put((epoch, number), claimer.epoch)
    if fenced.at((epoch, number)) in {None, claimer.epoch}:
        found = claimer.found | {(e, n) for (e, n), w in state.objects if e == epoch and w == FRAME}
        done = claimer._replace(
            step="claims",
            at=(claimer.epoch, number + 1),
            found=found if defect == "the fence goes behind a hole" else claimer.found,
        )
        yield f"fence of {claimer.epoch} at {number}", fenced.with_claimer(index, done)
    if not claimer.is_barred:
        barred = claimer._replace(is_barred=True)
        ahead = state.put((epoch, number + AHEAD), claimer.epoch)
        yield f"barrier of {claimer.epoch}", ahead.with_claimer(index, barred)


def _looks_at_claims(state: State, index: int, claimer: Claimer, defect: str) -> Iterator[Step]:
    is_lost = state.claimed > claimer.epoch and defect != "no second look at claims"
    step = "lost" if is_lost else "look"
    yield f"{claimer.epoch} looks", state.with_claimer(index, claimer._replace(step=step))


def _looks_at_floor(state: State, index: int, claimer: Claimer, defect: str) -> Iterator[Step]:
    is_same = state.floor == claimer.start
    if defect == "the floor may rise":  # the fence is not below it: that is not enough
        is_same = state.floor[1] < claimer.at[1]
    if is_same or defect == "no second look at the floor":
        yield "sure", state.with_claimer(index, claimer._replace(step="begin"))
    else:
        anew = Claimer("walk", claimer.epoch, at=_seen_floor(state, defect), start=state.floor)
        yield f"{claimer.epoch} walks anew", state.with_claimer(index, anew)


def _begins(state: State, index: int, claimer: Claimer, _: str) -> Iterator[Step]:
    first = claimer.at[1]
    owner = Owner(claimer.epoch, first, first, left=1, acknowledged=first - 1)
    begun = state._replace(owners=(*state.owners, owner))
    yield f"{claimer.epoch} begins", begun.with_claimer(index, claimer._replace(step="owner"))


def _deletions(state: State, defect: str) -> Iterator[Step]:
    for (epoch, number), what in state.objects:
        is_fence = what != FRAME
        if number < state.floor[1] and (not is_fence or defect == "fences are deleted"):
            rest = state.objects - {((epoch, number), what)}
            yield f"delete {number} of {epoch}", state._replace(objects=rest)


def lost(state: State) -> str:
    """Return what an owner lacks that was acknowledged before it; empty: nothing."""
    for claimer in state.claimers:
        if claimer.step != "owner":
            continue
        for owner in state.owners:
            if owner.epoch < claimer.epoch:
                told = {(owner.epoch, n) for n in range(owner.first, owner.acknowledged + 1)}
                missing = told - claimer.found - state.held
                if missing:
                    return f"{sorted(missing)} is not in what {claimer.epoch} found"
    return ""


def explored(claimers: int, frames: int, defect: str = "") -> tuple[int, str]:
    """Return the number of states that can be reached, and what is wrong in one of them.

    That is the first one found, with the steps that lead there; empty: all are right.
    """
    first = beginning(claimers, frames)
    seen: dict[State, Step | None] = {first: None}
    left = [first]
    while left:
        state = left.pop()
        wrong = lost(state)
        if wrong:
            return len(seen), f"{wrong}: {', '.join(_path(seen, state))}"
        for name, found in steps(state, defect):
            if found not in seen:
                seen[found] = name, state
                left.append(found)
    return len(seen), ""


def _path(seen: dict[State, Step | None], state: State) -> list[str]:
    names: list[str] = []
    while (before := seen[state]) is not None:
        names.append(before[0])
        state = before[1]
    return names[::-1]
