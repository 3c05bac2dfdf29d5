"""Who drops many namespaces of many looks at all of them once: other commits wait meanwhile."""

from __future__ import annotations

import pytest

from siltstone.engine.catalog import namespaces
from siltstone.engine.commit.admission import admit
from siltstone.engine.commit.recent_writes import RecentWrites
from siltstone.engine.commit.write_set import WriteSet
from siltstone.formats.log import group
from siltstone.formats.manifest import Catalog, NamespaceDefinition

MANY = 500


def test_the_admission_of_many_drops_does_not_take_their_square(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    names = ["a", *(f"a.n{number}" for number in range(MANY))]
    catalog = Catalog(namespaces=tuple(NamespaceDefinition(n, 1, ()) for n in names))
    above, calls = namespaces.above, list[str]()

    def counted(name: str) -> list[str]:
        calls.append(name)
        return above(name)

    monkeypatch.setattr(namespaces, "above", counted)
    drops = [group.DropNamespace(name) for name in reversed(names)]
    after = admit(WriteSet(1, 1, (), drops), 2, catalog, RecentWrites(1 << 20))
    assert namespaces.names(after) == set()
    assert len(calls) < 20 * MANY
