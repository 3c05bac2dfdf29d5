"""Lives: how the golden stores came to be, each in a state that a user may have on a disk.

Those about bases are in `base_lives`.

clean           closed by its owner; all kinds of columns, keys and definitions
dirty-log       killed; every kind of entry in the log, over several segments
torn-tail       killed in a write: half a frame behind what was acknowledged
mid-checkpoint  killed between the new files and the record that names them
mid-merge       the same of a merge
mid-optimize    killed with one task done: the record of a job, files that nobody names
tags-and-past   vacuumed: FLOOR, islands that tags keep, seqs that expired
index           indexes, and rows that they do not cover yet
lance-client    plain table versions that another Lance client committed, one hidden
namespaces      created, dropped and overwritten, in a record and in the log
types           columns and keys of all other types: in base, in history and in the log
blobs           a plain table with blobs, appended to, compacted and deleted from
forgotten-apps  token apps that were forgotten, and began anew, in a record and in the log
"""

# pyright: reportArgumentType=false
# pyright: reportAttributeAccessIssue=false

from __future__ import annotations

import datetime as dt
import decimal
import os
import platform
import signal
import uuid
from pathlib import Path

import lance
import pyarrow as pa

import siltstone as st
from siltstone import failpoints
from siltstone.formats.schema import parse_type
from siltstone.namespace import SiltstoneNamespace
from tests.compat import base_lives
from tests.compat.diary import NOT_KILLED, OPTIONS, SMALL, Diary, begin, take_turn

KEYS = {"region": "string", "day": "date32", "n": "int32", "v": "string"}
SIMPLE = {
    "yes": "bool", "i8": "int8", "u64": "uint64", "f16": "float16", "f32": "float32",
    "f64": "float64", "text": "string", "long": "large_string", "bytes": "binary",
    "money": "decimal128(12, 2)", "day": "date32", "clock": "time64[us]", "tick": "time32[ms]",
    "naive": "timestamp[ns]", "moment": "timestamp[us, tz=Europe/Berlin]",
}  # fmt: skip
KINDS = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        *(pa.field(name, parse_type(text)) for name, text in SIMPLE.items()),
        pa.field("words", pa.list_(pa.string())),
        pa.field("point", pa.struct([("x", pa.int32()), ("y", pa.float64())])),
        pa.field("vector", pa.list_(pa.float32(), 4)),
    ]
)

NEWER = pa.schema(
    [
        pa.field("id", pa.uuid(), nullable=False),
        pa.field("hash", pa.binary(3)),
        pa.field("long", pa.large_list(pa.string())),
        pa.field("pairs", pa.map_(pa.string(), pa.int64())),
        pa.field("took", pa.duration("us")),
        pa.field("day", pa.date64()),
        pa.field("wide", pa.decimal256(50, 3)),
        pa.field("tensor", pa.fixed_shape_tensor(pa.float32(), [2, 2])),
    ]
)


def kinds_row(n: int, **changed: object) -> dict[str, object]:
    """Return a row with a value in each column, or with none in any."""
    if n % 5 == 4:
        return {"id": n}
    return {
        "id": n, "yes": n % 2 == 0, "i8": -n, "u64": (1 << 63) + n, "f16": n / 2, "f32": n / 4,
        "f64": n / 3, "text": f"Größe {n}", "long": "ß" * n, "bytes": bytes([n, 0, 255]),
        "money": decimal.Decimal(n * 101) / 100, "day": dt.date(2026, 1, 1 + n),
        "clock": dt.time(1, 2, 3, n), "tick": dt.time(4, 5, 6, n * 1000),
        "naive": dt.datetime(2026, 2, 3, 4, 5, 6, n),  # noqa: DTZ001 - has no zone
        "moment": dt.datetime(2026, 6, 7, 8, 9, 10, n, dt.UTC),
        "words": ["a", None, f"w{n}"], "point": {"x": n, "y": None}, "vector": [n, 1.5, -2.0, 0.0],
        **changed,
    }  # fmt: skip


def newer_row(n: int, **changed: object) -> dict[str, object]:
    """Return a row of those types, or one without values."""
    if n % 5 == 4:
        return {"id": uuid.UUID(int=n)}
    return {
        "id": uuid.UUID(int=n), "hash": bytes([n, 0, 255]), "long": ["a", None, f"w{n}"],
        "pairs": [("z", n), ("a", None)], "took": dt.timedelta(microseconds=n),
        "day": dt.date(1969, 12, 25 + n % 5), "wide": decimal.Decimal(10**40 + n),
        "tensor": [n, 1.5, -2.0, 0.0], **changed,
    }  # fmt: skip


