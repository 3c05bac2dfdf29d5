"""Root tables: cut off at any file operation, or raced, `t.lance` shows a version that there was.

The next call completes what is left, and never takes it for somebody else's.
"""

from __future__ import annotations

import itertools
import random
from pathlib import Path
from typing import cast

import lance
import pyarrow as pa
import pytest

from siltstone.formats.manifest import Pin
from siltstone.storage.lance.external import root_tables
from siltstone.storage.lance.files import manifest
from siltstone.storage.tables import promotion
from siltstone.storage.tables.values import ShownTable
from tests.crash.moments import IS_LONG
from tests.support.simulated_files import Fault, Image, SimFiles, SimulatedCrash

ROOT = Path("/data/shop")
SHOWN = ROOT / "trips.lance"
VERSIONS = (1, 2, 3)
IMAGES = 10_000 if IS_LONG else 3


@pytest.fixture(scope="module")
def manifests(tmp_path_factory: pytest.TempPathFactory) -> dict[int, bytes]:
    """Return what Lance wrote for versions of a dataset, by their numbers."""
    where = tmp_path_factory.mktemp("lance") / "trips"
    for version in VERSIONS:
        lance.write_dataset(pa.table({"id": [version]}), where, mode="append")
    found = [path.read_bytes() for path in (where / "_versions").glob("*.manifest")]
    return {manifest.decode(data).version: data for data in found}


def table(version: int) -> ShownTable:
    path = f"tables/trips-1/base/_siltstone/{version}/manifest"
    pin = Pin(version, path, size=1, xxh3=f"{version:016x}", rows=version, inventory="")
    return ShownTable("trips", pin)


class World:
    """One machine, the version whose showing was begun last, and the one that was completed."""

    def __init__(self, manifests: dict[int, bytes], fault: Fault | None = None) -> None:
        self.files = SimFiles([fault] if fault else [])
        self.manifests = manifests
        self.begun = self.shown = 0

    def clone(self, pin: Pin) -> bytes:
        assert pin.folder == "tables/trips-1/base"
        return self.manifests[pin.version]

    def show(self, version: int) -> None:
        self.begun = version
        root_tables.show(self.files, ROOT, table(version), self.clone)
        self.shown = version

    def forget(self) -> None:
        root_tables.forget(self.files, ROOT, ["trips"], kept_s=0)

    def live(self) -> None:
        self.files.mkdir(ROOT)
        for version in VERSIONS:
            self.show(version)
        self.forget()


def newest(files: SimFiles) -> int:
    """Return the newest version that Lance would find, by what it was made of; 0: no table."""
    folder = SHOWN / "_versions"
    names = files.list(folder) if files.is_dir(folder) else []
    names = [name for name in names if not name.startswith(".")]
    numbers = [number for name in names if (number := promotion.version_of(name)) is not None]
    if not numbers:
        return 0
    number = max(numbers)
    found = manifest.decode(files.read(folder / promotion.public_name(number)))
    assert found.version == number
    assert found.writer_flags & root_tables.FENCE
    mark = files.read(SHOWN / "_listed" / str(number)).decode()
    return int(mark.split("/manifest")[0].rsplit("/", 1)[1])


def require_goes_on(world: World, image: Image) -> None:
    found = newest(image.files)
    assert world.shown <= found <= world.begun, image.label
    after = World(world.manifests)
    after.files = image.files
    after.files.mkdir(ROOT)
    after.show(3)
    assert newest(after.files) == 3, image.label
    after.forget()
    assert newest(after.files) == 3, image.label
    assert len(after.files.list(SHOWN / "_versions")) == 1, image.label
    root_tables.forget(after.files, ROOT, [], kept_s=0)
    assert after.files.list(ROOT) == [], image.label


def test_a_root_table_cut_off_at_any_step_shows_a_version_that_was_begun(
    manifests: dict[int, bytes],
) -> None:
    whole = World(manifests)
    whole.live()
    rng = random.Random(1)
    for step in range(1, whole.files.operations + 1):
        world = World(manifests, Fault(step))
        with pytest.raises(SimulatedCrash):
            world.live()
        killed = Image(f"killed at {step}", world.files.killed())
        for image in [killed, *itertools.islice(world.files.images(rng), IMAGES)]:
            require_goes_on(world, image)


class _Other:
    """A fault that never hits: before step `at` another process shows a version."""

    def __init__(self, at: int, world: World, version: int) -> None:
        self._at, self._world, self._is_under_way = at, world, False
        self._version = version
        self.ran = False

    def hits(self, operation: int) -> bool:
        del operation
        self._at -= not self._is_under_way
        if self._at == 0 and not self._is_under_way:
            self._is_under_way = self.ran = True
            other = World(self._world.manifests)
            other.files = self._world.files
            other.show(self._version)
            self._is_under_way = False
        return False


@pytest.mark.parametrize("version", [2, 3])
def test_two_processes_that_show_a_table_at_once_show_one_of_its_versions(
    manifests: dict[int, bytes], version: int
) -> None:
    step, is_raced = 0, True
    while is_raced:
        step += 1
        world = World(manifests)
        world.files.mkdir(ROOT)
        world.show(1)
        other = _Other(step, world, version)
        world.files.faults = (cast("Fault", other),)
        world.show(2)
        world.files.faults = ()
        is_raced = other.ran
        assert newest(world.files) in (2, version), step
        world.show(3)
        assert newest(world.files) == 3, step
    assert step > 10
