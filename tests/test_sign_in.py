"""Sign-in, sign-out and sessions: `identity.sessions`, `identity.passwords`."""

import html
import re
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from email.utils import parsedate_to_datetime

import pytest
from conftest import PASSWORD, Browser, begin_window
from waiting import PATIENCE, wait_until
from werkzeug.security import check_password_hash, generate_password_hash

from identity import limits, passwords
from identity.limits import HASHES_RUNNING, HASHES_WAITING, Busy, ConcurrencyLimit
from identity.passwords import NOBODYS_HASH, PASSWORD_METHOD
from identity.sessions import start_session
from storage.records import Suspension, now_ms
from storage.rules import check_hash_format

REAL_METHOD = "scrypt:32768:8:3"
FOURTEEN_DAYS = 14 * 86400  # seconds


def is_signed_in(browser) -> bool:
    """Return whether the home page greets Ada."""
    page = browser.get("/")
    assert page.status_code == 200
    return "Hello, <bdi>Ada</bdi>" in page.text


def cookie_parts(answer) -> dict[str, str]:
    """Return name, value and attributes (in lower case) of the only cookie that is set."""
    [header] = answer.headers.getlist("Set-Cookie")
    pair, *attributes = header.split("; ")
    parts = {key.lower(): value for key, _, value in (each.partition("=") for each in attributes)}
    name, _, value = pair.partition("=")
    return parts | {"name": name, "value": value}


def sign_in_from(open_browser, address: str, name: str = "Ada", password: str = "wrong") -> int:
    """Sign in from this address; return the status code."""
    browser = open_browser()
    browser.environ_base["REMOTE_ADDR"] = address
    return browser.sign_in(name, password).status_code


# -- the form -------------------------------------------------------------------------------------


def test_page_has_name_and_password_fields_and_keeps_next(browser):
    page = browser.get("/sign-in?next=/a%3Fb%3D%22c")
    assert page.status_code == 200
    fields = dict(re.findall(r'<input[^>]* name="(\w+)"(?: value="([^"]*)")?', page.text))
    assert fields == {"name": "", "password": "", "next": "/a?b=&#34;c"}


@pytest.mark.parametrize(
    "name",
    [
        *("Ada", "ada", "ADA", " ada ", "\u202fada", "Ａｄａ"),
        *("ada@example.org", "ADA@Example.ORG", "ada@example.org "),
    ],
)
def test_sign_in_normalizes_name_and_email(browser, ada, name):
    assert browser.sign_in(name).status_code == 303
    assert is_signed_in(browser)


@pytest.mark.parametrize("password", [PASSWORD + " ", PASSWORD.upper(), "", PASSWORD[:-1], "wrong"])
def test_password_must_match_exactly(browser, ada, password):
    assert browser.sign_in(password=password).status_code == 403
    assert not is_signed_in(browser)


def test_query_string_is_ignored(browser, ada):
    query = f"name=Ada&password={PASSWORD}"
    assert browser.post(f"/sign-in?{query}").status_code == 403
    assert not is_signed_in(browser)


def test_refused_form_does_not_show_the_password(browser, ada):
    page = browser.sign_in(password="a password with a slip")
    assert "slip" not in page.text
    assert 'value="Ada"' in page.text


@pytest.mark.parametrize("name", ['"><script>', "<b>"])
def test_name_is_escaped(browser, name):
    page = browser.sign_in(name)
    assert name not in page.text
    assert name in html.unescape(page.text)


# -- next -----------------------------------------------------------------------------------------

KEPT = ["/", "/a", "/a?b=c&d=%2B+%26", "/oauth/authorize?state=%22", "/a//b", "/.//evil.example"]
DROPPED = [
    *("", "//evil.example", "/\\evil.example", "\\\\evil.example", "\\/evil.example", "///x"),
    *("https://evil.example", "javascript:alert(1)", "evil.example", "a", "?a", "#a", " /a"),
    *("/\t/evil.example", "/a\r\nSet-Cookie: x=y", "/a\nb", "/\0", "/\x7f", "\t/a", "/a\n"),
    *("http:/a", "https:evil.example", "/\x1f/evil.example", "／/evil.example"),
]


@pytest.mark.parametrize("address", KEPT)
def test_local_next_is_kept(browser, ada, address):
    assert browser.sign_in(next=address).location == address
    assert browser.get("/sign-in", query_string={"next": address}).location == address
    assert browser.post("/sign-out", data={"next": address}).location == address