def key_row(n: int, v: str | None, column: str = "v") -> dict[str, object]:
    return {"region": f"r{n % 3}", "day": dt.date(2026, 3, 1 + n), "n": n, column: v}


def write_on(diary: Diary) -> None:
    """Commit rows that the log alone has."""
    db = diary.db
    diary.commit(
        lambda: _both(db),
        lambda: db["small"].delete([{"id": n} for n in range(0, 20, 7)]),
    )


def _both(db: st.Store) -> None:
    with db.transaction() as tx:
        tx["small"].upsert([{"id": n, "v": "new"} for n in (3, 4, 5, 30)])
        tx["plain"].append([{"n": 100, "what": "b"}])


def widen(diary: Diary) -> None:
    """Commit rows of every type (nested ones travel as Arrow), under keys of several columns."""
    db = diary.db
    diary.commit(
        lambda: db.create_table("kinds", KINDS, primary_key="id"),
        lambda: db.create_table("keys", KEYS, primary_key=["region", "day", "n"]),
        lambda: _wide(db),
        lambda: db["kinds"].upsert(
            [kinds_row(n, text="again") for n in (0, 3, 20)], missing="null"
        ),
        lambda: db["keys"].delete([_key(1)]),
    )


def _wide(db: st.Store) -> None:
    with db.transaction() as tx:
        tx["kinds"].upsert([kinds_row(n) for n in range(6)], missing="null")
        tx["keys"].upsert([key_row(n, f"v{n}") for n in range(6)])


def _key(n: int) -> tuple[object, ...]:
    row = key_row(n, None)
    return row["region"], row["day"], row["n"]


def define(diary: Diary) -> None:
    """Commit every kind of change that is not rows."""
    db = diary.db
    diary.commit(
        lambda: db.create_table("short", SMALL, primary_key="id"),
        lambda: db["short"].upsert({"id": 1, "v": "truncated"}),
        lambda: db["short"].truncate(),  # noqa: PLW0108 - it is made before
        lambda: db["short"].upsert({"id": 2, "v": "stays"}),
        lambda: db.create_table("dropped", SMALL, primary_key="id"),
        lambda: db.drop_table("dropped"),
        lambda: db.rename_table("short", "renamed"),
        lambda: db["keys"].add_column("note", "string"),
        lambda: db["keys"].rename_column("v", "value"),
        lambda: db["kinds"].drop_column("f16"),
        lambda: db.tag("before", db.seq - 1),
        lambda: db.tag("untagged"),
        lambda: db.untag("untagged"),
        lambda: db.tag("stream", lasts="3650d"),
        lambda: db.claim("etl"),
        lambda: db.claim("stream", holder="run 1"),
        lambda: _attach(db),
        lambda: db.optimize("plain"),
    )


def _attach(db: st.Store) -> None:
    keyed, plain = db.stage("small"), db.stage("plain")
    rows = pa.RecordBatch.from_pylist([{"id": n, "v": "staged"} for n in range(15, 25)])
    more = pa.RecordBatch.from_pylist([{"n": 7, "what": "staged"}])
    pieces, others = [keyed.run([rows])], [plain.run([more])]
    with db.transaction() as tx:
        tx.attach(keyed, pieces)
        tx.attach(plain, others)


def clean(diary: Diary) -> None:
    begin(diary)
    widen(diary)
    define(diary)
    diary.db.checkpoint()
    diary.db.merge()
    diary.commit(lambda: diary.db["keys"].upsert(key_row(1, "last", "value"), missing="null"))
    diary.finish()
    diary.db.close()


def dirty_log(diary: Diary) -> None:
    begin(diary)
    write_on(diary)
    widen(diary)
    define(diary)
    with diary.db.transaction(durability="async") as tx:
        tx["renamed"].upsert({"id": 3, "v": "async"})
    diary.db._core.writer().sync()
    _hide(diary)
    diary.finish()


def _hide(diary: Diary) -> None:
    """Have another Lance client make versions, and one of them not listed any more."""
    ns = SiltstoneNamespace(diary.db)
    table = pa.table({"n": [300], "what": ["a client's"]})
    for _ in range(2):
        diary.commit(
            lambda: lance.write_dataset(
                table, namespace_client=ns, table_id=["plain"], mode="append"
            )
        )
    hidden = {"id": ["plain"], "ranges": [{"start_version": 1, "end_version": 2}]}
    diary.commit(lambda: ns.batch_delete_table_versions(hidden))


