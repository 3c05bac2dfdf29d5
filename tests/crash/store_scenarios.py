"""The lives of stores that are crashed and failed at every step: each names what it is about.

Over 400 lines: one table of lives, behind the few steps that they are made of.
"""

# pyright: reportArgumentType=false
# pyright: reportAttributeAccessIssue=false
# pyright: reportPrivateUsage=false

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from unittest.mock import patch

import pyarrow as pa

from siltstone.api.store import Store
from siltstone.api.transaction import Transaction
from siltstone.engine.catalog import catalog as catalogs
from siltstone.engine.catalog.table_schema import table_schema_of
from siltstone.engine.write import bulk as bulk_writes
from siltstone.engine.write.stage_task import Staged, StageTask, sorter_of
from siltstone.errors import InvariantError, SiltstoneError
from siltstone.formats.manifest import Pin
from siltstone.maintenance.flush.bulk_load import load
from siltstone.maintenance.index import plain_indexes
from siltstone.storage.tables.keys import staged_keys
from tests.crash.store_life import IN_ORDER, Life, Scenario, Step, smaller
from tests.support.fake_lance import FakeExternal

OPEN = Step("open", Life.open, is_commit=False)
CLOSE = Step("close", Life.close, is_commit=False)
CHECKPOINT = Step("checkpoint", lambda life: life.store.checkpoint(), is_commit=False)
MERGE = Step("merge", lambda life: life.store.merge(), is_commit=False)
OPTIMIZE = Step("optimize", lambda life: life.store.optimize(target_rows=64), is_commit=False)
ALL_AGES_S = -1e9
"""A grace period that lets whatever nothing names be old enough to go."""

VACUUM = Step(
    "vacuum",
    lambda life: life.store.vacuum(dry_run=False, grace_s=ALL_AGES_S),
    is_commit=False,
)
SYNC = Step("sync", lambda life: life.store._core.writer().sync(), is_commit=False)

KEYED = {"id": "int64", "v": "string", "n": "float64"}


def _merge_shared_out(life: Life) -> None:
    """A merge whose rows are written by tasks, as other processes would."""
    owner, tables = life.store._owner(), life.store._parts.site.tables
    owner.merger.merge(execute=lambda tasks: [task.run_on(tables) for task in tasks])
    owner.checkpointer.refresh()


MERGE_SHARED_OUT = Step("merge shared out", _merge_shared_out, is_commit=False)


def step(name: str, act: Callable[[Store], object]) -> Step:
    return Step(name, lambda life: act(life.store))


def transaction(work: Callable[[Transaction], object], **options: object) -> Step:
    def act(life: Life) -> None:
        with life.store.transaction(**options) as tx:
            work(tx)

    return Step("transaction", act, is_sync=options.get("durability") != "async")


def create(name: str = "t") -> Step:
    return step("create", lambda db: db.create_table(name, KEYED, primary_key="id"))


def create_plain(name: str = "p") -> Step:
    return step("create plain", lambda db: db.create_table(name, {"ts": "int64", "w": "string"}))


def upsert(*ids: int, name: str = "t", v: str = "v", size: int = 0) -> Step:
    rows = [{"id": i, "v": f"{v}{i}".ljust(size, "."), "n": i / 2} for i in ids]
    return step(f"upsert {ids}", lambda db: db[name].upsert(rows))


def texts(*ids: int, is_load: bool = False) -> Step:
    """Upsert rows with texts as keys, or load them, which sorts none."""
    rows = pa.table({"id": [f"k{number}" for number in ids]})
    if not is_load:
        return step(f"texts {ids}", lambda db: db[IN_ORDER].upsert(rows))

    def act(db: Store) -> None:
        table = catalogs.find(db._core.state().view.catalog, IN_ORDER)
        table_schema = table_schema_of(catalogs.schema_of(table))
        load(db._core, table, table_schema, rows, may_repeat=True, bytes_min=1)

    return step(f"load texts {ids}", act)


def sql(text: str) -> Step:
    return step(text, lambda db: db.sql(text))


def _in_sql(tx: Transaction) -> None:
    tx.sql("create table u (id bigint primary key, n double)")
    tx.sql("insert into u select id, n from t")
    tx.sql("insert into t (id, v) values (2, 'c') on conflict (id) do update set v = excluded.v")


