"""Lists that are shown in pages: the links between them, and places that are none."""

import itertools
import json
import re
from collections.abc import Callable, Iterable
from typing import NamedTuple
from urllib.parse import quote

import pytest
from forms import parse

from identity.acts import reports as report_acts
from identity.acts.actors import Actor, Authority
from model.kind import DAY_MS, HOUR_MS
from model.records import ADMINISTRATOR, Suspension, now_ms

FIRST, LAST = "0" * 15 + "-00000000", "9" * 15 + "-ffffffff"  # before and after each id
PLACES = ("", "x", "9" * 99, "../1", "\u0663", "0498000-1", "\0", "z" * 24, FIRST, LAST)


def add_games(store, names: list[str], listed: bool) -> None:
    for name in names:
        fields = {"game_url": f"https://{name}.example/", "created": int(name[1:])}
        store.clients.register(name, [], None, listed=listed, **fields)


def add_app(store, name: str) -> None:
    used = now_ms() - int(name[1:]) * HOUR_MS
    store.clients.register(name, ["https://a.example/"], None, used=used)


def add_line(store, name: str) -> None:
    store.audit.add_line(json.dumps({"time": now_ms(), "act": name, "by": "command"}).encode())


def add_report(store, name: str) -> None:
    subject = store.users.register(f"Subject {name[1:]}", "", "")
    report_acts.report(
        Authority(store, Actor(store.users.register(name, "", "").id)), subject, "spam", ""
    )


class List(NamedTuple):
    """A list: its address, a selector of its rows, what adds one, and its order."""

    address: str
    rows: str
    size_name: str  # the constant that says how many are on a page
    add: Callable | None = None  # without: players at once
    order: Callable[[list[str]], Iterable[str]] = iter
    last: str | None = None  # after this place, where nothing is, comes the first page
    listed: bool | None = None  # of games


def players(chosen: str, order: Callable = iter) -> List:
    size_name = "admin.players.PLAYERS_SHOWN"
    return List(f"/admin/players?list={chosen}&name=p", "tbody th bdi", size_name, order=order)


GAMES = List("/?", ".game h3 bdi", "community.games.GAMES_SHOWN", None, reversed, "z" * 24, True)
LISTS = {
    "players": List("/players?q=p", ".people a bdi", "community.players.PLAYERS_SHOWN"),
    **{f"players: {each}": players(each) for each in ("name", "suspended", "ending")},
    **{f"players: {each}": players(each, reversed) for each in ("newest", "played")},
    "apps": List("/admin/apps?", "tbody th > a", "admin.apps.APPS_SHOWN", add_app),
    "games": GAMES._replace(listed=True),
    "games by name": GAMES._replace(address="/?order=name", order=iter, listed=True),
    "games played now": GAMES._replace(address="/?order=played", listed=True),
    "games with a p": GAMES._replace(address="/?q=P0", listed=True),
    "games that are not listed": GAMES._replace(listed=False),
    "invitations": List(
        "/admin/invitations?",
        ".rows li > div",
        "admin.invitations.INVITES_SHOWN",
        lambda store, name: store.invites.issue(7, note=name),
        order=reversed,
        last=FIRST,
    ),
    "log": List("/admin/log?", ".log p", "admin.log.LINES_SHOWN", add_line, reversed),
    "reports": List("/admin?", ".rows li", "admin.overview.REPORTS_SHOWN", add_report, last=LAST),
}


def add_things(paged: List, names: list[str], store, add_players, clock) -> None:
    now = now_ms()
    if paged.listed is not None:
        add_games(store, names, paged.listed)
    elif paged.add is None:
        suspension = Suspension("command", now, "Spam", now + DAY_MS)
        add_players(*names, last_heartbeat=now - 1000, suspension=suspension)
    for name in names if paged.add else ():
        clock.shift(1)  # what is of one millisecond has no order
        paged.add(store, name)


@pytest.mark.parametrize("paged", LISTS.values(), ids=LISTS)
def test_pages_have_everything_once_and_in_order(
    enter, store, add_players, clock, monkeypatch, paged
):
    size = 9
    monkeypatch.setattr(f"pages.{paged.size_name}", size)
    boss = enter("Boss", ADMINISTRATOR)

    nav = "nav" if paged.listed is not False else 'nav[aria-label$="not listed"]'

    def visit(address: str, words: str = "") -> tuple[list[str], str | None]:
        """Return the names on a page, and where its link with these words leads."""
        answer = boss.get(address, follow_redirects=True)
        assert answer.status_code == 200, address
        rows = (re.search(r"\bp\d{3}", each.text) for each in parse(answer).select(paged.rows))
        links = [a["href"] for a in parse(answer).select(f"{nav} a") if a.text in words.split("|")]
        return [each[0] for each in rows if each], links[0] if links else None

    def follow(address: str | None, words: str) -> dict[str, list[str]]:
        """Return what the pages show to which the links lead; the last may be empty."""
        found = {}
        while address:
            found[address], address = visit(address, words)
        return {address: names for address, names in found.items() if names}

    names = [f"p{number:03}" for number in range(2 * size + 7)]
    add_things(paged, names[:size], store, add_players, clock)
    assert len(follow(paged.address, "Next|Older")) == 1
    add_things(paged, names[size:], store, add_players, clock)
    pages = follow(paged.address, "Next|Older")
    shown = [*pages.values()]
    expected = list(paged.order(names))
    assert [len(each) for each in shown] == [size, size, 7]
    assert sum(shown, []) == expected
    back = follow([*pages][-1], "Previous|Newer")
    assert [*back.values()] == shown[::-1]
    unlisted = "unlisted_" if paged.listed is False else ""
    first = LAST if paged.order is reversed else FIRST
    for way, place in itertools.product(("after", "before"), PLACES):
        address = f"{paged.address}&{unlisted}{way}={quote(place)}"
        if (way, place) in (("before", first), ("after", paged.last)):
            assert visit(address)[0] == shown[0]
        else:
            assert boss.get(address, follow_redirects=True).status_code == 200, address
