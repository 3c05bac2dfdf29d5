"""A handle that is closed, pickled, forked or interrupted refuses, and nothing is lost."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

import siltstone as st
from tests.unchanged import connect, contents

ROOT = Path(__file__).parents[1]
KEYED = {"id": "int64", "name": "string"}


def filled(path: Path) -> st.Store:
    store = connect(path)
    store.create_table("t", KEYED, primary_key="id").upsert(
        [{"id": 1, "name": "a"}, {"id": 2}], missing="null"
    )
    store.create_table("p", {"x": "int64"}).append({"x": 1})
    return store


def run_python(code: str, *flags: str, **names: object) -> str:
    """Run `code` in a fresh interpreter; return what it printed. It must end well."""
    given = "".join(f"{name} = {value!r}\n" for name, value in names.items())
    done = subprocess.run(
        [sys.executable, *flags, "-c", given + code],
        cwd=ROOT, capture_output=True, text=True, timeout=90, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


# closed


STORE_CALLS: dict[str, Callable[[st.Store], object]] = {
    "tables": lambda s: s.tables(),
    "getitem": lambda s: s["t"],
    "create_table": lambda s: s.create_table("n", KEYED),
    "drop_table": lambda s: s.drop_table("t"),
    "rename_table": lambda s: s.rename_table("t", "n"),
    "transaction": lambda s: s.transaction(),
    "run": lambda s: s.run(lambda tx: tx["t"].count()),
    "claim": lambda s: s.claim("app"),
    "outcome": lambda s: s.outcome("1-1"),
    "snapshot": lambda s: s.snapshot(),
    "sql": lambda s: s.sql("select 1"),
    "changes": lambda s: s.changes(),
    "log": lambda s: s.log(),
    "tag": lambda s: s.tag("a"),
    "tags": lambda s: s.tags(),
    "untag": lambda s: s.untag("a"),
    "seq": lambda s: s.seq,
    "durable_seq": lambda s: s.durable_seq,
    "checkpoint": lambda s: s.checkpoint(),
    "merge": lambda s: s.merge(),
    "vacuum": lambda s: s.vacuum(),
}
TABLE_CALLS: dict[str, Callable[[st.Table], object]] = {
    "name": lambda t: t.name,
    "schema": lambda t: t.schema,
    "primary_key": lambda t: t.primary_key,
    "get": lambda t: t.get(1),
    "get_many": lambda t: t.get_many([1]),
    "scan": lambda t: t.scan(),
    "range": lambda t: t.range(1),
    "order": lambda t: t.scan(order_by="id"),
    "to_arrow": lambda t: t.to_arrow(),
    "to_pandas": lambda t: t.to_pandas(),
    "count": lambda t: t.count(),
    "count of a filter": lambda t: t.count("id = 1"),
    "dataset": lambda t: t.dataset(),
    "upsert": lambda t: t.upsert({"id": 3}, missing="null"),
    "upsert nothing": lambda t: t.upsert([]),
    "insert": lambda t: t.insert({"id": 3}),
    "update": lambda t: t.update(1, name="b"),
    "delete": lambda t: t.delete(1),
    "delete_where": lambda t: t.delete_where("id = 1"),
    "truncate": lambda t: t.truncate(),
    "add_column": lambda t: t.add_column("c", "int64"),
    "drop_column": lambda t: t.drop_column("name"),
    "rename_column": lambda t: t.rename_column("name", "n"),
}


@pytest.fixture(scope="module")
def closed(tmp_path_factory: pytest.TempPathFactory) -> tuple[st.Store, dict[str, object]]:
    """Return a closed store, and handles that were taken before."""
    store = filled(tmp_path_factory.mktemp("closed") / "s")
    handles = {"t": store["t"], "p": store["p"], "past": store.snapshot()}
    handles |= {"past t": handles["past"]["t"], "tx": store.transaction()}
    handles["tx t"] = handles["tx"]["t"]
    handles["tx t"].upsert({"id": 9}, missing="null")
    store.close()
    return store, handles


@pytest.mark.parametrize("name", STORE_CALLS)
def test_a_closed_store_refuses(closed, name: str) -> None:
    with pytest.raises(st.ClosedError, match="is closed"):
        STORE_CALLS[name](closed[0])


@pytest.mark.parametrize("name", TABLE_CALLS)
def test_a_table_of_a_closed_store_refuses(closed, name: str) -> None:
    with pytest.raises(st.ClosedError, match="is closed"):
        TABLE_CALLS[name](closed[1]["t"])


@pytest.mark.parametrize("handle", ["past t", "tx t"])
@pytest.mark.parametrize("name", ["get", "scan", "range", "count", "to_arrow", "get_many"])
def test_a_snapshot_and_a_transaction_end_with_their_store(closed, handle: str, name: str) -> None:
    with pytest.raises(st.ClosedError):
        TABLE_CALLS[name](closed[1][handle])


def test_an_open_transaction_of_a_closed_store_cannot_commit(closed) -> None:
    with pytest.raises(st.ClosedError):
        closed[1]["tx"].commit()
    for write in (closed[1]["p"].append, closed[1]["p"].overwrite):
        with pytest.raises(st.ClosedError):
            write({"x": 2})


def test_closing_twice_does_nothing_and_the_store_opens_again(tmp_path: Path) -> None:
    store = filled(tmp_path / "s")
    before = contents(store)
    with store.transaction() as tx:
        tx["t"].upsert({"id": 9}, missing="null")
        store.close()
        store.close()
        with pytest.raises(st.ClosedError):
            tx["t"].get(9)
        tx.rollback()
    assert "closed" in repr(store)
    with connect(tmp_path / "s") as again:
        assert contents(again) == before


def test_an_ended_transaction_and_a_closed_snapshot_refuse(tmp_path: Path) -> None:
    with filled(tmp_path / "s") as store:
        tx = store.transaction()
        table = tx["t"]
        tx.commit()
        for use in (
            tx.commit,
            lambda: tx["t"],
            table.count,
            lambda: table.upsert({"id": 4}, missing="null"),
        ):
            with pytest.raises(st.ClosedError, match="transaction"):
                use()
        past = store.snapshot()
        table = past["t"]
        past.close()
        for use in (past.tables, lambda: past["t"], table.count, lambda: past.sql("select 1")):
            with pytest.raises(st.ClosedError, match="snapshot"):
                use()
        assert store["t"].count() == 2


# pickled


def test_a_pickled_store_has_the_options_of_its_owner(tmp_path: Path) -> None:
    options = {"memory_bytes_max": 64 << 20, "verify": "scrub"}
    with (
        st.connect(tmp_path / "s", **options) as store,
        pickle.loads(pickle.dumps(store)) as copy,
    ):
        assert copy.options == store.options


def test_a_pickled_store_comes_back_read_only_beside_its_owner(tmp_path: Path) -> None:
    with filled(tmp_path / "s") as store:
        with pickle.loads(pickle.dumps(store)) as copy:
            assert copy.is_read_only
            assert contents(copy) == contents(store)
            with pytest.raises(st.ReadOnlyError):
                copy["t"].upsert({"id": 3}, missing="null")
        store["t"].upsert({"id": 3}, missing="null")


READ_ONLY_WRITES = (
    "create_table", "drop_table", "rename_table", "transaction", "run", "claim", "tag", "untag",
    "checkpoint", "merge", "vacuum",
)  # fmt: skip


def test_every_write_through_a_read_only_handle_is_refused(tmp_path: Path) -> None:
    with filled(tmp_path / "s") as store:
        before = contents(store)
        with st.connect(tmp_path / "s", read_only=True) as reader:
            for name in READ_ONLY_WRITES:
                with pytest.raises(st.ReadOnlyError):
                    STORE_CALLS[name](reader)
            for name in ("upsert", "insert", "update", "delete", "delete_where", "truncate",
                         "add_column", "drop_column", "rename_column"):  # fmt: skip
                with pytest.raises(st.ReadOnlyError):
                    TABLE_CALLS[name](reader["t"])
        assert contents(store) == before


# python -O

WITHOUT_ASSERTS = """
import siltstone as st
from siltstone.units import require
db = st.connect(path, segment_bytes=65536, background=False)
t = db.create_table("t", {"id": "int64", "v": "string"}, primary_key="id")
t.upsert([{"id": at, "v": "x"} for at in range(50)])
db.checkpoint(); db.merge()
t.delete(3); t.update(4, v="y")
refused = 0
for bad in ({"id": None}, {"id": "x"}, {"id": 1, "zz": 2}, {"v": "x"}):
    try: t.upsert(bad)
    except st.SchemaMismatchError: refused += 1
