"""Names that were given up: who can have them, and who signs in with them."""

import html

import fixtures
from conftest import PASSWORD
from forms import save, sign_up, signed_in

from identity.acts import accounts
from identity.acts.actors import COMMAND, Authority
from identity.site.formatting import format_date
from model.records import now_ms

DAY = 86_400  # seconds
TOLD = "You are called Grace now. Sign in with that name. Your old name stays yours until "
bobs_browser = fixtures.bobs_browser
app = fixtures.open_app


def signs_in(open_browser, name: str, password: str = PASSWORD) -> bool:
    return open_browser().sign_in(name, password).status_code == 303


def test_kept_name_is_refused_before_a_password_is_hashed(store, ada, browser, monkeypatch):
    store.users.rename(ada.id, "Grace")
    monkeypatch.setattr("pages.entry.sign_up.hash_password", None)
    assert sign_up(browser, name="ada").status_code == 409


def test_old_name_signs_in_and_is_told_the_new_one_once(store, ada, open_browser, clock, subtests):
    store.users.rename(ada.id, "Grace")
    for name in ("Ada", "ada ", "ADA"):
        with subtests.test(name):
            browser = open_browser()
            assert browser.sign_in(name, next="/account").location == "/account"
            pages = [html.unescape(browser.get(path).text) for path in ("/account", "/", "/")]
            assert [page.count(TOLD) for page in pages] == [1, 0, 0]
    for name in ("Grace", "ada@example.org"):
        with subtests.test(name):
            assert TOLD not in signed_in(open_browser(), name).get("/").text
    clock.shift(90 * DAY - 1)
    assert signs_in(open_browser, "Ada")
    clock.shift(1)
    assert not signs_in(open_browser, "Ada")
    assert signs_in(open_browser, "Grace")


def test_player_takes_an_old_name_back(store, ada, adas_browser, bobs_browser):
    assert save(adas_browser, name="Grace").status_code == 303
    assert save(bobs_browser, name="Ada").status_code == 409
    assert save(adas_browser, name="ada").status_code == 303
    assert save(bobs_browser, name="Grace").status_code == 409
    assert store.users.read(ada.id).name == "ada"


def test_player_keeps_ten_former_names(store, ada, adas_browser, open_browser, clock, monkeypatch):
    monkeypatch.setattr(accounts, "RENAMES_AN_HOUR", 100)
    for number in range(10):
        assert save(adas_browser, name=f"Ada {number}").status_code == 303
        clock.shift(DAY)
    first = format_date(now_ms() + 80 * DAY * 1000)
    refused = save(adas_browser, name="Grace", bio="Chess.")
    assert refused.status_code == 409
    problem = "You gave up 10 names lately. Take one of them back, or choose a new one after "
    assert problem + first in refused.text
    assert 'value="Grace"' in refused.text
    assert (store.users.read(ada.id).name, store.users.read(ada.id).bio) == ("Ada 9", "")
    for name in ("Ada", "ada 3", "ADA 3", "Ada 9"):  # her own
        assert save(adas_browser, name=name).status_code == 303
    assert save(adas_browser, name="Grace").status_code == 409
    accounts.reset(Authority(store, COMMAND), ada.id, "name")
    assert store.users.read(ada.id).name == f"player{ada.id}"
    assert save(adas_browser, name="Ada 4").status_code == 303
    assert save(adas_browser, name="Grace").status_code == 409
    accounts.change_profile(Authority(store, COMMAND), ada.id, name="Grace")
    clock.shift(82 * DAY)  # 92 since the first one was given up
    open_browser().sign_in("Grace")
    assert save(signed_in(open_browser(), "Grace"), name="Zoe").status_code == 303
