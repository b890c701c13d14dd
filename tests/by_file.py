"""How xdist gives the tests to its processes. Plugin of tests/conftest.py.

`-n auto` starts two processes per core, because the tests wait for half of their time. A process
that is done takes over tests of another one (work stealing); the tests that wait for other
processes come first.

`--dist loadfile` gives whole files to the processes, because their tests share a slow set-up: the
longest first, by the seconds in tests/seconds.json. Those in SPLIT are given test by test. (xdist
3.8 ignores the mark `xdist_group` with pytest 9.2.) A run with `--renew-seconds` renews the list:

    pytest -n 3 --dist loadfile -m ci --renew-seconds
"""

import collections
import json
import os
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SECONDS = Path(__file__).with_name("seconds.json")  # of test time, by scope; others: less than one
# Files whose tests are long, and share no slow set-up.
SPLIT = {
    *("tests/test_benchmarks.py", "tests/test_exercises.py", "tests/test_uploads.py"),
    *("tests/attacks/test_grant.py", "tests/live/test_clients.py", "tests/live/test_demo.py"),
    *("tests/live/test_journeys.py", "tests/live/test_minetest.py"),
    *("tests/live/test_one_member.py", "tests/live/apps/test_libraries.py"),
    "tests/postgresql/test_kills.py",
    "tests/flat_files/faults/test_archive_faults.py",
    "tests/flat_files/faults/test_killed_servers.py",
    "tests/flat_files/faults/test_kills_and_failing_disks.py",
}
# Tests with a set-up of their own, in files whose other tests share one.
ALONE = {
    "tests/postgresql/test_failover.py::test_nothing_acknowledged_is_lost_when_the_primary_dies",
    "tests/postgresql/test_failover.py::test_asynchronous_replication_loses_acknowledged_saves",
}


def scope_of(test_id: str) -> str:
    """Return the tests that one process runs together with this one: its file, or its own id."""
    path = test_id.partition("::")[0]
    return test_id if path in SPLIT or test_id.partition("[")[0] in ALONE else path


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that renews tests/seconds.json."""
    help_text = "write how long the tests of this run took to tests/seconds.json"
    parser.getgroup("xdist").addoption("--renew-seconds", action="store_true", help=help_text)


def pytest_configure(config: pytest.Config) -> None:
    """Measure, in the process that hears of all tests."""
    if config.option.renew_seconds and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Stopwatch())


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Return how many processes `-n auto` starts."""
    return 2 * len(os.sched_getaffinity(0))


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: object) -> None:
    """Tell a process how it gets its tests; its own `--dist` is always "no"."""
    node.workerinput["dist"] = node.config.option.dist


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> object:
    """Return the scheduler for `-n`, or the one for `--dist loadfile`."""
    from xdist.scheduler import LoadScopeScheduling, WorkStealingScheduling

    class ByScope(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return scope_of(nodeid)

    if config.option.dist == "loadfile":
        config.option.loadscopereorder = False  # True: those with the most tests first
        return ByScope(config, log)
    return WorkStealingScheduling(config, log) if config.option.dist == "load" else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Sort the tests of a run in several processes: what takes long comes first."""
    dist = getattr(config, "workerinput", {"dist": "no"})["dist"]
    if dist == "loadfile":
        seconds = read_seconds()
        items.sort(key=lambda item: -seconds.get(scope_of(item.nodeid), 0))
    elif dist != "no":
        items.sort(key=lambda item: item.get_closest_marker("live") is None)


def read_seconds() -> dict[str, int]:
    """Return how long each scope takes, where that is a second or more."""
    return json.loads(SECONDS.read_text(encoding="utf-8"))


class Stopwatch:
    """A plugin that sums up how long the tests take, and writes it at the end."""

    def __init__(self) -> None:
        self.seconds: collections.Counter[str] = collections.Counter()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Add a set-up, a call or a tear-down."""
        self.seconds[scope_of(report.nodeid)] += report.duration

    def pytest_sessionfinish(self, exitstatus: int) -> None:
        """Replace the seconds of the files that ran; an interrupted run replaces nothing."""
        if exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
            SECONDS.write_text(json.dumps(self.renew(read_seconds()), indent=1) + "\n")

    def renew(self, kept: dict[str, int]) -> dict[str, int]:
        """Return the new seconds, and those of other files that still exist."""
        ran = set(map(path_of, self.seconds))
        new = {scope: round(seconds) for scope, seconds in self.seconds.items()}
        for scope, seconds in kept.items():
            if path_of(scope) not in ran and (ROOT / path_of(scope)).exists():
                new[scope] = seconds
        return {scope: new[scope] for scope in sorted(new) if new[scope]}


def path_of(scope: str) -> str:
    """Return the file of a scope."""
    return scope.partition("::")[0]
