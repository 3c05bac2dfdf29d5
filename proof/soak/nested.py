"""Nested: a table of structs in structs, written in slices of Arrow tables, that tells what it is.

The document of a row follows from its id and n. Lance counts the offset of a nested struct twice,
so what is cut out of a larger table must be copied on its way, at every door.
"""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa

import siltstone as st

IDS = 500
ROWS_MAX = 60
DOCUMENT = pa.struct(
    [
        pa.field("inner", pa.struct([("b", pa.int64()), ("s", pa.string())])),
        pa.field("parts", pa.list_(pa.struct([("k", pa.string()), ("v", pa.float64())]))),
    ]
)
SCHEMA = pa.schema([("id", pa.int64()), ("n", pa.int64()), ("doc", DOCUMENT)])


def create(db: st.Store) -> None:
    """Make the table."""
    db.create_table("nested", SCHEMA, "id")


def document(key: int, n: int) -> dict[str, Any] | None:
    """Return the document of a row; null now and then, at each level."""
    if (key + n) % 11 == 0:
        return None
    inner = None if (key + n) % 7 == 0 else {"b": key * n, "s": f"{key}-{n}" * (n % 4)}
    parts = [{"k": str(each), "v": each / 2} for each in range((key + n) % 4)]
    return {"inner": inner, "parts": parts}


def write(db: st.Store, n: int, chance: random.Random) -> None:
    """Upsert the middle of a table, or delete some rows."""
    keys = chance.sample(range(IDS), chance.randrange(4, ROWS_MAX))
    if n % 9 == 8:
        db["nested"].delete(keys)
        return
    rows = [{"id": key, "n": n, "doc": document(key, n)} for key in keys]
    whole = pa.Table.from_pylist(rows, SCHEMA)
    start = chance.randrange(len(keys) - 2)
    db["nested"].upsert(whole.slice(start, len(keys) - start - 1))


def check(snapshot: Any) -> int:
    """Check each row that a snapshot shows; return how many they are."""
    rows = snapshot["nested"].to_arrow().to_pylist()
    for row in rows:
        wanted = document(row["id"], row["n"])
        assert row["doc"] == wanted, f"seq {snapshot.seq}: {row}, not {wanted}"
    assert len({row["id"] for row in rows}) == len(rows), f"seq {snapshot.seq}: a key twice"
    return len(rows)
