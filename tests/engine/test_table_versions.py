"""A table's versions are found without looking at all of them."""

from __future__ import annotations

from pathlib import Path

import siltstone as st


def test_pins_are_those_of_the_committed_versions_from_either_end(tmp_path: Path) -> None:
    with st.connect(tmp_path / "s", background=False) as db:
        events = db.create_table("events", {"n": "int64"})
        for n in range(3):
            events.append([{"n": n}])
        with db.snapshot() as snapshot:
            seen = snapshot.versions("events")
        pins = [version.pin for version in seen.committed]
        assert len(pins) == 4  # that of the creation, too
        assert list(seen.pins) == pins
        assert list(reversed(seen.pins)) == pins[::-1]
        assert (seen.pins[0], seen.pins[-1]) == (pins[0], pins[-1])
        assert list(seen.pins[1:]) == pins[1:]
        assert pins[1] in seen.pins
