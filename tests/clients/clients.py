"""Clients: how each client that is not ours does the operations.

What a client does not offer is no method. One returns nothing, or a remark on what the client
gets; it raises what the client raises. Long, because what two clients do differently is seen best
side by side.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
from typing import Any

import lance
import lancedb
import pyarrow as pa
from lance.namespace import RestNamespace
from lance_namespace_urllib3_client import models as m

import siltstone as st
from siltstone.server.rest.server import RestServer
from tests.clients.operations import CHANGED, NEW, ROWS
from tests.namespace.staging import Staging
from tests.server.rest import Rest, stream_of

MERGED = "as of the last merge"
FRESH = {"header.x-siltstone-keyed": "fresh"}


class Refused(Exception):
    """An answer that is an error, of a client that raises none; `code` is the specification's."""

    def __init__(self, status: int, code: int) -> None:
        self.status, self.code = status, code
        super().__init__(f"{status}/{code}")


def seen(rows: int) -> str | None:
    """Return the remark on a keyed table of which a client sees so many rows."""
    assert rows in {3, 4}, rows
    return MERGED if rows == 3 else None


class Client:
    """What all have: a store, its server, and plain HTTP for what the client has no words for."""

    def __init__(self, db: st.Store, service: RestServer) -> None:
        self.db, self.service = db, service

    def rest(self, path: str, body: object = None, **headers: str) -> Any:
        rest = Rest(self.service, **headers)
        answer = rest.post(path, body)
        rest.close()
        if answer.status >= 400:
            raise Refused(*answer.code)
        return answer

    def read_keyed(self) -> str | None:
        """Read the keyed table, as the client does if nobody tells it more."""
        raise NotImplementedError

    def read_fresh(self) -> None:
        """Read it with the row that was committed a moment ago; most clients see it anyway."""
        assert self.read_keyed() is None

    @contextlib.contextmanager
    def headers_of_transaction(self) -> Any:
        key = self.rest("/v1/transaction/begin").json["id"]
        yield {"header.x-siltstone-txn": key}
        self.rest(f"/v1/transaction/{key}/commit")


