"""Writer: owns the store, and changes rows until its standard input ends.

    python examples/search/writer.py STORE [TEXTS_MAX]

Its table `texts` has each text of texts.parquet once, whatever the transactions do: they swap the
texts and vectors of rows, and move some to new rows (a delete and an insert). So every snapshot has
each text once, too. Texts whose id is a multiple of 16 are left out; searchers ask with them.

Merges run meanwhile. They keep two indexes up to date, one of vectors and one of words.
"""

import sys
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from brute_force import INDEX

import siltstone as st

TEXTS = Path(__file__).parent / "texts.parquet"
QUESTION_EVERY = 16
COLUMNS = {"id": "int64", "text": "string", "v": "vector(float32, 384)"}
PROGRESS = {"name": "string", "rows": "int64", "merges": "int64"}
MERGE_ROWS = 400  # written between two merges: there are always rows that no index has


def read_texts(texts_max: int | None = None) -> tuple[pa.Table, pa.Table]:
    """Return the rows of the table, and the questions."""
    table = pq.read_table(TEXTS)
    ids = table["id"].to_numpy()
    is_question = ids % QUESTION_EVERY == 0
    # Spread over all kinds of texts.
    step = max(len(table) // (texts_max or len(table)), 1)
    return table.filter(~is_question & (ids % step == step - 1)), table.filter(is_question)


def fill(db: st.Store, rows: pa.Table) -> None:
    """Make both tables, merge the rows, and build the indexes."""
    texts = db.create_table("texts", COLUMNS, primary_key="id")
    db.create_table("progress", PROGRESS, primary_key="name")
    with db.transaction() as tx:
        tx["texts"].insert(rows.select(["id", "text", "v"]).cast(texts.schema))
        tx["progress"].insert({"name": "writer", "rows": 0, "merges": 0})
    db.checkpoint()
    db.merge()
    # So few vectors would be kept as they are, which finds all; `rq` rounds, as for many vectors.
    texts.create_index("v", kind="vector", metric="cosine", encoding="rq")
    texts.create_index("text", kind="fts", **INDEX)


class Changes:
    """Random transactions. `places` has the row of `texts.parquet` that each key has now."""

    def __init__(self, rows: pa.Table) -> None:
        self.random = np.random.default_rng(21)
        self.texts, self.vectors = rows["text"].to_pylist(), rows["v"].to_pylist()
        self.places = dict(zip(rows["id"].to_pylist(), range(len(rows)), strict=True))
        self.next_id = max(self.places) + 1

    def _row(self, key: int, place: int) -> dict[str, Any]:
        self.places[key] = place
        return {"id": key, "text": self.texts[place], "v": self.vectors[place]}

    def swap(self, texts: Any) -> int:
        """Give each of some rows the text and the vector of the next; return how many."""
        keys = self.random.choice([*self.places], self.random.integers(2, 8), replace=False)
        keys = keys.tolist()
        places = [self.places[key] for key in (*keys[1:], keys[0])]
        texts.upsert([self._row(key, place) for key, place in zip(keys, places, strict=True)])
        return len(keys)

    def move(self, texts: Any) -> int:
        """Delete a row and insert its text and vector under a new key."""
        old = int(self.random.choice([*self.places]))
        texts.delete([old])
        texts.insert(self._row(self.next_id, self.places.pop(old)))
        self.next_id += 1
        return 2


def write(db: st.Store, changes: Changes, stopped: threading.Event) -> None:
    """Commit one transaction after the other, and merge in a thread."""
    written = merges = merged_at = 0
    merging: Future[object] | None = None
    with ThreadPoolExecutor(1) as pool:
        while not stopped.is_set():
            with db.transaction() as tx:
                written += changes.swap(tx["texts"])
                written += changes.move(tx["texts"])
                # In the same commit, so a snapshot says how many rows were written before it.
                tx["progress"].upsert({"name": "writer", "rows": written, "merges": merges})
            if merging is not None and merging.done():
                merging.result()
                merging, merges = None, merges + 1
            if merging is None and written - merged_at >= MERGE_ROWS:
                merging, merged_at = pool.submit(merge, db), written


def merge(db: st.Store) -> None:
    """Merge what was committed so far; the indexes get what they lack."""
    db.checkpoint()
    db.merge()


def main(store: str, texts_max: str = "0") -> None:
    stopped = threading.Event()

    def wait_for_the_end() -> None:
        sys.stdin.read()
        stopped.set()

    rows, _ = read_texts(int(texts_max))
    with st.connect(store) as db:
        fill(db, rows)
        db.serve_local()  # for searchers that join; those that only read need nothing
        print("ready", flush=True)
        threading.Thread(target=wait_for_the_end, daemon=True).start()
        write(db, Changes(rows), stopped)


if __name__ == "__main__":
    main(*sys.argv[1:])
