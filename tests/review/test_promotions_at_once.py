"""A merge is done when its record is published, whatever promotions beside it do to ours."""

from __future__ import annotations

from pathlib import Path
from typing import Self

import pytest

from siltstone.local.store import LocalStore
from siltstone.open.environment import Env
from siltstone.options import Options
from siltstone.storage.files.files import RealFiles
from tests.maintenance.stores import Clock


class WithAnother(RealFiles):
    """The real file system, where another process promotes the same versions."""

    race = ""
    races_max = 1 << 30

    def below(self, root: Path) -> Self:
        """Stay this one: a test says of it, not of a copy, what fails."""
        del root
        return self

    def link(self, source: Path, target: Path) -> None:
        """The other one gave the same version its name just before us."""
        if self.race == "link" and target.parent.name == "_versions":
            super().link(source, target)
        super().link(source, target)

    def sync_dir(self, path: Path) -> None:
        """The other one, which knows of fewer records, took away what we have just linked."""
        super().sync_dir(path)
        if self.race == "gone" and path.parts[-2:] == ("base", "_versions") and self.races_max:
            self.races_max -= 1
            for name in sorted(super().list(path))[1:]:
                super().unlink(path / name)

    def unlink(self, path: Path) -> None:
        """The other one took the stale name away just before us."""
        if self.race == "unlink" and path.parts[-3:-1] == ("base", "_versions"):
            super().unlink(path)
        super().unlink(path)


@pytest.mark.parametrize("race", ["link", "unlink"])
def test_a_merge_beside_another_promotion_is_done_and_the_next_one_promotes(
    tmp_path: Path, race: str
) -> None:
    files = WithAnother()
    options = Options(background=False, segment_bytes=65_536, retention_s=0)
    with LocalStore.open(tmp_path / "db", options, env=Env(files=files)) as db:
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


def made(path: Path, files: WithAnother, clock: Clock) -> LocalStore:
    """Return a store whose vacuum has public names to take away."""
    options = Options(background=False, segment_bytes=65_536, retention_s=1)
    db = LocalStore.open(path, options, env=Env(files=files, now_us=clock))
    table = db.create_table("t", {"id": "int64"}, primary_key="id")
    for n in range(4):
        files.race = "gone" if n == 3 else ""
        table.upsert({"id": n})
        db.checkpoint()
        db.merge()
        clock.move(days=n == 1)
    return db


def test_a_vacuum_that_meets_another_promotion_tries_again(tmp_path: Path) -> None:
    files = WithAnother()
    with made(tmp_path / "db", files, Clock()) as db:
        files.races_max = 1
        assert db.vacuum(dry_run=False, grace_s=0).files
        assert not files.races_max
        assert db["t"].count() == 4


def test_a_vacuum_that_always_meets_another_promotion_is_done(tmp_path: Path) -> None:
    files = WithAnother()
    with made(tmp_path / "db", files, Clock()) as db:
        assert db.vacuum(dry_run=False, grace_s=0).files
        assert db["t"].count() == 4
        files.race = ""
        db.merge()
        assert db.verify(deep=True).is_sound
