"""Forms that are refused: the problem and its field, what was typed, and that nothing is stored."""

import re

import pytest
from conftest import PASSWORD
from forms import ANOTHER, REFUSED_UPLOADS, edit, parse, problems_of, sent_by, upload
from pseudo import WORD
from test_rights_table import LATER

from identity.acts import reports as report_acts
from identity.acts.actors import Actor, Authority
from model.kinds import REPORTS
from model.records import ADMINISTRATOR, Suspension
from pages.developer.apps import NO_ADDRESS
from pages.kit.forms import EMAIL_AS_NAME

URI, TAKEN = "https://space.example/callback", "https://chess.example/"
OTHERS_NAME = "Another player has this name. Choose a different one."
KEPT = "Somebody had this name until recently. Choose another one."
OTHERS_EMAIL = "Another account has this email. Use a different one."
BAD_EMAILS = (
    *("nowhere", "a@", "@b", "a b@c", "a@b!", "x" * 300, "a@[", "ada@example.org]1"),
    *("ada@b..example", "=?utf-8?q?b?=@c.example", "b%c.example@d.example"),
)
# The name and the address of the site are among the words that attackers try first.
SITE = "Leave your name, your email and this site's name out of your password."
COMMON = dict.fromkeys(("identityserver", "at localhost now"), SITE)
COMMON["Password1234!"] = "Too common. Try three random words."
WRONG = dict.fromkeys(
    ("", "tell nobody", PASSWORD.upper(), f"{PASSWORD} "), "Wrong password. Try again."
)
BAD_APP = [
    (400, "name", ("", "x" * 61, "ldentity Server!")),  # the last one looks like the site
    (400, "redirect_uris", (f"{URI}\nftp://space.example/", "https://a..b/")),
    (400, "post_logout_redirect_uris", (f"{URI}\nhttps://game.example/#left", f"{URI}/*")),
    (400, "description", ("x" * 1001, "a\u202eb")),
    (400, "who flair", ("flair",)),
]
BAD_GAME_URL = [
    (400, ("http://localhost/game", "https://space.example:6000/", "http://[")),
    (409, (TAKEN,)),
]
APP = {"name": "<Other>", "redirect_uris": URI, "description": "A & B"}
FORMS = {  # what is sent besides the field that is refused
    "/sign-up": {"name": "Grace", "email": "grace@example.org", "password": PASSWORD},
    "/account": {"name": "Changed", "bio": "typed"},
    "/account/email": {"email": "new@example.org", "current_password": PASSWORD},
    "/account/password": {"current_password": PASSWORD, "new_password": ANOTHER},
    "/recover/password": {"link": ""},
    "/developer": APP | {"kind": "elsewhere"},
    "/developer?game": APP | {"kind": "game"},
    "/developer?program": {"kind": "program", "program": "discourse", "address": f"{URI}forum"},
    "/developer/{app}": APP,
    "/developer/{app}/owner": {"seen": ""},
    "/users/{bob}/report": {"reason": "spam", "text": "</textarea><b>"},
    "/users/{bob}/suspend": {"reason": "Insults", "length": "1 week"},
    "/admin/look": {"name": "Kept", "welcome": "Kept.", "contact": "", "accent": ""},
    "/admin/chat": {"url": "https://8.8.8.8/", "format": "json", "events": ["player"]},
    "/admin/invitations": {"uses": "1", "days": "7", "note": "For Zoë"},
    "/admin/announcement": {"text": "Kept.", "days": "7"},
    "/admin/networks": {"network": "192.0.2.7", "days": "7", "reach": "0", "reason": "Kept."},
    "/admin/door/terms": {"text": "Kept.", "day": LATER, "asks": "yes"},
    "/admin/door/privacy": {"text": "Kept.", "shown": "yes"},
}
# The address, the status, the name of a field with the id of its problem if that is another one,
# and values that are refused, some with the beginning of the problem.
REFUSED = [
    ("/sign-up", 400, "name", ("", "x", "x" * 31, "a@b", "root", "player7", "<b>", "a\u200bb")),
    ("/sign-up", 400, "name", ("-ada", "раypal", "../1", "ａｄｍｉｎ", "PLAYER٣")),
    ("/sign-up", 400, "name", {"a@example.org": EMAIL_AS_NAME, "Identity Server": "This name is"}),
    ("/sign-up", 409, "name", dict.fromkeys(("Bob", " bob ", "Ｂｏｂ", "ｂＯＢ"), OTHERS_NAME)),
    ("/sign-up", 409, "name", dict.fromkeys(("BERT", "gone"), KEPT)),
    ("/sign-up", 400, "email", BAD_EMAILS),
    ("/sign-up", 409, "email", {" BOB@EXAMPLE.ORG ": "Another", "ｂob@example.org": OTHERS_EMAIL}),
    ("/sign-up", 400, "password", ("", "elevenchars", "x" * 1025, "qwerty123456")),
    ("/sign-up", 400, "password", COMMON | {f"{PASSWORD} gRaCe": SITE}),
    ("/account", 400, "name", {"Identity Server": "This name is reserved.", "a@b": EMAIL_AS_NAME}),
    ("/account", 400, "name", {"\"'><script>": "You can't use “\"” in a name. Use "}),
    ("/account", 409, "name", {"Ｂｏｂ": OTHERS_NAME, "BERT": KEPT, "gone": KEPT}),
    ("/account", 400, "bio", {"x" * 1001: "Use "}),
    ("/account", 400, "equippedFlair flair", {"Champion": "You do not have this flair."}),
    ("/account/email", 400, "email", (*BAD_EMAILS[-6:], " ada@example.org ")),
    ("/account/email", 409, "email", {"BOB@example.org": OTHERS_EMAIL}),
    ("/account/email", 403, "current_password email-password", WRONG),
    ("/account/password", 400, "new_password new-password", COMMON),
    ("/account/password", 403, "current_password password-password", WRONG),
    ("/account/delete", 403, "password delete-password", WRONG),
    ("/recover/password", 400, "new_password", COMMON),
    ("/welcome/flair", 400, "equippedFlair flair", ("x", "", "First ten", "x" * 10_000, "\0")),
    *((path, *row) for row in BAD_APP for path in ("/developer", "/developer/{app}")),
    ("/developer/{app}", 400, "redirect_uris", ("",)),
    *(("/developer/{app}", status, "game_url", urls) for status, urls in BAD_GAME_URL),
    *(("/developer?game", status, "address", urls) for status, urls in BAD_GAME_URL),
    ("/developer?game", 400, "address", {"": NO_ADDRESS}),
    ("/developer", 400, "kind", ("", "Public")),
    ("/developer?program", 400, "program", ("discord", "")),
    ("/developer?program", 400, "address", ("", "x")),
    ("/developer/{app}/owner", 400, "owner", ("nobody", "x@example.org", "\u202e", "Out")),
    ("/users/{bob}/report", 400, "reason", dict.fromkeys(("", "<b>"), "Choose what is wrong.")),
    ("/users/{bob}/report", 400, "text", {"x" * 501: "Use up to 500 characters. This text has"}),
    ("/users/{bob}/report", 400, "text", {"a\x07": "Use plain text. U+0007 can't be shown."}),
    ("/users/{bob}/suspend", 400, "reason suspend-reason", ("r" * 201, "\u202er")),
    ("/users/{bob}/suspend", 400, "length suspend-length", ("2 days", "", "Keep the end")),
    ("/users/{bob}/notes", 400, "text note", ("", "x" * 301, "a\nb", "\u202e")),
    ("/users/{bob}/warn", 400, "warning", ("", "x" * 301, "a\nb", "\u202e")),
    ("/users/{bob}/mod-level", 400, "mod_level mod-level", ("", "3", "-1", "x", "1.0", "٢", " 1")),
    ("/users/{bob}/flairs/grant", 400, "flair", ("", " ", "x" * 31, "a\nb", "a\0b", "a\u202eb")),
    ("/users/{bob}/flairs/revoke", 400, "flair", ("none", "", "Champion", "OLD HAND")),
    ("/admin/reports/{report}", 400, "answer", {"y" * 201: "Use up to 200 characters on one"}),
    ("/admin/look", 400, "accent", ("purple", "#12345")),
    ("/admin/look", 400, "contact", ("javascript:x", "ftp://x", "a b", "x@y?cc=z", 'https://x/"')),
    ("/admin/look", 400, "contact", ("https://x/\u200b", "a@b\x1b", f"a@{'b' * 200}")),
    ("/admin/look", 400, "welcome", ("x" * 501, "a\x00b", "\u202e")),
    ("/admin/look", 400, "name", ("x" * 61, "a\nb", "a\u202eb")),
    ("/admin/chat", 400, "url", ("x",)),
    ("/admin/chat", 400, "format", ("xml",)),
    ("/admin/chat", 400, "events", ([], ["all"])),
    ("/admin/announcement", 400, "text", ("", " ", "x" * 501, "a\x07", "\u202e")),
    ("/admin/announcement", 400, "days", ("", "2", "x", "٣")),
    ("/admin/networks", 400, "days", ("", "0", "91", "x", "٣", "-1")),
    ("/admin/networks", 400, "reach", ("", "31", "x", "٣")),
    ("/admin/networks", 400, "reason", ("", "x" * 201, "a\nb")),
    ("/admin/door/terms", 400, "text terms-text", ("x" * 20_001, "a\x07", "\u202e")),
    (
        "/admin/door/terms",
        400,
        "day terms-day",
        ("", "x", "2026-11-27", "2030-01-01", "٢٠٢٧-٠١-٠١"),
    ),
    ("/admin/door/privacy", 400, "text privacy-text", ("x" * 20_001, "a\x07", "\u202e")),
    ("/admin/invitations", 400, "uses", ("0", "1001", "", "two", "٢")),
    ("/admin/invitations", 400, "days", ("0", "10000", "", "x")),
    ("/admin/invitations", 400, "note", ("x" * 61, "a\nb")),
    ("/admin/invitations", 400, "flair", ("x" * 61, "a\u202eb")),
]
UPLOADS = {
    "/account/picture": "picture",
    "/welcome/picture?next=%2Fusers%2F1": "picture",
    "/developer/{app}/cover": "cover",
    "/admin/look/logo": "logo",
}
QUOTED = re.compile(
    r"“[^”]*”|U\+\w+|\([A-Za-z -]*\)"
)  # what was typed: characters, and their names
TEXTS = "textarea, input:not([type=radio], [type=checkbox], [type=hidden])"


