"""`siltstone mirror` and `siltstone restore URL`, with a server, and what they refuse."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import siltstone
from siltstone import admin
from siltstone.cli.exits import Exit
from tests.support import bucket_servers
from tests.support.bucket_servers import SECRET, RunningServer, free_ports, started

ROOT = Path(__file__).parents[2]
TRUST = "--trust-conditional-puts"


@pytest.fixture(scope="module")
def moto(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    pytest.importorskip("obstore", reason="obstore is not installed")
    with bucket_servers.moto(tmp_path_factory.mktemp("moto")) as server:
        yield server


@pytest.fixture
def shop(shell, moto: RunningServer, monkeypatch: pytest.MonkeyPatch):
    """Return a shell with one row in a table, and the environment of a server."""
    for name, text in moto.environment.items():
        monkeypatch.setenv(name, text)
    shell("create", "t", "-c", "id:int64", "-c", "v:string", "--pk", "id")
    with siltstone.connect(shell.db, background=False) as db:
        db["t"].upsert({"id": 1, "v": "x"})
    return shell


@pytest.fixture
def url(moto: RunningServer, request: pytest.FixtureRequest) -> str:
    return f"{moto.url}/{abs(hash(request.node.name))}"


def test_a_store_is_mirrored_and_restored(shop, url: str, tmp_path: Path):
    made = shop.json("mirror", shop.db, url, TRUST)
    assert (made["seq"], made["record"], made["behind"]) == (2, 1, 0)
    assert made["uploaded"] == made["files"] > 5
    again = shop.json("mirror", shop.db, url, TRUST)
    assert (again["record"], again["uploaded"]) == (1, 0)
    assert shop.json("restore", url, tmp_path / "r")["seq"] == 2
    assert shop("scan", "t", "--db", tmp_path / "r", "--ndjson") == 0
    assert json.loads(shop.out) == {"id": 1, "v": "x"}
    assert shop("restore", url, tmp_path / "r2", "--seq", "1") == Exit.USAGE
    assert "no record at seq 1" in shop.err
    assert shop("restore", url) == Exit.USAGE
    assert "no list of backups" in shop.err


def test_beside_an_owner_that_serves_all_is_flushed_before(shop, url: str):
    with siltstone.connect(shop.db, background=False) as db:
        db.checkpoint()
        db["t"].upsert({"id": 2, "v": "y"})
        made = admin.mirror_store(shop.db, url, trust_conditional_puts=True)
        assert (made.seq, made.behind) == (2, 1)
        assert shop("mirror", shop.db, url) == 0
        names, values = (line.split("\t") for line in shop.out.splitlines())
        found = dict(zip(names, values, strict=True))
        assert (found["seq"], found["behind"], found["time"][:2]) == ("3", "0", "20")
        assert shop("mirror", shop.db, url, "--quiet") == 0
        assert (shop.out, shop.err) == ("", "")


def test_a_mirror_follows_until_it_is_told_to_end(shop, url: str, tmp_path: Path):
    command = [sys.executable, "-m", "siltstone", "mirror", str(shop.db), url, TRUST, "--follow"]
    with (
        siltstone.connect(shop.db, background=False) as db,
        subprocess.Popen([*command, "--ndjson"], stdout=subprocess.PIPE, text=True) as follower,
    ):
        assert follower.stdout is not None
        db.checkpoint()
        assert json.loads(follower.stdout.readline())["record"] == 1
        db["t"].upsert({"id": 2, "v": "y"})
        db.checkpoint()
        made = json.loads(follower.stdout.readline())
        while made["seq"] < db.seq:
            made = json.loads(follower.stdout.readline())
        assert shop("mirror", shop.db, url, "--quiet") == 0  # there is nothing to do for it
        db["t"].upsert({"id": 3, "v": "z"})
        db.checkpoint()
        while made["seq"] < db.seq:
            made = json.loads(follower.stdout.readline())
        follower.send_signal(signal.SIGTERM)
        assert follower.wait(120) == 0
        db["t"].upsert({"id": 4, "v": "z"})
        db.checkpoint()
        assert admin.mirror_store(shop.db, url).seq == db.seq  # nobody holds the bucket


def test_an_owner_mirrors_by_itself_and_maintain_sends_what_a_close_left(shop, url: str, tmp_path):
    shop("mirror", shop.db, url, TRUST, "--quiet")  # vouches for the server, once
    with siltstone.connect(shop.db, background=False, mirror=url) as db:
        db["t"].upsert({"id": 5, "v": "five"})
        assert [each.url for each in db.status().mirrors] == [url]
        assert "mirror" not in db.status().owed
    assert shop.json("restore", url, tmp_path / "r")["seq"] == 3
    with siltstone.connect(shop.db, background=False, mirror=url, close_mirror_s=0) as db:
        db["t"].upsert({"id": 6, "v": "six"})
    shop("maintain", "--db", shop.db)
    assert shop.json("restore", url, tmp_path / "r2")["seq"] == 4
    with siltstone.connect(shop.db, read_only=True) as reader:
        (found,) = reader.status().mirrors
        assert (found.seq, found.behind, found.is_owed) == (4, 0, False)


def test_a_restored_store_adopts_its_mirror(shop, url: str, tmp_path: Path):
    shop("mirror", shop.db, url, TRUST, "--quiet")
    shop("restore", url, tmp_path / "r", "--quiet")
    assert shop("mirror", tmp_path / "r", url) == Exit.USAGE
    assert "has the mirror of store" in shop.err
    assert shop.json("mirror", tmp_path / "r", url, "--adopt")["record"] == 2
    assert shop("mirror", shop.db, url, "--take") == Exit.USAGE
    assert "has the mirror of store" in shop.err


def test_a_server_that_siltstone_does_not_know_is_refused_until_its_user_vouches(shop, url: str):
    assert shop("mirror", shop.db, url) == Exit.FAILED
    assert "say trust_conditional_puts" in shop.err
    assert shop("restore", url, "r") == Exit.USAGE
    assert "has no mirror of a store" in shop.err


@pytest.mark.parametrize(
    ("text", "code", "words"),
    [
        ("s3://key:hunter2@shop/x", Exit.USAGE, "no user"),
        ("s3://shop/x?token=hunter2", Exit.USAGE, "no query"),
        ("s3://shop/a/../b", Exit.USAGE, "plain names"),
        ("file:///shop", Exit.USAGE, "no URL of a bucket"),
        ("shop", Exit.USAGE, "no URL of a bucket"),
        ("s3://no-such-bucket/x", Exit.USAGE, "there is no bucket 'no-such-bucket' at http://"),
    ],
)
def test_a_wrong_url_is_refused_with_a_sentence(shop, text: str, code: Exit, words: str):
    before = sorted(shop.db.rglob("*"))
    assert shop("mirror", shop.db, text, TRUST) == code
    assert words in shop.err
    assert "hunter2" not in shop.err + shop.out
    if "no-such-bucket" not in text:  # else the store was opened and flushed
        assert sorted(shop.db.rglob("*")) == before
    assert not (shop.db / "mirrors").exists()


def test_a_wrong_path_is_no_store(shop, url: str, tmp_path: Path):
    assert shop("mirror", tmp_path / "none", url, TRUST) == Exit.NOT_FOUND
    assert shop("mirror", "http://127.0.0.1:1", url, TRUST) == Exit.USAGE


def test_the_store_is_a_word_or_the_option_as_for_other_commands(shop, url: str, tmp_path: Path):
    assert shop("mirror", url, TRUST) == 0  # the variable names it
    assert shop("mirror", "--db", shop.db, url, TRUST) == 0
    assert shop("mirror", tmp_path / "other", "--db", shop.db, url, TRUST) == Exit.USAGE
    assert "give it once" in shop.err
    assert shop("mirror", shop.db, url, "more", TRUST) == Exit.USAGE
    assert "and not 3 words" in shop.err
    assert not (tmp_path / "other").exists()


def test_a_server_that_does_not_answer_is_named(shop, url: str, monkeypatch, tmp_path: Path):
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    for words in (["mirror", shop.db, url, TRUST], ["restore", url, tmp_path / "r"]):
        assert shop(*words) == Exit.FAILED
        assert "127.0.0.1:1" in shop.err
        assert "tried again for" in shop.err


def test_a_server_that_ignores_conditions_is_refused_and_left_empty(
    shop, url: str, moto: RunningServer, monkeypatch, tmp_path: Path
):
    (port,) = free_ports(1)
    endpoint = f"http://127.0.0.1:{port}"
    target = moto.endpoint.rpartition(":")[2]
    command = [sys.executable, "-m", "tests.support.forgetful_proxy", str(port), target]
    (tmp_path / "tests").symlink_to(ROOT / "tests")
    with started(command, endpoint, tmp_path / "proxy.log"):
        monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
        assert shop("mirror", shop.db, url, TRUST) == Exit.FAILED
        assert "of two puts that want to be the first, not exactly one was" in shop.err
    monkeypatch.setenv("AWS_ENDPOINT_URL", moto.endpoint)
    assert shop.json("mirror", shop.db, url, TRUST)["record"] == 1


def test_a_secret_is_in_no_file_no_object_and_no_message(shop, url: str, tmp_path: Path):
    assert shop("mirror", shop.db, url, TRUST) == 0
    said = shop.out + shop.err
    assert shop("restore", url, tmp_path / "r") == 0
    said += shop.out + shop.err
    assert SECRET not in said
    files = [path for top in (shop.db, tmp_path / "r") for path in top.rglob("*")]
    assert not [each for each in files if each.is_file() and SECRET.encode() in each.read_bytes()]
    given = {"secret_access_key": "given-secret", "nonsense": "1"}
    with pytest.raises(siltstone.RequestError, match="nonsense") as refused:
        admin.mirror_store(shop.db, url, storage_options=given)
    assert "given-secret" not in str(refused.value)


def test_without_the_extra_the_command_says_what_to_install(shop, url: str, tmp_path: Path):
    code = (
        "import sys; sys.modules['obstore'] = None;"
        "from siltstone.cli.app import run; sys.exit(run(sys.argv[1:]))"
    )
    for words in (["mirror", str(shop.db), url], ["restore", url, str(tmp_path / "r")]):
        command = [sys.executable, "-c", code, *words]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == Exit.FAILED
        assert "pip install 'siltstone[objects]'" in done.stderr
