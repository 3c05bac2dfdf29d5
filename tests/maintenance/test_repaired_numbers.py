"""A number under which other clients saw a base is never that of other rows.

Also after a repair that goes back to an older record or begins a base again, and after a restore.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path

import lance
import pytest

import siltstone as st
from siltstone import admin
from siltstone.storage.tables import promotion
from tests.maintenance.test_repair import damage

OPTIONS = {"background": False}
SCHEMA = {"id": "int64", "v": "string"}
Seen = dict[int, list[tuple[int, str]]]


def merged(db: st.Store, value: str, ids: range = range(20)) -> None:
    """Change rows; at least one is hidden by the merge, and no part is rewritten."""
    db["t"].upsert([{"id": n, "v": value} for n in ids])
    db.checkpoint()
    db.merge()


def base_of(root: Path) -> Path:
    (base,) = root.glob("tables/t-*/base")
    return base


def seen(root: Path) -> Seen:
    """Return what other clients see: the rows by the number of each version.

    Until a merge makes a base anew that began again, they may get an error; not other rows.
    """
    found: Seen = {}
    for version in lance.dataset(str(base_of(root))).versions():
        number = version["version"]
        with contextlib.suppress(ValueError, OSError):
            rows = lance.dataset(str(base_of(root)), version=number).to_table().to_pylist()
            found[number] = sorted((row["id"], row["v"]) for row in rows)
    return found


def newest(root: Path) -> int:
    return lance.dataset(str(base_of(root))).version


@pytest.fixture
def root(tmp_path: Path) -> Path:
    with st.connect(tmp_path / "s", **OPTIONS) as db:
        db.create_table("t", SCHEMA, "id")
        merged(db, "a", range(400))
    return tmp_path / "s"


def damage_records_since(root: Path, before: set[Path]) -> None:
    for path in sorted((root / "manifest").glob("*.json")):
        if path not in before:
            damage(path)


def remove_records_since(root: Path, before: set[Path]) -> None:
    for path in sorted((root / "manifest").glob("*.json")):
        if path not in before:
            path.unlink()


def require_never_again(root: Path, before: Seen) -> None:
    """Repair; then what others see has numbers that nobody knows, or the rows of before."""
    assert admin.repair(root, dry_run=False, deep=True).is_whole
    states = [seen(root)]
    with st.connect(root, **OPTIONS) as db:
        assert db.verify(deep=True).is_sound
        for value in "xyz":
            merged(db, value)
            states.append(seen(root))
            assert newest(root) > max(before)
            assert {row[1] for row in states[-1][newest(root)][:20]} == {value}
    known = dict(before)
    for state in states:
        for number, rows in state.items():
            assert known.setdefault(number, rows) == rows, number


@pytest.mark.parametrize("lose", [damage_records_since, remove_records_since])
def test_a_repair_that_goes_back_to_an_older_record_goes_on_above_the_numbers_of_the_lost(
    root: Path, lose: Callable[[Path, set[Path]], None]
) -> None:
    with st.connect(root, **OPTIONS) as db:
        db["t"].upsert([{"id": n, "v": "b"} for n in range(20)])
        db.checkpoint()
        records = set((root / "manifest").glob("*.json"))
        db.merge()
        before = seen(root)
    st.connect(root, **OPTIONS).close()  # the log is of an epoch that no older record knows
    lose(root, records)
    require_never_again(root, before)


def test_a_base_that_begins_again_goes_on_above_its_numbers(root: Path) -> None:
    with st.connect(root, **OPTIONS) as db:
        merged(db, "b")
        before = seen(root)
    for path in base_of(root).glob("_siltstone/_kept/data/*"):
        damage(path)
    require_never_again(root, before)


def test_a_base_of_which_no_manifest_is_whole_begins_again_above_its_numbers(root: Path) -> None:
    with st.connect(root, **OPTIONS) as db:
        merged(db, "b")
        before = seen(root)
    for path in base_of(root).glob("_siltstone/*/*.manifest"):
        damage(path)
    require_never_again(root, before)


def test_a_restored_store_goes_on_far_above_the_numbers_of_its_backup(
    root: Path, tmp_path: Path
) -> None:
    with st.connect(root, **OPTIONS) as db:
        merged(db, "b")
        db.backup(tmp_path / "backup")
        backed_up = seen(root)
        for value in "cde":
            merged(db, value)
        before = seen(root)
    admin.restore(tmp_path / "backup", tmp_path / "r")
    with st.connect(tmp_path / "r", **OPTIONS) as db:
        assert db.verify(deep=True).findings == ()
        merged(db, "x")
        assert newest(tmp_path / "r") > max(before) + 1000
    after = seen(tmp_path / "r")
    assert all(after[number] == backed_up[number] for number in after if number in backed_up)
    assert not before.keys() & {number for number in after if number not in backed_up}


def test_a_file_with_the_highest_number_there_is_stops_no_merge(root: Path) -> None:
    """It is another program's, or nobody's: such a number would leave none for the next version."""
    (base_of(root) / "_versions" / promotion.public_name((1 << 64) - 1)).write_bytes(b"?")
    with st.connect(root, **OPTIONS) as db:
        merged(db, "b")
        assert db.verify(deep=True).is_sound
        before = newest(root)
    assert before < 1000
    assert admin.repair(root, dry_run=False, deep=True).is_whole
