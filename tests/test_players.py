"""The list of players, and their public profiles: `pages.community.players`."""

import html
import time

import pytest
from conftest import PASSWORD
from forms import edit, led_to, parse, text_of

from identity.access.passwords import hash_password
from identity.site.formatting import DAY, HOUR, MINUTE, format_duration
from model.records import ADMINISTRATOR, MODERATOR, Grant, Suspension, User, now_ms
from pages.community.players import PLAYERS_READ, PLAYERS_SHOWN, link_addresses

UNFINDABLE = (
    *("x" * 10_000, "a" * 121, "ё" * 61, "%", "_", "*", "@", "ada@example.org", "ada＠example.org"),
    *("\0", "a\0", "\u200f", "\u202e", "\u202eada", "\ud800", "../1", "/", ".", "\u1160", "<b>x"),
)


@pytest.fixture
def game(store):
    client, _ = store.clients.register(
        "Space <b>Game</b>", [], None, game_url="https://space.example/", listed=True
    )
    return client


def start_playing(store, user: User, game=None, **fields) -> None:
    """Let a player play now, as a heartbeat of the play page does."""
    fields |= {"last_heartbeat": now_ms(), "last_game": game and game.id}
    edit(store.users, user.id, **fields)


def names_in(page) -> list[str]:
    assert page.status_code == 200
    return [each.text for each in parse(page).select(".people a bdi")]


def lines_in(page) -> dict[str, str]:
    """Return the line below each name on a page of the list."""
    rows = parse(page).select(".people li")
    return {each.bdi.text: " ".join(each.select_one(".small").text.split()) for each in rows}


def page_link(page, label: str) -> str | None:
    found = [each["href"] for each in parse(page).select(".pages a") if each.text == label]
    return found[0] if found else None


def signed_in(store, browser, name: str, mod_level: int = 0):
    """Sign in a new player with this level; return the browser."""
    store.users.register(name, f"{name}@example.org", hash_password(PASSWORD), mod_level)
    assert browser.sign_in(name).status_code == 303
    return browser


# -- the list -------------------------------------------------------------------------------------


def test_list_has_every_player_by_name(add_players, browser):
    page = browser.get("/players")
    assert "Nobody is in the list yet." in text_of(page) and "See all players" not in page.text
    add_players("bob", "Zoë", "ada", "Юлия", "健太", "Ben 2", "ben 10", "éva")
    names = names_in(browser.get("/players"))
    assert names == ["ada", "ben 10", "Ben 2", "bob", "Zoë", "éva", "Юлия", "健太"]
    page = parse(browser.get("/players"))
    assert page.select_one(".people img")["src"] == "/pfp/medium/3-1.webp"
    assert page.select_one(".people a")["href"] == "/users/3"
    assert not page.select(".pages, .empty")


def test_list_says_who_plays_and_who_does_what(store, add_players, browser, game, clock):
    now = now_ms()
    plays, lines = {"last_heartbeat": now, "last_game": game.id}, {}
    yesterday = {"mod_level": ADMINISTRATOR, "last_heartbeat": now - 26 * HOUR * 1000}
    worn = {"play_ms": 1, "equipped_flair": "<i>", "flairs": ["none", "<i>"]}
    for name, line, fields in (
        ("admin", "Last played yesterday", yesterday),
        ("carl", "Last played 2 hours ago", {"last_heartbeat": now - 2 * HOUR * 1000}),
        ("dora", "Not played yet", {"created": now, "last_heartbeat": now}),  # has just signed up
        ("erik", "Playing now", {"last_heartbeat": now, "mod_level": MODERATOR}),
        ("fred", "Playing Space <b>Game</b>", plays),
        ("gina", "Playing now", plays | {"hides_game": True}),
        ("hugo", "Played before", worn),
    ):
        add_players(name, **fields)
        lines[name] = line
    page = browser.get("/players")
    assert lines_in(page) == lines
    assert [each.text for each in parse(page).select(".badge")] == ["<i>"]
    roles = [each.text for each in parse(page).select(".people .soft")]
    assert roles == ["Administrator", "Moderator"]
    moderators = signed_in(store, browser, "warden", MODERATOR).get("/players")
    assert lines_in(moderators)["gina"] == "Playing Space <b>Game</b>"


