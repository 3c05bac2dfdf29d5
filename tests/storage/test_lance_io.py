"""What Lance does silently does not happen: wrong columns, lost syncs, damage, clean-ups.

Over 400 lines: one list of what Lance was seen to do.
"""

from __future__ import annotations

import datetime as dt
import decimal
import gc
import os
import subprocess
import sys
import threading
import uuid
import weakref
from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from siltstone.errors import CorruptionError, RequestError, SchemaMismatchError, UnavailableError
from siltstone.formats.manifest import Pin
from siltstone.storage.files.files import RealFiles
from siltstone.storage.lance.files.errors import classify
from siltstone.storage.lance.lance_tables import lance_tables, warm_up
from siltstone.storage.tables.kept_names import place
from siltstone.storage.tables.promotion import public_name
from siltstone.storage.tables.store_tables import Tables
from siltstone.storage.tables.values import AdoptedLoad, IndexSpec, StagedVersion

FOLDER = "tables/orders-7/base"
SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("a", pa.int64()),
        pa.field("b", pa.int64()),
    ]
)


class RecordingFiles(RealFiles):
    """The real files; remembers what was made durable: so many bytes of files, and names.

    A name is durable when its folder is synced after it was made: an older sync says nothing of it.
    """

    def __init__(self) -> None:
        self._bytes: dict[Path, int] = {}
        self._names: set[Path] = set()

    def sync_file(self, path: Path) -> None:
        size = path.stat().st_size
        super().sync_file(path)
        self._bytes[path] = size

    def sync_dir(self, path: Path) -> None:
        names = set(path.iterdir())
        super().sync_dir(path)
        self._names |= names

    def write(self, path: Path, data: bytes) -> None:
        super().write(path, data)
        self._bytes[path] = len(data)

    def link(self, old: Path, new: Path) -> None:
        super().link(old, new)
        if old in self._bytes:  # of one file
            self._bytes[new] = self._bytes[old]

    def unsynced(self, path: Path, root: Path) -> list[Path]:
        """Return what of a file a power cut may take: its bytes, its name, that of a folder."""
        names = {path, *path.parents} - {root, *root.parents} - self._names
        is_whole = self._bytes.get(path) == path.stat().st_size
        return sorted(names if is_whole else names | {path})


class FullFiles(RealFiles):
    """Real files on a disk that is full whenever a directory is wanted under `_siltstone`."""

    def make_level(self, path: Path) -> None:
        if path.parent.name == "_siltstone":
            raise OSError(28, os.strerror(28), str(path))
        super().make_level(path)


def batch(ids: list[int]) -> pa.RecordBatch:
    values = [pa.array(ids), pa.array([i * 10 for i in ids]), pa.array([i * 100 for i in ids])]
    return pa.record_batch(values, schema=SCHEMA)


def ids(tables: Tables, pin: Pin) -> list[int]:
    return [i for each in tables.reader.open(pin).scan(["id"]) for i in each["id"].to_pylist()]


@pytest.fixture
def tables(tmp_path: Path) -> Tables:
    return lance_tables(tmp_path, RealFiles())


@pytest.fixture
def pin(tables: Tables) -> Pin:
    return tables.writer.append(
        tables.writer.create(FOLDER, SCHEMA), [batch([1, 2, 3])], seqs=(1, 3)
    )


