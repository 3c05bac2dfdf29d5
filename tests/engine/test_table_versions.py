"""A table's versions are found by their numbers; what no version has is told apart."""

from __future__ import annotations

from pathlib import Path

import siltstone as st


def test_a_version_is_found_by_its_number_alone(tmp_path: Path) -> None:
    with st.connect(tmp_path / "s", background=False) as db:
        events = db.create_table("events", {"n": "int64"})
        for n in range(3):
            events.append([{"n": n}])
        with db.snapshot() as snapshot:
            seen = snapshot.versions("events")
        numbers = [version.pin.version for version in seen.committed]
        assert numbers == [1, 2, 3]
        assert [seen.find(number) for number in numbers] == list(seen.versions)
        assert seen.newest == seen.committed[-1]
        assert seen.find(numbers[-1] + 1) is None
        assert seen.after(numbers[-1] + 1) is None
        assert seen.after(0) == seen.committed[0]
