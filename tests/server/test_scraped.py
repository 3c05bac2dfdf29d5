"""Clients that ask for metrics all the time hold up no writer, no checkpoint and no end."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx

import siltstone as st
from tests.cli.test_systemd import ended, serving, url_of
from tests.nightly import by_day

WRITERS, SCRAPERS = 4, 2
ROWS = by_day(40, 400)


def test_writers_beside_clients_that_scrape_without_a_pause_lose_nothing(tmp_path: Path) -> None:
    store, over = tmp_path / "shop", threading.Event()

    def write(url: str, writer: int) -> list[int]:
        acknowledged: list[int] = []
        with httpx.Client(base_url=url, timeout=240) as client:
            for number in range(writer, ROWS * WRITERS, WRITERS):
                op = {"table": "t", "op": "insert", "rows": [{"id": number}]}
                answer = client.post("/v1/transaction/apply", json={"ops": [op]})
                assert answer.status_code == 200, answer.text
                acknowledged.append(number)
        return acknowledged

    def scrape(url: str) -> int:
        last = scrapes = 0
        with httpx.Client(base_url=url, timeout=240) as client:
            while not over.is_set():
                answer = client.get("/metrics")
                assert answer.status_code == 200
                (line,) = [
                    each
                    for each in answer.text.splitlines()
                    if each.startswith("siltstone_durable_seq ")
                ]
                seq = int(float(line.split()[1]))
                assert seq >= last  # also where it is the last text again
                last, scrapes = seq, scrapes + 1
        return scrapes

    with serving(store) as child:
        url = url_of(child)
        with st.connect(url) as db:
            db.create_table("t", {"id": "int64"}, "id")
        with ThreadPoolExecutor(WRITERS + SCRAPERS) as pool:
            scrapers = [pool.submit(scrape, url) for _ in range(SCRAPERS)]
            try:
                writers = [pool.submit(write, url, number) for number in range(WRITERS)]
                with st.connect(url) as db:
                    db.checkpoint()
                acknowledged = [number for each in writers for number in each.result()]
            finally:
                over.set()
            assert all(each.result() for each in scrapers)
        assert "Traceback" not in ended(child)
    with st.connect(store, read_only=True) as db:
        found = db["t"].to_arrow()["id"].to_pylist()
    assert len(acknowledged) == len(found) == ROWS * WRITERS
    assert set(acknowledged) == set(found)
