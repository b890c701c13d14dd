"""The loss of the primary, of the standby, and of both for a while, under load."""

import os
import time
from collections.abc import Iterator

import pytest
from live.running import running_server

from storage import open_storage

from .load import Load, two_servers
from .replication import frozen, running_pair

pytestmark = [pytest.mark.live, pytest.mark.postgresql, pytest.mark.load]
RUNS = int(os.environ.get("FAILOVERS", "2"))  # `.ci/run --all` makes six
WARM_UP = 3  # seconds
BACK_AFTER = 10  # seconds from the promotion to the first success of each kind of request
LONGEST_WAIT = 5  # seconds, for one request without a password
MARGIN = 5  # seconds, for a busy machine
KINDS = ("save", "sign-up", "code", "token", "look-up")


@pytest.fixture
def load(request) -> Iterator[tuple]:
    """A pair of databases, two servers on it, and load on these."""
    with (
        running_pair(getattr(request, "param", True)) as pair,
        two_servers(pair.url, running_server) as servers,
    ):
        store = open_storage("", "", pair.url)
        with Load(servers, store) as load:
            load.wait_for_success(*KINDS)
            time.sleep(WARM_UP)
            yield pair, load
        store.close()


def check_statuses(load: Load) -> None:
    """The only server error is 503, soon; no code was accepted twice."""
    assert {status for _, status in load.statuses if status >= 500} <= {503}, load.statuses
    quick = {kind: each for kind, each in load.slowest.items() if kind != "sign-up"}
    assert max(quick.values()) < LONGEST_WAIT + MARGIN, load.slowest
    assert max(load.accepted.values()) == 1
    ids = [user_id for user_id, _ in load.signed_up if user_id]
    assert len(ids) == len(set(ids))


@pytest.mark.parametrize("run", range(RUNS))
def test_nothing_acknowledged_is_lost_when_the_primary_dies(load, run: int):
    pair, load = load
    pair.kill_primary()
    time.sleep(0.5)
    pair.promote()
    seconds = load.wait_for_success(*KINDS)
    time.sleep(1)
    load.__exit__()
    assert load.lost() == []
    check_statuses(load)
    assert seconds < BACK_AFTER
    print(f"back after {seconds:.1f} s; {load.statuses}; slowest: {load.slowest}")


@pytest.mark.parametrize("load", [False], indirect=True, ids=["asynchronous"])
def test_asynchronous_replication_loses_acknowledged_saves(load):
    """Negative control: the test above can fail."""
    pair, load = load
    pair.kill_primary()
    pair.promote()
    load.wait_for_success("look-up")
    load.__exit__()
    assert load.lost() != []


def test_saves_answer_503_and_look_ups_go_on_without_the_standby(load):
    pair, load = load
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
    load.__exit__()
    assert load.lost() == []
    check_statuses(load)
    assert seconds < BACK_AFTER + MARGIN
    print(f"back after {seconds:.1f} s; {load.statuses}; slowest: {load.slowest}")


def test_a_frozen_primary_is_a_503_and_is_back_when_it_goes_on(load):
    pair, load = load
    with frozen(pair.primary):
        # Each server notices at its own first call, and the calls that it makes until then wait.
        time.sleep(2 * LONGEST_WAIT)
        load.measure_again()
        time.sleep(3)
        # Every thread is free again: each request is answered at once.
        assert max(load.slowest.values()) < MARGIN
        assert load.statuses["look-up", 503] > 0
    seconds = load.wait_for_success(*KINDS)
    load.__exit__()
    assert load.lost() == []
    check_statuses(load)
    assert seconds < BACK_AFTER
    print(f"back after {seconds:.1f} s; {load.statuses}; slowest: {load.slowest}")


def test_a_primary_that_is_restarted_needs_no_restart_of_the_servers(load):
    pair, load = load
    pair.primary.stop()
    time.sleep(2)
    pair.primary.start()
    seconds = load.wait_for_success(*KINDS)
    load.__exit__()
    assert load.lost() == []
    check_statuses(load)
    assert seconds < BACK_AFTER
