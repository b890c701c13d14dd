"""Terms: what players agree to, when, and how they get where they wanted; the page on privacy."""

import re
from datetime import UTC, datetime, timedelta
from unittest.mock import Mock
from urllib.parse import parse_qsl, urlsplit

import fixtures
import pytest
from conftest import PASSWORD, on_each_backend
from forms import hidden_field, is_signed_in, parse, problems_of, signed_in, text_of

from identity.access.sessions import BEFORE_AGREEING
from identity.acts import door as door_acts
from identity.acts.actors import COMMAND, Actor, Authority
from identity.site.door import TERMS, read_text
from identity.site.look import read_look
from model.errors import StorageFull
from model.kind import DAY_MS
from model.kinds import LOOKS, WEBHOOKS
from model.records import now_ms
from model.site_records import Webhook
from pages.entry.agreement import CHANGED

TEXT = "Be kind.\n\nMore: https://example.org/rules and <b>this</b>."
boss = fixtures.boss


@pytest.fixture
def app(make_app):
    """An app with all routes that the pages of players have."""
    return make_app(OPENID="on")


def publish(store, text: str = TEXT, asks: bool = True, days: int = 0) -> None:
    """Publish terms that count from today, or in some days."""
    day = str((datetime.now(UTC) + timedelta(days=days)).date())
    by, seen = Authority(store, COMMAND), read_look(store).changed
    door_acts.publish(by, seen, text, day, asks)


def agree(browser, leads_to: str = "/", version: str = "1"):
    return browser.post("/terms", data={"version": version, "next": leads_to})


@pytest.fixture
def waiting(store, adas_browser):
    """The browser of Ada, who signed in and has to agree to the terms."""
    publish(store)
    return signed_in(adas_browser)


def next_of(address: str | None) -> tuple[str, str]:
    """Return the path of an address, and the `next` in its query."""
    parts = urlsplit(address or "")
    return parts.path, dict(parse_qsl(parts.query)).get("next", "")


# -- agreeing -------------------------------------------------------------------------------------


def test_sign_in_leads_to_the_terms_and_then_on(store, browser, ada):
    publish(store)
    answer = browser.sign_in(next="/device?user_code=A")
    assert next_of(answer.location) == ("/terms", "/device?user_code=A")
    page = browser.get(answer.location)
    shown = parse(page).select_one(".terms")
    assert (shown.text, shown.a["href"], shown.b) == (TEXT, "https://example.org/rules", None)
    assert next_of(browser.get("/sign-in?next=/account").location) == ("/terms", "/account")
    answer = agree(browser, hidden_field(page, "next"))
    assert (answer.status_code, answer.location) == (303, "/device?user_code=A")
    assert is_signed_in(browser) and not parse(browser.get("/terms")).select("[name=version]")
    [(what, when)] = browser.get("/account/export").json["agreed"].items()
    assert what == "terms 1" and abs(now_ms() - when) < DAY_MS
    assert browser.sign_in().location == "/"


@pytest.mark.parametrize("step", ["agreed elsewhere", "removed", "not asked", "postponed"])
def test_nobody_waits_for_terms_that_are_not_asked_now(store, waiting, ada, step):
    if step == "agreed elsewhere":
        door_acts.agree(Authority(store, Actor(ada.id)), ada.id, 1)
    elif step == "removed":
        publish(store, "")
    else:
        publish(store, asks=step == "postponed", days=2 * (step == "postponed"))
    assert is_signed_in(waiting)
    assert waiting.get("/terms").status_code == (404 if step == "removed" else 200)
    publish(store, "Newer.")
    assert is_signed_in(waiting)  # until the next sign-in


def test_player_goes_on_with_the_version_that_was_read_and_saved(store, waiting, faults):
    faults.refuse_saves("users")
    page = agree(waiting)
    assert (page.status_code, list(problems_of(page))) == (503, ["form"])
    faults.allow_saves()
    publish(store, "Other.")
    page = agree(waiting)
    assert (page.status_code, problems_of(page)["form"]) == (409, CHANGED)
    assert not is_signed_in(waiting)
    assert agree(waiting, version="2").status_code == 303 and is_signed_in(waiting)