@pytest.mark.parametrize("address", DROPPED)
def test_foreign_next_redirects_to_the_home_page(browser, ada, address):
    page = browser.get("/sign-in", query_string={"next": address})
    assert 'name="next" value="/"' in page.text
    assert 'name="next" value="/"' in browser.sign_in(password="wrong", next=address).text
    assert browser.sign_in(next=address).location == "/"
    assert browser.get("/sign-in", query_string={"next": address}).location == "/"
    assert browser.post("/sign-out", data={"next": address}).location == "/"


def test_next_is_kept_after_a_wrong_password(browser, ada):
    page = browser.sign_in(password="wrong", next="/a?b=c&d=e")
    assert 'name="next" value="/a?b=c&amp;d=e"' in page.text


# -- refusals reveal nothing ----------------------------------------------------------------------


def without_name(page, name: str) -> str:
    """Return the text of a page with this name replaced by a constant."""
    return page.text.replace(str(html.escape(name)), "NAME")


def test_unknown_name_has_the_same_response_as_a_wrong_password(store, browser, ada, bob):
    store.users.delete(bob.id)
    wrong = browser.sign_in("Ada", "wrong")
    assert wrong.status_code == 403
    for name in ("Zoe", "Bob", "bob@example.org", "zoe@example.org", "../users/1", "/etc/passwd"):
        answer = browser.sign_in(name)
        assert answer.status_code == 403
        assert without_name(answer, name) == without_name(wrong, "Ada")
        assert sorted(answer.headers.keys()) == sorted(wrong.headers.keys())


@pytest.mark.parametrize("name", ["\0", "a\0b", ".", "..", "/", "é" * 5000, "x" * 60_000, "", "@"])
def test_impossible_name_is_403_like_an_unknown_one(browser, ada, name):
    assert browser.sign_in(name).status_code == 403


class HashingWork:
    """A stub of the hash functions that adds the cost of each call to `spent`.

    `spent` replaces the processor time of the thread, in seconds.
    """

    costs = {  # seconds of processor time, by method
        REAL_METHOD: 0.3,
        "scrypt:32768:8:1": 0.1,
        "scrypt:4096:8:1": 0.0125,
        "pbkdf2:sha256:260000": 0.08,
        "pbkdf2:sha256:1000": 0.0004,
    }

    def __init__(self) -> None:
        self.spent, self.slowness = 0.0, 1
        self.nobodys: float | None = None  # seconds; None: the cost of the real method

    def spend(self, method: str) -> None:
        if method not in self.costs:  # a wrapping: a multiple of a method in `costs`
            method, _, times = method.rpartition(":")
            self.spent += self.costs[f"{method}:1"] * int(times) * self.slowness
        else:
            self.spent += self.costs[method] * self.slowness

    def check_password_hash(self, kept_hash: str, password: str) -> bool:
        if kept_hash == NOBODYS_HASH and self.nobodys is not None:
            self.spent += self.nobodys * self.slowness
        else:
            self.spend(kept_hash.partition("$")[0])
        return False

    def legacy_digest(self, method: str, salt: str, password: str) -> str:
        self.spend(method)
        return "00"


@pytest.fixture
def work(ada, monkeypatch) -> HashingWork:
    """The stub in place of the server's hash functions, with the real method names."""
    work = HashingWork()
    monkeypatch.setattr(passwords, "PASSWORD_METHOD", PASSWORD_METHOD)
    monkeypatch.setattr(passwords, "NOBODYS_HASH", NOBODYS_HASH)
    monkeypatch.setattr(passwords, "check_password_hash", work.check_password_hash)
    monkeypatch.setattr(passwords, "legacy_digest", work.legacy_digest)
    monkeypatch.setattr(time, "thread_time", lambda: work.spent)
    return work


LEGACY = ["scrypt:32768:8:1", "pbkdf2:sha256:1000", "pbkdf2:sha256:260000"]  # Werkzeug's defaults


@pytest.fixture(params=[PASSWORD_METHOD, *LEGACY, *(f"wrapped {each}" for each in LEGACY)])
def stored_method(request, store, ada, work) -> str:
    """The hash method of Ada's password: the current one, or a legacy one, wrapped or not."""
    kind, _, method = request.param.rpartition(" ")
    kept_hash = f"{method}$salt$00"
    with store.users.edit(ada.id) as user:
        user.password_hash = passwords.wrap_hash(kept_hash) if kind else kept_hash
    return request.param


