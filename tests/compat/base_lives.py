"""Lives of bases: golden stores with hidden rows, loads, key runs and thinned records.

folds           a base with hidden rows, folded twice, and rows in the log
mid-fold        killed between the deletion files of a merge and the base that they are for
mid-fold-compaction  killed before the record of a merge that rewrites a part with hidden rows
loads           loads in base, in history alone, and in the log, one over a changed schema
mid-adoption    killed before the record of a merge that adopts a load
thinned         records of the retention are gone, and older ones serve their seqs
key-runs        bases with keys of whole numbers, texts and both, whose key runs were merged
mid-key-runs    killed between the key runs of a merge and the record of the base that they are for
load-runs       loads with key runs in base, in history and in the log, of three kinds of keys
mid-load-runs   killed between the key runs of a load and the frame that attaches it
"""

# pyright: reportArgumentType=false
# pyright: reportAttributeAccessIssue=false

from __future__ import annotations

import pyarrow as pa

import siltstone as st
from siltstone import failpoints
from siltstone.engine.write import bulk
from siltstone.local.store import LocalStore
from siltstone.maintenance.merge import merge
from siltstone.maintenance.thinning import Bounds
from siltstone.open.environment import Env
from siltstone.options import Options
from tests.compat.diary import NOT_KILLED, Diary, begin, take_turn


def folds(diary: Diary) -> None:
    _fold(diary)
    diary.db.merge()
    diary.commit(lambda: diary.db["folded"].upsert({"id": 7, "v": "in the log"}))
    diary.finish()


def mid_fold(diary: Diary) -> None:
    _fold(diary)
    diary.finish()
    failpoints.arm("merge.after_deletions=kill")
    diary.db.merge()
    raise AssertionError(NOT_KILLED)


def mid_fold_compaction(diary: Diary) -> None:
    _fold(diary)
    diary.commit(lambda: diary.db["folded"].delete([{"id": n} for n in range(20)]))
    diary.db.checkpoint()
    diary.finish()
    failpoints.arm("merge.before_publish=kill")  # with a part that is rewritten
    diary.db.merge()
    raise AssertionError(NOT_KILLED)


def _fold(diary: Diary) -> None:
    """Leave a base with hidden rows, a tag before them, an index, and rows to fold."""
    merge.COMPACT_BELOW_ROWS = 0  # else parts as small as these are joined instead
    begin(diary)
    db = diary.db
    table = db.create_table("folded", {"id": "int64", "v": "string"}, primary_key="id")
    diary.commit(lambda: table.upsert([{"id": n, "v": f"v{n % 9}"} for n in range(60)]))
    db.checkpoint()
    db.merge()
    table.create_index("v")
    db.optimize()
    diary.commit(
        lambda: db.tag("before"),
        lambda: table.upsert([{"id": n, "v": "folded"} for n in (3, 30, 60)]),
        lambda: table.delete([{"id": 4}, {"id": 31}]),
    )
    db.checkpoint()
    db.merge()
    diary.commit(lambda: table.upsert([{"id": n, "v": "again"} for n in (4, 3, 61)]))
    db.checkpoint()


def loads(diary: Diary) -> None:
    _load(diary)
    db = diary.db
    db.merge()
    diary.commit(
        lambda: db["loaded"].delete([{"id": 40}, {"id": 41}]),
        lambda: _attach(db, range(70, 80), "second"),
    )
    db.checkpoint()
    diary.commit(lambda: _attach(db, range(75, 85), "third"))
    diary.finish()


def mid_adoption(diary: Diary) -> None:
    _load(diary)
    diary.finish()
    failpoints.arm("merge.before_publish=kill")
    diary.db.merge()
    raise AssertionError(NOT_KILLED)


def _load(diary: Diary) -> None:
    """Leave a load that a merge adopts; its column `n` is not the one that the table has by now."""
    merge.COMPACT_BELOW_ROWS = 0
    _reopen_for_loads(diary)
    begin(diary)
    db = diary.db
    table = db.create_table(
        "loaded", {"id": "int64", "v": "string", "n": "int64"}, primary_key="id"
    )
    diary.commit(lambda: table.upsert([{"id": n, "v": f"v{n % 9}", "n": n} for n in range(40)]))
    db.checkpoint()
    db.merge()
    diary.commit(
        lambda: _attach(db, range(30, 60), "first"),
        lambda: table.upsert({"id": 31, "v": "after", "n": 1}),
        lambda: table.delete([{"id": 32}]),
        lambda: table.drop_column("n"),
        lambda: table.add_column("n", "int64"),
        lambda: table.upsert({"id": 33, "v": "after", "n": 2}),
        lambda: db.tag("loaded"),
    )
    db.checkpoint()


def _reopen_for_loads(diary: Diary) -> None:
    """Have the checkpoints from now on name loads of few rows, too."""
    root = diary.db.path
    diary.db.close()
    options = Options(background=False, segment_bytes=16 << 10, retention_s=604_800_000.0)
    diary.db = LocalStore.open(root, options, env=Env(load_rows_min=2))


def _attach(db: st.Store, ids: range, v: str) -> None:
    stage = db.stage("loaded")
    rows = pa.table({"id": ids, "v": [f"{v}{n}" for n in ids], "n": pa.array(ids, pa.int64())})
    piece = stage.run(rows)
    with db.transaction() as tx:
        tx.attach(stage, [piece])