class Pylance(Client):
    name = "pylance"

    def _space(self, **headers: str) -> Any:
        return RestNamespace(uri=self.service.url, **headers)

    def _open(self, name: str, space: Any = None, **options: Any) -> Any:
        return lance.dataset(namespace_client=space or self._space(), table_id=[name], **options)

    def _write(self, name: str, mode: str, rows: pa.Table = NEW, space: Any = None) -> None:
        target = space or self._space()
        lance.write_dataset(rows, namespace_client=target, table_id=[name], mode=mode)

    def list_tables(self) -> None:
        assert self._space().list_tables(m.ListTablesRequest(id=[])).tables == ["k", "p", "q"]

    def describe(self) -> None:
        assert self._open("p").schema.names == ["id", "v", "e"]

    def create(self) -> None:
        self._write("made", "create", ROWS)

    def create_keyed(self) -> None:
        key = {"primary_key": "id"}
        request = m.CreateTableRequest(id=["made"], properties=key)
        self._space().create_table(request, stream_of(ROWS))

    def drop(self) -> None:
        self._space().drop_table(m.DropTableRequest(id=["p"]))

    def rename(self) -> None:
        self._space().rename_table(m.RenameTableRequest(id=["p"], new_table_name="other"))

    def read_plain(self) -> None:
        assert self._open("p").to_table().num_rows == 3

    def read_keyed(self) -> str | None:
        return seen(self._open("k").to_table().num_rows)

    def read_fresh(self) -> None:
        fresh = self._space(**FRESH)
        assert self._open("k", fresh).to_table().num_rows == 4

    def filter_keyed(self) -> str | None:
        found = self._open("k").to_table(columns=["v"], filter="id > 0")
        assert found.schema.names == ["v"]
        return seen(found.num_rows)

    def nearest(self) -> None:
        near = {"column": "e", "q": [2.1, 0.0], "k": 1}
        assert self._open("p").to_table(nearest=near)["id"].to_pylist() == [2]

    def count(self) -> None:
        assert self._open("p").count_rows("id > 1") == 2

    def read_past(self) -> None:
        version = self._open("p").version
        self._write("p", "append")
        assert self._open("p", version=version).count_rows() == 3

    def append(self) -> None:
        self._write("p", "append")

    def insert_keyed(self) -> None:
        self._space().insert_into_table(m.InsertIntoTableRequest(id=["k"]), stream_of(NEW))

    def overwrite(self) -> None:
        self._write("p", "overwrite")

    def merge(self) -> None:
        builder = self._open("p").merge_insert("id").when_matched_update_all()
        builder.when_not_matched_insert_all().execute(CHANGED)

    def merge_keyed(self) -> None:
        request = m.MergeInsertIntoTableRequest(
            id=["k"], on=["id"], when_matched_update_all=True, when_not_matched_insert_all=True
        )
        self._space().merge_insert_into_table(request, stream_of(CHANGED))

    def update(self) -> None:
        self._open("p").update({"v": "'z'"}, where="id = 2")

    def update_keyed(self) -> None:
        request = m.UpdateTableRequest(id=["k"], predicate="id = 2", updates=[["v", "'z'"]])
        self._space().update_table(request)

    def delete(self) -> None:
        self._open("p").delete("id = 2")

    def delete_keyed(self) -> None:
        request = m.DeleteFromTableRequest(id=["k"], predicate="id = 2")
        self._space().delete_from_table(request)

    def add_column(self) -> None:
        self._open("p").add_columns(pa.field("n", pa.int64()))

    def drop_column(self) -> None:
        self._open("p").drop_columns(["v"])

    def index(self) -> None:
        self._open("p").create_scalar_index("id", "BTREE")
        assert len(self._open("p").describe_indices()) == 1

    def index_keyed(self) -> None:
        request = m.CreateTableIndexRequest(id=["k"], column="id", index_type="BTREE")
        self._space().create_table_scalar_index(request)

    def versions(self) -> None:
        request = m.ListTableVersionsRequest(id=["p"])
        assert self._space().list_table_versions(request).versions

    def restore(self) -> None:
        before = self._open("p").version
        self._open("p").delete("id = 2")
        self._open("p", version=before).restore()

    def tag(self) -> None:
        version = self._open("p").version
        request = m.CreateTableTagRequest(id=["p"], tag="kept", version=version)
        self._space().create_table_tag(request)
        asked = m.GetTableTagVersionRequest(id=["p"], tag="kept")
        assert self._space().get_table_tag_version(asked).version == version

    def compact(self) -> None:
        self._open("p").optimize.compact_files()

    def mem_wal(self) -> None:
        self._open("p").initialize_mem_wal(unsharded=True)

    def batch(self) -> None:
        operations = [
            m.CommitTableOperation(create_table_version=m.CreateTableVersionRequest(**request))
            for request in staged_by(self._space())
        ]
        self._space().batch_commit_tables(m.BatchCommitTablesRequest(operations=operations))

    def transaction(self) -> None:
        with self.headers_of_transaction() as headers:
            for name in ("p", "q"):
                self._write(name, "append", space=self._space(**headers))

    def snapshot(self) -> None:
        at = self._space(**{"header.x-siltstone-snapshot": f"seq:{self.db.seq}"})
        self._write("p", "append")
        assert [self._open(name, at).count_rows() for name in ("p", "q")] == [3, 3]

    def branch(self) -> None:
        self._space().list_table_branches(m.ListTableBranchesRequest(id=["p"]))


def staged_by(space: Any) -> list[dict[str, Any]]:
    """Return the requests by which a client would commit rows to two tables."""
    found: list[dict[str, Any]] = []
    for name in ("p", "q"):
        client = Staging(_Asking(space))  # type: ignore[arg-type]
        with contextlib.suppress(OSError):  # it looks for the version that it believes committed
            lance.write_dataset(NEW, namespace_client=client, table_id=[name], mode="append")
        found.append(client.staged[0])
    return found


