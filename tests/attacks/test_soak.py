"""The negative controls of benchmarks.soak, which runs by hand: what it is to find, it finds."""

from types import SimpleNamespace

import pytest

from benchmarks.soak import Minute, Soak, problems_on_disk


def minute(slower: float = 1, memory: float = 100, status: int = 200) -> Minute:
    """A minute of a soak, at whose end nobody looked at a server."""
    minute = Minute()
    minute.latencies = [slower * number / 1000 for number in range(1, 101)]
    minute.statuses[status] = len(minute.latencies)
    minute.memory = memory  # MiB
    return minute


def problems(*minutes: Minute) -> list[str]:
    return Soak.problems(SimpleNamespace(minutes=[Minute(), *minutes]))


def test_minutes_that_are_alike_are_no_problem():
    assert problems(minute()) == []
    one_that_is_slow = minute(slower=5)
    last = minute(slower=1.5, memory=109)
    assert problems(minute(), minute(), minute(), last, one_that_is_slow, last) == []


def test_what_grows_or_fails_would_be_found_out():
    assert problems(minute(), minute(), minute(memory=111)) == ["memory grew by 11.0%"]
    slower = minute(slower=2.1)
    assert problems(minute(), minute(), slower, slower) == ["p99 grew by 110%"]
    assert problems(minute(), minute(status=503), minute()) == ["100 responses were a 5xx"]


@pytest.mark.parametrize("folder", ["instance", "pfp"])
def test_a_file_that_is_left_behind_would_be_found_out(store, tmp_path, folder):
    folders = {"DATA_DIR": str(tmp_path / "instance"), "PICTURE_DIR": str(tmp_path / "pfp")}
    installation = SimpleNamespace(settings=folders)
    assert problems_on_disk(installation) == []
    left = tmp_path / folder / ".left"
    left.touch()
    assert f"{left} was left behind" in problems_on_disk(installation)