def thinned(diary: Diary) -> None:
    """Leave records that serve the seqs of thinned ones: after a load, with a tag, and rows."""
    _fold(diary)
    table = diary.db["folded"]
    for number in range(6):
        diary.commit(
            lambda number=number: table.upsert(
                [{"id": n, "v": f"turn {number}"} for n in (number, 70)]
            ),
            lambda number=number: table.delete({"id": 40 + number}),
            lambda number=number: take_turn(diary.db, 100 + number),
        )
        if number == 3:
            diary.commit(lambda: diary.db.tag("among"))
        diary.db.checkpoint()
        diary.db.merge()
    diary.db._owner().vacuum._bounds = Bounds(recent_s=-1)
    diary.db.vacuum(dry_run=False, grace_s=-1e9)
    diary.commit(lambda: table.upsert({"id": 7, "v": "folded later"}))
    diary.db.checkpoint()
    diary.db.merge()
    diary.commit(lambda: table.upsert({"id": 8, "v": "in the log"}))
    diary.finish()


def key_runs(diary: Diary) -> None:
    _runs(diary)
    diary.db.merge()
    diary.commit(
        lambda: diary.db["texts"].upsert({"id": "k7", "v": 70}),
        lambda: diary.db["pairs"].delete([{"a": "x", "b": 9}]),
    )
    diary.finish()


def mid_key_runs(diary: Diary) -> None:
    _runs(diary)
    diary.finish()
    failpoints.arm("keys.after_write=kill")
    diary.db.merge()
    raise AssertionError(NOT_KILLED)


def _runs(diary: Diary) -> None:
    """Leave bases of three kinds of keys with runs that were merged, and rows to fold."""
    merge.COMPACT_BELOW_ROWS = 0
    begin(diary)
    db = diary.db
    db.create_table("numbers", {"id": "int64", "v": "int64"}, primary_key="id")
    db.create_table("texts", {"id": "string", "v": "int64"}, primary_key="id")
    db.create_table("pairs", {"a": "string", "b": "int64", "v": "int64"}, primary_key=["a", "b"])
    for turn in range(6):
        some = range(10 * turn, 10 * turn + 20)
        diary.commit(
            lambda some=some, v=turn: db["numbers"].upsert([{"id": n, "v": v} for n in some]),
            lambda some=some, v=turn: db["texts"].upsert([{"id": f"k{n}", "v": v} for n in some]),
            lambda some=some, v=turn: db["pairs"].upsert(
                [{"a": "x", "b": n, "v": v} for n in some]
            ),
        )
        db.checkpoint()
        if turn < 5:
            db.merge()


def load_runs(diary: Diary) -> None:
    _loaded(diary)
    db = diary.db
    db.merge()
    diary.commit(*(lambda name=name: _load_keys(db, name, range(70, 80), 2) for name in _KEYS))
    db.checkpoint()
    diary.commit(
        *(lambda name=name: _load_keys(db, name, range(75, 85), 3) for name in _KEYS),
        lambda: db["texts"].delete([{"id": "k71"}, {"id": "k84"}]),
        lambda: db["pairs"].upsert({"a": "x", "b": 80, "v": 4}),
    )
    diary.finish()


def mid_load_runs(diary: Diary) -> None:
    _loaded(diary)
    diary.finish()
    failpoints.arm("keys.after_write=kill")
    _load_keys(diary.db, "texts", range(20, 40), 9)
    raise AssertionError(NOT_KILLED)


_KEYS = {
    "numbers": lambda n: {"id": n},
    "texts": lambda n: {"id": f"k{n}"},
    "pairs": lambda n: {"a": "x", "b": n},
}


def _loaded(diary: Diary) -> None:
    """Leave tables of three kinds of keys, each with rows, and over them a load with key runs."""
    bulk.COVERED_ROWS_MIN = 1
    _reopen_for_loads(diary)
    begin(diary)
    db = diary.db
    db.create_table("numbers", {"id": "int64", "v": "int64"}, primary_key="id")
    db.create_table("texts", {"id": "string", "v": "int64"}, primary_key="id")
    db.create_table("pairs", {"a": "string", "b": "int64", "v": "int64"}, primary_key=["a", "b"])
    for name, key in _KEYS.items():
        diary.commit(
            lambda name=name, key=key: db[name].upsert([key(n) | {"v": 0} for n in range(40)]),
            lambda name=name: _load_keys(db, name, range(30, 60), 1),
            lambda name=name, key=key: db[name].upsert(key(31) | {"v": 2}),
            lambda name=name, key=key: db[name].delete([key(32), key(50)]),
        )
    db.checkpoint()


def _load_keys(db: st.Store, name: str, numbers: range, v: int) -> None:
    stage = db.stage(name)
    rows = pa.Table.from_pylist([_KEYS[name](n) | {"v": v} for n in numbers])
    piece = stage.run(rows)
    with db.transaction() as tx:
        tx.attach(stage, [piece])


_LIVES = (
    folds, mid_fold, mid_fold_compaction, loads, mid_adoption, thinned, key_runs, mid_key_runs,
    load_runs, mid_load_runs,
)  # fmt: skip
STATES = {life.__name__.replace("_", "-"): life for life in _LIVES}
