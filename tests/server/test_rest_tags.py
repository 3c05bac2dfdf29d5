"""A tag over REST is of one table: it follows the table, and no other table sees it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest

import siltstone as st
from siltstone.errors import RequestError
from siltstone.server.rest.server import RestServer
from tests.server.rest import Rest, rest_of
from tests.server.stores import opened

Served = tuple[st.Store, RestServer, Rest]
ROWS = pa.table({"id": [1, 2]})


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    with rest_of(tmp_path / "shop") as found:
        db = found[0]
        for name in ("a", "b"):
            db.create_table(name, ROWS.schema)
            db[name].append(ROWS)
            db[name].append(ROWS)
        db.create_table("k", ROWS.schema, primary_key="id").upsert(ROWS)
        yield found


def tags_of(rest: Rest, table: str) -> dict[str, int]:
    found = rest.post(f"/v1/table/{table}/tags/list", {}).json["tags"]
    assert all(set(tag) == {"version", "manifestSize"} for tag in found.values())
    return {name: tag["version"] for name, tag in found.items()}


def newest(rest: Rest, table: str) -> int:
    versions = rest.post(f"/v1/table/{table}/version/list", {}).json["versions"]
    return max(version["version"] for version in versions)


def tag(rest: Rest, verb: str, table: str, name: str, version: int | None = None) -> Any:
    body = {"tag": name} if version is None else {"tag": name, "version": version}
    return rest.post(f"/v1/table/{table}/tags/{verb}", body)


@contextmanager
def without_retention(root: Path) -> Iterator[tuple[st.Store, Rest, int]]:
    """Yield a store with a table `a` of which a vacuum keeps tags alone, and its one version."""
    with st.connect(root / "shop", retention="0s", background=False) as db:
        rest = Rest(cast("RestServer", db.serve(port=0)))
        db.create_table("a", ROWS.schema).append(ROWS)
        yield db, rest, newest(rest, "a")
        rest.close()


def test_a_tag_of_one_table_is_not_a_tag_of_another(served: Served) -> None:
    _, _, rest = served
    number = newest(rest, "a")
    assert tag(rest, "create", "a", "prod", number).status == 200
    assert tags_of(rest, "a") == {"prod": number}
    assert tags_of(rest, "b") == {}
    assert tag(rest, "create", "b", "prod", number - 1).status == 200
    assert tag(rest, "create", "b", "prod", number).code == (409, 9)
    assert tag(rest, "update", "b", "prod", number).status == 200
    assert tag(rest, "delete", "b", "prod").status == 200
    assert tag(rest, "delete", "b", "prod").code == (404, 8)
    assert tag(rest, "version", "b", "prod").code == (404, 8)
    assert tag(rest, "version", "a", "prod").json == {"version": number}
    assert tag(rest, "create", "none", "x", 1).code == (404, 4)
    assert tag(rest, "create", "a", "x" * 129, number).code == (400, 13)


def test_a_tag_of_a_keyed_table_names_a_seq(served: Served) -> None:
    db, _, rest = served
    seq = db.seq
    assert tag(rest, "create", "k", "was", seq).status == 200
    db["k"].upsert([{"id": 9}])
    assert tags_of(rest, "k") == {"was": seq}
    assert rest.post("/v1/table/k/count_rows", {"version": seq}).json == 2


def test_tags_come_in_pages(served: Served) -> None:
    rest = served[2]
    number = newest(rest, "a")
    for name in ("x", "y", "z"):
        tag(rest, "create", "a", name, number)
    first = rest.post("/v1/table/a/tags/list?limit=2", {}).json
    assert sorted(first["tags"]) == ["x", "y"]
    rest_of_them = rest.post(f"/v1/table/a/tags/list?page_token={first['page_token']}", {}).json
    assert sorted(rest_of_them["tags"]) == ["z"]


def test_a_tag_follows_its_table_and_goes_with_it(served: Served) -> None:
    db, _, rest = served
    number = newest(rest, "a")
    tag(rest, "create", "a", "prod", number)
    db.rename_table("a", "c")
    assert tags_of(rest, "c") == {"prod": number}
    db.drop_table("c")
    db.create_table("c", ROWS.schema)
    assert tags_of(rest, "c") == {}


def test_tags_of_the_store_and_of_tables_do_not_meet(served: Served) -> None:
    db, _, rest = served
    db.tag("prod")
    assert tags_of(rest, "a") == {}
    tag(rest, "create", "a", "audit", newest(rest, "a"))
    assert set(db.tags()) == set(db.status().tags) == {"prod"}
    with pytest.raises(RequestError, match="no tag"):
        db.snapshot(tag="#1/audit")
    for change in (lambda: db.tag("#1/audit"), lambda: db.untag("#1/audit")):
        with pytest.raises(RequestError, match="of tags of one table"):
            change()
    db.tag("#1")
    db.tag("#a/b")
    assert set(db.tags()) == {"prod", "#1", "#a/b"}
    assert list(tags_of(rest, "a")) == ["audit"]


def test_a_tag_is_part_of_the_transaction_that_sets_it(served: Served) -> None:
    rest = served[2]
    number = newest(rest, "a")
    key = rest.post("/v1/transaction/begin").json["id"]
    body = {"tag": "x", "version": number}
    assert rest.post("/v1/table/a/tags/create", body, x_siltstone_txn=key).status == 200
    inside = rest.post("/v1/table/a/tags/list", {}, x_siltstone_txn=key).json["tags"]
    assert list(inside) == ["x"]
    assert tags_of(rest, "a") == {}
    rest.post(f"/v1/transaction/{key}/commit")
    assert tags_of(rest, "a") == {"x": number}


def test_a_tag_keeps_its_version_over_a_vacuum_and_a_restart(tmp_path: Path) -> None:
    with st.connect(tmp_path / "shop", retention="0s", background=False) as db:
        rest = Rest(cast("RestServer", db.serve(port=0)))
        db.create_table("k", ROWS.schema, primary_key="id").upsert(ROWS)
        seq = db.seq
        tag(rest, "create", "k", "was", seq)
        db["k"].truncate()
        db.checkpoint()
        db.merge()
        db.vacuum(dry_run=False)
        rest.close()
    with opened(tmp_path / "shop") as db, db.snapshot(seq=seq) as past:
        assert past["k"].count() == 2
        rest = Rest(cast("RestServer", db.serve(port=0)))
        assert tags_of(rest, "k") == {"was": seq}
        db.drop_table("k")
        rest.close()


def test_a_vacuum_before_the_commit_of_a_tag_takes_nothing_of_its_version(tmp_path: Path) -> None:
    with without_retention(tmp_path) as (db, rest, number):
        seq = db.seq
        for _ in range(2):
            db["a"].overwrite(ROWS.slice(1))
            db.checkpoint()
        key = rest.post("/v1/transaction/begin").json["id"]
        body = {"tag": "then", "version": number}
        assert rest.post("/v1/table/a/tags/create", body, x_siltstone_txn=key).status == 200
        for _ in range(2):
            db["a"].overwrite(ROWS.slice(1))
            db.checkpoint()
        db.vacuum(dry_run=False, grace_s=0)
        assert rest.post(f"/v1/transaction/{key}/commit").status == 200
        db.checkpoint()
        db.vacuum(dry_run=False, grace_s=0)
        assert tags_of(rest, "a") == {"then": number}
        with db.snapshot(seq=seq) as past:
            assert past["a"].count() == 2


def test_a_tagged_version_is_read_by_its_number_after_a_vacuum(tmp_path: Path) -> None:
    with without_retention(tmp_path) as (db, rest, number):
        db.tag("other")
        for _ in range(3):
            db["a"].overwrite(ROWS.slice(1))
            if newest(rest, "a") == number + 1:
                assert tag(rest, "create", "a", "then", number).status == 200
            db.checkpoint()
        db.vacuum(dry_run=False, grace_s=0)
        assert tags_of(rest, "a") == {"then": number}
        for _ in range(2):
            assert rest.post("/v1/table/a/count_rows", {"version": number}).json == 2
            assert rest.post("/v1/table/a/count_rows", {"version": number + 1}).code == (404, 11)
            db["a"].overwrite(ROWS.slice(1))
            db.checkpoint()
            db.vacuum(dry_run=False, grace_s=0)


def test_a_version_that_was_never_to_be_read_is_no_version_to_tag(served: Served) -> None:
    db, _, rest = served
    with db.transaction() as tx:
        tx["a"].append(ROWS)
        tx["a"].append(ROWS)
    numbers = [v["version"] for v in rest.post("/v1/table/a/version/list", {}).json["versions"]]
    answers = {number: tag(rest, "create", "a", f"v{number}", number) for number in numbers}
    listed = tags_of(rest, "a")
    for number, answer in answers.items():
        if answer.status == 200:
            assert listed[f"v{number}"] == number
        else:
            assert answer.code == (404, 11)


def test_stock_clients_see_the_tags_of_their_table(served: Served) -> None:
    import lance_namespace as m
    import lancedb
    from lance.namespace import RestNamespace

    rest, url = served[2], served[1].url
    number = newest(rest, "a")
    space = RestNamespace(uri=url)
    space.create_table_tag(m.CreateTableTagRequest(id=["a"], tag="prod", version=number))
    found = space.list_table_tags(m.ListTableTagsRequest(id=["a"])).tags
    assert {name: tag.version for name, tag in found.items()} == {"prod": number}
    assert found["prod"].manifest_size > 0
    assert space.list_table_tags(m.ListTableTagsRequest(id=["b"])).tags == {}
    remote = lancedb.connect("db://dev", api_key="none", host_override=url)
    a, b = remote.open_table("a"), remote.open_table("b")
    assert a.tags.list()["prod"]["version"] == number
    assert b.tags.list() == {}
    b.tags.create("prod", number - 1)
    b.tags.update("prod", number)
    assert b.tags.get_version("prod") == number
    b.tags.delete("prod")
    assert list(a.tags.list()) == ["prod"]
