"""What a store notes of its mirror outlives a kill and a power cut at any of its file operations.

The note (`mirrors/<hash>.json`) says which records the bucket may have. Whatever is left of it, the
bucket opens with the rows of a whole record, the next mirror goes on, also once the store has
thinned what it had copied, and a reader of the bucket sees the rows of its newest record.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from siltstone.errors import RequestError
from siltstone.local.store import LocalStore
from siltstone.maintenance.backup.mirror import Mirrored, Mirrorer
from siltstone.maintenance.backup.mirror_restore import MirrorRestorer
from siltstone.maintenance.backup.sent_records import DIRECTORY, mirrors_of
from siltstone.open.environment import Env
from siltstone.paths import Place
from siltstone.storage.bucket.bucket import Bucket
from siltstone.storage.bucket.bucket_chain import BucketChain
from siltstone.storage.bucket.bucket_files import BucketFiles
from siltstone.storage.bucket.bucket_leases import BucketLeases
from siltstone.storage.files.files import Files
from siltstone.storage.manifest.manifest_store import RESTORING
from siltstone.storage.site import Site
from siltstone.storage.tables.store_tables import Tables
from tests.crash.moments import IS_LONG, chance, some
from tests.crash.store_life import (
    ROOT,
    Answer,
    Camera,
    Life,
    Shot,
    answer,
    env_of,
    images_of,
    open_store,
    rows_of,
    smaller,
    tried,
)
from tests.crash.store_scenarios import CHECKPOINT
from tests.crash.test_backup_crash import AFTER, BEFORE
from tests.maintenance.mirrors import objects_of
from tests.nightly import IS_NIGHTLY
from tests.support.fake_lance import fake_lance
from tests.support.simulated_files import SimFiles
from tests.support.simulated_objects import SimBucket, SimServer

pytestmark = pytest.mark.timeout(3_600 if IS_LONG else 1_200 if IS_NIGHTLY else 300)
URL = "s3://simulated/shop"
AGAIN = Path("/data/again")
NOTES = ROOT / DIRECTORY
OPTIONS = smaller(retention_s=0)
NEAR_MOMENTS = 6
"""So many of the steps on the note itself are tried by day."""
_numbers = itertools.count(1)


def name() -> str:
    return f"{next(_numbers):032x}"


def tables(root: Path, files: Files) -> Tables:
    return fake_lance(root, files, token=name)


def mirrorer(files: SimFiles, server: SimServer, root: Path = ROOT) -> Mirrorer:
    site = Site.of(root, files, tables, lambda: 1, name)
    return Mirrorer(site, objects_of(server), lambda _: "simulated")


def at(bucket: SimBucket) -> SimServer:
    return SimServer(bucket, below="shop/")


def copy_of(bucket: SimBucket) -> SimBucket:
    with bucket.lock:
        return SimBucket(dict(bucket.objects))


def mirrored(files: SimFiles, bucket: SimBucket, *, adopt: bool = False) -> Mirrored:
    root = AGAIN if adopt else ROOT
    return mirrorer(files, at(bucket), root).run(adopt=adopt)


def restored(files: SimFiles, bucket: SimBucket) -> None:
    objects = objects_of(at(bucket))
    MirrorRestorer(files, objects, tables, now_us=lambda: 1, new_token=name).run(AGAIN)


def open_again(files: SimFiles) -> LocalStore:
    env = replace(env_of(files), tables=lambda root, files, _: tables(root, files))
    return LocalStore.open(AGAIN, OPTIONS, env=env)


def read_at_url(bucket: SimBucket, patch: pytest.MonkeyPatch) -> tuple[int, Answer]:
    """Return what a reader at the URL sees, which has nothing but the bucket."""

    def site_at(place: Place, settings: object) -> Site:
        del settings
        objects = objects_of(at(bucket))
        leases = BucketLeases(Bucket(objects), "a test", name)
        files = BucketFiles(place, objects, leases)
        return Site.of(place, files, tables, chain=BucketChain(place, files, leases))  # type: ignore[arg-type]

    with patch.context() as patched:
        patched.setattr("siltstone.open.environment.site_at", site_at)
        far = LocalStore.open(Place(URL), OPTIONS, read_only=True, env=Env(warm_up=lambda: None))
    try:
        return far.seq, rows_of(answer(far))
    finally:
        far.close()


@dataclass(frozen=True)
class Moment:
    """The machine and the bucket at one moment."""

    shot: Shot
    bucket: SimBucket


class BucketCamera(Camera):
    """A camera that keeps the bucket, too, as it is before each step on files of the machine."""

    def __init__(self, life: Life, bucket: SimBucket) -> None:
        super().__init__(life)
        self._bucket = bucket
        self.buckets: list[SimBucket] = []

    def take(self, label: str) -> None:
        super().take(label)
        self.buckets.append(copy_of(self._bucket))

    def moments(self, most: int, salt: object) -> Iterator[tuple[str, SimFiles, SimBucket]]:
        """Yield disks and buckets that a kill or a power cut leaves: of each step on notes."""
        pairs = dict(zip(map(id, self.shots), self.buckets, strict=True))
        rng = chance(salt)
        near = [shot for shot in self.shots if DIRECTORY in shot.label or RESTORING in shot.label]
        others = [shot for shot in self.shots if all(shot is not each for each in near)]
        for shot in [*some(near, rng, NEAR_MOMENTS), *tried(others, rng, most)]:
            for label, files in [(shot.label, shot.files.killed()), *images_of(shot, rng)]:
                yield label, files, copy_of(pairs[id(shot)])


@dataclass
class Story:
    """A life with a mirror, photographed; what a reader sees at each seq that was mirrored."""

    life: Life
    bucket: SimBucket
    expected: dict[int, Answer]

    def photographed(self, work: Callable[[], object]) -> BucketCamera:
        camera = BucketCamera(self.life, self.bucket)
        self.life.files.faults = [camera]  # pyright: ignore[reportAttributeAccessIssue]
        work()
        camera.take("at the end")
        self.life.files.faults = ()
        return camera

    def mirror(self) -> object:
        return mirrored(self.life.files, self.bucket)

    def note(self) -> None:
        self.expected[self.life.seq] = rows_of(answer(self.life.store))


@pytest.fixture
def story() -> Story:
    """Return a store that was not mirrored yet."""
    made = Story(Life(SimFiles(), OPTIONS), SimBucket(), {})
    for each in BEFORE:
        made.life.do(each)
    made.note()
    return made


@pytest.fixture
def mirrored_story(story: Story) -> Story:
    """Return a store with one mirrored record, which it has thinned since."""
    story.mirror()
    for each in (*AFTER, CHECKPOINT):
        story.life.do(each)
    story.life.store.vacuum()
    story.note()
    return story


def require_goes_on(
    files: SimFiles, bucket: SimBucket, expected: dict[int, Answer], label: str,
    patch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """The bucket opens, if it has a record; the next mirror has all, also after a vacuum."""
    has_record = bool(Bucket(objects_of(at(bucket))).numbers())
    if has_record:
        seq, rows = read_at_url(bucket, patch)
        assert rows == expected[seq], label
        restored(files.killed(), bucket)
    db = open_store(files, options=OPTIONS)
    db["t"].upsert({"id": 1_000, "v": "after", "n": 1})
    for thins in (db.checkpoint, db.merge, db.vacuum):
        thins()  # what was copied is thinned: the note alone knows it
    assert mirrored(files, bucket).seq == db.seq, label
    assert read_at_url(bucket, patch) == (db.seq, rows_of(answer(db))), label
    target = files.killed()
    restored(target, bucket)
    again = open_again(target)
    assert (again.seq, rows_of(answer(again))) == (db.seq, rows_of(answer(db))), label
    assert again.verify(deep=True).findings == (), label


def require_goes_on_from_all(
    story: Story, camera: BucketCamera, which: int, patch: pytest.MonkeyPatch
) -> None:
    story.life.abandon()
    for label, files, bucket in camera.moments(2, which):
        require_goes_on(files, bucket, story.expected, label, patch)


def require_refused_or_whole(files: SimFiles, expected: Answer, label: str) -> None:
    try:
        db = open_again(files)
    except RequestError:
        return
    if db.tables():  # else there was no directory yet, or an empty one
        assert rows_of(answer(db)) == expected, label


def test_a_first_mirror_cut_off_at_any_step_is_none_or_whole(
    story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    camera = story.photographed(story.mirror)
    assert sum(DIRECTORY in shot.label for shot in camera.shots) > 10
    require_goes_on_from_all(story, camera, 1, monkeypatch)


def test_a_next_mirror_cut_off_at_any_step_is_known_to_its_store_which_goes_on(
    mirrored_story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    camera = mirrored_story.photographed(mirrored_story.mirror)
    require_goes_on_from_all(mirrored_story, camera, 2, monkeypatch)


def test_what_is_owed_is_noted_or_not_and_the_next_mirror_goes_on(
    mirrored_story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    story = mirrored_story
    owing = mirrorer(story.life.files, at(story.bucket))
    camera = story.photographed(owing.owe)
    story.life.abandon()
    told = set()
    for label, files, bucket in camera.moments(2, 3):
        (known,) = mirrors_of(files, ROOT)
        told.add(known.is_owed)
        assert known.record == 1, label
        require_goes_on(files, bucket, story.expected, label, monkeypatch)
    assert told == {False, True}


def test_a_restore_cut_off_at_any_step_is_refused_or_whole_and_its_store_adopts_the_mirror(
    mirrored_story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The note says of which record the store was made: that alone lets it go on."""
    story = mirrored_story
    story.mirror()
    seq, files, bucket = story.life.seq, story.life.files, story.bucket
    camera = story.photographed(lambda: restored(files, bucket))
    story.life.abandon()
    for label, files, bucket in camera.moments(4, 4):
        require_refused_or_whole(files.killed(), story.expected[seq], label)
        names = files.list(AGAIN) if files.is_dir(AGAIN) else []
        if RESTORING in names or not [each for each in names if not each.startswith(".")]:
            restored(files, bucket)
        db = open_again(files)
        assert (db.seq, rows_of(answer(db))) == (seq, story.expected[seq]), label
        db["t"].upsert({"id": 1_000, "v": "after", "n": 1})
        db.checkpoint()
        assert mirrored(files, bucket, adopt=True).seq == db.seq, label
        assert read_at_url(bucket, monkeypatch) == (db.seq, rows_of(answer(db))), label