def cost_of(browser, work: HashingWork, name: str) -> float:
    """Return the seconds of hashing for a sign-in with this name and a wrong password."""
    before = work.spent
    assert browser.sign_in(name, "wrong").status_code == 403
    return work.spent - before


def test_unknown_name_takes_as_long_as_a_wrong_password(browser, work, stored_method):
    """tests/attacks/test_grant.py measures the same with real hashes."""
    cost_of(browser, work, "Ada")  # the first check also measures the cost of a legacy method
    known, unknown = (cost_of(browser, work, name) for name in ("Ada", "Zoe"))
    assert known == pytest.approx(unknown, rel=0.03)
    assert unknown == pytest.approx(work.costs[REAL_METHOD])


def test_unknown_name_takes_as_long_on_a_slowed_machine(browser, work, stored_method):
    """The machine is half as fast as at the measurement of the legacy method."""
    cost_of(browser, work, "Ada")
    work.slowness = 2
    unknown, known = (cost_of(browser, work, name) for name in ("Zoe", "Ada"))
    assert known == pytest.approx(unknown, rel=0.03)
    assert unknown == pytest.approx(2 * work.costs[REAL_METHOD])


@pytest.mark.parametrize("seconds", [0.0, 0.1])
def test_control_cheaper_hash_for_unknown_names_is_detected(browser, work, store, ada, seconds):
    """The control for unknown names: without a hash, and with a third of its cost."""
    with store.users.edit(ada.id) as user:
        user.password_hash = f"{PASSWORD_METHOD}$salt$00"
    work.nobodys = seconds
    known, unknown = (cost_of(browser, work, name) for name in ("Ada", "Zoe"))
    assert unknown < 0.5 * known


def test_account_without_a_password_cannot_sign_in(store, browser, ada):
    with store.users.edit(ada.id) as user:
        user.password_hash = ""
    for password in ("", "nobody's", PASSWORD):
        assert browser.sign_in(password=password).status_code == 403


def test_suspended_player_reads_reason_and_end(app, store, browser, ada):
    end = 4_102_482_600_000  # 1 January 2100, 10:30 UTC
    ended = "You are suspended until 1 January 2100, 10:30 UTC."
    app.config["ABOUT_URL"] = "https://example.org/?a=1&b=2"
    ask = 'A mistake? <a href="https://example.org/?a=1&amp;b=2">Write to us</a>.'
    wrong = browser.sign_in(password="wrong").data
    for reason, until, words in (
        ("", None, f"You are suspended. {ask}"),
        ("", end, f"{ended} {ask}"),
        ("Rude <b>", None, f"You are suspended. The reason: Rude &lt;b&gt;. {ask}"),
        ("Rude!", end, f"{ended} The reason: Rude! {ask}"),
    ):
        with store.users.edit(ada.id) as user:
            user.suspension = Suspension("command", 0, reason, until)
        answer = browser.sign_in()
        assert (answer.status_code, words in answer.text) == (403, True)
        assert "Set-Cookie" not in answer.headers
        assert browser.sign_in(password="wrong").data == wrong
    assert store.users.read(ada.id).sessions == []


def test_sign_in_works_again_when_the_suspension_ends(store, browser, ada):
    with store.users.edit(ada.id) as user:
        user.suspension = Suspension("command", until=now_ms() + 60_000)
    assert browser.sign_in().status_code == 403
    with store.users.edit(ada.id) as user:
        user.suspension.until = now_ms()
    assert browser.sign_in().status_code == 303
    assert is_signed_in(browser)


# -- rate limits ----------------------------------------------------------------------------------


def test_sign_in_rate_limit_per_name_and_address(browser, open_browser, ada, bob, clock):
    assert [browser.sign_in(password="wrong").status_code for _ in range(10)] == [403] * 10
    for password in ("wrong", PASSWORD):  # the password is not checked
        answer = browser.sign_in(password=password)
        assert answer.status_code == 429
        assert 0 < int(answer.headers["Retry-After"]) <= 1800
    assert not is_signed_in(browser)
    assert sign_in_from(open_browser, "192.0.2.2", password=PASSWORD) == 303
    assert browser.sign_in("Bob").status_code == 303
    clock.shift(1800)
    assert browser.sign_in().status_code == 303


