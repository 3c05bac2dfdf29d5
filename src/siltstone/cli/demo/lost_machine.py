"""Lost machine: the demo of a mirror, from the server of a bucket to the summary.

load, first copy ─▶ ship commits, read them at the URL ─▶ kill the owner, delete its directory
                    ▲                                                     │
                    └──── adopt the mirror ◀─ compare ◀─ restore ◀────────┘
─▶ read the URL and the store side by side ─▶ ask ─▶ summary
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa

from siltstone import admin
from siltstone.cli.demo import data, model, report
from siltstone.cli.demo.bucket_server import DemoServer
from siltstone.cli.demo.checks import Findings, differences, rows_of, violations
from siltstone.cli.demo.crash import WAIT_S, killed, survived
from siltstone.cli.demo.run import checked_run
from siltstone.cli.demo.writer import Writer
from siltstone.cli.output import Form
from siltstone.cli.progress import progress_bar
from siltstone.cli.sessions import note
from siltstone.store import Store, connect

LOOK_S = 0.25
SEEN_MAX = 4
"""Of so many seqs a reader keeps all rows, to compare them with the restored store's."""
PAST_CHECKS = 5

Rows = dict[str, pa.Table]


@dataclass
class LostMachine:
    """One machine that is lost: what it had acknowledged, and what came back.

    `seen`: what a reader at the URL saw, by seq. `newest_seen`: its last seq. Of the directory:
    how many files and bytes were deleted.
    """

    acknowledged: dict[int, int] = field(default_factory=dict[int, int])
    latencies_s: list[float] = field(default_factory=list[float])
    seen: dict[int, Rows] = field(default_factory=dict[int, Rows])
    newest_seen: int = 0
    files: int = 0
    nbytes: int = 0
    seconds: float = 0.0
    restored_seq: int = 0
    restored_bytes: int = 0
    restore_s: float = 0.0
    compared_rows: int = 0


def run(
    server: AbstractContextManager[DemoServer],
    *,
    seconds: float,
    threads: int,
    losses: int,
    keep: Path | None,
    form: Form,
    is_trusted: bool = False,
) -> None:
    """Run the demo of a mirror.

    Args:
        server: Runs during the demo.
        seconds: How long the owners write, all together.
        threads: Of each owner.
        losses: How many owners are killed, and lose their directory.
        keep: Where the store is to be, if it is to be kept.
        is_trusted: The server is none that siltstone knows.

    Raises:
        typer.Exit: With 1, if any check was violated.
        UnavailableError: A package that it needs is not installed.
    """
    with checked_run(keep) as (path, findings):
        note("reading the flights of 2013")
        flights = data.flights()
        with server as running:
            note(f"{running.name} serves a bucket, for this run alone")
            demo = MirrorDemo(path, running.url, threads, flights, findings, is_trusted)
            loaded = demo.load()
            start, all_lost = 0, list[LostMachine]()
            for number in range(1, losses + 1):
                note(f"machine {number} of {losses}")
                lost = demo.work(start, seconds / losses)
                demo.come_back(start, lost)
                start = max(lost.acknowledged, default=start) + threads
                all_lost.append(lost)
            print_losses(all_lost, form)
            demo.look_again(all_lost, form)
            report.print_summary(_facts(running, loaded, all_lost), findings, form)