def delete(*ids: int, name: str = "t") -> Step:
    return step(f"delete {ids}", lambda db: db[name].delete(list(ids)))


def append(*values: int, name: str = "p") -> Step:
    rows = [{"ts": value, "w": f"w{value}"} for value in values]
    return step(f"append {values}", lambda db: db[name].append(rows))


class _Refusals(logging.Handler):
    """Keeps the errors that a renewal of indexes logs, and goes on after."""

    def __init__(self) -> None:
        super().__init__()
        self.errors: list[SiltstoneError] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep the error of a line."""
        assert isinstance(record.args, tuple)
        self.errors += [each for each in record.args if isinstance(each, SiltstoneError)]


def _renew(db: Store) -> None:
    """Renew the indexes of plain tables; raise what the log says."""
    log, refusals = logging.getLogger(plain_indexes.__name__), _Refusals()
    log.addHandler(refusals)
    try:
        plain_indexes.PlainIndexes(db._core).renew(None)
    finally:
        log.removeHandler(refusals)
    if refusals.errors:
        raise refusals.errors[0]


def upsert_async(*ids: int) -> Step:
    rows = [{"id": i, "v": "async"} for i in ids]
    return transaction(lambda tx: tx["t"].upsert(rows, missing="null"), durability="async")


def bulk(*ids: int, name: str = "t") -> Step:
    """A bulk load, of few rows here: straight to base, or attached where there are rows already."""

    def act(db: Store) -> None:
        table = catalogs.find(db._core.state().view.catalog, name)
        table_schema = table_schema_of(catalogs.schema_of(table))
        rows = pa.table({"id": list(ids), "v": ["loaded"] * len(ids), "n": [0.5] * len(ids)})
        load(db._core, table, table_schema, rows, may_repeat=True, bytes_min=1)

    return step(f"load {ids}", act)


def _pieces(
    db: Store, stage: StageTask, ids: Sequence[int], v: str, *, has_keys: bool = False
) -> list[Staged]:
    """Write the rows in two pieces, as two processes would."""
    half = len(ids) // 2
    batches = [
        pa.record_batch({"id": list(part), "v": [v] * len(part)})
        for part in (ids[:half], ids[half:])
    ]
    tables = db._core.tables
    return [
        stage.run_through(
            tables.writer, [batch], 0, sorter_of(stage, tables.keys) if has_keys else None
        )
        for batch in batches
    ]


def staged(*ids: int, op: str = "upsert", v: str = "staged", order_by: str | None = None) -> Step:
    """A job of two pieces, attached and committed."""

    def act(db: Store) -> None:
        stage = db.stage("t", op, order_by=order_by, missing="null")
        pieces = _pieces(db, stage, ids, v)
        with db.transaction() as tx:
            tx.attach(stage, pieces)

    return step(f"stage {op} {ids}", act)


def staged_with_keys(*ids: int, order_by: str | None = None) -> Step:
    """The same with the keys of few rows sorted where they are staged; `_cleared` takes them."""

    def act(db: Store) -> None:
        stage = db.stage("t", order_by=order_by, missing="null")
        with (
            patch.object(staged_keys, "ROWS_MIN", 1),
            patch.object(bulk_writes, "COVERED_ROWS_MIN", 1),
        ):
            pieces = _pieces(db, stage, ids, "keys", has_keys=True)
            with db.transaction() as tx:
                tx.attach(stage, pieces)
        _attached[db.path] = stage, pieces

    return step(f"stage with keys {ids}", act)


def staged_in_hand(*jobs: tuple[int, ...]) -> Step:
    """Jobs whose few rows travel in their pieces: one goes into the log, two become files."""

    def act(db: Store) -> None:
        found = []
        for ids in jobs:
            stage = db.stage("t", missing="null")
            batch = pa.record_batch({"id": [*ids], "v": ["hand"] * len(ids)})
            found.append((stage, [stage.run_through(db._core.tables.writer, [batch], 1 << 20)]))
        with db.transaction() as tx:
            for stage, pieces in found:
                tx.attach(stage, pieces)
        _attached[db.path] = found[0]

    return step(f"stage in hand {jobs}", act)


_attached: dict[Path, tuple[StageTask, list[Staged]]] = {}


def _cleared(life: Life) -> None:
    stage, pieces = _attached[life.store.path]
    stage.discard_through(life.store._core.files, life.store.path, pieces)


def _two_jobs(db: Store) -> None:
    """Rows, and the deletion of some of them, in one commit."""
    jobs = [(db.stage("t", missing="null"), (20, 21, 22)), (db.stage("t", "delete"), (21, 1))]
    found = [(stage, _pieces(db, stage, ids, "two")) for stage, ids in jobs]
    with db.transaction() as tx:
        for stage, pieces in found:
            tx.attach(stage, pieces)


def _discarded(db: Store) -> None:
    stage = db.stage("t", missing="null")
    pieces = _pieces(db, stage, (70, 71), "discarded")
    stage.discard_through(db._core.files, db.path, pieces)
    db.stage("t", missing="null").run_through(
        db._core.tables.writer, [pa.record_batch({"id": [72], "v": ["w"]})]
    )  # dies here


def _overwritten(db: Store, *, token: int) -> None:
    """Two keyed tables and a plain one, each truncated and attached to, in one commit."""
    jobs = [(db.stage(name, missing="null"), name) for name in ("t", "u", "p")]
    found = []
    for stage, name in jobs:
        rows = {"ts": [token], "w": ["w"]} if name == "p" else {"id": [token, 90], "v": ["o"] * 2}
        found.append([stage.run_through(db._core.tables.writer, [pa.record_batch(rows)])])
    with db.transaction(token=("etl", token)) as tx:
        for (stage, name), pieces in zip(jobs, found, strict=True):
            tx[name].truncate()
            tx.attach(stage, pieces)
        tx.create_table(f"made{token}", KEYED, "id")


def _both(tx: Transaction, number: int) -> None:
    tx["t"].upsert({"id": number, "v": "both"}, missing="null")
    tx["u"].upsert({"id": number, "v": "both"}, missing="null")
    tx["t"].delete(number - 1)
    tx["p"].append([{"ts": number, "w": "both"}])


def _made_with_rows(tx: Transaction) -> None:
    tx.create_table("made", KEYED, "id")
    tx["made"].upsert({"id": 1, "v": "made"}, missing="null")
    tx["t"].add_column("more", "int64")
    tx["u"].truncate()
    tx["u"].upsert({"id": 77, "v": "after truncate"}, missing="null")


def _repeat_token(life: Life) -> None:
    """The same batch again: the old receipt, no new commit."""
    tx = life.store.transaction(token=("app", 2))
    with tx:
        tx["t"].upsert({"id": 999, "v": "twice"}, missing="null")
    assert tx.receipt is not None
    assert tx.receipt.seq == 3


_TWO_TABLES = [OPEN, create(), create("u"), create_plain()]

_clients = itertools.count(1)


def _declared(tx: Transaction) -> None:
    tx.lance.tx.declare_table("a")
    tx.lance.tx.declare_table("b")


def namespace(name: str, **properties: str) -> Step:
    return transaction(lambda tx: tx.lance.create_namespace(name, properties))


def drop_namespace(name: str) -> Step:
    return transaction(lambda tx: tx.lance.drop_namespace(name))


def _space_with_table(tx: Transaction) -> None:
    tx.lance.create_namespace("n", {"owner": "x"})
    tx.create_table("n.t", KEYED, "id")
    tx["n.t"].upsert({"id": 1, "v": "n"}, missing="null")


def _space_gone(tx: Transaction) -> None:
    tx.drop_table("n.t")
    tx.lance.drop_namespace("n")
    tx.lance.create_namespace("m", {})


def versions(*values: int, hides: bool = False) -> Step:
    """Another Lance client stages a version of two tables each, and commits both at once."""

    def act(life: Life) -> None:
        external = life.store._parts.site.tables.external
        assert isinstance(external, FakeExternal)
        with life.store.transaction() as tx:
            for name in "ab":
                seen = tx.lance.versions(name)
                pin = None if seen.newest is None else seen.newest.pin
                batch = pa.record_batch({"n": pa.array(values, pa.int64())})
                client = f"{next(_clients):08x}"
                tx.lance.import_version(
                    name, external.stage_external(seen.folder, pin, batch, client)
                )
            if hides:
                tx.lance.hide_versions("a", 1, 2)

    return Step(f"versions {values}", act)


def _refuse(life: Life) -> None:
    """Let the tables of this process refuse the history of `t`, as Lance may."""
    writer = life.store._parts.site.tables.writer
    stage = writer.stage

    def refusing(pin: Pin, *args: object, **options: object) -> object:
        if pin.folder.startswith("tables/t-") and pin.folder.endswith(".history"):
            raise InvariantError("Lance panicked while it wrote")
        return stage(pin, *args, **options)

    writer.stage = refusing


def _refuse_at_commit(life: Life) -> None:
    """Let them take the rows, and refuse the version that has them."""
    writer = life.store._parts.site.tables.writer
    writer.stage = type(writer).stage.__get__(writer)
    commit = writer.commit

    def refusing(pin: Pin, *args: object) -> object:
        if pin.folder.startswith("tables/t-") and pin.folder.endswith(".history"):
            raise InvariantError("Lance panicked while it wrote")
        return commit(pin, *args)

    writer.commit = refusing


REFUSE = Step("refuse", _refuse, is_commit=False)
REFUSE_AT_COMMIT = Step("refuse at commit", _refuse_at_commit, is_commit=False)


def forget(app: str) -> Step:
    return step(f"forget {app}", lambda db: db.forget_token_app(app))


def claim(app: str, holder: str) -> Step:
    return step(f"claim {app}", lambda db: db.claim(app, holder))


def add_more(name: str, default: int) -> Step:
    return step(f"add {name}", lambda db: db["t"].add_column(name, "int64", default))


def of_type(name: str, kind: str) -> Step:
    return step(f"{name} is {kind}", lambda db: db["t"].alter_column(name, type=kind))


def typed_row(key: int, n: object) -> Step:
    return step("row", lambda db: db["t"].upsert({"id": key, "v": "more", "w": n}, missing="null"))


def more_row(key: int) -> Step:
    return step("row", lambda db: db["t"].upsert({"id": key, "v": "more"}, missing="keep"))


SCENARIOS: dict[str, Scenario] = {
    "a table that Lance refuses": Scenario(
        [
            OPEN,
            create(),
            create("u"),
            upsert(1, 2),
            CHECKPOINT,
            REFUSE,
            upsert(2, 3, v="w"),
            upsert(1, name="u"),
            CHECKPOINT,
            bulk(3, 4, 5),
            delete(1),
            REFUSE_AT_COMMIT,
            CHECKPOINT,
            MERGE,
            VACUUM,
            CLOSE,
            OPEN,  # from here on it is taken
            CHECKPOINT,  # nothing else is to be flushed
            upsert(7),
            CHECKPOINT,
            MERGE,
            VACUUM,
            upsert(8),
        ]
    ),
    "forgotten apps": Scenario(
        [
            OPEN,
            create(),
            transaction(
                lambda tx: tx["t"].upsert({"id": 1, "v": "1"}, missing="null"), token=("etl", 7)
            ),
            claim("stream", "a"),
            claim("stream", "b"),
            forget("stream"),
            claim("stream", "a"),
            CHECKPOINT,
            forget("etl"),
            transaction(
                lambda tx: tx["t"].upsert({"id": 1, "v": "2"}, missing="null"), token=("etl", 1)
            ),
            CLOSE,
            OPEN,
            forget("stream"),
            MERGE,
            VACUUM,
            claim("stream", "c"),
            CHECKPOINT,
            forget("stream"),
        ]
    ),
    "versions of other clients": Scenario(
        [
            OPEN,
            transaction(_declared),
            versions(1, 2),
            versions(3),
            CHECKPOINT,
            versions(4, hides=True),
            step("append", lambda db: db["a"].append({"n": 9})),
            CLOSE,
            OPEN,
            versions(5),
        ]
    ),
    "namespaces": Scenario(
        [
            OPEN,
            create(),
            namespace("a", owner="x"),  # publishes the format that it needs
            namespace("a.b"),
            CHECKPOINT,
            transaction(_space_with_table),
            drop_namespace("a.b"),
            CLOSE,
            OPEN,
            upsert(1),
            transaction(_space_gone),
            CHECKPOINT,
            VACUUM,
            drop_namespace("a"),
        ]
    ),
    "keys sorted where rows are staged": Scenario(
        [
            OPEN,
            create(),
            staged_with_keys(9, 3, 5, 1),  # a first base
            staged_with_keys(4, 3, 7, 2),
            Step("clear", _cleared, is_commit=False),
            upsert(3),
            staged_with_keys(8, 6, 8, 5, order_by="v"),  # of equal keys one goes
            CHECKPOINT,
            MERGE,
            VACUUM,
        ]
    ),
    "few staged rows in the log": Scenario(
        [
            OPEN,
            create(),
            staged_in_hand((1, 2)),  # of a first base
            Step("clear", _cleared, is_commit=False),
            upsert(3),
            staged_in_hand((2, 3, 4)),
            Step("clear", _cleared, is_commit=False),
            staged_in_hand((5, 6), (6, 7)),
            Step("clear", _cleared, is_commit=False),
            CHECKPOINT,
            MERGE,
            VACUUM,
        ]
    ),
    "a new store": Scenario([OPEN, create(), upsert(1)]),
    "rows over segments": Scenario(
        [
            OPEN,
            create(),
            *[upsert(i, i + 1, size=2500) for i in range(6)],
            upsert(50, size=40_000),  # larger than a segment
            step("insert", lambda db: db["t"].insert({"id": 60, "v": "in"})),
            step("update", lambda db: db["t"].update(60, v="up")),
            delete(0, 1),
            step("delete where", lambda db: db["t"].delete_where("id = 3")),
        ]
    ),
    "statements of SQL": Scenario(
        [
            OPEN,
            create(),
            sql("insert into t values (1, 'a', 0.5), (2, 'b', null)"),
            sql("update t set n = id + 1 where v = 'b'"),
            sql("merge into t using (select 1 as id) s using (id) when matched then delete"),
            transaction(_in_sql),
            sql("truncate t"),
        ]
    ),
    "a transaction over tables": Scenario(
        [
            *_TWO_TABLES,
            transaction(lambda tx: _both(tx, 1)),
            transaction(lambda tx: _both(tx, 2), isolation="serializable"),
            transaction(_made_with_rows),
            transaction(lambda tx: _both(tx, 3)),
        ]
    ),
    "checkpoints": Scenario(
        [
            OPEN,
            create(),
            upsert(1, 2, 3),
            CHECKPOINT,
            upsert(2, 4, v="w"),
            delete(1),
            CHECKPOINT,
            CHECKPOINT,
            upsert(5, size=9000),
            upsert(6, size=9000),  # in a recycled segment
            CHECKPOINT,
            upsert(7),
        ]
    ),
    "a log of commits in many parts": Scenario(
        [
            OPEN,
            create(),
            *[each for i in range(4) for each in (upsert(i), CHECKPOINT)],
            upsert(1, 2, v="w"),
            CHECKPOINT,  # joins four parts
            VACUUM,
            delete(1),
            CHECKPOINT,
            upsert(5),
            CHECKPOINT,
            upsert(6),
            CLOSE,  # joins again
            OPEN,
            upsert(7),
        ]
    ),
    "merges": Scenario(
        [
            OPEN,
            create(),
            upsert(*range(8)),
            CHECKPOINT,
            MERGE,
            upsert(2, 9, v="w"),
            delete(1, 3),
            MERGE,
            CHECKPOINT,
            upsert(5, v="x"),
            MERGE,
            CHECKPOINT,
            MERGE,
            delete(9),
        ]
    ),
    "merges of texts, which get an order": Scenario(
        [
            OPEN,
            step("create", lambda db: db.create_table(IN_ORDER, {"id": "string"}, "id")),
            texts(*range(8), is_load=True),
            CHECKPOINT,
            MERGE,  # of no row: it writes the ordered run that the load lacks
            texts(2, 9),
            CHECKPOINT,
            MERGE,
            step("delete", lambda db: db[IN_ORDER].delete(["k3", "k9"])),
            texts(3, 11, is_load=True),
            CHECKPOINT,
            MERGE,
            OPTIMIZE,
        ]
    ),
    "small files become large ones": Scenario(
        [
            OPEN,
            create(),
            staged(*range(8)),
            CHECKPOINT,
            upsert(2, 9, v="w"),
            OPTIMIZE,  # of a base of two pieces
            delete(1, 3),
            CHECKPOINT,
            upsert(1),
            CHECKPOINT,
            OPTIMIZE,  # of history
            upsert(3, 4, v="x"),
            CHECKPOINT,
            OPTIMIZE,
            VACUUM,
            bulk(4, 5),
            MERGE_SHARED_OUT,
            CHECKPOINT,
            OPTIMIZE,
            MERGE_SHARED_OUT,
            upsert(9, v="y"),
            step("add column", lambda db: db["t"].add_column("more", "int64")),
            step("drop column", lambda db: db["t"].drop_column("n")),
            CHECKPOINT,
            MERGE_SHARED_OUT,
            OPTIMIZE,
            VACUUM,
            CLOSE,
            OPEN,
            delete(9),
        ]
    ),
    "tables that change": Scenario(
        [
            OPEN,
            create(),
            upsert(1, 2),
            step("add column", lambda db: db["t"].add_column("more", "int64")),
            step("row", lambda db: db["t"].upsert({"id": 3, "v": "m", "more": 3}, missing="null")),
            step("rename column", lambda db: db["t"].rename_column("v", "value")),
            CHECKPOINT,
            step("drop column", lambda db: db["t"].drop_column("n")),
            step("rename", lambda db: db.rename_table("t", "renamed")),
            step("row", lambda db: db["renamed"].upsert({"id": 4, "value": "r"}, missing="null")),
            MERGE,
            step("drop", lambda db: db.drop_table("renamed")),
            create(),
            upsert(8),
            CHECKPOINT,
            step("truncate", lambda db: db["t"].truncate()),
            upsert(9),
            CHECKPOINT,
            MERGE,
        ]
    ),
    "columns with defaults": Scenario(
        [
            OPEN,
            create(),
            upsert(1, 2),
            add_more("a", 1),
            more_row(3),
            CHECKPOINT,
            add_more("b", 2),
            step("null", lambda db: db["t"].insert({"id": 4, "a": None, "b": None})),
            CHECKPOINT,  # history gets the column
            MERGE,
            add_more("c", 3),
            more_row(1),
            step("never null", lambda db: db["t"].alter_column("c", nullable=False)),
            delete(2),
            MERGE,  # base gets the column
            step("default", lambda db: db["t"].alter_column("c", default=4)),
            more_row(7),
            add_more("d", 5),
            CHECKPOINT,
            MERGE,
            CLOSE,
            OPEN,
            more_row(9),
        ]
    ),
    "columns of other types": Scenario(
        [
            OPEN,
            create(),
            upsert(1, 2),
            step("add w", lambda db: db["t"].add_column("w", "int8", 7)),
            of_type("w", "int16"),
            typed_row(3, 300),
            CHECKPOINT,
            MERGE,
            of_type("w", "int64"),
            typed_row(1, 2**40),
            delete(2),
            CHECKPOINT,  # history gets the type
            MERGE,  # base gets the type
            of_type("w", "string"),
            typed_row(4, "four"),
            CHECKPOINT,
            of_type("v", "large_string"),
            MERGE,
            CLOSE,
            OPEN,
            typed_row(9, "nine"),
        ]
    ),
    "a plain table": Scenario(
        [
            OPEN,
            step(
                "create plain",
                lambda db: db.create_table("p", {"ts": "int64 not null", "w": "string"}),
            ),
            append(1, 2),
            append(3),
            CHECKPOINT,
            step("overwrite", lambda db: db["p"].overwrite([{"ts": 9, "w": "over"}])),
            append(4, 5),
            step("index", lambda db: db["p"].create_index("ts")),
            step("delete where", lambda db: db["p"].delete_where("ts = 4")),
            step("renew its index", _renew),
            step("drop index", lambda db: db["p"].drop_index("ts")),
            MERGE,
            CHECKPOINT,
            transaction(lambda tx: tx["p"].alter_column("ts", nullable=True)),
            transaction(lambda tx: tx["p"].note({"owner": "a team"})),
            step("truncate", lambda db: db["p"].truncate()),
            append(6),
        ]
    ),
    "a bulk load": Scenario(
        [
            OPEN,
            create(),
            bulk(5, 3, 3, 1),
            upsert(3, 4, v="w"),
            CHECKPOINT,
            delete(1),
            CHECKPOINT,
            MERGE,
            create("u"),
            bulk(1, 2, name="u"),
            MERGE,
        ]
    ),
    "loads that a merge adopts": Scenario(
        [
            OPEN,
            create(),
            upsert(1, 2, 3),
            staged(*range(10, 20)),
            CHECKPOINT,
            delete(11),
            upsert(12, v="w"),
            MERGE,
            staged(*range(18, 30)),
            step("drop column", lambda db: db["t"].drop_column("n")),
            step("add column", lambda db: db["t"].add_column("n", "float64")),
            CHECKPOINT,
            MERGE_SHARED_OUT,
            VACUUM,
            CLOSE,
            OPEN,
            delete(20),
        ]
    ),
    "bulk rows beside others": Scenario(
        [
            OPEN,
            create(),
            upsert(1, 2, 3),
            bulk(3, 4, 5),
            upsert(4, v="w"),
            delete(5),
            CHECKPOINT,
            bulk(1, 5),
            MERGE,
            CHECKPOINT,
            MERGE,
            bulk(2),
            CLOSE,
            OPEN,
            upsert(9),
        ]
    ),
    "staged jobs": Scenario(
        [
            OPEN,
            create(),
            staged(1, 2, 3, 4),
            staged(3, 4, 5),
            staged(2, 5, op="delete"),
            Step("discard", lambda life: _discarded(life.store), is_commit=False),
            upsert(4, v="w"),
            CHECKPOINT,
            staged(4, 6, 6, order_by="v"),
            MERGE,
            staged(7, 8, op="insert"),
            step("two jobs", _two_jobs),
            CLOSE,
            OPEN,
            delete(8),
            CHECKPOINT,
            MERGE,
        ]
    ),
    "staged jobs over tables": Scenario(
        [
            *_TWO_TABLES,
            upsert(1, 2),
            append(1, 2),
            step("overwrite", lambda db: _overwritten(db, token=1)),
            upsert(3),
            append(3),
            CHECKPOINT,
            step("overwrite", lambda db: _overwritten(db, token=2)),
            append(4),
            MERGE,
        ]
    ),
    "vacuums": Scenario(
        [
            *_TWO_TABLES,
            upsert(1, 2, 3),
            append(1),
            VACUUM,
            CHECKPOINT,
            MERGE,
            bulk(3, 4),
            upsert(2, v="w"),
            VACUUM,  # a frame alone names the bulk rows
            CHECKPOINT,
            MERGE,
            step("truncate", lambda db: db["t"].truncate()),
            append(2),
            upsert(5),
            VACUUM,
            CHECKPOINT,
            VACUUM,
            upsert(6),
        ]
    ),
    "tokens and tags": Scenario(
        [
            OPEN,
            create(),
            transaction(
                lambda tx: tx["t"].upsert({"id": 1, "v": "a"}, missing="null"), token=("app", 1)
            ),
            transaction(
                lambda tx: tx["t"].upsert({"id": 2, "v": "b"}, missing="null"), token=("app", 2)
            ),
            Step("repeat", _repeat_token, is_commit=False),
            step("tag", lambda db: db.tag("audit")),
            CHECKPOINT,
            Step("repeat", _repeat_token, is_commit=False),
            step("claim", lambda db: db.claim("app")),
            step("claim by name", lambda db: db.claim("app", "run 1")),
            transaction(
                lambda tx: tx["t"].upsert({"id": 3, "v": "c"}, missing="null"), token=("app", 3)
            ),
            step("tag for a time", lambda db: db.tag("stream", lasts="7d")),
            step("untag", lambda db: db.untag("audit")),
        ]
    ),
    "hand-over": Scenario(
        [
            OPEN,
            create(),
            upsert(1),
            CLOSE,
            OPEN,
            upsert(2),
            CHECKPOINT,
            CLOSE,
            OPEN,
            CLOSE,
            OPEN,
            upsert(3),
            MERGE,
            CLOSE,
            OPEN,
            delete(3),
        ]
    ),
    "asynchronous commits": Scenario(
        [
            OPEN,
            create(),
            upsert_async(1),
            upsert_async(2),
            SYNC,
            upsert_async(3),
            upsert(4),  # its sync is theirs too
            upsert_async(5),
            CHECKPOINT,
            upsert_async(6),
            CLOSE,
            OPEN,
            upsert_async(7),
        ]
    ),
    "checkpoints by the writer": Scenario(
        [OPEN, create(), *[upsert(i, i + 1, size=2500) for i in range(4)], delete(2)],
        smaller(memtable_bytes_max=4096),
    ),
}
