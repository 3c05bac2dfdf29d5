"""Objects: what a bucket holds, with the rules that make its answers mean something.

    put_new   put if absent ─▶ "exists" ─▶ get it ─▶ our bytes: made, an answer was lost
                    ▲                        │ absent: the server met a delete; nothing landed
                    └────────────────────────┘ others: taken
    put_if    put if the ETag is still this one; likewise
    others    the same request again while there is no answer, for `give_up_s` at most

Repeating is safe, unlike a sync after a failed one: the bytes are the same, and a conditional put
that is done again, or a minute late, meets its own object. So the bytes of a conditional put must
be the caller's own: they carry a token that no other put has.

Lock: `_lock` guards the counts; it is never held over a request.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from itertools import chain, islice, repeat
from typing import TypeVar

from siltstone.errors import UnavailableError
from siltstone.process import threads
from siltstone.process.threads import submitted
from siltstone.storage.objects.server import (
    BucketServer,
    Exists,
    FoundObject,
    ObjectHead,
    Streamed,
    Unanswered,
)

GIVE_UP_S = 60.0
FIRST_GIVE_UP_S = 5.0
"""While the server never answered, its address is likely to be wrong."""
SIDE_BY_SIDE = 16
_TICK_S = 0.05
_PAUSES_S = (0.05, 0.1, 0.2, 0.4, 0.8, 1.6)
T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Made:
    """The object is there, with the bytes that were put."""

    etag: str


@dataclass(frozen=True, slots=True)
class Taken:
    """The key belongs to another put; the object is as it was when it was looked at."""

    found: FoundObject


@dataclass(frozen=True, slots=True)
class Lost:
    """The object changed, or is gone; nothing was put."""

    found: FoundObject | None


class RequestCounts:
    """Requests by caller and kind. Threads may share it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: Counter[tuple[str, str]] = Counter()
        self.was_answered = False

    def add(self, caller: str, kind: str) -> None:
        with self._lock:
            self._counts[caller, kind] += 1

    def by_kind(self) -> dict[str, int]:
        """Return how many requests of each kind were made."""
        found: Counter[str] = Counter()
        for (_, kind), count in self.by_caller().items():
            found[kind] += count
        return dict(found)

    def by_caller(self) -> dict[tuple[str, str], int]:
        """Return how many requests were made by (caller, kind)."""
        with self._lock:
            return dict(self._counts)


