"""The lists of tests/by_file.py name tests that exist, and a run renews the seconds."""

import pytest
from by_file import ALONE, ROOT, SPLIT, Stopwatch, path_of, scope_of


def test_listed_files_and_functions_exist():
    for scope in SPLIT | ALONE:
        assert (ROOT / path_of(scope)).exists(), scope
    for path, _, name in (each.partition("::") for each in ALONE):
        assert f"\ndef {name}(" in (ROOT / path).read_text(encoding="utf-8")


def test_file_is_one_scope_unless_it_is_split():
    [split, *_] = SPLIT
    [alone, *_] = ALONE
    assert scope_of("tests/test_x.py::TestX::test_y[z]") == "tests/test_x.py"
    for test in (f"{split}::test_y[z]", f"{alone}[0]"):
        assert scope_of(test) == test
    assert scope_of(f"{path_of(alone)}::test_other") == path_of(alone)


@pytest.fixture
def stopwatch() -> Stopwatch:
    """The times of a run of two files."""
    stopwatch = Stopwatch()
    for test, seconds in (("a.py::test", 2.6), ("a.py::test_more", 1), ("b.py::test", 0.4)):
        report = pytest.TestReport(test, ("", 0, ""), {}, "passed", None, "call", duration=seconds)
        stopwatch.pytest_runtest_logreport(report)
    return stopwatch


def test_renewed_seconds_are_of_this_run_and_of_other_files_that_exist(stopwatch):
    kept = {"a.py": 9, "b.py": 9, "gone.py": 9, "tests/conftest.py": 9}
    assert stopwatch.renew(kept) == {"a.py": 4, "tests/conftest.py": 9}