STRUCT = pa.struct([("x", pa.int32()), ("y", pa.list_(pa.string()))])
VALUES: list[tuple[pa.DataType, list]] = [
    (pa.bool_(), [True, False, None]),
    *((t, [0, 1, None]) for t in (pa.uint8(), pa.uint16(), pa.uint32())),
    (pa.uint64(), [0, 2**64 - 1, None]),
    (pa.int8(), [-128, 127, None]),
    (pa.int16(), [-(2**15), 2**15 - 1, None]),
    (pa.int32(), [-(2**31), 2**31 - 1, None]),
    (pa.int64(), [-(2**63), 2**63 - 1, None]),
    (pa.float32(), [float("nan"), -0.0, None]),
    (pa.float64(), [float("nan"), -0.0, None]),
    (pa.decimal128(38, 10), [decimal.Decimal("-1.0000000001"), decimal.Decimal(10) ** 27, None]),
    (pa.string(), ["", "é\u0000🎉", None]),
    (pa.large_string(), ["", "x" * 1000, None]),
    (pa.binary(), [b"", b"\x00\xff", None]),
    (pa.date32(), [dt.date(1, 1, 1), dt.date(9999, 12, 31), None]),
    (pa.time32("s"), [0, 86399, None]),
    (pa.time32("ms"), [0, 86399999, None]),
    (pa.time64("us"), [0, 86399999999, None]),
    (pa.time64("ns"), [0, 86399999999999, None]),
    *((pa.timestamp(u), [-(2**62), 2**62, None]) for u in ("s", "ms", "us", "ns")),
    *((pa.timestamp(u, "Europe/Berlin"), [-1, 2**61, None]) for u in ("s", "ms", "us", "ns")),
    (pa.list_(pa.int32()), [[], [1, None], None]),
    (pa.list_(pa.list_(pa.string())), [[], [["a"], None, []], None]),
    (STRUCT, [{"x": 1, "y": ["a", None]}, {"x": None, "y": None}, None]),
    (pa.list_(STRUCT), [[], [{"x": 1, "y": []}, None], None]),
    (pa.list_(pa.float32(), 2), [[1.0, float("nan")], [-0.0, 2.0], None]),
    (pa.list_(pa.float64(), 3), [[1.0, 2.0, 3.0], [0.0, 0.0, 0.0], None]),
]


def bits(column: pa.ChunkedArray) -> list:
    """Return values that compare equal only when they are equal bit for bit."""
    kind = column.type
    if pa.types.is_floating(kind):
        column = column.combine_chunks().view(pa.int32() if kind == pa.float32() else pa.int64())
    if pa.types.is_temporal(kind):
        column = column.combine_chunks().view(pa.int32() if kind.bit_width == 32 else pa.int64())
    return [repr(value) for value in column.to_pylist()]


@pytest.mark.parametrize("kind", [kind for kind, _ in VALUES], ids=str)
def test_every_type_comes_back_bit_for_bit(tables: Tables, kind: pa.DataType) -> None:
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", kind)])
    values = pa.array({str(k): v for k, v in VALUES}[str(kind)], kind)
    rows = pa.record_batch([pa.array([1, 2, 3]), values], schema=schema)
    pin = tables.writer.append(tables.writer.create(FOLDER, schema), [rows])
    pin = tables.writer.append(pin, [rows])
    pin = tables.compactor.swap(pin, [tables.compactor.compact(pin, (0, 6))])
    pin = tables.writer.append(pin, [pa.record_batch({"id": [4]})])
    table = tables.reader.open(pin)
    assert table.schema.field("v").type == kind
    found = pa.Table.from_batches(table.scan(["v"]))["v"]
    assert bits(found) == bits(pa.chunked_array([values, values, pa.nulls(1, kind)]))
    taken = table.take(np.array([6, 4, 0]), ["v"])["v"]
    assert bits(taken) == [bits(found)[i] for i in (6, 4, 0)]


D = decimal.Decimal
DECIMALS: list[tuple[pa.DataType, list]] = [
    (pa.decimal128(15, 2), [D("1.25"), None, D("-7.00")]),
    (pa.list_(pa.decimal128(15, 2)), [[D("1.25"), None], None, []]),
    (pa.struct([("price", pa.decimal128(15, 2))]), [{"price": D("1.25")}, None, {"price": None}]),
]


def at_odd_multiples_of_8(batch: pa.RecordBatch) -> pa.RecordBatch:
    """As batches come from another process: the format aligns them at 8 bytes."""
    blob = batch.serialize().to_pybytes()
    for shift in (0, 8):
        moved = pa.py_buffer(bytes(shift) + blob)[shift:]
        found = pa.ipc.read_record_batch(moved, batch.schema)
        if found.column(0).buffers()[-1].address % 16:
            return found
    pytest.fail("the values are aligned")