class _Asking:
    """Takes requests as Lance gives them to a client in Python: as dicts."""

    def __init__(self, space: Any) -> None:
        self._space = space

    def describe_table(self, request: Any) -> Any:
        return self._space.describe_table(m.DescribeTableRequest.from_dict(dict(request)))

    def list_table_versions(self, request: Any) -> Any:
        return self._space.list_table_versions(m.ListTableVersionsRequest.from_dict(dict(request)))

    def describe_table_version(self, request: Any) -> Any:
        made = m.DescribeTableVersionRequest.from_dict(dict(request))
        return self._space.describe_table_version(made)


class _LanceDB(Client):
    """What both ways into LanceDB have in common."""

    def _db(self, **headers: str) -> Any:
        raise NotImplementedError

    def _open(self, name: str, **headers: str) -> Any:
        return self._db(**headers).open_table(name)

    def list_tables(self) -> None:
        assert sorted(self._db().table_names()) == ["k", "p", "q"]

    def describe(self) -> None:
        assert self._open("p").schema.names == ["id", "v", "e"]

    def create(self) -> None:
        self._db().create_table("made", ROWS)

    def drop(self) -> None:
        self._db().drop_table("p")

    def rename(self) -> None:
        self._db().rename_table("p", "other")

    def read_plain(self) -> None:
        assert self._open("p").search().limit(10).to_arrow().num_rows == 3

    def read_keyed(self) -> str | None:
        return seen(self._open("k").search().limit(10).to_arrow().num_rows)

    def filter_keyed(self) -> str | None:
        found = self._open("k").search().where("id > 0").select(["v"]).limit(9).to_arrow()
        assert found.schema.names == ["v"]
        return seen(found.num_rows)

    def nearest(self) -> None:
        assert self._open("p").search([2.1, 0.0]).limit(1).to_arrow()["id"].to_pylist() == [2]

    def count(self) -> None:
        assert self._open("p").count_rows("id > 1") == 2

    def read_past(self) -> None:
        table = self._open("p")
        version = table.version
        table.add(NEW)
        table.checkout(version)
        assert table.count_rows() == 3

    def append(self) -> None:
        self._open("p").add(NEW)

    def insert_keyed(self) -> None:
        self._open("k").add(NEW)

    def overwrite(self) -> None:
        self._open("p").add(NEW, mode="overwrite")

    def _merge(self, name: str) -> None:
        builder = self._open(name).merge_insert("id").when_matched_update_all()
        builder.when_not_matched_insert_all().execute(CHANGED)

    def merge(self) -> None:
        self._merge("p")

    def merge_keyed(self) -> None:
        self._merge("k")

    def update(self) -> None:
        self._open("p").update(where="id = 2", values={"v": "z"})

    def update_keyed(self) -> None:
        self._open("k").update(where="id = 2", values={"v": "z"})

    def delete(self) -> None:
        self._open("p").delete("id = 2")

    def delete_keyed(self) -> None:
        self._open("k").delete("id = 2")

    def add_column(self) -> None:
        self._open("p").add_columns({"n": "cast(NULL as bigint)"})

    def drop_column(self) -> None:
        self._open("p").drop_columns(["v"])

    def index(self) -> None:
        self._open("p").create_scalar_index("id", index_type="BTREE")

    def index_keyed(self) -> None:
        self._open("k").create_scalar_index("id", index_type="BTREE")

    def versions(self) -> None:
        assert self._open("p").list_versions()

    def restore(self) -> None:
        table = self._open("p")
        before = table.version
        table.delete("id = 2")
        table.restore(before)

    def tag(self) -> None:
        table = self._open("p")
        table.tags.create("kept", table.version)
        assert table.tags.get_version("kept") == table.version

    def compact(self) -> None:
        self._open("p").optimize()

    def branch(self) -> None:
        self._open("p").branches.list()


