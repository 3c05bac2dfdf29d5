"""Joining: the way to an owner that may be about to open, about to serve, or just gone."""

from __future__ import annotations

import time
from pathlib import Path

from siltstone.errors import OwnedError, UnavailableError
from siltstone.joined.store import JoinedStore
from siltstone.storage.files import RealFiles
from siltstone.storage.ownership import read_holder

SERVING_WAIT_S = 2.0
"""How long an owner that is open may take to say that it will serve."""
OPENING_WAIT_S = 60.0
"""How long an owner may take to open (it replays its log), or to answer where it says it will."""
_PAUSE_S = 0.02
_PAUSE_S_MAX = 0.25


class Joining:
    """One attempt to join, over all its tries."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._begun = time.monotonic()
        self._pause_s = _PAUSE_S

    def join(self, owned: OwnedError) -> JoinedStore | None:
        """Join the owner that `owned` names; None after a pause: try to own, or join again.

        Raises:
            OwnedError: The owner does not serve.
            UnavailableError: What it names does not answer.
        """
        failure: OwnedError | UnavailableError = owned
        if owned.endpoint is not None:
            try:
                return JoinedStore(self._root, owned.endpoint)
            except UnavailableError as error:
                failure = error
        is_coming = owned.endpoint or read_holder(RealFiles(), self._root).epoch == 0
        if time.monotonic() - self._begun > (OPENING_WAIT_S if is_coming else SERVING_WAIT_S):
            raise failure
        time.sleep(self._pause_s)
        self._pause_s = min(2 * self._pause_s, _PAUSE_S_MAX)
        return None
