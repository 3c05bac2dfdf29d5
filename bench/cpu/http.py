"""HTTP: what a request costs a server of processor time.

Each source serves a store of its own by `siltstone serve`, a process of its own, and all stay open;
in each round the clients, threads of this process, ask one server after the other. The system says
what a server used: its processor time, and how often one of its threads gave up a core or lost it.
It needs Linux.

"nothing" asks whether a table exists: a request that passes everything but a commit. "row
transaction" upserts one row by `transaction/apply`, and is answered when it is durable.
"""

from __future__ import annotations

import argparse
import itertools
import os
import random
import subprocess
import sys
from collections.abc import Callable, Generator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.cpu.sources import HERE, Found, environment, show
from bench.http_client import Connection
from bench.measure import Operation, run_for

_ROWS = 100_000
_WARM_UP_S = 1.0
_TICKS = os.sysconf("SC_CLK_TCK")
_MAKE = """
import sys
import siltstone as st
from bench import data
with st.connect(sys.argv[1], background=False) as db:
    db.create_table("accounts", data.ACCOUNTS, primary_key="id").upsert(data.base(int(sys.argv[2])))
    db.checkpoint()
    db.merge()
"""


@dataclass(frozen=True, slots=True)
class Used:
    """What a process has used up to now."""

    cpu_us: float
    switches: int

    @classmethod
    def of(cls, process: int) -> Used:
        """Return it, of all threads that live; those of a server live as long as it does."""
        root = Path(f"/proc/{process}")
        fields = (root / "stat").read_text().rpartition(")")[2].split()
        switches = 0
        for task in (root / "task").iterdir():
            lines = (task / "status").read_text().splitlines()
            switches += sum(int(line.split()[1]) for line in lines if "ctxt_switches" in line)
        return cls((int(fields[11]) + int(fields[12])) / _TICKS * 1e6, switches)


@dataclass(frozen=True, slots=True)
class Server:
    """One that answers."""

    process: int
    port: int


def main(folder: Path, given: argparse.Namespace) -> None:
    """Measure each source in turns, and print what was found."""
    found: Found = {source: {} for source in given.sources}
    with ExitStack() as open_:
        servers = {
            source: open_.enter_context(_served(source, folder / str(number)))
            for number, source in enumerate(given.sources)
        }
        for server, work in itertools.product(servers.values(), _WORK.values()):
            _measured(server, work, given.clients, _WARM_UP_S, 0)
        turns = itertools.product(range(1, given.rounds + 1), servers.items(), _WORK.items())
        for turn, (source, server), (name, work) in turns:
            figures = _measured(server, work, given.clients, given.seconds, turn)
            for what, value in figures.items():
                found[source].setdefault(f"{name}: {what}", []).append(value)
    show(found)


@contextmanager
def _served(source: Path, store: Path) -> Generator[Server]:
    subprocess.run(
        [sys.executable, "-c", _MAKE, str(store), str(_ROWS)],
        env=environment(source),
        cwd=HERE,
        check=True,
    )
    command = [sys.executable, "-m", "siltstone", "serve", "--db", str(store), "--port", "0"]
    server = subprocess.Popen(
        command,
        env=environment(source),
        cwd=HERE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        line = server.stdout.readline() if server.stdout else ""
        yield Server(server.pid, int(line.strip().rpartition(":")[2]))
    finally:
        server.terminate()
        server.communicate()


def _measured(
    server: Server, work: Callable[[Connection, random.Random], None], clients: int,
    seconds: float, turn: int,
) -> dict[str, float]:  # fmt: skip
    with ExitStack() as open_:
        operations: list[Operation] = []
        for number in range(clients):
            connection = open_.enter_context(closing(Connection(server.port)))
            operations.append(_operation(work, connection, random.Random(turn * clients + number)))
        before = Used.of(server.process)
        done = run_for(seconds, operations)
        after = Used.of(server.process)
    return {
        "server's CPU of each, us": (after.cpu_us - before.cpu_us) / done.count,
        "context switches of each": (after.switches - before.switches) / done.count,
        "requests/s": done.rate,
        "p50, ms": done.percentile_ms(0.5),
        "p99, ms": done.percentile_ms(0.99),
    }


def _operation(
    work: Callable[[Connection, random.Random], None], connection: Connection, chance: random.Random
) -> Operation:
    def ask() -> int:
        work(connection, chance)
        return 0

    return ask


def _nothing(connection: Connection, _: random.Random) -> None:
    connection.post("/v1/table/accounts/exists", {})


def _row_transaction(connection: Connection, chance: random.Random) -> None:
    row = {
        "id": chance.randrange(_ROWS),
        "balance": chance.randrange(1_000),
        "name": "a client of ours",
        "updated": "2026-11-21T10:00:00",
    }
    operation = {"table": "accounts", "op": "upsert", "rows": [row]}
    connection.post("/v1/transaction/apply", {"ops": [operation]})


_WORK = {"nothing": _nothing, "row transaction": _row_transaction}
