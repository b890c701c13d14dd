"""How much is tried by default, and how much by hand."""

from hypothesis import HealthCheck, settings

# By hand: pytest tests/attacks/test_fuzz.py --hypothesis-profile=long --hypothesis-show-statistics
settings.register_profile(
    "quick",
    max_examples=60,
    derandomize=True,  # the same in each run: a failure is news of the code
    database=None,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
settings.register_profile(
    "long", settings.get_profile("quick"), max_examples=20_000, derandomize=False
)
settings.load_profile("quick")  # --hypothesis-profile comes after this