try: t.insert({"id": 5})
except st.DuplicateKeyError: refused += 1
first, second = db.transaction(), db.transaction()
first["t"].update(6, v="1"); second["t"].update(6, v="2")
first.commit()
try: second.commit()
except st.ConflictError: refused += 1
try: require(False, "claim")
except st.InvariantError: refused += 1
db.close()
with st.connect(path, read_only=True) as db: count, row = db["t"].count(), db["t"].get(6)
print(__debug__, refused, count, row)
"""


def test_what_guards_data_holds_without_asserts(tmp_path: Path) -> None:
    said = run_python(WITHOUT_ASSERTS, "-O", path=str(tmp_path / "s"))
    assert said.split(maxsplit=3) == ["False", "7", "49", "{'id': 6, 'v': '1'}\n"]


def test_asserts_in_the_source_claim_types_only() -> None:
    """What a person wrote as a check of data would be gone under -O: `units.require` stays."""
    typed = ("isinstance(", " is not None", " is None or isinstance(", "not hasattr(")
    for path in (ROOT / "src").rglob("*.py"):
        for number, line in enumerate(path.read_text().splitlines(), 1):
            if line.strip().startswith("assert "):
                assert any(part in line for part in typed), f"{path}:{number}: {line.strip()}"


def test_a_handle_that_an_earlier_release_pickled_comes_back_read_only(tmp_path: Path) -> None:
    with st.connect(tmp_path / "s", segment_bytes=65536, background=False) as db:
        db.create_table("t", {"id": "int64"}, primary_key="id")
        written = pickle.dumps(db, protocol=0)
        earlier = written.replace(
            b"csiltstone.local.store\nreopen\n", b"csiltstone.store\n_reopen\n"
        )
        assert earlier != written
        with pickle.loads(earlier) as again:
            assert again.is_read_only
            assert again.tables() == ["t"]


# fork

FORKED_CHILD = """
import os, signal, sys
import siltstone as st
db = st.connect(path, segment_bytes=65536, background=False)
t = db.create_table("t", {"id": "int64"}, primary_key="id")
t.upsert({"id": 1}, missing="null")
past, tx = db.snapshot(), db.transaction()
child = os.fork()
if child == 0:
    refused = 0
    for use in (lambda: t.upsert({"id": 2}, missing="null"), lambda: t.get(1),
                lambda: db.tables(), db.checkpoint, lambda: past["t"],
                tx.commit, db.transaction, lambda: t.to_arrow()):
        try: use()
        except st.ClosedError as error: refused += "fork" in str(error)
    db.close()
    os._exit(refused)
