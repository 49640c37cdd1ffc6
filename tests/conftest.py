"""Settings of every property test: the same examples each time, fresh ones in a soak."""

from hypothesis import HealthCheck, settings

from tests.soak import examples, factor

settings.register_profile(
    "stowplan",
    max_examples=examples(100),
    # A shared machine stalls; a slow example is no failure.
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    # A sample that never changes keeps `make test` repeatable; a soak looks for news.
    derandomize=factor() == 1,
    print_blob=True,
)
settings.load_profile("stowplan")
