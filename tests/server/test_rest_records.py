"""`/v1/records` says of each publish when it was, what made it, and of which tables."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest

import siltstone as st
from siltstone.formats.manifest import KeyedStorage, Record
from siltstone.server.rest.native.publishes import NAMES_MAX, RECORDS_MAX, published
from siltstone.server.rest.tokens import Role
from tests.server.rest import Rest, rest_of, rest_to
from tests.server.stores import opened
from tests.server.test_rest_security import TOKENS, as_role


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[st.Store, Rest]]:
    with rest_of(tmp_path / "shop") as (db, _, rest):
        yield db, rest


def records(rest: Rest, query: str = "limit=500") -> list[Any]:
    answer = rest.get(f"/v1/records?{query}")
    assert answer.status == 200, answer.body
    return answer.json["records"]


def made(db: st.Store, rest: Rest, work: str) -> list[Any]:
    """Do some work; return what the records that it published say, oldest first."""
    newest = records(rest, "limit=1")[0]["number"]
    getattr(db, work)()
    return [each for each in records(rest)[::-1] if each["number"] > newest]


def test_each_kind_of_work_is_seen_in_the_record_that_it_published(
    served: tuple[st.Store, Rest],
) -> None:
    db, rest = served
    goods = db.create_table("goods", {"id": "int64", "title": "string"}, "id")
    notes = db.create_table("notes", {"text": "string"})
    goods.upsert([{"id": at, "title": "lamp"} for at in range(100)])
    notes.append([{"text": "a"}])
    (flushed,) = made(db, rest, "checkpoint")
    assert (flushed["works"], flushed["tables"]) == (["checkpoint"], ["goods", "notes"])
    assert flushed["flushed_seq"] == db.seq
    (folded,) = made(db, rest, "merge")
    assert (folded["works"], folded["tables"]) == (["merge"], ["goods"])
    assert (folded["since"], folded["changed"]) == (flushed["number"], 1)
    goods.create_index("title")
    declared, built = records(rest, "limit=2")[::-1]
    for each in (declared, built):
        assert (each["works"], each["tables"]) == (["index"], ["goods"])
    goods.upsert([{"id": 7, "title": "chair"}])
    assert [each["works"] for each in made(db, rest, "checkpoint")] == [["checkpoint"]]
    assert [each["works"] for each in made(db, rest, "merge")] == [["merge"], ["index"]]
    assert [each["works"] for each in made(db, rest, "optimize")] == [["optimize"]]


def test_the_first_record_of_a_store_has_no_works_and_the_next_one_opened_it(
    served: tuple[st.Store, Rest],
) -> None:
    _, rest = served
    opening, first = records(rest)
    assert (opening["works"], opening["since"]) == (["open"], first["number"])
    assert (first["works"], first["tables"]) == ([], [])
    assert "since" not in first


def test_pages_give_each_record_once_and_the_last_one_names_no_next(
    served: tuple[st.Store, Rest],
) -> None:
    db, rest = served
    table = db.create_table("t", {"id": "int64"}, "id")
    for at in range(5):
        table.upsert({"id": at})
        db.checkpoint()
    whole = records(rest)
    seen, before = list[Any](), ""
    for _ in range(len(whole)):
        page = rest.get(f"/v1/records?limit=2{before}").json
        seen += page["records"]
        if "next" not in page:
            break
        before = f"&before={page['next']}"
    assert seen == whole
    assert rest.get("/v1/records?limit=0").json == {"records": []}
    assert rest.get("/v1/records?before=1").json == {"records": []}
    assert [each["number"] for each in whole] == [*range(len(whole), 0, -1)]


def test_a_limit_or_a_number_that_is_none_is_refused(served: tuple[st.Store, Rest]) -> None:
    _, rest = served
    for query in ("limit=x", "limit=-1", f"limit={RECORDS_MAX + 1}", "before=new", "more=1"):
        assert rest.get(f"/v1/records?{query}").code == (400, 13)


def test_a_record_of_many_tables_names_some_and_counts_all(served: tuple[st.Store, Rest]) -> None:
    db, rest = served
    with db.transaction() as tx:
        for at in range(NAMES_MAX + 3):
            tx.create_table(f"t{at:03}", {"id": "int64"}, "id")
    db.checkpoint()
    (newest,) = records(rest, "limit=1")
    assert newest["tables"] == [f"t{at:03}" for at in range(NAMES_MAX)]
    assert newest["changed"] == NAMES_MAX + 3


def test_records_are_for_tokens_that_read(tmp_path: Path) -> None:
    with rest_of(tmp_path / "shop", tokens=TOKENS) as (_, service, rest):
        assert rest.get("/v1/records").status == 401
        with closing(as_role(service, Role.READ)) as reader:
            assert len(records(reader)) == 2
            document = reader.get("/openapi.json").json
        described = document["paths"]["/v1/records"]["get"]
        assert described["x-siltstone-role"] == "read"
        assert {"limit", "before"} <= {each["name"] for each in described["parameters"]}


def test_what_a_vacuum_deleted_is_in_no_page(tmp_path: Path) -> None:
    with opened(tmp_path / "shop", retention="0s") as db, rest_to(db) as (_, rest):
        table = db.create_table("t", {"id": "int64"}, "id")
        for at in range(3):
            table.upsert({"id": at})
            db.checkpoint()
        last = records(rest)[0]["number"]
        db.vacuum(dry_run=False)
        (only,) = records(rest)
        assert only["number"] > last
        assert (only["works"], "since" in only) == ([], False)


OLD = Record("s", 4, 1, "w", 0, 9, 9, keyed=(KeyedStorage(1, "f", merged_seq=8, history_from=2),))


@pytest.mark.parametrize(
    ("change", "works"),
    [
        ({"epoch": 2}, ["open"]),
        ({"oldest_seq": 3}, ["vacuum"]),
        ({"gc_horizon_us": 3}, ["vacuum"]),
        ({"keyed": (KeyedStorage(1, "f", merged_seq=8, history_from=5),)}, ["vacuum"]),
        ({"keyed": (KeyedStorage(1, "f", history_from=2),)}, ["repair"]),
        ({"last_seq": 12, "flushed_seq": 12}, ["checkpoint"]),
        ({}, []),
    ],
)
def test_what_a_record_changes_names_the_work(change: dict[str, Any], works: list[str]) -> None:
    new = msgspec.structs.replace(OLD, number=7, **change)
    found = published(new, OLD)
    assert (found.works, found.since) == (works, 4)