class LanceDBNamespace(_LanceDB):
    name = "LanceDB, connect_namespace"

    def _db(self, **headers: str) -> Any:
        return lancedb.connect_namespace("rest", {"uri": self.service.url, **headers})

    def read_fresh(self) -> None:
        assert self._open("k", **FRESH).count_rows() == 4

    def transaction(self) -> None:
        with self.headers_of_transaction() as headers:
            for name in ("p", "q"):
                self._open(name, **headers).add(NEW)

    def snapshot(self) -> None:
        at = {"header.x-siltstone-snapshot": f"seq:{self.db.seq}"}
        self._open("p").add(NEW)
        assert [self._open(name, **at).count_rows() for name in ("p", "q")] == [3, 3]


class LanceDBRemote(_LanceDB):
    name = "LanceDB, remote"

    def _db(self, **headers: str) -> Any:
        named = {name.removeprefix("header."): value for name, value in headers.items()}
        config = {"extra_headers": named} if named else None
        return lancedb.connect(
            "db://dev", api_key="any", host_override=self.service.url, client_config=config
        )

    def transaction(self) -> None:
        with self.headers_of_transaction() as headers:
            for name in ("p", "q"):
                self._open(name, **headers).add(NEW)

    def snapshot(self) -> None:
        at = {"header.x-siltstone-snapshot": f"seq:{self.db.seq}"}
        self._open("p").add(NEW)
        assert [self._open(name, **at).count_rows() for name in ("p", "q")] == [3, 3]


