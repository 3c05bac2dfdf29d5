"""A mirror at a URL is read as a store is: by any process that has the URL and the credentials."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import siltstone as st
from siltstone.errors import ReadOnlyError, RequestError
from tests.maintenance.mirrors import content, lived
from tests.reach.conftest import requests_of

Mirror = Callable[[Path], str]


def test_a_store_is_read_at_its_url(mirror: Mirror, tmp_path: Path):
    with lived(tmp_path / "s") as db:
        url = mirror(db.path)
        expected, seq = content(db), db.seq
    with st.connect(url, read_only=True) as far:
        assert (far.seq, far.tables()) == (seq, ["keyed", "plain"])
        assert content(far) == expected
        assert far["keyed"].get(8) == {"id": 8, "v": "again"}
        assert far["keyed"].get(7) is None
        assert repr(far) == f"<Store {url}, read-only, 2 tables>"


def test_an_open_costs_the_same_requests_whatever_the_number_of_tables(
    mirror: Mirror, tmp_path: Path
):
    with st.connect(tmp_path / "s", background=False) as db:
        for number in range(12):
            db.create_table(f"t{number}", {"id": "int64"}, primary_key="id").upsert({"id": number})
        db.checkpoint()
        db.merge()
        url = mirror(db.path)
    with st.connect(url, read_only=True) as far:
        assert sum(requests_of(far).values()) <= 5
        assert far["t7"].scan().read_all().to_pylist() == [{"id": 7}]
        assert sum(requests_of(far).values()) <= 5 + 6
        before = sum(requests_of(far).values())
        assert far["t7"].get(7) == {"id": 7}
        assert sum(requests_of(far).values()) - before <= 3


def test_a_url_is_only_read(mirror: Mirror, tmp_path: Path):
    with lived(tmp_path / "s") as db:
        url = mirror(db.path)
    for join in (False, True):
        with pytest.raises(RequestError, match=r"is only read, connect\(url, read_only=True\)"):
            st.connect(url, join=join)
    with st.connect(url, read_only=True) as far, pytest.raises(ReadOnlyError):
        far["keyed"].delete(1)
