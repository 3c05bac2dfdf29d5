"""The manifest record is these bytes."""

import msgspec
import pytest

from siltstone.formats import manifest
from siltstone.formats.manifest import (
    Catalog,
    Column,
    Fallback,
    ForgottenApps,
    Incarnation,
    KeyedStorage,
    KeyRun,
    Load,
    Named,
    NamespaceDefinition,
    Pin,
    Record,
    Schema,
    Shaped,
    TableDefinition,
    Tag,
    TokenApp,
    Version,
)
from tests.compat.golden_bytes import golden

PIN = Pin(7, "_siltstone/t/7.manifest", 1234, "0123456789abcdef", 10, "inventory/a.arrow")
SCHEMA = Schema(
    2,
    (
        Column(1, "id", "int64", nullable=False),
        Column(2, "Größe", "string", default="it's"),
        Column(3, "d", "date32", default="2026-01-02", initial="2025-12-31"),
    ),
    (1,),
)
TABLE = TableDefinition(
    id=3,
    created=1,
    names=(Named(1, "orders"), Named(5, "bestellungen")),
    schemas=(Shaped(1, SCHEMA),),
    incarnations=(Incarnation(1, 4), Incarnation(6, 5, (Version(6, PIN),))),
    dropped=9,
    next_column=4,
)
RECORD = Record(
    store_id="5f2c",
    number=42,
    epoch=3,
    writer="77aa",
    time_us=1_700_000_000_000_000,
    last_seq=12,
    flushed_seq=10,
    last_time_us=1_699_999_999_000_000,
    wal_floor=17,
    catalog=Catalog((TABLE,), (Tag("v1", 8, 99),), (TokenApp("etl", 5, 7, 2, 100),), 6),
    keyed=(KeyedStorage(4, "tables/orders-3", PIN, 2, 9, PIN, (1, 2), 0),),
    commits=PIN,
    oldest_seq=2,
)


HELD = TokenApp("etl", 5, 7, 2, 100, "run 3", ("run 1", "run 2"))
SPACES = (
    NamespaceDefinition("a", 3, (("owner", "Größe"),)),
    NamespaceDefinition("a.b", 4, dropped=6),
)
ANEW = TokenApp("etl", claim=10, holder="run 1", since=9)
RUNS = tuple(
    KeyRun(name, 99, "0123456789abcdef", 7, is_ordered=name == "o.run")
    for name in ("k.run", "o.run")
)
FULL = msgspec.structs.replace(PIN, hidden=3, runs=RUNS)
KEYED = msgspec.structs.replace(
    RECORD.keyed[0],
    base=FULL,
    loads=(Load(8, PIN),),
    fallbacks=(Fallback(9, 10, PIN, "why"),),
)
RECORDS = {
    "record": RECORD,
    "holders": msgspec.structs.replace(RECORD, catalog=Catalog(apps=(HELD, TokenApp("new")))),
    "tags": msgspec.structs.replace(RECORD, catalog=Catalog(tags=(Tag("stream", 8, 99, 60),))),
    "namespaces": msgspec.structs.replace(RECORD, catalog=Catalog(namespaces=SPACES)),
    "forgotten-apps": msgspec.structs.replace(
        RECORD, catalog=Catalog(apps=(ANEW,), forgotten=ForgottenApps(9, 9))
    ),
    "storage": msgspec.structs.replace(
        RECORD, keyed=(KEYED,), gc_horizon_us=5, may_be_thinned=True
    ),
}


@pytest.mark.parametrize(("name", "record"), RECORDS.items())
def test_a_record_is_written_as_it_was_committed_and_read(name: str, record: Record) -> None:
    data = manifest.encode(record)
    assert data == golden(f"manifest/{name}.json", data)
    assert manifest.decode(golden(f"manifest/{name}.json", data), "golden") == record


def test_a_record_without_a_thing_has_no_word_of_it():
    plain = manifest.encode(msgspec.structs.replace(RECORD, catalog=Catalog(), keyed=()))
    for word in (b"namespaces", b"forgotten", b"since", b"thinned", b"gc_horizon", b"indexes"):
        assert word not in plain
