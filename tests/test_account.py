"""The account pages: `pages.account.profile` and `pages.account.security`."""

import base64
import io
import json
import logging
from dataclasses import fields
from datetime import UTC, datetime

import fixtures
import forms
import pytest
from forms import (
    change_email,
    edit,
    from_address,
    is_signed_in,
    parse,
    problems_of,
    save,
    sign_up,
    signed_in,
    text_of,
)
from PIL import Image

from identity.site.languages import language_of
from model.encoding import record_as_dict
from model.errors import StorageFailed
from model.records import (
    PICTURE_SIZES,
    Client,
    FormerName,
    Grant,
    Notice,
    Passkey,
    Session,
    Suspension,
    User,
    now_ms,
)
from model.site_records import Report
from model.words import say
from pages.account.export import EXPORTED, export_account
from pages.account.profile import CHANGED_SINCE

bobs_browser = fixtures.bobs_browser
app = fixtures.open_app


# -- the account page -----------------------------------------------------------------------------


def test_profile_is_saved_and_confirmed_once_and_other_fields_are_ignored(store, adas_browser, ada):
    edit(store.users, ada.id, flairs=["none", "Champion"])
    answer = save(adas_browser, name="Ada L", bio="Hello", equippedFlair="Champion")
    assert (answer.status_code, answer.location) == (303, "/account")
    assert "Profile saved." in adas_browser.get("/account").text
    assert "Profile saved." not in adas_browser.get("/account").text
    user = store.users.read(ada.id)
    assert (user.name, user.bio, user.equipped_flair) == ("Ada L", "Hello", "Champion")
    changes = {"mod_level": "2", "flairs": "Champion", "email": "x@example.org", "id": "9"}
    assert save(adas_browser, **changes, play_ms="9", suspended="1").status_code == 303
    assert store.users.read(ada.id) == user


def test_bio_is_saved_as_typed(store, adas_browser, ada, subtests):
    for typed, kept in (
        ("a\r\nb\r\n" * 250, "a\nb\n" * 250),  # 1,500 characters with the line ends of browsers
        ("\r\n a\tb </textarea><script>", "\n a\tb </textarea><script>"),
        ("", ""),
    ):
        with subtests.test(typed[:10]):
            assert save(adas_browser, bio=typed).status_code == 303
            assert store.users.read(ada.id).bio == kept
            shown = parse(adas_browser.get("/account")).find("textarea").text
            assert shown == f"\n{kept}"  # browsers drop the first line end


def test_profile_of_an_old_tab_does_not_overwrite_a_newer_one(store, adas_browser, ada, subtests):
    """The form comes again with both texts; the next press saves."""
    changes = ({"bio": "new"}, {"equippedFlair": "Champion"}, {"listed": ["no"]}, {"name": "Ada L"})
    edit(store.users, ada.id, flairs=["none", "Champion"])
    for elsewhere in changes:
        with subtests.test(**elsewhere):
            seen = forms.hidden_field(adas_browser.get("/account"), "seen")
            adas_browser.get(save(adas_browser, **elsewhere).location)
            before = store.users.read(ada.id)
            page = save(adas_browser, bio=f"old {elsewhere}", seen=seen)
            assert (page.status_code, problems_of(page)) == (409, {"profile-form": CHANGED_SINCE})
            assert parse(page).find("textarea").text == f"\nold {elsewhere}"
            assert before.bio in parse(page).select_one(".bio").text
            assert store.users.read(ada.id) == before
            again = forms.hidden_field(page, "seen")
            assert save(adas_browser, bio=f"old {elsewhere}", seen=again).status_code == 303
            # A second press of the same button, with the page that the first one had.
            assert save(adas_browser, bio=f"old {elsewhere}", seen=seen).status_code == 303


