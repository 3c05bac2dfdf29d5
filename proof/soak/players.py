"""Players: the roles that own, join and read the store, and check all that they see of it."""

from __future__ import annotations

import contextlib
import os
import pickle
import random
import threading
import time
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import siltstone as st
from proof.isolation.clients import Client
from proof.isolation.journal import Journal
from proof.soak import acknowledged, bank, mirrored, nested, stock
from proof.soak.acknowledged import Acknowledged
from proof.soak.post import Post

OWN_S = 60.0
TAG_S = 1.0
PICKLED_SHARE = 0.1
GONE = (st.UnavailableError, st.BusyError, st.OwnedError, st.ClosedError, st.FencedError)


def own(root: Path, **options: object) -> st.Store:
    """Open the store; who joins or vacuums may own it for a moment, and be stopped there."""
    deadline = time.monotonic() + OWN_S
    while True:
        try:
            return st.connect(root, **(bank.OPTIONS | options))
        except st.OwnedError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


def client_of(db: Any, post: Post, journal: Journal, place: int = 0) -> Client:
    """Return a client of the games; `place` tells those of one process apart."""
    return Client(
        db, journal, number=10 * post.number + place, seed=post.seed, run=post.run, begun=post.begun
    )


class Owner:
    """The bank's writers, two players, and a server on a socket and a port."""

    def __init__(self, post: Post) -> None:
        self._post, self._db = post, own(post.root, **mirrored.options_of(post))
        with self._db.snapshot() as snapshot:
            self._last = bank.check(snapshot)
            known = Acknowledged(post.acknowledged)
            known.read_on()
            known.check(self._last, snapshot.seq)
        self._file = os.open(post.acknowledged, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self._journal = Journal(post.journal)
        self._failures: list[BaseException] = []
        self._serve()

    def _serve(self) -> None:
        self._db.serve_local()
        url = self._db.serve(port=0).url
        told = self._post.url.with_suffix(".new")
        told.write_text(url)
        told.rename(self._post.url)

    def run(self, stop: threading.Event) -> None:
        """Work until told to stop."""
        with self._db:
            players = [client_of(self._db, self._post, self._journal, n) for n in range(2)]
            players[0].cross(players[1])
            works = [lambda w=writer: self._write(w) for writer in range(bank.WRITERS)]
            works += [lambda p=player: self._play(p) for player in players]
            works += [mirrored.ships(self._db, self._post)] if self._post.mirror else []
            threads = [
                threading.Thread(target=self._until, args=(work, stop))
                for work in (*works, self._tags(), self._nests())
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            if self._failures:
                raise self._failures[0]

    def _until(self, work: Callable[[], None], stop: threading.Event) -> None:
        try:
            while not stop.is_set():
                work()
        except BaseException as error:  # noqa: BLE001 - it ends the process, with its trace
            self._failures.append(error)
            stop.set()

    def _write(self, writer: int) -> None:
        n = self._last[writer] = self._last[writer] + 1
        chance = random.Random(f"{self._post.seed} {writer} {n}")
        receipt = bank.transfer(self._db, writer, n, chance)
        acknowledged.note(self._file, writer, n, receipt.seq)

    def _play(self, player: Client) -> None:
        player.play()
        self._post.tally.add("owner's turn")
        time.sleep(0.002)  # a pace: the bank's writers want the process, too

    def _tags(self) -> Callable[[], None]:
        """Return what sets a tag at a time, and does nothing at others."""
        names = (f"{self._post.number} {n}" for n in range(1 << 30))
        due = [time.monotonic()]

        def work() -> None:
            time.sleep(0.05)
            if time.monotonic() >= due[0]:
                bank.tag(self._db, next(names), self._post.tagged)
                due[0] = time.monotonic() + TAG_S
                self._post.tally.add("tag")

        return work

    def _nests(self) -> Callable[[], None]:
        """Return what writes nested rows now and then."""
        chance, numbers = random.Random(f"{self._post.seed} {self._post.number}"), count(1)

        def work() -> None:
            time.sleep(0.05)
            nested.write(self._db, next(numbers), chance)
            self._post.tally.add("nested write")

        return work


class Joined:
    """A player in a process of its own, over the owner's socket or by its URL."""

    def __init__(self, post: Post) -> None:
        self._post, self._journal = post, Journal(post.journal)
        self._client = client_of(None, post, self._journal)

    def run(self, stop: threading.Event) -> None:
        """Play with whoever owns the store."""
        while not stop.is_set():
            with contextlib.suppress(*GONE):
                self._with_owner(stop)
            stop.wait(0.05)

    def _with_owner(self, stop: threading.Event) -> None:
        with self._connect() as db:
            if not isinstance(db, st.JoinedStore):
                return  # nobody owned it: that is the next owner's part
            self._client.db = db
            self._client.resolve()
            while not stop.wait(0.002):
                self._client.play()
                self._post.tally.add(f"{self._post.role}'s turn")

    def _connect(self) -> Any:
        if self._post.role == "joined":
            return st.connect(self._post.root, join=True, **bank.OPTIONS)
        if not self._post.url.exists():
            raise st.UnavailableError("no owner has served yet")
        return st.connect(self._post.url.read_text())


class Reader:
    """Looks, beside the owner, at what is newest and at what is past."""

    def __init__(self, post: Post) -> None:
        self._post, self._db = post, st.connect(post.root, read_only=True)
        self._chance = random.Random(post.seed)
        self._known = Acknowledged(post.acknowledged)
        self._client = client_of(self._db, post, Journal(post.journal))
        self._seen = 0

    def run(self, stop: threading.Event) -> None:
        """Look until told to stop."""
        with self._db:
            while not stop.wait(0.02):
                self._look()
                self._client.look(is_beside=True)
                self._post.tally.add("look")

    def _look(self) -> None:
        self._known.read_on()
        stocked = stock.acknowledged(self._post.stocked)
        with self._db.snapshot() as snapshot:
            last, seq = bank.check(snapshot), snapshot.seq
            assert seq >= self._seen, f"seq {seq} after {self._seen}"
            assert seq >= self._known.newest_seq, f"seq {seq} after an acknowledged one"
            self._seen = seq
            self._known.check(last, seq)
            stock.check(snapshot["stock"].to_arrow().to_pylist(), stocked)
            if self._chance.random() < 0.3:
                bank.check_filters(snapshot, last)
            nested.check(snapshot)
            self._look_back(seq)
            assert bank.check(snapshot) == last, f"seq {seq} changed"
            if self._chance.random() < PICKLED_SHARE:
                self._look_through(pickle.dumps(snapshot), last)

    def _look_through(self, pickled: bytes, last: dict[int, int]) -> None:
        """See that a pickled snapshot shows the same, also if the owner has gone on since."""
        with pickle.loads(pickled) as again:
            assert bank.check(again) == last, f"seq {again.seq} changed by pickling"
        self._post.tally.add("look through a pickled snapshot")

    def _look_back(self, upto: int) -> None:
        noted = bank.tagged(self._post.tagged, bank.TAGS_MAX)
        if noted and bank.is_at_tag(self._db, self._chance.choice(noted)):
            self._post.tally.add("look at a tag")
        oldest = self._db.status().oldest_seq
        seq = self._chance.randint(min(max(oldest, 3), upto), upto)
        with contextlib.suppress(st.SnapshotExpiredError), self._db.snapshot(seq=seq) as past:
            self._known.check(bank.check(past), seq)
            self._post.tally.add("look at the past")
