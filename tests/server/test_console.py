"""The console is files of the package, which say nothing of the store and run nothing of others."""

from __future__ import annotations

import io
import re
from html.parser import HTMLParser
from importlib.resources import files
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

from siltstone.server.rest.tokens import new_token, tokens_of
from tests.server.rest import Rest, rest_of

SECRET = new_token()
TOKENS = tokens_of(f"reader read {SECRET}", "test")
ROWS = pa.table(
    {
        "id": pa.array(range(5), pa.int64()),
        "text": ["a", 'b "c"', "d,e", "", None],
        "at": pa.array([0, 1, None, 3, 4], pa.timestamp("us", "UTC")),
        "vector": pa.array([[1.0, 2.0]] * 5, pa.list_(pa.float32(), 2)),
        "blob": [b"x"] * 5,
    }
)


def sources() -> dict[str, str]:
    pages = files("siltstone.server.console").iterdir()
    return {
        each.name: each.read_text() for each in pages if each.name.endswith(("html", "css", "js"))
    }


class Parts(HTMLParser):
    """What a page names, and what it has that a strict policy forbids."""

    def __init__(self) -> None:
        super().__init__()
        self.named, self.forbidden = list[str](), list[str]()
        self._inside = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name in {"src", "href"} and value and not value.startswith("#"):
                self.named.append(value)
            if name == "style" or name.startswith("on"):
                self.forbidden.append(name)
        self._inside = tag

    def handle_data(self, data: str) -> None:
        if self._inside in {"script", "style"} and data.strip():
            self.forbidden.append(data)


def test_the_root_leads_to_the_console_and_its_page_names_files_that_are_there(
    tmp_path: Path,
) -> None:
    with rest_of(tmp_path / "shop", tokens=TOKENS) as (_, _, rest):
        root = rest.get("/")
        assert (root.status, root.headers["location"]) == (307, "console")
        page = rest.get("/console")
        parts = Parts()
        parts.feed(page.body.decode())
        assert parts.forbidden == []
        assert len(parts.named) >= 3
        for name in parts.named:
            found = rest.get(f"/{name}")
            assert found.status == 200, name
            assert found.headers["content-type"].startswith(("text/", "image/svg+xml"))
            moved = rest.get(f"/console/{name}")  # what a browser at `/console/` asks for
            assert (moved.status, moved.headers["location"]) == (308, f"../{name.split('/')[1]}")
        for name in sources():
            assert rest.get(f"/console/{name}").status == 200
        assert rest.get("/console/nothing.js").status == 404
        assert rest.get("/console/console/nothing.js").status == 404
        assert rest.get("/console/..%2f__init__.py").status == 404
        assert rest.get("/console/__init__.py").status == 404


def test_each_answer_of_the_console_lets_a_browser_run_and_ask_this_server_alone(
    tmp_path: Path,
) -> None:
    with rest_of(tmp_path / "shop") as (_, _, rest):
        for path in ("/", "/console", "/console/app.js", "/console/nothing.js"):
            headers = rest.get(path).headers
            policy = dict(
                each.split(" ", 1) for each in headers["content-security-policy"].split("; ")
            )
            assert policy["default-src"] == "'none'"
            assert policy["frame-ancestors"] == "'none'"
            assert {policy[name] for name in ("script-src", "connect-src", "style-src")} == {
                "'self'"
            }
            assert headers["x-content-type-options"] == "nosniff"


def test_the_console_asks_routes_of_rest_and_no_other_server(tmp_path: Path) -> None:
    with rest_of(tmp_path / "shop") as (_, service, _):
        known = {re.sub(r"\{\w+\}", "*", path.path.strip("/")) for path in service.routes}
    asked = set[str]()
    for name, text in sources().items():
        assert not re.search(r"(?:src|href|import|fetch)\W{0,3}[\"'(]https?:", text), name
        assert "innerHTML" not in text
        for found in re.findall(r"[\"`](v1/[^\"`?]+|metrics)", text):
            asked.add(re.sub(r"\$\{[^}]*\}+\)?\}?", "*", found))
    jobs = {f"v1/{kind}" for kind in ("checkpoint", "merge", "optimize")}
    assert asked - {"v1/*"} <= known
    assert jobs <= known
    assert {"v1/status", "v1/sql", "v1/log", "v1/diff", "v1/jobs", "metrics"} <= asked