def torn_tail(diary: Diary) -> None:
    """Half of the last frame is there, and MARK does not say that it is durable."""
    begin(diary)
    write_on(diary)
    diary.finish()
    root = diary.db.path
    mark = (root / "wal" / "MARK").read_bytes()
    diary.db["small"].upsert({"id": 999, "v": "never acknowledged " * 10})
    segment = next(p for p in (root / "wal").glob("*.wal") if b"never acknow" in p.read_bytes())
    data = segment.read_bytes()
    half = data.index(b"never acknow") + 40
    segment.write_bytes(data[:half] + bytes(len(data) - half))
    (root / "wal" / "MARK").write_bytes(mark)


def mid_checkpoint(diary: Diary) -> None:
    begin(diary)
    write_on(diary)
    diary.finish()
    failpoints.arm("flush.before_publish=kill")
    diary.db.checkpoint()
    raise AssertionError(NOT_KILLED)


def mid_merge(diary: Diary) -> None:
    begin(diary)
    write_on(diary)
    diary.db.checkpoint()
    diary.commit(lambda: diary.db["small"].upsert({"id": 5, "v": "in the log"}))
    diary.finish()
    failpoints.arm("merge.before_publish=kill")
    diary.db.merge()
    raise AssertionError(NOT_KILLED)


def mid_optimize(diary: Diary) -> None:
    db = diary.db
    begin(diary)
    for turn in range(3):
        diary.commit(lambda turn=turn: take_turn(db, turn))
        db.checkpoint()
    diary.commit(lambda: db["small"].upsert({"id": 5, "v": "in the log"}))
    diary.finish()
    failpoints.arm("optimize.after_task=kill")
    db.optimize()
    raise AssertionError(NOT_KILLED)


def tags_and_past(diary: Diary) -> None:
    begin(diary)
    diary.commit(lambda: diary.db.tag("kept"))
    write_on(diary)
    diary.commit(lambda: diary.db.tag("kept too"))
    diary.db.checkpoint()
    diary.db.merge()
    diary.commit(lambda: diary.db["small"].upsert({"id": 1, "v": "later"}))
    diary.db.checkpoint()
    diary.db._owner().vacuum._retention_s = 0  # else the past would go when it is opened again
    diary.db.vacuum(dry_run=False, grace_s=-1e9)
    diary.commit(lambda: diary.db["small"].upsert({"id": 2, "v": "in the log"}))
    diary.finish()
    diary.db.close()


def index(diary: Diary) -> None:
    db = diary.db
    begin(diary)
    write_on(diary)
    db.checkpoint()
    db.merge()
    db["small"].create_index("v")
    db["small"].create_index("v", kind="bitmap", name="bits")
    diary.commit(lambda: db["small"].upsert({"id": 400, "v": "v8"}))
    db.checkpoint()
    diary.commit(lambda: db["small"].upsert({"id": 401, "v": "v8"}))
    diary.finish()


def lance_client(diary: Diary) -> None:
    db = diary.db
    begin(diary)
    _hide(diary)
    ns = SiltstoneNamespace(db)

    def opened() -> lance.LanceDataset:
        return lance.dataset(namespace_client=ns, table_id=["plain"])

    diary.commit(
        lambda: opened().delete("n = 0"),
        lambda: opened().update({"what": "'updated'"}, where="n = 3"),
    )
    db.checkpoint()
    diary.commit(lambda: opened().delete("n = 1"))
    diary.finish()


def namespaces(diary: Diary) -> None:
    db, ns = diary.db, SiltstoneNamespace(diary.db)
    begin(diary)
    diary.commit(
        lambda: ns.create_namespace({"id": ["a"], "properties": {"owner": "Größe"}}),
        lambda: ns.create_namespace({"id": ["a", "empty"]}),
        lambda: db.create_table("a.b.t", SMALL, primary_key="id"),
        lambda: ns.create_namespace({"id": ["gone"]}),
    )
    db.checkpoint()
    diary.commit(
        lambda: ns.drop_namespace({"id": ["gone"]}),
        lambda: ns.create_namespace({"id": ["log"]}),
        lambda: ns.create_namespace(
            {"id": ["a", "empty"], "mode": "overwrite", "properties": {"k": "v"}}
        ),
        lambda: db["a.b.t"].upsert({"id": 1, "v": "in the log"}),
    )
    diary.finish()