def test_name_rate_limit_normalizes_names(browser, ada):
    for name in ("Ada", "ada", "ADA", " ada", "Ａda") * 2:
        assert browser.sign_in(name, "wrong").status_code == 403
    assert browser.sign_in("aDa", "wrong").status_code == 429


def test_name_rate_limit_covers_unknown_names(browser, ada):
    statuses = {}
    for name in ("Ada", "Zoe"):
        statuses[name] = [browser.sign_in(name, "wrong").status_code for _ in range(12)]
    assert statuses["Ada"] == statuses["Zoe"] == [403] * 10 + [429] * 2


def test_correct_password_is_not_counted_and_keeps_the_failures(browser, ada):
    for _ in range(9):
        browser.sign_in(password="wrong")
    for _ in range(5):
        assert browser.sign_in().status_code == 303
    assert browser.sign_in(password="wrong").status_code == 403
    assert browser.sign_in(password="wrong").status_code == 429


def test_sign_in_rate_limit_per_address(open_browser, ada):
    browser = open_browser()
    browser.environ_base["REMOTE_ADDR"] = "192.0.2.1"
    statuses = [browser.sign_in(f"Name{i}", "wrong").status_code for i in range(100)]
    assert statuses == [403] * 100
    answer = browser.sign_in()
    assert answer.status_code == 429
    assert 0 < int(answer.headers["Retry-After"]) <= 1800
    assert sign_in_from(open_browser, "192.0.2.2", password=PASSWORD) == 303


def test_ipv6_48_bit_network_may_fail_twice_as_often_for_a_name(open_browser, ada, faults):
    """Its 65,536 networks of 64 bits are one customer's."""
    statuses = [sign_in_from(open_browser, f"2001:db8:0:{n:x}::1") for n in range(24)]
    assert statuses == [403] * 20 + [429] * 4
    assert sign_in_from(open_browser, "2001:db8:0:ff::1", password=PASSWORD) == 429
    assert sign_in_from(open_browser, "2001:db8:1::1", password=PASSWORD) == 303


def test_ipv6_48_bit_network_may_fail_twice_as_often(open_browser, ada):
    failures = ((network, number) for network in (1, 2, 3) for number in range(100))
    statuses = [
        sign_in_from(open_browser, f"2001:db8:0:{network}::1", f"Name {number}")
        for network, number in failures
    ]
    assert statuses == [403] * 200 + [429] * 100
    assert sign_in_from(open_browser, "2001:db8:0:4::1", password=PASSWORD) == 429
    assert sign_in_from(open_browser, "2001:db8:1::1", password=PASSWORD) == 303


def test_attempts_refused_for_an_ipv6_48_bit_network_leave_no_file(open_browser, ada, faults):
    """Each of its networks could leave one otherwise."""
    for number in range(20):
        sign_in_from(open_browser, f"2001:db8:0:{number % 2}::1")
    before = faults.stored("attempts")
    for number in range(2, 22):
        assert sign_in_from(open_browser, f"2001:db8:0:{number:x}::1") == 429
    assert faults.stored("attempts") == before


def test_refused_attempt_is_not_counted(browser, ada, bob, clock, faults):
    begin_window(clock)
    for _ in range(10):
        browser.sign_in(password="wrong")
    assert faults.attempt_counts() == [10, 10]  # of the name and of the address
    for _ in range(100):
        browser.sign_in(password="wrong")
    assert faults.attempt_counts() == [10, 10]
    assert browser.sign_in("Bob").status_code == 303


def test_attempt_that_cannot_be_counted_is_503(browser, ada, faults):
    faults.refuse_saves("attempts")
    for password in (PASSWORD, "wrong"):
        answer = browser.sign_in(password=password)
        assert (answer.status_code, "Sign in" in answer.text) == (503, True)
        assert int(answer.headers["Retry-After"]) > 0
    assert not is_signed_in(browser)


def test_unsaved_sign_in_is_503_and_not_counted(browser, ada, faults):
    faults.refuse_saves("users")
    for _ in range(11):
        answer = browser.sign_in("ADA")
        assert (answer.status_code, "Set-Cookie" in answer.headers) == (503, False)
        assert int(answer.headers["Retry-After"]) > 0
        assert "Nothing was saved." in answer.text and 'value="ADA"' in answer.text
    faults.allow_saves()
    assert browser.sign_in().status_code == 303


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
def worker():
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


