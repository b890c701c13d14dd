"""Limits on concurrent work, and forms that a busy worker or a failing disk refuses."""

import io
import threading

import fixtures
import forms
import pytest
from forms import PASSWORD, change_email, from_address, problems_of, sign_up, upload
from waiting import PATIENCE, wait_until
from werkzeug.security import generate_password_hash

from identity.access.links import issue_sign_in_link
from identity.http import limits
from identity.http.limits import HASHES_RUNNING, HASHES_WAITING, Busy, ConcurrencyLimit
from images import pictures

BUSY = "Too many people are doing this right now. Try again in a moment."
NOT_SAVED = "Nothing was saved. Try again in a moment."
app = fixtures.open_app
bobs_browser = fixtures.bobs_browser


def remove_places(monkeypatch) -> None:
    for name in ("password_limit", "picture_limit"):
        monkeypatch.setattr(limits, name, ConcurrencyLimit(0, 0))


def delete(browser, password: str = PASSWORD):
    return browser.post("/account/delete", data={"password": password})


def set_by_link(browser):
    """Submit the form of a sign-in link for the first player."""
    store = browser.application.extensions["storage"]
    return forms.set_by_link(browser, issue_sign_in_link(store, "", store.users.read(1)))


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch):
    monkeypatch.setattr(limits, "TURN_TIMEOUT", 0)


# The id of each form's error at the concurrency limit, and of its error after a failed write
ERROR_FIELDS = {
    sign_up: ("form", "form"),
    set_by_link: ("form", "form"),
    change_email: ("email-password", "email-form"),
    forms.change_password: ("password-password", "password-form"),
    delete: ("delete-password", "delete-form"),
    upload: ("picture-form", "picture-form"),
}
SLOW = {upload: [pytest.mark.live]}


@pytest.mark.parametrize("send", [pytest.param(e, marks=SLOW.get(e, ())) for e in ERROR_FIELDS])
def test_refused_form_is_503_and_sent_again(store, adas_browser, ada, faults, monkeypatch, send):
    busy_field, unsaved_field = ERROR_FIELDS[send]
    before, pictures = store.users.read(ada.id), faults.stored("pictures")
    with monkeypatch.context() as context:
        remove_places(context)
        busy = send(adas_browser)
    faults.refuse_saves("accounts", "users")
    unsaved = send(adas_browser)
    faults.allow_saves()
    for page in (busy, unsaved):
        assert (page.status_code, int(page.headers["Retry-After"]) > 0) == (503, True)
    assert problems_of(busy) == {busy_field: BUSY}
    assert problems_of(unsaved) == {unsaved_field: NOT_SAVED}
    assert (store.users.read(ada.id), store.users.ids()) == (before, [ada.id])
    assert faults.stored("pictures") == pictures
    assert send(adas_browser).status_code == 303


def test_what_can_be_refused_cheaply_needs_no_place(adas_browser, ada, monkeypatch):
    """Nobody hashes a password or decodes a picture for it."""
    remove_places(monkeypatch)
    correct = {"current_password": PASSWORD}
    for path, fields, field in (
        ("password", {"new_password": "short"}, "new-password"),
        ("email", {"email": "ada@example.org"}, "email"),
        ("email", {"email": "nowhere"}, "email"),
    ):
        page = adas_browser.post(f"/account/{path}", data=correct | fields)
        assert (page.status_code, list(problems_of(page))) == (400, [field])
    monkeypatch.setattr(pictures, "MAX_BYTES", 100)
    for content, status in ((b"", 400), (b"%PDF-1.7", 415), (bytes(101), 413)):
        data = {"picture": (io.BytesIO(content), "me.png")}
        assert adas_browser.post("/account/picture", data=data).status_code == status


def test_attempt_over_a_rate_limit_needs_no_place(adas_browser, open_browser, ada, monkeypatch):
    guest = from_address(open_browser(), "192.0.2.1")
    for _ in range(limits.ATTEMPTS_PER_NAME):
        assert guest.sign_in(password="wrong").status_code == 403
        assert delete(adas_browser, "wrong").status_code == 403
    monkeypatch.setattr(limits, "password_limit", ConcurrencyLimit(0, 0))
    assert [guest.sign_in().status_code, delete(adas_browser).status_code] == [429, 429]