@pytest.fixture
def app(make_app):
    """An app in which anybody may sign up and register apps."""
    return make_app(SIGN_UP="open", CLIENT_REGISTRATION="members")


@pytest.fixture
def ids(store, ada, bob, add_players, adas_link) -> dict[str, str]:
    """The ids in the addresses, of things of which other forms are about."""
    store.users.rename(bob.id, "Bert")
    store.users.rename(bob.id, "Bob")
    gone, _ = add_players("Gone", "Out", suspension=Suspension("command"))
    store.users.delete(gone.id)
    edit(store.users, bob.id, flairs=["none", "Old hand"])
    store.clients.register("Chess", [], None, game_url=TAKEN)
    app, _ = store.clients.register("Game", [URI], ada.id, game_url="https://game.example/")
    report_acts.report(Authority(store, Actor(bob.id)), app, "spam", "")
    [report_id] = store.records(REPORTS).ids()
    ids = {"bob": str(bob.id), "app": app.id, "report": report_id}
    return ids | {"seen": str(ada.id), "link": adas_link.partition("#")[2]}


@pytest.fixture
def sender(request, ids, browser, enter):
    """The browser of a guest for what guests do, of an administrator for what they alone do."""
    path = request.getfixturevalue("path")
    if path.startswith(("/admin", "/users", "/developer/{app}/owner")):
        return enter("Boss", ADMINISTRATOR)
    if path not in ("/sign-up", "/recover/password"):
        browser.sign_in()
    return browser


