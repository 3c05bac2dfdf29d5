"""Obstore server: the requests to S3, Google and Azure, and what their errors mean.

Each method is one request without a retry of the client: `Objects` repeats it, and counts it.
Credentials, endpoint and region come from the environment, as other programs take them
(AWS_ACCESS_KEY_ID, AWS_ENDPOINT_URL, AWS_REGION; AZURE_STORAGE_*; GOOGLE_*), and temporary ones are
renewed by the client. Messages have the server's own sentence, and never a query of a URL.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, TypeVar

from siltstone.bucket_url import BucketUrl
from siltstone.errors import RequestError, UnavailableError
from siltstone.process.extras import imported
from siltstone.storage.objects.server import (
    PART_BYTES,
    Exists,
    FoundObject,
    ObjectHead,
    Streamed,
    Unanswered,
)

_PARTS_MAX = 9_000
_LIST_KEYS = 1_000
_ENDPOINTS = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT", "AZURE_STORAGE_ENDPOINT")
_NO_BUCKET = {"NoSuchBucket", "ContainerNotFound"}
_REGION = {"AuthorizationHeaderMalformed", "PermanentRedirect", "TemporaryRedirect"}
_NO_PLACE = "Received redirect without LOCATION"
_AGAIN = {408, 409, 425, 429}
"""409: another request for the key was running."""
_NEVER = 501
"""The server has no such request, or no condition of a put."""
T = TypeVar("T")


class ObstoreServer:
    """See the module. Threads may share it; it is never pickled (`Objects`).

    Args:
        url: The bucket and the prefix.
        settings: Of obstore ("endpoint", "region", ...), above those of the environment.
        environment: Of the process.
    """

    def __init__(
        self,
        url: BucketUrl,
        settings: Mapping[str, str] | None = None,
        environment: Mapping[str, str] = os.environ,
    ) -> None:
        self._obstore = imported("obstore", f"the URL {url}", "obstore", "objects")
        stores = imported("obstore.store", f"the URL {url}", "obstore", "objects")
        self._url = url
        self.endpoint = endpoint_of(settings or {}, environment)
        if "@" in self.endpoint:  # each message of the client has the whole address
            raise RequestError("the server's address has a user: give credentials by themselves")
        try:
            self._store: Any = stores.from_url(
                str(url),
                config=dict(settings or {}),
                client_options={
                    "timeout": "120s",
                    "connect_timeout": "5s",
                    "allow_http": self.endpoint.startswith("http://"),
                },
                retry_config={"max_retries": 0, "retry_timeout": timedelta(seconds=120)},
            )
        except self._obstore.exceptions.BaseError as error:
            raise RequestError(f"{url} cannot be used: {sentence_of(error)}") from None

    def __repr__(self) -> str:
        return f"ObstoreServer({self._url})"

    def __reduce__(self) -> str | tuple[object, ...]:
        raise TypeError(f"{self._url} is opened by each process: a secret never travels")

    @property
    def url(self) -> str:
        return str(self._url)

    def put(self, key: str, data: bytes, *, is_new: bool = False, etag: str | None = None) -> str:
        mode: Any = "create" if is_new else "overwrite" if etag is None else {"e_tag": etag}
        with self._answered("put", key, has_condition=is_new or etag is not None):
            done = self._obstore.put(self._store, key, data, mode=mode, use_multipart=False)
        return done["e_tag"] or ""

    def put_streamed(self, key: str, body: Streamed) -> str:
        chunk = max(PART_BYTES, -(-body.size // _PARTS_MAX))
        with self._answered("put", key):
            done = self._obstore.put(
                self._store,
                key,
                body.parts(),
                use_multipart=True,
                chunk_size=chunk,
                max_concurrency=2,
            )
        return done["e_tag"] or ""

    def get(self, key: str, start: int = 0, end: int | None = None) -> FoundObject | None:
        options = None if end is None else {"range": (start, end)}

        def get() -> FoundObject:
            answer = self._obstore.get(self._store, key, options=options)
            return FoundObject(answer.bytes().to_bytes(), _head(answer.meta))

        return self._unless_absent(get, "get", key)

    def head(self, key: str) -> ObjectHead | None:
        return self._unless_absent(lambda: _head(self._obstore.head(self._store, key)), "get", key)

    def list_after(self, prefix: str, after: str) -> Iterator[list[ObjectHead]]:
        with self._answered("list", prefix):
            pages = self._obstore.list(
                self._store, prefix or None, offset=after or None, chunk_size=_LIST_KEYS
            )
        while True:
            with self._answered("list", prefix):
                page = next(pages, None)
            if page is None:
                return
            found = [_head(each) for each in page if each["path"] > after]  # Azurite begins anew
            if found:
                yield found

    def delete(self, key: str) -> None:
        self._unless_absent(lambda: self._obstore.delete(self._store, key), "delete", key)

    def _unless_absent(self, request: Callable[[], T], verb: str, key: str) -> T | None:
        with self._answered(verb, key):
            try:
                return request()
            except FileNotFoundError as error:
                if _code_of(error) in _NO_BUCKET:
                    raise
                return None

    @contextmanager
    def _answered(self, verb: str, key: str, *, has_condition: bool = False) -> Generator[None]:
        """Turn the errors of obstore into answers, and errors of ours."""
        try:
            yield
        except (FileNotFoundError, self._obstore.exceptions.BaseError) as error:
            raise self._meaning(error, verb, key, has_condition=has_condition) from None

    def _meaning(
        self, error: BaseException, verb: str, key: str, *, has_condition: bool
    ) -> Exception:
        text, code, status = sentence_of(error), _code_of(error), _status_of(error)
        what = f"{self._url}/{key}"
        if code in _NO_BUCKET:
            where = f" at {self.endpoint}" if self.endpoint else ""
            return RequestError(f"there is no bucket {self._url.bucket!r}{where}: correct the URL")
        if has_condition and (status in {404, 409, 412} or self._says_exists(error)):
            return Exists()
        if self._is_elsewhere(error):
            bucket = self._url.bucket
            return RequestError(
                f"the bucket {bucket!r} is in another region: set AWS_REGION; {text}"
            )
        if _may_be_answered(error):
            return Unanswered(text)
        return UnavailableError(_refusal(error, verb, what))

    def _is_elsewhere(self, error: BaseException) -> bool:
        """Say whether the bucket is in another region; S3 redirects to no place then."""
        return (
            _code_of(error) in _REGION or _status_of(error) in {301, 307} or _NO_PLACE in str(error)
        )

    def _says_exists(self, error: BaseException) -> bool:
        kinds = self._obstore.exceptions
        return isinstance(error, (kinds.AlreadyExistsError, kinds.PreconditionError))


def endpoint_of(settings: Mapping[str, str], environment: Mapping[str, str]) -> str:
    """Return the address of a server that is not the provider's own; "": it is that."""
    given = settings.get("endpoint") or settings.get("endpoint_url")
    return given or next((environment[each] for each in _ENDPOINTS if environment.get(each)), "")