def test_what_was_typed_is_kept_until_the_player_agreed(waiting, bob):
    form = {"reason": "spam", "text": "He sells things."}
    answer = waiting.post(f"/users/{bob.id}/report", data=form)
    assert next_of(answer.location) == ("/terms", "/unsent")
    assert "You were signed out" not in text_of(waiting.get(answer.location))
    assert agree(waiting, "/unsent").location == "/unsent"
    assert "He sells things." in waiting.get("/unsent").text


# -- before it ------------------------------------------------------------------------------------


def test_every_route_answers_as_to_a_guest_or_goes_on(
    app, store, waiting, open_browser, program, ada, bob, faults, subtests
):
    assert app.view_functions.keys() >= BEFORE_AGREEING
    values = {"user_id": bob.id, "client_id": program.id, "name": "Bob"}
    guest, before = open_browser(), (store.users.read(ada.id), faults.stored("codes"))
    for rule in app.url_map.iter_rules():
        path = re.sub("<(?:.*:)?(.*)>", lambda part: str(values.get(part[1], "x")), rule.rule)
        path += f"?{program.link().partition('?')[2]}" if path.startswith("/oauth") else ""
        is_same = rule.endpoint not in BEFORE_AGREEING and rule.rule != "/sign-in"
        for method in {"GET", "POST"} & rule.methods if is_same else ():
            with subtests.test(rule.rule, method=method):
                answer, other = (each.open(path, method=method) for each in (waiting, guest))
                place, leads_to = next_of(other.location)
                seen = answer.status_code, *next_of(answer.location)
                assert seen == (other.status_code, place.replace("/sign-in", "/terms"), leads_to)
                for _ in range(3):  # no redirect leads in a circle
                    is_here = method == "GET" and (answer.location or "").startswith("/")
                    answer = waiting.get(answer.location) if is_here else answer
                assert method == "POST" or not (answer.location or "").startswith("/")
    assert (store.users.read(ada.id), faults.stored("codes")) == before


def test_player_can_still_leave(waiting, ada, store):
    assert "download your data or delete" in text_of(waiting.get("/terms"))
    assert waiting.post("/api/users/heartbeat").status_code == 200
    assert waiting.get("/account/export").json["id"] == ada.id
    assert "Delete account" in waiting.get("/account/data").text
    assert waiting.post("/account/delete", data={"password": PASSWORD}).location == "/"
    assert store.users.find(ada.id) is None


def test_apps_are_told_that_the_player_has_to_act(waiting, program):
    silent = program.link(scope="openid", prompt="none")
    for headers in ({}, {"Sec-Fetch-Dest": "iframe", "Sec-Fetch-Mode": "navigate"}):
        answer = waiting.get(silent, headers=headers)
        assert program.read_callback(answer)["error"] == "interaction_required"
    page = waiting.get(waiting.get(program.link()).location)
    assert "https://space.example" in page.headers["Content-Security-Policy"]
    assert "Cross-Origin-Opener-Policy" not in page.headers
    assert waiting.get(agree(waiting, hidden_field(page, "next")).location).status_code == 200


def test_sessions_from_before_go_on_with_a_notice(store, adas_browser, clock):
    assert "/terms" not in adas_browser.get("/account").text
    publish(store, days=3)
    for _ in range(2):
        [notice] = parse(adas_browser.get("/account")).select(".notice")
        assert notice.a["href"] == "/terms" and "New terms count from" in notice.text
        signed_in(adas_browser)  # before the day
    clock.shift(3 * DAY_MS / 1000)
    assert is_signed_in(adas_browser) and agree(adas_browser).status_code == 303
    assert not parse(adas_browser.get("/account")).select(".notice")


# -- what administrators publish ------------------------------------------------------------------


