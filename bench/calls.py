"""Calls: how many functions of siltstone one REST request runs, `python -m bench.calls`.

`python -m bench.calls --local` counts those of an upsert, a get and a transfer in this process.

A store with a table with a key is served in this process; a client sends `apply` with one upsert
until nothing is done for the first time any more, and then some that are counted, in every thread
of the server. A function counts each time it is entered, a generator or coroutine also each time
it goes on. The request with the fewest calls is shown: what runs beside it now and then is not its
own.
"""

from __future__ import annotations

import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Generator
from contextlib import closing, contextmanager
from pathlib import Path
from types import FrameType

import siltstone as st
from bench.http_client import Connection

PACKAGE = f"{Path(st.__file__).parent}/"
WARM_UPS = 20
COUNTED = 5

Calls = Counter[tuple[str, str]]


class CallCounter:
    """Counts the calls of the package's functions, by file and function. Any thread."""

    def __init__(self) -> None:
        self.found: Calls | None = None
        self._lock = threading.Lock()

    def __call__(self, frame: FrameType, event: str, _: object) -> None:
        """Hear of an event, as `threading.setprofile` calls it."""
        found, code = self.found, frame.f_code
        if found is not None and event == "call" and code.co_filename.startswith(PACKAGE):
            with self._lock:
                found[code.co_filename.removeprefix(PACKAGE), code.co_qualname] += 1


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
    return min(found[WARM_UPS:], key=Counter.total)


def calls_in_process(folder: Path) -> dict[str, Calls]:
    """Return the calls of some work in this process, in the thread that asks."""
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

        work: dict[str, Callable[[], object]] = {
            "upsert": lambda: table.upsert({"id": 1, "v": 1}),
            "get": lambda: table.get(1),
            "transfer": transfer,
        }
        table.upsert([{"id": 1, "v": 1}, {"id": 2, "v": 2}])
        return {name: _counted(counter, each) for name, each in work.items()}


def _counted(counter: CallCounter, work: Callable[[], object]) -> Calls:
    """Return the fewest calls of some tries."""
    found: list[Calls] = []
    for _ in range(WARM_UPS):
        counter.found = Counter()
        sys.setprofile(counter)
        try:
            work()
        finally:
            sys.setprofile(None)
        found.append(counter.found)
    return min(found, key=Counter.total)


def main() -> None:
    """Print the calls, by module, and how many they are."""
    if "--local" in sys.argv[1:]:
        with tempfile.TemporaryDirectory() as folder:
            for name, calls in calls_in_process(Path(folder)).items():
                modules = len({file for file, _ in calls})
                print(f"{name}: {calls.total()} calls in {modules} modules")
        return
    with tempfile.TemporaryDirectory() as folder:
        found = calls_of_apply(Path(folder))
    for (file, function), count in sorted(found.items()):
        print(f"{count:4} {file}  {function}")
    print(f"{found.total()} calls in {len({file for file, _ in found})} modules")


if __name__ == "__main__":
    sys.exit(main())