def types(diary: Diary) -> None:
    db = diary.db
    begin(diary)
    diary.commit(
        lambda: db.create_table("newer", NEWER, primary_key="id"),
        lambda: db.create_table("listed", NEWER.append(pa.field("said", pa.json_()))),
        lambda: db["newer"].upsert([newer_row(n) for n in range(6)], missing="null"),
        lambda: db["listed"].append([newer_row(n, said='{"n":1}') for n in range(3)]),
    )
    db.checkpoint()
    db.merge()
    diary.commit(lambda: db["newer"].delete([uuid.UUID(int=2)]))
    db.checkpoint()
    diary.commit(
        lambda: db["newer"].upsert([newer_row(n, hash=b"log") for n in (1, 2, 9)], missing="null"),
        lambda: db["listed"].delete_where("hash = X'0000ff'"),
        lambda: db["newer"].add_column("again", "duration[s]"),
    )
    diary.finish()


def blobs(diary: Diary) -> None:
    db = diary.db
    begin(diary)

    def some_blobs(first: int) -> list[dict[str, object]]:
        values = [b"x" * 99, None, b"small", b"", b"y" * 300, b"z"]
        return [{"n": first + n, "blob": value} for n, value in enumerate(values)]

    diary.commit(
        lambda: db.create_table("blobs", {"n": "int64", "blob": "blob"}),
        lambda: db["blobs"].append(some_blobs(0)),
        lambda: db["blobs"].append(some_blobs(10)),
    )
    db.checkpoint()
    db.optimize()
    diary.commit(
        lambda: db["blobs"].delete_where("blob = X'7a'"),
        lambda: db["blobs"].append(some_blobs(20)),
        lambda: db["blobs"].add_column("note", "string"),
    )
    diary.finish()


def forgotten_apps(diary: Diary) -> None:
    db = diary.db
    begin(diary)
    diary.commit(
        lambda: db.claim("stream", holder="run 1"),
        lambda: db.claim("stream", holder="run 2", at=9),
        lambda: db.claim("other"),
        lambda: db.forget_token_app("stream"),
        lambda: db.claim("stream", holder="run 1"),
    )
    db.checkpoint()
    diary.commit(
        lambda: db.forget_token_app("etl"),
        lambda: _again(db),
        lambda: db.forget_token_app("other"),
        lambda: db.claim("other", holder="in the log"),
    )
    diary.finish()


def defaults(diary: Diary) -> None:
    db = diary.db
    begin(diary)
    columns = {"id": "int64", "n": "int32 not null", "d": "date"}
    diary.commit(
        lambda: db.create_table(
            "given", columns, "id", defaults={"n": 3, "d": dt.date(2026, 1, 2)}
        ),
        lambda: db["given"].insert([{"id": 1}, {"id": 2, "n": 4, "d": None}, {"id": 3}]),
        lambda: db["given"].add_column("merged", "string", "it's"),
        lambda: db["plain"].add_column("m", "decimal(10, 2)", decimal.Decimal("1.20")),
    )
    db.checkpoint()
    db.merge()
    diary.commit(
        lambda: db["given"].add_column("flushed", "int64 not null", 7),
        lambda: db["given"].delete(3),
        lambda: db["given"].insert({"id": 4, "merged": None}),
        lambda: db["plain"].append({"n": 500}),
    )
    db.checkpoint()
    diary.commit(
        lambda: db["given"].add_column("logged", "timestamp[us]", dt.datetime(2026, 1, 2)),  # noqa: DTZ001
        lambda: db["given"].alter_column("n", default=None, nullable=True),
        lambda: db["given"].alter_column("d", default=dt.date(2026, 3, 4)),
        lambda: db["given"].insert([{"id": 5}, {"id": 6, "logged": None}]),
    )
    diary.finish()


def _again(db: st.Store) -> None:
    with db.transaction(token=("etl", 1)) as tx:
        tx["small"].upsert({"id": 1, "v": "once more"})


_LIVES = (
    clean, dirty_log, torn_tail, mid_checkpoint, mid_merge, mid_optimize, tags_and_past, index,
    lance_client, namespaces, types, blobs, forgotten_apps, defaults,
)  # fmt: skip
STATES = {life.__name__.replace("_", "-"): life for life in _LIVES} | base_lives.STATES


def live(state: str, root: Path, said: Path) -> None:
    """Live a life in this process, and die of SIGKILL."""
    platform.node = lambda: "golden"  # of whoever made them nothing is in the stores
    STATES[state](Diary(said, st.connect(root, **OPTIONS)))
    os.kill(os.getpid(), signal.SIGKILL)
