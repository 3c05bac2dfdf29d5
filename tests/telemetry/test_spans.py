"""An application that traces sees requests, transactions, commits, reads and statements."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import siltstone as st
from siltstone.telemetry.spans import found_spans

TRACED = """if True:
    import json, sys
    from opentelemetry import trace
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    trace.set_tracer_provider(provider)
    import siltstone as st
    from siltstone.local.tables import sample_gets

    root = sys.argv[1]
    def shown():
        for span in exporter.get_finished_spans():
            known = span.get_span_context()
            parent = None if span.parent is None else f"{span.parent.span_id:016x}"
            yield {
                "name": span.name, "id": f"{known.span_id:016x}", "parent": parent,
                "trace": f"{known.trace_id:032x}", "begun": span.start_time, "ended": span.end_time,
                "about": dict(span.attributes), "status": span.status.status_code.name,
                "text": span.to_json(),
            }
"""


@dataclass
class Shown:
    name: str
    id: str
    parent: str | None
    trace: str
    begun: int
    ended: int
    about: dict[str, Any]
    status: str
    text: str


def spans_of(program: str, root: Path) -> list[Shown]:
    """Return the spans of a program that traces, in the order in which they ended."""
    whole = TRACED + program + "\n    print(json.dumps([*shown()]))\n"
    command = [sys.executable, "-c", whole, str(root)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr
    return [Shown(**each) for each in json.loads(done.stdout)]


def one(spans: list[Shown], name: str, **about: object) -> Shown:
    (found,) = [s for s in spans if s.name == name and about.items() <= s.about.items()]
    return found


def below(spans: list[Shown], parent: Shown) -> list[str]:
    return [span.name for span in spans if span.parent == parent.id]


def test_a_transaction_has_its_reads_and_its_commit_and_that_its_wait_and_sync(
    tmp_path: Path,
) -> None:
    spans = spans_of(
        """
    with st.connect(root, background=False) as db:
        db.create_table("t", {"id": "int64"}, primary_key="id")
        exporter.clear()
        with db.transaction() as tx:
            tx["t"].get(1)
            tx["t"].insert({"id": 41})
        try:
            with db.transaction() as tx:
                tx["t"].upsert({"id": 42})
                raise KeyError
        except KeyError:
            pass
    """,
        tmp_path / "shop",
    )
    first, second = [span for span in spans if span.name == "siltstone.transaction"]
    assert below(spans, first) == ["siltstone.read", "siltstone.commit"]
    assert below(spans, second) == []
    commit = one(spans, "siltstone.commit", **{"siltstone.seq": 2, "siltstone.rows": 1})
    assert below(spans, commit) == ["siltstone.commit.wait", "siltstone.commit.sync"]
    wait, sync = one(spans, "siltstone.commit.wait"), one(spans, "siltstone.commit.sync")
    assert commit.begun <= wait.begun <= wait.ended <= sync.begun <= sync.ended <= commit.ended
    read = one(spans, "siltstone.read", **{"siltstone.operation": "get"})
    assert read.about["db.collection.name"] == "t"


def test_reads_statements_and_maintenance_are_spans_below_the_callers_own(tmp_path: Path) -> None:
    spans = spans_of(
        """
    with st.connect(root, background=False) as db:
        table = db.create_table("t", {"id": "int64"}, primary_key="id")
        table.upsert([{"id": 1}, {"id": 2}])
        table.get(1)
        sample_gets(db.core.state().view)
        exporter.clear()
        with provider.get_tracer("app").start_as_current_span("work"):
            table.get(1)  # measured for the metrics, too
            assert sum(db.core.works.gets.taken()[0]) == 1
            table.get_many([1, 2])
            table.scan().read_all()
            table.count()
            with db.snapshot() as past:
                past["t"].count()
            db.sql("select id from t where id = ?", ["s3cr3t"[:0] or 1]).fetchall()
            db.checkpoint()
            db.merge()
    """,
        tmp_path / "shop",
    )
    work = one(spans, "work")
    reads = [s.about["siltstone.operation"] for s in spans if s.name == "siltstone.read"]
    assert reads == ["get", "get_many", "scan", "count", "count"]
    assert below(spans, work) == [
        *["siltstone.read"] * 5,
        *("siltstone.sql", "siltstone.checkpoint", "siltstone.merge"),
    ]


def test_a_span_of_an_error_has_its_name_and_neither_keys_nor_values(tmp_path: Path) -> None:
    spans = spans_of(
        """
    with st.connect(root, background=False) as db:
        table = db.create_table("t", {"id": "string"}, primary_key="id")
        exporter.clear()
        with db.transaction() as tx:
            tx["t"].upsert({"id": "s3cr3t"})
            table.upsert({"id": "s3cr3t"})
            try:
                tx.commit()
            except st.ConflictError as error:
                assert "s3cr3t" in str(error)
        try:
            db.sql("select cast(? as int64)", ["s3cr3t"])
        except st.SiltstoneError:
            pass
    """,
        tmp_path / "shop",
    )
    lost = one(spans, "siltstone.commit", **{"error.type": "ConflictError"})
    assert lost.status == "ERROR"
    assert not [span for span in spans if "s3cr3t" in span.text]


def test_a_request_goes_on_with_the_trace_of_its_client(tmp_path: Path) -> None:
    trace, client = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
    spans = spans_of(
        f"""
    import http.client
    with st.connect(root, background=False) as db:
        db.create_table("t", {{"id": "int64"}}, primary_key="id")
        exporter.clear()
        port = db.serve(port=0).port
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        def ask(path, body, **headers):
            connection.request("POST", path, json.dumps(body), headers)
            answer = connection.getresponse()
            answer.read()
            return answer.status
        ops = [{{"table": "t", "op": "upsert", "rows": [{{"id": 1}}]}}]
        header = {{"traceparent": "00-{trace}-{client}-01"}}
        assert ask("/v1/transaction/apply", {{"ops": ops}}, **header) == 200
        assert ask("/v1/table/t/count_rows", {{}}, traceparent="no such thing") == 200
        assert ask("/v1/table/none/count_rows", {{}}) == 404
        connection.close()
    """,
        tmp_path / "shop",
    )
    apply = one(spans, "POST /v1/transaction/apply")
    assert (apply.trace, apply.parent) == (trace, client)
    assert apply.about["http.response.status_code"] == 200
    assert apply.about["http.route"] == "/v1/transaction/apply"
    commits = [span for span in spans if span.name == "siltstone.commit"]
    assert [span.trace for span in commits] == [trace]
    counted, missed = [span for span in spans if span.name == "POST /v1/table/{id}/count_rows"]
    assert counted.parent is None
    assert "siltstone.read" in below(spans, counted)
    assert (missed.status, missed.about["error.type"]) == ("ERROR", "TableNotFoundError")


@pytest.mark.parametrize("is_imported", [False, True])
def test_without_a_provider_there_are_no_spans_and_nothing_is_imported(
    *, is_imported: bool, tmp_path: Path
) -> None:
    program = f"""if True:
        import sys
        if {is_imported}:
            import opentelemetry.trace
        import siltstone as st
        with st.connect(sys.argv[1], background=False) as db:
            table = db.create_table("t", {{"id": "int64"}}, primary_key="id")
            table.upsert({{"id": 1}})
            assert db.core.works.spans is None
            assert type(table).__module__ == "siltstone.local.tables"
        assert ("opentelemetry" in sys.modules) == {is_imported}
    """
    command = [sys.executable, "-c", program, str(tmp_path / "shop")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr


def test_these_tests_trace_nothing(tmp_path: Path) -> None:
    assert found_spans() is None
    with st.connect(tmp_path / "shop", background=False) as db:
        assert db.tables() == []