def test_concurrency_limit_per_holder_includes_waiting_ones(worker):
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


def test_a_double_click_on_sign_in_waits_for_its_first_click(monkeypatch, ada, app):
    monkeypatch.setattr(limits, "password_limit", limit := ConcurrencyLimit(2, 2))
    with ThreadPoolExecutor(1) as threads:
        with limit.place({"127.0.0.1": 1}):
            second = threads.submit(Browser(app, app.response_class).sign_in)
            with pytest.raises(TimeoutError):
                second.result(timeout=0.3)
        assert second.result(timeout=PATIENCE).status_code == 303


def test_waiting_for_the_own_place_ends(monkeypatch):
    monkeypatch.setattr(limits, "TURN_TIMEOUT", 0.05)
    limit = ConcurrencyLimit(2, 2)
    for _ in range(2):
        with limit.place({"player 1": 1}), pytest.raises(Busy), limit.place({"player 1": 1}):
            pass


def test_ipv6_48_bit_network_holds_two_places(open_browser, ada, monkeypatch):
    monkeypatch.setattr(limits, "TURN_TIMEOUT", 0)
    monkeypatch.setattr(limits, "password_limit", limit := ConcurrencyLimit(2, 2))
    site, other_site = "2001:db8::", "2001:db8:1::1"
    first, second = (limits.networks_of(f"2001:db8:0:{number}::1") for number in (1, 2))
    with limit.place(first):
        assert sign_in_from(open_browser, "2001:db8:0:1::2", password=PASSWORD) == 503
        assert sign_in_from(open_browser, "2001:db8:0:3::1", password=PASSWORD) == 303
        with limit.place(second):
            assert sign_in_from(open_browser, site, password=PASSWORD) == 503
        assert sign_in_from(open_browser, other_site, password=PASSWORD) == 303


def test_sign_in_at_the_concurrency_limit_is_503_and_not_counted(browser, ada, monkeypatch):
    with monkeypatch.context() as busy:
        busy.setattr(limits, "password_limit", ConcurrencyLimit(0, 0))
        for _ in range(11):
            answer = browser.sign_in(password="wrong")
            assert answer.status_code == 503
            assert int(answer.headers["Retry-After"]) > 0
    assert browser.sign_in().status_code == 303


# -- passwords ------------------------------------------------------------------------------------


def test_password_hash_and_dummy_hash_use_the_owasp_parameters(monkeypatch):
    assert PASSWORD_METHOD == REAL_METHOD
    assert NOBODYS_HASH.startswith(f"{REAL_METHOD}$")
    monkeypatch.setattr(passwords, "PASSWORD_METHOD", PASSWORD_METHOD)
    kept_hash = passwords.hash_password(PASSWORD)
    assert kept_hash.startswith(f"{REAL_METHOD}$")
    assert check_password_hash(kept_hash, PASSWORD)


@pytest.mark.parametrize("weaker", ["scrypt:1024:8:1", "pbkdf2:sha256:1000", "pbkdf2:sha1:1"])
@pytest.mark.parametrize("wrap", [str, passwords.wrap_hash])
def test_legacy_hash_is_replaced_at_sign_in(store, browser, ada, weaker, wrap):
    old_hash = wrap(generate_password_hash(PASSWORD, weaker))
    with store.users.edit(ada.id) as user:
        user.password_hash = old_hash
    browser.sign_in(password="wrong")
    assert store.users.read(ada.id).password_hash == old_hash
    assert browser.sign_in().status_code == 303
    new_hash = store.users.read(ada.id).password_hash
    assert new_hash.startswith(f"{passwords.PASSWORD_METHOD}$")
    assert check_password_hash(new_hash, PASSWORD)


def test_wrapped_hash_does_not_contain_the_legacy_digest():
    legacy_hash = generate_password_hash(PASSWORD, "pbkdf2:sha256:1000")
    wrapped = passwords.wrap_hash(legacy_hash)
    method, salt, digest = legacy_hash.split("$")
    assert wrapped.endswith(f"|{method}${salt}") and digest not in wrapped
    assert check_hash_format(wrapped) is None
    assert passwords.verify_password(wrapped, PASSWORD)
    assert not passwords.verify_password(wrapped, digest)


