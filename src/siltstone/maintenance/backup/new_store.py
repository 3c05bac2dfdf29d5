"""New store: what makes a store of files that were copied, from a backup or a mirror.

    RESTORING ─▶ (the files are copied) ─▶ NUMBERS ─▶ the log ─▶ kept names ─▶ older records, FLOOR
    ─▶ the record: from here on it is a store ─▶ remove RESTORING

Its bases go on with numbers that no client of the old store knows, at the same path perhaps
(`base_numbers`).

The new store has its own id, so no frame of the old store is valid in it. Its record numbers are
far above the old ones and FLOOR is at the first, so a process that still uses the old store
publishes an invalid number, and then reads a record with another epoch. Its epochs are far above
the old ones, so no transaction id of the old store after the copy occurs again. Seqs, commit
times and tokens continue where the copy ends.

It has the rows of every table at the seq, the past back to the highest merged_seq, the changes in
history, and the tags with their records. A half-restored target is no store; running the restore
again completes it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator, Iterable, Sequence
from pathlib import Path

import msgspec

from siltstone.errors import BusyError, CorruptionError, RequestError
from siltstone.failpoints import Failpoint, cross
from siltstone.formats.log.frame import Logged
from siltstone.formats.manifest import PRIVATE_DIRECTORY, Record, pins_of
from siltstone.maintenance.backup.backup import named_by
from siltstone.storage.files.files import Files, make_private
from siltstone.storage.files.locks import releasing
from siltstone.storage.manifest.manifest_store import RESTORING, ManifestStore, begin_chain
from siltstone.storage.tables import base_numbers
from siltstone.storage.tables.kept_names import unite
from siltstone.storage.wal.log_copy import begin_log

NUMBERS_SKIPPED = 1_000_000_000
EPOCHS_SKIPPED = 1_000_000
VERSIONS_SKIPPED = 1_000_000
_EPOCH_MAX = (1 << 32) - 1 - EPOCHS_SKIPPED  # of MARK


class NewStore:
    """See the module."""

    def __init__(
        self, files: Files, *, now_us: Callable[[], int], new_token: Callable[[], str]
    ) -> None:
        self._files, self._now_us, self._new_token = files, now_us, new_token

    @contextlib.contextmanager
    def entered(self, target: Path, name: str) -> Generator[None]:
        """Take `target` for one restore; on success the sign that it is half made goes."""
        files, sign, text = self._files, target / RESTORING, name.encode()
        make_private(files, target)
        inside = [n for n in files.list(target) if not n.startswith(f".{RESTORING}.")]
        if inside and RESTORING not in inside:
            raise RequestError(f"{target} is not empty: it holds {inside[0]!r}")
        files.create_if_absent(sign, text)
        if files.read(sign) != text:
            raise RequestError(f"{target} is half restored from {files.read(sign).decode()}")
        lock = files.lock(sign)
        if lock is None:
            raise BusyError(f"another restore into {target} is running")
        with releasing(lock):
            yield
            files.unlink(sign)
            files.sync_dir(target)

    def is_made(self, target: Path, record: Record) -> bool:
        """Say whether an earlier try got as far as a store: it may have been used since."""
        manifests = ManifestStore(self._files, target)
        if not self._files.is_dir(manifests.folder):
            return False
        return any(n >= record.number for n in manifests.numbers(below_floor=True))

    def make(
        self, target: Path, record: Record, older: Sequence[Record], frames: Sequence[Logged]
    ) -> None:
        """Make a store of the files at `target`: of a record, and the commits above it.

        Args:
            target: The new store's directory.
            record: The first one of the store, as `record_of` returned it.
            older: Records that tags need, as they were in the old store.
            frames: Of the old store's log.
        """
        cross(Failpoint.RESTORE_AFTER_COPY)
        self._skip_numbers(target, record)
        begin_log(self._files, target / "wal", record, frames)
        pins = [pin for each in (record, *older) for pin in pins_of(each)]
        for folder in sorted({pin.folder for pin in (*pins, *named_by(frames))}):
            unite(self._files, target, folder)
        islands = [msgspec.structs.replace(i, store_id=record.store_id) for i in older]
        cross(Failpoint.RESTORE_BEFORE_PUBLISH)
        begin_chain(self._files, target, record, islands)
        cross(Failpoint.RESTORE_AFTER_PUBLISH)

    def record_of(self, old: Record) -> Record:
        """Return the first record of the new store; see the module for its numbers."""
        if old.epoch > _EPOCH_MAX:
            raise RequestError(f"epoch {old.epoch} is too high for another restore")
        merged = max((storage.merged_seq for storage in old.keyed), default=0)
        return msgspec.structs.replace(
            old,
            store_id=self._new_token(),
            number=old.number + NUMBERS_SKIPPED,
            epoch=old.epoch + EPOCHS_SKIPPED,
            writer=self._new_token(),
            time_us=max(self._now_us(), old.time_us + 1),
            oldest_seq=max(old.oldest_seq, merged),
        )

    def _skip_numbers(self, target: Path, record: Record) -> None:
        """See `base_numbers`; a clock that was set back is above the backup's own numbers."""
        newest = max((s.base.version for s in record.keyed if s.base is not None), default=0)
        least = newest + VERSIONS_SKIPPED
        text = base_numbers.text_of(max(least, self._now_us() // 1000))
        self._files.replace(target / base_numbers.NAME, text)


def inside(target: Path, path: str, source: Path | str) -> Path:
    """Return where the file `path` of a store lies below `target`.

    Raises:
        CorruptionError: It would lie outside; `source` names the file.
    """
    copy = target / path
    if not copy.is_relative_to(target) or ".." in copy.parts:
        raise CorruptionError(source, None, "it is outside the store")
    return copy


def settle(files: Files, folders: Iterable[Path]) -> None:
    """Make the names in folders durable that files were copied into."""
    for folder in sorted(folders):
        files.sync_dir(folder)
        if folder.parent.name == PRIVATE_DIRECTORY:  # its dataset may have no rows
            files.mkdir(folder.parent.parent / "data")
