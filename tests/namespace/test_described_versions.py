"""A version of a table is described as it was: in process, joined, and over REST.

The version of a table with a key is a seq, that of a plain table its number.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from siltstone.namespace import SiltstoneNamespace
from tests.namespace.three_ways import ROWS, ThreeWays, three_ways

pytestmark = pytest.mark.filterwarnings("ignore")  # of the clients' own making
BOTH = pytest.mark.parametrize("name", ["k", "p"])
REMOTE = {"x_lancedb_database": "dev"}
OLD, NEW = ["id", "v"], ["id", "v", "n"]
ABOUT_VERSIONS = ("describe_table", "table_exists", "query_table", "count_table_rows")


@pytest.fixture
def ways(tmp_path: Path) -> Iterator[ThreeWays]:
    """Both tables got a column; a seq that has no tag is given up by the next vacuum."""
    with three_ways(tmp_path, retention="0s") as found:
        for db in found.stores:
            db.tag("before")
            for name in ("k", "p"):
                db[name].add_column("n", "int64")
                grown = ROWS.append_column("n", ROWS["id"])
                db[name].upsert(grown) if name == "k" else db[name].append(grown)
        yield found


def before(ways: ThreeWays, name: str) -> int:
    """Return the last version of a table without the column."""
    return ways.stores[0].tags()["before"] if name == "k" else 2


def described(ways: ThreeWays, name: str, **asked: Any) -> dict[str, Any]:
    request = {"id": [name], "load_detailed_metadata": True} | asked
    here, joined, there = ways.asked("describe_table", request)
    assert (here, joined) == (there, there)
    assert isinstance(there.answer, dict), there
    return there.answer


def columns(answer: dict[str, Any]) -> list[str]:
    return [field["name"] for field in answer["schema"]["fields"]]


def refused(ways: ThreeWays, operation: str, name: str, version: int) -> tuple[int | None, str]:
    here, joined, there = ways.asked(operation, {"id": [name], "version": version})
    assert (here, joined) == (there, there)
    return there.code, there.sentence


@BOTH
def test_a_version_is_described_by_the_columns_that_it_had(ways: ThreeWays, name: str) -> None:
    version = before(ways, name)
    found = described(ways, name, version=version)
    assert (found["version"], columns(found)) == (version, OLD)
    newest = described(ways, name)
    assert (newest["version"] > version, columns(newest)) == (True, NEW)
    assert described(ways, name, version=newest["version"]) == newest


def test_the_version_of_a_table_with_a_key_is_the_seq(ways: ThreeWays) -> None:
    assert described(ways, "k")["version"] == ways.stores[0].seq
    assert described(ways, "p")["version"] > 2


@BOTH
@pytest.mark.parametrize("version", [0, 99_999])
def test_a_version_that_never_was_is_not_found(ways: ThreeWays, name: str, version: int) -> None:
    for operation in ABOUT_VERSIONS[:2]:
        code, sentence = refused(ways, operation, name, version)
        assert code == 11
        assert sentence.startswith("not found")


@BOTH
def test_a_negative_version_is_refused(ways: ThreeWays, name: str) -> None:
    for operation in ABOUT_VERSIONS:
        code, sentence = refused(ways, operation, name, -1)
        assert code == 13
        assert "version" in sentence


@BOTH
def test_a_version_that_is_not_kept_any_more_is_not_found(ways: ThreeWays, name: str) -> None:
    kept = before(ways, name)
    gone = kept - 1 if name == "k" else 1
    for operation in ABOUT_VERSIONS:
        assert refused(ways, operation, name, gone)[0] is None
    vacuum(ways)
    for operation in ABOUT_VERSIONS:
        assert refused(ways, operation, name, gone)[0] == 11, operation
    assert columns(described(ways, name, version=kept)) == OLD
    assert columns(described(ways, name)) == NEW


def vacuum(ways: ThreeWays) -> None:
    for db in ways.stores:
        db.checkpoint()
        db.merge()
        db.vacuum(dry_run=False, grace_s=-10)


@BOTH
def test_a_version_is_told_as_not_kept_in_the_same_words(ways: ThreeWays, name: str) -> None:
    vacuum(ways)
    gone = before(ways, name) - 1
    told = {refused(ways, operation, name, gone) for operation in ABOUT_VERSIONS}
    assert len(told) == 1, told


@BOTH
def test_a_version_from_before_a_rename_is_described(ways: ThreeWays, name: str) -> None:
    version = before(ways, name)
    for db in ways.stores:
        db.rename_table(name, "after")
    found = described(ways, "after", version=version)
    assert (found["table"], columns(found)) == ("after", OLD)


@BOTH
def test_a_snapshot_and_a_transaction_describe_what_was_there_for_them(
    ways: ThreeWays, name: str
) -> None:
    db, version = ways.stores[0], before(ways, name)
    wanted = {"id": [name], "load_detailed_metadata": True}
    ns = SiltstoneNamespace(db)
    newest = described(ways, name)["version"]
    with ns.at(tag="before") as past:
        assert past.describe_table(wanted).version == version
        assert columns_of(past.describe_table(wanted)) == OLD
        assert columns_of(past.describe_table(wanted | {"version": version})) == OLD
        with pytest.raises(Exception, match="not found"):
            past.describe_table(wanted | {"version": newest})
    with ns.transaction() as tx:
        assert columns_of(tx.describe_table(wanted | {"version": version})) == OLD
        tx.transaction[name].add_column("m", "int64")
        assert columns_of(tx.describe_table(wanted)) == [*NEW, "m"]
        assert columns_of(tx.describe_table(wanted | {"version": newest})) == NEW
        tx.transaction.rename_table(name, "other")
        asked = wanted | {"id": ["other"], "version": version}
        assert columns_of(tx.describe_table(asked)) == OLD


def columns_of(found: Any) -> list[str]:
    return [field.name for field in found.var_schema.fields]


@BOTH
def test_the_remote_client_of_lancedb_is_told_the_same(ways: ThreeWays, name: str) -> None:
    version, rest = before(ways, name), ways.rest
    for asked in ({}, {"version": version}):
        told = described(ways, name, **asked)
        found = rest.post(f"/v1/table/{name}/describe", asked, **REMOTE).json
        assert (found["version"], columns(found)) == (told["version"], columns(told))
        kinds = [field["type"]["type"] for field in found["schema"]["fields"]]
        assert kinds[:2] == ["int64", "string"]
    for missing in (0, 99_999):
        found = rest.post(f"/v1/table/{name}/describe", {"version": missing}, **REMOTE)
        assert found.code == (404, 11)
        assert found.json["error"] == refused(ways, "describe_table", name, missing)[1]


def test_the_versions_that_a_client_is_shown_of_a_late_table_are_there(tmp_path: Path) -> None:
    with three_ways(tmp_path) as ways:
        for db in ways.stores:
            db.create_table("late", ROWS.schema, primary_key="id").upsert(ROWS)
            db.checkpoint()
            db.merge()
        listed = ways.asked("list_table_versions", {"id": ["late"]})[2].answer
        assert isinstance(listed, dict)
        (number,) = [each["version"] for each in listed["versions"]]
        assert number < ways.stores[0].seq - 1, "no seq of the table"
        assert described(ways, "late", version=number)["version"] == number
