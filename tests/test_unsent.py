"""A form that was sent after the session ended: `identity.access.unsent`, `pages.kit.unsent`."""

import re

import fixtures
from conftest import FOREIGN_LINK
from forms import edit, parse, save
from werkzeug.datastructures import MultiDict

from identity.access.unsent import KEPT_FIELDS
from identity.acts import reports
from identity.acts.actors import Actor, Authority
from model.kinds import REPORTS
from model.records import MODERATOR

SECRETS = (
    *("password", "new_password", "current_password", "code", "link", "invite", "client_secret"),
)
boss = fixtures.boss


def sign_out_elsewhere(store, user) -> None:
    edit(store.users, user.id, sessions=[])


def send_again(browser, page) -> object:
    """Send the form of the page for what was not sent."""
    form = parse(page).select_one("main form")
    fields = MultiDict((each["name"], each["value"]) for each in form.select("[type=hidden]"))
    return browser.post(form["action"], data=fields.to_dict(flat=False))


def test_text_of_a_form_survives_the_sign_in(store, adas_browser, ada, bob, program, subtests):
    typed = 'Früh <b>\r\n"x" ' + "語" * 480
    forms = {
        "/account": {"name": "Ada", "bio": typed, "listed": ["no", "yes"], "playing": "no"},
        f"/users/{bob.id}/report": {"reason": "spam", "text": typed},
    }
    for address, fields in forms.items():
        with subtests.test(address):
            sign_out_elsewhere(store, ada)
            answer = adas_browser.post(address, data=fields)
            assert answer.location == "/sign-in?next=/unsent"
            assert "what you typed is kept" in adas_browser.get(answer.location).text
            assert adas_browser.sign_in(next="/unsent").location == "/unsent"
            page = adas_browser.get("/unsent")
            assert "語" * 480 in page.text and "<b>" not in page.text
            assert send_again(adas_browser, page).status_code == 303
            assert adas_browser.get("/unsent").location == "/account"  # once
    user = store.users.read(ada.id)
    assert (user.bio, user.unlisted, user.hides_game) == (typed.replace("\r", ""), False, True)
    [report_id] = store.records(REPORTS).ids()
    assert store.records(REPORTS).read(report_id).text == typed.replace("\r", "").strip()


def test_all_fields_of_a_form_are_kept(store, boss, ada, bob):
    game, _ = store.clients.register("Pong", [], ada.id, game_url="https://pong.example/")
    reports.report(Authority(store, Actor(ada.id)), bob, "spam", "")
    [report_id] = store.records(REPORTS).ids()
    values = {"user_id": bob.id, "client_id": game.id, "report_id": report_id}
    for rule, names in KEPT_FIELDS.items():
        address = re.sub("<(.*?)>", lambda found: str(values[found[1]]), rule)
        forms = parse(boss.get(address.removesuffix("/notes"))).select(f'form[action="{address}"]')
        fields = {each["name"] for form in forms for each in form.select("[name]")}
        assert fields and fields <= {"stamp", *names}, rule


def test_report_is_not_closed_without_the_suspension(store, enter, ada, bob):
    browser = enter("Warden", MODERATOR)
    reports.report(Authority(store, Actor(ada.id)), bob, "spam", "")
    [report_id] = store.records(REPORTS).ids()
    sign_out_elsewhere(store, store.users.find_by_login("Warden"))
    form = {"answer": "Suspended.", "reason": "Spam.", "length": "1 day"}
    browser.post(f"/admin/reports/{report_id}", data=form)
    browser.sign_in("Warden", next="/unsent")
    assert send_again(browser, browser.get("/unsent")).status_code == 303
    assert store.records(REPORTS).read(report_id).answer == "Suspended."
    assert store.users.read(bob.id).suspension.reason == "Spam."


def test_nothing_secret_too_large_or_foreign_is_kept(store, adas_browser, ada, subtests):
    """Nor what somebody else typed in this browser, and nothing for long."""
    assert not set(SECRETS) & {name for names in KEPT_FIELDS.values() for name in names}
    for way, fields, headers in (
        ("secrets", dict.fromkeys(SECRETS, "a secret"), {}),
        ("size", {"bio": "".join(map(chr, range(0x4E00, 0x4E00 + 5000)))}, {}),
        ("body", {"bio": "x" * 70_000}, {}),
        ("site", {"bio": "planted"}, FOREIGN_LINK),
    ):
        with subtests.test(way):
            sign_out_elsewhere(store, ada)
            answer = adas_browser.post("/account", data=fields, headers=headers)
            assert "unsent" not in (answer.location or "")
            adas_browser.sign_in()
            assert adas_browser.get("/unsent").location == "/account"


def test_text_is_for_its_player_for_half_an_hour(store, adas_browser, ada, bob, clock, subtests):
    for name, minutes, status in (("Ada", 29, 200), ("Ada", 31, 303), ("Bob", 1, 303)):
        with subtests.test(name, minutes=minutes):
            adas_browser.sign_in()
            sign_out_elsewhere(store, ada)
            save(adas_browser, bio="private")
            clock.shift(minutes * 60)
            adas_browser.sign_in(name)
            assert adas_browser.get("/unsent").status_code == status
            with adas_browser.session_transaction() as session:
                assert "unsent" not in session
            adas_browser.post("/sign-out")


def test_text_of_nobody_known_is_shown_and_sent_for_nobody(adas_browser, ada, bob):
    """The cookie was gone before the button was pressed, and the next one here may be another."""
    adas_browser.post("/sign-out")
    save(adas_browser, bio="Ada was here")
    adas_browser.sign_in("Bob")
    page = adas_browser.get("/unsent")
    assert "Ada was here" in page.text and parse(page).select_one("main form") is None
