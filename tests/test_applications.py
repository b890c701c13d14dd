"""Requests to join: the page of who waits, sign-in, letters, and the queue of moderators."""

import html

import fixtures
import pytest
from conftest import PASSWORD
from forms import edit, from_address, hidden_field, led_to, parse, problems_of, sign_up, text_of
from mail_server import code_in, link_in

from identity.access import passwords
from identity.access.passwords import hash_password
from identity.acts import applications
from identity.acts.actors import COMMAND, Authority
from model.door_records import Application
from model.errors import EmailTaken, NameTaken
from model.kinds import APPLICATIONS
from model.records import now_ms
from pages.admin import applications as queue
from pages.entry.sign_in import WRONG

QUEUE, OWN = "/admin/applications", "/application"
deliver = fixtures.deliver


@pytest.fixture
def app(make_app, mail_server):
    return make_app(SMTP_URL=mail_server.url(), MAIL_FROM="s@games.example", SIGN_UP="approval")


@pytest.fixture
def apply(store):
    """A function that adds an application."""

    def apply(name: str = "Eve", **fields):
        values = {
            "email": f"{name}@x.example".lower().replace(" ", ""),
            "password_hash": hash_password(PASSWORD),
        }
        return applications.apply(store, True, name=name, **values | fields)

    return apply


@pytest.fixture
def moderators_browser(ada, enter):
    return enter("Mo", 1)


def find(store, name: str = "Grace"):
    return store.records(APPLICATIONS).find_by("name", name.lower())


def send(browser, **fields: str):
    """Send the form of the page of a request."""
    return browser.post(OWN, data=fields)


def decide(browser, *chosen, group: str = "", **fields: str):
    """Send the form of the queue."""
    page = browser.get(QUEUE, query_string={"group": group})
    ids = {"application": [each.id for each in chosen], "group": group}
    return browser.post(QUEUE, data=ids | {"seen": hidden_field(page, "seen")} | fields)


def test_page_of_a_request_shows_changes_and_deletes_it(browser, store, ada, apply):
    assert led_to(sign_up(browser, text="By a friend.")) == OWN
    page = browser.get(OWN)
    fields = {each: html.unescape(parse(page).find(id=each)["value"]) for each in ("name", "email")}
    assert fields == {"name": "Grace", "email": "grace@example.org"} and "By a friend." in page.text
    apply("Eve")
    good, before = fields | {"text": "x"}, store.records(APPLICATIONS).ids()
    for changes, field, problem in (
        ({"name": "Ada"}, "name", NameTaken.problem),
        ({"name": "EVE"}, "name", NameTaken.problem),
        ({"email": ada.email}, "email", EmailTaken.problem),
        ({"email": "eve@x.example"}, "email", EmailTaken.problem),
        ({"text": "x" * 301}, "text", None),
        ({"name": "a@b.example"}, "name", None),
    ):
        problems = problems_of(send(browser, **good | changes))
        assert list(problems) == [field] and problem in (None, problems[field])
    assert find(store).text == "By a friend."
    edit(store.records(APPLICATIONS), find(store).id, email_verified=True)
    assert led_to(send(browser, name="Gracie", email="grace@example.org", text="")) == OWN
    assert find(store, "Gracie").email_verified
    send(browser, name="Gracie", email="g@x.example", text="")
    assert not find(store, "Gracie").email_verified
    assert browser.post(OWN, data={"act": "delete", "stamp": "x"}).status_code == 400
    assert led_to(send(browser, act="delete")) == "/sign-in"
    assert len(store.records(APPLICATIONS).ids()) == len(before) - 1
    assert led_to(browser.get(OWN)).startswith("/sign-in?next=/application")