_, status = os.waitpid(child, 0)
tx["t"].upsert({"id": 3}, missing="null"); tx.commit()
t.upsert({"id": 4}, missing="null"); db.checkpoint()
print(os.waitstatus_to_exitcode(status), t.count(), past["t"].count())
db.close()
with st.connect(path, segment_bytes=65536, background=False) as db: print(db["t"].count())
"""


def test_a_forked_child_refuses_and_its_parent_goes_on(tmp_path: Path) -> None:
    said = run_python(FORKED_CHILD, path=str(tmp_path / "s"))
    assert said.split() == ["8", "3", "1", "3"]


ORPHAN = """
import os, sys
import siltstone as st
db = st.connect(path, segment_bytes=65536)
db.create_table("t", {"id": "int64"}, primary_key="id").upsert({"id": 1}, missing="null")
child = os.fork()
if child == 0:
    print(os.getpid(), flush=True)
    sys.stdin.read()  # lives until the test closes the pipe
    os._exit(0)
os.waitpid(child, 0)
"""


def test_a_child_that_outlives_its_killed_parent_does_not_keep_the_store(tmp_path: Path) -> None:
    path = tmp_path / "s"
    parent = subprocess.Popen(
        [sys.executable, "-c", f"path = {str(path)!r}\n{ORPHAN}"],
        cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert parent.stdin is not None
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    with pytest.raises(st.OwnedError, match=str(parent.pid)):
        connect(path)
    parent.kill()
    parent.wait()
    os.kill(child, 0)  # it lives
    with connect(path) as store:
        assert store["t"].to_arrow() == pa.table({"id": [1]}, schema=store["t"].schema)
    parent.communicate("")


# Ctrl-C

INTERRUPTED = """
import siltstone as st
db = st.connect(path, segment_bytes=65536)
t = db.create_table("t", {"id": "int64", "twice": "int64"}, primary_key="id")
done = 0
try:
    while True:
        with db.transaction() as tx:
            tx["t"].upsert({"id": done + 1, "twice": done * 2 + 2})
            tx["t"].upsert({"id": -done - 1, "twice": done * -2 - 2})
        done += 1
        if done == 50: print("busy", flush=True)
except KeyboardInterrupt:
    pass
count = t.count()
t.upsert({"id": 0, "twice": 0})
db.close()
print(done, count, flush=True)
"""


def test_an_interrupted_commit_is_whole_or_not_there_and_the_store_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "s"
    process = subprocess.Popen(
        [sys.executable, "-c", f"path = {str(path)!r}\n{INTERRUPTED}"],
        cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stdout.readline() == "busy\n"
    process.send_signal(signal.SIGINT)
    said, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    done, count = map(int, said.split())
    assert count in {done * 2, done * 2 + 2}  # the last one was committed, or not at all
    with connect(path) as store:
        rows = store["t"].to_arrow()
        assert rows.num_rows == count + 1
        assert all(row["twice"] == row["id"] * 2 for row in rows.to_pylist())
