"""What a server refuses is said in one sentence, by whom and for what, and never with a secret."""

from __future__ import annotations

import pickle
import subprocess
import sys
import urllib.error
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import pytest

from siltstone.bucket_url import BucketUrl
from siltstone.errors import RequestError, SiltstoneError, UnavailableError
from siltstone.storage.objects import obstore_server
from siltstone.storage.objects.objects import Objects
from siltstone.storage.objects.obstore_server import ObstoreServer
from siltstone.storage.objects.probe import probe, require_known
from siltstone.storage.objects.server import Exists, Streamed
from tests.nightly import by_day
from tests.support import bucket_servers
from tests.support.bucket_servers import READER, READER_SECRET, SECRET, RunningServer
from tests.support.simulated_objects import SimBucket, SimServer

pytest.importorskip("obstore", reason="obstore is not installed")

CALLS: dict[str, Callable[[Objects], object]] = {
    "get": lambda objects: objects.get("k"),
    "head": lambda objects: objects.head("k"),
    "list": lambda objects: list(objects.list_after("")),
    "put_new": lambda objects: objects.put_new("k", b"x"),
    "put_if": lambda objects: objects.put_if("k", b"x", '"e"'),
    "put": lambda objects: objects.put("k", b"x"),
    "put in parts": lambda objects: objects.put("k", Streamed(1, lambda: iter([b"x"]))),
    "delete": lambda objects: objects.delete(["k"]),
}


@pytest.fixture(scope="module", params=by_day(["moto"], ["seaweedfs", "moto"]))
def real(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningServer]:
    start = bucket_servers.seaweed if request.param == "seaweedfs" else bucket_servers.moto
    with start(tmp_path_factory.mktemp(request.param)) as running:
        yield running


def objects_at(real: RunningServer, place: str, **settings: str) -> Objects:
    return Objects(ObstoreServer(BucketUrl.of(place), real.settings() | settings, environment={}))


def refusal_of(call: Callable[[Objects], object], objects: Objects) -> SiltstoneError:
    with pytest.raises(SiltstoneError) as refused:
        call(objects)
    text = str(refused.value)
    assert "\n" not in text
    assert SECRET not in text
    assert len(text) < 400
    return refused.value


def test_a_bucket_that_is_not_there_is_no_empty_one(real: RunningServer) -> None:
    for name in ("get", "list"):
        refused = refusal_of(CALLS[name], objects_at(real, "s3://no-such-bucket/x"))
        assert isinstance(refused, RequestError)
        assert f"there is no bucket 'no-such-bucket' at {real.endpoint}" in str(refused)


def test_who_may_only_read_is_refused_each_write_by_name(real: RunningServer) -> None:
    if real.name == "moto":
        pytest.skip("moto checks no rights")
    objects_at(real, "s3://shop/rights").put("k", b"x")
    reader = objects_at(
        real, "s3://shop/rights", access_key_id=READER, secret_access_key=READER_SECRET
    )
    for name in ("put_new", "put_if", "put", "put in parts", "delete"):
        refused = refusal_of(CALLS[name], reader)
        verb = name.partition("_")[0].partition(" ")[0]
        assert f"no right to {verb} s3://shop/rights/k: 403 AccessDenied" in str(refused), name
    assert reader.get("k") is not None
    assert [head.key for head in reader.list_after("")] == ["k"]
    with pytest.raises(UnavailableError, match="no right to put"):
        probe(reader, "token", lambda: 0.0)


def test_a_wrong_key_and_a_wrong_secret_are_refused_with_the_servers_word(
    real: RunningServer,
) -> None:
    if real.name == "moto":
        pytest.skip("moto checks no credentials")
    for settings, word in (
        ({"access_key_id": "nobody"}, "InvalidAccessKeyId"),
        ({"secret_access_key": "not-" + SECRET[::-1]}, "SignatureDoesNotMatch"),
    ):
        objects = objects_at(real, "s3://shop/x", **settings)
        for name, call in CALLS.items():
            if name != "head":  # its answer has no body, so no word
                assert word in str(refusal_of(call, objects)), name


def test_a_server_that_is_not_there_is_named_after_a_few_seconds() -> None:
    settings = {"endpoint": "http://127.0.0.1:1", "access_key_id": "x", "secret_access_key": SECRET}
    now = iter(range(1000))
    for call in CALLS.values():
        server = ObstoreServer(BucketUrl.of("s3://shop/x"), settings, environment={})
        objects = Objects(server, clock=lambda: float(next(now)), pause=lambda _: None)
        refused = refusal_of(call, objects)
        assert "127.0.0.1:1" in str(refused)
        assert "(connect)" in str(refused)


def test_a_setting_that_does_not_exist_is_refused_without_its_neighbours() -> None:
    with pytest.raises(RequestError, match="nonsense") as refused:
        ObstoreServer(BucketUrl.of("s3://shop/x"), {"nonsense": "1", "secret_access_key": SECRET})
    assert SECRET not in str(refused.value)


def test_a_query_of_a_url_is_in_no_message() -> None:
    error = urllib.error.URLError("GET https://x.blob.core.windows.net/c/k?sig=hunter2 failed")
    assert "hunter2" not in obstore_server.sentence_of(error)