def test_page_says_what_became_of_a_request(browser, open_browser, store, ada, apply):
    browser.sign_in(), apply(), apply("Kai")
    assert led_to(browser.get(OWN)) == led_to(browser.post(OWN)) == "/"
    for name, told in (("Eve", "The reason: Rude."), ("Kai", "It was decided, or it has ended.")):
        waiting = open_browser()
        assert led_to(waiting.sign_in(name)) == OWN and waiting.get(OWN).status_code == 200
        assert led_to(waiting.get("/sign-up")) == OWN
        by = Authority(store, COMMAND)
        if name == "Eve":
            applications.decline(by, find(store, name), "Rude.", now_ms())
        else:
            applications.approve(by, find(store, name).id, now_ms())
        page = waiting.get(OWN)
        assert told in text_of(page) and parse(page).select('main a[href="/sign-in"]')
        assert send(waiting, name="Eve", email="", text="").status_code == 303
    assert led_to(waiting.sign_in("Kai")) == "/"
    assert text_of(waiting.get("/")).count("A moderator let you in.") == 1
    assert "A moderator let you in." not in text_of(waiting.get("/"))


def test_sign_in_tells_only_with_the_right_password(
    open_browser, store, ada, apply, monkeypatch, subtests
):
    hashed, check = [], passwords.check_password_hash
    monkeypatch.setattr(passwords, "check_password_hash", lambda *a: hashed.append(a) or check(*a))
    waits, declined = apply(), apply("Old")
    applications.decline(Authority(store, COMMAND), declined, "Rude.", now_ms())
    for login, right in (("eve", 303), (waits.email, 303), ("OLD", 403), ("Nobody", None)):
        with subtests.test(login):
            hashed.clear()
            wrong = open_browser().sign_in(login, "x" * 12)
            assert (wrong.status_code, WRONG in text_of(wrong), len(hashed)) == (403, True, 1)
            if right:
                answer = open_browser().sign_in(login)
                assert (answer.status_code, len(hashed)) == (right, 2)
                assert right == 303 or "The reason: Rude." in text_of(answer)
            for _ in range(9):
                open_browser().sign_in(login, "x" * 12)
            assert open_browser().sign_in(login).status_code == 429
    assert store.users.ids() == [ada.id]


def test_address_is_confirmed_by_a_letter(browser, open_browser, store, ada, deliver, apply):
    sign_up(browser)
    [letter] = deliver()
    link = {"link": link_in(letter)}
    elsewhere = open_browser().post("/confirm", data=link)
    assert letter.startswith("Hello,") and list(problems_of(elsewhere)) == ["code"]
    assert led_to(browser.post("/confirm", data=link)) == OWN  # in the browser that asked
    assert find(store).email_verified
    send(browser, name="Grace", email="g@x.example", text="")
    assert led_to(send(browser, act="email")) == OWN
    [letter] = deliver()
    assert browser.post("/confirm", data={"code": "000000"}).status_code == 403
    assert led_to(browser.post("/confirm", data={"code": code_in(letter)})) == OWN
    assert find(store).email_verified
    edit(store.records(APPLICATIONS), find(store).id, email_verified=False)
    send(browser, act="email")
    [letter] = deliver()
    applications.approve(Authority(store, COMMAND), find(store).id, now_ms())
    late = {"link": link_in(letter), "code": code_in(letter)}
    assert open_browser().post("/confirm", data=late).status_code == 403
    for number in range(20):  # the limit of the site holds: two were sent
        waiting = from_address(open_browser(), f"10.0.0.{number}")
        sign_up(waiting, name=f"Player {number}x", email=f"{number}@x.example")
    assert len(deliver()) == 17