def test_search_finds_a_part_of_a_name(add_players, browser):
    add_players("Ada", "adam", "Bada", "Straße", "Ödön", "ad astra", "the.real.pete")
    for search, found in {
        "ad": ["ad astra", "Ada", "adam", "Bada"],
        " ADA ": ["Ada", "adam", "Bada"],
        "Ａｄａ": ["Ada", "adam", "Bada"],
        "Pete": ["the.real.pete"],
        ".real": ["the.real.pete"],
        "strass": ["Straße"],
        "o\u0308d": ["Ödön"],
        " ": ["ad astra", "Ada", "adam", "Bada", "Straße", "the.real.pete", "Ödön"],
    }.items():
        assert names_in(browser.get("/players", query_string={"q": search})) == found


def test_search_without_result_says_so(add_players, browser, store, monkeypatch):
    add_players("ada")
    page = browser.get("/players?q=zz")
    assert "Nobody's name has “ zz ” in it. See all players" in text_of(page)
    assert (page.status_code, parse(page).select_one("#q")["value"]) == (200, "zz")
    for search in UNFINDABLE:
        page = browser.get("/players", query_string={"q": search.encode("utf-8", "surrogatepass")})
        assert (page.status_code, names_in(page)) == (200, []), search
        assert "<b>" not in page.text and "See all players" in page.text
    sentence = parse(browser.get(f"/players?q={'x' * 10_000}")).select_one(".empty p").text
    assert sentence == f"Nobody's name has “{'x' * 59}…” in it."
    monkeypatch.setattr(type(store.users), "by_name", None)  # what no name has reads nothing
    for search in ("x" * 10_000, "\0", "\u202e", "ada@example.org", "\ufffd\u200f"):
        assert browser.get("/players", query_string={"q": search}).status_code == 200


def test_links_between_pages_name_nobody_who_is_not_in_the_list(add_players, browser):
    names = [f"p{number:03} %&" for number in range(PLAYERS_SHOWN)]
    add_players(*names)
    add_players("p049 a", "p049 b", "pz", unlisted=True)
    page = browser.get("/players?q=p")
    assert (names_in(page), page_link(page, "Next")) == (names, None)
    add_players("q")
    page = browser.get("/players")
    assert page_link(page, "Next") == "/players?after=p049+%25%26"
    assert names_in(browser.get(page_link(page, "Next"))) == ["q"]


def test_page_starts_at_a_name_that_is_gone_or_never_was(store, add_players, browser):
    users = add_players("ada", "bob", "carl", "dora")
    store.users.delete(users[1].id)
    for query, names in {
        "after=bob": ["carl", "dora"],
        "after=BOB": ["carl", "dora"],
        "after=b": ["carl", "dora"],
        "after=": ["ada", "carl", "dora"],
        "after=%00": ["ada", "carl", "dora"],
        "after=%ff": ["ada", "carl", "dora"],
        "after=dora": [],
        # Too few for a page of their own.
        "before=bob": ["ada", "carl", "dora"],
        "before=zz": ["ada", "carl", "dora"],
        "before=0": ["ada", "carl", "dora"],
        "before=%00": ["ada", "carl", "dora"],
        "before=bob&after=carl": ["dora"],
        "q=c&after=zz": [],
        "q=c&before=a": ["carl"],
    }.items():
        assert names_in(browser.get(f"/players?{query}")) == names, query
    page = text_of(browser.get("/players?after=dora"))
    assert "No more players come after this page. See all players" in page


def test_going_back_fills_the_first_page(add_players, browser):
    """Somebody new before a bookmarked page does not make a page of one."""
    names = [f"p{number:03}" for number in range(PLAYERS_SHOWN + 5)]
    add_players(*names)
    link = page_link(browser.get(page_link(browser.get("/players"), "Next")), "Previous")
    add_players("aa")
    page = browser.get(link)
    assert names_in(page) == names[:PLAYERS_SHOWN]
    first = browser.get(page_link(page, "Previous"))
    assert names_in(first) == ["aa", *names[: PLAYERS_SHOWN - 1]]
    assert page_link(first, "Previous") is None


