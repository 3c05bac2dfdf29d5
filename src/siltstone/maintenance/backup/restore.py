"""Restore: creates a new store from one backup.

    choose a backup ─▶ RESTORING ─▶ copy files, each checked ─▶ the log ─▶ older records, FLOOR ─▶
    the record: from here on it is a store ─▶ remove RESTORING

Its bases go on with numbers that no client of the old store knows, at the same path perhaps
(`base_numbers`).

The new store has its own id, so no frame of the old store is valid in it. Its record numbers are
far above the old ones and FLOOR is at the first, so a process that still uses the old store
publishes an invalid number, and then reads a record with another epoch. Its epochs are far above
the old ones, so no transaction id of the old store after the backup occurs again. Seqs, commit
times and tokens continue where the backup ends.

It has the rows of every table at the seq, the past back to the highest merged_seq, the changes in
history, and the tags with their records. A half-restored target is no store; running the restore
again completes it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator
from dataclasses import asdict, dataclass
from pathlib import Path

import msgspec

from siltstone.errors import BusyError, CorruptionError, RequestError
from siltstone.failpoints import Failpoint, cross
from siltstone.formats import manifest
from siltstone.formats.backup import Backup, BackupFile
from siltstone.formats.inventory import InventoryFile
from siltstone.formats.manifest import PRIVATE_DIRECTORY, Record, pins_of
from siltstone.maintenance.backup.backup import (
    FILES,
    MARKER,
    Progress,
    backups,
    named_by,
    read_backup,
    without,
)
from siltstone.storage.files.copying import Copies, is_there
from siltstone.storage.files.files import Files, make_private, refusals
from siltstone.storage.manifest.manifest_store import RESTORING, ManifestStore, begin_chain
from siltstone.storage.tables import base_numbers
from siltstone.storage.tables.kept_names import unite
from siltstone.storage.wal.log_copy import begin_log, read_segment

NUMBERS_SKIPPED = 1_000_000_000
EPOCHS_SKIPPED = 1_000_000
VERSIONS_SKIPPED = 1_000_000
_EPOCH_MAX = (1 << 32) - 1 - EPOCHS_SKIPPED  # of MARK


@dataclass(frozen=True, slots=True)
class Restored:
    """A store that was restored from a backup; it lacks the files that are `damaged` there.

    Examples:
        >>> done = db.backup("copy")
        >>> st.restore("copy", "again").seq == done.seq
        True
    """

    path: str
    backup: str
    seq: int
    oldest_seq: int
    files: int
    nbytes: int
    damaged: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, object]:
        """Return the result as plain values."""
        return asdict(self)

    def __str__(self) -> str:
        return (
            f"{self.path} is a store at seq {self.seq}: {self.files} files, {self.nbytes} bytes"
            f"{without(self.damaged)}"
        )


class Restorer:
    """Restores backups in `directory`."""

    def __init__(
        self,
        files: Files,
        directory: Path,
        *,
        now_us: Callable[[], int],
        new_token: Callable[[], str],
    ) -> None:
        self._files, self._directory = files, directory
        self._now_us, self._new_token = now_us, new_token

    def list(self) -> list[tuple[Path, Backup]]:
        """Return the backups with their manifests, oldest seq first.

        Raises:
            RequestError: The directory contains no backups.
            CorruptionError: A manifest is damaged.
        """
        with refusals(f"restore, {self._directory}"):
            if not self._files.exists(self._directory / MARKER):
                raise RequestError(f"{self._directory} holds no backups")
            found = backups(self._files, self._directory)
            return [(path, read_backup(self._files, path)) for path in found]

    def run(
        self,
        target: Path,
        *,
        seq: int | None = None,
        at_us: int | None = None,
        on_progress: Progress | None = None,
    ) -> Restored:
        """Restore one backup into `target`, which must be absent, empty or half restored from it.

        Args:
            target: The new store's directory.
            seq: The seq of the backup. Default: the highest.
            at_us: Take the last backup at or before this time (microseconds since 1970 UTC).
            on_progress: See `backup.Progress`.

        Raises:
            RequestError: There is no such backup, or `target` contains other files.
            CorruptionError: A file of the backup, which the message names, is damaged. `target` is
                no store.
            BusyError: Another restore into `target` is running.
            UnavailableError: The file system refuses; `target` is no store.
        """
        path, chosen = self._choose(seq, at_us)
        say = on_progress or (lambda _what, _done, _all: None)
        with refusals(f"restore, {target}"), self._entered(target, path.name):
            return self._restore(target, path, chosen, say)

    def _choose(self, seq: int | None, at_us: int | None) -> tuple[Path, Backup]:
        if seq is not None and at_us is not None:
            raise RequestError("give either a seq or a time to choose a backup")
        found = self.list()
        fits = [
            (path, backup)
            for path, backup in found
            if (seq is None or backup.seq == seq) and (at_us is None or backup.time_us <= at_us)
        ]
        if not fits:
            seqs = sorted({backup.seq for _, backup in found})
            raise RequestError(f"{self._directory} has no such backup; its seqs are {seqs}")
        return max(fits, key=lambda each: (each[1].seq, each[1].record))

    @contextlib.contextmanager
    def _entered(self, target: Path, name: str) -> Generator[None]:
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
        try:
            yield
            files.unlink(sign)
            files.sync_dir(target)
        finally:
            lock.release()

    def _restore(self, target: Path, path: Path, chosen: Backup, say: Progress) -> Restored:
        cross(Failpoint.RESTORE_BEFORE_PLAN)
        log = self._directory / chosen.log.path
        self._require_whole(chosen.log, log)
        frames = read_segment(self._files, log)
        record = self._record(chosen)
        if not self._is_made(target, record):
            self._copy(target, chosen, say)
            cross(Failpoint.RESTORE_AFTER_COPY)
            self._skip_numbers(target, record)
            begin_log(self._files, target / "wal", record, frames)
            older = [self._stored(chosen, number) for number in chosen.islands]
            pins = [pin for each in (record, *older) for pin in pins_of(each)]
            for folder in sorted({pin.folder for pin in (*pins, *named_by(frames))}):
                unite(self._files, target, folder)
            islands = [msgspec.structs.replace(i, store_id=record.store_id) for i in older]
            cross(Failpoint.RESTORE_BEFORE_PUBLISH)
            begin_chain(self._files, target, record, islands)
            cross(Failpoint.RESTORE_AFTER_PUBLISH)
        say(path.name, chosen.nbytes, chosen.nbytes)
        return Restored(
            str(target),
            str(path),
            chosen.seq,
            record.oldest_seq,
            len(chosen.files),
            chosen.nbytes,
            chosen.damaged,
        )

    def _is_made(self, target: Path, record: Record) -> bool:
        """Say whether an earlier try got as far as a store: it may have been used since."""
        manifests = ManifestStore(self._files, target)
        if not self._files.is_dir(manifests.folder):
            return False
        return any(n >= record.number for n in manifests.numbers(below_floor=True))

    def _copy(self, target: Path, chosen: Backup, say: Progress) -> None:
        done = 0
        folders: set[Path] = set()
        copies = Copies(self._files)
        for file in chosen.files:
            if file.path.startswith("manifest/"):
                continue
            say(file.path, done, chosen.nbytes)
            source, copy = self._directory / FILES / file.path, target / file.path
            if not copy.is_relative_to(target) or ".." in copy.parts:
                raise CorruptionError(source, None, "it is outside the store")
            if copy.parent not in folders:
                self._files.mkdir(copy.parent)
                folders.add(copy.parent)
            copies.once(source, copy, InventoryFile(file.path, file.size, file.xxh3))
            done += file.size
        for folder in sorted(folders):
            self._files.sync_dir(folder)
            if folder.parent.name == PRIVATE_DIRECTORY:  # its dataset may have no rows
                self._files.mkdir(folder.parent.parent / "data")

    def _skip_numbers(self, target: Path, record: Record) -> None:
        """See `base_numbers`; a clock that was set back is above the backup's own numbers."""
        newest = max((s.base.version for s in record.keyed if s.base is not None), default=0)
        least = newest + VERSIONS_SKIPPED
        text = base_numbers.text_of(max(least, self._now_us() // 1000))
        self._files.replace(target / base_numbers.NAME, text)

    def _require_whole(self, file: BackupFile, path: Path) -> None:
        if not is_there(self._files, path, InventoryFile(file.path, file.size, file.xxh3)):
            raise CorruptionError(path, None, "it is damaged or missing")

    def _stored(self, chosen: Backup, number: int) -> Record:
        """Return a record of the backup."""
        name = f"manifest/{number:020d}.json"
        path = self._directory / FILES / name
        file = next((file for file in chosen.files if file.path == name), None)
        if file is None:
            raise CorruptionError(path, None, "the backup does not list it")
        self._require_whole(file, path)
        return manifest.decode(self._files.read(path), str(path))

    def _record(self, chosen: Backup) -> Record:
        """Return the first record of the new store; see the module for its numbers."""
        old = self._stored(chosen, chosen.record)
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
