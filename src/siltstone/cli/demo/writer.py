"""Writer: a process that lands flights until it is killed, and what it acknowledged before.

    python -m siltstone.cli.demo.writer STORE START THREADS [URL]

It says "id seq latency_us" of each landing. With the URL of a mirror it owns the mirror, too, and a
landing is acknowledged when its commit is in the bucket.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Self

from siltstone.cli.demo import data, model
from siltstone.cli.demo.data import Flight
from siltstone.cli.demo.replay import Shared
from siltstone.options import StoreOptions
from siltstone.process.context_exits import close_on_exit
from siltstone.process.retry import Retry
from siltstone.store import Store, connect

CHECKPOINT_EVERY_S = 0.2
MIRRORED_EVERY_S = 1.0
"""With a mirror each checkpoint is a record in the bucket."""
_FAILED = 1


class Writer:
    """The process, as who started it sees it; it is killed when the block ends, at the latest.

    A thread hears it: `acknowledged` has flight id -> seq; `enough` is set once these are
    `enough_count`, or once it has ended.
    """

    def __init__(
        self, path: Path, start: int, threads: int, *, url: str = "", enough_count: int = 1
    ) -> None:
        self.acknowledged: dict[int, int] = {}
        self.latencies_s: list[float] = []
        self.enough = threading.Event()
        self._enough_count = enough_count
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the block
        # What it has there, it cannot delete when it is killed.
        self._folder = tempfile.TemporaryDirectory(prefix="siltstone-demo-writer-")
        command = [sys.executable, "-m", "siltstone.cli.demo.writer", str(path), str(start)]
        self._process = subprocess.Popen(
            [*command, str(threads), *([url] if url else [])],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env={**os.environ, "TMPDIR": self._folder.name},
            start_new_session=True,  # Ctrl-C is ours; we kill it
        )
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def __enter__(self) -> Self:
        return self

    __exit__ = close_on_exit

    def close(self) -> None:
        """Kill it. Again: nothing."""
        if not self._errors.closed:
            self.kill()
            self._errors.close()
            self._folder.cleanup()

    def kill(self) -> str:
        """Kill it, if it has not ended, and hear it out; return why it ended by itself, or ""."""
        code = self._process.poll()
        self._process.kill()
        self._process.wait()
        self._listener.join()
        self._errors.seek(0)
        said = self._errors.read().decode(errors="replace").strip().splitlines()
        return "" if code is None else f"the writer ended with {code}: {' '.join(said[-1:])}"

    def _listen(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as lines:  # after a kill it ends with what the pipe still holds
            for line in lines:
                number, seq, latency_us = map(int, line.split())
                self.acknowledged[number] = seq
                self.latencies_s.append(latency_us / 1e6)
                if len(self.acknowledged) >= self._enough_count:
                    self.enough.set()
        self.enough.set()  # it has ended: there is nothing to wait for


def _write(store: Store, flights: Iterator[Flight], land: Callable[[Store, Flight], int]) -> None:
    try:
        for flight in flights:
            began = time.perf_counter()
            seq = land(store, flight)
            latency_us = (time.perf_counter() - began) * 1e6
            # One write of less than PIPE_BUF bytes is whole or not there at all.
            os.write(1, f"{flight['id']} {seq} {latency_us:.0f}\n".encode())
    except BaseException as error:  # noqa: BLE001 - whoever started us reads it
        os.write(2, f"{type(error).__name__}: {error}\n".encode())
        os._exit(_FAILED)


def _synced(store: Store, flight: Flight) -> int:
    return store.run(model.landing(flight, [0]), model.ATTEMPTS).seq


def _shipped(store: Store, flight: Flight) -> int:
    land = model.landing(flight, [0])

    def work() -> int:
        with store.transaction(durability="shipped") as tx:
            land(tx)
        return tx.seq

    return Retry(model.ATTEMPTS).run(work)


def main() -> None:
    """Land flights, and checkpoint all the time, so that the kill may hit anything."""
    path, start, threads, *urls = sys.argv[1:]
    options: StoreOptions = {"segment_bytes": 1 << 20}
    land, every_s = _synced, CHECKPOINT_EVERY_S
    if urls:
        options["mirror"], land, every_s = urls[0], _shipped, MIRRORED_EVERY_S
    flights = Shared(data.landings(data.flights(), int(start)))
    with connect(path, **options) as store:
        for _ in range(int(threads)):
            threading.Thread(target=_write, args=(store, flights, land), daemon=True).start()
        pause = threading.Event()
        while not pause.wait(every_s):
            store.checkpoint()


if __name__ == "__main__":
    main()