def records(faults) -> dict[str, bytes]:
    """Return what is stored, but for counted attempts."""
    return {name: each for name, each in faults.stored().items() if "attempts/" not in name}


@pytest.mark.parametrize("path", dict.fromkeys(row[0] for row in REFUSED))
def test_refused_form_shows_the_problem_and_keeps_the_input(
    sender, ids, faults, subtests, path, pseudo
):
    """But for passwords, and a choice that is not offered."""
    address, before = path.format(**ids).partition("?")[0], records(faults)
    good = {name: ids.get(name, value) for name, value in FORMS.get(path, {}).items()}
    for _, status, field, values in (row for row in REFUSED if row[0] == path):
        name, _, problem = field.partition(" ")
        for value in values:
            with subtests.test(field, value=value):
                typed = good | {name: value}
                page = sender.post(address, data=typed)
                [(found, text)] = problems_of(page).items()
                assert (page.status_code, found) == (status, problem or name)
                assert text.startswith(values[value] if isinstance(values, dict) else "")
                [form] = parse(page).select(f'[action="{address}"]:has([name={name}])')
                secret = {each["name"] for each in form.select("[type=password]")}
                texts = {each["name"] for each in form.select(TEXTS)}
                assert not any(len(typed[each]) > 8 and typed[each] in page.text for each in secret)
                shown = sent_by(form)
                for each in typed.keys() - secret - ({name} - texts):
                    assert not typed[each] or shown[each] in (typed[each], [typed[each]])
                assert records(faults) == before
        if not path.startswith("/developer"):  # whose pages are in English
            page = sender.post(address, data=typed, headers={"Accept-Language": pseudo})
            [problem] = parse(page).select(".problem")
            assert {*WORD.findall(QUOTED.sub("", problem.text))} <= {"Arabic"}, problem.text


@pytest.mark.live
@pytest.mark.parametrize("path", UPLOADS)
def test_refused_upload_shows_the_problem_and_changes_nothing(sender, ids, faults, subtests, path):
    address, before = path.format(**ids), records(faults)
    for kind, (content, status) in REFUSED_UPLOADS.items():
        if kind == "no field" and path.startswith("/welcome"):
            continue  # which goes on to the next step
        with subtests.test(kind):
            page = upload(sender, content, path=address)
            assert (page.status_code, list(problems_of(page))) == (status, [UPLOADS[path]])
            assert parse(page).select(f'form[action="{address}"] [type=file]')
            assert records(faults) == before
