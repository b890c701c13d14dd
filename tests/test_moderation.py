"""Public profiles, and the acts of moderators and administrators: `pages.moderation`."""

import html
import re

import pytest
from conftest import PASSWORD
from forms import hidden_field, problems_of, value_of

from identity import actors
from identity.accounts import RESETS
from identity.formatting import format_duration
from identity.passwords import hash_password
from identity.stamps import TOO_QUICK
from storage.pictures import generate_picture
from storage.records import Suspension, User

MINUTE, HOUR, DAY = 60, 3600, 86_400  # seconds
# Each act: the path below the profile, the form, and its name in the audit log
ACTS = {
    "suspend": ("/suspend", {}, "user suspend"),
    "unsuspend": ("/unsuspend", {}, "user unsuspend"),
    "reset bio": ("/reset", {"what": "bio"}, "user reset bio"),
    "reset name": ("/reset", {"what": "name"}, "user reset name"),
    "reset picture": ("/reset", {"what": "picture"}, "user reset picture"),
    "mod level": ("/mod-level", {"mod_level": "2"}, "user mod-level"),
    "grant": ("/flairs/grant", {"flair": "Champion"}, "flair grant"),
    "revoke": ("/flairs/revoke", {"flair": "Old hand"}, "flair revoke"),
}
ODD_IDS = [
    "0",
    "01",
    "-1",
    "+1",
    "1.0",
    "x",
    "1x",
    "٣",
    "１",
    "9" * 15,
    "1" * 16,
    "1%0A",
    "1 ",
    "%00",
]


@pytest.fixture
def add_player(store):
    """A function that adds a player with a mod level."""

    def add_player(name: str, mod_level: int = 0) -> User:
        email = f"{name.lower().replace(' ', '')}@example.org"
        return store.users.register(name, email, hash_password(PASSWORD), mod_level)

    return add_player


@pytest.fixture
def browser_of(open_browser):
    """A function that opens a browser in which this player is signed in."""

    def browser_of(user: User):
        browser = open_browser()
        assert browser.sign_in(user.name).status_code == 303
        return browser

    return browser_of


@pytest.fixture
def admin(add_player) -> User:
    """An administrator."""
    return add_player("Chief", 2)


@pytest.fixture
def admins_browser(admin, browser_of):
    """The browser of the administrator."""
    return browser_of(admin)


@pytest.fixture
def moderators_browser(add_player, browser_of):
    """The browser of a moderator."""
    return browser_of(add_player("Warden", 1))


@pytest.fixture
def set_up_profile(store):
    """A function that sets fields of a user, so that `act` is not a no-op."""

    def set_up_profile(user: User, act: str = "") -> User:
        with store.users.edit(user.id) as edited:
            edited.bio = "Something rude"
            edited.flairs = ["none", "Old hand"]
            edited.equipped_flair = "Old hand"
            edited.suspension = Suspension(user.id) if act == "unsuspend" else None
        store.pictures.save(user.id, generate_picture(77))
        return store.users.read(user.id)

    return set_up_profile


def do(browser, user: User, act: str, **changes: str):
    """Submit the form of an act on a player's profile."""
    path, form, _ = ACTS[act]
    return browser.post(f"/users/{user.id}{path}", data=form | changes)


def text_of(page) -> str:
    """Return the text of the main part of a page."""
    text = re.sub(r"<[^>]+>", " ", page.text.partition("<main")[2])
    return " ".join(html.unescape(text).split())


# -- the public profile ---------------------------------------------------------------------------


def test_profile_is_public(store, browser, ada):
    with store.users.edit(ada.id) as user:
        user.bio = "Chess,\nmostly."
        user.flairs.append("Champion")
        user.equipped_flair = "Champion"
        user.play_ms = (3 * HOUR + 20 * MINUTE + 59) * 1000
        user.last_heartbeat -= 5 * DAY * 1000
    page = browser.get("/users/1")
    assert page.status_code == 200
    assert "Ada Champion Played 3 hours Last played 5 days ago" in text_of(page)
    assert "Chess,\nmostly." in page.text
    assert f'src="/pfp/large/1-{ada.pfp_timestamp}.webp"' in page.text
    assert "ada@example.org" not in page.text
    assert "<form" not in page.text.partition("<main")[2]


