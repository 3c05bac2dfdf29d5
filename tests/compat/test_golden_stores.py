"""Stores of the present format: today's code gives the answers that they gave then."""

# pyright: reportArgumentType=false
# pyright: reportMissingParameterType=false

from __future__ import annotations

from pathlib import Path

import pytest

import siltstone as st
from siltstone.formats.log import frame, group
from tests.compat.answers import answers, rows_of
from tests.compat.diary import OPTIONS
from tests.compat.golden import GOLDEN, expected, tree, unpacked
from tests.compat.lives import STATES
from tests.compat.make_stores import STORES, digests

golden = pytest.mark.parametrize("state", GOLDEN)


def test_the_bytes_are_those_that_were_committed():
    assert digests(STORES) == (STORES / "SHA256").read_text()


def test_there_is_a_store_of_each_state_in_the_present_format_alone():
    assert set(GOLDEN) == set(STATES)
    assert [*STORES.parent.iterdir()] == [STORES]


@golden
def test_a_reader_gives_the_same_answers_and_changes_no_byte(state, tmp_path):
    root = unpacked(state, tmp_path)
    before = tree(root)
    with st.connect(root, read_only=True) as store:
        assert answers(store) == expected(state)
        assert store.verify().is_sound
    assert tree(root) == before


@golden
def test_an_owner_gives_the_same_answers_and_goes_on(state, tmp_path):
    root, then = unpacked(state, tmp_path), expected(state)
    with st.connect(root, **OPTIONS) as store:
        assert answers(store) == then
        store.checkpoint()
        store.merge()
        assert answers(store) == then
        store.optimize()  # of a plain table this is a commit that changes no row
        assert rows_of(store) == then["at"][str(then["seq"])]
        late = store.seq
        assert store["small"].upsert({"id": 7777, "v": "of today"}).seq == late + 1
        store.checkpoint()
        assert store.verify(deep=True).is_sound
    with st.connect(root, read_only=True) as store, store.snapshot(seq=late) as before:
        assert rows_of(before) == then["at"][str(then["seq"])]
        assert store["small"].get(7777) == {"id": 7777, "v": "of today"}


def test_no_store_names_who_made_it_or_where(tmp_path):
    for state in GOLDEN:
        root = unpacked(state, tmp_path)
        for path in root.rglob("*"):
            assert not path.is_file() or b"/tmp" not in path.read_bytes(), path


def test_the_logs_have_every_kind_of_entry(tmp_path):
    found = set()
    for state in GOLDEN:
        root = unpacked(state, tmp_path)
        found |= {type(entry) for path in (root / "wal").glob("*.wal") for entry in entries(path)}
    assert found == set(group.Entry.__args__)


def entries(path: Path) -> list[group.Entry]:
    """Return the entries of a segment."""
    data = path.read_bytes()
    header = frame.decode_header(data, path)
    if header is None:
        return []
    source = frame.SegmentSource(path, header.store_id, header.epoch, header.segment)
    heads = [group.decode(f.payload)[0] for f in frame.find_frames(data, 4096, source)]
    return [entry for head in heads for member in head.members for entry in member.entries]