@pytest.mark.parametrize(("kind", "values"), DECIMALS, ids=str)
def test_decimals_that_another_process_aligned_at_8_bytes_are_written(
    tables: Tables, kind: pa.DataType, values: list
) -> None:
    rows = at_odd_multiples_of_8(pa.record_batch({"d": pa.array(values, kind)}))
    pin = tables.writer.append(tables.writer.create(FOLDER, rows.schema), [rows])
    (found,) = tables.reader.open(pin).scan(["d"])
    assert found["d"].to_pylist() == values


def indexed(tables: Tables, pin: Pin) -> Pin:
    spans = tables.reader.open(pin).spans
    built = tables.indexer.build(pin, IndexSpec("by a", "a", "btree"), spans)
    return tables.indexer.put(pin, [built])


def imported(tables: Tables, root: Path, pin: Pin) -> Pin:
    """Take over a version that stock Lance wrote on the newest one, as a client stages it."""
    tables.names.promote([pin], pin)
    lance.write_dataset(pa.table(batch([pin.version])), root / FOLDER, mode="append")
    (public,) = (
        path
        for path in (root / FOLDER / "_versions").glob("*.manifest")
        if path.name == public_name(pin.version + 1)
    )
    staged = public.rename(f"{public}-{uuid.uuid4()}")
    given = StagedVersion(pin.version + 1, str(staged), staged.stat().st_size)
    return tables.external.import_version(FOLDER, pin, given).pin


def folded(tables: Tables, pin: Pin, drop: list[int]) -> Pin:
    new = [batch([50])]
    return tables.rewriter.fold(pin, drop=np.array(drop), batches=new, compact_below=0)


def adopted(tables: Tables, pin: Pin, drop: list[int]) -> Pin:
    """Have a base adopt a load, of which it hides a row."""
    load = tables.writer.create("tables/orders-7/.attached/job", SCHEMA)
    load = tables.writer.append(load, [batch([70, 71])])
    loads = [AdoptedLoad(load, (("id", "id"), ("a", "a")), np.array([1]))]
    return tables.rewriter.fold(pin, drop=np.array(drop), batches=[], compact_below=0, loads=loads)


def test_everything_a_pin_names_was_synced_and_its_directories_too(tmp_path: Path) -> None:
    files = RecordingFiles()
    tables = lance_tables(tmp_path, files)
    pin = tables.writer.create(FOLDER, SCHEMA)
    steps = [
        lambda: tables.writer.append(pin, [batch([1, 2])]),
        lambda: tables.rewriter.rewrite(pin, drop=np.array([0]), batches=[batch([3])]),
        lambda: tables.writer.alter(pin, rename={"a": "x"}, drop=["b"], add=[]),
        lambda: tables.writer.overwrite(pin, SCHEMA, [batch([5])]),
        lambda: tables.writer.append(pin, [batch([6])]),
        lambda: tables.writer.append(pin, [batch([*range(20, 40)])]),
        lambda: folded(tables, pin, [2, 3]),
        lambda: folded(tables, pin, [2, 3, 4]),
        lambda: folded(tables, pin, [*range(2, 12)]),
        lambda: adopted(tables, pin, [*range(2, 12)]),
        lambda: tables.compactor.swap(pin, [tables.compactor.compact(pin, (0, 2))]),
        lambda: imported(tables, tmp_path, pin),
        lambda: imported(tables, tmp_path, pin),
        lambda: indexed(tables, pin),
    ]
    for step in steps:
        pin = step()
        for name in (file.path for file in tables.reader.files(pin)):
            assert files.unsynced(tmp_path / name, tmp_path) == []


def test_a_version_is_invisible_on_the_plain_path_until_it_is_promoted(
    tables: Tables, pin: Pin, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match="not found"):
        lance.dataset(str(tmp_path / FOLDER))
    tables.names.promote([], pin)
    later = tables.writer.append(pin, [batch([4])])
    plain = lance.dataset(str(tmp_path / FOLDER))
    assert (plain.version, plain.count_rows()) == (pin.version, 3)
    tables.names.promote([pin], later)
    plain = lance.dataset(str(tmp_path / FOLDER))
    assert (plain.version, plain.count_rows()) == (later.version, 4)
    assert plain.tags.list() == {}


