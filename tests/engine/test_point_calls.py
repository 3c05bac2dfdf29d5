"""Calls by key go a short way where they can: with the results, errors, frames of the long one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from siltstone.engine.read.readable import Readable
from siltstone.engine.write.transaction import EngineTransaction
from siltstone.formats import group
from siltstone.local.store import LocalStore
from siltstone.local.transaction import LocalTransactionTable
from tests.formats.test_row_encoder import HOSTILE_NAMES, HOSTILE_VALUES
from tests.formats.test_rows import VALUES
from tests.maintenance.stores import open_store

KINDS = sorted(kind for kind in VALUES if "(38" not in kind)  # rows with those go no short way
KEYS = {"int64": some.integers(0, 2), "string": some.sampled_from("abc"), "bool": some.booleans()}
ODD_KEYS = (None, True, 1.5, "a", b"a", (1,), {"class": 1}, 1 << 64, -1)


class LongWay(LocalTransactionTable):
    """A table in a transaction, each call of which goes the general way."""

    def get(self, key: object) -> dict[str, object] | None:
        return Readable.get(self, key)

    def update(self, key: object, /, **values: object) -> int:
        return self._update(key, values)

    def insert(self, rows: Any) -> int:
        return super().insert(iter(rows))

    def upsert(self, rows: Any) -> int:
        return super().upsert(iter([rows]))


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalStore]:
    with open_store(tmp_path_factory.mktemp("calls") / Path("s")) as opened:
        yield opened


def outcome(call: Callable[[], object]) -> tuple[str, str]:
    try:
        return "returned", repr(call())
    except Exception as error:  # noqa: BLE001 - whatever one way raises, the other has to raise
        return type(error).__name__, str(error)


def columns(data: some.DataObject) -> tuple[dict[str, str], str]:
    names = data.draw(
        some.lists(some.sampled_from(HOSTILE_NAMES), min_size=1, max_size=4, unique=True)
    )
    names = [name for name in names if name.strip("\0 ") and "\0" not in name] or ["class"]
    kinds = {name: data.draw(some.sampled_from(KINDS)) for name in names}
    key = data.draw(some.sampled_from(sorted(KEYS)))
    return {"key": key, **kinds}, key


def row(
    data: some.DataObject, kinds: dict[str, str], share: int = 9, *, fits: bool = False
) -> dict[str, object]:
    found: dict[str, object] = {}
    for name, kind in kinds.items():
        fitting = KEYS[kind] if name == "key" else VALUES[kind]
        odd = some.sampled_from(HOSTILE_VALUES)
        value = data.draw(fitting if fits else some.one_of(*[fitting] * 6, odd))
        if fits or data.draw(some.integers(0, 9)) < share:
            found[name] = value
    return found


def call(data: some.DataObject, kinds: dict[str, str], key: str) -> Callable[[Any], object]:
    """Return a call of a table; it may be given to two of them."""
    name = data.draw(some.sampled_from(("get", "update", "update", "upsert", "insert", "delete")))
    wanted = data.draw(some.one_of(KEYS[key], KEYS[key], KEYS[key], some.sampled_from(ODD_KEYS)))
    if name in ("get", "delete"):
        return lambda table: getattr(table, name)(wanted)
    if name == "update":
        names_key = data.draw(some.integers(0, 2)) == 0
        values = row(data, {n: kind for n, kind in kinds.items() if names_key or n != "key"}, 5)
        if not data.draw(some.integers(0, 9)):
            values["unknown"] = 1
        return lambda table: table.update(wanted, **values)
    rows = [row(data, kinds) for _ in range(data.draw(some.integers(1, 3)))]
    if name == "insert":
        return lambda table: table.insert([dict(each) for each in rows])
    return lambda table: table.upsert(dict(rows[0]))


def frame_of(tx: EngineTransaction) -> list[bytes]:
    made = tx._write_set()
    entries = [] if not hasattr(made, "parts") else [*made.parts]
    listed = [each.entry if hasattr(each, "upserts") else each.blob for each in entries]
    rows = [each for each in listed if isinstance(each, group.RowsEntry)]
    return [bytes(part) for part in group.encode(1, 1, [group.Member(1, 1, None, rows)])] + [
        each.to_pybytes() for each in listed if not isinstance(each, group.RowsEntry)
    ]


@settings(max_examples=60)
@given(data=some.data())
def test_calls_in_a_transaction_do_what_the_long_way_does(
    store: LocalStore, data: some.DataObject
) -> None:
    kinds, key = columns(data)
    name = f"t{store.seq}"
    table = store.create_table(name, kinds, primary_key="key")
    for _ in range(data.draw(some.integers(0, 3))):
        table.upsert(row(data, kinds, fits=True))
    isolation: Any = data.draw(some.sampled_from(("snapshot", "serializable")))
    calls = [call(data, kinds, key) for _ in range(data.draw(some.integers(1, 8)))]
    calls.insert(0, lambda table: table.get_many([]))  # a first read opens the short way
    short = EngineTransaction(store._core, isolation=isolation)
    long = EngineTransaction(store._core, isolation=isolation)
    ways = LocalTransactionTable(short, table.id), LongWay(long, table.id)
    for each in calls:
        found = [outcome(lambda way=way, each=each: each(way)) for way in ways]
        assert found[0] == found[1]
    assert frame_of(short) == frame_of(long)
    assert short.rows._reads == long.rows._reads
    for tx in (short, long):
        tx.rollback()


@settings(max_examples=60)
@given(data=some.data())
def test_an_upsert_of_one_row_does_what_the_long_way_does(
    store: LocalStore, data: some.DataObject
) -> None:
    kinds, _ = columns(data)
    name = f"t{store.seq}"
    tables: list[Any] = [
        store.create_table(f"{name}.{n}", kinds, primary_key="key") for n in range(2)
    ]
    for _ in range(data.draw(some.integers(1, 4))):
        given = row(data, kinds)
        ways = tables[0].upsert, tables[1]._upsert_any
        found = [outcome(lambda way=way, row=given: way(dict(row)).rows) for way in ways]
        assert found[0] == found[1]
    assert tables[0].scan().read_all().equals(tables[1].scan().read_all())
