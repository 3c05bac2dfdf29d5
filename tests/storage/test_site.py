"""A job is held to the store that it began on, and what goes wrong there keeps its name."""

from __future__ import annotations

import pytest

from siltstone.errors import PoisonedError
from siltstone.storage.site import Site
from tests.crash.manifest_scenario import ROOT, make_store
from tests.support.fake_lance import fake_lance
from tests.support.simulated_files import Fault, Kind, SimFiles, When


def test_a_look_that_the_disk_refuses_hides_no_failure_of_the_job() -> None:
    files = SimFiles()
    make_store(files)
    site = Site.of(ROOT, files, fake_lance)

    def job() -> None:
        with site.held():
            files.faults = [Fault(1, Kind.EIO, When.BEFORE, is_sticky=True)]
            raise PoisonedError("the log failed")

    with pytest.raises(PoisonedError, match="the log failed"):
        job()
