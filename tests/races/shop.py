"""Shop: the small store that races are run on, and what its tables hold after each operation.

wide    keyed: a base of three parts, five small parts of history, two loads that a merge adopts,
        rows in the log; `ddl` renames a column and adds one, `attach` rows over others
short   keyed: the same in small; `ddl` truncates it
gone    keyed; `ddl` drops it
plain   no key: three versions; `ddl` adds a column, `attach` rows
fresh   made by `ddl`
"""

from __future__ import annotations

import copy
from pathlib import Path

import pyarrow as pa

import siltstone as st
from siltstone.local.store import LocalStore
from siltstone.open.environment import Env
from siltstone.options import Options

OPTIONS = {"background": False, "segment_bytes": 65_536, "retention": "0s"}
TAG = "kept"
TARGET_ROWS = 10_000
WIDE = {"id": "int64", "name": "string", "n": "int64", "note": "string"}

Rows = list[dict[str, object]]
Answers = dict[str, Rows]


def make(root: Path) -> None:
    """Make the store; every seq has its own rows, so no two look alike."""
    options = Options(background=False, segment_bytes=65_536, retention_s=0)
    with LocalStore.open(root, options, env=Env(load_rows_min=2)) as db:
        db.create_table("wide", WIDE, "id")
        db.create_table("short", {"id": "int64", "n": "int64"}, "id")
        db.create_table("gone", {"id": "int64"}, "id")
        db.create_table("plain", {"n": "int64"})
        _load(db, "wide", 3)
        _load(db, "short", 2)
        for turn in range(5):
            _write(db, turn)
            if turn == 1:
                db.tag(TAG)
            if turn in {1, 3}:
                _load_over(db, turn)
            db.checkpoint()
        _write(db, 5)  # in the log alone


def _load(db: st.Store, name: str, parts: int) -> None:
    """Fill a new table by a bulk commit: a base of so many parts."""
    stage = db.stage(name)
    pieces = []
    for part in range(parts):
        ids = pa.array(range(part * 100, part * 100 + 60))
        texts = pa.array([f"loaded {n}" for n in ids.to_pylist()])
        rows = {"id": ids, "n": ids, "name": texts, "note": texts}
        chosen = {column: rows[column] for column in stage.arrow.names}
        pieces.append(stage.run([pa.record_batch(chosen)]))
    with db.transaction() as tx:
        tx.attach(stage, pieces)


def _load_over(db: st.Store, turn: int) -> None:
    """Commit a load over rows of base and others, in two files; later rows replace some of it."""
    stage = db.stage("wide", missing="null")
    first = 50 + 100 * turn
    halves = [range(first, first + 40), range(first + 40, first + 90)]
    texts = [[f"load {turn}"] * len(ids) for ids in halves]
    pieces = [
        stage.run([pa.record_batch({"id": list(ids), "name": some, "note": some})])
        for ids, some in zip(halves, texts, strict=True)
    ]
    with db.transaction() as tx:
        tx.attach(stage, pieces)
    db["wide"].delete([first + 1, first + 41])
    db["wide"].update(first + 2, name="updated since")


def _write(db: st.Store, turn: int) -> None:
    with db.transaction() as tx:
        ids = range(turn * 7, turn * 7 + 20)
        tx["wide"].upsert([{"id": n, "name": f"turn {turn}", "n": turn, "note": "x"} for n in ids])
        tx["wide"].delete([100 + turn])
        tx["short"].upsert([{"id": n, "n": turn} for n in range(turn * 3, turn * 3 + 5)])
        tx["gone"].upsert({"id": turn})
    db["plain"].append([{"n": turn}])


def backups_of(root: Path | str) -> Path:
    """Return where the backups of a shop are."""
    return Path(f"{root}-backups")


def restored_of(root: Path | str) -> Path:
    """Return where its backup is restored to."""
    return Path(f"{root}-restored")


def answers(source: st.Store | st.Snapshot) -> Answers:
    """Return all rows of all tables, in an order of their own."""
    found: Answers = {}
    for name in sorted(source.tables()):
        rows = source[name].to_arrow().to_pylist()
        found[name] = sorted(rows, key=lambda row: str(row.get("id", row.get("n"))))
    return found


# what operations do, and what they make of the answers

STAMP = 1_000
ATTACHED = range(50, 62)


def attach(db: st.Store, stamp: int) -> st.Receipt:
    """Commit staged rows into a keyed and a plain table at once."""
    keyed, plain = db.stage("wide", missing="null"), db.stage("plain")
    halves = [
        pa.RecordBatch.from_pylist([{"id": n, "name": "attached", "n": STAMP + stamp} for n in ids])
        for ids in (ATTACHED[:6], ATTACHED[6:])
    ]
    pieces = [keyed.run([half]) for half in halves]
    more = [plain.run([pa.record_batch({"n": [STAMP + stamp]})])]
    with db.transaction() as tx:
        tx.attach(keyed, pieces)
        tx.attach(plain, more)
    return tx.receipt


def after_attach(before: Answers, stamp: int) -> Answers:
    """Return what `attach` makes of these answers; columns that it does not know are null."""
    after = copy.deepcopy(before)
    columns = dict.fromkeys(before["wide"][0])
    rows = [columns | {"id": n, "name": "attached", "n": STAMP + stamp} for n in ATTACHED]
    after["wide"] = _by_id([*after["wide"], *rows])
    after["plain"] = _by_n(
        [*after["plain"], dict.fromkeys(before["plain"][0]) | {"n": STAMP + stamp}]
    )
    return after


def ddl(db: st.Store, stamp: int) -> st.Receipt:
    """Change definitions in every way, in one transaction."""
    with db.transaction() as tx:
        tx["wide"].rename_column("note", "remark")
        tx["wide"].add_column("extra", "int64")
        tx["short"].truncate()
        tx["plain"].add_column("more", "int64")
        tx.drop_table("gone")
        tx.create_table("fresh", {"id": "int64"}, "id").upsert({"id": stamp})
    return tx.receipt


def after_ddl(before: Answers, stamp: int) -> Answers:
    """Return what `ddl` makes of these answers."""
    wide = [
        {("remark" if k == "note" else k): v for k, v in row.items()} | {"extra": None}
        for row in before["wide"]
    ]
    return {
        "fresh": [{"id": stamp}],
        "plain": [row | {"more": None} for row in before["plain"]],
        "short": [],
        "wide": wide,
    }


def _by_id(rows: Rows) -> Rows:
    newest = {row["id"]: row for row in rows}
    return sorted(newest.values(), key=lambda row: str(row["id"]))


def _by_n(rows: Rows) -> Rows:
    return sorted(rows, key=lambda row: str(row["n"]))
