"""The Python process of a JVM answers its own user, what its application allows, and ends with it.

Here a test is the JVM: it speaks what the Scala sources speak.
"""

from __future__ import annotations

import itertools
import json
import mmap
import os
import pickle
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from decimal import Decimal
from pathlib import Path

import msgspec
import pyarrow as pa
import pytest
from pyspark.sql.types import StructType

import siltstone as st
from siltstone.errors import LimitError, RequestError, UnavailableError
from siltstone.spark.catalog.identity import Identity, here
from siltstone.spark.context import schemas
from siltstone.spark.daemon import serving
from siltstone.spark.daemon.layout import bytes_of, fitting, is_flat, put
from siltstone.spark.daemon.messages import Channel, Ended, TakePin
from siltstone.spark.daemon.pins import Pins
from siltstone.spark.daemon.predicates import sql_of
from siltstone.spark.daemon.reading import END, FAILED, GROWN
from siltstone.spark.daemon.regions import SLOT_BYTES, SLOTS, MemoryBudget
from siltstone.spark.daemon.roots import Roots
from siltstone.spark.daemon.serving import CatalogServer
from siltstone.spark.reads import partitions


@pytest.fixture
def path(tmp_path: Path) -> str:
    with st.connect(tmp_path / "shop", background=False) as db:
        table = db.create_table("t", {"id": "int64", "s": "string"}, primary_key="id")
        table.upsert([{"id": n, "s": f"x{n}"} for n in range(1000)])
        db.checkpoint()
        db.merge()
        db.tag("release")
        table.delete([1])
    return str(tmp_path / "shop")


class Client:
    """The side of the JVM of one connection."""

    def __init__(self, peer: socket.socket) -> None:
        self.channel = Channel(peer)

    def ask(self, op: str, payload: bytes = b"", **fields: object) -> tuple[dict, bytes]:
        head = json.dumps({"op": op, **fields}).encode()
        size = struct.pack("<i", len(head))
        self.channel.send(size + head + struct.pack("<i", len(payload)) + payload)
        return self.answer()

    def answer(self) -> tuple[dict, bytes]:
        head = json.loads(self.channel._block())
        return head, self.channel._block()

    def number(self) -> int:
        return struct.unpack("<i", self.channel.receive(4))[0]

    def pinned(self, path: str, **when: object) -> str:
        head, _ = self.ask("pin", token="one", uri=path, **when)
        assert "error" not in head, head
        return "one"


@contextmanager
def served(
    roots: tuple[str, ...] = (), memory: int = 1 << 30
) -> Iterator[tuple[Client, CatalogServer, MemoryBudget]]:
    budget = MemoryBudget(memory)
    server = CatalogServer(Roots(roots), budget)
    mine, its = socket.socketpair(socket.AF_UNIX)
    answering = threading.Thread(target=server.answer, args=(its,))
    answering.start()
    with mine:
        mine.settimeout(60)
        yield Client(mine), server, budget
    answering.join(60)
    assert not answering.is_alive()
    assert budget.left == memory, "its memory ends with the connection"


def _planned(client: Client, path: str, columns: list[str], **more: object) -> list[bytes]:
    token = client.pinned(path)
    asked: dict[str, object] = {"filters": [], "limit": None, "parallelism": 2}
    asked |= {"application": "", **more}
    head, payload = client.ask("plan", token=token, table="t", columns=columns, **asked)
    found, at = [], 0
    for size in head["sizes"]:
        found.append(payload[at : at + size])
        at += size
    return found


def _store(path: str) -> str:
    with st.connect(path, read_only=True) as db:
        return db.store_id


# --- pins and tables


def test_a_table_is_described_at_its_pin(path: str) -> None:
    with served() as (client, _, _):
        client.pinned(path, version="release")
        found, _ = client.ask("load", token="one", table="t")
        assert StructType.fromJson(json.loads(found["schema"])).names == ["id", "s"]
        assert found["properties"]["primaryKey"] == "id"
        assert client.ask("load", token="one", table="nope")[0] == {"missing": True}
        found, _ = client.ask("measure", token="one", table="t")
        assert found["rows"] == 1000
        assert "1,000 rows" in found["said"]


def test_a_pin_that_nobody_holds_is_an_error(path: str) -> None:
    with served() as (client, server, _):
        client.pinned(path)
        assert len(server.pins._held) == 1
        client.ask("release", tokens=["one", "unknown"])
        assert len(server.pins._held) == 0
        found, _ = client.ask("load", token="one", table="t")
        assert found["kind"] == "UnavailableError"


