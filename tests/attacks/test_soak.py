"""Negative controls of benchmarks.soak, which is run by hand: it reports each kind of problem."""

from types import SimpleNamespace

from benchmarks.soak import Minute, Soak


def minute(slower: float = 1, memory: float = 100, status: int = 200) -> Minute:
    """Return a minute of a soak run, made without a server."""
    minute = Minute()
    minute.latencies = [slower * number / 1000 for number in range(1, 101)]
    minute.statuses[status] = len(minute.latencies)
    minute.memory = memory  # MiB
    return minute


def problems(*minutes: Minute) -> list[str]:
    return Soak.problems(SimpleNamespace(minutes=[Minute(), *minutes]))


def test_growth_and_server_errors_alone_are_reported():
    assert problems(minute()) == []
    one_slow_minute = minute(slower=5)
    last = minute(slower=1.5, memory=109)
    assert problems(minute(), minute(), minute(), last, one_slow_minute, last) == []
    assert problems(minute(), minute(), minute(memory=111)) == ["memory grew by 11.0%"]
    slower = minute(slower=2.1)
    assert problems(minute(), minute(), slower, slower) == ["p99 grew by 110%"]
    assert problems(minute(), minute(status=503), minute()) == ["100 responses were a 5xx"]
