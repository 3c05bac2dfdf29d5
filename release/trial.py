"""Trial: what a fresh environment is asked after siltstone was installed there.

    python -I trial.py README.md EXTRA

Runs without the checkout: it imports what is installed and nothing beside itself. The example of
README prints what stands below it. Where there is no DuckDB its lines of SQL are left out, and SQL
is refused by the name of its extra.
"""

import contextlib
import io
import json
import os
import re
import subprocess
import sys
import urllib.request
from collections.abc import Callable
from importlib.metadata import distribution
from importlib.util import find_spec
from pathlib import Path

import siltstone as st

EXAMPLE = re.compile(r"^```python\n(.*?)^```\n```text\n(.*?)^```\n", re.MULTILINE | re.DOTALL)
ROWS = [{"id": 1, "v": "a"}, {"id": 2, "v": "b"}]


def said_of(code: str) -> list[str]:
    """Return the lines that a code prints."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(code, {})
    return out.getvalue().splitlines()


def readme(page: Path) -> None:
    """Run the example of README, twice, as it says that one may."""
    found = EXAMPLE.search(page.read_text())
    assert found is not None, "README has no example with its output"
    lines = found[1].splitlines(keepends=True)
    kept = [line for line in lines if find_spec("duckdb") or ".sql(" not in line]
    for _ in range(2):
        told, wanted = said_of("".join(kept)), found[2].splitlines()
        assert len(wanted) - len(told) == len(lines) - len(kept), told
        assert [line for line in wanted if line in told] == told, told


def none() -> None:
    """Each part that is missing is refused by the name of its extra."""
    with st.connect("plain") as db:
        db.create_table("t", {"id": "int64", "v": "string"}, "id").upsert(ROWS)
        if find_spec("duckdb") is None:
            assert "siltstone[sql]" in refusal(lambda: db.sql("select 1"))
        if find_spec("starlette") is None:
            assert "siltstone[server]" in refusal(lambda: db.serve(port=0))
        if find_spec("obstore") is None:
            assert "siltstone[objects]" in refusal(bucket)
    assert "siltstone" in shell("--version")
    assert "t\tid" in shell("tables", "--db", "plain")


def refusal(call: Callable[[], object]) -> str:
    """Return with what words a call is refused."""
    try:
        call()
    except st.SiltstoneError as error:
        return str(error)
    raise AssertionError("not refused")


def sql() -> None:
    with st.connect("plain") as db:
        db.sql("create table s (id bigint primary key)").fetchall()
        db.sql("insert into s values (1), (2)")
        assert db["s"].count() == 2


def pandas() -> None:
    with st.connect("plain") as db:
        assert db["t"].to_pandas()["v"].tolist() == ["a", "b"]


def polars() -> None:
    with st.connect("plain") as db:
        assert db["t"].to_polars()["v"].to_list() == ["a", "b"]


def demo() -> None:
    shell("demo", "--seconds", "1", "--keep", "flights")
    assert "flights" in shell("tables", "--db", "flights")


def server() -> None:
    with st.connect("plain") as db:
        service = db.serve(port=0)
        for path, words in (("console", "<title>"), ("console/app.js", "import"), ("healthz", "")):
            with urllib.request.urlopen(f"{service.url}/{path}", timeout=60) as answer:
                assert words in answer.read().decode()
        with st.connect(service.url) as other:
            assert other["t"].get(2) == {"id": 2, "v": "b"}


def bucket() -> None:
    """Read a store in a bucket where nothing listens."""
    os.environ |= {"AWS_ENDPOINT": "http://127.0.0.1:1", "AWS_ALLOW_HTTP": "true"}
    os.environ |= {"AWS_ACCESS_KEY_ID": "none", "AWS_SECRET_ACCESS_KEY": "none"}
    st.connect("s3://bucket/none", read_only=True)


def objects() -> None:
    said = refusal(bucket)
    assert "siltstone[" not in said, said


def spark() -> None:
    from siltstone.spark import session
    from siltstone.spark.catalog import jars

    assert jars.jar() == jars.PACKAGED / "siltstone-4.3.jar", jars.jar()
    spark = session(master="local[1]", stores={"lake": "plain"})
    try:
        spark.sql("INSERT INTO lake.t VALUES (3, 'c')")
        assert [row.v for row in spark.sql("SELECT v FROM lake.t ORDER BY id").collect()] == [
            *"abc"
        ]
    finally:
        spark.stop()


def shell(*words: str) -> str:
    """Run a command of siltstone, and return what it prints."""
    command = [Path(sys.executable).with_name("siltstone"), *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def metadata() -> None:
    """The archive says what pyproject.toml says."""
    told = distribution("siltstone").metadata.json
    assert told["author"] == "Siltstone developers", told
    assert told["license_expression"] == "Apache-2.0"
    assert any(url.startswith("Homepage, https://") for url in told["project_url"])
    assert Path(st.__file__).with_name("py.typed").exists()
    origin = json.loads(distribution("siltstone").read_text("direct_url.json") or "{}")
    assert "archive_info" in origin, "not installed from an archive"


TRIALS = {each.__name__: each for each in (sql, pandas, polars, demo, spark, objects, server)}

if __name__ == "__main__":
    page, extra = Path(sys.argv[1]), sys.argv[2]
    metadata()
    readme(page)
    none()
    for each in TRIALS.values() if extra == "all" else [TRIALS[extra]] if extra != "none" else []:
        each()
