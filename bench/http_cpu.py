"""HTTP CPU: what a request costs a server of processor time, `python -m bench.http_cpu`.

    python -m bench.http_cpu [--rounds N] [--seconds S] [--clients N] [SOURCE ...]

Each SOURCE is the `src` of a checkout; without one it is that of this checkout. Each serves a store
of its own by `siltstone serve`, a process of its own, and all stay open; in each round the clients,
threads of this process, ask one server after the other. The system says what a server used: its
processor time, and how often one of its threads gave up a core or lost it. The page shows the
median of the rounds, the lowest and the highest. It needs Linux.

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
import tempfile
from collections.abc import Callable, Generator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from bench.http_client import Connection
from bench.measure import Operation, run_for

_ROWS = 100_000
_WARM_UP_S = 1.0
_TICKS = os.sysconf("SC_CLK_TCK")
_HERE = Path(__file__).parents[1]
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


def main() -> None:
    """Measure each source in turns, and print what was found."""
    parser = argparse.ArgumentParser("python -m bench.http_cpu", description=__doc__)
    parser.add_argument("sources", nargs="*", type=Path, default=[_HERE / "src"])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--clients", type=int, default=16)
    given = parser.parse_args()
    found: dict[Path, dict[str, list[float]]] = {source: {} for source in given.sources}
    with tempfile.TemporaryDirectory(prefix="siltstone-http-") as folder, ExitStack() as open_:
        servers = {
            source: open_.enter_context(_served(source, Path(folder) / str(number)))
            for number, source in enumerate(given.sources)
        }
        for server in servers.values():
            for work in _WORK.values():
                _measured(server, work, given.clients, _WARM_UP_S, 0)
        for turn, (source, server) in itertools.product(
            range(1, given.rounds + 1), servers.items()
        ):
            for name, work in _WORK.items():
                for what, value in _measured(
                    server, work, given.clients, given.seconds, turn
                ).items():
                    found[source].setdefault(f"{name}: {what}", []).append(value)
    for source, rounds in found.items():
        print(source)
        for name, values in rounds.items():
            print(f"  {name:45} {median(values):8.1f}   {min(values):.1f} to {max(values):.1f}")


@contextmanager
def _served(source: Path, store: Path) -> Generator[Server]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(source.resolve()), str(_HERE)])}
    subprocess.run(
        [sys.executable, "-c", _MAKE, str(store), str(_ROWS)],
        env=environment,
        cwd=_HERE,
        check=True,
    )
    command = [sys.executable, "-m", "siltstone", "serve", "--db", str(store), "--port", "0"]
    server = subprocess.Popen(
        command,
        env=environment,
        cwd=_HERE,
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

if __name__ == "__main__":
    main()
