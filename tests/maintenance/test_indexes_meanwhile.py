"""An index comes to, and goes from, the table that was asked, whatever its name is by then."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import siltstone as st
from siltstone.api.tables import Table
from siltstone.formats.manifest import Record
from siltstone.local.tables import LocalTable
from siltstone.maintenance.index.indexer import TableIndexes

SCHEMA = {"id": "int64", "customer": "int64"}


@pytest.fixture
def db(tmp_path: Path) -> Iterator[st.Store]:
    with st.connect(tmp_path / "db", background=False, segment_bytes=65_536) as db:
        orders = db.create_table("orders", SCHEMA, "id")
        orders.upsert([{"id": n, "customer": n % 7} for n in range(300)])
        db.checkpoint()
        db.merge()
        yield db


class Checkpoints:
    """The checkpoints of a store, where others commit before one begins, or behind all of it."""

    def __init__(
        self, db: st.Store, before: Callable[[], object], behind: Callable[[], object]
    ) -> None:
        assert db._parts.owner is not None
        self._real, self._before, self._behind = db._parts.owner.checkpointer, before, behind

    def checkpoint(self) -> Record:
        self._before()
        return self._real.checkpoint()

    def refresh(self) -> None:
        self._real.refresh()
        self._behind()


def meanwhile(
    db: st.Store,
    before: Callable[[], object] = lambda: None,
    behind: Callable[[], object] = lambda: None,
) -> Table:
    """Return a handle of `orders`; while one of its indexes is made or dropped, others commit."""
    assert db._parts.owner is not None
    indexes = TableIndexes(
        db._parts.owner.indexes._indexer, Checkpoints(db, before, behind), db._core
    )
    return LocalTable(db._core, db["orders"].id, lambda: indexes)


def names(table: Table) -> list[str]:
    return [index.name for index in table.indexes()]


def test_an_index_comes_to_the_table_that_was_asked_though_it_is_renamed_meanwhile(
    db: st.Store,
) -> None:
    made = meanwhile(db, lambda: db.rename_table("orders", "sales")).create_index("customer")
    assert (made.name, made.lagging_rows) == ("customer", 0)
    assert names(db["sales"]) == ["customer"]


def test_an_index_comes_to_the_table_that_was_asked_though_another_takes_its_name(
    db: st.Store,
) -> None:
    def replace() -> None:
        db.rename_table("orders", "sales")
        db.create_table("orders", SCHEMA, "id")

    made = meanwhile(db, replace).create_index("customer")
    assert (made.name, made.lagging_rows) == ("customer", 0)
    assert [names(db[name]) for name in ("sales", "orders")] == [["customer"], []]


def test_an_index_is_dropped_of_the_table_that_was_asked_though_another_takes_its_name(
    db: st.Store,
) -> None:
    db["orders"].create_index("customer")

    def replace() -> None:
        db.rename_table("orders", "sales")
        db.create_table("orders", SCHEMA, "id").create_index("customer")

    meanwhile(db, replace).drop_index("customer")
    assert [names(db[name]) for name in ("sales", "orders")] == [[], ["customer"]]


@pytest.mark.parametrize(
    "ask", [lambda table: table.create_index("customer"), lambda table: table.drop_index("id")]
)
def test_of_a_table_that_is_dropped_meanwhile_no_other_gets_or_loses_an_index(
    db: st.Store, ask: Callable[[Table], object]
) -> None:
    db["orders"].create_index("id")

    def replace() -> None:
        db.drop_table("orders")
        db.create_table("orders", SCHEMA, "id").create_index("id")

    with pytest.raises(st.TableNotFoundError, match="orders"):
        ask(meanwhile(db, replace))
    assert names(db["orders"]) == ["id"]


def test_who_makes_an_index_that_is_dropped_at_once_hears_so(db: st.Store) -> None:
    orders = db["orders"]
    with pytest.raises(st.RequestError, match="'orders' has no index 'customer' any more"):
        meanwhile(db, behind=lambda: orders.drop_index("customer")).create_index("customer")
    with pytest.raises(st.RequestError, match="its column, was dropped"):
        meanwhile(db, behind=lambda: orders.drop_column("customer")).create_index("customer")
    with pytest.raises(st.TableNotFoundError):
        meanwhile(db, behind=lambda: db.drop_table("orders")).create_index("id")
    assert db.verify(deep=True).is_sound