def test_promotion_takes_back_what_is_not_listed_any_more(
    tables: Tables, pin: Pin, tmp_path: Path
) -> None:
    later = tables.writer.append(pin, [batch([4])])
    tables.names.promote([pin], later)
    lance.dataset(str(tmp_path / FOLDER)).tags.create("theirs", later.version)
    last = tables.writer.append(later, [batch([5])])
    tables.names.promote([], last)
    plain = lance.dataset(str(tmp_path / FOLDER))
    assert list(plain.tags.list()) == ["theirs"]
    assert [v["version"] for v in plain.versions()] == [last.version]
    assert ids(tables, pin) == [1, 2, 3]


def test_an_external_clean_up_and_append_leave_every_promoted_pin_readable(
    tables: Tables, pin: Pin, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    plain = str(tmp_path / FOLDER)
    pins = [pin, tables.rewriter.rewrite(pin, drop=np.array([1]), batches=[batch([4])])]
    tables.names.promote(pins[:-1], pins[-1])
    lance.write_dataset(pa.Table.from_batches([batch([99])]), plain, mode="append")
    pins.append(tables.writer.append(pins[-1], [batch([5])]))
    tables.names.promote(pins[:-1], pins[-1])
    assert "set aside" in caplog.text
    external = lance.dataset(plain)
    external.cleanup_old_versions(
        older_than=dt.timedelta(0), delete_unverified=True, error_if_tagged_old_versions=False
    )
    fresh = lance_tables(tmp_path, RealFiles())
    assert [ids(fresh, each) for each in pins] == [[1, 2, 3], [1, 3, 4], [1, 3, 4, 5]]
    for each in pins:
        for file in fresh.reader.files(each):
            assert place(RealFiles(), tmp_path, file.path).exists(), file.path
    assert lance.dataset(plain).to_table()["id"].to_pylist() == [1, 3, 4, 5]


def test_a_commit_on_an_older_pin_takes_nothing_from_newer_promoted_versions(
    tables: Tables, pin: Pin, tmp_path: Path
) -> None:
    newer = tables.writer.append(pin, [batch([7])])
    tables.names.promote([pin], newer)
    lance.write_dataset(pa.Table.from_batches([batch([99])]), str(tmp_path / FOLDER), mode="append")
    late = tables.writer.append(pin, [batch([8])])
    assert ids(tables, late) == [1, 2, 3, 8]
    assert late.version == newer.version + 2  # above the one that it is shown beside
    altered = tables.writer.alter(pin, rename={"a": "x"}, drop=[], add=[])
    assert ids(tables, altered) == [1, 2, 3]
    assert ids(tables, tables.rewriter.rewrite(pin, drop=np.array([0]), batches=[])) == [
        2,
        3,
    ]
    assert ids(tables, tables.writer.overwrite(pin, SCHEMA, [batch([6])])) == [6]


def test_an_all_zero_newest_manifest_on_the_plain_path_is_never_read(
    tables: Tables, pin: Pin, tmp_path: Path
) -> None:
    zeros = tmp_path / FOLDER / "_versions" / public_name(pin.version + 1)
    zeros.write_bytes(bytes(4096))
    assert ids(lance_tables(tmp_path, RealFiles()), pin) == [1, 2, 3]
    later = tables.writer.append(pin, [batch([4])])
    assert ids(tables, later) == [1, 2, 3, 4]
    tables.names.promote([pin], later)
    assert lance.dataset(str(tmp_path / FOLDER)).count_rows() == 4


DAMAGE = """
import sys
from pathlib import Path
import msgspec
from siltstone.errors import CorruptionError
from siltstone.formats.manifest import Pin
from siltstone.storage.files.files import RealFiles
from siltstone.storage.lance.lance_tables import lance_tables

root, data, text, kind = sys.argv[1:]
pin = msgspec.json.decode(text, type=Pin)
tables = lance_tables(Path(root), RealFiles())
tables.reader.open(pin)
for path in (Path(root) / data, Path(root) / pin.path):
    good = path.read_bytes()
    for at in range(len(good)):
        behind = bytes([good[at] ^ 0x10]) + good[at + 1 :] if kind == "flip" else b""
        path.write_bytes(good[:at] + behind)
        if path.suffix == ".manifest":
            tables = lance_tables(Path(root), RealFiles())
        try:
            found = list(tables.reader.open(pin).scan())
        except CorruptionError as error:
            if error.path != path:
                sys.exit(f"byte {at}: {error}")
        else:
            sys.exit(f"byte {at}: {found}")
    path.write_bytes(good)
print(sum(b.num_rows for b in tables.reader.open(pin).scan()))
"""


def damaged_everywhere(tables: Tables, pin: Pin, root: Path, kind: str) -> None:
    """Damage a data file and the manifest at every byte: in a process, for Lance may abort."""
    import msgspec

    data = next(f.path for f in tables.reader.files(pin) if "/data/" in f.path)
    text = msgspec.json.encode(pin).decode()
    command = [sys.executable, "-c", DAMAGE, str(root), data, text, kind]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.strip()) == (0, "3"), done.stderr[-2000:]