def test_player_who_never_played_has_played_not_yet(store, browser, ada):
    assert ada.last_heartbeat == ada.created  # of the sign-up
    assert "Played not yet Last played not yet" in text_of(browser.get("/users/1"))
    with store.users.edit(ada.id) as user:  # as an imported account
        user.last_heartbeat = 0
    assert "Played not yet Last played not yet" in text_of(browser.get("/users/1"))
    with store.users.edit(ada.id) as user:
        user.play_ms = 1
    assert "Played less than a minute Last played unknown" in text_of(browser.get("/users/1"))


def test_recent_or_future_heartbeat_is_shown_as_now(store, browser, ada):
    with store.users.edit(ada.id) as user:
        user.last_heartbeat += 1
    assert "Played less than a minute Last played now" in text_of(browser.get("/users/1"))
    with store.users.edit(ada.id) as user:
        user.last_heartbeat += DAY * 1000  # the clock was set back
    assert "Last played now" in text_of(browser.get("/users/1"))


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0, "less than a minute"),
        (59, "less than a minute"),
        (60, "1 minute"),
        (90, "2 minutes"),
        (59.5 * MINUTE - 1, "59 minutes"),
        (59.5 * MINUTE, "1 hour"),
        (10 * HOUR + 54 * MINUTE, "11 hours"),
        (23.7 * HOUR, "24 hours"),
        (47.5 * HOUR - 1, "47 hours"),
        (47.5 * HOUR, "2 days"),
        (2.5 * DAY, "3 days"),
        (400 * DAY + 5, "400 days"),
    ],
)
def test_duration_is_rounded_to_one_unit(seconds, words):
    assert format_duration(int(seconds)) == words


@pytest.mark.parametrize("bio", ["<script>x</script>", "</p><img src=x onerror=x>", "{{ 7*7 }}"])
def test_bio_and_flair_are_escaped(store, browser, ada, bio):
    with store.users.edit(ada.id) as user:
        user.bio = bio
        user.flairs.append("<i>Champion</i>")
        user.equipped_flair = "<i>Champion</i>"
    page = browser.get("/users/1")
    assert bio not in page.text or bio.startswith("{{")
    assert "<i>" not in page.text
    assert bio in html.unescape(page.text) and "<i>Champion</i>" in html.unescape(page.text)


@pytest.mark.parametrize("user_id", ODD_IDS)
def test_invalid_user_id_is_404(browser, admins_browser, user_id):
    assert browser.get(f"/users/{user_id}").status_code == 404
    for path, form, _ in ACTS.values():
        assert admins_browser.post(f"/users/{user_id}{path}", data=form).status_code == 404


def test_deleted_profile_is_404_like_an_unknown_one(store, browser, ada, bob):
    store.users.delete(bob.id)
    deleted, unknown = browser.get("/users/2"), browser.get("/users/3")
    assert (deleted.status_code, unknown.status_code) == (404, 404)
    assert deleted.text == unknown.text


def test_suspension_is_on_the_profile_but_not_in_users_info(store, browser, anyone, ada):
    before = anyone.get("/api/users/info?id=1").json
    assert "suspended" not in browser.get("/users/1").text
    with store.users.edit(ada.id) as user:
        user.suspension = Suspension("command")
    assert "This player is suspended." in text_of(browser.get("/users/1"))
    assert anyone.get("/api/users/info?id=1").json == before


# -- rights: tests/test_accounts.py has those of each act ----------------------------------------