def test_a_pin_is_taken_again_at_its_seq_in_its_store(path: str, tmp_path: Path) -> None:
    pins = Pins(Roots())
    held = pins.take(TakePin("one", path, seq=2, store=_store(path)))
    assert held.snapshot.seq == 2
    with st.connect(tmp_path / "other") as db:
        db.create_table("t", {"id": "int64"})
    with pytest.raises(RequestError, match=r"has store .* now; the statement was made for store"):
        pins.take(TakePin("two", str(tmp_path / "other"), seq=1, store=_store(path)))
    with pytest.raises(RequestError, match=r"has store .* now"):
        pins.of("two")
    with pytest.raises(UnavailableError, match="holds no such pin"):
        pins.of("three")
    pins.release(["one", "two"])
    assert len(pins._held) == 0


def test_a_pin_taken_twice_lets_go_of_the_first(path: str) -> None:
    pins = Pins(Roots())
    first = pins.take(TakePin("one", path))
    second = pins.take(TakePin("one", path))
    assert pins.of("one") is second.snapshot
    with pytest.raises(st.ClosedError):
        first.snapshot.tables()
    pins.release(["one"])


def test_a_request_that_is_not_known_is_refused_by_name(path: str) -> None:
    with served() as (client, _, _):
        found, _ = client.ask("format_the_disk")
        assert "the jar asks for what this siltstone does not know" in found["error"]
        assert client.ask("list", uri=path, namespace=[])[0]["tables"] == ["t"]


# --- who may ask for what


def test_a_store_outside_of_the_roots_is_refused(path: str, tmp_path: Path) -> None:
    below = tmp_path / "allowed"
    below.mkdir()
    (below / "link").symlink_to(path)
    with served(roots=(str(below),)) as (client, _, _):
        for uri in (path, str(below / "link"), f"{below}/../shop", "http://127.0.0.1:9"):
            found, _ = client.ask("list", uri=uri, namespace=[])
            assert "may not name the store" in found["error"], uri
            assert "spark.siltstone.roots" in found["error"]
    with served(roots=("/nowhere", str(tmp_path))) as (client, _, _):
        assert client.ask("list", uri=path, namespace=[])[0]["exists"]


def test_the_url_of_a_server_names_its_store(path: str) -> None:
    with st.connect(path, background=False) as db:
        url = db.serve(port=0).url
        with served(roots=(url,)) as (client, _, _):
            client.pinned(url)
            assert client.ask("measure", token="one", table="t")[0]["rows"] == 999
            found, _ = client.ask("list", uri=path, namespace=[])
            assert "may not name the store" in found["error"]


def test_a_process_of_another_user_is_not_answered(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "getuid", lambda: 12345)
    with served() as (client, _, _), pytest.raises(Ended):
        client.ask("list", uri=path, namespace=[])


def test_a_task_of_another_store_is_refused(path: str) -> None:
    with served() as (client, _, _):
        (tasks,) = _planned(client, path, ["id"])
        schema = _columns("id")
        found, _ = client.ask("read", tasks, store="another", columns=schema, maps=True)
        assert "the query reads store another" in found["error"]


def test_a_task_of_a_store_that_is_not_here_is_refused(path: str) -> None:
    with served() as (client, _, _):
        (tasks,) = _planned(client, path, ["id"])
        Path(path).rename(path + "-moved")
        found, _ = client.ask("read", tasks, store="x", columns=_columns("id"), maps=True)
        assert "sees no store at" in found["error"]


# --- rows


def _columns(*names: str) -> str:
    every = pa.schema([pa.field("id", pa.int64(), nullable=False), ("s", pa.string())])
    return schemas.to_spark(pa.schema([every.field(name) for name in names])).json()


def _numbers(client: Client, columns: int) -> tuple[int, ...]:
    (found,) = struct.unpack("<i", client.channel.receive(4))
    assert found == columns
    return struct.unpack(f"<{5 * columns}q", client.channel.receive(40 * columns))