def test_every_flipped_byte_is_corruption_and_never_data(
    tables: Tables, pin: Pin, tmp_path: Path
) -> None:
    damaged_everywhere(tables, pin, tmp_path, "flip")


def test_a_file_that_ends_at_any_byte_is_corruption_and_never_data(
    tables: Tables, pin: Pin, tmp_path: Path
) -> None:
    damaged_everywhere(tables, pin, tmp_path, "cut")


def test_a_damaged_part_is_not_compacted_into_a_file_that_looks_sound(
    tables: Tables, pin: Pin, tmp_path: Path
) -> None:
    pin = tables.writer.append(pin, [batch([4, 5])], seqs=(4, 5))
    data = next(f.path for f in tables.reader.files(pin) if f.seqs == (1, 3))
    path = place(RealFiles(), tmp_path, data)
    found = bytearray(path.read_bytes())
    found[8] ^= 1
    path.write_bytes(found)
    others = lance_tables(tmp_path, RealFiles())  # this one has written the file, and trusts it
    with pytest.raises(CorruptionError, match=Path(data).name):
        others.compactor.compact(pin, (0, 5))


def test_scrub_leaves_the_checking_to_check(pin: Pin, tmp_path: Path) -> None:
    tables = lance_tables(tmp_path, RealFiles(), verify="scrub")
    data = next(f.path for f in tables.reader.files(pin) if "/data/" in f.path)
    with (tmp_path / data).open("ab") as file:
        file.write(b"x")
    with pytest.raises(CorruptionError):
        tables.reader.check(pin)
    with pytest.raises(RequestError):
        lance_tables(tmp_path, RealFiles(), verify="never")


STAGE = """
import sys
from pathlib import Path
import msgspec, pyarrow as pa
from siltstone.formats.manifest import Pin
from siltstone.storage.files.files import RealFiles
from siltstone.storage.lance.lance_tables import lance_tables

root, text, value = sys.argv[1:]
tables, pin = lance_tables(Path(root), RealFiles()), msgspec.json.decode(text, type=Pin)
for n in range(4):
    pin = tables.writer.append(pin, [pa.record_batch({"id": [int(value)]})])
print(msgspec.json.encode(pin).decode())
"""


def test_two_processes_that_stage_the_same_versions_do_not_disturb_each_other(
    tables: Tables, pin: Pin, tmp_path: Path
) -> None:
    import msgspec

    text = msgspec.json.encode(pin).decode()
    command = [sys.executable, "-c", STAGE, str(tmp_path), text]
    running = [
        subprocess.Popen([*command, value], stdout=subprocess.PIPE, text=True)
        for value in ("100", "200")
    ]
    pins = [msgspec.json.decode(each.communicate()[0], type=Pin) for each in running]
    assert [ids(tables, each) for each in pins] == [[1, 2, 3] + [100] * 4, [1, 2, 3] + [200] * 4]
    assert pins[0].version == pins[1].version


