"""What the page about clients shows runs as it stands, one block after the other, on one store."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "clients.md"
ADDRESS = "http://localhost:2333"
pytestmark = pytest.mark.filterwarnings("ignore")  # of the clients' own making


def blocks(title: str) -> list[tuple[str, str]]:
    """Return the blocks below a title of the page: their language and their text."""
    sections = re.split(r"^#+ (.*)$", PAGE.read_text(), flags=re.MULTILINE)
    (text,) = [
        below for name, below in zip(sections[1::2], sections[2::2], strict=True) if name == title
    ]
    return re.findall(r"```(\w+)\n(.*?)```", text, re.DOTALL)


@dataclass
class Shop:
    folder: Path
    address: str

    def run(self, title: str) -> None:
        """Run the blocks of a section, at our server instead of the page's."""
        for language, text in blocks(title):
            here = text.replace(ADDRESS, self.address)
            command = ["bash", "-euo", "pipefail"] if language == "bash" else [sys.executable, "-"]
            path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
            done = subprocess.run(
                command, input=here, capture_output=True, text=True, cwd=self.folder, timeout=250,
                check=False, env=os.environ | {"PATH": path},
            )  # fmt: skip
            assert done.returncode == 0, f"{here}\n{done.stdout}\n{done.stderr}"


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    folder = tmp_path_factory.mktemp("page")
    (_, text) = blocks("Use it from pylance, LanceDB, DuckDB, Spark, curl")[0]
    init, serve = (shlex.split(line)[1:] for line in text.splitlines())
    run = [sys.executable, "-m", "siltstone"]
    subprocess.run([*run, *init], cwd=folder, check=True, timeout=100, capture_output=True)
    serve[serve.index("2333")] = "0"
    server = subprocess.Popen(
        [*run, *serve], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    try:
        assert server.stdout is not None
        yield Shop(folder, server.stdout.readline().strip())
    finally:
        server.terminate()
        server.communicate()


def test_the_lines_for_curl_pylance_lancedb_and_duckdb_run(shop: Shop) -> None:
    for title in ("curl", "pylance", "LanceDB", "DuckDB and Polars"):
        shop.run(title)


@pytest.mark.spark
@pytest.mark.timeout(300)
def test_the_lines_for_spark_run(shop: Shop) -> None:
    if not (shop.folder / "shop" / "tables").is_dir() or not any(shop.folder.glob("shop/tables/*")):
        shop.run("curl")
    shop.run("Spark")
