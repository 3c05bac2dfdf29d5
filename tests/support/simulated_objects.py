"""SimServer: a bucket in memory that fails, answers late and lies on order.

Every request is counted, and a fault hits one of them by its number, so that a test can break each
request of whatever it runs: first without faults, to learn `requests`. Those who share a
`SimBucket` are processes at one bucket. Lock: the bucket's, held for one request.
"""

from __future__ import annotations

import enum
import hashlib
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from siltstone.errors import UnavailableError
from siltstone.storage.objects.server import Exists, FoundObject, ObjectHead, Streamed, Unanswered


class SimulatedKill(BaseException):
    """The process ended at this request. No `except Exception` may stop it."""


class Fault(enum.Enum):
    """What becomes of a request."""

    KILLED_BEFORE = "the process ends before it"
    KILLED_AFTER = "it is done, and the process ends"
    LOST = "it is done, and the answer is lost"
    NOT_DONE = "it is not done, and there is no answer"
    LATER = "there is no answer, and it is done after all that follows (`land`)"
    TWICE = "it is done twice, as by a proxy that repeats it: the second answer counts"
    CONFLICT = "the server says that the key exists, and nothing landed"
    HALF = "the connection breaks in the middle of the body"
    BUSY = "503"
    DENIED = "403"


@dataclass
class SimBucket:
    """The objects of a bucket, by their whole keys."""

    objects: dict[str, tuple[bytes, float]] = field(default_factory=dict)
    now: Callable[[], float] = lambda: 1_000_000.0
    lock: threading.RLock = field(default_factory=threading.RLock)


@dataclass
class SimServer:
    """A `BucketServer` of one process at the prefix `below` of a bucket."""

    bucket: SimBucket = field(default_factory=SimBucket)
    faults: dict[int, Fault] = field(default_factory=dict)
    below: str = ""
    always: Fault | None = None
    page: int = 3
    trace: list[str] = field(default_factory=list)
    late: list[Callable[[], object]] = field(default_factory=list)
    is_killed: bool = False

    @property
    def url(self) -> str:
        return f"s3://simulated/{self.below}".rstrip("/")

    @property
    def requests(self) -> int:
        return len(self.trace)

    def land(self) -> None:
        """Let the requests be done that were `LATER`."""
        while self.late:
            self.late.pop(0)()

    def put(self, key: str, data: bytes, *, is_new: bool = False, etag: str | None = None) -> str:
        request = partial(self._put, key, bytes(data), is_new, etag)
        return self._do(f"put {key}", request, has_condition=is_new or etag is not None)

    def put_streamed(self, key: str, body: Streamed) -> str:
        data = b"".join(body.parts())
        assert len(data) == body.size
        return self._do(f"put {key}", lambda: self._put(key, data, False, None))

    def _put(self, key: str, data: bytes, is_new: bool, etag: str | None) -> str:
        there = self.bucket.objects.get(self.below + key)
        if (is_new and there is not None) or (
            etag is not None and (there is None or _etag(there[0]) != etag)
        ):
            raise Exists
        self.bucket.objects[self.below + key] = (data, self.bucket.now())
        return _etag(data)

    def get(self, key: str, start: int = 0, end: int | None = None) -> FoundObject | None:
        def get() -> FoundObject | None:
            found = self.bucket.objects.get(self.below + key)
            return (
                None if found is None else FoundObject(found[0][start:end], self._head(key, found))
            )

        return self._do(f"get {key}", get)

    def head(self, key: str) -> ObjectHead | None:
        def head() -> ObjectHead | None:
            found = self.bucket.objects.get(self.below + key)
            return None if found is None else self._head(key, found)

        return self._do(f"head {key}", head)

    def list_after(self, prefix: str, after: str) -> Iterator[list[ObjectHead]]:
        def following(last: str) -> list[ObjectHead]:
            mine = {
                key.removeprefix(self.below): found
                for key, found in self.bucket.objects.items()
                if key.startswith(self.below + prefix)
            }
            keys = sorted(key for key in mine if key > last)[: self.page]
            return [self._head(key, mine[key]) for key in keys]

        while page := self._do(f"list {prefix}", lambda last=after: following(last)):
            yield page
            after = page[-1].key

    def delete(self, key: str) -> None:
        self._do(f"delete {key}", lambda: self.bucket.objects.pop(self.below + key, None))

    def _head(self, key: str, found: tuple[bytes, float]) -> ObjectHead:
        return ObjectHead(key, len(found[0]), _etag(found[0]), found[1])

    def _do(self, what: str, request: Callable[[], Any], *, has_condition: bool = False) -> Any:
        with self.bucket.lock:
            if self.is_killed:
                raise SimulatedKill("the process is gone")
            self.trace.append(what)
            fault = self.faults.get(len(self.trace), self.always)
            if fault is Fault.CONFLICT and what.startswith("put") and not has_condition:
                fault = Fault.NOT_DONE  # there is no condition to break
            return request() if fault is None else self._fail(fault, what, request)

    def _fail(self, fault: Fault, what: str, request: Callable[[], Any]) -> Any:
        if fault is Fault.KILLED_BEFORE:
            self.is_killed = True
            raise SimulatedKill(what)
        if fault in {Fault.NOT_DONE, Fault.BUSY}:
            raise Unanswered(fault.value)
        if fault is Fault.DENIED:
            raise UnavailableError(f"no right to {what}: 403")
        if fault is Fault.CONFLICT and what.startswith("put"):
            raise Exists
        if fault is Fault.LATER:
            self.late.append(lambda: _quietly(request))
            raise Unanswered(fault.value)
        return self._done(fault, what, request)

    def _done(self, fault: Fault, what: str, request: Callable[[], Any]) -> Any:
        if fault is Fault.HALF and what.startswith("put"):
            raise Unanswered(fault.value)  # a server never keeps half of what was announced
        done = request()
        if fault is Fault.KILLED_AFTER:
            self.is_killed = True
            raise SimulatedKill(what)
        if fault is Fault.LOST:
            raise Unanswered(fault.value)
        if fault is Fault.TWICE:
            return request()
        if fault is Fault.HALF and isinstance(done, FoundObject):
            return FoundObject(done.data[: len(done.data) // 2], done.head)
        return done


def _quietly(request: Callable[[], object]) -> None:
    with suppress(Exists):
        request()


def _etag(data: bytes) -> str:
    return f'"{hashlib.md5(data).hexdigest()}"'
