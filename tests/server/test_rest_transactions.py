"""Statements of several requests are one transaction; a token is applied once; a snapshot stays."""

from __future__ import annotations

import contextlib
import errno
import json
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

import siltstone as st
from proof.exhaustion.faulty_files import Faults, FaultyFiles
from siltstone.engine.write.transaction import EngineTransaction
from siltstone.local.store import LocalStore
from siltstone.open.environment import Env
from siltstone.options import resolve
from siltstone.server.rest.limits import Limits
from siltstone.server.rest.server import RestServer
from tests.engine.seams import Threads, until
from tests.server.rest import Answer, Rest, rest_of
from tests.server.stores import eventually

Served = tuple[st.Store, RestServer, Rest]


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    with rest_of(tmp_path / "shop") as found:
        db = found[0]
        db.create_table("keyed", {"id": "int64", "v": "int64"}, primary_key="id")
        db.create_table("plain", {"id": "int64", "v": "int64"})
        db["keyed"].upsert([{"id": 1, "v": 10}])
        yield found


def begin(rest: Rest, **body: object) -> str:
    return rest.post("/v1/transaction/begin", body).json["id"]


ROWS = pa.table({"id": [7, 8], "v": [70, 80]})
COUNT = "/v1/table/{}/count_rows"


def test_a_transaction_over_two_tables_sees_itself_and_is_seen_at_once(served: Served) -> None:
    db, service, rest = served
    other = Rest(service)
    key = begin(rest)
    assert rest.post("/v1/table/keyed/insert", ROWS, x_siltstone_txn=key).status == 200
    assert other.post("/v1/table/plain/insert", ROWS, x_siltstone_txn=key).status == 200
    made = pa.table({"a": [1]})
    assert rest.post("/v1/table/new/create", made, x_siltstone_txn=key).status == 200
    for table, rows in (("keyed", 3), ("plain", 2), ("new", 1)):
        assert rest.post(COUNT.format(table), {}, x_siltstone_txn=key).json == rows
    assert rest.post("/v1/table/plain/query", {}, x_siltstone_txn=key).rows == ROWS.to_pylist()
    assert other.post(COUNT.format("keyed"), {}).json == 1
    assert other.post(COUNT.format("new"), {}).code == (404, 4)
    done = rest.post(f"/v1/transaction/{key}/commit")
    assert done.json["seq"] == done.seq == db.seq
    assert [other.post(COUNT.format(t), {}).json for t in ("keyed", "plain", "new")] == [3, 2, 1]
    assert rest.post(COUNT.format("keyed"), {}, x_siltstone_txn=key).code == (404, 10)
    assert rest.post(f"/v1/transaction/{key}/commit").json == done.json  # the answer was lost
    assert rest.post(f"/v1/transaction/{key}/rollback").code == (400, 13)
    assert db.outcome(done.json["transaction_id"]) == "committed"
    described = rest.post(f"/v1/transaction/{done.json['transaction_id']}/describe")
    assert described.json["status"] == "Succeeded"
    other.close()


@pytest.mark.parametrize(
    ("isolation", "second"), [("snapshot", (200, None)), ("serializable", (409, 14))]
)
@pytest.mark.parametrize("look", ["count_rows", "query"])
def test_two_that_count_none_of_what_both_insert_are_one_too_many_in_series_alone(
    served: Served, isolation: str, second: tuple[int, int | None], look: str
) -> None:
    db, service, rest = served
    ends: list[Answer] = []
    with contextlib.closing(Rest(service)) as other:
        keys = [begin(each, isolation=isolation) for each in (rest, other)]
        for each, key in zip((rest, other), keys, strict=True):
            if look == "query":
                query = {"filter": "v = 70", "k": 10}
                found = each.post("/v1/table/keyed/query", query, x_siltstone_txn=key)
                assert found.rows == []
            else:
                found = each.post(
                    COUNT.format("keyed"), {"predicate": "v = 70"}, x_siltstone_txn=key
                )
                assert found.json == 0
        for n, (each, key) in enumerate(zip((rest, other), keys, strict=True)):
            row = pa.table({"id": [20 + n], "v": [70]})
            assert each.post("/v1/table/keyed/insert", row, x_siltstone_txn=key).status == 200
        ends = [rest.post(f"/v1/transaction/{key}/commit") for key in keys]
    assert ends[0].status == 200
    assert (ends[1].status, ends[1].json.get("code")) == second
    assert db["keyed"].count("v = 70") == [ends[0].status, second[0]].count(200)


