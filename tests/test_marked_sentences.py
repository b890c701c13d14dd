"""Every sentence on a page is marked: in a pseudo language, what is still in ASCII is not."""

import re
import runpy
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from forms import parse
from pseudo import WORD, unmarked
from test_rights_table import put_in

from identity.acts import notes
from identity.acts.actors import Actor, Authority
from identity.http.languages import ENGLISH_PAGES
from identity.site.settings import RESOURCES
from model.kinds import LOOKS, REPORTS, WEBHOOKS
from model.records import now_ms
from model.site_records import Look, Webhook
from pages.community.players import summarize

DEMO = Path(RESOURCES, "examples/demo")


def test_text_that_is_not_marked_is_found(pseudo, browser):
    """Negative control."""
    page = browser.get("/sign-in", headers={"Accept-Language": pseudo})
    assert page.headers["Content-Language"] == parse(page).html["lang"] == pseudo
    assert unmarked(page) == []
    assert len(unmarked(browser.get("/sign-in"))) > 10


@pytest.fixture
def app(make_app):
    return make_app(SIGN_UP="open", CLIENT_REGISTRATION="members", OPENID="on")


@pytest.fixture
def community(store, monkeypatch) -> dict[str, list[str]]:
    """The players and games of the demo with something of everything; ids by part of a rule."""
    monkeypatch.syspath_prepend(DEMO)
    demo = runpy.run_path(str(DEMO))
    users = {each.name: each for each in demo["add_players"](store)}
    games = demo["GAMES"]
    demo["Story"](store, [*users.values()]).add_all(
        {g.script: f"https://{g.id}.example/" for g in games}
    )
    monkeypatch.delitem(sys.modules, "community")
    monkeypatch.delitem(sys.modules, "story")
    warned = Authority(store, Actor(users["ada"].id))
    notes.warn(warned, users["chidi"].id, "Be kind.")
    announced = {"announcement": "Be kind.", "announced": 5, "announced_until": now_ms() + 10**8}
    store.records(LOOKS).put(Look("site", 5, **announced))
    store.records(WEBHOOKS).add(Webhook("chat", 5, "https://x.example/", "json", ["game"], "k"))
    flairs = {flair for each in users.values() for flair in store.users.read(each.id).flairs}
    texts = [*(each.bio for each in demo["COMMUNITY"]), *(game.description for game in games)]
    return {
        "names": [*users, *(game.name for game in games), *flairs, "Finn's chess club"],
        "game": games[-1].id,
        "invite": store.invites.issue(7, by=users["ada"].id, names_inviter=True, uses=5),
        "texts": {summarize(text) for text in texts},
        "password": demo["PASSWORD"],
        "<user_id>": [str(users[name].id) for name in ("chidi", "bruno", "hugo", "jun")] + ["999"],
        "<client_id>": [game.id for game in games] + ["0" * 16],
        "<report_id>": store.records(REPORTS).ids(),
    }


ASKING = "/oauth/authorize?response_type=code&client_id={game}"
MORE = (  # pages of what is in the query
    *("/?q=zzz", "/?order=name", "/players?q=zzz", "/players?q=a", "/language?next=/account"),
    *("/admin/players?list=suspended", "/admin/players?name=zzz", "/admin/log?act=Suspensions"),
    *("/admin/log?player=zzz", "/admin/log?day=2020-01-01", "/sign-up?invite=x"),
    *("/sign-up?invite={invite}", "/oauth/authorize?client_id=x", ASKING, f"{ASKING}&scope=email"),
    *(f"{ASKING}&redirect_uri=x", f"{ASKING}&response_type=token", "/oauth/logout?id_token_hint=x"),
    *("/device?user_code=BBBB-BBBB", "/welcome?next=/play/{game}", "/sign-in?next=/play/{game}"),
)


@pytest.mark.load
@pytest.mark.parametrize("visitor", ["", "chidi", "bruno", "ada"])
def test_every_page_of_the_demo_is_marked(pseudo, app, browser, community, visitor):
    """As a guest, a player, a moderator and an administrator."""
    browser.environ_base["HTTP_ACCEPT_LANGUAGE"] = pseudo
    if visitor:
        assert browser.sign_in(visitor, community["password"]).status_code == 303
    names = {word for name in community["names"] for word in WORD.findall(name)}
    found = {}
    for address in (*addresses(app, community), *(each.format(**community) for each in MORE)):
        page = browser.get(address)
        is_page = page.content_type.startswith("text/html") and page.status_code // 100 != 3
        if is_page and not address.startswith(ENGLISH_PAGES):
            texts = [each for each in unmarked(page, names) if each not in community["texts"]]
            found |= dict.fromkeys(texts, address)
    assert found == {}


def addresses(app, community) -> Iterator[str]:
    """Yield the address of each page, with all the ids that may stand in it."""
    for rule in app.url_map.iter_rules():
        parts = re.findall("<[^>]*>", rule.rule)
        if "GET" in rule.methods and rule.rule != "/sign-out" and {*parts} <= community.keys():
            for each in community[parts[0]] if parts else [""]:
                yield put_in(rule.rule, dict.fromkeys(parts, each))
