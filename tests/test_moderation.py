"""The forms of `pages.community.moderation`. tests/test_accounts.py has the rights of each act."""

import re

import pytest
from conftest import PASSWORD
from forms import edit, save, signed_in, text_of

from identity.access.passwords import hash_password
from identity.site.formatting import DAY
from images.pictures import generate_picture
from model.records import Suspension, User

# Each act: the path below the profile, and the form
ACTS = {
    "suspend": ("/suspend", {}),
    "unsuspend": ("/unsuspend", {}),
    "reset bio": ("/reset", {"what": "bio"}),
    "reset name": ("/reset", {"what": "name"}),
    "reset picture": ("/reset", {"what": "picture"}),
    "mod level": ("/mod-level", {"mod_level": "2"}),
    "grant": ("/flairs/grant", {"flair": "Champion"}),
    "revoke": ("/flairs/revoke", {"flair": "Old hand"}),
    "note": ("/notes", {"text": "Said sorry."}),
    "warn": ("/warn", {"warning": "Be kind."}),
    "link": ("/sign-in-link", {}),
    "delete": ("/delete", {}),
}
ODD_IDS = (
    *("0", "01", "-1", "+1", "1.0", "x", "1x", "٣", "１", "9" * 15, "1" * 16, "1%0A", "1 ", "%00"),
)


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
        return signed_in(open_browser(), user.name)

    return browser_of


@pytest.fixture
def admin(add_player) -> User:
    return add_player("Chief", 2)


@pytest.fixture
def admins_browser(admin, browser_of):
    return browser_of(admin)


@pytest.fixture
def moderators_browser(add_player, browser_of):
    return browser_of(add_player("Warden", 1))


@pytest.fixture
def set_up_profile(store):
    """A function that sets fields of a user, so that `act` is not a no-op."""

    def set_up_profile(user: User, act: str = "") -> User:
        with store.users.edit(user.id) as user:
            user.bio = "Something rude"
            user.flairs = ["none", "Old hand"]
            user.equipped_flair = "Old hand"
            user.suspension = Suspension(user.id) if act == "unsuspend" else None
        store.pictures.save(user.id, generate_picture(77))
        return store.users.read(user.id)

    return set_up_profile


def do(browser, user: User, act: str, **changes: str):
    path, form = ACTS[act]
    return browser.post(f"/users/{user.id}{path}", data=form | changes)


def test_profile_has_the_forms_of_allowed_acts_only(add_player, browser_of, ada, set_up_profile):
    set_up_profile(ada)
    forms = [set(), {"warn", "suspend", "underage", "reset", "notes", "sign-in-link"}]
    forms.append(forms[1] | {"mod-level", "flairs/grant", "flairs/revoke", "delete"})
    for level in range(3):
        page = browser_of(add_player(f"Viewer {level}", level)).get(f"/users/{ada.id}")
        actions = re.findall(rf'action="/users/{ada.id}/([a-z/-]+)"', page.text)
        assert set(actions) == forms[level]
        resets = re.findall('name="what" value="([a-z]+)"', page.text)
        assert resets == (["name", "picture", "bio"] if level else [])


def test_invalid_or_deleted_user_is_404(store, browser, admins_browser, bob):
    store.users.delete(bob.id)
    unknown = browser.get("/users/999").text
    for user_id in (*ODD_IDS, bob.id):
        page = browser.get(f"/users/{user_id}")
        assert (page.status_code, page.text) == (404, unknown)
        for path, form in ACTS.values():
            assert admins_browser.post(f"/users/{user_id}{path}", data=form).status_code == 404


def test_suspension_ends_sessions_and_tokens(
    adas_browser, open_browser, moderators_browser, ada, program
):
    token = program.token_for(adas_browser.allow(program))
    code = adas_browser.allow(program)

    def check_all_ended() -> None:
        assert adas_browser.get("/account").status_code == 303
        assert program.whois(token).status_code == 401
        assert program.exchange(code).status_code == 400

    done = moderators_browser.get(do(moderators_browser, ada, "suspend").location)
    assert "Player suspended." in done.text
    check_all_ended()
    assert open_browser().sign_in().status_code == 403
    assert do(moderators_browser, ada, "unsuspend").status_code == 303
    check_all_ended()
    assert open_browser().sign_in().status_code == 303


def test_reason_of_a_suspension_is_for_moderators(store, browser, ada, admin, moderators_browser):
    def public_info() -> dict:
        return browser.get(f"/api/users/info?id={ada.id}").json

    before = public_info()
    end = 4_102_482_600_000  # 1 January 2100, 10:30 UTC
    for by, words in (
        (admin.id, "Chief"),
        ("command", "The administrators (with the command)"),
        (None, "Unknown"),
        (77, "Player 77 (left)"),
    ):
        edit(store.users, ada.id, suspension=Suspension(by, 1000, "Insults <b>", end))
        shown = text_of(moderators_browser.get(f"/users/{ada.id}"))
        assert f"Suspended by {words} Since 1 January 1970, 00:00 UTC" in shown
        assert "Until 1 January 2100, 10:30 UTC Reason Insults <b>" in shown
    public = text_of(browser.get(f"/users/{ada.id}"))
    assert "This player is suspended." in public
    assert not any(each in public for each in ("Insults", "2100", "1970", "Suspended by"))
    assert public_info() == before