@pytest.mark.parametrize("step_time", [0.001, 1000])
def test_wrapped_hash_of_a_busy_machine_is_accepted(monkeypatch, step_time):
    """Times that were measured beside other load give no hash that a restore would refuse."""
    step = f"{passwords.WRAPPING_STEP}:1"
    monkeypatch.setattr(passwords, "PASSWORD_METHOD", "slow")
    monkeypatch.setattr(passwords, "wrapping_method", passwords.wrapping_method.__wrapped__)
    monkeypatch.setattr(
        passwords, "processor_time", lambda method: {"slow": 2, step: step_time}.get(method, 1)
    )
    wrapped = passwords.wrap_hash(generate_password_hash(PASSWORD, "pbkdf2:sha256:1000"))
    assert check_hash_format(wrapped) is None
    assert passwords.verify_password(wrapped, PASSWORD)


@pytest.mark.parametrize("damaged", ["wrapped:", "wrapped:|", "wrapped:a$b$c|pbkdf2", "md9$a$b"])
def test_damaged_hash_is_503(store, browser, ada, damaged):
    with store.users.edit(ada.id) as user:
        user.password_hash = damaged
    assert browser.sign_in().status_code == 503


def test_current_hash_is_not_replaced(store, browser, ada):
    browser.sign_in()
    assert store.users.read(ada.id).password_hash == ada.password_hash


def test_password_change_during_sign_in_starts_no_session(app, store, ada):
    with store.users.edit(ada.id) as user:
        user.password_hash = "the hash of a new one"
    with app.test_request_context():
        assert not start_session(ada, PASSWORD)
    user = store.users.read(ada.id)
    assert (user.sessions, user.password_hash) == ([], "the hash of a new one")


# -- the cookie -----------------------------------------------------------------------------------


def test_cookie_is_httponly_lax_and_lasts_14_days(browser, ada):
    cookie = cookie_parts(browser.sign_in())
    assert cookie["name"] == "session"
    assert {"httponly", "path", "samesite", "expires"} <= cookie.keys()
    assert (cookie["samesite"], cookie["path"]) == ("Lax", "/")
    assert not {"secure", "domain"} & cookie.keys()
    seconds = parsedate_to_datetime(cookie["expires"]).timestamp() - time.time()
    assert abs(seconds - FOURTEEN_DAYS) < 60


def test_https_cookie_is_secure_with_host_prefix(make_app):
    app = make_app(BASE_URL="https://id.example.org")
    store = app.extensions["storage"]
    store.users.register("Ada", "ada@example.org", passwords.hash_password(PASSWORD))
    browser = app.test_client()
    form = {"name": "Ada", "password": PASSWORD}
    cookie = cookie_parts(browser.post("/sign-in", data=form, base_url="https://id.example.org"))
    assert cookie["name"] == "__Host-session"
    assert {"secure", "httponly"} <= cookie.keys()
    assert (cookie["samesite"], cookie["path"], "domain" in cookie) == ("Lax", "/", False)
    deleted = cookie_parts(browser.post("/sign-out", base_url="https://id.example.org"))
    assert deleted["name"] == "__Host-session"
    assert {"secure", "httponly"} <= deleted.keys()
    assert (deleted["value"], deleted["path"], deleted["max-age"]) == ("", "/", "0")


def test_each_sign_in_creates_a_new_session(store, browser, ada):
    before = now_ms()
    cookies = []
    for _ in range(2):
        browser.environ_base["HTTP_USER_AGENT"] = "Mozilla/5.0 (X11; Linux) Firefox/140.0"
        cookies.append(cookie_parts(browser.sign_in())["value"])
    assert cookies[0] != cookies[1]
    sessions = store.users.read(ada.id).sessions
    assert len({each.id for each in sessions}) == 2
    assert [each.browser for each in sessions] == ["Firefox on Linux"] * 2
    assert before <= sessions[0].since <= sessions[1].since <= now_ms()