class Generated(Client):
    name = "generated client"

    def _ask(self, api: str, verb: str, *given: Any, headers: Any = (), **more: Any) -> Any:
        import lance_namespace_urllib3_client as generated

        with generated.ApiClient(generated.Configuration(host=self.service.url)) as client:
            for name, value in dict(headers).items():
                client.set_default_header(name.removeprefix("header."), value)
            return getattr(getattr(generated, api)(client), verb)(*given, **more)

    def _rows(self, name: str, headers: Any = (), **more: Any) -> pa.Table:
        vector = m.QueryTableRequestVector(single_vector=more.pop("near", []))
        query = m.QueryTableRequest(k=more.pop("k", 9), vector=vector, **more)
        found = self._ask("DataApi", "query_table", name, query, headers=headers)
        return pa.ipc.open_file(bytes(found)).read_all()

    def _version(self) -> int:
        return self._ask("TableApi", "list_table_versions", "p").versions[-1].version

    def list_tables(self) -> None:
        assert self._ask("TableApi", "list_tables", "$").tables == ["k", "p", "q"]

    def describe(self) -> None:
        asked = m.DescribeTableRequest(load_detailed_metadata=True)
        found = self._ask("TableApi", "describe_table", "p", asked)
        assert [field.name for field in found.var_schema.fields] == ["id", "v", "e"]

    def create(self) -> None:
        self._ask("DataApi", "create_table", "made", stream_of(ROWS))

    def create_keyed(self) -> None:
        key = {"primary_key": "id"}
        self._ask("DataApi", "create_table", "made", stream_of(ROWS), properties=json.dumps(key))

    def drop(self) -> None:
        self._ask("TableApi", "drop_table", "p")

    def rename(self) -> None:
        self._ask("TableApi", "rename_table", "p", m.RenameTableRequest(new_table_name="other"))

    def read_plain(self) -> None:
        assert self._rows("p").num_rows == 3

    def read_keyed(self) -> str | None:
        return seen(self._rows("k").num_rows)

    def filter_keyed(self) -> str | None:
        columns = m.QueryTableRequestColumns(column_names=["v"])
        found = self._rows("k", filter="id > 0", columns=columns)
        assert found.schema.names == ["v"]
        return seen(found.num_rows)

    def nearest(self) -> None:
        assert self._rows("p", near=[2.1, 0.0], k=1)["id"].to_pylist() == [2]

    def count(self) -> None:
        asked = m.CountTableRowsRequest(predicate="id > 1")
        assert self._ask("DataApi", "count_table_rows", "p", asked) == 2

    def read_past(self) -> None:
        version = self._version()
        self.append()
        assert self._rows("p", version=version).num_rows == 3

    def append(self) -> None:
        self._ask("DataApi", "insert_into_table", "p", stream_of(NEW))

    def insert_keyed(self) -> None:
        self._ask("DataApi", "insert_into_table", "k", stream_of(NEW))

    def overwrite(self) -> None:
        self._ask("DataApi", "insert_into_table", "p", stream_of(NEW), mode="overwrite")

    def _merge(self, name: str) -> None:
        how = {"when_matched_update_all": True, "when_not_matched_insert_all": True}
        body = stream_of(CHANGED)
        self._ask("DataApi", "merge_insert_into_table", name, on=["id"], body=body, **how)

    def merge(self) -> None:
        self._merge("p")

    def merge_keyed(self) -> None:
        self._merge("k")

    def _update(self, name: str) -> None:
        asked = m.UpdateTableRequest(predicate="id = 2", updates=[["v", "'z'"]])
        self._ask("DataApi", "update_table", name, asked)

    def update(self) -> None:
        self._update("p")

    def update_keyed(self) -> None:
        self._update("k")

    def _delete(self, name: str) -> None:
        asked = m.DeleteFromTableRequest(predicate="id = 2")
        self._ask("DataApi", "delete_from_table", name, asked)

    def delete(self) -> None:
        self._delete("p")

    def delete_keyed(self) -> None:
        self._delete("k")

    def add_column(self) -> None:
        new = m.AddColumnsEntry(name="n", expression="CAST(NULL AS BIGINT)")
        asked = m.AlterTableAddColumnsRequest(new_columns=[new])
        self._ask("TableApi", "alter_table_add_columns", "p", asked)

    def drop_column(self) -> None:
        asked = m.AlterTableDropColumnsRequest(columns=["v"])
        self._ask("TableApi", "alter_table_drop_columns", "p", asked)

    def _index(self, name: str) -> None:
        asked = m.CreateTableIndexRequest(column="id", index_type="BTREE")
        self._ask("IndexApi", "create_table_scalar_index", name, asked)

    def index(self) -> None:
        self._index("p")

    def index_keyed(self) -> None:
        self._index("k")

    def versions(self) -> None:
        assert self._version()

    def restore(self) -> None:
        version = self._version()
        self._delete("p")
        self._ask("TableApi", "restore_table", "p", m.RestoreTableRequest(version=version))

    def tag(self) -> None:
        version = self._version()
        self._ask(
            "TagApi", "create_table_tag", "p", m.CreateTableTagRequest(tag="t", version=version)
        )
        asked = m.GetTableTagVersionRequest(tag="t")
        assert self._ask("TagApi", "get_table_tag_version", "p", asked).version == version

    def batch(self) -> None:
        operations = [
            m.CommitTableOperation(create_table_version=m.CreateTableVersionRequest(**request))
            for request in staged_by(RestNamespace(uri=self.service.url))
        ]
        asked = m.BatchCommitTablesRequest(operations=operations)
        self._ask("TransactionApi", "batch_commit_tables", asked)

    def transaction(self) -> None:
        with self.headers_of_transaction() as headers:
            for name in ("p", "q"):
                self._ask("DataApi", "insert_into_table", name, stream_of(NEW), headers=headers)

    def snapshot(self) -> None:
        at = {"x-siltstone-snapshot": f"seq:{self.db.seq}"}
        self.append()
        assert [self._rows(name, headers=at).num_rows for name in ("p", "q")] == [3, 3]

    def branch(self) -> None:
        self._ask("TableApi", "list_table_branches", "p")


