"""Calls: how many functions of siltstone a commit, a get, transactions and a REST request run.

Those in this process are of the main thread: also up to the write that is synced, and the calls of
functions of C. For a request a store with a table with a key is served in this process; a client
sends `apply` with one upsert until nothing is done for the first time any more, and then some that
are counted, in every thread of the server. A function counts each time it is entered, a generator
or coroutine also each time it goes on. The request with the fewest calls is shown: what runs beside
it now and then is not its own.
"""

from __future__ import annotations

import os
import sys
import threading
from collections import Counter
from collections.abc import Callable, Generator
from contextlib import closing, contextmanager
from pathlib import Path
from types import FrameType

import siltstone as st
from bench.http_client import Connection

PACKAGE = f"{Path(st.__file__).parent}/"
_MADE = frozenset({"<row encoder>"})  # what is made for a schema is ours, too
WARM_UPS = 20
COUNTED = 5

Calls = Counter[tuple[str, str]]
C = "C"
"""The file of the calls of functions that are written in C."""


class CallCounter:
    """Counts the calls of the package's functions, by file and function. Any thread."""

    def __init__(self) -> None:
        self.found: Calls | None = None
        self.before_sync = 0
        self._lock = threading.Lock()

    def __call__(self, frame: FrameType, event: str, argument: object) -> None:
        """Hear of an event, as `threading.setprofile` calls it."""
        found, code = self.found, frame.f_code
        if found is None:
            return
        name = code.co_filename
        if event == "call" and (name.startswith(PACKAGE) or name in _MADE):
            with self._lock:
                found[name.removeprefix(PACKAGE), code.co_qualname] += 1
        elif event == "c_call" and argument is not sys.setprofile:
            with self._lock:
                if argument is os.pwritev:
                    self.before_sync = ours(found)
                found[C, getattr(argument, "__qualname__", str(argument))] += 1


def ours(calls: Calls) -> int:
    """Return how many calls are of functions of siltstone, and not of C."""
    return sum(count for (file, _), count in calls.items() if file != C)


@contextmanager
def counted_threads() -> Generator[CallCounter]:
    """Count in all threads that begin within the block."""
    counter = CallCounter()
    before = threading.getprofile()
    threading.setprofile(counter)
    try:
        yield counter
    finally:
        threading.setprofile(before)


def calls_of_apply(folder: Path) -> Calls:
    """Return the calls that a server makes for one `apply` of one upsert."""
    with (
        counted_threads() as counter,
        st.connect(folder / "shop", background=False, segment_bytes=1 << 20) as db,
    ):
        db.create_table("t", {"id": "int64", "v": "int64"}, primary_key="id")
        service = db.serve(port=0)
        with closing(Connection(service.port)) as client:
            found: list[Calls] = []
            for number in range(WARM_UPS + COUNTED):
                upsert = {"table": "t", "op": "upsert", "rows": [{"id": number, "v": number}]}
                counter.found = Counter()
                client.post("/v1/transaction/apply", {"ops": [upsert]})
                found.append(counter.found)
                counter.found = None
    return min(found[WARM_UPS:], key=ours)


def calls_in_process(folder: Path) -> dict[str, tuple[Calls, int]]:
    """Return the calls of some work in this process, and those of ours up to the synced write.

    They are those of the thread that asks.
    """
    counter = CallCounter()
    with st.connect(folder / "shop", background=False) as db:
        table = db.create_table("t", {"id": "int64", "v": "int64"}, primary_key="id")

        def transfer() -> None:
            with db.transaction() as tx:
                in_tx = tx["t"]
                for key in (1, 2):
                    in_tx.get(key)
                for key in (1, 2):
                    in_tx.update(key, v=key)

        def statements() -> None:
            with db.transaction() as tx:
                tx["t"].get(1)
                tx["t"].upsert({"id": 2, "v": 2})
                tx["t"].update(1, v=1)

        work: dict[str, Callable[[], object]] = {
            "upsert": lambda: table.upsert({"id": 1, "v": 1}),
            "get": lambda: table.get(1),
            "transfer": transfer,
            "statements": statements,
        }
        table.upsert([{"id": 1, "v": 1}, {"id": 2, "v": 2}])
        return {name: _counted(counter, each) for name, each in work.items()}


def _counted(counter: CallCounter, work: Callable[[], object]) -> tuple[Calls, int]:
    """Return the fewest calls of some tries."""
    found: list[tuple[Calls, int]] = []
    for _ in range(WARM_UPS):
        counter.found, counter.before_sync = Counter(), 0
        sys.setprofile(counter)
        try:
            work()
        finally:
            sys.setprofile(None)
        found.append((counter.found, counter.before_sync))
    return min(found, key=lambda each: (ours(each[0]), each[0].total()))