@on_each_backend
def test_versions_and_who_is_asked(store, boss):
    for text, asks, days, version, asked in [
        *[("One.", False, 0, 1, 0), ("Two.", True, 9, 2, 2), ("Two.", True, 5, 2, 2)],
        *[("Three.", False, 0, 3, 2), ("Three.", True, 0, 3, 3), ("Three.", False, 0, 3, 0)],
    ]:
        publish(store, text, asks, days)
        look = read_look(store)
        assert (look.terms, look.terms_asked) == (version, asked)
        assert look.terms_from // DAY_MS == now_ms() // DAY_MS + days
    publish(store, "")
    assert read_look(store).terms == 0 and "This site has no terms." in boss.get("/admin/door").text
    publish(store, "Three.")
    assert read_look(store).terms == 5


def test_kill_between_text_and_version_asks_nobody(store, adas_browser, monkeypatch):
    publish(store, "One.", asks=False)
    with monkeypatch.context() as patch, pytest.raises(StorageFull):
        patch.setattr(type(store.records(LOOKS)), "save", Mock(side_effect=StorageFull))
        publish(store, "Two.")
    assert is_signed_in(signed_in(adas_browser))
    assert "Version 1," in text_of(adas_browser.get("/terms"))
    publish(store, "Two.")
    assert read_look(store).terms > 1 and not is_signed_in(signed_in(adas_browser))


def test_text_of_a_megabyte_is_refused_clearly(store, boss):
    form = {"day": str(datetime.now(UTC).date()), "seen": "0"}
    page = boss.post("/admin/door/terms", data=form | {"text": "x" * 10**6})
    assert page.status_code == 400 and "Use up to 20,000 characters." in text_of(page)
    wide = "\U0001f600" * 20_000
    assert boss.post("/admin/door/terms", data=form | {"text": wide}).status_code == 303
    assert read_text(store, TERMS).text == wide


# -- footers, and the page about privacy ----------------------------------------------------------


def test_footers_link_what_is_there_and_are_unchanged_without(store, anyone):
    before, by = anyone.get("/").text, Authority(store, COMMAND)
    assert '\n    <a href="/language">Language</a>\n  </footer>\n' in before
    publish(store)
    door_acts.save_privacy(by, read_look(store).changed, "Ours: <b>", shows=True)
    links = [each["href"] for each in parse(anyone.get("/")).select("footer a")]
    assert links[-2:] == ["/terms", "/privacy"]
    assert "Ours: &lt;b&gt;" in anyone.get("/privacy").text
    assert anyone.get("/privacy.txt").text == "Ours: <b>\n"
    publish(store, "")
    door_acts.save_privacy(by, read_look(store).changed, "", shows=False)
    assert anyone.get("/").text == before


ALWAYS = ("for 90 days: it stays yours", "good for 14 days", "Reports, for 365 days", "One cookie")
SETTINGS = {"SMTP_URL": "smtp://127.0.0.1:9", "MAIL_FROM": "a@example.org", "SIGN_UP": "open"}
SETTINGS |= {"INDEX_PROFILES": "on", "NETWORK_DAYS": "33", "ABOUT_URL": "https://x.example/?a&b"}
WITH_SETTINGS = (  # what they add to the page
    *("for 3 days: you can take it back", "for 400 days: after a sign-in", "pass through mail"),
    *("join, for 30 days, and declined ones for 7 days", "that never play, for 7 days"),
    *("Search engines", "in the log, for 33 days", "Write to us: https://x.example/?a&b"),
    *("A chat gets news", "Which terms"),
)


def test_privacy_page_says_what_is_so_here(make_app, store):
    plain = make_app().test_client().get("/privacy.txt").text
    store.records(WEBHOOKS).put(Webhook("chat", 5, "https://x.example/", "json", ["player"], "k"))
    publish(store)
    browser = make_app(**SETTINGS).test_client()
    full, page = browser.get("/privacy.txt").text, text_of(browser.get("/privacy"))
    for each in (*ALWAYS, *WITH_SETTINGS):
        assert (each in plain, each in full, each in page) == (each in ALWAYS, True, True), each
    approved = make_app(**SETTINGS | {"SIGN_UP": "approval"}).test_client().get("/privacy.txt").text
    assert "Requests to join" in approved and "never play" not in approved  # none ends by itself
    german = browser.get("/privacy", headers={"Accept-Language": "de"})
    assert parse(german).html["lang"] == "de"