class Curl(Client):
    name = "curl"

    def _ask(self, path: str, body: object = None, *options: str, method: str = "POST") -> bytes:
        command = ["curl", "-s", "-X", method, "-w", "%{stderr}%{http_code}", *options]
        if not isinstance(body, bytes):
            body = b"" if body is None else json.dumps(body).encode()
        url = f"{self.service.url}/v1/{path}"
        done = subprocess.run(
            [*command, "--data-binary", "@-", url] if method == "POST" else [*command, url],
            input=body, capture_output=True, timeout=60, check=True,
        )  # fmt: skip
        status = int(done.stderr)
        if status >= 400:
            raise Refused(status, json.loads(done.stdout)["code"])
        return done.stdout

    def _rows(self, name: str, query: dict[str, Any], *options: str) -> pa.Table:
        return pa.ipc.open_stream(self._ask(f"table/{name}/scan", query, *options)).read_all()

    def _version(self) -> int:
        return json.loads(self._ask("table/p/version/list"))["versions"][-1]["version"]

    def list_tables(self) -> None:
        assert json.loads(self._ask("table", method="GET"))["tables"] == ["k", "p", "q"]

    def describe(self) -> None:
        found = json.loads(self._ask("table/p/describe?load_detailed_metadata=true"))
        assert [field["name"] for field in found["schema"]["fields"]] == ["id", "v", "e"]

    def create(self) -> None:
        self._ask("table/made/create", stream_of(ROWS))

    def create_keyed(self) -> None:
        self._ask("table/made/create?primary_key=id", stream_of(ROWS))

    def drop(self) -> None:
        self._ask("table/p/drop")

    def rename(self) -> None:
        self._ask("table/p/rename", {"new_table_name": "other"})

    def read_plain(self) -> None:
        assert self._rows("p", {}).num_rows == 3

    def read_keyed(self) -> str | None:
        return seen(self._rows("k", {}).num_rows)

    def filter_keyed(self) -> str | None:
        found = self._rows("k", {"filter": "id > 0", "columns": ["v"]})
        assert found.schema.names == ["v"]
        return seen(found.num_rows)

    def nearest(self) -> None:
        assert self._rows("p", {"vector": [2.1, 0.0], "k": 1})["id"].to_pylist() == [2]

    def count(self) -> None:
        assert json.loads(self._ask("table/p/count_rows", {"predicate": "id > 1"})) == 2

    def read_past(self) -> None:
        version = self._version()
        self.append()
        assert self._rows("p", {"version": version}).num_rows == 3

    def append(self) -> None:
        self._ask("table/p/insert", stream_of(NEW))

    def insert_keyed(self) -> None:
        row = {"id": 9, "v": "new", "e": [9.0, 0.0]}
        insert = {"table": "k", "op": "insert", "rows": [row]}
        self._ask("transaction/apply", {"ops": [insert]})

    def overwrite(self) -> None:
        self._ask("table/p/insert?mode=overwrite", stream_of(NEW))

    def _merge(self, name: str) -> None:
        how = "on=id&when_matched_update_all=true&when_not_matched_insert_all=true"
        self._ask(f"table/{name}/merge_insert?{how}", stream_of(CHANGED))

    def merge(self) -> None:
        self._merge("p")

    def merge_keyed(self) -> None:
        self._merge("k")

    def _update(self, name: str) -> None:
        self._ask(f"table/{name}/update", {"predicate": "id = 2", "updates": [["v", "'z'"]]})

    def update(self) -> None:
        self._update("p")

    def update_keyed(self) -> None:
        self._update("k")

    def delete(self) -> None:
        self._ask("table/p/delete", {"predicate": "id = 2"})

    def delete_keyed(self) -> None:
        self._ask("table/k/delete", {"predicate": "id = 2"})

    def add_column(self) -> None:
        new = {"name": "n", "expression": "CAST(NULL AS BIGINT)"}
        self._ask("table/p/add_columns", {"new_columns": [new]})

    def drop_column(self) -> None:
        self._ask("table/p/drop_columns", {"columns": ["v"]})

    def index(self) -> None:
        self._ask("table/p/create_scalar_index", {"column": "id", "index_type": "BTREE"})

    def index_keyed(self) -> None:
        self._ask("table/k/create_scalar_index", {"column": "id", "index_type": "BTREE"})

    def versions(self) -> None:
        assert self._version()

    def restore(self) -> None:
        version = self._version()
        self.delete()
        self._ask("table/p/restore", {"version": version})

    def tag(self) -> None:
        version = self._version()
        self._ask("table/p/tags/create", {"tag": "t", "version": version})
        found = json.loads(self._ask("table/p/tags/version", {"tag": "t"}))
        assert found["version"] == version

    def compact(self) -> None:
        self._ask("optimize", {"table": "p"})

    def batch(self) -> None:
        staged = staged_by(RestNamespace(uri=self.service.url))
        operations = [{"create_table_version": request} for request in staged]
        self._ask("table/batch-commit", {"operations": operations})

    def transaction(self) -> None:
        key = json.loads(self._ask("transaction/begin"))["id"]
        for name in ("p", "q"):
            body = stream_of(NEW)
            self._ask(f"table/{name}/insert", body, "-H", f"x-siltstone-txn: {key}")
        self._ask(f"transaction/{key}/commit")

    def snapshot(self) -> None:
        at = ("-H", f"x-siltstone-snapshot: seq:{self.db.seq}")
        self.append()
        assert [self._rows(name, {}, *at).num_rows for name in ("p", "q")] == [3, 3]

    def branch(self) -> None:
        self._ask("table/p/branches/list", {})


