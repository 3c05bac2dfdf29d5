"""Commands work over the URL of a server as over a path, with an access token."""

from __future__ import annotations

import json
from collections.abc import Generator
from pathlib import Path

import pytest

import siltstone as st
from siltstone.server.rest.tokens import Role, new_token, tokens_of
from tests.cli.shell import Shell
from tests.server.stores import opened

SECRETS = {role: new_token() for role in (Role.READ, Role.WRITE, Role.ADMIN)}
TOKENS = tokens_of(
    "\n".join(f"{role.name.lower()} {role.name} {secret}" for role, secret in SECRETS.items()),
    "test",
)


@pytest.fixture
def served(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Generator[Shell]:
    with opened(tmp_path / "shop") as db:
        service = db.serve(port=0, tokens=TOKENS)
        monkeypatch.setenv("SILTSTONE_URI", service.url)
        monkeypatch.setenv("SILTSTONE_TOKEN", SECRETS[Role.ADMIN])
        yield Shell(db.path, capsys)


def test_every_command_that_needs_no_files_works_over_a_server(
    served: Shell, tmp_path: Path
) -> None:
    (tmp_path / "t.ndjson").write_text('{"id": 1, "v": "a"}\n{"id": 2, "v": "b"}\n')
    assert served("create", "t", "--from", tmp_path / "t.ndjson", "--pk", "id") == 0, served.err
    assert served("create", "p", "-c", "v:string") == 0
    assert served("upsert", "t", tmp_path / "t.ndjson") == 0, served.err
    assert served("insert", "t", tmp_path / "t.ndjson") == 1
    assert served("append", "p", tmp_path / "t.ndjson") == 1  # it has a column more
    assert served.json("get", "t", 2) == {"id": 2, "v": "b"}
    assert served.json("head", "t", "-n", "0") == []
    assert len(served.lines("scan", "t", "--filter", "id = 1")) == 2
    assert served.json("query", "select count(*) n from t") == [{"n": 2}]
    assert served("export", "t", tmp_path / "t.csv") == 0
    assert sorted((tmp_path / "t.csv").read_text().splitlines())[-2:] == ['1,"a"', '2,"b"']
    assert served("tag", "add", "early", "--seq", "1") == 0
    assert served.lines("tag", "ls") == [["tag", "seq"], ["early", "1"]]
    assert served.json("tables", "--tag", "early") == [
        {"table": "t", "primary_key": "id", "columns": 2, "rows": 2}
    ]
    assert served.json("schema", "t")[0]["column"] == "id"  # type: ignore[index]
    assert served.lines("changes", "--table", "t", "--since", "1")[1][:2] == ["3", "upsert"]
    assert served.json("log", "-n", "1")[0]["seq"] == 4  # type: ignore[index]
    assert served.json("log", "-n", "9")[-1]["changes"] == "create t"  # type: ignore[index]
    assert served("checkpoint") == 0
    assert served.lines("merge")[1][1] == "t"
    assert served("optimize") == 0, served.err
    assert served("optimize", "--by-tiers") == 2
    assert served("index", "create", "t", "v", "--kind", "bitmap") == 0, served.err
    assert [line[1] for line in served.lines("index", "ls")[1:]] == ["v"]
    assert served("index", "drop", "t", "v", "--yes") == 0
    assert served("index", "drop", "t", "v", "--yes") == 3
    assert served("verify") == 0
    assert served("vacuum", "--dry-run") == 0
    assert served("vacuum", "--yes") == 0, served.err
    assert served.lines("jobs")[0][0] == "state"
    assert served.json("status")["visible_seq"] >= 4  # type: ignore[index,call-overload]
    assert ["tables", "2"] in served.lines("info")
    assert served("tag", "rm", "early", "--yes") == 0
    assert served("delete", "t", "1", "--yes") == 0
    assert served("rename", "t", "u") == 0
    assert served("truncate", "u", "--yes") == 0
    assert served("drop", "u", "--yes") == 0
    assert served("scan", "u") == 3


@pytest.mark.parametrize(
    "arguments",
    [["init"], ["repair"], ["repair", "--import-external", "t"], ["serve"], ["backup", "b"]],
)
def test_a_command_that_needs_the_files_says_so(served: Shell, arguments: list[str]) -> None:
    assert served(*arguments) == 2
    assert served.out == ""
    (line,) = served.err.splitlines()
    assert "http://" in line


def test_a_token_comes_from_a_file_before_the_variable(
    served: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "secret"
    file.write_text(SECRETS[Role.READ] + "\n")
    file.chmod(0o644)
    assert served("tables", "--token-file", file) == 2
    assert "chmod 600" in served.err
    file.chmod(0o600)
    assert served("tables", "--token-file", file) == 0
    monkeypatch.setenv("SILTSTONE_TOKEN", new_token())
    assert served("tables") == 7
    monkeypatch.setenv("SILTSTONE_TOKEN_FILE", str(file))
    assert served("tables") == 0
    assert served("checkpoint") == 7
    assert "needs write" in served.err
    assert served("tables", "--token-file", tmp_path / "none") == 3
    file.write_text("two words")
    assert served("tables") == 2
    monkeypatch.delenv("SILTSTONE_TOKEN_FILE")
    monkeypatch.delenv("SILTSTONE_TOKEN")
    assert served("tables") == 7
    assert "wants a token" in served.err


def test_a_server_that_does_not_answer_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with opened(tmp_path / "shop") as db:
        url = db.serve(port=0).url
    shell = Shell(tmp_path, capsys)
    for command in ("tables", "checkpoint", "vacuum"):
        assert shell(command, "--db", url, "--yes" if command == "vacuum" else "--json") == 1
        assert url in shell.err
    with pytest.raises(st.RequestError):
        st.connect(url + "/path")
    assert json.dumps(shell.out) == '""'