@pytest.mark.parametrize("held", ["127.0.0.1", "player 1"])
@pytest.mark.parametrize("send", [upload, change_email, forms.change_password, delete])
def test_player_and_address_have_one_place_at_a_time(adas_browser, bobs_browser, ada, held, send):
    """One member cannot keep others from signing in."""
    places = limits.password_limit.place({held: 1}), limits.picture_limit.place({held: 1})
    with places[0], places[1]:
        page = send(adas_browser)
        assert (page.status_code, problems_of(page)) == (503, {ERROR_FIELDS[send][0]: BUSY})
        assert change_email(bobs_browser).status_code == 303
        assert from_address(bobs_browser, "192.0.2.2").sign_in("Bob").status_code == 303


def test_link_and_rehash_hold_the_place_of_the_player_but_a_typed_name_does_not(
    store, adas_browser, open_browser, browser, ada
):
    guest = open_browser()
    with limits.password_limit.place({"player 1": 1}):
        assert guest.sign_in().status_code == 303
        assert set_by_link(browser).status_code == 503
        legacy = generate_password_hash(PASSWORD, "pbkdf2:sha256:2")
        forms.edit(store.users, ada.id, password_hash=legacy)
        assert open_browser().sign_in().status_code == 503
    with limits.password_limit.place({"192.0.2.1": 1}):
        assert from_address(open_browser(), "192.0.2.1").sign_in().status_code == 503
        assert forms.change_email(adas_browser).status_code == 303


def test_ipv6_48_bit_network_holds_two_places(open_browser, ada, monkeypatch):
    monkeypatch.setattr(limits, "password_limit", limit := ConcurrencyLimit(2, 2))

    def sign_in_from(address: str) -> int:
        return from_address(open_browser(), address).sign_in().status_code

    first, second = (limits.networks_of(f"2001:db8:0:{number}::1") for number in (1, 2))
    with limit.place(first):
        assert sign_in_from("2001:db8:0:1::2") == 503
        assert sign_in_from("2001:db8:0:3::1") == 303
        with limit.place(second):
            assert sign_in_from("2001:db8::") == 503
        assert sign_in_from("2001:db8:1::1") == 303


class Worker:
    """Threads that hold, or wait for, places of a concurrency limit until `leave` is set."""

    def __init__(self) -> None:
        self.limit = ConcurrencyLimit(HASHES_RUNNING, HASHES_WAITING)
        self.entered, self.busy, self.leave = [], [], threading.Event()
        self.threads = []

    def start(self, holders: dict[str, int]) -> None:
        self.threads.append(threading.Thread(target=self._hold, args=(holders,)))
        self.threads[-1].start()

    def _hold(self, holders: dict[str, int]) -> None:
        try:
            with self.limit.place(holders):
                self.entered.append(holders)
                assert self.leave.wait(PATIENCE)
        except Busy:
            self.busy.append(holders)

    def end(self) -> None:
        self.leave.set()
        for thread in self.threads:
            thread.join()


@pytest.fixture
def worker(monkeypatch):
    """A worker whose requests wait for the place of their holder."""
    monkeypatch.setattr(limits, "TURN_TIMEOUT", PATIENCE)
    worker = Worker()
    yield worker
    worker.end()


def test_concurrency_limit_runs_two_hashes_and_queues_two(worker):
    for number in range(5):
        worker.start({f"192.0.2.{number}": 1})
    wait_until(lambda: (len(worker.entered), len(worker.busy)) == (2, 1))
    worker.end()
    assert (len(worker.entered), len(worker.busy)) == (4, 1)
    places = [worker.limit.place({f"player {number}": 1}) for number in range(4)]
    with places[0], places[1]:  # all places are released
        pass


def test_concurrency_limit_per_holder_counts_waiting(worker):
    for number in range(2):
        worker.start({f"192.0.2.{number}": 1})
    wait_until(lambda: len(worker.entered) == 2)
    for _ in range(4):  # one is queued, one waits for it to end, and two are refused
        worker.start({"192.0.2.9": 1, "player 1": 1})
    wait_until(lambda: len(worker.busy) == 2)
    for holders in ({"player 1": 1}, {"192.0.2.9": 1}, {"192.0.2.9": 1, "player 2": 1}):
        with pytest.raises(Busy), worker.limit.place(holders):
            pass
    worker.start({"192.0.2.10": 1, "player 2": 1})
    worker.end()
    assert (len(worker.entered), len(worker.busy)) == (5, 2)
    with worker.limit.place({"192.0.2.9": 1, "player 1": 1}):
        pass


def test_waiting_for_the_place_of_the_same_holder_ends(monkeypatch):
    monkeypatch.setattr(limits, "TURN_TIMEOUT", 0.05)
    limit = ConcurrencyLimit(2, 2)
    for _ in range(2):
        with limit.place({"player 1": 1}), pytest.raises(Busy), limit.place({"player 1": 1}):
            pass
