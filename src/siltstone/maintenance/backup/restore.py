"""Restore: creates a new store from one backup.

choose a backup ─▶ RESTORING ─▶ copy files, each checked ─▶ what makes a store of them
(`new_store`) ─▶ remove RESTORING
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from siltstone.errors import CorruptionError, RequestError
from siltstone.failpoints import Failpoint, cross
from siltstone.formats import manifest
from siltstone.formats.backup import Backup, BackupFile
from siltstone.formats.inventory import InventoryFile
from siltstone.formats.manifest import Record
from siltstone.maintenance.backup.backup import (
    FILES,
    MARKER,
    Progress,
    backups,
    read_backup,
    without,
)
from siltstone.maintenance.backup.new_store import NewStore, inside, settle
from siltstone.storage.files.copying import Copies, is_there
from siltstone.storage.files.files import Files, refusals
from siltstone.storage.wal.log_copy import read_segment


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
        self._store = NewStore(files, now_us=now_us, new_token=new_token)

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
        with refusals(f"restore, {target}"), self._store.entered(target, path.name):
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

    def _restore(self, target: Path, path: Path, chosen: Backup, say: Progress) -> Restored:
        cross(Failpoint.RESTORE_BEFORE_PLAN)
        log = self._directory / chosen.log.path
        self._require_whole(chosen.log, log)
        frames = read_segment(self._files, log)
        record = self._store.record_of(self._stored(chosen, chosen.record))
        if not self._store.is_made(target, record):
            self._copy(target, chosen, say)
            older = [self._stored(chosen, number) for number in chosen.islands]
            self._store.make(target, record, older, frames)
        say(path.name, chosen.nbytes, chosen.nbytes)
        seqs, files = (chosen.seq, record.oldest_seq), (len(chosen.files), chosen.nbytes)
        return Restored(str(target), str(path), *seqs, *files, chosen.damaged)

    def _copy(self, target: Path, chosen: Backup, say: Progress) -> None:
        done = 0
        copies = Copies(self._files)
        for file in chosen.files:
            if file.path.startswith("manifest/"):
                continue
            say(file.path, done, chosen.nbytes)
            source = self._directory / FILES / file.path
            copy = inside(target, file.path, source)
            copies.once(source, copy, InventoryFile(file.path, file.size, file.xxh3))
            done += file.size
        settle(self._files, copies.folders)

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