@pytest.mark.parametrize(
    ("user_agent", "words"),
    [
        ("", "a browser on an unknown system"),
        ("curl/8.0", "a browser on an unknown system"),
        ("<script>Firefox</script> Android", "Firefox on Android"),
        ("Mozilla/5.0 (Windows NT 10.0) Chrome/120 Safari/537.36 Edg/120", "Edge on Windows"),
        ("Mozilla/5.0 (Linux; Android 14) Chrome/120 Mobile Safari/537.36", "Chrome on Android"),
        (
            "Mozilla/5.0 (iPhone; CPU iPhone OS 17 like Mac OS X) Safari/604.1",
            "Safari on an iPhone",
        ),
    ],
)
def test_session_describes_the_browser_in_fixed_words(store, browser, ada, user_agent, words):
    browser.environ_base["HTTP_USER_AGENT"] = user_agent
    browser.sign_in()
    assert [each.browser for each in store.users.read(ada.id).sessions] == [words]


@pytest.mark.parametrize(
    "change",
    [lambda v: v[:-5], lambda v: "x", lambda v: "", lambda v: v.swapcase(), lambda v: v * 2],
)
def test_cookie_with_an_invalid_signature_is_ignored(browser, ada, change):
    browser.sign_in()
    browser.set_cookie("session", change(browser.get_cookie("session").value))
    assert not is_signed_in(browser)


def test_duplicate_session_cookies_are_ignored(browser, anyone, ada, bob):
    browser.sign_in("Ada")
    adas = browser.get_cookie("session").value
    browser.sign_in("Bob")
    bobs = browser.get_cookie("session").value
    alone = anyone.get("/", headers={"Cookie": f"other=x; session={adas}"})
    assert "Hello" in alone.text
    for first, second in ((adas, bobs), (bobs, adas), (adas, adas), (adas, "x"), ("x", adas)):
        page = anyone.get("/", headers={"Cookie": f"session={first}; session={second}"})
        assert (page.status_code, "Hello" in page.text) == (200, False)


def test_signed_out_pages_set_no_cookie(browser, ada):
    assert "Set-Cookie" not in browser.get("/").headers
    assert "Set-Cookie" not in browser.get("/sign-in").headers
    assert "Set-Cookie" not in browser.sign_in(password="wrong").headers


# -- the end of a session -------------------------------------------------------------------------


def test_sign_out_ends_only_the_current_session(store, browser, open_browser, ada):
    browser.sign_in()
    other_browser = open_browser()
    other_browser.sign_in()
    browser.post("/sign-out")
    assert (is_signed_in(browser), is_signed_in(other_browser)) == (False, True)
    assert len(store.users.read(ada.id).sessions) == 1


def test_sign_out_without_a_session_redirects_to_next(browser):
    assert browser.post("/sign-out", data={"next": "/sign-in"}).location == "/sign-in"


def test_sign_out_deletes_the_cookie_if_the_record_cannot_be_written(browser, ada, faults):
    browser.sign_in()
    faults.refuse_saves("users")
    answer = browser.post("/sign-out")
    assert answer.status_code == 303
    assert cookie_parts(answer)["max-age"] == "0"
    assert not is_signed_in(browser)


@pytest.mark.parametrize("record", ["damaged", "deleted"])
def test_sign_out_deletes_the_cookie_if_the_record_cannot_be_read(browser, ada, faults, record):
    browser.sign_in()
    faults.damage_user(ada.id) if record == "damaged" else faults.remove_user(ada.id)
    assert browser.post("/sign-out").status_code == 303
    assert browser.get_cookie("session") is None


def test_only_the_newest_20_sessions_are_kept(store, open_browser, ada):
    browsers = [open_browser() for _ in range(22)]
    for each in browsers:
        each.sign_in()
    assert [is_signed_in(each) for each in browsers] == [False] * 2 + [True] * 20
    assert len(store.users.read(ada.id).sessions) == 20


@pytest.mark.parametrize("change", [{"suspension": Suspension("command")}, {"sessions": []}])
def test_change_of_the_record_ends_the_session(store, browser, ada, change):
    browser.sign_in()
    with store.users.edit(ada.id) as user:
        for name, value in change.items():
            setattr(user, name, value)
    assert not is_signed_in(browser)


def test_damaged_record_is_503_for_that_user_only(browser, open_browser, ada, bob, faults):
    browser.sign_in()
    faults.damage_user(ada.id)
    assert browser.get("/").status_code == 503
    assert open_browser().sign_in().status_code == 503
    assert open_browser().sign_in("Bob").status_code == 303
