"""Damage to one table keeps no other from a backup: it is left out on request, and named."""

from __future__ import annotations

from pathlib import Path

import pytest

import siltstone as st
from siltstone.admin import backups
from siltstone.errors import CorruptionError, RequestError

SCHEMA = {"id": "int64", "v": "string"}
NAMES = ("bad", "good")


def rows(table) -> list[tuple]:  # pyright: ignore[reportMissingTypeArgument, reportMissingParameterType, reportUnknownParameterType]
    return sorted(tuple(row.values()) for row in table.to_arrow().to_pylist())  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType, reportUnknownArgumentType]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Two tables with bases, histories and rows that only the log has."""
    with st.connect(tmp_path / "shop", background=False) as db:
        for name in NAMES:
            db.create_table(name, SCHEMA, primary_key="id")
        for turn in range(2):
            for name in NAMES:
                db[name].upsert([{"id": n, "v": f"{name} {turn}"} for n in range(turn, 10)])
            db.checkpoint()
            if not turn:
                db.merge()
        for name in NAMES:
            db[name].upsert({"id": 99, "v": "in the log"})
    return tmp_path / "shop"


def harm(root: Path, pattern: str, how: str) -> None:
    """Harm the files of a pattern under all their names."""
    inodes = {path.stat().st_ino for path in root.glob(pattern)}
    assert inodes
    for path in [path for path in root.rglob("*") if path.stat().st_ino in inodes]:
        if how == "gone":
            path.unlink()
        elif path.stat().st_ino in inodes:
            whole = path.read_bytes()
            inodes.discard(path.stat().st_ino)  # the other names are of the same bytes
            middle = len(whole) // 2
            flipped = whole[:middle] + bytes([whole[middle] ^ 1]) + whole[middle + 1 :]
            path.write_bytes(flipped if how == "flipped" else whole[:-1])


@pytest.mark.parametrize("how", ["flipped", "cut", "gone"])
@pytest.mark.parametrize(
    "kind", ["base/data/*.lance", ".history/data/*.lance", "base/_siltstone/*/*.manifest"]
)
def test_a_backup_without_damaged_files_has_all_of_the_other_tables(
    root: Path, tmp_path: Path, kind: str, how: str
) -> None:
    harm(root, f"tables/bad-*/{kind}", how)
    with st.connect(root, background=False) as db:
        expected = rows(db["good"])
        with pytest.raises(CorruptionError, match="bad-"):
            db.backup(tmp_path / "b")
        made = db.backup(tmp_path / "b", incremental=True, skip_damaged=True)
        assert made.damaged
        assert all(path.startswith(("tables/bad-", "inventory/")) for path in made.damaged)
        assert f"DAMAGED, without {made.damaged[0]}" in str(made)
    (listed,) = backups(tmp_path / "b")
    assert listed.damaged == made.damaged
    restored = st.restore(tmp_path / "b", tmp_path / "r")
    assert restored.damaged == made.damaged
    with st.connect(tmp_path / "r", background=False) as db:
        assert rows(db["good"]) == expected
        assert not db.verify(deep=True).is_sound
        db["good"].upsert({"id": 1000, "v": "goes on"})
        db.checkpoint()
        db["bad"].truncate()
        db["bad"].upsert({"id": 1, "v": "anew"})
        db.checkpoint()
        assert rows(db["bad"]) == [(1, "anew")]


def test_a_backup_of_a_sound_store_leaves_nothing_out(root: Path, tmp_path: Path) -> None:
    with st.connect(root, background=False) as db:
        made = db.backup(tmp_path / "b", skip_damaged=True)
        assert made.damaged == ()
        with pytest.raises(RequestError, match="skip_damaged must be True or False"):
            db.backup(tmp_path / "c", skip_damaged="yes")  # pyright: ignore[reportArgumentType]


def test_what_an_older_backup_has_whole_is_not_left_out(root: Path, tmp_path: Path) -> None:
    with st.connect(root, background=False) as db:
        db.backup(tmp_path / "b")
        expected = {name: rows(db[name]) for name in NAMES}
    harm(root, "tables/bad-*/base/data/*.lance", "cut")
    with st.connect(root, background=False) as db:
        made = db.backup(tmp_path / "b", incremental=True, skip_damaged=True)
    assert made.damaged == ()
    st.restore(tmp_path / "b", tmp_path / "r")
    with st.connect(tmp_path / "r", background=False) as db:
        assert {name: rows(db[name]) for name in NAMES} == expected


def test_a_restored_store_is_sound_without_a_word_before_anybody_opened_it(
    root: Path, tmp_path: Path
) -> None:
    with st.connect(root, background=False) as db:
        db.backup(tmp_path / "b")
    st.restore(tmp_path / "b", tmp_path / "r")
    with st.connect(tmp_path / "r", read_only=True) as db:
        assert db.verify(deep=True).findings == ()


@pytest.mark.parametrize("kind", ["commits/data/*.lance", "manifest/*.json"])
def test_what_all_tables_need_is_never_left_out(root: Path, tmp_path: Path, kind: str) -> None:
    with st.connect(root, background=False) as db:
        db.backup(tmp_path / "b")
        harm(root, kind, "flipped")
        with pytest.raises(CorruptionError):
            db.backup(tmp_path / "c", skip_damaged=True)