@pytest.mark.parametrize("act", ACTS)
def test_act_is_that_of_the_signed_in_player(
    store, add_player, set_up_profile, admin, admins_browser, moderators_browser, adas_browser, act
):
    target = set_up_profile(add_player("Target", 1), act)
    for actor, reason in (
        (moderators_browser, "You are not allowed to do this."),
        (adas_browser, "Only moderators can do this."),
    ):
        page = do(actor, target, act)
        is_shown = reason in text_of(page) or act == "mod level"  # moderators have no such field
        assert (page.status_code, is_shown) == (403, True)
    adas_browser.post("/sign-out")
    answer = do(adas_browser, target, act)
    assert (answer.status_code, answer.location[:9]) == (303, "/sign-in?")
    assert (store.users.read(target.id), list(store.audit.read())) == (target, [])
    admins_browser.environ_base["REMOTE_ADDR"] = "192.0.2.7"
    assert do(admins_browser, target, act).status_code == 303
    [line] = store.audit.read()
    who = (line["act"], line["by"], line["user"], line["address"])
    assert who == (ACTS[act][2], admin.id, target.id, "192.0.2.7")


def test_tests_cover_every_post_route(app):
    rules = [each for each in app.url_map.iter_rules() if "POST" in each.methods]
    ours = {each.rule for each in rules if each.endpoint.startswith("moderation.")}
    assert ours == {f"/users/<user_id>{path}" for path, _, _ in ACTS.values()}


@pytest.mark.parametrize(
    ("level", "forms"),
    [
        (0, set()),
        (1, {"suspend", "reset"}),
        (2, {"suspend", "reset", "mod-level", "flairs/grant", "flairs/revoke"}),
    ],
)
def test_profile_has_the_forms_of_allowed_acts_only(
    add_player, browser_of, ada, set_up_profile, level, forms
):
    set_up_profile(ada)
    browser = browser_of(add_player("Viewer", level))
    page = browser.get(f"/users/{ada.id}")
    assert set(re.findall(rf'action="/users/{ada.id}/([a-z/-]+)"', page.text)) == forms


# -- suspension -----------------------------------------------------------------------------------


def test_suspension_ends_sessions_and_tokens_and_unsuspending_allows_sign_in(
    store, adas_browser, open_browser, moderators_browser, ada, program
):
    token = program.token_for(adas_browser.allow(program))
    code = adas_browser.allow(program)
    done = moderators_browser.get(do(moderators_browser, ada, "suspend").location)
    assert "Player suspended." in done.text
    assert adas_browser.get("/account").status_code == 303
    assert program.whois(token).status_code == 401
    assert program.exchange(code).status_code == 400
    assert open_browser().sign_in().status_code == 403
    assert do(moderators_browser, ada, "unsuspend").status_code == 303
    # The session, the token and the code stay invalid.
    assert adas_browser.get("/account").status_code == 303
    assert program.whois(token).status_code == 401
    assert program.exchange(code).status_code == 400
    assert open_browser().sign_in().status_code == 303


def test_quick_press_shows_the_profile_with_a_problem_and_keeps_the_flair(
    clock, real_minimum_age, store, admins_browser, ada
):
    page = do(admins_browser, ada, "grant", flair="Early & bird")
    assert (page.status_code, problems_of(page)) == (400, {"form": TOO_QUICK})
    assert value_of(page, "flair") == "Early & bird"
    stamp = hidden_field(page, "stamp")
    clock.shift(1)
    assert do(admins_browser, ada, "grant", flair="Early & bird", stamp=stamp).status_code == 303
    assert "Early & bird" in store.users.read(ada.id).flairs


def test_stamp_is_valid_as_long_as_the_session_and_from_the_future_only_later(
    clock, real_minimum_age, admins_browser, ada
):
    clock.shift(24 * HOUR)
    stamp = hidden_field(admins_browser.get(f"/users/{ada.id}"), "stamp")
    clock.shift(-HOUR)
    page = do(admins_browser, ada, "suspend", stamp=stamp)
    assert problems_of(page) == {"form": TOO_QUICK}
    clock.shift(1)
    assert do(admins_browser, ada, "suspend", stamp=hidden_field(page, "stamp")).status_code == 303
    clock.shift(10 * DAY)
    assert do(admins_browser, ada, "unsuspend", stamp=stamp).status_code == 303


