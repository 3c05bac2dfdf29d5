"""A URL of a bucket means one bucket and one prefix, or is refused without repeating a secret."""

from __future__ import annotations

import pytest

from siltstone.bucket_url import BucketUrl, is_bucket_url
from siltstone.errors import RequestError


@pytest.mark.parametrize(
    ("text", "scheme", "bucket", "prefix"),
    [
        ("s3://shop", "s3", "shop", ""),
        ("s3://shop/", "s3", "shop", ""),
        ("s3://shop/eu/x.y_z-1/", "s3", "shop", "eu/x.y_z-1"),
        ("gs://my.shop/a", "gs", "my.shop", "a"),
        ("az://container/ä", "az", "container", "ä"),
    ],
)
def test_a_url_names_a_bucket_and_a_prefix(
    text: str, scheme: str, bucket: str, prefix: str
) -> None:
    url = BucketUrl.of(text)
    assert (url.scheme, url.bucket, url.prefix) == (scheme, bucket, prefix)
    assert str(url) == text.removesuffix("/")
    assert BucketUrl.of(str(url)) == url


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("shop", "no URL of a bucket"),
        ("file:///shop", "no URL of a bucket"),
        ("http://shop/x", "no URL of a bucket"),
        (None, "no URL of a bucket"),
        ("s3://", "name of the bucket"),
        ("s3:///x", "name of the bucket"),
        ("s3://Shop/x", "name of the bucket"),
        ("s3://shop:9000/x", "name of the bucket"),
        ("s3://shop:port/x", "name of the bucket"),
        ("s3://[/x", "name of the bucket"),
        ("s3://b/x", "3 to 63 of a-z, 0-9, dots, dashes and underscores; 'b' is none"),
        ("s3://ab", "3 to 63 .* 'ab' is none"),
        ("s3://-shop/x", "3 to 63 .* '-shop' is none"),
        ("s3://" + "x" * 64, "3 to 63 "),
        ("s3://shop//x", "plain names"),
        ("s3://shop/a/../b", "plain names"),
        ("s3://shop/./b", "plain names"),
        ("s3://shop/a%20b", "plain names"),
        ("s3://shop/a b", "plain names"),
        ("s3://shop/a\nb", "plain names"),
        ("s3://shop/a\\b", "plain names"),
        ("s3://shop/" + "x" * 600, "at most 512 bytes"),
        ("s3://shop/x#y", "no query"),
    ],
)
def test_any_other_text_is_refused_with_a_sentence(text: str, why: str) -> None:
    with pytest.raises(RequestError, match=why):
        BucketUrl.of(text)


@pytest.mark.parametrize("text", ["s3://key:hunter2@shop/x", "s3://shop/x?sig=hunter2"])
def test_a_secret_in_a_url_is_refused_and_not_repeated(text: str) -> None:
    with pytest.raises(RequestError, match="environment") as refused:
        BucketUrl.of(text)
    assert "hunter2" not in str(refused.value)


def test_a_path_is_no_url_of_a_bucket() -> None:
    assert is_bucket_url("s3://shop/x")
    assert not any(map(is_bucket_url, ["s3", "./s3:/x", "file:///x", "C:\\x", None]))