def test_threads_may_stage_on_one_pin_at_once(tables: Tables, pin: Pin) -> None:
    found: dict[int, Pin] = {}

    def work(number: int) -> None:
        found[number] = tables.writer.append(pin, [batch([number])])

    threads = [threading.Thread(target=work, args=(n,)) for n in range(10, 16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {n: ids(tables, each) for n, each in found.items()} == {
        n: [1, 2, 3, n] for n in range(10, 16)
    }


def test_a_scan_that_is_given_up_leaves_the_table_usable(tables: Tables, pin: Pin) -> None:
    big = tables.writer.append(pin, [batch(list(range(100_000)))])
    table = tables.reader.open(big)
    for positions in (False, True):
        batches = table.scan(["id"], positions=positions)
        next(batches)
        batches.close()
        dropped = table.scan(prefilter="id > 5", positions=positions)
        next(dropped)
        del dropped
        table.scan()
    assert len(ids(tables, big)) == 100_003


def test_a_full_disk_is_unavailable_and_the_pin_stays_good(pin: Pin, tmp_path: Path) -> None:
    full = lance_tables(tmp_path, FullFiles())
    with pytest.raises(UnavailableError, match="no space left"):
        full.writer.append(pin, [batch([4])])
    assert ids(full, pin) == [1, 2, 3]


def test_an_error_of_lance_becomes_what_the_caller_can_act_on() -> None:
    class PanicException(BaseException):
        pass

    where = Path("/store/tables/t-1/base")
    cases = [
        (OSError("LanceError(IO): No space left on device (os error 28)"), False, UnavailableError),
        (OSError("Not found: /store/data/x.lance"), True, CorruptionError),
        (PanicException("index out of bounds"), True, CorruptionError),
        (ValueError("Invalid user input: Schema error: No field"), True, RequestError),
        (OSError("Permission denied (os error 13)"), True, UnavailableError),
        (OSError("Append with different schema: missing=[id]"), False, SchemaMismatchError),
        (ValueError("Dataset at path x was not found: Not found: x"), False, UnavailableError),
    ]
    for error, is_reading, expected in cases:
        assert type(classify(error, where, is_reading=is_reading)) is expected, error


def test_a_lack_of_memory_or_threads_is_no_damage() -> None:
    class PanicException(BaseException):
        pass

    where = Path("/store/tables/t-1/base")
    errors: list[BaseException] = [
        MemoryError(),
        pa.ArrowMemoryError("malloc of size 64 failed"),
        OSError("LanceError(IO): Cannot allocate memory (os error 12), lance-io/src/local.rs:1"),
        OSError(12, "Cannot allocate memory"),
        PanicException('called `Result::unwrap()`: Os { code: 12, kind: OutOfMemory, message: ""}'),
        PanicException("OS can't spawn worker thread: Resource temporarily unavailable"),
        PanicException("failed to spawn thread: Os { code: 11, kind: WouldBlock, message: "),
        OSError("LanceError(IO): Python error in list_table_versions: MemoryError: , src/n.rs:1"),
        OSError("LanceError(Execution): Resources exhausted: Additional allocation failed"),
        PanicException('called `Result::unwrap()` on an `Err` value: ResourcesExhausted("pool")'),
        RuntimeError("can't start new thread"),
    ]
    for error in errors:
        for is_reading in (True, False):
            found = classify(error, where, is_reading=is_reading)
            assert type(found) is UnavailableError
            assert str(found).startswith(f"{where}: not enough memory or threads"), error


def test_a_name_that_looks_like_a_lack_of_memory_is_none() -> None:
    where = Path("/Cannot allocate memory/base")
    damaged = classify(OSError(f"LanceError(IO): bad footer in {where}"), where, is_reading=True)
    assert type(damaged) is CorruptionError
    wrong = ValueError("Invalid user input: No field named Resources exhausted: x")
    assert type(classify(wrong, where, is_reading=True)) is RequestError


def test_files_of_a_write_that_a_vacuum_took_are_named_without_the_words_of_lance() -> None:
    where, text = Path("/store"), "Not found: /store/t/_siltstone/a/1.manifest"
    for said in (f"Generic N/A error: {text}, /lance/reader.rs:335:56", f"x was not found: {text}"):
        found = classify(
            OSError(f"External error: LanceError(IO): {said}"), where, is_reading=False
        )
        assert type(found) is UnavailableError
        assert "deleted meanwhile; try again: /store/t/_siltstone/a/1.manifest" in str(found)
        assert "LanceError" not in str(found)


def test_a_wrong_prefilter_is_a_wrong_request(tables: Tables, pin: Pin) -> None:
    for wrong in ("id >>> 1", "nothing = 1"):
        with pytest.raises(RequestError):
            list(tables.reader.open(pin).scan(prefilter=wrong))


def test_lance_fields_are_numbered_by_name_whatever_the_order_of_the_columns(
    tables: Tables, pin: Pin
) -> None:
    moved = tables.writer.alter(pin, rename={}, drop=["a"], add=[pa.field("c", pa.int64())])
    rows = pa.record_batch({"c": [7], "b": [8], "id": [9]})
    table = tables.reader.open(tables.writer.append(moved, [rows]))
    assert table.take(np.array([3, 0])).to_pylist() == [
        {"id": 9, "b": 8, "c": 7},
        {"id": 1, "b": 100, "c": None},
    ]


def test_no_version_but_the_pinned_one_is_left_of_a_transaction(
    tables: Tables, pin: Pin, tmp_path: Path
) -> None:
    pin = tables.rewriter.rewrite(pin, drop=np.array([0]), batches=[batch([4])])
    pin = tables.writer.alter(pin, rename={"a": "x"}, drop=["b"], add=[pa.field("n", pa.int8())])
    assert list((tmp_path / pin.path).parent.iterdir()) == [tmp_path / pin.path]
    assert ids(tables, pin) == [2, 3, 4]


def test_lance_is_not_imported_before_it_is_needed() -> None:
    code = (
        "import sys, siltstone.storage.lance.lance_tables\n"
        "sys.exit('lance' in sys.modules or 'lance_namespace' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


_A_LIFE = """
import sys, siltstone as st
with st.connect(sys.argv[1]) as db:
    db.create_table("t", {"id": "int64", "v": "int64"}, primary_key="id")
    for value in range(2):
        db["t"].upsert({"id": 1, "v": value})
        db.checkpoint()
    db.merge()
    db.optimize()
    assert db["t"].to_arrow().to_pylist() == [{"id": 1, "v": 1}]
with st.connect(sys.argv[1]) as db:
    assert db["t"].get(1) == {"id": 1, "v": 1}
sys.exit("lance_namespace" in sys.modules or "pydantic" in sys.modules)
"""


def test_a_store_lives_without_the_models_of_the_namespace(tmp_path: Path) -> None:
    """They cost a second; Lance imports them where a user hands it a namespace."""
    command = [sys.executable, "-c", _A_LIFE, tmp_path / "db"]
    assert subprocess.run(command, check=False).returncode == 0


def test_warming_up_leaves_nothing_behind(tmp_path: Path) -> None:
    warm_up()
    assert not list(tmp_path.iterdir())


def test_versions_with_many_parts_are_not_kept_open(tmp_path: Path) -> None:
    tables = lance_tables(tmp_path, RealFiles(), open_parts_max=6)
    pins = [tables.writer.create(FOLDER, SCHEMA)]
    for number in range(6):
        pins.append(tables.writer.append(pins[-1], [batch([number])], seqs=(1, 1)))
    opened = [weakref.ref(tables.reader.open(pin)) for pin in pins]
    gc.collect()
    kept = [table for table in (ref() for ref in opened) if table is not None]
    assert sum(len(table.parts) for table in kept) <= 6
    assert tables.reader.open(pins[-1]) is kept[-1]
    assert [tables.reader.open(pin).rows for pin in pins] == list(range(7))


def test_a_filter_that_lance_cannot_plan_is_a_wrong_request_and_no_damage(
    tables: Tables,
) -> None:
    schema = pa.schema({"id": pa.int64(), "at": pa.time64("us")})
    row = pa.record_batch({"id": [1], "at": pa.nulls(1, pa.time64("us"))}, schema=schema)
    pin = tables.writer.append(tables.writer.create("times", schema), [row])
    with pytest.raises(RequestError, match="does not accept the filter"):
        list(tables.reader.open(pin).scan(prefilter=pc.field("id") > 0))