def test_moderators_see_who_suspended_a_player_why_and_until_when(
    store, browser, ada, admin, moderators_browser
):
    end = 4_102_482_600_000  # 1 January 2100, 10:30 UTC
    for by, words in (
        (admin.id, "Chief"),
        ("command", "The administrators, with the command"),
        (None, "Unknown"),
        (77, "A player who left"),
    ):
        with store.users.edit(ada.id) as user:
            user.suspension = Suspension(by, 1000, "Insults <b>", end)
        shown = text_of(moderators_browser.get(f"/users/{ada.id}"))
        assert f"Suspended by {words} Since 1 January 1970, 00:00 UTC" in shown
        assert "Until 1 January 2100, 10:30 UTC Reason Insults <b>" in shown
    public = text_of(browser.get(f"/users/{ada.id}"))
    assert "This player is suspended." in public
    assert not any(each in public for each in ("Insults", "2100", "1970", "Suspended by"))
    assert "Insults" not in browser.get(f"/api/users/info?id={ada.id}").text


def test_suspend_form_takes_reason_and_length(store, ada, moderators_browser):
    form = {"reason": " Insults ", "length": "1 week"}
    assert do(moderators_browser, ada, "suspend", **form).status_code == 303
    suspension = store.users.read(ada.id).suspension
    assert (suspension.reason, suspension.until - suspension.since) == ("Insults", 7 * DAY * 1000)
    changed = {"reason": "Threats", "length": "No end"}
    assert do(moderators_browser, ada, "suspend", **changed).status_code == 303
    suspension = store.users.read(ada.id).suspension
    assert (suspension.reason, suspension.until) == ("Threats", None)
    for refused in (
        {"reason": "r" * 201},
        {"reason": "\u202er"},
        {"length": "2 days"},
        {"length": ""},
    ):
        page = do(moderators_browser, ada, "suspend", **form | refused)
        assert (page.status_code, 'aria-invalid="true"' in page.text) == (400, True)
        assert html.escape(refused.get("reason", "Insults")) in page.text
    assert store.users.read(ada.id).suspension == suspension


def test_suspend_form_proposes_a_week_and_then_the_end_as_it_is(
    store, ada, moderators_browser, clock
):
    """Whoever corrects a reason changes nothing else."""

    def proposed() -> str:
        page = moderators_browser.get(f"/users/{ada.id}").text
        options = re.search('<select id="suspend-length".*?</select>', page, re.DOTALL)[0]
        assert "selected" not in options  # so it is the first one
        return re.search('<option value="([^"]*)"', options)[1]

    assert proposed() == "1 week"
    for length in ("1 day", "No end"):
        do(moderators_browser, ada, "suspend", length=length)
        until = store.users.read(ada.id).suspension.until
        clock.shift(60)
        do(moderators_browser, ada, "suspend", reason="A correction", length=proposed())
        suspension = store.users.read(ada.id).suspension
        assert (suspension.reason, suspension.until) == ("A correction", until)
    do(moderators_browser, ada, "unsuspend")
    page = do(moderators_browser, ada, "suspend", length="Keep the end")
    assert (page.status_code, store.users.read(ada.id).suspended) == (400, False)


def test_player_reads_once_that_the_name_was_reset(
    store, ada, adas_browser, open_browser, moderators_browser, clock
):
    do(moderators_browser, ada, "reset name")
    do(moderators_browser, ada, "reset name")  # a no-op
    told = f"A moderator changed your name to player{ada.id}."
    new_browser = open_browser()
    new_browser.sign_in("ada@example.org")
    for browser in (adas_browser, new_browser):
        pages = [browser.get(path).text.count(told) for path in ("/", "/account", "/")]
        assert pages == [1, 0, 0]
    clock.shift(31 * DAY)
    new_browser = open_browser()
    new_browser.sign_in("ada@example.org")
    assert told not in new_browser.get("/").text
    assert told not in moderators_browser.get(f"/users/{ada.id}").text