def test_suspend_form_takes_reason_and_length(store, ada, moderators_browser):
    form = {"reason": " Insults ", "length": "1 week"}
    assert do(moderators_browser, ada, "suspend", **form).status_code == 303
    suspension = store.users.read(ada.id).suspension
    assert (suspension.reason, suspension.until - suspension.since) == ("Insults", 7 * DAY * 1000)
    changed = {"reason": "Threats", "length": "No end"}
    assert do(moderators_browser, ada, "suspend", **changed).status_code == 303
    suspension = store.users.read(ada.id).suspension
    assert (suspension.reason, suspension.until) == ("Threats", None)


def test_suspend_form_proposes_a_week_or_the_present_end(store, ada, moderators_browser, clock):
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


def test_name_reset_gives_a_reserved_name(
    store, adas_browser, moderators_browser, open_browser, ada, bob, browser_of
):
    assert do(moderators_browser, ada, "reset name").status_code == 303
    assert store.users.read(ada.id).name == "player1"
    bobs = browser_of(bob)
    for name in ("player1", "Player1", "player99", "ｐｌａｙｅｒ１"):
        assert bobs.post("/account", data={"name": name}).status_code == 400
    # The renamed player can sign in, save the profile, and choose another name.
    assert open_browser().sign_in("PLAYER1").status_code == 303
    assert adas_browser.post("/account", data={"name": "player1", "bio": "x"}).status_code == 303
    assert bobs.post("/account", data={"name": "ada"}).status_code == 409  # it is kept for Ada
    assert adas_browser.post("/account", data={"name": "Ada Two"}).status_code == 303
    assert bobs.post("/account", data={"name": "ada"}).status_code == 409
    assert adas_browser.post("/account", data={"name": "Ada"}).status_code == 303


def test_name_reset_is_told_once(ada, adas_browser, open_browser, moderators_browser, clock):
    do(moderators_browser, ada, "reset name")
    do(moderators_browser, ada, "reset name")  # a no-op
    told = f"A moderator changed your name to player{ada.id}."
    new_browser = signed_in(open_browser(), "ada@example.org")
    for browser in (adas_browser, new_browser):
        pages = [browser.get(path).text.count(told) for path in ("/", "/account", "/")]
        assert pages == [1, 0, 0]
    clock.shift(31 * DAY)
    assert told not in signed_in(open_browser(), "ada@example.org").get("/").text


def test_removal_is_told_once(store, ada, adas_browser, moderators_browser, set_up_profile):
    """What was not there is not told; nor is what the player removes."""
    told = {
        "reset picture": "A moderator removed your picture. Choose another one on your account",
        "reset bio": "A moderator removed what you wrote about yourself. Write something else.",
    }
    for act in told:
        assert do(moderators_browser, ada, act).status_code == 303
    assert store.users.read(ada.id).notices == []
    set_up_profile(ada)
    assert save(adas_browser, bio="").status_code == 303
    assert store.users.read(ada.id).notices == []
    set_up_profile(ada)
    for act, text in told.items():
        for _ in range(2):
            assert do(moderators_browser, ada, act).status_code == 303
        assert [adas_browser.get("/").text.count(text) for _ in range(2)] == [1, 0]


def test_picture_reset_restores_the_generated_picture(store, moderators_browser, anyone, ada):
    def picture(user: User):
        return anyone.get(f"/pfp/large/{user.id}-{user.pfp_timestamp}.webp")

    generated = picture(ada).data
    store.pictures.save(ada.id, {"large": b"rude", "medium": b"rude", "small": b"rude"})
    uploaded = store.users.read(ada.id)
    assert do(moderators_browser, ada, "reset picture").status_code == 303
    assert picture(uploaded).status_code == 404
    assert picture(store.users.read(ada.id)).data == generated
    for what in ("", "email", "password_hash", "BIO"):
        assert do(moderators_browser, ada, "reset bio", what=what).status_code == 400


def test_mod_level_is_set_or_an_error_of_the_form(store, admin, admins_browser, ada):
    for level in (2, 1, 0):
        assert do(admins_browser, ada, "mod level", mod_level=str(level)).status_code == 303
        assert store.users.read(ada.id).mod_level == level
    page = do(admins_browser, admin, "mod level", mod_level="0")
    assert (page.status_code, "the last administrator" in page.text) == (409, True)
    assert [store.users.read(each.id).mod_level for each in (ada, admin)] == [0, 2]


def test_flair_is_equipped_until_it_is_revoked(store, adas_browser, admins_browser, anyone, ada):
    def equip(flair: str) -> int:
        return adas_browser.post("/account", data={"equippedFlair": flair}).status_code

    assert equip("Champion") == 400
    for flair in (" Champion ", "Champion", "Rook"):  # the second one is a no-op
        assert do(admins_browser, ada, "grant", flair=flair).status_code == 303
    assert store.users.read(ada.id).flairs == ["none", "Champion", "Rook"]
    assert equip("Champion") == 303
    for revoked, left, equipped in (
        ("Rook", ["none", "Champion"], "Champion"),
        ("Champion", ["none"], "none"),
    ):
        assert do(admins_browser, ada, "revoke", flair=revoked).status_code == 303
        shown = anyone.get("/api/users/info?id=1").json["user"]
        assert (shown["flairs"], shown["equippedFlair"]) == (left, equipped)
