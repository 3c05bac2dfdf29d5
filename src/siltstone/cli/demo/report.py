"""Report: what the demo prints: a few answers, the past beside the present, and the summary."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from siltstone.api.snapshot import Snapshot
from siltstone.cli.demo.checks import Findings
from siltstone.cli.demo.crash import Crashed
from siltstone.cli.demo.replay import Replayed
from siltstone.cli.output import Form, emit
from siltstone.store import Store

ANSWERS = {
    "Busiest routes": """
        select f.origin || ' to ' || coalesce(a.name, f.dest) as route, count(*) as flights,
               sum(f.miles)::bigint as miles
        from flights f left join airports a on a.faa = f.dest
        group by all order by flights desc, route limit 5""",
    "Most delayed carriers": """
        select l.name as carrier, count(*) as flights, round(avg(f.minutes_late), 1) as minutes_late
        from flights f join airlines l using (carrier)
        group by all having count(*) >= 20 order by minutes_late desc, carrier limit 5""",
    "Planes by manufacturer": """
        select p.manufacturer, count(*) as planes, sum(t.flights)::bigint as flights,
               sum(t.miles)::bigint as miles
        from plane_totals t join planes p using (tailnum)
        group by all order by flights desc, manufacturer limit 5""",
}
_PAST = """
    select count(*) as flights, sum(miles)::bigint as miles, count(distinct tailnum) as planes,
           max(landed) as last_landing from flights"""


@dataclass(frozen=True, slots=True)
class DemoRun:
    """All parts of one run."""

    loaded: dict[str, int]
    replayed: Replayed
    crashes: Sequence[Crashed]
    findings: Findings
    seconds: float


def print_answers(store: Store, past: Sequence[int], form: Form) -> None:
    """Print SQL over one snapshot, and the same question at several seqs."""
    with store.snapshot() as now:
        for title, statement in ANSWERS.items():
            answer = now.sql(statement)
            print_titled(title, answer.columns, answer.fetchall(), form)
    lines: list[tuple[object, ...]] = []
    columns: list[str] = []
    for seq in [*past, store.seq]:
        with store.snapshot(seq=seq) as then:
            columns, line = _state(then)
            lines.append((seq, *line))
    print_titled("The past beside the present", ["seq", *columns], lines, form)


def _state(snapshot: Snapshot) -> tuple[list[str], tuple[object, ...]]:
    answer = snapshot.sql(_PAST)
    return answer.columns, answer.fetchall()[0]


def print_summary(ran: DemoRun, form: Form) -> None:
    """Print rates, latencies and checks."""
    print_titled("Summary", ["fact", "value"], list(summary(ran).items()), form)


def summary(ran: DemoRun) -> dict[str, object]:
    """Return the facts of a run."""
    done = ran.replayed
    p50, p99 = percentiles_ms(done.latencies_s)
    commits = len(done.latencies_s)
    facts: dict[str, object] = {f"rows of {name}": rows for name, rows in ran.loaded.items()}
    facts |= {
        "landings": commits,
        "seconds of replay": round(done.seconds, 1),
        "transactions per second": round(commits / done.seconds) if done.seconds else 0,
        "latency p50, ms": p50,
        "latency p99, ms": p99,
        "conflicts run again": done.attempts - commits,
        "checkpoints": done.checkpoints,
        "merges": done.merges,
        "kills": len(ran.crashes),
        "acknowledged before a kill": sum(c.acknowledged for c in ran.crashes),
        "longest reopening, ms": round(1e3 * max((c.reopen_s for c in ran.crashes), default=0.0)),
    }
    facts |= {f"checks: {name}": n for name, n in sorted(ran.findings.checked.items())}
    return facts | {
        "violated checks": len(ran.findings.wrong),
        "seconds in all": round(ran.seconds, 1),
    }


def percentiles_ms(latencies_s: Sequence[float]) -> tuple[float, float]:
    """Return the median and the 99th percentile; zeros if there was nothing to measure."""
    if not latencies_s:
        return 0.0, 0.0
    p50, p99 = np.percentile(np.array(latencies_s) * 1e3, [50, 99])
    return round(float(p50), 2), round(float(p99), 2)


def print_titled(
    title: str, columns: Sequence[str], rows: Sequence[Sequence[object]], form: Form
) -> None:
    """Print a table with its title; in NDJSON the title is the field `part` of each row."""
    if form is Form.TABLE:
        emit(columns, rows, form, title)
    elif form is Form.TSV:
        print(f"# {title}")
        emit(columns, rows, form)
    else:
        emit(["part", *columns], [(title, *row) for row in rows], form)
