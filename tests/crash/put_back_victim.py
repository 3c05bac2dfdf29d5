"""A process that is killed while it puts a table back: `python -m ... ROOT POINT SIZE`.

It prints the seq before the mistake. POINT says how it is killed: "commit.after_frame=kill".
"""

from __future__ import annotations

import sys

import siltstone as st
from siltstone import failpoints
from siltstone.local.past import put_back

ROWS = 400


def main(root: str, point: str, size: str) -> None:
    if size == "staged":
        put_back.STAGED_BYTES_MIN = 1
    with st.connect(root, background=False) as db:
        table = db.create_table("t", {"id": "int64", "v": "string"}, primary_key="id")
        table.upsert([{"id": n, "v": "before"} for n in range(ROWS)])
        db.checkpoint()
        db.merge()
        print(db.seq, flush=True)  # noqa: T201 - the parent reads it
        with db.transaction() as tx:
            tx["t"].delete_where("id < 200")
            tx["t"].upsert([{"id": n, "v": "mistake"} for n in range(300, ROWS + 50)])
        failpoints.arm(point)
        db.put_back("t", to=db.seq - 1)


if __name__ == "__main__":
    main(*sys.argv[1:])