def test_who_sees_an_unlisted_player(store, add_players, adas_browser, ada, open_browser):
    add_players("hidden", unlisted=True)
    edit(store.users, ada.id, unlisted=True)
    moderator = signed_in(store, open_browser(), "warden", MODERATOR)
    for browser, shown in (
        (open_browser(), ["warden"]),
        (adas_browser, ["Ada", "warden"]),
        (moderator, ["Ada", "hidden", "warden"]),
    ):
        page = browser.get("/players")
        assert names_in(page) == shown
        marked = parse(page).select(".people p:-soup-contains('Not in the list') a")
        assert [each.text for each in marked] == shown[:-1]
    assert "hidden" not in open_browser().get("/players?q=hid").text.replace('"hid"', "")
    assert open_browser().get("/players/hidden").status_code == 303


def test_pages_of_unlisted_players_read_few(store, add_players, browser, monkeypatch):
    add_players("aa")
    add_players(*(f"b{number:03}" for number in range(PLAYERS_READ + 10)), unlisted=True)
    add_players("cc")
    read, by_name = [], store.users.by_name

    def counted(*arguments, **options):
        read.extend(found := by_name(*arguments, **options))
        return found

    monkeypatch.setattr(store.users, "by_name", counted)
    first = browser.get("/players")
    assert (names_in(first), len(read) <= PLAYERS_READ + 4) == (["aa"], True)
    second = browser.get(page_link(first, "Next"))
    assert (names_in(second), page_link(second, "Next")) == (["cc"], None)
    empty = browser.get("/players?q=b")
    assert "The players on this page are not in the list." in text_of(empty)
    assert names_in(browser.get(page_link(empty, "Next"))) == []
    # Back from the end, in two steps.
    back = browser.get(page_link(second, "Previous"))
    assert (names_in(back), page_link(back, "Next")) == ([], "/players?after=cc")
    assert names_in(browser.get(page_link(back, "Previous"))) == ["aa"]


def test_list_for_members_sends_guests_to_sign_in(make_app, open_browser, ada):
    browser = open_browser()
    browser.application = make_app(PLAYERS="members")
    for path in ("/players?q=ad&after=a", "/players", "/players/Ada", "/players/nobody"):
        answer = browser.get(path)
        assert (answer.status_code, answer.location[:14]) == (303, "/sign-in?next=")
    assert browser.get("/users/1").status_code == 200
    browser.sign_in()
    assert names_in(browser.get("/players?q=ad")) == ["Ada"]
    assert browser.get("/players/ada").location == "/users/1"


def test_name_leads_to_the_profile_of_who_has_it_now(store, add_players, anyone):
    ada, number = add_players("Ada Ö", "42")
    for name in ("Ada Ö", "ada%20ö", "ADA%20O\u0308", "%20Ａda ö "):
        assert led_to(anyone.get(f"/players/{name}")) == f"/users/{ada.id}"
    assert anyone.get("/players/42").location == f"/users/{number.id}"
    store.users.rename(ada.id, "Lovelace")
    assert anyone.get("/players/lovelace").location == f"/users/{ada.id}"
    for name in ("Ada Ö", "1", "x" * 5000, "%00", "%ff", "%E2%80%AEada", f"{ada.id}@example.org"):
        page = anyone.get(f"/players/{name}")
        assert (page.status_code, "No player has this name." in page.text) == (404, True)


# -- the public profile ---------------------------------------------------------------------------


def test_profile_is_public_and_shows_text_as_it_is(store, browser, ada):
    with store.users.edit(ada.id) as user:
        user.bio = "Chess,\nmostly. </p><script>x</script> {{ 7*7 }}"
        user.flairs.append("<i>Champion</i>")
        user.equipped_flair = "<i>Champion</i>"
        user.play_ms = (3 * HOUR + 20 * MINUTE + 59) * 1000
        user.last_heartbeat -= 5 * DAY * 1000
    page = browser.get("/users/1")
    assert page.status_code == 200
    since = time.strftime("%d %B %Y", time.gmtime(ada.created / 1000)).lstrip("0")
    shown = (
        f"Ada <i>Champion</i> Played 3 hours Last played 5 days ago Here since {since} Player id 1"
    )
    assert shown in text_of(page) and user.bio in html.unescape(page.text)
    assert "<i>" not in page.text and "<script>x" not in page.text
    assert f'src="/pfp/large/1-{ada.pfp_timestamp}.webp"' in page.text
    assert "ada@example.org" not in page.text
    assert "<form" not in page.text.partition("<main")[2]