def test_moderators_decide_on_some_or_on_a_group(
    moderators_browser, store, apply, deliver, monkeypatch, clock, faults
):
    monkeypatch.setattr(queue, "SHOWN", 2)
    ivy = apply("Ivy", address="192.0.2.1", text="Hello,  THERE!", email_verified=True)
    clock.shift(1)
    kai = apply("Kai", address="192.0.2.9", email="kai@y.example", text="hello there")
    clock.shift(1)
    bots = [apply(f"Bot {n}x", address=f"2001:db8:0:{n}::", text=f"{n}") for n in range(3)]
    page = moderators_browser.get(QUEUE)
    assert [each["value"] for each in parse(page).select("[name=application]")] == [ivy.id, kai.id]
    assert ivy.email not in page.text  # private
    links = [each["href"] for each in parse(page).select("main [href*='?group=']")]
    groups = [
        "domain x.example",
        "network 2001:db8::/48",
        "network 192.0.2.0/24",
        "text hello there",
    ]
    assert len(links) == 4
    for group, number in zip(groups, (4, 3, 2, 2), strict=True):
        shown = text_of(moderators_browser.get(QUEUE, query_string={"group": group}))
        assert f"{number} people ask to join" in shown and f"Decline all {number}" in shown
    assert "5 are waiting" in page.text and "5 people ask to join" in text_of(
        moderators_browser.get("/admin")
    )
    for fields, status in (({"act": "approve"}, 400), ({"act": "all approve"}, 409)):
        assert decide(moderators_browser, **fields).status_code == status  # of nobody
    assert decide(moderators_browser, ivy, act="decline", reason="").status_code == 400
    clock.shift(5)
    seen = moderators_browser.get(QUEUE)
    clock.shift(5)
    applications.rewrite(store, kai.id, "Kay", "kai@y.example", "hello there")
    sent = {"application": [kai.id], "reason": "x", "seen": hidden_field(seen, "seen")}
    for act in ("approve", "decline"):
        changed = moderators_browser.post(QUEUE, data=sent | {"act": act})
        assert problems_of(changed) == {"form": applications.Decided.problem}
    late = apply("Late", address="2001:db8:0:9::")
    sent |= {"act": "all decline", "group": groups[1], "reason": "Bots"}
    assert led_to(moderators_browser.post(QUEUE, data=sent)).startswith(QUEUE)
    assert [each.id for each in applications.find_waiting(store)] == [ivy.id, kai.id, late.id]
    assert decide(moderators_browser, bots[0], act="decline", reason="x").status_code == 409
    store.users.register("Zed", "", "")
    taken = Application("0" * 15 + "-00000000", "Zed", "", "", 1, 2**45)
    store.records(APPLICATIONS).add(taken)  # as in a race
    before = faults.stored("users", "applications", "audit.log")
    assert decide(moderators_browser, taken, act="x", reason="x").status_code == 400
    refused = decide(moderators_browser, taken, act="approve")
    assert problems_of(refused) == {"form": f"Zed: {NameTaken.problem}"}
    assert refused.status_code == 409
    assert faults.stored("users", "applications", "audit.log") == before
    deliver()
    both = decide(moderators_browser, taken, ivy, find(store, "Kay"), act="approve")
    assert problems_of(both) == {"form": f"Zed: {NameTaken.problem}"}  # the others are in
    store.records(APPLICATIONS).delete(taken.id)
    assert [each["act"] for each in store.audit.read()] == [
        *(*["application decline"] * 3, *["application approve", "user sign-up"] * 2)
    ]
    [letter] = deliver()  # to the confirmed address
    assert letter.startswith("Hello Ivy,") and "A moderator let you in." in letter
    led_to(decide(moderators_browser, late, act="decline", reason="No."))
    assert deliver() == []


@pytest.mark.load
def test_group_of_500_is_declined_in_one_press(moderators_browser, store, apply):
    for number in range(500):
        apply(f"Bot {number}x", password_hash="", address="192.0.2.1")
    with pytest.raises(applications.QueueFull):
        applications.apply(store, False, name="Late", email="", password_hash="")
    decide(moderators_browser, group="network 192.0.2.0/24", act="all decline", reason="Bots")
    assert applications.count_waiting(store) == 0
    assert [each["act"] for each in store.audit.read()] == ["application decline"] * 500
