"""Together: refresh stream, row transactions, checkpoints, merges, optimize and queries at once.

Each round of queries pins one seq and asks Spark and DuckDB the same at it: the answers must be
equal, and what `queries` says must hold in both.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from decimal import Decimal
from functools import partial

import numpy as np
from pyspark.sql import SparkSession

from examples.tpch.data import BaseTables
from examples.tpch.pipeline import RefreshStream, use_pool
from examples.tpch.queries import QUERIES, Ask, Rows, difference, violations
from siltstone.api.transaction import Transaction
from siltstone.cli.demo.checks import Findings
from siltstone.cli.demo.crew import Crew
from siltstone.spark import optimize, snapshot
from siltstone.store import Store

CHECKPOINT_EVERY_S = 2.0
OPTIMIZE_EVERY_S = 5.0
REFRESH_PAUSE_S = 0.1
ATTEMPTS = 1_000
MOVE_CENTS_MAX = 10_000
MOVE_PAUSE_S = 0.02  # the machine is shared with a JVM
MERGE_PAUSE_S = 3.0
# A round of queries that has begun is finished; it takes as many times as long as there are rows.
JOIN_TIMEOUT_S, JOIN_TIMEOUT_S_PER_SCALE = 240.0, 600.0


class Together:
    """Runs all parts until the time is over, and at least one round of queries."""

    def __init__(
        self,
        spark: SparkSession,
        store: Store,
        stream: RefreshStream,
        base: BaseTables,
        findings: Findings,
    ) -> None:
        self._spark, self._store, self._findings = spark, store, findings
        self.stream, self.base = stream, base
        self._crew = Crew(findings, JOIN_TIMEOUT_S + JOIN_TIMEOUT_S_PER_SCALE * base.scale)
        self._stop, self.done = self._crew.stop, self._crew.done
        self.optimizes = self.rounds = self._answers = 0
        self.answers_s = defaultdict[str, list[float]](list)  # of a query and an engine

    def run(
        self, seconds: float, threads: int, restarts: int, on_tick: Callable[[float], None]
    ) -> None:
        """Run for `seconds`, with `threads` of row transactions and `restarts` of the stream."""
        movers = [partial(self._move, np.random.default_rng(number)) for number in range(threads)]
        refresh = partial(self._refresh, seconds, restarts)
        checkpoint = partial(self._crew.checkpoint, self._store, CHECKPOINT_EVERY_S)
        merge = partial(self._crew.merge, self._store, MERGE_PAUSE_S)
        parts = [refresh, *movers, checkpoint, merge, self._optimize, self._ask]
        self._crew.run(parts, seconds, on_tick)
        self._crew.guarded(self._settle)

    def said(self) -> str:
        """Return for the user what was done so far."""
        sets, moves = len(self.stream.applied), len(self.done.latencies_s)
        return f"{sets} sets, {moves:,} row transactions, {self._answers} answers"

    def _refresh(self, seconds: float, restarts: int) -> None:
        """Feed the stream, and stop it in full flight a few times, evenly over the run."""
        began = time.monotonic()
        self.stream.start()
        while not self._stop.wait(REFRESH_PAUSE_S):
            self.stream.require_alive()
            if self.stream.wants_more:
                self.stream.put()
            due = int((time.monotonic() - began) / seconds * (restarts + 1))
            if self.stream.restarts < min(due, restarts):
                self.stream.restart()
        while self.stream.restarts < restarts:  # the run was too short for them
            self.stream.restart()
        self.stream.drain()

    def _move(self, random: np.random.Generator) -> None:
        """Move money between two customers: single rows, from plain Python, without Spark."""
        attempts = [0]
        while not self._stop.wait(MOVE_PAUSE_S):
            giver, taker = 1 + random.choice(self.base.customers, 2, replace=False)
            amount = Decimal(int(random.integers(1, MOVE_CENTS_MAX))) / 100
            changes = {int(giver): -amount, int(taker): amount}
            began = time.perf_counter()
            self._store.run(partial(_transfer, changes, attempts), ATTEMPTS)
            self.done.latencies_s.append(time.perf_counter() - began)
        self.done.attempts += attempts[0]

    def _optimize(self) -> None:
        use_pool(self._spark, "upkeep")
        while not self._stop.wait(OPTIMIZE_EVERY_S):
            optimize(self._spark, self._store.path)
            self.optimizes += 1

    def _ask(self) -> None:
        use_pool(self._spark, "queries")
        while not self._stop.is_set():
            self._round()

    def _round(self) -> None:
        """Ask both engines everything at one seq."""
        with (
            self._store.snapshot() as here,
            snapshot(self._spark, self._store, seq=here.seq) as there,
        ):
            there.create_views()
            asks: dict[str, Ask] = {
                "Spark": lambda statement: self._spark.sql(statement).collect(),
                "DuckDB": lambda statement: here.sql(statement).fetchall(),
            }
            for query in QUERIES:
                self._compare(query, asks, here.seq)
            for engine, ask in asks.items():
                wrong = [f"at seq {here.seq} {text}" for text in violations(ask, self.base)]
                self._findings.note(f"sums in {engine}", wrong)
        self.rounds += 1

    def _compare(self, query: str, asks: Mapping[str, Ask], seq: int) -> None:
        answers: list[Rows] = []
        for engine, ask in asks.items():
            began = time.perf_counter()
            answers.append(ask(QUERIES[query]))
            self.answers_s[f"{query} {engine}"].append(time.perf_counter() - began)
        found = difference(*answers)
        wrong = [] if found is None else [f"at seq {seq} the answers to {query} differ: {found}"]
        self._findings.note("Spark answers as DuckDB", wrong)
        self._answers += 1

    def _settle(self) -> None:
        """Checkpoint, merge and optimize what is left, and look once more."""
        self._crew.settle(self._store)
        optimize(self._spark, self._store.path)
        self.optimizes += 1
        self._round()
        self._findings.note("each set applied once", self.stream.violations())


def _transfer(changes: Mapping[int, Decimal], attempts: list[int], tx: Transaction) -> None:
    """Change the balances of customers; `attempts` counts how often that was begun."""
    attempts[0] += 1
    for key, change in changes.items():
        row = tx["customer"].get(key)
        assert row is not None, "customers are never deleted"
        balance = row["c_acctbal"]
        assert isinstance(balance, Decimal)
        tx["customer"].update(key, c_acctbal=balance + change)
