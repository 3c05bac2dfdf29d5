"""A process that changes vectors and texts until it is killed: `python -m ... ROOT POINT`.

It prints the number of each change that was acknowledged. All rows of change `n` are at `n` on the
first axis, and have the word `change<n>`.
"""

from __future__ import annotations

import sys

import pyarrow as pa

import siltstone as st
from siltstone import failpoints

SIZE, ROWS = 4, 300
PLACE = pa.list_(pa.float32(), SIZE)
SCHEMA = pa.schema(
    [pa.field("id", pa.int64(), False), pa.field("place", PLACE), pa.field("words", pa.string())]
)


def vector(key: int, change: int) -> list[float]:
    return [float(change), key / ROWS, float(key % 7), float(key % 3)]


def changed(db: st.Store, change: int, keys: range) -> None:
    db["t"].upsert(
        [{"id": k, "place": vector(k, change), "words": f"change{change} stone"} for k in keys]
    )
    print(change, flush=True)  # noqa: T201 - the parent reads it


def cared_for(db: st.Store) -> None:
    db.checkpoint()
    db.merge()
    db.optimize(target_rows=200)
    db.vacuum(dry_run=False, grace_s=0)


def main(root: str, point: str) -> None:
    with st.connect(root, background=False, retention_s=0) as db:
        db.create_table("t", SCHEMA, "id")
        changed(db, 0, range(ROWS))
        db.checkpoint()
        db.merge()
        db["t"].create_index("place", kind="vector", encoding="flat")
        db["t"].create_index("words", kind="fts")
        cared_for(db)
        failpoints.arm(f"{point}=kill")
        for change in range(1, 20):
            changed(db, change, range(change * 10, change * 10 + 100))
            cared_for(db)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