def test_a_commit_that_is_asked_for_again_while_it_runs_is_answered_as_the_first(
    served: Served,
) -> None:
    db, service, rest = served
    key = begin(rest)
    assert rest.post("/v1/table/keyed/insert", ROWS, x_siltstone_txn=key).status == 200
    inside = service.pipeline.counters
    gate, answers, threads = threading.Event(), list[Answer](), Threads()
    threads.start(db._core.committer.run, gate.wait)  # nothing commits until it is let go

    def commit() -> None:
        with contextlib.closing(Rest(service)) as mine:
            answers.append(mine.post(f"/v1/transaction/{key}/commit"))

    try:
        threads.start(commit)
        until(lambda: service.sessions.count == 0)
        assert rest.post(f"/v1/transaction/{key}/describe").json["status"] == "Running"
        threads.start(commit)
        until(lambda: inside.inside == 2 or answers)
        assert not answers
    finally:
        gate.set()
        threads.join()
    first, second = answers
    assert first.json == second.json
    assert first.json["seq"] == db.seq
    assert db["keyed"].count() == 3


def test_a_commit_that_begins_while_its_state_is_asked_for_is_running(served: Served) -> None:
    db, service, rest = served
    key = begin(rest)
    assert rest.post("/v1/table/keyed/insert", ROWS, x_siltstone_txn=key).status == 200
    gate, threads, using = threading.Event(), Threads(), service.sessions.using
    threads.start(db._core.committer.run, gate.wait)  # nothing commits until it is let go

    def commit() -> None:
        with contextlib.closing(Rest(service)) as mine:
            assert mine.post(f"/v1/transaction/{key}/commit").status == 200

    def begun_first(*where: object) -> object:
        service.sessions.using = using
        threads.start(commit)
        until(lambda: service.sessions.count == 0)
        return using(*where)

    service.sessions.using = begun_first
    try:
        assert rest.post(f"/v1/transaction/{key}/describe").json["status"] == "Running"
    finally:
        gate.set()
        threads.join()
    assert rest.post(f"/v1/transaction/{key}/describe").json["status"] == "Succeeded"


