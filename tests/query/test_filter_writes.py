"""What a filter finds is what a write by it changes, and what a search and the past are cut to."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlencode

import pyarrow as pa
import pytest

import siltstone as st
from tests.query.filter_cases import texts
from tests.query.test_filter_doors import ids, mixed, some
from tests.query.test_filter_matrix import ROWS, kept
from tests.server.rest import Answer, Rest

WRITTEN = ("mixed", "altered", "plain")
ALL = list(range(10))


@pytest.fixture(scope="module")
def rest(db: st.Store) -> Iterator[Rest]:
    found = Rest(db._parts.service or db.serve(port=0))
    yield found
    found.close()


class Inside:
    """A table in a transaction over REST."""

    def __init__(self, rest: Rest, table: str, transaction: str) -> None:
        self._rest, self._table, self._key = rest, table, transaction

    def post(self, operation: str, body: object) -> Answer:
        path = f"/v1/table/{self._table}/{operation}"
        found = self._rest.post(path, body, x_siltstone_txn=self._key)
        assert found.status == 200, found.body
        return found

    def ids(self, wanted: str = "true") -> list[int]:
        asked = {"columns": ["id"], "filter": wanted, "k": 100, "vector": []}
        return sorted(row["id"] for row in self.post("query", asked).rows)


@contextmanager
def inside(rest: Rest, table: str) -> Generator[Inside]:
    key = rest.post("/v1/transaction/begin").json["id"]
    try:
        yield Inside(rest, table, key)
    finally:
        rest.post(f"/v1/transaction/{key}/rollback")


@pytest.mark.parametrize("table", WRITTEN)
def test_an_update_over_rest_changes_the_rows_that_a_scan_finds(rest: Rest, table: str) -> None:
    for wanted in some(table)[:: 3 if table == "mixed" else 9]:
        with inside(rest, table) as tx:
            tx.post("update", {"predicate": wanted, "updates": [["added", "77"]]})
            assert tx.ids("added = 77") == kept(ROWS[table], wanted), wanted


@pytest.mark.parametrize("table", WRITTEN)
def test_a_delete_over_rest_takes_the_rows_that_a_scan_finds(rest: Rest, table: str) -> None:
    for wanted in some(table)[1 :: 3 if table == "mixed" else 9]:
        with inside(rest, table) as tx:
            tx.post("delete", {"predicate": wanted})
            assert tx.ids() == sorted({*ALL} - {*kept(ROWS[table], wanted)}), wanted


@pytest.mark.parametrize("table", WRITTEN)
def test_a_merge_deletes_by_its_filter_the_rows_that_a_scan_finds(rest: Rest, table: str) -> None:
    source = pa.table({"id": pa.array([3], pa.int64())})
    for wanted in some(table)[2 :: 3 if table == "mixed" else 9]:
        how = {"on": "id", "when_not_matched_by_source_delete": "true"}
        how["when_not_matched_by_source_delete_filt"] = wanted
        with inside(rest, table) as tx:
            tx.post(f"merge_insert?{urlencode(how)}", source)
            gone = {*kept(ROWS[table], wanted)} - {3}
            assert tx.ids() == sorted({*ALL} - gone), wanted


@pytest.mark.parametrize("table", ["timed", "plain_timed"])
def test_a_search_finds_neighbours_among_the_rows_that_its_filter_keeps(
    rest: Rest, table: str
) -> None:
    near = kept(ROWS[table], "vec IS NOT NULL")
    for wanted in some(table)[::2]:
        right = sorted({*kept(ROWS[table], wanted)} & {*near})
        asked = {
            "columns": ["id"], "filter": wanted, "prefilter": True, "k": 100,
            "vector": {"single_vector": [0.0, 0.5]}, "vector_column": "vec",
        }  # fmt: skip
        found = rest.post(f"/v1/table/{table}/query", asked)
        assert sorted(row["id"] for row in found.rows) == right, wanted


def test_a_filter_keeps_the_same_rows_of_runs_and_below_what_was_merged(tmp_path: Path) -> None:
    rows = ROWS["base"]
    schema = rows.schema
    shuffled = rows.drop_columns(["id"]).take(pa.array([*range(5, 10), *range(5)]))
    stale = shuffled.add_column(0, "id", rows["id"])
    with st.connect(tmp_path / "s", background=False) as db:
        table = db.create_table("t", schema, primary_key="id")
        table.upsert(stale)
        db.checkpoint()
        db.merge()
        attach(db, rows)
        wrong = list(differing(table, rows, "a run over base"))
        with db.snapshot() as old:
            table.upsert(stale)
            table.delete([2, 7])
            db.checkpoint()
            db.merge()
            wrong += differing(old["t"], rows, "the past below a merge")
            table.delete_where("true")
            db.checkpoint()
            db.merge()
            db.vacuum(dry_run=False, grace_s=0)
            wrong += differing(old["t"], rows, "the past after a vacuum")
    assert wrong == []


def attach(db: st.Store, rows: pa.Table) -> None:
    stage = db.stage("t", "upsert")
    pieces = [stage.run(iter(part.to_batches())) for part in (rows.slice(0, 4), rows.slice(4))]
    with db.transaction() as tx:
        tx.attach(stage, pieces)


def differing(table: object, rows: pa.Table, level: str) -> Iterator[str]:
    more = [
        list(texts(name))[at] for name in ("u64", "i8", "dec38", "ls", "lbin") for at in range(13)
    ]
    for wanted in (*mixed("base"), *more):
        found, right = ids(table.to_arrow(["id"], wanted)), kept(rows, wanted)  # type: ignore[attr-defined]
        if found != right:
            yield f"{level}: {wanted}: {found}, not {right}"