def test_batches_lie_in_memory_that_is_mapped(path: str) -> None:
    with served() as (client, _, budget):
        (tasks,) = _planned(client, path, ["id"])
        place, _ = client.ask("read", tasks, store=_store(path), columns=_columns("id"), maps=True)
        assert budget.left == budget.bytes_max - SLOTS * SLOT_BYTES
        with Path(place["path"]).open("rb") as file:
            memory = mmap.mmap(file.fileno(), place["size"], prot=mmap.PROT_READ)
            with pytest.raises(OSError, match="not permitted"):
                os.truncate(place["path"], 0)
        client.channel.send(b"\1")
        ids: list[int] = []
        while (rows := client.number()) != END:
            nulls, validity, _, values, _ = _numbers(client, 1)
            assert (nulls, validity) == (0, -1)
            ids += struct.unpack_from(f"<{rows}q", memory, values)
            client.channel.send(b"\1")
        assert sorted(ids) == [n for n in range(1000) if n != 1]


def test_memory_is_given_back_even_if_it_is_still_mapped(path: str) -> None:
    with ExitStack() as stack:
        with served() as (client, _, _):
            (tasks,) = _planned(client, path, ["id"])
            place, _ = client.ask(
                "read", tasks, store=_store(path), columns=_columns("id"), maps=True
            )
            file = stack.enter_context(Path(place["path"]).open("rb"))
            memory = mmap.mmap(file.fileno(), place["size"], prot=mmap.PROT_READ)
            client.channel.send(b"\1")
            client.number()
            assert any(memory[: mmap.PAGESIZE])
            assert os.fstat(file.fileno()).st_blocks > 0
        assert os.fstat(file.fileno()).st_blocks == 0
        assert not any(memory[: mmap.PAGESIZE]), (
            "a thread of the JVM that still reads is not harmed"
        )


def test_a_row_larger_than_a_slot_gets_a_larger_one(tmp_path: Path) -> None:
    text = "y" * (SLOT_BYTES + 5)
    with st.connect(tmp_path / "s") as db:
        db.create_table("t", {"id": "int64", "s": "string"}, primary_key="id").upsert(
            [{"id": 1, "s": "small"}, {"id": 2, "s": text}, {"id": 3, "s": "after"}]
        )
    path = str(tmp_path / "s")
    with served() as (client, _, _):
        found = _texts(client, path)
        assert sorted(found) == sorted(["small", text, "after"])
    with served(memory=SLOTS * SLOT_BYTES + 1) as (client, _, _):
        with pytest.raises(LimitError, match=r"more than spark\.siltstone\.memory leaves"):
            _texts(client, path)
        assert client.ask("list", uri=path, namespace=[])[0]["exists"], "it answers on"


def test_a_larger_region_is_given_up_at_the_end_of_its_read(tmp_path: Path) -> None:
    """The connection is kept, and others need the memory."""
    text = "y" * (4 * SLOT_BYTES)
    with st.connect(tmp_path / "s") as db:
        db.create_table("t", {"id": "int64", "s": "string"}, primary_key="id").upsert(
            [{"id": 1, "s": "small"}, {"id": 2, "s": text}]
        )
    path = str(tmp_path / "s")
    with served() as (client, _, budget):
        for _ in range(2):
            assert sorted(_texts(client, path)) == sorted(["small", text])
            assert budget.left >= budget.bytes_max - SLOTS * SLOT_BYTES


def _texts(client: Client, path: str) -> list[str]:
    found: list[str] = []
    for tasks in _planned(client, path, ["s"]):
        place, _ = client.ask("read", tasks, store=_store(path), columns=_columns("s"), maps=True)
        client.channel.send(b"\1")
        while (rows := client.number()) != END:
            if rows == FAILED:
                head, _ = client.answer()
                assert head["kind"] == "LimitError"
                raise LimitError(head["error"], 0)
            if rows == GROWN:
                place, _ = client.answer()
                continue
            _, _, _, values, texts = _numbers(client, 1)
            with (
                Path(place["path"]).open("rb") as file,
                mmap.mmap(file.fileno(), place["size"], prot=mmap.PROT_READ) as memory,
            ):
                ends = struct.unpack_from(f"<{rows + 1}i", memory, values)
                found += [
                    memory[texts + first : texts + end].decode()
                    for first, end in itertools.pairwise(ends)
                ]
            client.channel.send(b"\1")
    return found


@pytest.mark.parametrize("why", ["cannot map", "may not ask", "no memory"])
def test_where_memory_cannot_be_mapped_rows_come_as_a_stream(path: str, why: str) -> None:
    with served(memory=0 if why == "no memory" else 1 << 30) as (client, _, _):
        (tasks,) = _planned(client, path, ["id", "s"])
        head, _ = client.ask(
            "read",
            tasks,
            store=_store(path),
            columns=_columns("id", "s"),
            maps=why != "may not ask",
        )
        if why == "cannot map":
            client.channel.send(b"\0")
        else:
            assert head == {"maps": False}
        stream = b""
        while (size := client.number()) > 0:
            stream += client.channel.receive(size)
        assert size == END
        assert pa.ipc.open_stream(stream).read_all().num_rows == 999