def test_administrators_suspension_has_no_form_for_moderators(
    ada, admins_browser, moderators_browser
):
    do(admins_browser, ada, "suspend", reason="Insults")
    page = do(moderators_browser, ada, "unsuspend")
    assert (page.status_code, "administrator suspended" in text_of(page)) == (403, True)
    page = moderators_browser.get(f"/users/{ada.id}")
    assert "Only administrators can change or lift this suspension." in text_of(page)
    assert "suspend" not in "".join(re.findall('action="[^"]*"', page.text))


def test_too_many_acts_are_429_on_the_form(store, ada, moderators_browser, monkeypatch):
    monkeypatch.setattr(actors, "MODERATORS_ACTS_AN_HOUR", 2)
    for act in ("suspend", "unsuspend"):
        assert do(moderators_browser, ada, act).status_code == 303
    before, lines = store.users.read(ada.id), list(store.audit.read())
    page = do(moderators_browser, ada, "suspend")
    assert (page.status_code, "Retry-After" in page.headers) == (429, True)
    assert "Too many tries. Try again in" in text_of(page)
    assert (store.users.read(ada.id), list(store.audit.read())) == (before, lines)


# -- resets ---------------------------------------------------------------------------------------


def test_name_reset_gives_a_reserved_name_and_frees_the_old_one(
    app, store, adas_browser, moderators_browser, open_browser, ada, bob, browser_of
):
    assert do(moderators_browser, ada, "reset name").status_code == 303
    assert store.users.read(ada.id).name == "player1"
    assert store.users.find_by_login("PLAYER1").id == ada.id
    bobs = browser_of(bob)
    for name in ("player1", "Player1", "player99", "ｐｌａｙｅｒ１"):
        assert bobs.post("/account", data={"name": name}).status_code == 400
    # The renamed player can sign in, save the profile, and choose another name.
    assert open_browser().sign_in("player1").status_code == 303
    profile = {"name": "player1", "bio": "x", "equippedFlair": "none"}
    assert adas_browser.post("/account", data=profile).status_code == 303
    assert bobs.post("/account", data={"name": "ada"}).status_code == 303
    assert adas_browser.post("/account", data={"name": "Ada"}).status_code == 409
    assert adas_browser.post("/account", data={"name": "Ada Two"}).status_code == 303


def test_picture_reset_restores_the_generated_picture_at_a_new_address(
    store, moderators_browser, anyone, ada
):
    def picture(user: User):
        return anyone.get(f"/pfp/large/{user.id}-{user.pfp_timestamp}.webp")

    generated = picture(ada).data
    store.pictures.save(ada.id, {"large": b"rude", "medium": b"rude", "small": b"rude"})
    uploaded = store.users.read(ada.id)
    assert do(moderators_browser, ada, "reset picture").status_code == 303
    assert picture(uploaded).status_code == 404
    assert picture(store.users.read(ada.id)).data == generated


@pytest.mark.parametrize("what", ["", "email", "password_hash", "BIO"])
def test_reset_of_another_field_is_400(store, moderators_browser, ada, what):
    before = store.users.read(ada.id)
    assert do(moderators_browser, ada, "reset bio", what=what).status_code == 400
    assert (store.users.read(ada.id), list(store.audit.read())) == (before, [])


# -- levels ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("level", [0, 1, 2])
def test_administrator_sets_every_mod_level(store, admins_browser, bob, level):
    assert do(admins_browser, bob, "mod level", mod_level=str(level)).status_code == 303
    assert store.users.read(bob.id).mod_level == level


@pytest.mark.parametrize("level", ["", "3", "-1", "x", "1.0", "٢", " 1"])
def test_invalid_mod_level_is_400(store, admins_browser, ada, level):
    page = do(admins_browser, ada, "mod level", mod_level=level)
    assert page.status_code == 400
    assert "Use 0, 1 or 2." in page.text
    assert (store.users.read(ada.id).mod_level, list(store.audit.read())) == (0, [])


def test_demoting_the_last_administrator_is_409(store, admin, admins_browser):
    page = do(admins_browser, admin, "mod level", mod_level="0")
    assert (page.status_code, "the last administrator" in page.text) == (409, True)
    assert store.users.read(admin.id).administers


