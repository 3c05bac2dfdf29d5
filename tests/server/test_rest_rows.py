"""Statements on rows do what Lance does: merges and restores, on tables of both kinds."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import lance
import pyarrow as pa
import pytest

import siltstone as st
from siltstone.server.rest.server import RestServer
from tests.server.rest import Answer, Rest, rest_of

Served = tuple[st.Store, RestServer, Rest]
SCHEMA = pa.schema([("id", pa.int64()), ("k", pa.string()), ("n", pa.int64())])


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with rest_of(tmp_path_factory.mktemp("rows") / "shop") as found:
        yield found


def made(served: Served, rows: list[dict[str, Any]], key: str = "") -> str:
    """Make a table of its own with rows, some of them in a second version."""
    db = served[0]
    name = f"t{len(db.tables())}"
    table = db.create_table(name, SCHEMA, primary_key=key or None)
    write = table.upsert if key else table.append
    half = len(rows) // 2
    for part in (rows[:half], rows[half:]):
        if part:
            write(pa.Table.from_pylist(part, SCHEMA))
    return name


def merged(rest: Rest, name: str, rows: pa.Table, on: str, **how: object) -> Answer:
    return rest.post(f"/v1/table/{name}/merge_insert?" + urlencode({"on": on, **how}), rows)


def sorted_rows(rows: list[dict[str, Any]]) -> list[str]:
    return sorted(map(str, rows))


ALL = {"when_matched_update_all": "true", "when_not_matched_insert_all": "true"}
WAYS: list[dict[str, str]] = [
    {"when_matched_update_all": "true"},
    {"when_not_matched_insert_all": "true"},
    ALL,
    {**ALL, "when_not_matched_by_source_delete": "true"},
    {
        **ALL,
        "when_not_matched_by_source_delete": "true",
        "when_not_matched_by_source_delete_filt": "n > 5",
    },
]


def by_lance(path: Path, old: pa.Table, rows: pa.Table, on: list[str], how: dict[str, str]) -> Any:
    """Return the rows that Lance's own merge leaves, and what it says of it."""
    dataset = lance.write_dataset(old, path)
    builder = dataset.merge_insert(on)
    if "when_matched_update_all" in how:
        builder = builder.when_matched_update_all()
    if "when_not_matched_insert_all" in how:
        builder = builder.when_not_matched_insert_all()
    if "when_not_matched_by_source_delete" in how:
        wanted = how.get("when_not_matched_by_source_delete_filt")
        builder = builder.when_not_matched_by_source_delete(wanted)
    told = builder.execute(rows)
    counts = {name: told[name] for name in told if name in COUNTS}
    return lance.dataset(path).to_table().to_pylist(), counts


COUNTS = ("num_updated_rows", "num_inserted_rows", "num_deleted_rows")


@pytest.mark.parametrize("on", ["id", "k", "id,k"])
@pytest.mark.parametrize("way", range(len(WAYS)))
def test_a_merge_into_a_plain_table_is_the_one_of_lance(
    served: Served, tmp_path: Path, on: str, way: int
) -> None:
    chance = random.Random(f"{on} {way}")
    old = [
        {"id": n, "k": chance.choice(["a", "b", "c", "d", None]), "n": chance.randrange(10)}
        for n in chance.sample(range(12), 8)
    ]
    rows = [{"id": n, "k": f"{chance.choice('abcdef')}", "n": 100 + n} for n in range(6, 14)]
    if on == "k":
        rows = list({row["k"]: row for row in rows}.values())
    name = made(served, old)
    source = pa.Table.from_pylist(rows, SCHEMA)
    answer = merged(served[2], name, source, on, **WAYS[way])
    expected, counts = by_lance(
        tmp_path / "l", pa.Table.from_pylist(old, SCHEMA), source, on.split(","), WAYS[way]
    )
    assert sorted_rows(served[0][name].to_arrow().to_pylist()) == sorted_rows(expected)
    assert {count: answer.json[count] for count in COUNTS} == counts


