# pyright: basic
"""What did not change costs nothing: no table is looked at again because there are many."""

from __future__ import annotations

from collections import Counter

from siltstone.engine.catalog import catalog as catalogs
from siltstone.engine.catalog.definition_changes import changes_at
from siltstone.formats.log import group
from siltstone.formats.manifest import Catalog, Column, Schema
from tests.maintenance.stores import open_store

SCHEMA = Schema(1, (Column(1, "id", "int64", nullable=False),), (1,))
TABLES = 300


class Looked(tuple):
    """The tables of a catalog; counts how often all of them are looked through."""

    __slots__ = ()
    times = 0

    def __iter__(self):
        type(self).times += 1
        return super().__iter__()


def many(truncated: int = 7) -> Catalog:
    """Return a catalog of as many tables, each of a commit of its own; one was truncated."""
    catalog = Catalog()
    for table in range(1, TABLES + 1):
        catalog = catalogs.apply(catalog, group.Create(table, f"t{table}", SCHEMA), table, table)
    catalog = catalogs.apply(catalog, group.Truncate(truncated, TABLES + 1), TABLES + 1, 0)
    Looked.times = 0
    return Catalog(Looked(catalog.tables), next_id=catalog.next_id)


def test_the_table_of_an_incarnation_is_found_without_a_look_at_the_others() -> None:
    catalog = many()
    for table in range(1, TABLES + 1):
        assert catalogs.owner_of(catalog, table).id == table
    assert Looked.times == 0
    assert catalogs.owner_of(catalog, TABLES + 1).id == 7
    assert catalogs.owner_if_known(catalog, TABLES + 2) is None


def test_what_commits_did_to_definitions_is_told_after_one_look_at_the_tables() -> None:
    catalog = many()
    said = [changes_at(catalog, seq, -1) for seq in range(TABLES + 3)]
    assert said[0] == said[-1] == ()
    assert said[1 : TABLES + 1] == [(f"create t{n}",) for n in range(1, TABLES + 1)]
    assert said[TABLES + 1] == ("truncate t7",)
    assert Looked.times == 1


def test_a_second_status_opens_no_version_again(tmp_path, monkeypatch) -> None:
    with open_store(tmp_path / "s") as db:
        for name in ("a", "b"):
            db.create_table(name, {"id": "int64", "v": "int64"}, primary_key="id")
            db[name].upsert([{"id": n, "v": n} for n in range(9)])
        db.create_table("p", {"id": "int64"})
        db["p"].append({"id": 1})
        db.checkpoint()
        db.merge()
        reader = db._parts.site.tables.reader
        opened = Counter()
        real = reader.open
        monkeypatch.setattr(
            reader, "open", lambda pin: opened.update([pin.folder]) or real(pin), raising=True
        )
        first = db.status()
        assert opened
        opened.clear()
        assert db.status().tables == first.tables
        assert opened == {}
        db["a"].upsert({"id": 9, "v": 9})
        db.checkpoint()
        opened.clear()
        assert db.status().tables[0].history_parts == first.tables[0].history_parts + 1
        assert {folder.split("/")[1].split("-")[0] for folder in opened} == {"a"}
        db["b"].create_index("v")
        opened.clear()
        (index,) = db.status().tables[1].indexes
        assert (index.column, index.indexed_rows) == ("v", 9)
