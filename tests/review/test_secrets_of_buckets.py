"""A secret of a bucket is in no message, also one in the address of its server."""

from __future__ import annotations

import pytest

import siltstone as st
from siltstone.bucket_url import BucketUrl
from siltstone.errors import RequestError
from siltstone.open.mirroring import Mirroring
from siltstone.storage.files.files import RealFiles
from siltstone.storage.objects.obstore_server import ObstoreServer
from siltstone.storage.site import Site
from tests.maintenance.mirrors import TABLES

ENDPOINT = "http://user:hidden@127.0.0.1:9"


def test_an_endpoint_of_the_environment_with_a_user_is_refused(monkeypatch):
    monkeypatch.setenv("AWS_ENDPOINT_URL", ENDPOINT)
    with pytest.raises(RequestError, match="has a user") as caught:
        st.connect("s3://bucket/shop", read_only=True)
    assert "hidden" not in str(caught.value)


def test_an_endpoint_that_is_given_with_a_user_is_refused():
    with pytest.raises(RequestError, match="has a user") as caught:
        ObstoreServer(BucketUrl.of("s3://bucket/shop"), {"endpoint": ENDPOINT}, {})
    assert "hidden" not in str(caught.value)


def test_settings_are_in_no_text_of_a_mirror(tmp_path):
    site = Site.of(tmp_path, RealFiles(), TABLES)
    how = Mirroring(site, "s3://bucket/shop", 1.0, {"secret_access_key": "hidden"})
    assert "hidden" not in repr(how)
