"""The demo runs to its end on real flights, and would see what it says it does not."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

import siltstone as st
from siltstone.cli import main
from siltstone.cli.demo import crash, data, model
from siltstone.cli.demo.checks import Findings, violations

FLIGHTS = [
    dict.fromkeys(model.FLIGHTS) | flight
    for flight in (
        {"id": 1, "tailnum": "N1", "dest": "BOS", "miles": 187, "minutes_late": 5},
        {"id": 2, "tailnum": "N2", "dest": "BOS", "miles": 187, "minutes_late": 0},
        {"id": 3, "tailnum": "N1", "dest": "LAX", "miles": 2475, "minutes_late": 30},
    )
]


@pytest.fixture
def landed(tmp_path: Path) -> Iterator[st.Store]:
    """Three landings; seq 1 made the tables."""
    with st.connect(tmp_path / "store", background=False, segment_bytes=65536) as store:
        with store.transaction() as tx:
            tx.create_table("flights", model.FLIGHTS, "id")
            for name, column in model.KEYS.items():
                tx.create_table(name, {column: "string", **model.TOTALS}, column)
        for flight in FLIGHTS:
            store.run(model.landing(flight, [0]))
        yield store


def wrong(store: st.Store, seq: int | None = None) -> list[str]:
    with store.snapshot(seq=seq) as snapshot:
        return violations(snapshot)


def test_the_demo_ends_with_no_violated_check(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = tmp_path / "kept"
    code = main(["demo", "--seconds", "3", "--kills", "1", "--keep", str(kept), "--ndjson"])
    out, err = capsys.readouterr()
    lines = [json.loads(line) for line in out.splitlines()]
    facts = {line["fact"]: line["value"] for line in lines if line["part"] == "Summary"}
    assert (code, facts["violated checks"]) == (0, 0), err
    assert facts["landings"] > 100
    assert facts["acknowledged before a kill"] >= crash.ACKNOWLEDGED_MIN
    assert facts["checkpoints"] > 0
    assert facts["merges"] > 0
    for kind in ("this process", "another process"):
        assert facts[f"checks: {kind}, now"] > 0
        assert facts[f"checks: {kind}, past"] > 0
    assert {line["part"] for line in lines} > {"Busiest routes", "The past and the present"}
    assert main(["tables", "--db", str(kept)]) == 0
    assert main(["demo", "--keep", str(kept)]) == 2


def test_totals_are_the_sums_of_the_flights_in_every_snapshot(landed: st.Store) -> None:
    assert [wrong(landed, seq) for seq in range(1, 5)] == [[]] * 4
    assert landed["plane_totals"].get("N1") == {
        "tailnum": "N1", "flights": 2, "miles": 2662, "minutes_late": 35,
    }  # fmt: skip


def test_a_corrected_flight_counts_once(landed: st.Store) -> None:
    landed.run(model.landing(FLIGHTS[0] | {"minutes_late": 7}, [0]))
    assert wrong(landed) == []
    assert landed["plane_totals"].get("N1")["minutes_late"] == 37  # type: ignore[index]


def test_a_lost_or_doubled_update_is_a_violation(landed: st.Store) -> None:
    landed["plane_totals"].update("N1", miles=2661)
    assert len(wrong(landed)) == 1
    landed["flights"].upsert(FLIGHTS[2] | {"id": 4})
    assert len(wrong(landed)) == 2
    landed["airport_totals"].delete("BOS")
    assert len(wrong(landed)) == 2
    assert wrong(landed, 4) == []


def test_a_lost_acknowledgement_and_an_invented_landing_are_violations(landed: st.Store) -> None:
    acknowledged = {2: 3, 3: 4}
    assert crash.survived(landed, 1, acknowledged, 1) == []
    assert len(crash.survived(landed, 1, {**acknowledged, 9: 4}, 1)) == 1
    assert len(crash.survived(landed, 1, {2: 3, 3: 99}, 1)) == 1
    assert len(crash.survived(landed, 0, {}, 2)) == 1


def test_a_part_that_breaks_off_fails_the_demo() -> None:
    findings = Findings()
    findings.fail("the disk is full")
    assert findings.wrong == ["the disk is full"]


def test_flights_come_in_the_order_of_their_landing_and_some_are_corrected() -> None:
    flights = data.flights()
    moments = flights["landed"].to_pylist()[:5000]
    assert moments == sorted(moments)
    assert flights["id"].to_pylist() == list(range(1, len(flights) + 1))
    table = flights.slice(0, 1000)
    rows = list(data.landings(table))
    assert len(rows) == 1000 + 1000 // data.CORRECTED_EVERY
    final = {row["id"]: row["minutes_late"] for row in rows}
    assert final == dict(
        zip(table["id"].to_pylist(), table["minutes_late"].to_pylist(), strict=True)
    )
