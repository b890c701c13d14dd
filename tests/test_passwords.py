"""Passwords: the forms that require one, password changes, rules and sign-in links."""

import itertools
import unicodedata

import pytest
from forms import ANOTHER, change_password, edit, from_address, is_signed_in, set_by_link, sign_up
from werkzeug.security import check_password_hash, generate_password_hash

from identity.access import passwords
from identity.access.links import issue_sign_in_link
from identity.http.limits import ATTEMPTS_PER_ADDRESS


def open_link(browser, link: str):
    return browser.post("/recover/password", data={"link": link})


# The other fields of each form, and the name of its password field
def test_password_change_ends_all_other_sessions(store, adas_browser, open_browser, ada):
    other = open_browser()
    other.sign_in()
    stolen = open_browser()
    stolen.set_cookie("identity_session", adas_browser.get_cookie("identity_session").value)
    assert is_signed_in(stolen)
    assert change_password(adas_browser).status_code == 303
    assert [is_signed_in(each) for each in (adas_browser, other, stolen)] == [True, False, False]
    assert len(store.users.read(ada.id).sessions) == 1
    assert other.sign_in().status_code == 403
    assert other.sign_in(password=ANOTHER).status_code == 303


def test_new_password_containing_the_name_is_400(store, adas_browser, ada):
    store.users.rename(ada.id, "Lovelace")
    adas_browser.sign_in("Lovelace")
    assert change_password(adas_browser, "i am LOVELACE and fine").status_code == 400


ACCENTS = "Tiếng Việt, crème, 한국어 12"
IN_FORMS = [  # a password, and how other keyboards type it
    (ACCENTS, unicodedata.normalize("NFD", ACCENTS)),
    ("Tiếng Việt mến yêu", "Tie\u0302\u0301ng Vi\u1ec7t m\u00ea\u0301n yêu"),  # of Windows
    ("three wide words", "ｔｈｒｅｅ\u3000ｗｉｄｅ\u3000ｗｏｒｄｓ"),
    ("ｶﾀｶﾅ ﾊﾟｽﾜｰﾄﾞ ﾃｽﾄ", "カタカナ パスワード テスト"),
    ("a b c d e f g", "a\u00a0b\u2007c\u202fd\u1680e\u2003f\u205fg"),
]


@pytest.fixture
def open_browsers(open_browser):
    addresses = (f"192.0.2.{number}" for number in itertools.count())
    return lambda: from_address(open_browser(), next(addresses))


def test_password_works_in_each_unicode_form(store, ada, open_browsers, subtests):
    """RFC 8265 4.2 composes accents and maps spaces; NFKC takes wide letters as well."""

    def at_sign_up(password: str) -> tuple:
        name = f"Zoe {store.users.number()}"
        fields = {"name": name, "email": "", "invite": store.invites.issue(1)}
        return name, sign_up(open_browsers(), password=password, **fields)

    def in_account(password: str) -> tuple:
        browser = open_browsers()
        edit(store.users, ada.id, password_hash=passwords.hash_password(other))
        browser.sign_in(password=one)
        form = {"current_password": one, "new_password": password}
        return "Ada", browser.post("/account/password", data=form)

    def by_link(password: str) -> tuple:
        link = issue_sign_in_link(store, "", store.users.read(ada.id))
        return "Ada", set_by_link(open_browsers(), link, password)

    for one, other in [*IN_FORMS, *(row[::-1] for row in IN_FORMS)]:
        for way in (at_sign_up, in_account, by_link):
            with subtests.test(ascii(one), way=way.__name__):
                name, page = way(one)
                assert page.status_code == 303
                for typed in (one, other):
                    assert open_browsers().sign_in(name, typed).status_code == 303
                for wrong in (f"{one} ", one[1:], *{one.swapcase()} - {one}):
                    assert open_browsers().sign_in(name, wrong).status_code == 403


def test_hash_of_another_form_is_replaced_at_sign_in(store, ada, open_browsers, subtests):
    """Those of earlier versions and of other servers are of the password as it was typed."""
    ours, legacy = passwords.PASSWORD_METHOD, "pbkdf2:sha256:1000"
    for one, other in IN_FORMS:
        for method, wrap in ((ours, str), (legacy, str), (legacy, passwords.wrap_hash)):
            with subtests.test(ascii(other), method=method, wrap=wrap.__name__):
                kept = wrap(generate_password_hash(other, method))
                edit(store.users, ada.id, password_hash=kept)
                assert open_browsers().sign_in(password=f"{other}!").status_code == 403
                assert store.users.read(ada.id).password_hash == kept
                assert open_browsers().sign_in(password=other).status_code == 303
                new = store.users.read(ada.id).password_hash
                assert check_password_hash(new, unicodedata.normalize("NFKC", one))
                for typed in (one, other):
                    assert open_browsers().sign_in(password=typed).status_code == 303
                assert store.users.read(ada.id).password_hash == new


def test_each_form_of_a_password_counts_as_an_attempt_of_the_address(ada, open_browser):
    """So nobody makes the server hash more by typing what has two forms."""
    for typed, hashes in ((ACCENTS, 1), (IN_FORMS[0][1], 2)):
        browser = from_address(open_browser(), f"192.0.2.{hashes}")
        answers = [
            browser.sign_in(f"Nobody {number}", typed).status_code
            for number in range(ATTEMPTS_PER_ADDRESS // hashes + 1)
        ]
        assert answers == [*[403] * (len(answers) - 1), 429]


def test_sign_in_link_works_once_and_ends_all_sessions(adas_browser, open_browser, ada, adas_link):
    browser, other_browser = open_browser(), open_browser()
    for _ in range(3):  # chat programs open links for a preview
        page = open_link(browser, adas_link)
        assert (page.status_code, 'name="new_password"' in page.text) == (200, True)
    assert is_signed_in(adas_browser)
    assert set_by_link(browser, adas_link, "short").status_code == 400
    assert set_by_link(browser, adas_link).status_code == 303
    assert (is_signed_in(browser), is_signed_in(adas_browser)) == (True, False)
    assert 'name="new_password"' not in open_link(other_browser, adas_link).text
    assert set_by_link(other_browser, adas_link, "another phrase again").status_code == 403
    assert not is_signed_in(other_browser)
    assert open_browser().sign_in(password=ANOTHER).status_code == 303