def test_language_is_chosen_for_the_next_page(store, adas_browser, ada, subtests):
    for chosen, shown in (("de", "de"), ("pt-BR", "pt-BR"), ("", "en")):
        with subtests.test(chosen):
            assert save(adas_browser, language=chosen).location == "/account"
            assert store.users.read(ada.id).language == chosen
            page = parse(adas_browser.get("/account"))
            assert page.html["lang"] == shown
            saved = language_of(shown).text(say("Profile saved."))
            assert page.find(role="status").text == saved
            options = page.find(id="language").select("option")
            assert [(each["value"], each.get("lang")) for each in options[:2]] == [
                ("", None),
                ("en", "en"),
            ]
            assert [each["value"] for each in options if each.has_attr("selected")] == (
                [chosen] if chosen else []
            )
            assert export(adas_browser)["language"] == chosen


def test_unknown_language_changes_nothing_and_a_missing_one_stays(store, adas_browser, ada):
    edit(store.users, ada.id, language="en")
    before = store.users.read(ada.id)
    for unknown in ("tlh", "EN", "../en"):
        page = save(adas_browser, language=unknown, name="Ada L", playing=["no"])
        assert page.status_code == 400 and problems_of(page).keys() == {"language"}
        assert store.users.read(ada.id) == before
    assert save(adas_browser, bio="Hello").status_code == 303
    assert store.users.read(ada.id).language == "en"


def test_new_language_is_told_once_in_the_language_before(store, adas_browser, ada, monkeypatch):
    """Otherwise a thief of the session could make the letters unreadable."""
    told = []

    def notify(user: User, kind: str, language: str) -> None:
        told.append((user.language, kind, language))

    monkeypatch.setattr("pages.kit.forms.notify", notify)
    for chosen in ("de", "de", "ja", ""):
        save(adas_browser, language=chosen)
    save(adas_browser, bio="Hello")
    assert told == [("", "language", "de"), ("de", "language", "ja"), ("ja", "language", "")]


def test_sign_up_stores_the_language_of_its_page(store, ada, browser):
    browser.environ_base["HTTP_ACCEPT_LANGUAGE"] = "tlh, de;q=0.9"
    assert sign_up(browser).status_code == 303
    assert [store.users.find_by_login("Grace").language, ada.language] == ["de", ""]


def test_language_of_another_tab_is_not_changed_back(store, adas_browser, ada):
    seen = forms.hidden_field(adas_browser.get("/account"), "seen")
    edit(store.users, ada.id, language="en")
    page = save(adas_browser, language="", seen=seen)
    assert (page.status_code, problems_of(page)) == (409, {"profile-form": CHANGED_SINCE})
    assert "Language: English" in text_of(page)
    assert store.users.read(ada.id).language == "en"


def test_boxes_are_saved_also_when_no_box_is_sent(store, adas_browser, ada, subtests):
    def sent(page) -> dict[str, list[str]]:
        found = forms.sent_by(parse(page).select_one("form:has([name=listed])"))
        return {name: found[name] for name in ("listed", "playing")}

    on, off = ["no", "yes"], ["no"]
    for listed, playing in ((off, on), (off, off), (on, off), (on, on)):
        with subtests.test(listed=listed, playing=playing):
            assert save(adas_browser, listed=listed, playing=playing).status_code == 303
            user = store.users.read(ada.id)
            assert (user.unlisted, user.hides_game) == (listed is off, playing is off)
            assert save(adas_browser, bio="A form of before has no boxes.").status_code == 303
            assert store.users.read(ada.id).unlisted == user.unlisted
            assert sent(adas_browser.get("/account")) == {"listed": listed, "playing": playing}
            refused = save(adas_browser, bio="x" * 1001, listed=playing, playing=listed)
            assert sent(refused) == {"listed": playing, "playing": listed}  # as typed


def test_hidden_game_is_no_longer_named_at_once(store, adas_browser, ada, bob):
    """And hiding it is no sign of playing."""
    for playing, now in (([], {}), ([ada, bob], {ada.id: None, bob.id: "spacegame1234567"})):
        assert save(adas_browser, playing=["no", "yes"]).status_code == 303
        for user in playing:
            store.playing.note(user.id, "spacegame1234567")
        assert save(adas_browser, playing=["no"]).status_code == 303
        assert store.playing.now() == now


