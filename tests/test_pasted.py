"""What people paste or type from paper: `identity.site.pasted`, and the pages that use it."""

from urllib.parse import quote

from conftest import PASSWORD
from forms import led_to, sign_up

from identity.access import links
from identity.access.sessions import local_address
from identity.acts import recovery_codes
from identity.acts.actors import Actor, Authority
from identity.oauth import device
from identity.site.pasted import find_code, find_secret
from model.records import ADMINISTRATOR

# What chats, letters and keyboards put around a link, or another text.
AROUND = [
    *("{}", " {}\n", "<{}>", "({})", "({}).", "{}.", "{},", "“{}”", "\u200b{}\u200b", "{}\ufeff"),
    *("Hi! Here it is: {} and thanks, bye #1", "\u2068{}\u2069", "**{}**", "> {}\r\n", "«{}» !"),
]


def paste_in(text: str) -> list[str]:
    """Return how a text comes out of a chat, also with hidden characters inside."""
    inside = f"{text[:20]}\u200b\u00ad{text[20:]}"
    return [each.format(text) for each in AROUND] + [inside]


def test_pasted_links_of_letters_and_moderators(store, ada, browser, subtests):
    address = links.issue_sign_in_link(store, "https://id.example.org", ada)
    wrapped = f"https://safe.example/?url={address.replace('#', '%23')}&data=05%7C01"
    for link in [*paste_in(address), *paste_in(address.partition("#")[2]), wrapped]:
        with subtests.test(ascii(link)):
            page = browser.post("/recover/password", data={"link": link})
            assert (page.status_code, 'name="new_password"' in page.text) == (200, True)
    way_back = links.issue_way_back(store, ada.id, ada.email)
    store.users.change_email(ada.id, ada.email, verified=True)
    store.users.change_email(ada.id, "thief@example.org")
    confirmation = links.issue_link(store, links.CONFIRMATION, ada, "")
    for around in AROUND:
        assert links.find_way_back(store, around.format(f"https://a/recover#{way_back}"))
    for forged in (
        f"x{address}x",
        address[:-5],
        f"{address}{confirmation}",
        "",
        "#",
        "https://a/#b",
    ):
        assert links.find_link(store, links.PASSWORD, forged) is None


def test_pasted_invitations(store, ada, browser, subtests):
    invite = store.invites.issue(7)
    address = f"https://id.example.org/sign-up?invite={invite}&next=/games/a"
    for pasted in [*paste_in(address), *paste_in(invite), *paste_in(address.partition("&")[0])]:
        with subtests.test(ascii(pasted)):
            page = browser.get("/sign-up", query_string={"invite": pasted})
            assert f'name="invite" value="{invite}"' in page.text
    first = links.issue_first_account_link(store, "https://id.example.org")
    assert links.is_first_account_invite(store, find_secret(f"<{first}>.", "invite="))
    assert sign_up(browser, invite=f"{invite}x").status_code == 403
    assert sign_up(browser, invite=f"<{invite}>.").status_code == 303


def test_pasted_codes(store, ada, open_browser, subtests):
    digits = ["123456", "123 456", "12-34-56", "１２３４５６", "١٢٣٤٥٦", "۱۲۳ ۴۵۶", "1 2 3 4 5 6"]
    for typed in [*digits, *paste_in("123 456"), "Your code of 27.11.: 123456, for 60 minutes"]:
        with subtests.test(ascii(typed)):
            assert find_code(typed, "0-9", length=6) == "123456"
    shown = [
        *("BCDF-GHJK", "bcdfghjk", "bcdf–ghjk", "ＢＣＤＦ　ＧＨＪＫ"),
        *("B C D F G H J K", "bcdf−ghjk"),
    ]
    shown += ["https://id.example.org/device?user_code=BCDF-GHJK", "Code: BCDF-GHJK (10 minutes)"]
    for typed in [*shown, *paste_in("BCDF-GHJK")]:
        with subtests.test(ascii(typed)):
            assert device.parse_user_code(typed) == "BCDFGHJK"
    for typed in ("", "12345", "1234567", "a123456", "12345６7", "1" * 9999):
        assert find_code(typed, "0-9", length=6) is None
    codes = iter(recovery_codes.issue(Authority(store, Actor(ada.id)), ada.id))
    for around in ("7. {}", "<{}>", "{}.", "\u200b{}\u200b", "my code {} please"):
        with subtests.test(ascii(around)):
            code = around.format(next(codes).replace("-", "–"))
            assert open_browser().sign_in(password=code).status_code == 303
            assert open_browser().sign_in(password=code).status_code == 403


def test_pasted_names(ada, open_browser, enter, subtests):
    administrator = enter("Rita", ADMINISTRATOR)
    for around in (each for each in AROUND if "!" not in each and "*" not in each):
        with subtests.test(ascii(around)):
            for name in ("Ada", "ada@example.org"):
                assert open_browser().sign_in(around.format(name)).status_code == 303
            pasted = quote(around.format("Ada"))
            for path in (f"/admin/log?player={pasted}", f"/admin/apps?owner={pasted}"):
                assert "Type a" not in administrator.get(path).text


def test_pasted_emails(store, adas_browser, ada, subtests):
    for number, around in enumerate(("<{}>", "({}).", "\u200b{},", "{}\x7f")):
        with subtests.test(ascii(around)):
            email = f"ada{number}@example.org"
            form = {"email": around.format(email), "current_password": PASSWORD}
            adas_browser.post("/account/email", data=form)
            assert store.users.read(ada.id).email == email


def test_pasted_address_of_a_page(adas_browser, ada, subtests):
    for behind in (")", ").", ">", ",", "\u200b", "”", "%E2%80%8B", "%3E.", ":"):
        with subtests.test(ascii(behind)):
            assert led_to(adas_browser.get(f"/users/{ada.id}{behind}")) == f"/users/{ada.id}"
    for path in ("/nobody)", "/users/999"):
        assert adas_browser.get(path, follow_redirects=True).status_code == 404
    for path in ("//evil.example/x)", "/\\evil.example)"):  # browsers would go to this host
        answer = adas_browser.get("/", environ_overrides={"PATH_INFO": path})
        assert local_address(answer.location) == answer.location
    for answer in (
        adas_browser.post(f"/users/{ada.id})"),
        *map(adas_browser.get, ("/api/users/x)", "/static/style.css)", "/users/1)?a=b")),
    ):
        assert answer.status_code >= 400 and answer.location is None
