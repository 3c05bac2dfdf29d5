"""House: a store with its owner, who joined it by socket and over HTTP, and a client of REST."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import siltstone as st
from tests.server.rest import Rest
from tests.server.stores import joined_to, opened


class House:
    """See the module; `DOORS` are the names of what writes rows of Python."""

    DOORS = ("owner", "socket", "http")

    def __init__(self, path: Path) -> None:
        self.path = path
        self.owner = opened(path)
        self.socket = joined_to(self.owner)
        self.service = self.owner.serve(port=0)
        self.http = st.connect(self.service.url)
        self.rest = Rest(self.service)

    def close(self) -> None:
        self.rest.close()
        for door in (self.http, self.socket, self.owner):
            door.close()


@contextmanager
def house_at(path: Path) -> Iterator[House]:
    """Yield a house; it is closed in the end."""
    house = House(path)
    try:
        yield house
    finally:
        house.close()
