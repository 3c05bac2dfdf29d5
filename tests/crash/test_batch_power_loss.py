"""The power may go at any moment of a batch commit over real Lance files: all tables, or none."""

from __future__ import annotations

from pathlib import Path

import pytest

import siltstone as st
from siltstone.local.store import LocalStore
from siltstone.namespace import SiltstoneNamespace
from siltstone.open.environment import Env
from siltstone.options import Options
from tests.crash.power_loss import Image, PowerLoss
from tests.namespace.clients import make, opened, rows
from tests.namespace.staging import staged

BEFORE = {"a": 10, "b": 10, "gone": 1}
AFTER = {"a": 20, "b": 15, "new": 0}


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> list[Image]:
    """Every image of a batch commit; the last ones are from when it was answered."""
    root = tmp_path_factory.mktemp("power") / "shop"
    root.mkdir()
    files = PowerLoss(root)
    files.sync_dir(root)
    options = Options(background=False, segment_bytes=65_536)
    with LocalStore.open(root, options, env=Env(files=files)) as db:
        ns = SiltstoneNamespace(db)
        for name, end in (("a", 10), ("b", 10), ("gone", 1)):
            make(ns, name, rows(0, end))
        operations = [
            {"create_table_version": staged(ns, "a", rows(10, 20))},
            {"create_table_version": staged(ns, "b", rows(10, 15))},
            {"declare_table": {"id": ["new"]}},
            {"deregister_table": {"id": ["gone"]}},
        ]
        files.images = []
        ns.batch_commit_tables({"operations": operations})
        files.sync_dir(root / "wal")
        found, files.images = files.images, None
    files.close()
    return found


def held(root: Path) -> dict[str, int]:
    """Return how many rows each table has, read whole, once the store was opened again."""
    with st.connect(root, background=False) as db:
        ns = SiltstoneNamespace(db)
        found = {name: len(db[name].to_arrow()) for name in db.tables()}
        seen = {name: opened(ns, name).count_rows() for name, count in found.items() if count}
        assert seen == {name: count for name, count in found.items() if count}
        assert db.verify().is_sound
    return found


def test_after_a_loss_of_power_all_tables_have_the_batch_or_none(
    images: list[Image], tmp_path: Path
) -> None:
    shown = [held(image.put(tmp_path / str(n))) for n, image in enumerate(images)]
    assert all(found in (BEFORE, AFTER) for found in shown), shown
    commit = shown.index(AFTER)
    assert commit > 4, "there were moments before the commit"
    assert shown[commit:] == [AFTER] * (len(shown) - commit), "what was durable stays so"
    assert ".wal, nothing more" in images[commit].what, "the log's sync is the commit"
