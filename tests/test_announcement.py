"""The announcement: who reads it, until when, and the press that hides it."""

import json
from unittest.mock import Mock

import fixtures
import pytest
from forms import parse, problems_of, text_of

from identity.messages.webhook import content_of
from identity.site.look import read_look
from model.errors import ChangedBefore, StorageFull
from model.kind import DAY_MS
from model.kinds import OUTBOX, WEBHOOKS
from model.site_records import Message, Webhook
from pages.kit.forms import NOT_SAVED
from pages.kit.proof import PROOF_AGE

PATH = "/admin/announcement"
TEXT = "Servers move on <Friday>.\nMore: https://example.org/news?a=1&b=2."
boss = fixtures.boss


def announce(browser, store, text: str = TEXT, **fields):
    form = {"text": text, "days": "3", "seen": read_look(store).changed}
    return browser.post(PATH, data=form | fields)


def shown(browser):
    return parse(browser.get("/")).select_one(".announcement")


def test_members_read_it_until_it_ends(store, boss, adas_browser, anyone, clock, subtests):
    assert shown(adas_browser) is None
    assert announce(boss, store).status_code == 303
    box = shown(adas_browser)
    assert box.p.text == TEXT
    assert (box.a["href"], box.a.text) == ("https://example.org/news?a=1&b=2",) * 2
    assert shown(anyone) is None
    assert TEXT in parse(boss.get(PATH)).select_one(".quote").text
    clock.shift(3 * DAY_MS / 1000 + 1)
    assert shown(adas_browser) is None and "Nothing is announced." in text_of(boss.get(PATH))


def test_it_is_hidden_from_one_player_until_the_next_one(store, boss, adas_browser):
    announce(boss, store)
    form = shown(adas_browser).form
    fields = {each["name"]: each["value"] for each in form.select("input")}
    assert adas_browser.post(form["action"], data=fields).location == "/"
    assert shown(adas_browser) is None and shown(boss) is not None
    announce(boss, store, "Again.")
    assert shown(adas_browser).p.text == "Again."
    adas_browser.post(form["action"], data=fields)  # a press on an older page
    assert shown(adas_browser) is not None
    boss.post(f"{PATH}/end", data={"seen": read_look(store).changed})
    assert shown(adas_browser) is shown(boss) is None
    acts = [line["act"] for line in store.audit.read() if line["act"].startswith("announcement")]
    assert acts == ["announcement", "announcement", "announcement end"]


def test_full_disk_is_said_on_the_page_that_hides_it(store, adas_browser, monkeypatch):
    monkeypatch.setattr(type(store.users), "edit", Mock(side_effect=StorageFull))
    page = adas_browser.post("/announcement/dismiss", data={"seen": "5"})
    assert (page.status_code, problems_of(page)) == (507, {"form": NOT_SAVED[507]})


def test_another_administrators_announcement_is_not_replaced_unseen(store, boss, clock):
    announce(boss, store)
    boss.get(PATH)  # shows the notice
    page = announce(boss, store, "Other.", seen="0")
    assert (page.status_code, problems_of(page)["form"]) == (409, ChangedBefore.problem)
    assert parse(page).textarea.text == "Other."
    clock.shift(PROOF_AGE + 1)
    assert parse(announce(boss, store, "Other.")).select_one("main input[type=password]")
    assert read_look(store).announcement == TEXT


@pytest.mark.parametrize("is_chosen", [True, False])
def test_chat_gets_it_if_it_is_told_of_announcements(store, boss, is_chosen):
    assert "chat" not in parse(boss.get(PATH)).select_one("main form").text
    webhook = Webhook("chat", 1, "https://x.example/", "discord", ["announcement"] * is_chosen)
    store.records(WEBHOOKS).add(webhook)
    words = "It is sent to the chat, too." if is_chosen else "The chat does not get it."
    assert words in text_of(boss.get(PATH))
    announce(boss, store)
    sent = [store.records(OUTBOX).read(each) for each in store.records(OUTBOX).ids()]
    assert [json.loads(each.body)["text"] for each in sent] == [TEXT] * is_chosen
    for event, link in (("announcement", "https://example.org"), ("player", r"https\://")):
        message = Message("1", "chat", event, json.dumps({"text": TEXT, "path": "/"}), 1, 2)
        assert (
            link
            in json.loads(content_of(webhook, "https://s.example", message, "en")[0])["content"]
        )
