"""A handle of a server is told of commits, and asks by itself only where it cannot be told."""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

import siltstone as st
from siltstone.api.following import LAST_PAUSE_S
from siltstone.joined.news.server_news import ServerNews
from siltstone.joined.store import JoinedStore
from siltstone.server.rest.limits import Limits
from siltstone.server.rest.native.follow import FOLLOWERS_MAX
from tests.server.stores import opened
from tests.server.test_rest_follow import following


@contextmanager
def served(folder: Path, **options: Any) -> Generator[tuple[st.Store, Any, JoinedStore]]:
    """Yield a store with an empty table, its server, and a handle of that."""
    with opened(folder / "s") as db:
        db.create_table("t", {"id": "int64"}, "id")
        service = db.serve(port=0, **options)
        with st.connect(service.url) as joined:
            assert isinstance(joined, JoinedStore)
            yield db, service, joined


def news_of(handle: JoinedStore) -> ServerNews:
    assert handle.server_news is not None
    return handle.server_news


def thread_of_news() -> threading.Thread | None:
    return next((t for t in threading.enumerate() if t.name == "siltstone-news"), None)


def test_all_who_wait_are_told_of_each_commit_by_one_connection(tmp_path: Path) -> None:
    with served(tmp_path) as (db, _, joined):
        news, told = news_of(joined), [threading.Event() for _ in range(3)]
        with ExitStack() as held:
            for each in told:
                held.enter_context(news.heard(each.set))
            for _ in range(2):
                for each in told:
                    assert each.wait(240)  # first of what was there before
                    each.clear()
                db["t"].insert({"id": db.seq})
            assert news.patience_s > LAST_PAUSE_S
            assert sum(t.name == "siltstone-news" for t in threading.enumerate()) == 1


def test_changes_of_a_server_come_in_order_with_their_types(tmp_path: Path) -> None:
    with served(tmp_path) as (db, _, joined):
        feed = joined.follow(db.seq)
        for number in range(20):
            db["t"].insert({"id": number})
            change = next(feed)
            assert (change.seq, change["t"].column("id").to_pylist()) == (db.seq, [number])


def test_a_feed_ends_with_its_handle_and_so_does_the_thread(tmp_path: Path) -> None:
    with served(tmp_path) as (db, _, joined):
        seen: queue.Queue[int | None] = queue.Queue()

        def watch() -> None:
            for change in joined.follow(db.seq):
                seen.put(change.seq)
            seen.put(None)

        watching = threading.Thread(target=watch)
        watching.start()
        db["t"].insert({"id": 1})
        assert seen.get(timeout=240) == db.seq
        thread = thread_of_news()
        joined.close()
        assert seen.get(timeout=240) is None
        watching.join()
        if thread is not None:
            thread.join(240)
        assert thread_of_news() is None


def test_a_stream_that_ends_after_its_time_is_begun_anew(tmp_path: Path) -> None:
    with served(tmp_path, limits=Limits(answer_timeout_s=0.5)) as (db, _, joined):
        feed, threads = joined.follow(db.seq), set[threading.Thread]()
        while len(threads) < 3:
            db["t"].insert({"id": db.seq})
            assert next(feed).seq == db.seq
            thread = thread_of_news()
            if thread is not None:
                threads.add(thread)
                thread.join()


def test_one_that_is_refused_looks_by_itself(tmp_path: Path) -> None:
    with served(tmp_path) as (db, service, joined), ExitStack() as held:
        for _ in range(FOLLOWERS_MAX):
            held.enter_context(following(service))
        feed = joined.follow(db.seq)
        for number in range(3):
            db["t"].insert({"id": number})
            assert next(feed).seq == db.seq
        assert news_of(joined).patience_s == LAST_PAUSE_S


def test_one_whose_server_ends_says_so(tmp_path: Path) -> None:
    with served(tmp_path) as (db, service, joined):
        feed = joined.follow(db.seq)
        db["t"].insert({"id": 1})
        assert next(feed).seq == db.seq
        closing = threading.Thread(target=service.close)
        closing.start()
        with pytest.raises(st.UnavailableError):
            next(feed)
        closing.join()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_the_child_of_a_fork_hears_nothing_and_the_parent_goes_on(tmp_path: Path) -> None:
    with served(tmp_path) as (db, _, joined):
        feed = joined.follow(db.seq)
        db["t"].insert({"id": 1})
        assert next(feed).seq == db.seq
        child = os.fork()
        if not child:
            try:
                os._exit(7 if list(feed) == [] else 1)
            finally:
                os._exit(2)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        db["t"].insert({"id": 2})
        assert next(feed).seq == db.seq
