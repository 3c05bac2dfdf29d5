"""Calls by key go a short way where they can: with the results, errors, frames of the long one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from siltstone.engine.catalog.row_input import row_input
from siltstone.engine.commit.write_set import Receipt, RowPart, WriteSet
from siltstone.engine.filter.assignments import refuse_key
from siltstone.engine.read.read_arguments import keyed
from siltstone.engine.write.transaction import EngineTransaction
from siltstone.formats.log import group
from siltstone.local.group_upserts import GroupUpserts
from siltstone.local.store import LocalStore
from siltstone.local.tables import LocalTable
from siltstone.local.transaction_table import LocalTransactionTable
from tests.formats.test_row_encoder import HOSTILE_NAMES, HOSTILE_VALUES
from tests.formats.test_rows import VALUES
from tests.maintenance.stores import open_store

KINDS = sorted(kind for kind in VALUES if "(38" not in kind)  # rows with those go no short way
KEYS = {"int64": some.integers(0, 2), "string": some.sampled_from("abc"), "bool": some.booleans()}
ODD_KEYS = (None, True, 1.5, "a", b"a", (1,), {"class": 1}, 1 << 64, -1)


class LongWay(LocalTransactionTable):
    """A table in a transaction: each call goes step by step, and own rows are a memtable."""

    def get(self, key: object) -> dict[str, object] | None:
        reader = keyed(self._whole()._reader())
        wanted = reader.table_schema.codec.from_user(key)
        self._note(reader, (wanted,), None)
        return reader.get(wanted)

    def update(self, key: object, /, **values: object) -> int:
        """Check the values, then the key; read the row; write it as changed."""
        writes = self._whole()._tx.rows.keyed(self._table())
        schema = writes.table_schema
        refuse_key(list(values), schema.codec.names)
        schema.rows.check(values)
        changed: object = None
        if schema.rows.has_nanosecond_times:
            found = self.get_many([key])
            changed = schema.rows.patched(found, values) if found.num_rows else None
        elif row := self.get(key):
            changed = {**row, **values}
        if changed is None:
            return 0
        writes.upsert(row_input(changed, schema, "", may_repeat=True))
        return 1

    def insert(self, rows: Any) -> int:
        return super(LongWay, self._whole()).insert(iter(rows))

    def upsert(self, rows: Any) -> int:
        return super(LongWay, self._whole()).upsert(iter([rows]))

    def delete(self, keys: object) -> int:
        return super(LongWay, self._whole()).delete(keys)

    def _whole(self) -> LongWay:
        for writes in self._tx.rows.keyed_writes.values():
            writes.own.whole()
        return self


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


class Recorded:
    """What is committed meanwhile, without what no two commits have alike, nor two tables."""

    def __init__(self, store: LocalStore, monkeypatch: pytest.MonkeyPatch) -> None:
        self._taken: list[WriteSet] = []
        committer = store._core.writer()
        commit, commit_all = committer.commit, committer.commit_all

        def recorded(write_set: WriteSet) -> Receipt:
            self._taken.append(write_set)
            return commit(write_set)

        def all_recorded(write_sets: Sequence[WriteSet]) -> list[Receipt | BaseException]:
            self._taken += write_sets
            return commit_all(write_sets)

        monkeypatch.setattr(committer, "commit", recorded)
        monkeypatch.setattr(committer, "commit_all", all_recorded)

    def taken(self) -> list[dict[str, object]]:
        """Return what was committed since the last call."""
        taken, self._taken = self._taken, []
        return [told(write_set) for write_set in taken]


def told(write_set: WriteSet) -> dict[str, object]:
    parts = [part for part in write_set.parts if isinstance(part, RowPart)]
    assert len(parts) == len(write_set.parts)
    frame = frame_with([part.entry for part in parts])
    if write_set.few is not None:  # what the leader takes instead
        assert frame_with(write_set.few.entries) == frame
        keys = [(part.incarnation, [*part.keys().values]) for part in parts]
        assert [(each[0], [*each[1].values]) for each in write_set.few.written] == keys
    rest = set(write_set.__struct_fields__) - {"number", "parts", "few", "planned"}
    keys = [part.keys().values for part in parts]
    return {name: getattr(write_set, name) for name in rest} | {"frame": frame, "keys": keys}


def frame_with(entries: Sequence[group.Entry]) -> list[bytes]:
    rows = [
        msgspec.structs.replace(each, incarnation=1)
        for each in entries
        if isinstance(each, group.RowsEntry)
    ]
    assert len(rows) == len(entries)
    return [bytes(part) for part in group.encode(1, 1, [group.Member(1, 1, None, [*rows])])]


def upserted_alone(store: LocalStore, name: str, row: dict[str, object]) -> int:
    table = store[name]
    assert isinstance(table, LocalTable)
    table._plan = table._planned()
    return table.upsert(row).rows


def upserted_in_a_group(store: LocalStore, name: str, row: dict[str, object]) -> int:
    group_upserts = GroupUpserts(store._core)
    table = group_upserts.table(name)
    assert table is not None
    (receipt,) = group_upserts.commit([table.upsert(row)])
    assert isinstance(receipt, Receipt)
    return receipt.rows


@pytest.mark.parametrize("upserted", [upserted_alone, upserted_in_a_group])
def test_an_upsert_of_one_small_row_is_as_durable_as_in_the_long_way(
    store: LocalStore, upserted: Callable[[LocalStore, str, dict[str, object]], int]
) -> None:
    name = f"t{store.seq}"
    table: Any = store.create_table(name, {"key": "int64", "v": "string"}, primary_key="key")
    table.upsert({"key": 0, "v": "a"})  # from here on nobody asks for room
    with pytest.MonkeyPatch.context() as monkeypatch:
        recorded = Recorded(store, monkeypatch)
        upserted(store, name, {"key": 1, "v": "b"})
        (made,) = recorded.taken()
        table._upsert_any({"key": 1, "v": "b"})
        assert [made] == recorded.taken()
    assert made["is_sync"]


@pytest.mark.parametrize("upserted", [upserted_alone, upserted_in_a_group])
@settings(max_examples=30)
@given(data=some.data())
def test_an_upsert_of_one_row_commits_what_the_long_way_does(
    store: LocalStore,
    upserted: Callable[[LocalStore, str, dict[str, object]], int],
    data: some.DataObject,
) -> None:
    kinds, _ = columns(data)
    names = [f"t{store.seq}.{n}" for n in range(2)]
    tables: list[Any] = [store.create_table(name, kinds, primary_key="key") for name in names]
    tables[0].upsert(row(data, kinds, fits=True))  # from here on nobody asks for room
    tables[0].truncate()
    with pytest.MonkeyPatch.context() as monkeypatch:
        recorded = Recorded(store, monkeypatch)
        for _ in range(data.draw(some.integers(1, 4))):
            given = row(data, kinds)
            short = outcome(lambda row=given: upserted(store, names[0], dict(row)))
            made = recorded.taken()
            assert short == outcome(lambda row=given: tables[1]._upsert_any(dict(row)).rows)
            assert made == recorded.taken()
    assert tables[0].scan().read_all().equals(tables[1].scan().read_all())
