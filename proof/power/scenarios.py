"""Scenarios: the lives that are recorded. Small tables: the disks are what is large here."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from operator import methodcaller
from typing import Any

import pyarrow as pa

from proof.power.life import Life, write_everywhere
from siltstone import failpoints
from siltstone.api.store import Store
from siltstone.engine.write import bulk
from siltstone.maintenance.flush import checkpoint
from siltstone.maintenance.merge import merge

OPTIONS: Mapping[str, Any] = {"segment_bytes": 16_384, "background": False}
KEYED = {"id": "int64", "v": "string"}
PLAIN = {"ts": "int64", "w": "string"}
AGAIN = "again"
CHECKPOINT, MERGE = methodcaller("checkpoint"), methodcaller("merge")
ALL_AGES_S = -1e9
"""A grace period that lets whatever nothing names be old enough to go."""
THREADS, COMMITS_OF_EACH = 6, 6
BRIEF = "brief"
"""What a name of a scenario begins with that is a short form of others: tests run it."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """Parts that are processes, one after the other; each may be killed at its end.

    `keeps_past`: no part of it forgets old seqs, so the change feed begins at the first one.
    """

    title: str
    parts: tuple[Callable[[Life], None], ...]
    options: Mapping[str, Any] = field(default_factory=lambda: OPTIONS)
    keeps_past: bool = True


def keyed(ids: Iterable[int], v: str = "v", size: int = 0) -> list[dict[str, object]]:
    """Return rows of a keyed table."""
    return [{"id": i, "v": f"{v}{i}".ljust(size, ".")} for i in ids]


def plain(*values: int) -> list[dict[str, object]]:
    """Return rows of a plain table."""
    return [{"ts": value, "w": f"w{value}"} for value in values]


def both(db: Store, number: int, size: int = 0, **options: Any) -> None:
    """Write into three tables in one commit."""
    with db.transaction(**options) as tx:
        tx["t"].upsert(keyed([number, number + 1], f"both{number}/", size), missing="null")
        tx["u"].upsert(keyed([number], "both"))
        tx["t"].delete(number - 1)
        tx["p"].append(plain(number))


def begun(life: Life) -> None:
    """Make the tables of most scenarios, with a few rows, and count from here on."""
    life.commit("create", lambda db: db.create_table("t", KEYED, primary_key="id"))
    life.commit("create", lambda db: db.create_table("u", KEYED, primary_key="id"))
    life.commit("create", lambda db: db.create_table("p", PLAIN))
    life.commit("rows", lambda db: both(db, 1))
    life.count()


def a_new_store(life: Life) -> None:
    life.count()
    life.commit("create", lambda db: db.create_table("t", KEYED, primary_key="id"))
    life.commit("upsert", lambda db: db["t"].upsert(keyed([1, 2])))
    life.close()
    life.commit("create", lambda db: db.create_table("p", PLAIN))
    life.commit("append", lambda db: db["p"].append(plain(1)))


def commits(life: Life) -> None:
    begun(life)
    for number in (2, 3):
        life.commit("commit", lambda db, n=number: both(db, n))
    life.commit("large commit", lambda db: both(db, 4, size=9_000))
    life.commit("serializable", lambda db: both(db, 5, isolation="serializable"))
    for number in (6, 7):
        life.commit("async", lambda db, n=number: _upsert_async(db, n))
    life.commit("sync behind async", lambda db: both(db, 8, size=9_000))
    for number in (10, 12):  # a sync commit in the same segment, right behind an async one
        life.commit("async", lambda db, n=number: _upsert_async(db, n))
        life.commit("sync, same segment", lambda db, n=number: db["u"].upsert(keyed([n])))
    life.commit("over a segment", lambda db: db["t"].upsert(keyed([20], "large", 40_000)))
    life.commit("delete", lambda db: db["t"].delete([20, 2]))
    life.commit("overwrite", lambda db: db["p"].overwrite(plain(90, 91)))
    life.commit("last", lambda db: both(db, 9))


def _upsert_async(db: Store, number: int) -> None:
    with db.transaction(durability="async") as tx:
        tx["t"].upsert(keyed([number], "async"))


def groups(life: Life) -> None:
    begun(life)

    def write(thread: int) -> None:
        is_sync = thread % 2 == 0  # half of them are not, and share frames with those that are
        for n in range(COMMITS_OF_EACH):
            with life.db.transaction(durability="sync" if is_sync else "async") as tx:
                tx["t"].upsert(keyed([100 * thread + n], size=300))
                tx["u"].upsert(keyed([1000 + thread], f"{n} of "))
            if tx.receipt is not None and is_sync:
                life.acknowledge(tx.receipt.seq)

    def all_at_once(_db: Store) -> None:
        threads = [threading.Thread(target=write, args=[n]) for n in range(THREADS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    life.commit("groups", all_at_once, THREADS * COMMITS_OF_EACH)
    life.commit("last", lambda db: both(db, 5))


def checkpoints(life: Life) -> None:
    begun(life)
    life.do("checkpoint", CHECKPOINT)
    life.commit("commit", lambda db: both(db, 2, size=6_000))
    life.commit("commit", lambda db: both(db, 3, size=6_000))
    life.do("checkpoint", CHECKPOINT)
    life.commit("into a recycled segment", lambda db: both(db, 4, size=6_000))
    life.commit("delete", lambda db: db["u"].delete([1, 2]))
    life.do("checkpoint", CHECKPOINT)
    life.commit("last", lambda db: both(db, 5))


def merges(life: Life) -> None:
    begun(life)
    life.do("checkpoint", CHECKPOINT)
    life.do("merge", MERGE)
    life.commit("commit", lambda db: both(db, 2))
    life.commit("delete", lambda db: db["t"].delete([1, 3]))
    life.do("checkpoint", CHECKPOINT)
    life.do("merge", MERGE)
    life.commit("commit", lambda db: both(db, 1))
    life.do("merge of one", lambda db: db.merge("t"))
    life.commit("truncate", lambda db: db["u"].truncate())
    life.commit("commit", lambda db: both(db, 7))
    life.do("checkpoint", CHECKPOINT)
    life.do("merge", MERGE)
    life.commit("last", lambda db: both(db, 8))


def folds(life: Life) -> None:
    merge.COMPACT_BELOW_ROWS = 0  # else parts as small as these are joined
    begun(life)
    life.commit("many", lambda db: db["t"].upsert(keyed([*range(100, 160)])))
    life.do("checkpoint", CHECKPOINT)
    life.do("merge", MERGE)
    for number in (100, 103, 106):
        life.commit("replace", lambda db, n=number: db["t"].upsert(keyed([n, n + 100])))
        life.commit("delete", lambda db, n=number: db["t"].delete([n + 1]))
        life.do("checkpoint", CHECKPOINT)
        life.do("fold", MERGE)
    life.commit("delete many", lambda db: db["t"].delete([*range(120, 140)]))
    life.do("checkpoint", CHECKPOINT)
    life.do("fold, and a part anew", MERGE)
    life.commit("last", lambda db: both(db, 8))


def loads(life: Life) -> None:
    checkpoint.LOAD_ROWS_MIN = 2  # else rows as few as these are copied into history
    bulk.COVERED_ROWS_MIN = 1  # and have no key runs
    merge.COMPACT_BELOW_ROWS = 0
    begun(life)
    life.do("checkpoint", CHECKPOINT)
    life.do("merge", MERGE)
    for number in (100, 140):
        life.commit("load", lambda db, n=number: _load(db, range(n, n + 50)))
        life.commit("replace", lambda db, n=number: db["t"].upsert(keyed([n + 7])))
        life.commit("delete", lambda db, n=number: db["t"].delete([n + 1]))
        life.do("checkpoint", CHECKPOINT)
        life.do("merge that adopts", MERGE)
    life.commit("column", lambda db: db["t"].add_column("w", "int64"))
    life.commit("load", lambda db: _load(db, range(160, 170)))
    life.do("checkpoint", CHECKPOINT)
    life.do("merge that adopts", MERGE)
    life.commit("last", lambda db: both(db, 8))


def _load(db: Store, ids: range) -> None:
    stage = db.stage("t", missing="null")
    piece = stage.run(pa.table({"id": ids, "v": [f"loaded{n}" for n in ids]}))
    with db.transaction() as tx:
        tx.attach(stage, [piece])


def optimizes(life: Life) -> None:
    begun(life)
    for number in (3, 5, 7):
        life.commit("commit", lambda db, n=number: both(db, n))
        life.do("checkpoint", CHECKPOINT)
        life.do("merge", MERGE)
    life.do("optimize keyed", lambda db: db.optimize("t", target_rows=64))
    life.commit("optimize plain", lambda db: db.optimize("p", target_rows=64))
    life.commit("delete where", lambda db: db["p"].delete_where("ts = 3"))
    life.commit("commit", lambda db: both(db, 9))
    life.do("checkpoint", CHECKPOINT)
    life.do("optimize history", lambda db: db.optimize("u", target_rows=64))
    life.commit("commit", lambda db: both(db, 11))


def beside(life: Life) -> None:
    """Let other processes merge and optimize beside the owner."""
    begun(life)
    for number in (3, 5):
        life.commit("commit", lambda db, n=number: both(db, n))
        life.do("checkpoint", CHECKPOINT)
        life.do("merge beside", lambda db: _elsewhere("merge", db))
    life.commit("commit", lambda db: both(db, 7))
    life.do("optimize beside", lambda db: _elsewhere("optimize", db, "'t', target_rows=64"))
    life.commit("commit", lambda db: both(db, 8))
    life.do("checkpoint", CHECKPOINT)
    life.commit("last", lambda db: both(db, 9))


def _elsewhere(call: str, db: Store, more: str = "") -> None:
    """Call a function of `siltstone.admin` in a process of its own."""
    code = f"import sys; from siltstone import admin; admin.{call}_store(sys.argv[1], {more})"
    subprocess.run([sys.executable, "-c", code, str(db.path)], check=True)


def indexes(life: Life) -> None:
    begun(life)
    life.commit("rows", lambda db: db["t"].upsert(keyed(range(30, 60))))
    life.do("checkpoint", CHECKPOINT)
    life.do("merge", MERGE)
    life.do("index", lambda db: db["t"].create_index("v"))
    life.commit("commit", lambda db: both(db, 40))
    life.do("checkpoint", CHECKPOINT)
    life.do("merge with an index", MERGE)
    life.do("optimize with an index", lambda db: db.optimize("t", target_rows=64))
    life.do("second index", lambda db: db["u"].create_index("v", kind="bitmap"))
    life.do("drop index", lambda db: db["t"].drop_index("v"))
    life.commit("last", lambda db: both(db, 5))


def definitions(life: Life) -> None:
    begun(life)
    life.commit("add column", lambda db: db["t"].add_column("more", "int64"))
    life.commit("row", lambda db: db["t"].upsert({"id": 3, "v": "m", "more": 3}))
    life.commit("rename column", lambda db: db["t"].rename_column("v", "value"))
    life.do("checkpoint", CHECKPOINT)
    life.commit("drop column", lambda db: db["t"].drop_column("more"))
    life.commit("plain column", lambda db: db["p"].add_column("note", "string"))
    life.commit("rename", lambda db: db.rename_table("u", "renamed"))
    life.commit("row", lambda db: db["renamed"].upsert(keyed([4], "r")))
    life.do("merge", MERGE)
    life.commit("drop", lambda db: db.drop_table("renamed"))
    life.commit("create", lambda db: db.create_table("u", KEYED, primary_key="id"))
    life.commit("made with rows", _made_with_rows)
    life.do("checkpoint", CHECKPOINT)
    life.do("merge", MERGE)
    life.commit("drop plain", lambda db: db.drop_table("p"))
    life.commit("row", lambda db: db["u"].upsert(keyed([8])))


def _made_with_rows(db: Store) -> None:
    with db.transaction() as tx:
        tx.create_table("made", KEYED, "id")
        tx["made"].upsert(keyed([1]))
        tx["u"].truncate()
        tx["u"].upsert(keyed([77]))


def batches(life: Life) -> None:
    """Let a stock Lance client stage versions of two tables, and commit them in one request."""
    import proof.power.stock as client  # noqa: PLC0415 - the clients take their time to import

    begun(life)
    life.commit("made by a client", lambda db: client.make(db, "a", pa.table(_column(0, 10))), 2)
    life.commit("made by a client", lambda db: client.make(db, "b", pa.table(_column(0, 5))), 2)
    for number in (10, 20):
        more = {"a": pa.table(_column(number, 30)), "b": pa.table(_column(number, 23))}
        life.commit("batch", lambda db, more=more: client.commit(db, more))
    life.do("checkpoint", CHECKPOINT)
    both_ways = {"a": pa.table(_column(50, 52)), "b": pa.table(_column(50, 53))}
    life.commit("batch", lambda db: client.commit(db, both_ways, declared="new"))
    life.commit("append", lambda db: db["a"].append(pa.table(_column(70, 71))))
    life.commit("last", lambda db: both(db, 5))


def _column(first: int, end: int) -> dict[str, list[int]]:
    return {"n": list(range(first, end))}


def again(life: Life) -> None:
    """Recover what a power cut left, and go on."""
    life.count()
    life.commit("commit", lambda db: write_everywhere(db, "again"), 2)
    life.do("checkpoint", CHECKPOINT)
    life.commit("commit", lambda db: write_everywhere(db, "once-more"), 2)
    life.close()
    life.do("merge", MERGE)


def vacuums(life: Life) -> None:
    begun(life)
    life.do("checkpoint", CHECKPOINT)
    life.commit("tag", lambda db: db.tag("audit"))
    life.commit("commit", lambda db: both(db, 2))
    life.do("checkpoint", CHECKPOINT)
    life.do("merge", MERGE)
    life.commit("truncate", lambda db: db["u"].truncate())
    life.commit("commit", lambda db: both(db, 3))
    life.do("vacuum", _vacuum)
    life.do("checkpoint", CHECKPOINT)
    life.do("merge", MERGE)
    life.do("vacuum", _vacuum)
    life.commit("commit", lambda db: both(db, 4))
    life.commit("untag", lambda db: db.untag("audit"))
    life.do("checkpoint", CHECKPOINT)
    life.do("merge", MERGE)
    life.do("vacuum", _vacuum)
    life.commit("last", lambda db: both(db, 5))


def _vacuum(db: Store) -> None:
    db.vacuum(dry_run=False, grace_s=ALL_AGES_S)


def killed_in_a_commit(life: Life) -> None:
    begun(life)
    life.do("checkpoint", CHECKPOINT)
    life.commit("commit", lambda db: both(db, 2))
    life.begin("killed in a commit")
    failpoints.arm("commit.after_frame=kill")
    both(life.db, 3)


def killed_behind_an_async_commit(life: Life) -> None:
    """Leave a frame that is in the page cache alone: who recovers it shows it, and so has it."""
    life.commit("commit", lambda db: both(db, 30))
    life.begin("killed behind an async commit")
    _upsert_async(life.db, 31)
    os.kill(os.getpid(), signal.SIGKILL)


def killed_in_a_checkpoint(life: Life) -> None:
    life.commit("commit", lambda db: both(db, 4))
    life.begin("killed in a checkpoint", 0)
    failpoints.arm("flush.before_publish=kill")
    life.db.checkpoint()


def killed_in_a_merge(life: Life) -> None:
    life.commit("commit", lambda db: both(db, 5))
    life.do("checkpoint", CHECKPOINT)
    life.commit("commit", lambda db: both(db, 6))
    life.begin("killed in a merge", 0)
    failpoints.arm("merge.before_publish=kill")
    life.db.merge()


def recovered(life: Life) -> None:
    life.commit("commit", lambda db: both(db, 7))
    life.close()
    life.commit("reopened", lambda db: both(db, 8))
    life.do("checkpoint", CHECKPOINT)
    life.do("merge", MERGE)
    life.commit("last", lambda db: both(db, 9))


def a_little_of_all(life: Life) -> None:
    """Be short: what runs with each change of the source."""
    import proof.power.stock as client  # noqa: PLC0415 - see `batches`

    begun(life)
    life.commit("made by a client", lambda db: client.make(db, "a", pa.table(_column(0, 10))), 2)
    life.commit("made by a client", lambda db: client.make(db, "b", pa.table(_column(0, 5))), 2)
    more = {"a": pa.table(_column(10, 12)), "b": pa.table(_column(10, 13))}
    life.commit("batch", lambda db: client.commit(db, more))
    life.do("checkpoint", CHECKPOINT)
    life.do("merge", MERGE)
    life.commit("large commit", lambda db: both(db, 3, size=6_000))
    life.commit("add column", lambda db: db["t"].add_column("more", "int64"))
    life.commit("drop", lambda db: db.drop_table("b"))
    life.do("index", lambda db: db["t"].create_index("v"))
    life.do("checkpoint", CHECKPOINT)
    life.commit("commit", lambda db: both(db, 4, size=6_000))
    life.do("optimize", lambda db: db.optimize("t", target_rows=64))
    life.begin("killed in a merge", 0)
    failpoints.arm("merge.before_publish=kill")
    life.db.merge()


def a_little_more(life: Life) -> None:
    life.commit("recovered", lambda db: both(db, 5))
    life.do("vacuum", _vacuum)
    life.do("checkpoint", CHECKPOINT)
    life.commit("last", lambda db: both(db, 6))


def once_beside(life: Life) -> None:
    """Be a short form of `beside`: a process takes its time to begin."""
    begun(life)
    for number in (3, 5):
        life.commit("commit", lambda db, n=number: both(db, n))
        life.do("checkpoint", CHECKPOINT)
        life.do("merge", MERGE)
    life.commit("commit", lambda db: both(db, 7))
    life.do("checkpoint", CHECKPOINT)
    life.do("merge beside", lambda db: _elsewhere("merge", db))
    life.do("optimize beside", lambda db: _elsewhere("optimize", db, "'t', target_rows=64"))
    life.commit("last", lambda db: both(db, 9))


def reopened(life: Life) -> None:
    """Be a short form of `recovered`."""
    life.commit("commit", lambda db: both(db, 7))
    life.do("checkpoint", CHECKPOINT)
    life.commit("last", lambda db: both(db, 9))


SCENARIOS = {
    "brief": Scenario(
        "a little of all, killed in a merge, opened", (a_little_of_all, a_little_more)
    ),
    "new": Scenario("a new store, opened twice", (a_new_store,)),
    "commit": Scenario("commits over three tables, sync and async, over segments", (commits,)),
    "groups": Scenario("sync and async commits of six threads, in groups", (groups,)),
    "checkpoint": Scenario("checkpoints, recycled segments", (checkpoints,)),
    "merge": Scenario("merges of history into base", (merges,)),
    "fold": Scenario("merges that hide rows of base, and write a part anew", (folds,)),
    "load": Scenario("loads that history names and base adopts", (loads,)),
    "optimize": Scenario("optimize of keyed and plain tables", (optimizes,)),
    "beside": Scenario("merge and optimize by other processes next to the owner", (beside,)),
    "index": Scenario("building, keeping and dropping indexes", (indexes,)),
    "ddl": Scenario("tables and columns made, renamed and dropped", (definitions,)),
    "batch": Scenario("batch commits of two tables by a stock Lance client", (batches,)),
    "vacuum": Scenario(
        "vacuums beside a tag", (vacuums,), {**OPTIONS, "retention": 0}, keeps_past=False
    ),
    "recovery": Scenario(
        "opened after kills in and behind commits, in a checkpoint and a merge",
        (
            killed_in_a_commit,
            killed_behind_an_async_commit,
            killed_in_a_checkpoint,
            killed_in_a_merge,
            recovered,
        ),
        {**OPTIONS, "sync_interval_ms": 3_600_000},
    ),
    "brief beside": Scenario("a merge and an optimize by other processes", (once_beside,)),
    "brief recovery": Scenario(
        "opened after kills in and behind commits, and in a checkpoint",
        (killed_in_a_commit, killed_behind_an_async_commit, killed_in_a_checkpoint, reopened),
        {**OPTIONS, "sync_interval_ms": 3_600_000},
    ),
    AGAIN: Scenario("what a power cut left, opened and used", (again,)),
}