def test_neither_a_server_nor_its_text_has_a_secret() -> None:
    settings = {"endpoint": "http://127.0.0.1:1", "access_key_id": "x", "secret_access_key": SECRET}
    server = ObstoreServer(BucketUrl.of("s3://shop/x"), settings, environment={})
    assert SECRET not in repr(server) + repr(Objects(server))
    for each in (server, Objects(server)):
        with pytest.raises(TypeError, match="never travels"):
            pickle.dumps(each)


# --- the probe


class _IgnoresNew(SimServer):
    def put(self, key: str, data: bytes, *, is_new: bool = False, etag: str | None = None) -> str:
        return super().put(key, data, etag=etag)


class _IgnoresEtags(SimServer):
    def put(self, key: str, data: bytes, *, is_new: bool = False, etag: str | None = None) -> str:
        return super().put(key, data, is_new=is_new)


class _RefusesEtags(SimServer):
    def put(self, key: str, data: bytes, *, is_new: bool = False, etag: str | None = None) -> str:
        if etag is not None:
            raise Exists
        return super().put(key, data, is_new=is_new)


class _KeepsAll(SimServer):
    def delete(self, key: str) -> None:
        del key


class _ListsLess(SimServer):
    def list_after(self, prefix: str, after: str):
        for page in super().list_after(prefix, after):
            yield page[:1]


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (_IgnoresNew, "of two puts that want to be the first, not exactly one was"),
        (_IgnoresEtags, "a put on an ETag that the object had before is done"),
        (_KeepsAll, "an object is there that was deleted"),
        (_ListsLess, "a list has"),
    ],
)
def test_a_server_that_cannot_hold_a_mirror_is_refused_by_what_failed(
    kind: type[SimServer], words: str
) -> None:
    with pytest.raises(UnavailableError, match=words):
        probe(Objects(kind(SimBucket())), "token", lambda: 1_000_000.0)


def test_a_server_that_refuses_every_etag_is_given_up_in_bounded_time() -> None:
    now = iter(range(10_000))
    objects = Objects(_RefusesEtags(), clock=lambda: float(next(now)), pause=lambda _: None)
    with pytest.raises(UnavailableError, match="put s3://simulated"):
        probe(objects, "token", lambda: 1_000_000.0)


def test_clocks_that_differ_are_refused_with_both_times() -> None:
    with pytest.raises(UnavailableError, match=r"1970-01-12T14:46:40.*1970-01-12T13:46:40"):
        probe(Objects(SimServer()), "token", lambda: 1_003_600.0)


class _Named(BaseHTTPRequestHandler):
    name = ""

    def do_GET(self) -> None:
        self.send_response_only(403)
        self.send_header("Server", self.name)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def named() -> Iterator[Callable[[str], str]]:
    """Return what starts a server of a name, and returns its address."""
    servers: list[HTTPServer] = []

    def start(name: str) -> str:
        handler = type("Handler", (_Named,), {"name": name})
        servers.append(HTTPServer(("127.0.0.1", 0), handler))
        Thread(target=servers[-1].serve_forever, daemon=True).start()
        return f"http://127.0.0.1:{servers[-1].server_port}"

    yield start
    for each in servers:
        each.shutdown()
        each.server_close()


@pytest.mark.parametrize(
    ("name", "is_known"),
    [
        ("SeaweedFS 8000GB 4.48", True),
        ("SeaweedFS 30GB 4.17", True),
        ("SeaweedFS 30GB 4.16", False),
        ("SeaweedFS", False),
        ("MinIO", True),
        ("Azurite-Blob/3.35.0", True),
        ("rustfs", False),
        ("", False),
    ],
)
def test_a_server_of_ones_own_is_known_by_its_name_or_vouched_for(
    named: Callable[[str], str], name: str, is_known: bool
) -> None:
    url, endpoint = BucketUrl.of("s3://shop"), named(name)
    assert require_known(url, endpoint, is_trusted=True)
    if is_known:
        assert require_known(url, endpoint, is_trusted=False) == name
    else:
        with pytest.raises(UnavailableError, match="say trust_conditional_puts"):
            require_known(url, endpoint, is_trusted=False)


def test_the_providers_themselves_are_known_and_who_sounds_like_one_is_not() -> None:
    url = BucketUrl.of("s3://shop")
    for endpoint in (
        "",
        "https://s3.eu-west-1.amazonaws.com",
        "https://a.r2.cloudflarestorage.com",
    ):
        assert require_known(url, endpoint, is_trusted=False)
    with pytest.raises(UnavailableError):
        require_known(url, "http://127.0.0.1:1/.amazonaws.com", is_trusted=False)


def test_a_bucket_is_imported_only_by_those_who_ask_for_one(tmp_path: Path) -> None:
    code = (
        "import sys, siltstone; from siltstone import admin;"
        "siltstone.connect(sys.argv[1], background=False).close();"
        "assert 'obstore' not in sys.modules;"
        "assert 'siltstone.storage.objects.objects' not in sys.modules;"
        "assert 'siltstone.maintenance.backup.mirror' not in sys.modules"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "s")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
