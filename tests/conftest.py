"""Fixtures and profiles of all tests.

`HYPOTHESIS_PROFILE=dev` runs few examples, new ones each time; `ci` (the default, so that a test
run is the same for everybody) runs a fixed set; `soak` runs many new ones, for hours.
"""

import os

from hypothesis import HealthCheck, settings

# A deadline measures the machine, not siltstone: a busy runner would fail a right test.
settings.register_profile(
    "ci",
    deadline=None,
    derandomize=True,
    max_examples=100,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("dev", deadline=None, max_examples=20)
settings.register_profile(
    "soak", deadline=None, max_examples=5_000, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))
