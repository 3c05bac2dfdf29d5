"""Status says what a store holds, and memory stays within its budget."""

from __future__ import annotations

import json

import pytest

import siltstone as st
from siltstone.storage.tables.jobs import FINISHED_MAX
from tests.maintenance.stores import open_store

MIB = 1 << 20


def test_status_counts_what_there_is(tmp_path):
    with open_store(tmp_path / "s") as db:
        db.create_table("t", {"id": "int64", "v": "string"}, primary_key="id")
        db.create_table("p", {"id": "int64"})
        db["t"].upsert([{"id": n, "v": "x"} for n in range(10)])
        db.checkpoint()
        db.merge()
        db["t"].upsert([{"id": n, "v": "y"} for n in range(3)])
        db["p"].append([{"id": 1}, {"id": 2}])
        db.tag("audit")
        with db.transaction():
            status = db.status()
        assert isinstance(status, st.Status)
        tables = {table.name: table for table in status.tables}
        assert (tables["t"].base_rows, tables["t"].unmerged_rows) == (10, 3)
        assert (tables["p"].base_rows, tables["p"].is_keyed) == (2, False)
        assert (status.visible_seq, status.durable_seq, status.flushed_seq) == (6, 6, 3)
        assert (status.active_rows, status.open_transactions) == (3, 1)
        assert status.tags == {"audit": 5}
        assert status.commits_since_open == 6
        assert status.wal_bytes >= 65_536
        assert status.failure is None
        assert 0 < status.memory.total <= status.memory.bytes_max
        assert json.loads(json.dumps(status.to_dict()))["memory"]["total"] == status.memory.total
        assert "base has 10 rows in 1 parts, 3 row versions not merged" in str(status)


def test_the_last_failure_begins_with_its_kind(tmp_path):
    with open_store(tmp_path / "s") as db:
        db._parts.owner.scheduler.last_failure = KeyError("x")
        assert db.status().failure == "KeyError: 'x'"


def test_a_read_only_handle_has_a_status_too(tmp_path):
    with open_store(tmp_path / "s") as db:
        db.create_table("t", {"id": "int64"}, primary_key="id")
        db["t"].upsert({"id": 1})
        with open_store(tmp_path / "s", read_only=True) as other:
            status = other.status()
        assert status.is_read_only
        assert (status.visible_seq, status.active_rows) == (2, 1)


def test_memory_stays_bounded_while_twenty_times_as_much_is_written(tmp_path):
    options = {"memory_bytes_max": MIB, "sealed_generations_max": 1, "segment_bytes": MIB}
    with open_store(tmp_path / "s", **options) as db:
        db.create_table("t", {"id": "int64", "v": "string"}, primary_key="id")
        most = written = number = 0
        while written < 20 * MIB:
            rows = [{"id": (number + n) % 5_000, "v": "x" * 900} for n in range(180)]
            db["t"].upsert(rows)
            db["t"].get(number % 5_000)
            number += 180
            written += 180 * 900
            memory = db.status().memory
            most = max(most, memory.history_indexes)
            assert memory.total <= MIB, memory
        assert most > 0
        assert db["t"].count() == 5_000


def test_jobs_are_seen_while_they_run_when_they_died_and_when_they_ended(tmp_path):
    with open_store(tmp_path / "s") as db:
        db.create_table("t", {"id": "int64"}, primary_key="id")
        db["t"].upsert([{"id": 1}])
        db.checkpoint()
        db.merge()
        jobs = db._parts.site.jobs
        running, dead = jobs.begin("optimize", ("t",)), jobs.begin("optimize", ("t",))
        dead.append(b"1")
        dead.abandon()
        seen = {(job.state, job.kind, job.tables, job.tasks) for job in db.jobs()}
        assert seen == {
            ("finished", "merge", ("t",), 0),
            ("running", "optimize", ("t",), 0),
            ("dead", "optimize", ("t",), 1),
        }
        status = db.status()
        assert {job.state for job in status.jobs} == {"running", "dead"}
        assert "job: dead optimize of t" in str(status)
        assert (status.tables[0].base_parts, status.tables[0].history_parts) == (1, 1)
        running.finish()
        assert all(job.ended_us for job in db.jobs() if job.state == "finished")


def test_only_the_last_jobs_that_ended_are_remembered(tmp_path):
    with open_store(tmp_path / "s") as db:
        for _ in range(FINISHED_MAX + 5):
            db._parts.site.jobs.begin("merge", ()).finish()
        assert len(db.jobs()) == FINISHED_MAX


def test_a_budget_below_one_is_refused(tmp_path):
    with open_store(tmp_path / "s") as db:
        for call in (db.merge, db.optimize):
            with pytest.raises(st.RequestError, match="an integer from 1; got 0"):
                call(attempts=0)