@pytest.mark.parametrize("key", ["", "id"])
def test_columns_that_the_source_lacks_keep_their_values(served: Served, key: str) -> None:
    db, _, rest = served
    name = made(served, [{"id": n, "k": f"k{n}", "n": n} for n in range(4)], key)
    source = pa.table({"n": [30, 90], "id": [3, 9]})
    answer = merged(rest, name, source, "id", **ALL)
    assert [answer.json[count] for count in COUNTS] == [1, 1, 0]
    rows = db[name].to_arrow().sort_by("id").to_pylist()
    assert rows[3:] == [{"id": 3, "k": "k3", "n": 30}, {"id": 9, "k": None, "n": 90}]


def test_a_merge_is_one_version_for_other_clients(served: Served) -> None:
    db, _, rest = served
    name = made(served, [{"id": n, "k": "k", "n": n} for n in range(4)])
    listed = f"/v1/table/{name}/version/list"
    before = rest.post(listed).json["versions"][-1]["version"]
    answer = merged(rest, name, pa.table({"id": [1, 8], "k": ["x", "y"]}), "id", **ALL)
    versions = rest.post(listed).json["versions"]
    assert answer.json["version"] == versions[-1]["version"] == before + 1
    assert db[name].count() == 5


def test_merges_that_race_insert_a_key_once(served: Served) -> None:
    db, service, _ = served
    name = made(served, [{"id": 0, "k": "a", "n": 0}])

    def insert(number: int) -> None:
        rest = Rest(service)
        for key in range(4):
            row = pa.table({"id": [key], "n": [number]})
            answer = merged(rest, name, row, "id", when_not_matched_insert_all="true")
            assert answer.status == 200, answer.body
        rest.close()

    threads = [threading.Thread(target=insert, args=(n,)) for n in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(db[name].to_arrow()["id"].to_pylist()) == [0, 1, 2, 3]


@pytest.mark.parametrize("key", ["", "id"])
def test_a_restore_writes_an_older_version_anew(served: Served, key: str) -> None:
    db, _, rest = served
    name = made(served, [{"id": n, "k": "k", "n": n} for n in range(4)], key)
    newest = {} if key else rest.post(f"/v1/table/{name}/version/list").json["versions"][-1]
    version = newest.get("version", db.seq)
    rest.post(f"/v1/table/{name}/delete", {"predicate": "id > 1"})
    rest.post(f"/v1/table/{name}/update", {"updates": [["n", "n + 100"]]})
    between = db.seq
    restored = rest.post(f"/v1/table/{name}/restore", {"version": version})
    assert restored.status == 200, restored.body
    assert restored.seq == between + 1
    assert db[name].to_arrow().sort_by("id")["n"].to_pylist() == [0, 1, 2, 3]
    with db.snapshot(seq=between) as past:
        assert past[name].count() == 2


def test_a_restore_is_a_statement_of_a_transaction(served: Served) -> None:
    db, _, rest = served
    name = made(served, [{"id": n, "k": "k", "n": n} for n in range(4)])
    rest.post(f"/v1/table/{name}/delete", {"predicate": "id > 1"})
    key = rest.post("/v1/transaction/begin").json["id"]
    body, inside = {"version": 1}, {"x_siltstone_txn": key}
    versions = rest.post(f"/v1/table/{name}/version/list").json["versions"]
    body = {"version": versions[-2]["version"]}
    assert rest.post(f"/v1/table/{name}/restore", body, **inside).status == 200
    assert rest.post(f"/v1/table/{name}/count_rows", {}, **inside).json == 4
    assert rest.post(f"/v1/table/{name}/count_rows", {}).json == 2
    rest.post(f"/v1/transaction/{key}/rollback")
    assert db[name].count() == 2


def test_a_query_tells_how_it_was_answered(served: Served) -> None:
    rest = served[2]
    name = made(served, [{"id": n, "k": "k", "n": n} for n in range(4)])
    told = rest.post(f"/v1/table/{name}/analyze_plan", {"k": 10, "filter": "n > 1"}).json
    assert "filter: n > 1" in told
    assert "answered with: 2 rows" in told
