"""Generators of clients make one of `/openapi.json` that has all JSON routes and talks to a server.

openapi-python-client   a module of each route, with httpx and attrs
openapi-generator       a class with a method of each route, with urllib3 and pydantic; its jar,
                        and the Java that runs it, are in packages of the dev group
"""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import pyarrow as pa
import pytest

from siltstone.api.store import Store
from siltstone.server.http.route import ARROW
from siltstone.server.rest.server import RestServer
from tests.server.rest import rest_of

pytestmark = pytest.mark.filterwarnings("ignore")  # of the clients' own making
ROWS = pa.table({"id": [1, 2, 3], "v": ["a", "b", "c"]})
Served = tuple[Store, RestServer, Path]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Yield a store, its server, and the document of its routes as a file."""
    folder = tmp_path_factory.mktemp("generated")
    with rest_of(folder / "shop") as (db, service, rest):
        (folder / "openapi.json").write_bytes(rest.get("/openapi.json").body)
        yield db, service, folder / "openapi.json"


def filled(db: Store, name: str) -> None:
    db.create_table(name, ROWS.schema, primary_key="id").upsert(ROWS)


def ids_of(served: Served, *, with_rows: bool) -> set[str]:
    """Return the ids of the operations, with those that take rows or without."""
    _, service, document = served
    taking = {route.path for route in service.routes if route.takes == ARROW}
    paths = json.loads(document.read_text())["paths"]
    return {
        operation["operationId"]
        for path, operations in paths.items()
        for operation in operations.values()
        if with_rows or path not in taking
    }


def generated(module: str, start: str, arguments: Sequence[str]) -> None:
    """Run a generator, which `start` in its module starts; it must end well."""
    pytest.importorskip(module)
    script = f"from {module} import {start}; {start}()"
    command = [sys.executable, "-c", script, "generate", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, (done.stdout + done.stderr)[-2000:]


def imported(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(folder)
    return importlib.import_module(name)


def test_openapi_python_client_makes_a_client_of_all_json_routes(
    served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    db, service, document = served
    out = tmp_path / "made_by_openapi_python_client"
    to = ["--path", str(document), "--output-path", str(out), "--meta", "none"]
    generated("openapi_python_client.cli", "app", to)
    made = {path.stem for path in (out / "api" / "default").glob("*.py")} - {"__init__"}
    assert made >= ids_of(served, with_rows=False)
    package = imported(out.name, tmp_path, monkeypatch)

    def called(operation: str, *path: str, **given: Any) -> Any:
        module = importlib.import_module(f"{out.name}.api.default.{operation}")
        found = module.sync(*path, client=client, **given)
        return found.to_dict() if hasattr(found, "to_dict") else found

    def body(kind: str, members: dict[str, Any]) -> Any:
        return getattr(importlib.import_module(f"{out.name}.models"), kind).from_dict(members)

    filled(db, "k")
    with package.Client(base_url=service.url) as client:
        assert called("table")["tables"] == ["k"]
        detailed = body("DescribeTableRequest", {"load_detailed_metadata": True})
        described = called("table_id_describe", "k", body=detailed)
        assert [field["name"] for field in described["schema"]["fields"]] == ["id", "v"]
        assert called("table_id_count_rows", "k", body=body("CountRequest", {})) == 3
        updates = {"updates": [["v", "'z'"]], "predicate": "id = 1"}
        updated = called("table_id_update", "k", body=body("UpdateRequest", updates))
        assert updated["updated_rows"] == 1
        noted = {"updates": [{"path": "v", "metadata": {"unit": "m"}}]}
        found = called(
            "table_id_update_field_metadata", "k", body=body("FieldMetadataRequest", noted)
        )
        assert found["fields"] == {"v": {"unit": "m"}}
        refused = called("table_id_describe", "none", body=body("DescribeTableRequest", {}))
        assert refused["code"] == 4
    assert db["k"].get(1) == {"id": 1, "v": "z"}
    db.drop_table("k")


def test_openapi_generator_makes_a_client_of_all_routes(
    served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    db, service, document = served
    name, out = "made_by_openapi_generator", tmp_path / "out"
    to = ["-i", str(document), "-g", "python", "-o", str(out), "--package-name", name]
    generated("openapi_generator_cli", "cli", to)
    package: Any = imported(name, out, monkeypatch)
    assert set(dir(package.DefaultApi)) >= ids_of(served, with_rows=True)
    filled(db, "k")
    with package.ApiClient(package.Configuration(host=service.url)) as client:
        api = package.DefaultApi(client)
        assert api.table().tables == ["k"]
        detailed = package.DescribeTableRequest(load_detailed_metadata=True)
        described = api.table_id_describe("k", describe_table_request=detailed)
        assert described.location.startswith(str(db.path))
        assert api.table_id_count_rows("k", count_request=package.CountRequest()) == 3
        begun = api.transaction_begin()
        assert begun.id
        updates = package.UpdateRequest(updates=[["v", "'z'"]], predicate="id = 1")
        updated = api.table_id_update("k", updates, x_siltstone_txn=begun.id)
        assert updated.updated_rows == 1
        api.transaction_id_commit(begun.id)
        assert db["k"].get(1) == {"id": 1, "v": "z"}
        noted = api.table_id_schema_metadata_update("k", {"owner": "us"})
        assert noted == {"owner": "us"}
        with pytest.raises(package.ApiException) as caught:
            api.table_id_describe("none")
        assert json.loads(caught.value.body)["code"] == 4
    db.drop_table("k")