def test_a_reader_that_leaves_ends_the_read(path: str) -> None:
    with served() as (client, _, _):
        (tasks,) = _planned(client, path, ["id"])
        client.ask("read", tasks, store=_store(path), columns=_columns("id"), maps=True)
        client.channel.send(b"\1")
        client.number()
    # `served` checks that its thread has ended and its memory is given back


def test_an_error_in_the_middle_of_a_read_is_told(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(task, schema):
        yield next(iter(task.read()))
        raise st.CorruptionError("file", 3, "it is damaged")

    monkeypatch.setattr(serving, "rows_of", broken)
    with served() as (client, _, _):
        (tasks,) = _planned(client, path, ["id"])
        client.ask("read", tasks, store=_store(path), columns=_columns("id"), maps=True)
        client.channel.send(b"\1")
        assert client.number() > 0
        _numbers(client, 1)
        client.channel.send(b"\1")
        assert client.number() == FAILED
        head, _ = client.answer()
        assert head["kind"] == "CorruptionError"
        assert client.ask("list", uri=path, namespace=[])[0]["exists"], "it answers on"


def test_a_limit_has_as_many_rows_in_its_tasks(path: str) -> None:
    for limit, wanted in ((0, 0), (7, 7), (5000, 999)):
        with served() as (client, _, _):
            found = _planned(client, path, ["id"], limit=limit)
            tasks = [task for each in found for task in pickle.loads(each)[1]]
            assert sum(task.rows for task in tasks) == wanted
            assert sum(b.num_rows for task in tasks for b in task.read()) == wanted


def test_a_scan_of_a_thousand_partitions_has_each_row_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partitions, "BYTES_MIN", 1)
    with st.connect(tmp_path / "s", background=False) as db:
        table = db.create_table("t", {"id": "int64"})
        for first in range(0, 2000, 100):
            table.append([{"id": n} for n in range(first, first + 100)])
            db.checkpoint()
    with served() as (client, _, _):
        found = _planned(client, str(tmp_path / "s"), ["id"], parallelism=1500)
    assert len(found) == 1000
    tasks = [task for each in found for task in pickle.loads(each)[1]]
    rows = [n for task in tasks for batch in task.read() for n in batch["id"].to_pylist()]
    assert sorted(rows) == list(range(2000))


def test_many_reads_leave_no_descriptor_and_no_thread(path: str) -> None:
    def read(connections: int) -> tuple[int, int]:
        for _ in range(connections):
            with served() as (client, _, _):
                (tasks,) = _planned(client, path, ["id"])
                for _ in range(10):
                    client.ask("read", tasks, store=_store(path), columns=_columns("id"), maps=True)
                    client.channel.send(b"\1")
                    while client.number() != END:
                        _numbers(client, 1)
                        client.channel.send(b"\1")
                client.ask("release", tokens=["one"])
        return len(list(Path("/proc/self/fd").iterdir())), threading.active_count()

    few, many = read(2), read(30)
    # What earlier tests left in this process, and Lance's pool, may open or end some meanwhile; one
    # that each connection, or each read, left behind would be 28 more.
    assert many[0] < few[0] + 14
    assert many[1] < few[1] + 14


# --- layout


