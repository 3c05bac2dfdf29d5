"""HTTP: row transactions of 16 clients, point reads of one, and scans beside the same one embedded.

The server is a process of its own (`siltstone serve`); the clients are ours, on the same two cores.
Each transaction upserts one row by `transaction/apply` and is answered when it is durable. The same
clients write once more while another one asks for `/metrics` each 100 ms.
"""

from __future__ import annotations

import random
import subprocess
import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager

from bench import data
from bench.http_client import Connection
from bench.measure import Operation, median, run_for, timed
from bench.workload import Metrics, Place

_ROWS = 2_000_000
_CLIENTS = 16
_REPEATS = 5
_TABLE = "/v1/table/accounts"
_SCRAPE_EVERY_S = 0.1


class Serving:
    name = "http"
    title = "over HTTP"

    def prepare(self, peer: Place) -> None:
        peer.store.load(data.base(peer.sizes.rows(_ROWS)))
        peer.store.settle()

    def measure(self, peer: Place, turn: int) -> Metrics:
        rows, seconds = peer.sizes.rows(_ROWS), peer.sizes.seconds
        peer.store.scan_all()
        embedded = median([timed(peer.store.scan_all) for _ in range(_REPEATS)])
        narrow = median([timed(peer.store.scan_sum) for _ in range(_REPEATS)])
        peer.close()
        with _server(peer) as port:
            scan = _scan(port, {}, rows)
            one = _scan(port, {"columns": {"column_names": ["balance"]}}, rows)
            reads = run_for(seconds, [_reader(port, turn, rows)])
            writers = [_writer(port, turn * _CLIENTS + n, rows) for n in range(_CLIENTS)]
            run_for(seconds / 2, writers)
            writes = run_for(2 * seconds, writers)
            with _scraped(port):
                beside = run_for(2 * seconds, writers)
        return {
            "row transactions/s, 16 clients": writes.rate,
            "p50 ms of them": writes.percentile_ms(0.5),
            "p99 ms of them": writes.percentile_ms(0.99),
            "rate beside scrapes / alone": beside.rate / writes.rate,
            "p99 beside scrapes / alone": beside.percentile_ms(0.99) / writes.percentile_ms(0.99),
            "point read p50 ms": reads.percentile_ms(0.5),
            "point read p99 ms": reads.percentile_ms(0.99),
            "scan / embedded": embedded / scan,
            "narrow scan / embedded": narrow / one,
            "scan rows/s": rows / scan,
        }


@contextmanager
def _server(peer: Place) -> Generator[int]:
    command = [sys.executable, "-m", "siltstone", "serve", "--db", str(peer.path), "--port", "0"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        line = server.stdout.readline() if server.stdout else ""
        yield int(line.strip().rpartition(":")[2])
    finally:
        server.terminate()
        server.communicate()


@contextmanager
def _scraped(port: int) -> Generator[None]:
    """Have `/metrics` asked for each 100 ms."""
    connection, over = Connection(port), threading.Event()

    def scrape() -> None:
        while not over.wait(_SCRAPE_EVERY_S):
            connection.get("/metrics")

    scraper = threading.Thread(target=scrape, daemon=True)
    scraper.start()
    try:
        yield
    finally:
        over.set()
        scraper.join()
        connection.close()


def _scan(port: int, body: dict[str, object], rows: int) -> float:
    connection = Connection(port)

    def work() -> None:
        found = connection.scan(f"{_TABLE}/scan", body)
        if found != rows:
            message = f"{found} rows came of {rows}"
            raise RuntimeError(message)

    work()
    seconds = median([timed(work) for _ in range(_REPEATS)])
    connection.close()
    return seconds


def _reader(port: int, seed: int, rows: int) -> Operation:
    connection, chance = Connection(port), random.Random(seed)

    def read() -> int:
        connection.post(f"{_TABLE}/query", {"filter": f"id = {chance.randrange(rows)}", "k": 1})
        return 0

    return read


def _writer(port: int, seed: int, rows: int) -> Operation:
    connection, chance = Connection(port), random.Random(seed)

    def write() -> int:
        row = {
            "id": chance.randrange(rows),
            "balance": chance.randrange(1_000),
            "name": "a client of ours",
            "updated": "2026-11-21T10:00:00",
        }
        operation = {"table": "accounts", "op": "upsert", "rows": [row]}
        connection.post("/v1/transaction/apply", {"ops": [operation]})
        return 0

    return write