class DuckDB(Client):
    name = "DuckDB"

    def _rows(self, name: str, sql: str, body: Any = None, **headers: str) -> list[Any]:
        import duckdb

        answer = self.rest(f"/v1/table/{name}/scan", body or {}, **headers)
        rows = pa.ipc.open_stream(answer.body)
        with duckdb.connect() as connection:
            connection.register("rows", rows.read_all())
            return connection.sql(sql).fetchall()

    def read_plain(self) -> None:
        assert self._rows("p", "SELECT max(id) FROM rows") == [(3,)]

    def read_keyed(self) -> str | None:
        return seen(self._rows("k", "SELECT count(*) FROM rows")[0][0])

    def filter_keyed(self) -> str | None:
        body = {"filter": "id > 0", "columns": ["v"]}
        return seen(self._rows("k", "SELECT count(v) FROM rows", body)[0][0])

    def nearest(self) -> None:
        sql = "SELECT id FROM rows ORDER BY list_distance(e, [2.1, 0]) LIMIT 1"
        assert self._rows("p", sql) == [(2,)]

    def count(self) -> None:
        assert self._rows("p", "SELECT count(*) FROM rows WHERE id > 1") == [(2,)]

    def snapshot(self) -> None:
        at = {"x-siltstone-snapshot": f"seq:{self.db.seq}"}
        self.db["p"].append(NEW)
        found = [self._rows(name, "SELECT count(*) FROM rows", **at) for name in ("p", "q")]
        assert found == [[(3,)], [(3,)]]


class Polars(Client):
    name = "Polars"

    def _rows(self, name: str, body: Any = None, **headers: str) -> Any:
        import polars as pl

        return pl.read_ipc_stream(self.rest(f"/v1/table/{name}/scan", body or {}, **headers).body)

    def read_plain(self) -> None:
        assert self._rows("p")["id"].max() == 3

    def read_keyed(self) -> str | None:
        return seen(self._rows("k").height)

    def filter_keyed(self) -> str | None:
        found = self._rows("k", {"filter": "id > 0", "columns": ["v"]})
        assert found.columns == ["v"]
        return seen(found.height)

    def nearest(self) -> None:
        assert self._rows("p", {"vector": [2.1, 0.0], "k": 1})["id"].to_list() == [2]

    def count(self) -> None:
        assert self._rows("p", {"filter": "id > 1"}).height == 2

    def snapshot(self) -> None:
        at = {"x-siltstone-snapshot": f"seq:{self.db.seq}"}
        self.db["p"].append(NEW)
        assert [self._rows(name, **at).height for name in ("p", "q")] == [3, 3]


CLIENTS = (Pylance, LanceDBNamespace, LanceDBRemote, Generated, Curl, DuckDB, Polars)
