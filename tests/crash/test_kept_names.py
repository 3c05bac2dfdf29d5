"""Kept names: cut off at any file operation, no file is lost that a pin may name.

What was durable, and what another program cleaned up meanwhile, has both names after `unite`.
"""

from __future__ import annotations

import errno
import itertools
import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from siltstone.storage.tables import kept_names
from tests.crash.moments import IS_LONG
from tests.support.simulated_files import Fault, Image, SimFiles, SimulatedCrash

ROOT = Path("/data/shop")
FOLDER = "tables/t-1"
OWN, TAKEN, OLD = (f"{FOLDER}/data/{name}.lance" for name in ("own", "taken", "old"))
IMAGES = 10_000 if IS_LONG else 5


class OfOthers(SimFiles):
    """Files of which those that a client wrote are another user's: Linux refuses to link them."""

    def link(self, old: Path, new: Path) -> None:
        if old == ROOT / TAKEN:
            raise PermissionError(errno.EPERM, os.strerror(errno.EPERM), str(old))
        super().link(old, new)


class World:
    """One machine, and the files that a pin may name: their names are durable."""

    def __init__(
        self, fault: Fault | None = None, files: Callable[..., SimFiles] = SimFiles
    ) -> None:
        self.files = files([fault] if fault else [])
        self.named: set[str] = set()

    def write(self, path: str) -> None:
        self.files.mkdir((ROOT / path).parent)
        self.files.write(ROOT / path, path.encode())
        self.files.sync_dir((ROOT / path).parent)

    def live(self) -> None:
        files = self.files
        files.mkdir(ROOT)
        self.write(OLD)  # by a siltstone that knew of one name
        self.named.add(OLD)
        kept_names.unite(files, ROOT, FOLDER)
        kept_names.make(files, ROOT, FOLDER)
        own = kept_names.kept_of(OWN)
        assert own is not None
        files.write(ROOT / own, OWN.encode())  # Lance writes where our handle is open
        self.name(OWN)
        self.write(TAKEN)  # another client does where it opened the table
        self.name(TAKEN)
        for path in (OLD, OWN, TAKEN):
            files.unlink(ROOT / path)
        files.sync_dir(ROOT / FOLDER / "data")  # a clean-up
        kept_names.unite(files, ROOT, FOLDER)

    def name(self, path: str) -> None:
        kept_names.both(self.files, ROOT, path)
        self.files.sync_dir((ROOT / path).parent)
        kept_names.sync(self.files, ROOT, FOLDER, "data")
        self.named.add(path)


def require_named(world: World, image: Image) -> None:
    files = image.files
    for path in world.named:
        where = kept_names.place(files, ROOT, path)
        assert files.read(where) == path.encode(), (image.label, path)
    kept_names.unite(files, ROOT, FOLDER)
    assert kept_names.lacking(files, ROOT, world.named) == ([], []), image.label
    for path in world.named:
        files.unlink(ROOT / path)
        assert files.exists(kept_names.place(files, ROOT, path)), image.label


@pytest.mark.parametrize("kind", [SimFiles, OfOthers])
def test_cut_off_at_any_step_it_leaves_every_file_that_a_pin_may_name(
    kind: Callable[..., SimFiles],
) -> None:
    whole = World(files=kind)
    whole.live()
    assert whole.named == {OLD, OWN, TAKEN}
    rng = random.Random(1)
    for step in range(1, whole.files.operations + 1):
        world = World(Fault(step), kind)
        with pytest.raises(SimulatedCrash):
            world.live()
        killed = Image(f"killed at {step}", world.files.killed())
        for image in [killed, *itertools.islice(world.files.images(rng), IMAGES)]:
            require_named(world, image)


def test_a_file_in_a_directory_that_vacuum_empties_meanwhile_gets_both_names() -> None:
    world = World()
    world.files.mkdir(ROOT)
    world.write(OLD)
    kept_names.unite(world.files, ROOT, FOLDER)
    own = kept_names.kept_of(OLD)
    assert own is not None
    world.files.unlink(ROOT / own)
    world.files.rmdir((ROOT / own).parent)
    kept_names.both(world.files, ROOT, OLD)
    assert kept_names.lacking(world.files, ROOT, [OLD]) == ([], [])


@pytest.mark.parametrize(
    ("path", "own"),
    [
        ("tables/t-1/data/x.lance", "tables/t-1/_siltstone/_kept/data/x.lance"),
        ("tables/t-1/base/_indices/u/a", "tables/t-1/base/_siltstone/_kept/_indices/u/a"),
        ("tables/base-1/_deletions/0.arrow", "tables/base-1/_siltstone/_kept/_deletions/0.arrow"),
        ("tables/t-1/.history/data/x.lance", None),
        ("tables/t-1/.attached/j/data/x.lance", None),
        ("tables/t-1/_siltstone/a/9.manifest", None),
        ("tables/t-1/_siltstone/_kept/data/x.lance", None),
        ("inventory/a.arrow", None),
        ("commits/data/x.lance", None),
        ("__manifest/data/x.lance", None),
    ],
)
def test_what_other_programs_can_open_has_two_names(path: str, own: str | None) -> None:
    assert kept_names.kept_of(path) == own
    if own is not None:
        assert kept_names.public_of(own) == path
