"""An error that another process raised says the same here, with the same fields."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from collections.abc import Callable, Iterator
from typing import Any, cast

import pyarrow as pa
import pytest
from lance_namespace import ListTablesRequest
from lance_namespace.errors import NamespaceNotFoundError

import siltstone as st
from siltstone import errors
from siltstone.engine.commit.write_set import Receipt
from siltstone.namespace import SiltstoneNamespace
from siltstone.options import ConnectOptions, Options
from siltstone.process import extras

EXAMPLES = [
    errors.RequestError("what"),
    errors.TableNotFoundError("t"),
    errors.TableExistsError("t"),
    errors.DuplicateKeyError("t", ("a", 4)),
    errors.SnapshotExpiredError("seq 1", 2, 3),
    errors.UnsupportedFormatError("x", 2, 1),
    errors.AccessError("no token", status=401),
    errors.ConflictError("t", "k", 1, 2),
    errors.FencedError(1, 2),
    errors.OwnedError("x", 1, "here"),
    errors.InDoubtError("1-2"),
    errors.NotShippedError(7, "503", Receipt(7, 1, "1-2")),
    errors.CorruptionError("x", 7, "flipped"),
    errors.UnavailableError("full"),
    errors.ReplacedError("x", "record 7 is gone"),
]


@pytest.mark.parametrize("error", EXAMPLES, ids=lambda error: type(error).__name__)
def test_it_travels(error: errors.SiltstoneError) -> None:
    for found in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert type(found) is type(error)
        assert (str(found), found.args, vars(found)) == (str(error), error.args, vars(error))


def test_an_unknown_name_is_told_with_the_names_that_are_like_it() -> None:
    said = errors.no_such("column", "totl", ["id", "total"])
    assert said == "no column 'totl'; did you mean 'total'? The columns are id, total"
    assert str(errors.TableNotFoundError("Orders", ["orders", "x"])) == (
        "there is no table 'Orders'; did you mean 'orders'? The tables are orders, x"
    )
    assert errors.no_such("index", "x", []) == "no index 'x'; there are no indexes"


def test_the_words_for_an_unknown_name_are_few_however_many_names_there_are() -> None:
    many = [f"column_{number}" for number in range(100_000)]
    said = errors.no_such("column", ["column_7x"] * 50 + ["x" * 100_000], many)
    assert "did you mean 'column_7'" in said
    assert "column_19 and 99,980 more" in said
    assert len(said) < 1_000


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[st.Store]:
    with st.connect(tmp_path_factory.mktemp("s") / "shop", background=False) as db:
        db.create_table("orders", {"id": "int64", "total": "int64"}, primary_key="id")
        db.create_table("places", {"id": "int64", "at": "vector(float32, 2)"}, primary_key="id")
        db.create_table("north.cities", {"id": "int64"}, primary_key="id")
        db.tag("audit")
        yield db


MISTYPED: dict[str, tuple[Callable[[st.Store], object], str]] = {
    "a table": (lambda db: db["ordrs"], "orders"),
    "a table that is dropped": (lambda db: db.drop_table("Orders"), "orders"),
    "a table of a snapshot": (lambda db: db.snapshot()["ordesr"], "orders"),
    "a table in a transaction": (lambda db: db.run(lambda tx: tx["orderss"]), "orders"),
    "a table in a statement": (lambda db: db.sql("select * from ordrs"), "orders"),
    "a column to read": (lambda db: db["orders"].scan(["totl"]), "total"),
    "a column of a dataset": (lambda db: db["orders"].dataset().to_table(["totl"]), "total"),
    "a column in a filter": (lambda db: db["orders"].count("totl > 1"), "total"),
    "a column to write": (lambda db: db["orders"].upsert({"id": 1, "totl": 2}), "total"),
    "a column of a frame": (lambda db: db["orders"].upsert(pa.table({"ID": [1]})), "id"),
    "a column to update": (lambda db: db["orders"].update(1, totl=2), "total"),
    "a column to drop": (lambda db: db["orders"].drop_column("totl"), "total"),
    "a column to index": (lambda db: db["orders"].create_index("totl"), "total"),
    "a tag": (lambda db: db.snapshot(tag="audti"), "audit"),
    "an option": (lambda db: st.connect(db.path, verfy="scrub"), "verify"),
}


CHOSEN: dict[str, tuple[Callable[[st.Store], object], str]] = {
    "an isolation": (lambda db: db.transaction(isolation=any_word("serialisable")), "serializable"),
    "a durability": (lambda db: db.transaction(durability=any_word("synch")), "sync"),
    "an operation": (lambda db: db.stage("orders", any_word("upserts")), "upsert"),
    "a kind": (lambda db: db["orders"].create_index("id", any_word("b-tree")), "btree"),
    "a metric": (
        lambda db: db["places"].create_index("at", "vector", metric=any_word("cosin")), "cosine"
    ),
    "a check": (lambda db: st.connect(db.path, verify=any_word("first-use")), "first_use"),
}  # fmt: skip


def any_word(word: str) -> Any:
    """Return a word as what no type checker looks at."""
    return word


@pytest.mark.parametrize("name", CHOSEN)
def test_a_mistyped_word_is_refused_with_all_words_and_a_suggestion(
    shop: st.Store, name: str
) -> None:
    call, meant = CHOSEN[name]
    with pytest.raises(st.RequestError, match=f"must be one of .*{meant}.*did you mean '{meant}'"):
        call(shop)


def test_a_mistyped_namespace_is_refused_with_a_suggestion(shop: st.Store) -> None:
    namespace = SiltstoneNamespace(cast("Any", shop))
    with pytest.raises(NamespaceNotFoundError, match="did you mean 'north'"):
        namespace.list_tables(ListTablesRequest(id=["nort"]))


@pytest.mark.parametrize("wrong", ["shop", None, 7])
def test_a_namespace_of_no_store_is_refused(wrong: Any) -> None:
    with pytest.raises(st.RequestError, match="a namespace needs an open store, as connect"):
        SiltstoneNamespace(wrong)


def test_a_value_of_another_kind_is_no_choice(shop: st.Store) -> None:
    for wrong in (None, 7, ["snapshot"]):
        with pytest.raises(st.RequestError, match="isolation must be one of snapshot, serial"):
            shop.transaction(isolation=any_word(wrong))


@pytest.mark.parametrize("name", MISTYPED)
def test_a_mistyped_name_is_refused_with_a_suggestion(shop: st.Store, name: str) -> None:
    call, meant = MISTYPED[name]
    with pytest.raises(st.RequestError, match=f"did you mean '{meant}'"):
        call(shop)


def test_a_missing_package_is_told_with_the_extra_that_has_it() -> None:
    with pytest.raises(st.UnavailableError, match=r"to_cudf\(\) needs cuDF: pip install 'siltston"):
        extras.imported("no_module_is_called_so", "to_cudf()", "cuDF", "cudf")


def test_every_option_of_a_store_has_a_type_for_editors() -> None:
    names = {field.name for field in dataclasses.fields(Options)}
    assert ConnectOptions.__annotations__.keys() == names | {"retention", "token", "cafile"}
