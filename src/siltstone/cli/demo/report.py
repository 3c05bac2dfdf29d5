"""Report: what the demo prints: a few answers, the past and the present, and the summary."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

import numpy as np

from siltstone.cli.demo.checks import Findings
from siltstone.cli.demo.crash import Crashed
from siltstone.cli.demo.crew import Done
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


def print_answers(store: Store, past: Sequence[int], form: Form) -> None:
    """Print SQL over one snapshot, and the same question at several seqs."""
    with store.snapshot() as now:
        for title, statement in ANSWERS.items():
            answer = now.sql(statement)
            print_titled(title, answer.columns, answer.fetchall(), form)
    columns, lines = [], []
    for seq in [*past, store.seq]:
        with store.snapshot(seq=seq) as then:
            answer = then.sql(_PAST)
            columns = answer.columns
            lines += [(seq, *row) for row in answer.fetchall()]
    print_titled("The past and the present", ["seq", *columns], lines, form)


def print_summary(facts: Mapping[str, object], findings: Findings, form: Form) -> None:
    """Print facts of a run, what was checked, and how long it took."""
    checks = {f"checks: {name}": n for name, n in sorted(findings.checked.items())}
    end = {
        "violated checks": len(findings.wrong),
        "seconds in all": round(time.perf_counter() - findings.began_s, 1),
    }
    lines = [*facts.items(), *checks.items(), *end.items()]
    print_titled("Summary", ["fact", "value"], lines, form)


def flight_facts(
    loaded: Mapping[str, int], done: Done, crashes: Sequence[Crashed]
) -> dict[str, object]:
    """Return the facts of a run on flights."""
    return {
        **{f"rows of {name}": rows for name, rows in loaded.items()},
        "landings": len(done.latencies_s),
        "seconds of replay": round(done.seconds, 1),
        **crew_facts(done),
        "kills": len(crashes),
        "acknowledged before a kill": sum(each.acknowledged for each in crashes),
        "longest reopening, ms": round(1e3 * max((c.reopen_s for c in crashes), default=0.0)),
    }


def crew_facts(done: Done, kind: str = "") -> dict[str, object]:
    """Return rates and latencies of a kind of transactions, and the maintenance meanwhile."""
    return {
        f"{kind}transactions per second": rate(len(done.latencies_s), done.seconds),
        **latency_facts(kind, done.latencies_s),
        "conflicts run again": done.attempts - len(done.latencies_s),
        "checkpoints": len(done.checkpoint_seqs),
        "merges": done.merges,
    }


def latency_facts(kind: str, latencies_s: Sequence[float]) -> dict[str, object]:
    """Return the median and the 99th percentile; zeros if there was nothing to measure."""
    p50, p99 = np.percentile(np.array(latencies_s or [0.0]) * 1e3, [50, 99]).round(2).tolist()
    return {f"{kind}latency p50, ms": p50, f"{kind}latency p99, ms": p99}


def rate(count: int, seconds: float) -> float:
    """Return how many there were per second."""
    return round(count / seconds, 1) if seconds else 0.0


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