def exported(rest: Rest, form: str, sql: str = "SELECT * FROM t ORDER BY id") -> bytes:
    answer = rest.post(f"/v1/sql?format={form}", {"sql": sql})
    assert answer.status == 200, answer.body
    return answer.body


def test_a_statement_answers_with_a_parquet_file_that_has_the_types(tmp_path: Path) -> None:
    with rest_of(tmp_path / "shop") as (db, _, rest):
        db.create_table("t", data=ROWS, primary_key="id")
        found = pyarrow.parquet.read_table(io.BytesIO(exported(rest, "parquet")))
        assert found.to_pylist() == ROWS.to_pylist()
        assert found.schema.field("vector").type.list_size == 2
        none = exported(rest, "parquet", "SELECT * FROM t WHERE id > 99")
        assert pyarrow.parquet.read_table(io.BytesIO(none)).num_rows == 0


def test_a_statement_answers_with_csv_that_tells_empty_from_missing(tmp_path: Path) -> None:
    with rest_of(tmp_path / "shop") as (db, _, rest):
        db.create_table("t", data=ROWS, primary_key="id")
        body = exported(rest, "csv")
        assert body.startswith(b'"id","text","at","vector","blob"\n0,"a",')
        how = pyarrow.csv.ConvertOptions(strings_can_be_null=True, quoted_strings_can_be_null=False)
        found = pyarrow.csv.read_csv(io.BytesIO(body), convert_options=how)
        assert found["text"].to_pylist() == ROWS["text"].to_pylist()
        assert found["vector"].to_pylist() == ["[1.0,2.0]"] * 5
        assert found["blob"].to_pylist() == ["eA=="] * 5


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_many_rows_come_as_a_whole_file(tmp_path: Path, form: str) -> None:
    sql = "SELECT i, repeat('x', 100) AS x FROM range(150000) AS t(i)"
    with rest_of(tmp_path / "shop") as (_, _, rest):
        body = io.BytesIO(exported(rest, form, sql))
    read = pyarrow.csv.read_csv if form == "csv" else pyarrow.parquet.read_table
    found = read(body)
    assert found.num_rows == 150_000
    assert found["i"].to_pylist() == [*range(150_000)]


def test_a_form_that_is_none_is_refused_and_writes_nothing(tmp_path: Path) -> None:
    with rest_of(tmp_path / "shop") as (db, _, rest):
        t = db.create_table("t", {"id": "int64"}, "id")
        answer = rest.post("/v1/sql?format=xlsx", {"sql": "INSERT INTO t VALUES (1)"})
        assert answer.code == (400, 13)
        assert "ndjson, arrow, csv or parquet" in answer.json["error"]
        assert t.count() == 0
        rows = rest.post("/v1/sql?format=csv", {"sql": "INSERT INTO t VALUES (1) RETURNING id"})
        assert rows.body == b'"id"\n1\n'
        assert rest.get("/v1/diff?a=0&format=csv").code == (400, 13)


def test_the_store_needs_a_token_where_the_console_does_not(tmp_path: Path) -> None:
    with rest_of(tmp_path / "shop", tokens=TOKENS) as (_, _, rest):
        assert rest.get("/console").status == 200
        assert rest.get("/v1/status").status in {401, 403}
        assert b"shop" not in rest.get("/console").body


def test_no_page_of_another_site_may_show_the_console_of_a_store_without_tokens(
    tmp_path: Path,
) -> None:
    with rest_of(tmp_path / "shop") as (_, _, rest):
        assert rest.get("/console", host="evil.example").status == 403
