"""An inventory gives back what was written or refuses, and a chain of them stays short."""

from __future__ import annotations

import struct

import pyarrow as pa
import pytest
import xxhash

from siltstone.errors import CorruptionError, InvariantError, UnsupportedFormatError
from siltstone.formats import inventory
from siltstone.formats.inventory import Inventory, InventoryFile
from siltstone.formats.store_format import STORE_FORMAT
from tests.compat.golden_bytes import golden

VALUE = Inventory(
    (
        InventoryFile("tables/orders-7/base/data/é.lance", 632, "00ff00ff00ff00ff", 1, 1 << 62),
        InventoryFile("tables/orders-7/.history/data/b.lance", 0, "2d06800538d394c2"),
    ),
    ("inventory/b.arrow", "inventory/a.arrow"),
)


def file(name: str) -> InventoryFile:
    return InventoryFile(name, len(name), f"{len(name):016x}", 1, 2)


def test_an_inventory_survives_encoding() -> None:
    for value in (VALUE, Inventory(()), Inventory((), ("x",))):
        assert inventory.decode(inventory.encode(value), "i") == value


def test_the_bytes_are_those_that_were_committed_and_are_read() -> None:
    data = inventory.encode(VALUE)
    assert data == golden("inventory/inventory.arrow", data)
    assert inventory.decode(golden("inventory/inventory.arrow", data), "i") == VALUE


def test_a_stock_arrow_reader_reads_an_inventory() -> None:
    table = pa.ipc.open_stream(inventory.encode(VALUE)).read_all()
    assert table["path"].to_pylist() == [file.path for file in VALUE.files]


def test_every_flipped_byte_and_every_truncation_is_corruption() -> None:
    whole = inventory.encode(VALUE)
    for at in range(len(whole)):
        for bad in (whole[:at], whole[:at] + bytes([whole[at] ^ 0x40]) + whole[at + 1 :]):
            with pytest.raises(CorruptionError):
                inventory.decode(bad, "i")


def of_format(number: bytes) -> bytes:
    """Return an inventory that says another format, with a right checksum."""
    body = inventory.encode(VALUE)[:-16]
    with pa.ipc.open_stream(body) as reader:
        table = reader.read_all()
    said = {**(table.schema.metadata or {}), b"siltstone.format": number}
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema.with_metadata(said)) as writer:
        writer.write_table(table)
    body = sink.getvalue().to_pybytes()
    return body + b"siltinv\n" + struct.pack("<Q", xxhash.xxh3_64_intdigest(body))


def test_another_format_is_refused_and_no_number_is_damage() -> None:
    assert inventory.decode(of_format(b"%d" % STORE_FORMAT), "i") == VALUE
    for other in (STORE_FORMAT - 1, STORE_FORMAT + 1):
        with pytest.raises(UnsupportedFormatError, match=f"i has format {other}, "):
            inventory.decode(of_format(b"%d" % other), "i")
    for wrong in (b"", b"x", b"0", b"06", b"9" * 5_000):
        with pytest.raises(CorruptionError, match="its format is no number"):
            inventory.decode(of_format(wrong), "i")


def test_the_newest_word_on_a_path_counts() -> None:
    old, new = InventoryFile("a", 1, "x"), InventoryFile("a", 2, "y")
    chain = [Inventory((new,)), Inventory((old, file("b")))]
    assert inventory.lookup(chain, ["a", "b", "c"]) == {"a": new, "b": file("b")}


def test_a_chain_is_folded_into_its_live_files_before_it_passes_the_limit() -> None:
    chain: dict[str, Inventory] = {}
    lengths = []
    for n in range(100):
        live = [f"f{i}" for i in range(n + 1) if i % 2 or i == n]
        top = inventory.extend(chain, [file(f"f{n}")], live)
        chain = {f"i{n}": top} | {name: chain[name] for name in top.below}
        lengths.append(len(chain))
        found = inventory.lookup(list(chain.values()), live)
        assert sorted(found) == sorted(live)
    assert max(lengths) == inventory.LEVELS_MAX - 1
    assert lengths.count(1) == 4  # the first, and one fold every 31
    held = {f.path for each in chain.values() for f in each.files}
    assert "f2" not in held


def test_too_many_inventories_below_one_are_a_bug() -> None:
    with pytest.raises(InvariantError):
        inventory.encode(Inventory((), tuple(str(n) for n in range(inventory.LEVELS_MAX))))


def test_a_file_is_skipped_only_when_its_seqs_say_so() -> None:
    known, unknown = InventoryFile("a", 1, "x", 3, 5), InventoryFile("a", 1, "x")
    assert [known.may_hold(low, high) for low, high in ((2, 9), (5, 9), (0, 2), (0, 3))] == [
        True, False, False, True,
    ]  # fmt: skip
    assert unknown.may_hold(5, 9)