def test_a_commit_after_which_something_fails_is_no_failed_one(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(_: EngineTransaction) -> None:
        raise MemoryError

    db, _, rest = served
    key = begin(rest)
    assert rest.post("/v1/table/keyed/insert", ROWS, x_siltstone_txn=key).status == 200
    monkeypatch.setattr(EngineTransaction, "_end", failing)
    assert rest.post(f"/v1/transaction/{key}/commit").code == (500, 18)
    assert rest.post(f"/v1/transaction/{key}/commit").seq == db.seq
    assert rest.post(f"/v1/transaction/{key}/describe").json["status"] == "Succeeded"
    assert db["keyed"].count() == 3


def test_a_server_that_began_anew_does_not_deny_a_commit_of_before(tmp_path: Path) -> None:
    with rest_of(tmp_path / "shop") as (db, _, rest):
        db.create_table("keyed", {"id": "int64", "v": "int64"}, primary_key="id")
        key = rest.post("/v1/transaction/begin", {}, x_siltstone_token="etl/1").json["id"]
        rest.post("/v1/table/keyed/insert", ROWS, x_siltstone_txn=key)
        first = rest.post(f"/v1/transaction/{key}/commit")
    with rest_of(tmp_path / "shop") as (db, _, rest):
        again = rest.post(f"/v1/transaction/{key}/commit")
        assert again.code == (404, 10)
        assert "nothing of it was committed" not in again.json["error"]
        assert "may be committed" in again.json["error"]
        key = rest.post("/v1/transaction/begin", {}, x_siltstone_token="etl/1").json["id"]
        rest.post("/v1/table/keyed/insert", ROWS, x_siltstone_txn=key)
        assert rest.post(f"/v1/transaction/{key}/commit").seq == first.seq
        assert db["keyed"].count() == 2


def test_a_commit_in_doubt_is_in_doubt_whoever_asks_again(tmp_path: Path) -> None:
    faults, root = Faults(), tmp_path / "shop"
    options = resolve(root, {"background": False, "segment_bytes": 65_536})
    with st.connect(root, background=False) as db:
        db.create_table("keyed", {"id": "int64", "v": "int64"}, primary_key="id")
    with (
        LocalStore.open(root, options, env=Env(files=FaultyFiles(faults))) as db,
        contextlib.closing(Rest(db.serve(port=0))) as rest,
    ):
        key = begin(rest)
        assert rest.post("/v1/table/keyed/insert", ROWS, x_siltstone_txn=key).status == 200
        faults.order(1, errno.EIO, is_sticky=True)
        first = rest.post(f"/v1/transaction/{key}/commit")
        faults.clear()
        assert first.json["detail"].startswith("InDoubtError: transaction ")
        again = rest.post(f"/v1/transaction/{key}/commit")
        assert (again.code, again.json["detail"]) == (first.code, first.json["detail"])
        assert rest.post(f"/v1/transaction/{key}/describe").json["status"] == "Running"
    name = first.json["detail"].rpartition(" ")[2]
    with st.connect(root, background=False) as db:
        assert db["keyed"].count() == {"committed": 2, "not committed": 0}[db.outcome(name)]


def test_a_rollback_leaves_nothing(served: Served) -> None:
    db, _, rest = served
    before, key = db.seq, begin(rest)
    rest.post("/v1/table/keyed/delete", {"predicate": "true"}, x_siltstone_txn=key)
    assert rest.post(f"/v1/transaction/{key}/rollback").status == 200
    assert rest.post(f"/v1/transaction/{key}/describe").json["status"] == "Canceled"
    assert (db.seq, db["keyed"].count()) == (before, 1)


def test_the_first_committer_wins(served: Served) -> None:
    db, _, rest = served
    update = {"predicate": "id = 1", "updates": [["v", "v + 1"]]}
    first, second = begin(rest), begin(rest)
    for key in (first, second):
        assert rest.post("/v1/table/keyed/update", update, x_siltstone_txn=key).status == 200
    assert rest.post(f"/v1/transaction/{second}/commit").status == 200
    assert rest.post(f"/v1/transaction/{first}/commit").code == (409, 14)
    assert rest.post(f"/v1/transaction/{first}/describe").json["status"] == "Failed"
    assert db["keyed"].get(1) == {"id": 1, "v": 11}


def test_the_calls_of_the_specification_end_a_transaction_too(served: Served) -> None:
    db, _, rest = served
    key = begin(rest)
    assert rest.post(f"/v1/transaction/{key}/describe").json["status"] == "Running"
    rest.post("/v1/table/keyed/insert", ROWS, x_siltstone_txn=key)
    alter = {"actions": [{"setStatusAction": {"status": "SUCCEEDED"}}]}
    done = rest.post(f"/v1/transaction/{key}/alter", alter)
    assert (done.json["status"], done.seq) == ("Succeeded", db.seq)
    key = begin(rest)
    rest.post("/v1/table/keyed/delete", {"predicate": "true"}, x_siltstone_txn=key)
    alter = {"actions": [{"set_status_action": {"status": "Canceled"}}]}
    assert rest.post(f"/v1/transaction/keyed${key}/alter", alter).json["status"] == "Canceled"
    assert db["keyed"].count() == 3


def test_a_transaction_that_is_left_alone_is_rolled_back(tmp_path: Path) -> None:
    with rest_of(tmp_path / "shop", limits=replace(Limits(), idle_s=0.1)) as (db, service, rest):
        db.create_table("t", {"id": "int64"}, primary_key="id")
        key = begin(rest)
        eventually(lambda: service.sessions.count == 0)
        assert rest.post(f"/v1/transaction/{key}/commit").code == (404, 10)
        assert db.status().open_transactions == 0


def test_a_statement_with_a_token_is_applied_once(served: Served) -> None:
    db, _, rest = served
    insert = "/v1/table/plain/insert"
    first = rest.post(insert, ROWS, x_siltstone_token="etl/1")
    again = rest.post(insert, ROWS, x_siltstone_token="etl/1")
    assert (first.status, again.status, again.seq) == (200, 200, first.seq)
    assert db["plain"].count() == 2
    keyed = "/v1/table/keyed/insert"
    assert rest.post(keyed, ROWS, x_siltstone_token="etl/2").status == 200
    assert rest.post(keyed, ROWS, x_siltstone_token="etl/2").status == 200
    ops = {"ops": [{"table": "plain", "op": "append", "rows": [{"id": 1, "v": 1}]}]}
    seqs = {
        rest.post("/v1/transaction/apply", ops, x_siltstone_token="etl/3").seq for _ in range(3)
    }
    assert len(seqs) == 1
    assert db["plain"].count() == 3
    key = rest.post("/v1/transaction/begin", {}, x_siltstone_token="etl/3").json["id"]
    rest.post(insert, ROWS, x_siltstone_txn=key)
    assert rest.post(f"/v1/transaction/{key}/commit").seq in seqs
    assert db["plain"].count() == 3


def statements(db: st.Store) -> list[tuple[str, object]]:
    """Return requests that each need what the ones before did."""
    merge = "when_matched_update_all=true&when_not_matched_insert_all=true"
    update = {"predicate": "id = 1", "updates": [["v", "v + 1"]]}
    ops = [
        {"table": "keyed", "op": "upsert", "rows": [{"id": 5, "v": 5}]},
        {"table": "plain", "op": "append", "rows": [{"id": 5, "v": 5}]},
    ]
    return [
        ("table/new/create", pa.table({"a": [1]})),
        ("table/new/rename", {"new_table_name": "other"}),
        ("table/other/add_columns", {"new_columns": [{"name": "b", "expression": "a + 1"}]}),
        ("table/other/alter_columns", {"alterations": [{"path": "b", "rename": "c"}]}),
        ("table/other/drop_columns", {"columns": ["c"]}),
        ("table/own/create?primary_key=id", ROWS),
        ("table/declared/declare", {}),
        ("table/keyed/insert", ROWS),
        ("table/keyed/insert?mode=overwrite", ROWS),
        (f"table/keyed/merge_insert?on=id&{merge}", ROWS),
        ("table/keyed/update", update),
        ("table/plain/update", update),
        ("table/keyed/delete", {"predicate": "id = 7"}),
        ("table/keyed/restore", {"version": db.seq}),
        ("transaction/apply", {"ops": ops}),
        ("table/declared/deregister", {}),
        ("table/other/drop", {}),
    ]


def test_every_statement_with_a_token_answers_its_seq_again_whatever_became_of_its_table(
    served: Served,
) -> None:
    db, _, rest = served
    asked = list(enumerate(statements(db)))
    first: list[Answer] = []
    for number, (path, body) in asked:
        token = f"app {number}/1"
        first.append(rest.post(f"/v1/{path}", body, x_siltstone_token=token))
        again = rest.post(f"/v1/{path}", body, x_siltstone_token=token)
        assert (first[-1].status, again.status, again.seq) == (200, 200, first[-1].seq), path
        if not path.endswith("drop"):
            assert again.json.get("location") == first[-1].json.get("location"), path
    for name in db.tables():
        db.drop_table(name)
    before = db.seq
    for number, (path, body) in asked:
        again = rest.post(f"/v1/{path}", body, x_siltstone_token=f"app {number}/1")
        assert (again.status, again.seq) == (200, first[number].seq), (path, again.body)
        assert again.json.keys() | {"transaction_id"} >= first[number].json.keys(), path
    assert (db.seq, db.tables()) == (before, [])


def test_definitions_in_a_transaction_whose_token_was_applied_are_done_for_nothing(
    served: Served,
) -> None:
    db, _, rest = served
    seqs = []
    for _ in range(2):
        key = rest.post("/v1/transaction/begin", {}, x_siltstone_token="etl/1").json["id"]
        for path, body in (
            ("new/create?primary_key=id", ROWS),
            ("new/rename", {"new_table_name": "other"}),
            ("other/add_columns", {"new_columns": [{"name": "w", "expression": "v + 1"}]}),
            ("plain/drop", {}),
        ):
            assert rest.post(f"/v1/table/{path}", body, x_siltstone_txn=key).status == 200, path
        assert rest.post(COUNT.format("other"), {}, x_siltstone_txn=key).json == 2
        seqs.append(rest.post(f"/v1/transaction/{key}/commit").seq)
    assert seqs == [db.seq, db.seq]
    assert db["other"].schema.names == ["id", "v", "w"]
    assert db.tables() == ["keyed", "other"]


def test_a_snapshot_pins_what_is_read_over_all_tables(served: Served) -> None:
    db, _, rest = served
    seq = db.seq
    db.tag("audit")
    record = db.checkpoint().number
    moment = db.log(1)[0].time
    rest.post("/v1/table/keyed/insert", ROWS)
    rest.post("/v1/table/plain/insert", ROWS)
    for header in (f"seq:{seq}", "tag:audit", f"record:{record}", f"at:{moment.isoformat()}"):
        for table, rows in (("keyed", 1), ("plain", 0)):
            found = rest.post(COUNT.format(table), {}, x_siltstone_snapshot=header)
            assert (found.json, header) == (rows, header)
    assert rest.post(COUNT.format("keyed"), {"version": seq}).json == 1
    assert rest.post(COUNT.format("plain"), {}).json == 2


def test_apply_is_all_or_nothing_and_takes_every_kind(served: Served) -> None:
    db, _, rest = served
    db.create_table(
        "kinds",
        {
            "k": "string",
            "at": "timestamp[us]",
            "d": "date32",
            "n": "decimal128(9, 2)",
            "b": "binary",
        },
        primary_key="k",
    )
    row = {"k": "a", "at": "2026-11-20T10:00:00", "d": "2026-11-20", "n": "1.50", "b": "AAE="}
    ops = [
        {"table": "kinds", "op": "insert", "rows": [row]},
        {"table": "keyed", "op": "update", "key": 1, "set": {"v": 5}},
        {"table": "keyed", "op": "upsert", "rows": [{"id": 2, "v": 2}, {"id": 3, "v": 3}]},
        {"table": "keyed", "op": "delete", "keys": [3]},
        {"table": "plain", "op": "append", "rows": [{"id": 1, "v": 1}]},
        {"table": "keyed", "op": "delete_where", "filter": "v = 2"},
    ]
    done = rest.post("/v1/transaction/apply", {"ops": ops})
    assert [found["rows"] for found in done.json["results"]] == [1, 1, 2, 1, 1, 1]
    assert db["keyed"].to_arrow().to_pylist() == [{"id": 1, "v": 5}]
    (line, end) = rest.get(f"/v1/changes?tables=kinds&since={done.seq - 1}").body.splitlines()
    assert json.loads(line) == {"seq": done.seq, "op": "upsert", "table": "kinds", "row": row}
    assert json.loads(end) == {"until": done.seq}


def test_a_change_is_written_out_to_the_nanosecond(served: Served) -> None:
    db, _, rest = served
    at, time = pa.array([1_767_225_600_123_456_789]), pa.array([1_000_000_007])
    moments = {
        "id": pa.array([1]),
        "at": at.cast(pa.timestamp("ns")),
        "there": at.cast(pa.timestamp("ns", "Europe/Berlin")),
        "time": time.cast(pa.time64("ns")),
        "all": pa.ListArray.from_arrays([0, 1], at.cast(pa.timestamp("ns"))),
    }
    rows = pa.table(moments)
    db.create_table("moments", rows.schema, primary_key="id").upsert(rows)
    line, _ = rest.get("/v1/changes?tables=moments").body.splitlines()
    assert json.loads(line)["row"] == {
        "id": 1,
        "at": "2026-01-01T00:00:00.123456789",
        "there": "2026-01-01T01:00:00.123456789+0100",
        "time": "00:00:01.000000007",
        "all": ["2026-01-01T00:00:00.123456789"],
    }


def test_numbers_that_json_lacks_are_texts_in_changes_and_in_rows(served: Served) -> None:
    db, _, rest = served
    kinds = {"id": "int64", "x": "float32", "list": pa.list_(pa.float64())}
    db.create_table("odd", kinds, primary_key="id")
    row = {"id": 1, "x": "-Infinity", "list": ["NaN", 1.5, None, "Infinity"]}
    upsert = {"op": "upsert", "table": "odd", "rows": [row]}
    done = rest.post("/v1/transaction/apply", {"ops": [upsert]})
    assert done.status == 200, done.body
    assert str(db["odd"].get(1)) == "{'id': 1, 'x': -inf, 'list': [nan, 1.5, None, inf]}"
    line, _ = rest.get("/v1/changes?tables=odd").body.splitlines()
    assert json.loads(line)["row"] == row
    upsert["rows"] = [{**row, "x": "big"}]
    assert rest.post("/v1/transaction/apply", {"ops": [upsert]}).status == 400


def test_changes_come_in_the_order_of_their_seqs_over_all_tables(served: Served) -> None:
    db, _, rest = served
    db.create_table("more", {"id": "int64"}, primary_key="id")
    for number in range(5):
        db["keyed"].upsert([{"id": number, "v": number}])
        db["more"].upsert([{"id": number}])
    lines = [json.loads(line) for line in rest.get("/v1/changes").body.splitlines()]
    seqs = [line["seq"] for line in lines[:-1]]
    assert seqs == sorted(seqs)
    assert lines[-1] == {"until": db.seq}
    arrow = rest.get("/v1/changes?tables=more&format=arrow")
    assert [(row["_seq"], row["_op"]) for row in arrow.rows] == [
        (line["seq"], line["op"]) for line in lines[:-1] if line["table"] == "more"
    ]


def test_maintenance_is_a_job_that_can_be_asked_for(served: Served) -> None:
    db, _, rest = served
    for kind in ("checkpoint", "merge", "optimize", "vacuum"):
        started = rest.post(f"/v1/{kind}", {})
        assert started.status == 202
        place = started.headers["location"]
        eventually(lambda place=place: rest.get(place).json["status"] in {"succeeded", "failed"})
        assert rest.get(place).json["status"] == "succeeded", rest.get(place).json
    assert db["keyed"].count() == 1
    assert len(rest.get("/v1/jobs").json["jobs"]) == 4


def test_increments_of_many_clients_are_all_there(served: Served) -> None:
    db, service, _ = served
    update = {"predicate": "id = 1", "updates": [["v", "v + 1"]]}

    def count_up() -> None:
        rest = Rest(service)
        for _ in range(10):
            assert rest.post("/v1/table/keyed/update", update).status == 200
        rest.close()

    threads = [threading.Thread(target=count_up) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert db["keyed"].get(1) == {"id": 1, "v": 90}