@dataclass(frozen=True, slots=True)
class MirrorDemo:
    """The steps of the demo: the store at `path`, its mirror at `url`, `threads` that write."""

    path: Path
    url: str
    threads: int
    flights: pa.Table
    findings: Findings
    is_trusted: bool
    """The server is none that siltstone knows; see `admin.mirror_store`."""

    def load(self) -> dict[str, int]:
        """Make the store and its first copy; return the rows of each table that is loaded."""
        with connect(self.path) as store:
            loaded = model.prepare(store)
            store.checkpoint()
            first = self._copy()
        note(f"the mirror {self.url} has seq {first.seq}: {first.files} files, {_mb(first.nbytes)}")
        return loaded

    def _copy(self, *, adopt: bool = False) -> admin.Mirrored:
        """Have all that is flushed in the bucket."""
        return admin.mirror_store(
            self.path, self.url, adopt=adopt, trust_conditional_puts=self.is_trusted
        )

    def work(self, start: int, seconds: float) -> LostMachine:
        """Have an owner write, read at the URL meanwhile; then kill it and delete its directory."""
        note(f"{self.threads} threads land flights for {seconds:.0f} seconds, each commit shipped")
        lost = LostMachine()
        with (
            Writer(self.path, start, self.threads, url=self.url) as writer,
            connect(self.url, read_only=True) as reader,
            progress_bar("shipping") as told,
        ):
            writer.enough.wait(WAIT_S)
            began, first_seq = time.perf_counter(), reader.seq
            while (passed := time.perf_counter() - began) < seconds or (
                lost.newest_seen <= first_seq and passed < WAIT_S
            ):
                told(f"{len(writer.acknowledged):,} landings", int(passed), int(seconds))
                self._look(reader, first_seq, lost)
                time.sleep(LOOK_S)
            lost.acknowledged = killed(writer, self.findings)
            lost.latencies_s = writer.latencies_s
            lost.seconds = time.perf_counter() - began
        files = [each for each in self.path.rglob("*") if each.is_file()]
        lost.files, lost.nbytes = len(files), sum(each.stat().st_size for each in files)
        note(
            f"the owner is killed after {len(lost.acknowledged):,} landings; its directory is"
            f" deleted: {lost.files} files, {_mb(lost.nbytes)}"
        )
        shutil.rmtree(self.path)
        return lost

    def _look(self, reader: Store, first_seq: int, lost: LostMachine) -> None:
        """Check the newest snapshot at the URL and one of the past; keep what some of them had."""
        with reader.snapshot() as now:
            self.findings.note("at the URL, now", violations(now))
            lost.newest_seen = now.seq
            past = int(np.random.default_rng(now.seq).integers(first_seq, now.seq, endpoint=True))
            if len(lost.seen) < SEEN_MAX:
                lost.seen[now.seq] = rows_of(now)
        with reader.snapshot(seq=past) as snapshot:
            self.findings.note("at the URL, past", violations(snapshot))

    def come_back(self, start: int, lost: LostMachine) -> None:
        """Restore the store, compare it with all that is known of it, and go on with the mirror."""
        note(f"restoring {self.url}")
        began = time.perf_counter()
        made = admin.restore(self.url, self.path)
        lost.restored_seq, lost.restored_bytes = made.seq, made.nbytes
        with connect(self.path, background=False) as store:
            lost.restore_s = time.perf_counter() - began
            note(f"it is open at seq {store.seq} after {lost.restore_s:.1f} s; comparing")
            left = survived(store, start, lost.acknowledged, self.threads)
            self.findings.note("nothing shipped is lost", left)
            self._compare(store, lost)
            found = store.verify(deep=True)
            self.findings.note("every byte is sound", [] if found.is_sound else [str(found)])
            store.checkpoint()
            self._copy(adopt=True)

    def _compare(self, store: Store, lost: LostMachine) -> None:
        note_of = self.findings.note
        seqs = sorted(lost.acknowledged.values())[:: max(1, len(lost.acknowledged) // PAST_CHECKS)]
        for seq in [store.seq, *seqs]:
            with store.snapshot(seq=seq) as snapshot:
                note_of("restored totals are the sums", violations(snapshot))
        for seq, rows in lost.seen.items():
            with store.snapshot(seq=seq) as snapshot:
                note_of("restored is what the URL had", differences(rows, rows_of(snapshot)))
            lost.compared_rows += sum(len(each) for each in rows.values())
        landed = store["flights"].to_arrow()
        note_of("landings are those of 2013", model.invented(landed, self.flights))
        lost.compared_rows += len(landed)

    def look_again(self, all_lost: Sequence[LostMachine], form: Form) -> None:
        """Compare the mirror and the store, now and at a seq before each loss; ask the mirror."""
        seqs = sorted({seq for lost in all_lost for seq in [*lost.seen][-1:]})
        with (
            connect(self.path, read_only=True) as store,
            connect(self.url, read_only=True) as reader,
        ):
            for seq in [*seqs, store.seq]:
                with store.snapshot(seq=seq) as ours, reader.snapshot(seq=seq) as theirs:
                    other = differences(rows_of(ours), rows_of(theirs))
                    self.findings.note("the URL has what is here", other)
            report.print_answers(reader, seqs, form)


def print_losses(all_lost: Sequence[LostMachine], form: Form) -> None:
    """Print what each machine had, and what came back."""
    columns = (
        *("machine", "shipped landings", "last seq", "read at the URL to", "files deleted"),
        *("restored to seq", "restore, s", "rows compared"),
    )
    lines = [
        (
            *(number, len(lost.acknowledged), max(lost.acknowledged.values(), default=0)),
            *(lost.newest_seen, lost.files, lost.restored_seq, round(lost.restore_s, 1)),
            lost.compared_rows,
        )
        for number, lost in enumerate(all_lost, 1)
    ]
    report.print_titled("What was lost, and what came back", columns, lines, form)


def _facts(
    server: DemoServer, loaded: dict[str, int], all_lost: Sequence[LostMachine]
) -> dict[str, object]:
    latencies = [each for lost in all_lost for each in lost.latencies_s]
    return {
        "server of the bucket": server.name,
        **{f"rows of {name}": rows for name, rows in loaded.items()},
        "shipped landings": len(latencies),
        "shipped per second": report.rate(len(latencies), sum(lost.seconds for lost in all_lost)),
        **report.latency_facts("shipped ", latencies),
        "directories deleted": len(all_lost),
        "bytes deleted": sum(lost.nbytes for lost in all_lost),
        "bytes restored": sum(lost.restored_bytes for lost in all_lost),
        "longest restore, s": round(max(lost.restore_s for lost in all_lost), 1),
    }


def _mb(nbytes: int) -> str:
    return f"{nbytes / 1e6:.1f} MB"
