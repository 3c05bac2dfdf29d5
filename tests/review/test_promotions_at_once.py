"""A merge is done when its record is published, whatever promotions beside it do to ours."""

from __future__ import annotations

from pathlib import Path

import pytest

from siltstone.options import Options
from siltstone.storage.files import RealFiles
from siltstone.store import Store
from siltstone.wiring import Env


class WithAnother(RealFiles):
    """The real file system, where another process promotes the same versions."""

    race = ""

    def list(self, path: Path) -> list[str]:
        """A temporary file of Lance, which is renamed before we come to it."""
        passing = ["siltstone-9.json.tmp.1f"] if self.race == "tags" and path.name == "tags" else []
        return [*super().list(path), *passing]

    def link(self, source: Path, target: Path) -> None:
        """The other one gave the same version its name just before us."""
        if self.race == "link" and target.parent.name == "_versions":
            super().link(source, target)
        super().link(source, target)

    def unlink(self, path: Path) -> None:
        """The other one took the stale name away just before us."""
        if self.race == "unlink" and path.parts[-3:-1] == ("base", "_versions"):
            super().unlink(path)
        super().unlink(path)


@pytest.mark.parametrize("race", ["tags", "link", "unlink"])
def test_a_merge_beside_another_promotion_is_done_and_the_next_one_promotes(
    tmp_path: Path, race: str
) -> None:
    files = WithAnother()
    options = Options(background=False, segment_bytes=65_536, retention_s=0)
    with Store.open(tmp_path / "db", options, env=Env(files=files)) as db:
        table = db.create_table("t", {"id": "int64"}, primary_key="id")
        for n in range(4):
            files.race = race if n == 3 else ""
            table.upsert({"id": n})
            db.checkpoint()
            db.merge()
        assert table.count() == 4
        assert db._core.state().view.record.keyed[0].merged_seq == db.seq
        db.vacuum(dry_run=False, grace_s=0)
        files.race = ""
        db.vacuum(dry_run=False, grace_s=0)
        db.merge()
        import lance

        assert lance.dataset(str(next(db.path.glob("tables/t-*/base")))).count_rows() == 4