def test_profile_shows_how_long_and_when_a_player_played(store, browser, ada, clock):
    now = now_ms()
    for play_ms, last_heartbeat, shown in (
        (0, ada.created, "Played not yet Last played not yet"),  # the heartbeat of the sign-up
        (0, 0, "Played not yet Last played not yet"),  # an imported account
        (1, 0, "Played less than a minute Last played unknown"),
        (0, now + 1, "Played less than a minute Last played now"),
        (0, now + DAY * 1000, "Last played now"),  # the clock was set back
        (0, now - 3 * MINUTE * 1000, "Last played 3 minutes ago"),
        (0, now - DAY * 1000, "Last played yesterday"),
        (0, now - 2 * DAY * 1000, "Last played 2 days ago"),
        (0, 1_700_000_000_000, "Last played in November 2023"),
    ):
        edit(store.users, ada.id, play_ms=play_ms, last_heartbeat=last_heartbeat)
        assert shown in text_of(browser.get("/users/1"))
    for seconds, words in (
        (0, "less than a minute"),
        (59, "less than a minute"),
        (60, "1 minute"),
        (59.5 * MINUTE - 1, "59 minutes"),
        (59.5 * MINUTE, "1 hour"),
        (47.5 * HOUR - 1, "47 hours"),
        (47.5 * HOUR, "2 days"),
    ):
        assert format_duration(int(seconds)) == words


def test_profile_names_the_game_that_is_played_now(store, adas_browser, bob, game, open_browser):
    moderators = signed_in(store, open_browser(), "warden", MODERATOR)

    def shown() -> str:
        return text_of(adas_browser.get(f"/users/{bob.id}"))

    start_playing(store, bob, game)
    assert "Last played now: Space <b>Game</b> Here since" in shown()
    assert f'href="/games/{game.id}"' in adas_browser.get(f"/users/{bob.id}").text
    start_playing(store, bob, game, hides_game=True)
    assert "Last played now Here since" in shown()
    with store.users.edit(bob.id) as user:
        user.grants[game.id] = Grant("a", ["userinfo"], 1, now_ms() - 2 * MINUTE * 1000)
    assert "Space" not in shown()  # nor among those that were played recently
    page = text_of(moderators.get(f"/users/{bob.id}"))
    assert "Last played now: Space <b>Game</b> Here since" in page
    assert "Played recently Space <b>Game</b> now" in page
    start_playing(store, bob, hides_game=False)
    assert "Last played now Here since" in shown()


def test_profile_shows_games_that_were_played_recently(store, browser, ada, game):
    unseen, _ = store.clients.register(
        "Unseen", [], None, game_url="https://unseen.example/", listed=True
    )
    assert "Played recently" not in browser.get("/users/1").text
    now = now_ms()
    with store.users.edit(ada.id) as user:
        user.grants[game.id] = Grant("a", ["userinfo"], now, now - 3 * DAY * 1000)
        user.grants[unseen.id] = Grant("b", ["userinfo"], now, now, hidden=True)
    page = browser.get("/users/1")
    assert "Played recently Space <b>Game</b> 3 days ago" in text_of(page)
    assert "Unseen" not in page.text
    assert parse(page).select_one(".played a")["href"] == f"/games/{game.id}"


def test_flairs_stand_on_a_shelf_with_the_worn_one_first(store, browser, ada):
    assert "Flairs" not in browser.get("/users/1").text
    with store.users.edit(ada.id) as user:
        user.flairs += [f"flair {number}" for number in range(200)]
        user.equipped_flair = "flair 150"
    page = parse(browser.get("/users/1"))
    first, more = page.select(".shelf")
    texts = [each.text for each in first.select("li")]
    assert texts[:3] == ["flair 150, worn", "flair 0", "flair 1"] and len(texts) == 40
    assert [each.text for each in page.select(".worn")] == texts[:1]
    assert len(more.select("li")) == 160
    assert page.select_one("details:has(.shelf) summary").text == "160 more flairs"


def test_role_and_suspension_are_text_and_no_badge(store, browser, ada):
    suspension = Suspension("command", reason="Spam")
    edit(store.users, ada.id, mod_level=MODERATOR, suspension=suspension)
    page = parse(browser.get("/users/1"))
    assert not page.select(".badge")
    assert page.select_one(".soft").text == "Moderator"
    assert "This player is suspended." in page.text and "Spam" not in page.text


