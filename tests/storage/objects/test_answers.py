"""Whatever a server answers is told in a sentence, also in the middle of a mirror."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest

from siltstone.bucket_url import BucketUrl
from siltstone.errors import RequestError, SiltstoneError, UnavailableError
from siltstone.storage.objects.objects import Objects
from siltstone.storage.objects.obstore_server import ObstoreServer
from siltstone.storage.objects.probe import probe
from siltstone.storage.objects.server import Streamed

pytest.importorskip("obstore", reason="obstore is not installed")

TOKEN, SECRET = "a-session-token", "a-secret"
CALLS: dict[str, Callable[[Objects], object]] = {
    "get": lambda objects: objects.get("k"),
    "list": lambda objects: list(objects.list_after("")),
    "put_new": lambda objects: objects.put_new("k", b"x"),
    "put_if": lambda objects: objects.put_if("k", b"x", '"e"'),
    "put": lambda objects: objects.put("k", b"x"),
    "put in parts": lambda objects: objects.put("k", Streamed(1, lambda: iter([b"x"]))),
    "delete": lambda objects: objects.delete(["k"]),
}
WITH_A_CONDITION = ("put_new", "put_if")


@dataclass
class Answers:
    """What a server says to each request: a status, a code and a sentence."""

    status: int = 200
    code: str = ""
    message: str = ""
    more: str = ""
    asked: list[str] = field(default_factory=list)

    @property
    def body(self) -> bytes:
        text = (
            f"<Error><Code>{self.code}</Code><Message>{self.message}</Message>{self.more}</Error>"
        )
        return text.encode()


@pytest.fixture
def answers() -> Answers:
    return Answers()


@pytest.fixture
def objects(answers: Answers) -> Iterator[Objects]:
    """Return the objects of a server that gives such answers alone."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _answer(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            answers.asked.append(self.command)
            self.send_response_only(answers.status)
            self.send_header("Content-Length", str(len(answers.body)))
            self.end_headers()
            self.wfile.write(answers.body)

        do_GET = do_PUT = do_POST = do_DELETE = _answer  # noqa: N815 - as http.server wants

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        settings = {
            "endpoint": f"http://127.0.0.1:{server.server_port}",
            "access_key_id": "x",
            "secret_access_key": SECRET,
            "session_token": TOKEN,
            "region": "us-east-1",
        }
        now = iter(range(1000))
        yield Objects(
            ObstoreServer(BucketUrl.of("s3://shop/x"), settings, environment={}),
            clock=lambda: float(next(now)),
            pause=lambda _: None,
        )
        server.shutdown()


def refused(call: str, objects: Objects) -> SiltstoneError:
    with pytest.raises(SiltstoneError) as found:
        CALLS[call](objects)
    text = str(found.value)
    assert "\n" not in text
    assert not {word for word in (TOKEN, SECRET, "<", ">") if word in text}
    return found.value


@pytest.mark.parametrize(
    ("status", "code", "said"),
    [
        (301, "PermanentRedirect", "incorrectly configured region"),
        (400, "AuthorizationHeaderMalformed", "the region 'x' is wrong; expecting 'eu-west-1'"),
    ],
)
def test_a_bucket_in_another_region_is_no_outage(
    answers: Answers, objects: Objects, status: int, code: str, said: str
) -> None:
    answers.status, answers.code, answers.message = status, code, said
    for call in CALLS:
        answers.asked.clear()
        told = refused(call, objects)
        assert type(told) is RequestError
        assert "the bucket 'shop' is in another region: set AWS_REGION" in str(told)
        assert said in str(told)
        assert len(answers.asked) == 1, call


@pytest.mark.parametrize(
    ("status", "code"),
    [
        (403, "AccessDenied"),
        (403, "ExpiredToken"),
        (400, "ExpiredToken"),
        (403, "InvalidAccessKeyId"),
    ],
)
def test_a_refusal_is_told_at_once_with_the_servers_word(
    answers: Answers, objects: Objects, status: int, code: str
) -> None:
    answers.status, answers.code, answers.message = status, code, "So we say."
    for call in CALLS:
        answers.asked.clear()
        told = refused(call, objects)
        verb = call.partition("_")[0].partition(" ")[0]
        assert type(told) is UnavailableError
        assert f" to {verb} s3://shop/x/" in str(told)
        assert f"{status} {code}: So we say." in str(told)
        assert len(answers.asked) == 1, call


def test_a_clock_that_the_server_refuses_is_told_with_both_times(
    answers: Answers, objects: Objects
) -> None:
    answers.status, answers.code = 403, "RequestTimeTooSkewed"
    answers.message = "The difference between the request time and the current time is too large."
    answers.more = (
        "<RequestTime>20261130T021247Z</RequestTime><ServerTime>2026-11-30T03:12:47Z</ServerTime>"
    )
    for call in CALLS:
        told = refused(call, objects)
        assert type(told) is UnavailableError
        times = "20261130T021247Z on this machine, 2026-11-30T03:12:47Z at the server"
        assert f"the clocks differ: {times}" in str(told)


def test_a_server_that_lacks_conditional_puts_is_told_at_once(
    answers: Answers, objects: Objects
) -> None:
    answers.status, answers.code = 501, "NotImplemented"
    answers.message = "A header you provided implies functionality that is not implemented."
    for call in WITH_A_CONDITION:
        answers.asked.clear()
        assert "refuses to put s3://shop/x/k: 501 NotImplemented" in str(refused(call, objects))
        assert answers.asked == ["PUT"]


def test_a_server_that_is_busy_is_asked_again_for_a_minute(
    answers: Answers, objects: Objects
) -> None:
    answers.status, answers.code, answers.message = 503, "SlowDown", "Please reduce your rate."
    objects.counts.was_answered = True
    for call in CALLS:
        answers.asked.clear()
        told = refused(call, objects)
        assert "503 SlowDown: Please reduce your rate.; tried again for 60 s" in str(told)
        assert len(answers.asked) > 50


def test_a_server_that_fails_a_probe_by_a_refusal_says_which(
    answers: Answers, objects: Objects
) -> None:
    answers.status, answers.code = 403, "AccessDenied"
    with pytest.raises(UnavailableError, match="no right to list s3://shop/x/probe/token/: 403"):
        probe(objects, "token", lambda: 0.0)