def test_a_batch_in_a_slot_has_the_bytes_of_its_rows() -> None:
    values = [
        pa.array([None, 1, -2, None, 2**62] * 7, pa.int64()),
        pa.array([True, None, False, True, None] * 7, pa.bool_()),
        pa.array(["", "ab", None, "ü", "x" * 50] * 7, pa.string()),
        pa.array([Decimal("-1.50"), None, Decimal("9.99"), None, Decimal(0)] * 7),
    ]
    whole = pa.record_batch(values, ["a", "b", "c", "d"])
    region = MemoryBudget().region_of()
    assert region is not None
    for first in range(20):
        batch = whole.slice(first, 15 - first // 2)
        said = put(batch, region.address, SLOT_BYTES)
        rows, columns = struct.unpack_from("<2i", said)
        assert (rows, columns) == (batch.num_rows, 4)
        numbers = struct.unpack_from("<20q", said, 8)
        assert _read_back(region.memory, batch, numbers) == batch.to_pydict()
    region.close()


def _read_back(memory: mmap.mmap, batch: pa.RecordBatch, numbers) -> dict[str, list[object]]:
    found: dict[str, list[object]] = {}
    for at, (name, column) in enumerate(zip(batch.schema.names, batch.columns, strict=True)):
        nulls, validity, bit, values, texts = numbers[5 * at : 5 * at + 5]
        assert nulls == column.null_count

        def is_set(bits: int, row: int, bit: int = bit) -> bool:
            return bool(memory[bits + (bit + row) // 8] >> (bit + row) % 8 & 1)

        found[name] = []
        for row in range(batch.num_rows):
            if nulls and not is_set(validity, row):
                found[name].append(None)
            elif name == "a":
                found[name] += struct.unpack_from("<q", memory, values + 8 * row)
            elif name == "b":
                found[name].append(is_set(values, row))
            elif name == "c":
                first, end = struct.unpack_from("<2i", memory, values + 4 * row)
                found[name].append(memory[texts + first : texts + end].decode())
            else:
                raw = memory[values + 16 * row : values + 16 * row + 16]
                number = int.from_bytes(raw, "little", signed=True)
                found[name].append(Decimal(number).scaleb(-2))
    return found


def test_pieces_fit_and_lose_no_row() -> None:
    batch = pa.record_batch([pa.array([str(n) * (n % 90) for n in range(5000)])], ["s"])
    pieces = list(fitting(batch, 4096))
    assert pa.Table.from_batches(pieces).to_pydict() == batch.to_pydict()
    assert all(bytes_of(each) <= 4096 for each in pieces)


def test_ten_thousand_columns_fit_into_slots() -> None:
    names = [f"c{n}" for n in range(10_000)]
    batch = pa.record_batch([pa.array(range(100))] * 10_000, names)
    pieces = list(fitting(batch, SLOT_BYTES))
    assert sum(each.num_rows for each in pieces) == 100
    assert all(bytes_of(each) <= SLOT_BYTES for each in pieces)


def test_only_columns_without_parts_are_flat() -> None:
    flat = [pa.bool_(), pa.int8(), pa.float32(), pa.date32(), pa.string(), pa.binary()]
    flat += [pa.decimal128(20, 2), pa.time64("ns")]
    assert is_flat(pa.schema([(str(kind), kind) for kind in flat]))
    assert is_flat(pa.schema([("t", pa.timestamp("us", "UTC")), ("d", pa.duration("us"))]))
    assert not is_flat(pa.schema([("l", pa.list_(pa.int32()))]))
    assert not is_flat(pa.schema([("s", pa.struct([("x", pa.int32())]))]))
    assert not is_flat(pa.schema([("m", pa.map_(pa.string(), pa.int32()))]))


# --- predicates


SCHEMA = pa.schema([("id", pa.int64()), ("s", pa.string()), ("f", pa.float32())])


def _column(name: str) -> dict[str, object]:
    return {"column": [name]}


def _constant(kind: str, value: object) -> dict[str, object]:
    return {"type": kind, "value": value}


def _op(name: str, *args: object) -> dict[str, object]:
    return {"op": name, "args": list(args)}


ID, TEXT = _column("id"), _column("s")
SEVEN = _constant("bigint", "7")


@pytest.mark.parametrize(
    ("predicate", "sql"),
    [
        (_op("=", ID, SEVEN), '("id" = 7)'),
        (_op("NOT", _op("<=", ID, SEVEN)), '(NOT ("id" <= 7))'),
        (_op("IN", ID, SEVEN, _constant("bigint", None)), '(("id" IN (7) OR NULL))'),
        (_op("OR", _op("IS_NULL", TEXT), _op(">", ID, SEVEN)), '(("s" IS NULL) OR ("id" > 7))'),
        (_op(">", _column("f"), _constant("float", "1.5")), '(("f" > 1.5 OR "f" <> "f"))'),
        (_op("CONTAINS", TEXT, _constant("string", "a%")), "(\"s\" LIKE '%a\\%%')"),
        (_op("=", ID, TEXT), None),
        (_op("=", SEVEN, ID), None),
        (_op("=", TEXT, _constant("string collate UNICODE_CI", "a")), None),
        (_op("=", _op("+", ID, SEVEN), SEVEN), None),
        (_op("=", ID, {}), None),
        (_op("=", {"column": ["id", "part"]}, SEVEN), None),
        (_op("=", _column("gone"), SEVEN), None),
        (_op("AND", _op("=", ID, SEVEN), _op("STRANGE", ID)), None),
        (_op("=", ID, _constant("date", "9999999999")), None),
        ({}, None),
    ],
)
def test_a_predicate_is_the_stores_or_sparks(predicate: object, sql: str | None) -> None:
    assert sql_of(json.dumps(predicate), SCHEMA) == sql


def test_a_predicate_that_is_nested_too_deep_is_sparks() -> None:
    text = '{"op": "NOT", "args": [' * 20_000 + json.dumps(_op("=", ID, SEVEN)) + "]}" * 20_000
    assert sql_of(text, SCHEMA) is None


# --- the process


@contextmanager
def _started(path: Path, given: object) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-m", "siltstone.spark.daemon", str(path)]
    text = msgspec.json.encode(given).decode()
    with subprocess.Popen(
        [*command, text], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def test_the_process_serves_and_ends_with_its_stdin(path: str) -> None:
    folder = Path(tempfile.mkdtemp())
    with _started(folder / "s", {"jar": here()}) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        assert msgspec.json.decode(process.stdout.readline())["identity"]["siltstone"]
        with socket.socket(socket.AF_UNIX) as peer:
            peer.connect(str(folder / "s"))
            assert Client(peer).ask("list", uri=path, namespace=[])[0]["tables"] == ["t"]
            process.stdin.close()
            assert process.wait(60) == 0
        until = time.monotonic() + 10
        while folder.exists() and time.monotonic() < until:
            time.sleep(0.05)
        assert not folder.exists()


def test_a_jar_of_another_siltstone_is_refused_by_both_names(tmp_path: Path) -> None:
    other = Identity("0.0.9", "abc")
    with _started(tmp_path / "s", {"jar": other}) as process:
        assert process.stdout is not None
        said = msgspec.json.decode(process.stdout.readline())
        assert said["kind"] == "UnavailableError"
        assert f"the jar of this Spark is of {other}, its Python has {here()}" in said["error"]
        assert process.wait(60) == 1


def test_a_socket_that_cannot_be_made_is_an_error(tmp_path: Path) -> None:
    with _started(tmp_path / "no" / "s", {"jar": here()}) as process:
        assert process.stdout is not None
        said = msgspec.json.decode(process.stdout.readline())
        assert "no socket can be made at" in said["error"]


WRITE = {
    "table": "w", "columns": json.dumps({"type": "struct", "fields": []}), "options": {},
    "application": "", "insert": "insert", "overwrites": False,
}  # fmt: skip


NAMED = {"table": "x", "application": ""}
SINK = {name: value for name, value in WRITE.items() if name != "insert"} | {"query": "q"}
STEP = {
    "token": "r", "table": "x", "options": {}, "columns": WRITE["columns"], "step": "limit",
}  # fmt: skip


def test_a_write_to_a_table_that_was_made_again_is_refused(tmp_path: Path) -> None:
    with st.connect(tmp_path / "s", background=False) as db:
        old = db.create_table("w", {"id": "int64"}).id
        db.drop_table("w")
        db.create_table("w", {"id": "int64"})
    with served() as (client, _, _):
        gone = {**NAMED, "table": "w", "filter": None}
        for op, more in (("plan_write", WRITE), ("delete", gone), ("plan_sink", SINK)):
            head, _ = client.ask(op, uri=str(tmp_path / "s"), id=old, **more)
            assert "was dropped and made again" in head["error"], op


def test_what_changes_a_store_needs_a_store_below_the_roots(tmp_path: Path) -> None:
    st.connect(tmp_path / "s", background=False).close()
    asked = {
        "plan_write": {**WRITE, "id": 1},
        "create": {**NAMED, "columns": WRITE["columns"], "primary_key": [], "replaces": False},
        "alter": {**NAMED, "changes": []},
        "rename": {**NAMED, "to": "y"},
        "drop": NAMED,
        "delete": {**NAMED, "id": 1, "filter": None},
        "plan_sink": {**SINK, "id": 1},
        "feed": {"table": "x"},
        "feed_step": STEP,
        "plan_changes": {"table": "x", "columns": WRITE["columns"], "since": 0, "until": 1},
    }
    with served(roots=(str(tmp_path / "other"),)) as (client, _, _):
        for op, more in asked.items():
            head, _ = client.ask(op, uri=str(tmp_path / "s"), **more)
            assert "spark.siltstone.roots allows only" in head["error"], op