def test_profile_shows_a_notice_once_and_offers_editing_or_reporting(adas_browser, bob, ada):
    with adas_browser.session_transaction() as session:
        session["notice"] = "Report sent."
    assert ["Report sent." in adas_browser.get("/users/2").text for _ in range(2)] == [True, False]
    own, other = adas_browser.get("/users/1").text, adas_browser.get(f"/users/{bob.id}").text
    assert "Edit profile" in own and "/users/1/report" not in own
    assert "Edit profile" not in other and f'href="/users/{bob.id}/report"' in other
    adas_browser.post("/sign-out")
    guests = adas_browser.get("/users/1").text
    assert "Edit profile" not in guests and 'href="/users/1/report"' in guests


# -- addresses in a player's text -----------------------------------------------------------------

LINKED = {  # a text, and the addresses in it that are links
    "see https://example.org/a_b?c=d&e=f#g": ["https://example.org/a_b?c=d&e=f#g"],
    "HTTP://EXAMPLE.ORG": ["HTTP://EXAMPLE.ORG"],
    "(https://b.example/x), and <http://a.example>.": ["https://b.example/x", "http://a.example"],
    "https://example.org/wiki/A_(b)": ["https://example.org/wiki/A_(b)"],
    "“https://example.org/”…": ["https://example.org/"],
    "https://example.org/!?.,;:'*": ["https://example.org/"],
    "http://127.0.0.1:8000/ http://[::1]/": ["http://127.0.0.1:8000/", "http://[::1]/"],
    "https://xn--bcher-kva.example/": ["https://xn--bcher-kva.example/"],
    "one\nhttps://a.example\u2028two": ["https://a.example"],
    "https://example.org/%D7%A9": ["https://example.org/%D7%A9"],
    'https://a.example/"onmouseover="x': ["https://a.example/"],
    "https://a.example/'onmouseover='x": ["https://a.example/'onmouseover='x"],
    "https://a.example/&quot;": ["https://a.example/&quot"],
}
NOT_LINKED = (
    *("javascript:alert(1)", "data:text/html,x", "ftp://a.example", "//a.example", "a.example"),
    *("xhttps://a.example", "https://", "https://.", "https://-a", "http:/a.example"),
    *("https://bank.example@evil.example/", "https://bank.example:x@evil.example/"),
    *("https://bank.example\\@evil.example/", "https://bank.example\u2215.evil.example/"),
    *("https://bаnk.example/", "https://bankа.example/"),  # with a Cyrillic letter
    *("https://bank.example\uff0fevil.example/", "https://bücher.example/"),
    *("https://example.org/שלום", "https://example.org/\u202egpj.exe", "https://a.example/\u200b"),
    *("https://a.example/\x00x", "https://a.example:123456/", "https://a.example/{x}|^`"),
    "https://a.example,https://b.example",
)


def test_addresses_alone_are_links_and_hostile_texts_take_no_time():
    for text, addresses in LINKED.items():
        shown = parse(replace_page(text))
        links = shown.find_all("a")
        assert [each["href"] for each in links] == addresses, text
        assert [each.text for each in links] == addresses
        assert shown.text == text
        for each in links:
            assert each.attrs.keys() == {"href", "rel", "dir"}
            assert each["rel"] == ["nofollow", "ugc", "noopener"]
    for text in NOT_LINKED:
        assert link_addresses(text) == html.escape(text, quote=False), text
    for text in ("<a href=https://a.example>", "<script>x</script>", "<b>", "&lt;"):
        assert "<b" not in str(link_addresses(text)) and "<s" not in str(link_addresses(text))
    for text in (
        *("https://" * 125, "https://a" + "." * 990, "https://a/" + ")" * 990, "h" * 1000),
        *("https://a" + "-" * 990, "https://[" + ":" * 990, "https://a " * 100, "." * 1000),
        "https://a/" + "(" * 500 + ")" * 490,
    ):
        start = time.thread_time()
        link_addresses(text)
        assert time.thread_time() - start < 0.05, text[:20]


def replace_page(text: str):
    return type("Page", (), {"text": str(link_addresses(text))})
