"""Texts that a part holds on few bytes are read, though Arrow cannot count a batch of them."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import siltstone as st

ROWS, LETTERS = 9_000, 256 << 10
"""In all 2.2 GiB, which Lance stores on 5 MB; 32-bit offsets end at 2 GiB."""


def texts(ids: range) -> pa.Table:
    return pa.table({"id": ids, "s": [chr(97 + n % 26) * LETTERS for n in ids]})


@pytest.fixture(scope="module")
def db(tmp_path_factory: pytest.TempPathFactory) -> Iterator[st.Store]:
    with st.connect(tmp_path_factory.mktemp("texts") / "s", background=False) as store:
        table = store.create_table("t", {"id": "int64", "s": "string"}, "id")
        for first in range(0, ROWS, 1_000):
            table.upsert(texts(range(first, first + 1_000)))
        store.checkpoint()
        store.merge()
        yield store


def test_a_scan_gives_all_of_them(db: st.Store) -> None:
    rows, letters = 0, 0
    for batch in db["t"].scan():
        rows += batch.num_rows
        letters += batch.column("s").nbytes
    assert rows == ROWS
    assert letters >= ROWS * LETTERS


def test_a_statement_sums_their_lengths(db: st.Store) -> None:
    found = db.sql("SELECT count(*), sum(length(s)), min(s[1]) FROM t WHERE s >= 'b'").fetchall()
    some = sum(n % 26 > 0 for n in range(ROWS))
    assert found == [(some, some * LETTERS, "b")]


def test_many_are_got_by_their_keys(db: st.Store) -> None:
    found = db["t"].get_many([*range(ROWS)])
    letters = pc.utf8_slice_codeunits(found["s"], 0, 1).to_pylist()
    assert letters == [chr(97 + n % 26) for n in range(ROWS)]
    assert pc.sum(pc.binary_length(found["s"])).as_py() == ROWS * LETTERS


def test_a_merge_and_an_optimize_keep_them(db: st.Store) -> None:
    db["t"].delete_where("id < 10")
    db["t"].update(10, s="new")
    db.checkpoint()
    db.merge()
    db.optimize()
    assert db["t"].get(10) == {"id": 10, "s": "new"}
    found = db.sql("SELECT count(*), sum(length(s)) FROM t").fetchall()
    assert found == [(ROWS - 10, (ROWS - 11) * LETTERS + 3)]
