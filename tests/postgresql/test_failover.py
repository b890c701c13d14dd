"""The loss of the primary, of the standby, and of both for a while, under load."""

import contextlib
import os
import time
from collections.abc import Iterator

import pytest
from live.running import running_server

from storage import open_storage

from .load import Load, two_servers
from .replication import DELAY, Pair, frozen, running_pair

pytestmark = [pytest.mark.live, pytest.mark.postgresql, pytest.mark.load]
RUNS = int(os.environ.get("FAILOVERS", "1"))  # `.ci/run --all` makes six
WARM_UP = 3  # seconds
BACK_AFTER = 10  # seconds from the promotion to the first success of each kind of request
LONGEST_WAIT = 5  # seconds, for one request without a password
MARGIN = 5  # seconds, for a busy machine
KINDS = ("save", "sign-up", "code", "token", "look-up", "refresh")


@contextlib.contextmanager
def running_site(is_synchronous: bool = True) -> Iterator[tuple[Pair, Load]]:
    """Run a pair of databases and two servers on it; yield the pair, and load on the servers."""
    with (
        running_pair(is_synchronous) as pair,
        two_servers(pair.url, running_server) as servers,
        contextlib.closing(open_storage("", "", pair.url)) as store,
    ):
        load = Load(servers, store)
        pair.link.delay = DELAY  # the players are there
        yield pair, load


@contextlib.contextmanager
def warmed_up(load: Load) -> Iterator[None]:
    """Run load until the block ends; begin when each kind of request has succeeded for a while."""
    with load:
        load.wait_for_success(*KINDS)
        time.sleep(WARM_UP)
        yield


@pytest.fixture(scope="module")
def site() -> Iterator[tuple[Pair, Load]]:
    """A pair that every test leaves as it was, with two servers and their load."""
    with running_site() as site:
        yield site


def check_load(load: Load, seconds: float, limit: float) -> None:
    """Nothing is lost; the only server error is 503, soon; no code was accepted twice.

    All kinds of requests succeeded again after some seconds, which must be below the limit.
    """
    print(f"back after {seconds:.1f} s; {load.statuses}; slowest: {load.slowest}")
    assert load.lost() == []
    assert load.statuses["refresh", 400] == 0  # the old token stays good
    assert {status for _, status in load.statuses if status >= 500} <= {503}
    quick = {kind: each for kind, each in load.slowest.items() if kind != "sign-up"}
    assert max(quick.values()) < LONGEST_WAIT + MARGIN
    assert max(load.accepted.values()) == 1
    ids = [user_id for user_id, _ in load.signed_up if user_id]
    assert len(ids) == len(set(ids))
    assert seconds < limit


@pytest.mark.parametrize("run", range(RUNS))
def test_nothing_acknowledged_is_lost_when_the_primary_dies(run: int):
    with running_site() as (pair, load):
        with warmed_up(load):
            pair.kill_primary()
            time.sleep(0.5)
            pair.promote()
            seconds = load.wait_for_success(*KINDS)
            time.sleep(1)
        check_load(load, seconds, BACK_AFTER)


@pytest.mark.slow
def test_asynchronous_replication_loses_acknowledged_saves():
    """Negative control: the test above can fail."""
    with running_site(is_synchronous=False) as (pair, load):
        with warmed_up(load):
            pair.kill_primary()
            pair.promote()
            load.wait_for_success("look-up")
        assert load.lost() != []


def test_saves_are_503_without_the_standby(site):
    pair, load = site
    with warmed_up(load):
        pair.standby.stop()
        stopped = time.monotonic()
        while load.statuses["save", 503] == 0:
            assert time.monotonic() < stopped + LONGEST_WAIT + MARGIN
            time.sleep(0.02)
        load.measure_again()
        before = load.statuses["look-up", 200]
        time.sleep(4)
        assert load.statuses["look-up", 503] == 0
        assert load.statuses["look-up", 200] > before + 20
        assert load.slowest["look-up"] < MARGIN
        pair.standby.start()
        seconds = load.wait_for_success(*KINDS)
    check_load(load, seconds, BACK_AFTER + MARGIN)


def test_frozen_primary_is_503_until_it_goes_on(site):
    pair, load = site
    with warmed_up(load):
        with frozen(pair.primary):
            # Each server notices at its first call, and the calls that it makes until then wait.
            time.sleep(2 * LONGEST_WAIT)
            load.measure_again()
            time.sleep(3)
            # Every thread is free again: each request is answered at once.
            assert max(load.slowest.values()) < MARGIN
            assert load.statuses["look-up", 503] > 0
        seconds = load.wait_for_success(*KINDS)
    check_load(load, seconds, BACK_AFTER)
