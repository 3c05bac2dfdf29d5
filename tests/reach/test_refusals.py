"""What is wrong with a URL, a bucket or its settings is said in one sentence, without secrets."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

import siltstone as st
from siltstone.bucket_url import BucketUrl
from siltstone.errors import (
    CorruptionError,
    OwnedError,
    RequestError,
    UnavailableError,
    UnsupportedFormatError,
)
from siltstone.formats import bucket as formats
from siltstone.formats.store_format import STORE_FORMAT
from siltstone.options import StorageOptions, resolve
from siltstone.paths import Place, root_of
from siltstone.storage.bucket.bucket import Bucket
from siltstone.storage.lance.files.errors import classify
from tests.maintenance.mirrors import content
from tests.reach.conftest import Mirrored, objects_at
from tests.support.bucket_servers import READER, READER_SECRET, RunningServer, free_ports

SECRET = "not-to-be-seen"


def refused(url: str, **options: object) -> str:
    with pytest.raises((RequestError, UnavailableError)) as found:
        st.connect(url, read_only=True, **options).close()  # type: ignore[arg-type]
    assert "\n" not in str(found.value)
    assert SECRET not in str(found.value)
    return str(found.value)


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (f"s3://me:{SECRET}@bucket/shop", "has no user"),
        (f"s3://bucket/shop?token={SECRET}", "has no query"),
        (f"s3://bucket/shop#{SECRET}", "has no query"),
        ("s3://bucket/a/../b", "plain names"),
        ("s3://bucket/a//b", "plain names"),
        ("s3://bucket:9000/shop", "begins with the name of the bucket"),
        ("s3:///shop", "begins with the name of the bucket"),
        ("s3a://bucket/shop", "a store is a local directory"),
    ],
)
def test_a_url_that_none_can_be_is_refused(given: str, why: str) -> None:
    assert why in refused(given)


def test_a_url_is_a_path_whose_text_is_the_url() -> None:
    place = root_of("s3://bucket/lake/shop/", only_reads=True)
    assert isinstance(place, Place)
    assert str(place) == "s3://bucket/lake/shop"
    assert place.url == BucketUrl("s3", "bucket", "lake/shop")
    assert str(place / "manifest" / "1.json") == "s3://bucket/lake/shop/manifest/1.json"
    assert root_of(place, only_reads=True) == place == pickle.loads(pickle.dumps(place))
    assert place.absolute() is place


def test_a_bucket_or_a_mirror_that_is_not_there_is_told(server: RunningServer, url: str) -> None:
    assert "has no mirror of a store" in refused(url)
    scheme = server.url.partition(":")[0]
    told = refused(f"{scheme}://nobodys-bucket/shop")
    assert "there is no bucket" in told or "no right" in told or "no mirror" in told


def test_a_mirror_whose_first_run_did_not_end_is_told(shop: Mirrored, url: str) -> None:
    mark = objects_at(shop.url).get(formats.MARK)
    assert mark is not None
    objects_at(url).put(formats.MARK, mark.data)
    assert "its first mirror did not end" in refused(url)


def test_a_mirror_of_another_format_is_not_read(
    shop: Mirrored, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    mark = Bucket(objects_at(shop.url)).mark()
    assert mark is not None
    with monkeypatch.context() as older:
        older.setattr("siltstone.formats.checked_json.STORE_FORMAT", STORE_FORMAT - 1)
        objects_at(url).put(formats.MARK, formats.encode_mark(mark))
    with pytest.raises(UnsupportedFormatError, match=f"{url}/STORE"):
        st.connect(url, read_only=True)


def test_a_damaged_mark_is_named(shop: Mirrored, url: str) -> None:
    mark = objects_at(shop.url).get(formats.MARK)
    assert mark is not None
    objects_at(url).put(formats.MARK, mark.data[:-5])
    with pytest.raises(CorruptionError, match=f"{url}/STORE"):
        st.connect(url, read_only=True)


def test_a_server_that_is_not_there_is_not_waited_for(
    server: RunningServer, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("siltstone.storage.objects.objects.FIRST_GIVE_UP_S", 0.0)
    (port,) = free_ports(1)
    endpoint = server.endpoint.replace(server.endpoint.split(":")[2].split("/")[0], str(port))
    told = refused(url, storage_options={"endpoint": endpoint})
    assert "tried again for" in told
    assert f"{url}/manifest/" in told


def test_who_may_only_read_reads(shop: Mirrored, server: RunningServer) -> None:
    if server.name != "seaweedfs":
        pytest.skip("only SeaweedFS has rights here")
    rights = {"access_key_id": READER, "secret_access_key": READER_SECRET}
    with st.connect(shop.url, read_only=True, storage_options=rights) as far:
        assert content(far) == shop.at[shop.seq]
    wrong = {"access_key_id": READER, "secret_access_key": SECRET}
    assert "no right to list" in refused(shop.url, storage_options=wrong)


def test_a_scratch_that_cannot_be_written_is_done_without(shop: Mirrored, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    with st.connect(shop.url, read_only=True, scratch=tmp_path / "file") as far:
        assert far["keyed"].get(8) == {"id": 8, "v": "again"}
        assert content(far) == shop.at[shop.seq]
    assert (tmp_path / "file").read_text() == "mine"


def test_settings_are_never_shown_or_pickled_and_come_from_no_file(
    shop: Mirrored, server: RunningServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = {**server.settings(), "session_token": SECRET}
    options = resolve(tmp_path, {"storage_options": given})
    assert options.storage_options["session_token"] == SECRET
    assert SECRET not in repr(options) + str(options)
    assert SECRET.encode() not in pickle.dumps(options)
    assert pickle.loads(pickle.dumps(options)) == resolve(tmp_path, {})
    with st.connect(shop.url, read_only=True, storage_options=server.settings()) as far:
        secret = given.get("secret_access_key") or given["account_key"]
        for value in (far, far.snapshot(), far.snapshot().scan_tasks("keyed")):
            assert secret.encode() not in pickle.dumps(value)
    with st.connect(tmp_path / "s", storage_options={"session_token": SECRET}):
        with pytest.raises(OwnedError) as owned:
            st.connect(tmp_path / "s")
        assert SECRET not in str(owned.value) + repr(owned.value.differing)
    (tmp_path / "s" / "siltstone.toml").write_text(f'[storage_options]\nkey = "{SECRET}"\n')
    with pytest.raises(RequestError, match="given to `connect` alone"):
        st.connect(tmp_path / "s")
    monkeypatch.setenv("SILTSTONE_STORAGE_OPTIONS", SECRET)
    assert resolve(tmp_path, {}).storage_options == {}


@pytest.mark.parametrize("given", ["a text", 5, {"region": 5}, {5: "text"}, ["region"]])
def test_settings_are_texts_by_their_names(given: object) -> None:
    with pytest.raises(RequestError, match="storage_options are texts by their names"):
        StorageOptions.of(given)
    assert "texts by their names" in refused("s3://bucket/shop", storage_options=given)


LOST = (
    "External error: LanceError(IO): Generic N/A error: LanceError(IO): Generic S3 error: Error"
    " performing GET http://127.0.0.1:21042/shop/data/1.lance?X-Amz-Signature=not-to-be-seen in"
    " 529.7ms, after 3 retries, max_retries: 3, retry_timeout: 60s  - HTTP error: error sending"
    " request, /home/runner/work/lance/lance/rust/lance-io/src/object_reader.rs:335:56,"
    " /rustc/48a2/library/core/src/ops/function.rs:250:5"
)
DENIED = (
    "LanceError(IO): The operation lacked the necessary privileges to complete for path"
    " shop/1.manifest: Error performing HEAD http://127.0.0.1:21042/shop/1.manifest in 937.5µs -"
    " Server returned non-2xx status code: 403 Forbidden: ,"
    " /home/runner/work/lance/lance/rust/lance-table/src/io/commit/external_manifest.rs:619:29"
)
HALF = "LanceError(IO): Generic S3 error: HTTP error: error decoding response body, src/x.rs:1:2"
BUSY = (
    "LanceError(IO): Generic MicrosoftAzure error: Error performing GET http://x/y in 1.2s, after"
    " 10 retries - Server returned non-2xx status code: 503 Service Unavailable: SlowDown"
)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (LOST, "Error performing GET http://127.0.0.1:21042/shop/data/1.lance"),
        (DENIED, "403 Forbidden"),
        (HALF, "error decoding response body"),
        (BUSY, "503 Service Unavailable"),
    ],
    ids=["lost", "denied", "half", "busy"],
)
def test_what_a_server_did_not_answer_is_no_damage(text: str, sentence: str) -> None:
    found = classify(OSError(text), Path("s3://bucket/shop"), is_reading=True)
    assert type(found) is UnavailableError
    assert sentence in str(found)
    for noise in ("/home/runner", "/rustc", "max_retries", SECRET, "\n"):
        assert noise not in str(found)


def test_what_lance_cannot_decode_is_damage() -> None:
    text = "LanceError(IO): Generic memory error: Invalid range 0..342 for object of size 322 bytes"
    found = classify(OSError(text), Path("s3://bucket/shop"), is_reading=True)
    assert type(found) is CorruptionError