# -- flairs ---------------------------------------------------------------------------------------


def test_granted_flair_can_be_equipped_and_a_revoked_one_becomes_none(
    store, adas_browser, admins_browser, anyone, ada
):
    assert adas_browser.post("/account", data={"equippedFlair": "Champion"}).status_code == 400
    for _ in range(2):  # the second grant is a no-op
        assert do(admins_browser, ada, "grant", flair=" Champion ").status_code == 303
    assert store.users.read(ada.id).flairs == ["none", "Champion"]
    assert adas_browser.post("/account", data={"equippedFlair": "Champion"}).status_code == 303
    assert anyone.get("/api/users/info?id=1").json["user"]["equippedFlair"] == "Champion"
    assert do(admins_browser, ada, "revoke", flair="Champion").status_code == 303
    shown = anyone.get("/api/users/info?id=1").json["user"]
    assert (shown["flairs"], shown["equippedFlair"]) == (["none"], "none")


def test_revoking_another_flair_keeps_the_equipped_one(store, admins_browser, ada, set_up_profile):
    set_up_profile(ada)
    do(admins_browser, ada, "grant", flair="Champion")
    do(admins_browser, ada, "revoke", flair="Champion")
    assert store.users.read(ada.id).equipped_flair == "Old hand"


@pytest.mark.parametrize(
    ("act", "flair"),
    [
        *(("grant", flair) for flair in ("", " ", "x" * 31, "a\nb", "a\0b", "a\u202eb")),
        *(("revoke", flair) for flair in ("none", "", "Champion", "old hand")),
    ],
)
def test_invalid_flair_is_400_with_a_field_error(
    store, admins_browser, ada, set_up_profile, act, flair
):
    before = set_up_profile(ada)
    page = do(admins_browser, ada, act, flair=flair)
    assert page.status_code == 400
    assert 'id="flair-problem"' in page.text
    assert 'aria-describedby="flair-problem"' in page.text
    assert (store.users.read(ada.id), list(store.audit.read())) == (before, [])


# -- finding players ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["Ada", "ada", " ADA ", "Ａｄａ"])
def test_moderator_finds_a_player_by_name(moderators_browser, ada, name):
    answer = moderators_browser.get("/players", query_string={"name": name})
    assert (answer.status_code, answer.location) == (303, f"/users/{ada.id}")


@pytest.mark.parametrize(
    "name",
    [
        *("ada@example.org", "ADA@example.org", "ada＠example.org", "ada﹫example.org", "Ad"),
        *("Adaa", "../1", "*", "%", "\0", "x" * 5000, "<b>x"),
    ],
)
def test_search_ignores_emails_and_partial_names(moderators_browser, ada, name):
    page = moderators_browser.get("/players", query_string={"name": name})
    assert (page.status_code, "No player has this name." in page.text) == (200, True)
    assert "<b>" not in page.text


def test_search_requires_a_moderator(adas_browser, open_browser, moderators_browser):
    refused = adas_browser.get("/players?name=Ada")
    assert (refused.status_code, "Only moderators" in refused.text) == (403, True)
    assert open_browser().get("/players?name=Ada").status_code == 303
    page = moderators_browser.get("/players")
    assert (page.status_code, "No player" in page.text) == (200, False)


# -- failing saves --------------------------------------------------------------------------------


def test_act_that_cannot_be_audited_is_503_and_changes_nothing(store, admins_browser, ada, faults):
    faults.refuse_saves("audit")
    page = do(admins_browser, ada, "suspend")
    assert (page.status_code, "Retry-After" in page.headers) == (503, True)
    assert "Nothing was saved." in text_of(page)
    assert store.users.read(ada.id) == ada


def test_tests_and_profile_cover_every_reset(store, admins_browser, ada):
    page = admins_browser.get(f"/users/{ada.id}")
    assert tuple(re.findall('name="what" value="([a-z]+)"', page.text)) == RESETS
    assert {f"reset {each}" for each in RESETS} <= ACTS.keys()
