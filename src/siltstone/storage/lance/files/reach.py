"""Reach: how Lance reads files in a bucket: the settings of its client, and what is absent there.

Lance is a second client: its own connections, credentials and retries. It gets no more than the
settings that ours has; what its errors mean is in `errors`.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from siltstone.errors import CorruptionError
from siltstone.storage.lance.files.errors import is_absent, translated


@dataclass(frozen=True, slots=True)
class LanceReach:
    """See the module. `refuse_if_expired` raises where a record that is read was given up."""

    storage_options: Mapping[str, str] = field(repr=False)
    refuse_if_expired: Callable[[], None]

    @contextmanager
    def reading(self, where: Path) -> Generator[None]:
        """Read a dataset with Lance; its errors become ours.

        Raises:
            UnavailableError: No answer, or a refusal, with the request's sentence.
            SnapshotExpiredError: A file is absent, and its record was given up.
            CorruptionError: A file is absent, or damaged.
        """
        try:
            with translated(where, is_reading=True):
                yield
        except CorruptionError as error:
            if is_absent(error):
                self.refuse_if_expired()
            raise
