"""Joining: the way to an owner that may be about to open, about to serve, or just gone."""

from __future__ import annotations

import time
from pathlib import Path

from siltstone.errors import OwnedError, UnavailableError
from siltstone.joined.store import JoinedStore
from siltstone.storage.files import RealFiles
from siltstone.storage.ownership import read_holder

SERVING_WAIT_S = 2.0
"""How long an owner that does not serve may take to begin to: it imports, binds and says so."""
OPENING_WAIT_S = 60.0
"""How long an owner may take to open: it replays its log."""
_PAUSE_S = 0.02


class Joining:
    """One attempt to join, over all its tries."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._begun = time.monotonic()

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
        is_opening = read_holder(RealFiles(), self._root).epoch == 0
        if time.monotonic() - self._begun > (OPENING_WAIT_S if is_opening else SERVING_WAIT_S):
            raise failure
        time.sleep(_PAUSE_S)
        return None