# -- the picture ----------------------------------------------------------------------------------


def expected_files(user: User) -> set[str]:
    return {f"{size}/{user.picture_file}" for size in PICTURE_SIZES}


@pytest.mark.live
def test_picture_can_be_removed_where_there_is_one(adas_browser):
    """Not the one that is drawn."""
    words = "Remove my picture"
    assert words not in adas_browser.get("/account").text
    forms.upload(adas_browser)
    assert words in adas_browser.get("/account").text
    adas_browser.post("/account/picture/remove")
    assert words not in adas_browser.get("/account").text


@pytest.mark.live
def test_upload_and_removal_replace_every_size(store, adas_browser, ada, anyone, faults):
    generated = anyone.get(f"/pfp/large/{ada.picture_file}").data
    assert forms.led_to(forms.upload(adas_browser, forms.RED, "../../x.html")) == "/account"
    user = store.users.read(ada.id)
    assert user.pfp_timestamp > ada.pfp_timestamp
    assert faults.stored("pictures").keys() == expected_files(user)
    for size, side in (("large", 256), ("medium", 64), ("small", 16)):
        assert anyone.get(f"/pfp/{size}/{ada.picture_file}").status_code == 404
        shown = anyone.get(f"/pfp/{size}/{user.picture_file}")
        image = Image.open(io.BytesIO(shown.data), formats=["WEBP"]).convert("RGB")
        assert image.size == (side, side)
        assert image.getpixel((side // 2, side // 2))[0] > 240
    assert f"/pfp/large/{user.picture_file}" in adas_browser.get("/account").text

    assert adas_browser.post("/account/picture/remove").status_code == 303
    removed = store.users.read(ada.id)
    assert removed.pfp_timestamp > user.pfp_timestamp
    assert not faults.stored("pictures")
    assert anyone.get(f"/pfp/large/{removed.picture_file}").data == generated


# -- email ----------------------------------------------------------------------------------------


def test_email_question_rate_limit_per_address(open_browser, adas_browser, bobs_browser):
    """All players at an address share the limit with those who sign up there."""
    askers = [from_address(each, "192.0.2.1") for each in (adas_browser, bobs_browser)]
    for number in range(20):
        assert change_email(askers[number % 2], f"{number}@example.org").status_code == 303
    assert change_email(adas_browser, "free@example.org").status_code == 429
    assert forms.sign_up(from_address(open_browser(), "192.0.2.1")).status_code == 429
    from_address(adas_browser, "192.0.2.2")
    assert change_email(adas_browser, "free@example.org").status_code == 303


def test_email_can_be_changed_removed_and_added_again(store, adas_browser, open_browser, ada, app):
    """The sign-in takes the present one."""

    def save_email(email: str) -> tuple[str, str]:
        page = adas_browser.get(change_email(adas_browser, email).location)
        return store.users.read(ada.id).email, parse(page).select_one(".done").text

    assert save_email(" ") == ("", "Email removed.")
    assert open_browser().sign_in("ada@example.org").status_code == 403
    assert open_browser().sign_in("").status_code == 403
    page = change_email(adas_browser, "")
    assert problems_of(page) == {"email": "You have no email. Enter one."}
    app.config["EMAIL"] = "required"
    assert save_email("ada@example.org") == ("ada@example.org", "Email saved.")
    page = change_email(adas_browser, "")
    assert (page.status_code, list(problems_of(page))) == (400, ["email"])
    assert store.users.read(ada.id).email == "ada@example.org"
    assert change_email(adas_browser, " Lovelace@example.org ").status_code == 303
    assert store.users.read(ada.id).email == "Lovelace@example.org"
    assert open_browser().sign_in("lovelace@example.org").status_code == 303
    assert open_browser().sign_in("ada@example.org").status_code == 403


# -- export ---------------------------------------------------------------------------------------


def test_export_has_all_fields_except_credentials(store, adas_browser, ada, program):
    adas_browser.allow(program, scope="email")
    edit(store.users, ada.id, suspension=Suspension(by=77, since=1, reason="Insults", until=2))
    answer = adas_browser.get("/account/export")
    assert answer.content_type == "application/json"
    assert answer.headers["Content-Disposition"].startswith("attachment")
    assert answer.headers["Cache-Control"] == "no-store"
    user = store.users.read(ada.id)
    exported = json.loads(answer.text)
    parts = ("clients", "handle", "picture", "audit", "former_names", "reports", "passkeys")
    more = {name: exported.pop(name) for name in parts}
    assert (more["former_names"], more["reports"], more["passkeys"]) == ([], [], [])
    assert exported.pop("recovery_codes_left") == 0
    assert (more["clients"], more["audit"], exported.pop("auditComplete")) == ([], [], True)
    assert more["handle"] is None  # no program has asked for it
    assert "None yet." in adas_browser.get("/account/data").text
    handle, page = store.handles.of(user), parse(adas_browser.get("/account/data"))
    assert page.select_one("[data-copy='Copy handle']").text == handle == "ada"
    assert set(exported) == {each.name for each in fields(User)} - WITHHELD[User]
    for name in exported.keys() - {"grants", "sessions", "suspension"}:
        assert exported[name] == getattr(user, name)
    assert exported["grants"][program.id]["scope"] == ["userinfo", "email"]
    assert len(exported["sessions"]) == 1
    assert exported["suspension"] == {"since": 1, "reason": "Insults", "until": 2, "networks": {}}
    secrets = [user.password_hash, user.sessions[0].id, user.grants[program.id].id]
    assert not any(each in answer.text for each in secrets)


WITHHELD = {  # fields that are never exported, by record: credentials, and moderators
    User: {"password_hash", "invite", "warning", "application", "came_alone"},
    Suspension: {"by"},
    Grant: {"id", "families"},
    Session: {"id", "first_id"},
    Notice: {"words"},  # the `text` once more
    Client: {"secret_sha256", "disabled_by", "epoch"},
    FormerName: {"id", "user_id"},
    Report: {"id", "by", "answer", "answered_by", "answered"},
    Passkey: {"id", "user_id", "handle", "credential_id", "public_key", "rp_id", "counter"}
    | {"transports"},
}


def test_every_field_is_exported_or_withheld_on_purpose(subtests):
    """A new field is in neither, until somebody decides."""
    assert EXPORTED.keys() == WITHHELD.keys()
    for record_type, withheld in WITHHELD.items():
        named = EXPORTED[record_type].split()
        with subtests.test(record_type.__name__):
            order = [each.name for each in fields(record_type) if each.name not in withheld]
            assert named == order


def export(browser) -> dict:
    return browser.get("/account/export").json


def test_export_has_the_current_picture_or_null(store, adas_browser, anyone, ada):
    def shown() -> bytes:
        kind, _, content = export(adas_browser)["picture"].partition(",")
        assert kind == "data:image/webp;base64"
        return base64.b64decode(content)

    assert shown() == anyone.get(f"/pfp/large/1-{ada.pfp_timestamp}.webp").data
    store.pictures.save(ada.id, {"large": b"large", "medium": b"medium", "small": b"small"})
    assert shown() == b"large"
    with store.users.edit(ada.id) as user:
        user.pfp_timestamp += 1
    assert export(adas_browser)["picture"] is None


def test_export_has_own_clients_without_secrets(store, adas_browser, ada, bob):
    mine, secret = store.clients.register("Mine", ["https://mine.example/"], ada.id)
    store.clients.register("Bobs", [], bob.id)
    store.clients.register("Everybody's", [], None)
    store.audit.write("client add", ada.id, client=mine.id)
    store.audit.write("client disable", bob.id, client=mine.id, address="192.0.2.1")
    edit(store.clients, mine.id, disabled=True, disabled_by=bob.id)
    kept = record_as_dict(store.clients.read(mine.id))
    del kept["secret_sha256"], kept["disabled_by"], kept["epoch"]
    assert export(adas_browser)["clients"] == [kept]
    text = adas_browser.get("/account/export").text
    assert secret not in text and mine.secret_sha256 not in text
    disabled, added = export(adas_browser)["audit"]
    assert (added["act"], added["by"]) == ("client add", ada.id)
    assert disabled.keys() == {"time", "act", "client"}


def test_export_has_own_audit_lines_without_moderators(store, adas_browser, ada, bob):
    store.audit.write("flair grant", bob.id, user=ada.id, flair="Früh", address="192.0.2.1")
    store.audit.write("user suspend", ada.id, user=bob.id, address="192.0.2.2")
    store.audit.write("user unsuspend", "command", user=bob.id)
    answer = adas_browser.get("/account/export")
    by, about = answer.json["audit"]
    assert about.pop("time") <= by.pop("time") <= now_ms()
    assert about == {"act": "flair grant", "user": ada.id, "flair": "Früh"}
    assert by == {"act": "user suspend", "by": ada.id, "user": bob.id, "address": "192.0.2.2"}
    assert "\\u" not in answer.text  # an escape takes up to three times the bytes


def test_export_of_a_damaged_log_says_so(store, adas_browser, ada, faults, caplog):
    store.audit.write("user reset bio", "command", user=ada.id)
    faults.damage_audit_log()
    exported = export(adas_browser)
    assert (exported["name"], exported["auditComplete"]) == ("Ada", False)
    assert [line["act"] for line in exported["audit"]] == ["user reset bio"]
    assert "damaged" in caplog.text


def test_export_is_streamed_without_a_lock(store, adas_browser, ada, monkeypatch, caplog):
    for _ in range(1000):
        store.audit.write("user reset bio", "command", user=ada.id)
    read = []
    audit_of = store.audit.about

    def count_lines(subject):
        for line in audit_of(subject):
            read.append(line)
            yield line

    monkeypatch.setattr(store.audit, "about", count_lines)
    parts = export_account(store, ada, logging.getLogger())
    next(parts)
    assert read == []  # the log is read while the client reads
    next(parts)
    assert 0 < len(read) < 1000
    edit(store.users, ada.id, bio="Changed meanwhile.")  # no lock is held
    parts.close()
    assert (len(read) < 1000, caplog.text) == (True, "")
    assert len(export(adas_browser)["audit"]) == 1000


def test_account_deletion_ends_sessions_and_tokens(store, adas_browser, open_browser, ada, program):
    other = signed_in(open_browser())
    token = program.token_for(adas_browser.allow(program))
    code = adas_browser.allow(program)
    answer = adas_browser.post("/account/delete", data={"password": forms.PASSWORD})
    assert answer.status_code == 303
    assert "Account deleted." in adas_browser.get(answer.location).text
    assert adas_browser.get_cookie("identity_session") is None
    assert not is_signed_in(adas_browser) and not is_signed_in(other)
    assert program.whois(token).status_code == 401
    assert program.exchange(code).status_code == 400
    assert open_browser().sign_in().status_code == 403
    assert store.users.ids() == []


# -- apps -----------------------------------------------------------------------------------------


def test_apps_page_shows_scopes_and_date_but_no_grant_id(store, adas_browser, ada, register):
    program = register("https://x.example/", name="<script>x</script>")
    adas_browser.allow(program, scope="userinfo email")
    with store.users.edit(ada.id) as user:
        user.grants[program.id].scope.append("<b>")
    page = adas_browser.get("/account/apps")
    today = datetime.now(UTC)
    assert "&lt;script&gt;x" in page.text and "<script>x" not in page.text
    assert "your public profile, your email address and &lt;b&gt;" in page.text
    assert f"Allowed on: {today.day} {today:%B %Y}" in page.text
    assert store.users.read(ada.id).grants[program.id].id not in page.text


def test_withdrawal_revokes_tokens_codes_and_consent(store, adas_browser, ada, program):
    token = program.token_for(adas_browser.allow(program))
    code = adas_browser.allow(program)  # not exchanged yet
    assert program.whois(token).status_code == 200
    for client_id in (program.id, program.id, "../1"):  # the others are not allowed
        data = {"client_id": client_id}
        assert adas_browser.post("/account/apps/withdraw", data=data).status_code == 303
    assert program.whois(token).status_code == 401
    assert program.exchange(code).status_code == 400
    assert "Space Game" not in adas_browser.get("/account/apps").text
    assert adas_browser.get(program.link()).status_code == 200  # the consent page
    adas_browser.allow(program)
    assert program.whois(token).status_code == 401  # the new grant is not that of this token
    store.clients.delete(program.id)
    assert "An app that was deleted" in adas_browser.get("/account/apps").text
    adas_browser.post("/account/apps/withdraw", data={"client_id": program.id})
    assert store.users.read(ada.id).grants == {}


def test_game_is_hidden_on_the_profile_and_shown_again(store, adas_browser, ada, register, program):
    game = register("https://game.example/", game_url="https://game.example/")
    for each in (game, program):
        adas_browser.allow(each)
    with store.users.edit(ada.id) as user:
        user.grants[game.id].played = now_ms() - 20 * 60_000
    for button, shown in (("Hide from profile", "no"), ("Show on profile", "yes")):
        page = parse(adas_browser.get("/account/apps"))
        [form] = page.select("form[action='/account/apps/shown']")  # a program is never shown
        assert form.button["aria-label"].startswith(f"{button}: ")
        assert form.select_one("[name=client_id]")["value"] == game.id
        assert "Last played: 20 minutes ago" in page.text
        for client_id in ("../1", program.id[::-1], game.id):  # the others are not allowed
            data = {"client_id": client_id, "shown": shown}
            assert adas_browser.post("/account/apps/shown", data=data).status_code == 303
        grants = store.users.read(ada.id).grants
        assert (grants[game.id].hidden, grants[program.id].hidden) == (shown == "no", False)
    for data in ({"client_id": game.id}, {"client_id": game.id, "shown": "maybe"}):
        assert adas_browser.post("/account/apps/shown", data=data).status_code == 400
    assert not store.users.read(ada.id).grants[game.id].hidden


# -- where the player is signed in ----------------------------------------------------------------


def test_one_session_or_all_others_are_ended(store, adas_browser, open_browser, ada):
    others = [signed_in(open_browser()) for _ in range(2)]
    [first, *_] = store.users.read(ada.id).sessions
    answer = adas_browser.post("/account/sign-out-others")
    assert (answer.status_code, answer.location) == (303, "/account/security")
    page = adas_browser.get(answer.location)
    assert "The others are signed out." in page.text
    assert [each["action"] for each in parse(page).select("main form")] == [
        *("/account/password", "/account/email", "/account/passkeys", "/account/recovery-codes")
    ]
    assert [is_signed_in(each) for each in others] == [False, False]
    assert [each.id for each in store.users.read(ada.id).sessions] == [first.id]
    browsers = [adas_browser, signed_in(open_browser()), signed_in(open_browser())]
    sessions = [each.id for each in store.users.read(ada.id).sessions]
    page = adas_browser.get("/account/security")
    shown = [each["value"] for each in parse(page).select("[name=session]")]
    assert (shown, page.text.count("This browser")) == (sessions[:0:-1], 1)
    for ended, left in (
        ("x", [True, True, True]),
        (sessions[1], [True, False, True]),
        (sessions[0], [False, False, True]),
    ):
        answer = adas_browser.post("/account/sessions/end", data={"session": ended})
        assert answer.status_code == 303
        assert [is_signed_in(each) for each in browsers] == left


def uses(browser) -> list[str]:
    """Return the second line of each session on the page, the newest first."""
    return [each.text for each in parse(browser.get("/account/security")).select(".rows .small")]


def test_sessions_are_shown_with_last_use_and_network(
    store, adas_browser, open_browser, ada, clock
):
    other = signed_in(from_address(open_browser(), "2001:db8:12:3400:1:2:3:4"))
    with store.users.edit(ada.id) as user:
        user.sessions.insert(0, Session("old", 1_795_282_200_000, "Firefox"))
    old = "Signed in on 21 November 2026, 17:30 UTC"
    network = "from 2001:db8:12:3400::"
    now = "Now, from 127.0.0.1"
    assert uses(adas_browser) == [f"Last used in the last hour, {network}", now, old]
    assert f'aria-label="Sign out: Firefox. {old}"' in adas_browser.get("/account/security").text
    for hours, words in ((2, "2 hours ago"), (47, "2 days ago")):
        clock.shift(hours * 3600)
        assert uses(adas_browser)[:2] == [f"Last used {words}, {network}", now]
    from_address(other, "198.51.100.7").get("/")
    assert uses(adas_browser)[0] == "Last used in the last hour, from 198.51.100.7"


def test_session_use_is_kept_once_an_hour(store, adas_browser, ada, program, clock, subtests):
    token = program.token_for(adas_browser.allow(program))
    calls = {
        "whois": lambda: program.whois(token),
        "info": lambda: adas_browser.get(f"/api/users/info?id={ada.id}"),
        "style": lambda: adas_browser.get("/static/style.css"),
    }
    pages = {
        "page": lambda: adas_browser.get("/"),
        "heartbeat": lambda: adas_browser.post("/api/users/heartbeat"),
        "consent": lambda: adas_browser.get(program.link()),
    }

    def kept() -> tuple[int, str]:
        [entry] = store.users.read(ada.id).sessions
        return entry.used, entry.address

    for name, use in (calls | pages).items():
        with subtests.test(name):
            clock.shift(3599)
            before = now_ms() - 3_599_000
            from_address(adas_browser, "192.0.2.1").get("/account")
            start = kept()
            assert start[0] <= before + 3_600_000
            from_address(adas_browser, "192.0.2.2")
            clock.shift(3601)
            use()
            assert (kept() == start) == (name in calls)
            if name in pages:
                assert kept()[0] >= start[0] + 3_600_000 and kept()[1] == "192.0.2.2"
            again = kept()
            clock.shift(1800)
            from_address(adas_browser, "192.0.2.3")
            use()
            assert kept() == again


def test_page_is_shown_if_the_use_cannot_be_kept(store, adas_browser, ada, clock, monkeypatch):
    """It is tried again a minute later: pages do not wait for a full disk each time."""
    tries = []

    def fail(user_id, *args):
        tries.append(user_id)
        raise StorageFailed("the disk is full")

    before = store.users.read(ada.id).sessions
    with monkeypatch.context() as context:
        context.setattr(store.users, "edit", fail)
        clock.shift(7200)
        for seconds, count in ((0, 1), (1, 1), (58, 1), (2, 2), (1, 2)):
            clock.shift(seconds)
            assert adas_browser.get("/account").status_code == 200
            assert tries == [ada.id] * count
    assert store.users.read(ada.id).sessions == before
    clock.shift(61)
    assert adas_browser.get("/account").status_code == 200
    assert store.users.read(ada.id).sessions[0].used > before[0].used


# -- all account pages ----------------------------------------------------------------------------


def test_each_page_has_the_tabs_and_shows_its_own_problems(adas_browser, ada, bob):
    paths = ["/account", "/account/security", "/account/apps", "/account/data"]
    wrong = {"password": "wrong", "current_password": "wrong"}
    problems = {
        "/account": [("/account", {"name": "Bob"}), ("/account/picture", {})],
        "/account/security": [
            ("/account/password", wrong | {"new_password": "another good phrase"}),
            ("/account/email", wrong | {"email": "new@example.org"}),
        ],
        "/account/data": [("/account/delete", wrong)],
    }
    for path in paths:
        pages = [adas_browser.get(path)]
        for form, data in problems.get(path, []):
            page = adas_browser.post(form, data=data)
            assert len(problems_of(page)) == 1
            pages.append(page)
        for page in pages:
            tabs = parse(page).select("nav.tabs a")
            assert [each["href"] for each in tabs] == paths
            assert [each["href"] for each in tabs if each.get("aria-current") == "page"] == [path]
