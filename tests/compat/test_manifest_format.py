"""The manifest record is these bytes, for ever, in each of its formats."""

from pathlib import Path

import msgspec

from siltstone.formats import manifest
from siltstone.formats.manifest import (
    Catalog,
    Column,
    ForgottenApps,
    Incarnation,
    KeyedStorage,
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

GOLDEN = Path(__file__).with_name("manifest_format_1.json")
GOLDEN_HOLDERS = Path(__file__).with_name("manifest_format_1_holders.json")

PIN = Pin(7, "_siltstone/t/7.manifest", 1234, "0123456789abcdef", 10, "inventory/a.arrow")
SCHEMA = Schema(2, (Column(1, "id", "int64", nullable=False), Column(2, "Größe", "string")), (1,))
TABLE = TableDefinition(
    id=3,
    created=1,
    names=(Named(1, "orders"), Named(5, "bestellungen")),
    schemas=(Shaped(1, SCHEMA),),
    incarnations=(Incarnation(1, 4), Incarnation(6, 5, (Version(6, PIN),))),
    dropped=9,
    next_column=3,
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
    staged=("staged/x.manifest",),
    oldest_seq=2,
    condemned=("job-1",),
)


def test_a_record_is_written_as_it_always_was():
    assert manifest.encode(RECORD) == GOLDEN.read_bytes()


def test_a_record_that_was_ever_written_is_read():
    assert manifest.decode(GOLDEN.read_bytes(), "golden") == RECORD


HELD = TokenApp("etl", 5, 7, 2, 100, "run 3", ("run 1", "run 2"))
RECORD_HOLDERS = msgspec.structs.replace(RECORD, catalog=Catalog(apps=(HELD, TokenApp("new"))))


def test_holders_are_written_as_they_always_were():
    assert manifest.encode(RECORD_HOLDERS) == GOLDEN_HOLDERS.read_bytes()


def test_holders_that_were_ever_written_are_read():
    assert manifest.decode(GOLDEN_HOLDERS.read_bytes(), "golden") == RECORD_HOLDERS


GOLDEN_TAGS = Path(__file__).with_name("manifest_format_1_tags.json")
RECORD_TAGS = msgspec.structs.replace(RECORD, catalog=Catalog(tags=(Tag("stream", 8, 99, 60),)))


def test_tags_for_a_time_are_written_as_they_always_were():
    assert manifest.encode(RECORD_TAGS) == GOLDEN_TAGS.read_bytes()


def test_tags_for_a_time_that_were_ever_written_are_read():
    assert manifest.decode(GOLDEN_TAGS.read_bytes(), "golden") == RECORD_TAGS


GOLDEN_NAMESPACES = Path(__file__).with_name("manifest_format_2_namespaces.json")
SPACES = (
    NamespaceDefinition("a", 3, (("owner", "Größe"),)),
    NamespaceDefinition("a.b", 4, dropped=6),
)
RECORD_NAMESPACES = msgspec.structs.replace(
    RECORD, catalog=Catalog().with_namespaces(SPACES), format=2
)


def test_namespaces_are_written_as_they_always_were():
    assert manifest.encode(RECORD_NAMESPACES) == GOLDEN_NAMESPACES.read_bytes()


def test_namespaces_that_were_ever_written_are_read():
    assert manifest.decode(GOLDEN_NAMESPACES.read_bytes(), "golden") == RECORD_NAMESPACES


def test_a_record_without_namespaces_has_no_word_of_them():
    assert b"namespaces" not in manifest.encode(RECORD)


GOLDEN_FORGOTTEN = Path(__file__).with_name("manifest_format_5_forgotten_apps.json")
ANEW = TokenApp("etl", claim=10, holder="run 1", since=9)
RECORD_FORGOTTEN = msgspec.structs.replace(
    RECORD, catalog=Catalog(apps=(ANEW,), forgotten_apps=ForgottenApps(9, 9)), format=5
)


def test_forgotten_apps_are_written_as_they_always_were():
    assert manifest.encode(RECORD_FORGOTTEN) == GOLDEN_FORGOTTEN.read_bytes()


def test_forgotten_apps_that_were_ever_written_are_read():
    assert manifest.decode(GOLDEN_FORGOTTEN.read_bytes(), "golden") == RECORD_FORGOTTEN


def test_a_record_without_forgotten_apps_has_no_word_of_them():
    assert b"forgotten" not in manifest.encode(RECORD)
    assert b"since" not in manifest.encode(RECORD)
