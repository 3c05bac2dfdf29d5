"""A token that the command line makes opens the server that is given its line, and no other."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import siltstone as st
from siltstone.cli import main
from siltstone.server.rest.tokens import Role, digest_of, tokens_from
from tests.cli.shell import Shell
from tests.server.stores import opened

SILTSTONE = f"{sys.executable} -m siltstone"


def test_the_output_of_token_is_a_file_that_serve_accepts(tmp_path: Path) -> None:
    script = f"umask 022; {SILTSTONE} token write alice > tokens; {SILTSTONE} token read >> tokens"
    done = subprocess.run(
        ["sh", "-c", script], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert not done.stdout
    secrets = [line.rpartition(" ")[2] for line in done.stderr.splitlines()]
    found = tokens_from(tmp_path / "tokens", {})
    assert [(each.principal.name, each.principal.role) for each in found] == [
        ("alice", Role.WRITE),
        ("client", Role.READ),
    ]
    assert [each.digest for each in found] == [digest_of(secret) for secret in secrets]
    with opened(tmp_path / "shop") as db:
        service = db.serve(port=0, tokens=found)
        with st.connect(service.url, token=secrets[0]) as remote:
            remote.create_table("t", {"id": "int64"}, primary_key="id")
        with (
            st.connect(service.url, token=secrets[1]) as reader,
            pytest.raises(st.AccessError, match="needs write") as caught,
        ):
            reader["t"].upsert({"id": 1})
        assert caught.value.status == 403


def test_a_secret_goes_to_a_new_file_that_only_its_user_reads(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "alice.secret"
    assert main(["token", "admin", "alice", "--secret-file", str(file)]) == 0
    out, err = capsys.readouterr()
    assert not err
    assert out == f"alice admin sha256:{digest_of(file.read_text().strip()).hex()}\n"
    assert file.stat().st_mode & 0o777 == 0o600
    before = file.read_bytes()
    assert main(["token", "admin", "--secret-file", str(file)]) == 2
    assert "File exists" in capsys.readouterr().err
    assert file.read_bytes() == before


def test_a_wrong_role_makes_no_token(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["token", "chief"]) == 2
    out, err = capsys.readouterr()
    assert not out
    assert "'read', 'write', 'admin'" in err


def test_spark_without_pyspark_names_the_extra() -> None:
    code = "import sys; sys.modules['pyspark'] = None; import siltstone.spark"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "pip install 'siltstone[spark]'" in done.stderr.splitlines()[-1]


def test_serve_without_the_server_names_the_extra(shell: Shell) -> None:
    code = (
        "import sys; sys.modules['uvicorn'] = None; from siltstone.cli import main;"
        "sys.exit(main(['serve', '--port', '0']))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, env=os.environ
    )
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].endswith("pip install 'siltstone[server]'")
    assert shell("tables") == 0
