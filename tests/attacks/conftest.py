"""Hypothesis profiles: `quick` by default, `long` on request."""

from hypothesis import HealthCheck, settings

# Long: pytest tests/attacks/test_fuzz.py --hypothesis-profile=long --hypothesis-show-statistics
settings.register_profile(
    "quick",
    max_examples=60,
    derandomize=True,  # the same examples in each run: only a code change makes a test fail
    database=None,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
settings.register_profile(
    "long", settings.get_profile("quick"), max_examples=20_000, derandomize=False
)
settings.load_profile("quick")  # overridden by --hypothesis-profile