@dataclass(frozen=True, slots=True)
class Objects:
    """See the module. Threads may share it; a process opens its own, from the URL.

    `caller` says in the counts for what the requests are. `abandon` is asked while one runs, and
    raises where its caller has to end: the request is done, or not, or done later.
    """

    server: BucketServer
    caller: str = ""
    clock: Callable[[], float] = time.monotonic
    pause: Callable[[float], object] = time.sleep
    give_up_s: float = GIVE_UP_S
    counts: RequestCounts = field(default_factory=RequestCounts)
    abandon: Callable[[], object] | None = None

    def __reduce__(self) -> str | tuple[object, ...]:
        raise TypeError(f"{self.url} is opened by each process: what has credentials never travels")

    @property
    def url(self) -> str:
        return self.server.url

    def of(self, caller: str) -> Objects:
        """Return these objects for another caller; the counts are shared."""
        return replace(self, caller=caller)

    def put_new(self, key: str, data: bytes) -> Made | Taken:
        """Put an object if no other has the key. The bytes are the caller's own: see the module.

        Raises:
            UnavailableError: No answer, or a refusal. It may be there, or be there later.
        """

        def put() -> Made | Taken | None:
            self.counts.add(self.caller, "put")
            try:
                return Made(self.server.put(key, data, is_new=True))
            except Exists:
                found = self.get(key)
            if found is None:  # the put met a delete, or an upload that ended: nothing landed
                return None
            return Made(found.etag) if found.data == data else Taken(found)

        return self._until(put, "put", key)

    def put_if(self, key: str, data: bytes, etag: str) -> Made | Lost:
        """Put an object if the present one has this ETag. The bytes are the caller's own.

        Raises:
            UnavailableError: As `put_new`.
        """

        def put() -> Made | Lost | None:
            self.counts.add(self.caller, "put")
            try:
                return Made(self.server.put(key, data, etag=etag))
            except Exists:
                found = self.get(key)
            if found is not None and found.data == data:
                return Made(found.etag)
            if found is not None and found.etag == etag:  # it met another request
                return None
            return Lost(found)

        return self._until(put, "put", key)

    def put_over(self, key: str, data: bytes, etag: str | None) -> Made | None:
        """Put an object that has the ETag, or without one is absent; None: it is another one.

        Raises:
            UnavailableError: As `put_new`, or as `put_if`.
        """
        done = self.put_new(key, data) if etag is None else self.put_if(key, data, etag)
        return done if isinstance(done, Made) else None

    def put(self, key: str, body: bytes | Streamed) -> str:
        """Put an object that any put of the key has the same bytes of; return its ETag.

        Raises:
            UnavailableError: As `put_new`.
            Exception: What the parts of a streamed body raise; nothing is there then.
        """
        if isinstance(body, Streamed):
            return self._answer(lambda: self.server.put_streamed(key, body), "put", key)
        return self._answer(lambda: self.server.put(key, body), "put", key)

    def get(self, key: str) -> FoundObject | None:
        """Return an object; None: there is none.

        Raises:
            UnavailableError: No answer, or a refusal.
        """
        return self._answer(lambda: _whole(self.server.get(key), 0, None), "get", key)

    def get_range(self, key: str, start: int, end: int) -> FoundObject | None:
        """Return the bytes from `start` to before `end`, fewer at the end of the object."""
        return self._answer(
            lambda: _whole(self.server.get(key, start, end), start, end), "get", key
        )

    def head(self, key: str) -> ObjectHead | None:
        return self._answer(lambda: self.server.head(key), "head", key)

    def list_after(self, prefix: str, after: str = "") -> Iterator[ObjectHead]:
        """Yield the objects whose keys begin with `prefix` and are above `after`, in their order.

        Raises:
            UnavailableError: As `get`: it is never shorter without an error.
        """
        pages = _Pages(self, prefix, after)
        while found := self._until(lambda: (pages.following(),), "list", prefix)[0]:
            yield from found

    def delete(self, keys: Iterable[str]) -> None:
        """Delete objects, one by one and side by side; some have no request for many."""

        def delete(key: str) -> None:
            self._answer(lambda: self.server.delete(key), "delete", key)

        wanted = [*keys]
        if len(wanted) == 1:  # also when Python ends, and no thread may begin
            delete(wanted[0])
            return
        for _ in side_by_side(delete, wanted):
            pass

    def now(self, token: str) -> float:
        """Return the server's time: seconds since 1970. Two requests; `token` is the caller's."""
        key = f"now/{token}"
        self.put(key, token.encode())
        head = self.head(key)
        if head is None:
            raise UnavailableError(f"{self.url}/{key} is gone, which was just put")
        return head.modified

    def _answer(self, request: Callable[[], T], kind: str, key: str) -> T:
        """Make a request until there is an answer, whatever that is."""

        def counted() -> tuple[T]:
            self.counts.add(self.caller, kind)
            return (request(),)

        return self._until(counted, kind, key)[0]

    def _until(self, request: Callable[[], T | None], kind: str, key: str) -> T:
        """Make a request until there is an answer other than None.

        Raises:
            UnavailableError: There was none in `give_up_s`; the message has the last reason.
        """
        began = self.clock()
        for pause in chain(_PAUSES_S, repeat(_PAUSES_S[-1])):
            try:
                found = request() if self.abandon is None else _watched(request, self.abandon)
                self.counts.was_answered = True
                if found is not None:
                    return found
                reason = "the server says that it exists, but has no such object"
            except Unanswered as unanswered:
                reason = str(unanswered)
            tried_s = self.clock() - began
            if tried_s >= (self.give_up_s if self.counts.was_answered else FIRST_GIVE_UP_S):
                what = f"{kind} {self.url}/{key}"
                raise UnavailableError(f"{what}: {reason}; tried again for {tried_s:.0f} s")
            self.pause(pause)
        raise AssertionError


class _Pages:
    """The pages of a list, which goes on behind the last one after a page without an answer."""

    def __init__(self, objects: Objects, prefix: str, after: str) -> None:
        self._objects, self._prefix, self._last = objects, prefix, after
        self._pages: Iterator[list[ObjectHead]] | None = None

    def following(self) -> list[ObjectHead]:
        """Return the next page; empty at the end, which the last page said: no request."""
        is_first = self._pages is None
        if self._pages is None:
            self._pages = self._objects.server.list_after(self._prefix, self._last)
        try:
            found = next(self._pages, [])
        except Unanswered:
            self._pages = None
            self._count()
            raise
        if is_first or found:
            self._count()
        if found:
            self._last = found[-1].key
        return found

    def _count(self) -> None:
        self._objects.counts.add(self._objects.caller, "list")


def _whole(found: FoundObject | None, start: int, end: int | None) -> FoundObject | None:
    """Refuse a body that is shorter, or longer, than the object: the connection broke."""
    if found is not None:
        last = found.head.size if end is None else min(end, found.head.size)
        if len(found.data) != max(0, last - start):
            wanted = max(0, last - start)
            raise Unanswered(f"the body ended after {len(found.data)} of {wanted} bytes")
    return found


def _watched(request: Callable[[], T], check: Callable[[], object]) -> T:
    """Make a request in a thread, and ask meanwhile whether it is still waited for."""
    done = Future[T]()
    try:
        threads.started(lambda: threads.settle(done, request), "siltstone-request")
    except UnavailableError:  # the system has no more, or Python ends
        return request()
    while not wait([done], _TICK_S).done:
        check()
    return done.result()


def side_by_side(
    work: Callable[[R], T], items: Iterable[R], *, width: int = SIDE_BY_SIDE
) -> Iterator[tuple[R, T]]:
    """Yield (item, result) as each is done, `width` at a time.

    An error ends it: what runs is waited for, the rest is not begun.
    """
    left = iter(items)
    with ThreadPoolExecutor(width, thread_name_prefix="siltstone-objects") as pool:
        running: dict[Future[T], R] = {
            submitted(pool, work, each): each for each in islice(left, width)
        }
        while running:
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                yield running.pop(future), future.result()
                for each in islice(left, 1):
                    running[submitted(pool, work, each)] = each
