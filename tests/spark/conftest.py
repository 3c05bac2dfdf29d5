"""One Spark session for all tests of a process: starting one takes as long as most of them do.

In `make test` all tests that use it are in one process.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from siltstone.spark import session
from siltstone.spark.context import application
from tests.children import paths_with_pandas
from tests.spark.followed_stores import World

HERE = Path(__file__).parent
SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.memory": "1g",
    # Minutes are too few for what an optimizing compiler costs on two cores.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.sql.shuffle.partitions": "2",
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.spark)
            # The first queries of a session start Java and Python processes, several each.
            item.add_marker(pytest.mark.timeout(900))
            # Spark looks at the versions of its parts whenever it starts.
            item.add_marker(
                pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas")
            )


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    warehouse = {"spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse"))}
    with pytest.MonkeyPatch.context() as patch:  # whoever installs Spark has pandas
        patch.setenv("PYTHONPATH", os.pathsep.join([*paths_with_pandas(), str(HERE / "warm")]))
        found = session({**SETTINGS, **warehouse}, master="local[2]")
    found.sparkContext.setLogLevel("FATAL")
    yield found
    found.stop()


@pytest.fixture(scope="module", autouse=True)
def knows_no_stores_of_other_modules() -> Iterator[None]:
    """Begin each module as a new application does: it remembers 256 stores (ADR 21)."""
    yield
    session = SparkSession.getActiveSession()
    known = None if session is None else application.of_session(session)
    if known is not None:
        for path in Path(known.folder).glob("siltstone-reads.json*"):
            path.unlink()


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    found = World(tmp_path)
    yield found
    found.close()
