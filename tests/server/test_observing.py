"""The page on observing, the dashboard and the alerts name metrics that are there."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from siltstone.server.metrics.families import FAMILIES
from tests.server.metrics_page import PAGE, written
from tests.test_documents import FENCED

DEPLOY = Path(__file__).parents[2] / "deploy"
DASHBOARD, ALERTS = DEPLOY / "grafana-dashboard.json", DEPLOY / "prometheus-alerts.yml"
PROMTOOL = shutil.which("promtool")
needs_promtool = pytest.mark.skipif(PROMTOOL is None, reason="Debian's package prometheus has it")
PROCESS = {
    f"process_{name}"
    for name in (
        *("cpu_seconds_total", "open_fds", "max_fds", "start_time_seconds"),
        *("resident_memory_bytes", "virtual_memory_bytes"),
    )
}


def series() -> set[str]:
    """Return the names of all series, those of histograms by their suffixes."""
    found = {*PROCESS, "up"}
    for family in FAMILIES:
        suffixes = ("_bucket", "_sum", "_count") if family.kind == "histogram" else ("",)
        found |= {family.name + suffix for suffix in suffixes}
    return found


def named(expression: str) -> set[str]:
    found = re.findall(r"\b(?:siltstone|process)_\w+|\bup\b", re.sub(r'"[^"]*"', "", expression))
    return set(found)


def rules() -> list[dict[str, Any]]:
    (group,) = yaml.safe_load(ALERTS.read_text())["groups"]
    return group["rules"]


def test_the_page_has_the_table_of_all_metrics() -> None:
    page = PAGE.read_text()
    assert page == written(page), "run python -m tests.server.metrics_page"
    assert all(f"`{family.name}`" in page for family in FAMILIES)
    assert all(f"`{name}`" in page for name in PROCESS)


def test_the_code_of_the_page_runs(tmp_path: Path) -> None:
    """In a process of its own: a provider of spans is for all of it, and for ever."""
    pytest.importorskip("opentelemetry.sdk", reason="a package of the group dev")
    page = PAGE.read_text()
    blocks = [fenced[2] for fenced in FENCED.finditer(page) if fenced[1] == "python"]
    assert len(blocks) == 2
    code = "\n".join(
        ["import siltstone as st", *blocks, "print(db.core.works.spans)", "db.close()"]
    )
    command = [sys.executable, "-c", code]
    found = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, timeout=240, check=False
    )
    assert found.returncode == 0, found.stderr
    assert "Spans object" in found.stdout


def test_the_dashboard_shows_metrics_that_are_there() -> None:
    panels = json.loads(DASHBOARD.read_text())["panels"]
    expressions = [target["expr"] for panel in panels for target in panel.get("targets", ())]
    assert len(expressions) > 40
    assert set.union(*map(named, expressions)) - series() == set()
    assert all(named(expression) for expression in expressions)
    assert len({panel["id"] for panel in panels}) == len(panels)


def test_alerts_watch_metrics_that_are_there_and_the_page_says_what_to_do() -> None:
    page = PAGE.read_text()
    for rule in rules():
        assert named(rule["expr"]), rule["alert"]
        assert named(rule["expr"]) <= series(), rule["alert"]
        assert f"| `{rule['alert']}` | " in page
    assert page.count("| `Siltstone") == len(rules())


@needs_promtool
def test_promtool_takes_the_alerts() -> None:
    command = [str(PROMTOOL), "check", "rules", str(ALERTS)]
    found = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert found.returncode == 0, found.stderr
    assert f"{len(rules())} rules found" in found.stdout


LE = 'siltstone_commit_seconds_bucket{job="siltstone", instance="a", le="%s"}'
FIRING = {
    "SiltstoneDown": {'up{job="siltstone", instance="a"}': "0x240"},
    "SiltstoneWritersStopped": {"siltstone_commits_stopped_seconds_total": "0+6x240"},
    "SiltstoneNotDurable": {
        "siltstone_visible_seq": "10+1x240",
        "siltstone_durable_seq": "10x240",
    },
    "SiltstoneMaintenanceFails": {"siltstone_maintenance_failed": "1x240"},
    "SiltstoneWritersSlowed": {"siltstone_commits_slowed_seconds_total": "0+30x240"},
    "SiltstoneCommitsSlow": {LE % "1.0": "0+1x240", LE % "2.5": "0+9x240", LE % "+Inf": "0+9x240"},
    "SiltstoneNotFlushed": {
        "siltstone_checkpoint_lag_seqs": "0+1x240",
        "siltstone_visible_seq": "0+1x240",
        "siltstone_flushed_seq": "0x240",
    },
    "SiltstoneReopened": {"siltstone_epoch": "1+1x240"},
    "SiltstoneNoVacuum": {'siltstone_last_timestamp_seconds{work="vacuum"}': "-9000x240"},
    "SiltstoneNoBackup": {'siltstone_last_timestamp_seconds{work="backup"}': "-130000x240"},
    "SiltstoneServerErrors": {
        'siltstone_requests_total{route="/v1/sql", status="500", instance="a", job="s"}': "0+60x240"
    },
    "SiltstoneMemory": {"siltstone_memory_bytes": "9x240", "siltstone_memory_bytes_max": "8x240"},
    "SiltstoneFiles": {"process_open_fds": "90x240", "process_max_fds": "100x240"},
}
QUIET = {
    'up{job="siltstone", instance="a"}': "1x240",
    "siltstone_commits_stopped_seconds_total": "7x240",
    "siltstone_commits_slowed_seconds_total": "0+1x240",
    "siltstone_visible_seq": "10+1x240",
    "siltstone_durable_seq": "9+1x240",
    "siltstone_flushed_seq": "0+1x240",
    "siltstone_checkpoint_lag_seqs": "10x240",
    "siltstone_maintenance_failed": "0x240",
    LE % "1.0": "0+1000x240",
    LE % "+Inf": "0+1001x240",
    "siltstone_epoch": "7x240",
    'siltstone_last_timestamp_seconds{work="vacuum"}': "0+60x240",
    'siltstone_last_timestamp_seconds{work="backup"}': "0+60x240",
    'siltstone_last_timestamp_seconds{work="merge"}': "1x240",
    'siltstone_requests_total{route="/v1/sql", status="429", instance="a", job="s"}': "0+60x240",
    "siltstone_memory_bytes": "7x240",
    "siltstone_memory_bytes_max": "8x240",
    "process_open_fds": "9x240",
    "process_max_fds": "100x240",
}


@needs_promtool
def test_each_alert_fires_for_what_it_is_for_and_none_on_a_quiet_day(tmp_path: Path) -> None:
    assert set(FIRING) == {rule["alert"] for rule in rules()}
    tests = [trial(FIRING[each["alert"]], [each], is_firing=True) for each in rules()]
    tests.append(trial(QUIET, rules(), is_firing=False))
    path = tmp_path / "tests.yml"
    whole = {"rule_files": [str(ALERTS)], "evaluation_interval": "5m", "tests": tests}
    path.write_text(yaml.safe_dump(whole))
    command = [str(PROMTOOL), "test", "rules", str(path)]
    found = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert found.returncode == 0, found.stdout + found.stderr


def trial(
    given: dict[str, str], alerts: list[dict[str, Any]], *, is_firing: bool
) -> dict[str, Any]:
    """Return a trial of `promtool test rules`: whether alerts fire after four hours."""
    return {
        "interval": "1m",
        "input_series": [{"series": name, "values": values} for name, values in given.items()],
        "alert_rule_test": [
            {
                "eval_time": "4h",
                "alertname": rule["alert"],
                "exp_alerts": [expected(rule)] if is_firing else [],
            }
            for rule in alerts
        ],
    }


def expected(rule: dict[str, Any]) -> dict[str, Any]:
    """Return an alert that fires, with the labels that its series hand on."""
    labels = dict(rule["labels"])
    for name in FIRING[rule["alert"]]:
        found = dict(re.findall(r'(\w+)="([^"]*)"', name))
        labels |= {n: value for n, value in found.items() if n in {"job", "instance", "work"}}
    return {"exp_labels": labels, "exp_annotations": rule["annotations"]}