def _head(meta: Mapping[str, Any]) -> ObjectHead:
    modified = meta["last_modified"].timestamp()
    return ObjectHead(meta["path"], meta["size"], meta["e_tag"] or "", modified)


def _may_be_answered(error: BaseException) -> bool:
    """Say whether another try may have another answer."""
    status = _status_of(error)
    if _asked_the_machine(error) or status == _NEVER:
        return False
    return status is None or status >= 500 or status in _AGAIN


def _refusal(error: BaseException, verb: str, what: str) -> str:
    """Return why a request was not done, and will not be."""
    if _asked_the_machine(error):
        return f"no right to {verb} {what}: the environment has no credentials"
    times = re.search(r"<RequestTime>([^<]*)<.*<ServerTime>([^<]*)<", str(error), re.DOTALL)
    if times:
        ours = f"{times[1]} on this machine, {times[2]} at the server"
        return f"no right to {verb} {what}: the clocks differ: {ours}; set the wrong one"
    refused = "no right" if _status_of(error) in {401, 403} else "the server refuses"
    return f"{refused} to {verb} {what}: {sentence_of(error)}"


def _asked_the_machine(error: BaseException) -> bool:
    """Say whether the client found no credentials: it asked the machine's own service for some."""
    return "169.254.169.254" in str(error) or "metadata.google" in str(error)


def sentence_of(error: BaseException) -> str:
    """Return the server's sentence, or what the network said, in one line without queries."""
    text = str(error)
    said = re.search(r"<Message>\s*([^<]*)", text)
    code, status = _code_of(error), _status_of(error)
    if code or status:
        words = " ".join(said[1].split()[:40]) if said else ""
        return ": ".join(each for each in (f"{status or ''} {code}".strip(), words) if each)
    first = text.partition("\n\nDebug source")[0]
    kind = re.search(r"kind: (Connect|Timeout|Decode|Interrupted)\b", text)
    line = " ".join(re.sub(r"\?\S*", "", first).split())
    return f"{line} ({kind[1].lower()})" if kind else line


def _code_of(error: BaseException) -> str:
    text = str(error)
    found = re.search(r"<Code>\s*(\w+)", text) or re.search(r"\(code: (\w+)\)", text)
    return found[1] if found else ""


def _status_of(error: BaseException) -> int | None:
    found = re.search(r"status code: (\d{3})", str(error))
    if found:
        return int(found[1])
    return 403 if _code_of(error) == "AccessDenied" else None  # within an answer to many deletes
