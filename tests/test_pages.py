"""All responses: headers, errors, a full disk, hosts, proxies and cross-site posts."""

import functools
import io
import re
from collections.abc import Callable, Iterable

import pytest
from bs4 import BeautifulSoup
from conftest import FOREIGN_LINK, Browser
from flask import request
from forms import edit, parse
from PIL import Image
from werkzeug.test import TestResponse

from identity.http.limits import ATTEMPTS_PER_NAME, client_address
from serving.access_log import access_line

PAGE_LIMIT = 64 * 1024  # bytes of a form


# -- link previews --------------------------------------------------------------------------------


def test_link_to_a_profile_or_game_is_previewed(make_app, store, ada, subtests):
    """The values are public, and the addresses are those of the base URL, never of the Host."""
    edit(store.users, ada.id, bio='  "Chess",\nmostly.  ' + "x" * 300)
    game, _ = store.clients.register(
        "Pong", [], None, game_url="https://pong.example/", description="For 2"
    )
    site = "https://id.example.org"
    anyone = make_app(BASE_URL=site, SITE_NAME="Our games", SIGN_UP="open").test_client()
    touch_icon = f"{site}/static/touch-icon.png"
    general = "One account for all our games, with your name, picture and play time."
    welcome = "One account for all our games. It keeps your name, picture and play time."
    cover = f"{site}/covers/large/{game.id}.webp"
    bio, picture = f'"Chess", mostly. {"x" * 183}', f"{site}/pfp/large/{ada.picture_file}"
    expected = {
        "/": ("Our games", welcome, touch_icon, f"{site}/"),
        f"/games/{game.id}": ("Pong", "For 2", cover, f"{site}/games/{game.id}"),
        f"/play/{game.id}": ("Pong", "For 2", cover, f"{site}/games/{game.id}"),
        "/users/1": ("Ada", bio, picture, f"{site}/users/1"),
        "/sign-up?invite=secret": ("Our games", general, touch_icon, None),
        "/recover": ("Our games", general, touch_icon, None),
    }
    for address, values in expected.items():
        with subtests.test(address):
            soup = parse(anyone.get(address, base_url=site))
            tags = {each["property"]: each["content"] for each in soup.select("[property^=og]")}
            names = ("og:title", "og:description", "og:image", "og:url")
            assert tuple(map(tags.get, names)) == values
            canonical = soup.select_one("link[rel=canonical]")
            assert (canonical and canonical["href"]) == values[-1]
            check_picture_of_preview(soup, anyone.get(values[2], base_url=site))
    assert anyone.get("/static/touch-icon.png", base_url=site).content_type == "image/png"


def check_picture_of_preview(page: BeautifulSoup, answer: TestResponse) -> None:
    """Check the size of the picture that chat programs show, its text, and how they lay it out."""
    tags = {each["property"]: each["content"] for each in page.select("[property^=og]")}
    width, height = Image.open(io.BytesIO(answer.data)).size
    size = tags["og:image:width"], tags["og:image:height"]
    assert (answer.status_code, size) == (200, (str(width), str(height)))
    assert tags["og:image:alt"] == tags["og:title"]
    card = page.select_one("[name='twitter:card']")["content"]
    assert card == ("summary_large_image" if width > height else "summary")


def is_listed(answer: TestResponse) -> bool:
    """Return True if search engines may list a page."""
    robots = parse(answer).select("[name=robots]")
    assert [each["content"] for each in robots] in ([], ["noindex"])
    return not robots


def test_search_engines_list_public_pages_only(make_app, store, ada, bob, adas_browser, subtests):
    """Profiles if the setting says so, and never those of players who left the list."""
    edit(store.users, bob.id, unlisted=True)
    add_game = functools.partial(store.clients.register, redirect_uris=[], owner_id=None)
    new, _ = add_game("Pong", game_url="https://pong.example/")
    game, _ = add_game("Chess", game_url="https://chess.example/", listed=True)
    profile = f"/users/{ada.id}"
    by_setting = {"off": {"/players", profile}, "on": set()}
    for setting, hidden in by_setting.items():
        client = make_app(INDEX_PROFILES=setting).test_client()
        paths = ["/", f"/games/{game.id}", "/developer/docs", "/developer/docs/games"]
        never = ["/sign-in", "/sign-up", "/nowhere", f"/users/{bob.id}", f"/games/{new.id}"]
        for path in [*paths, *never, "/players", profile]:
            with subtests.test(path, setting=setting):
                assert is_listed(client.get(path)) == (path not in {*never, *hidden})
    for path in ("/account", "/account/security"):
        assert not is_listed(adas_browser.get(path))


def test_every_page_has_the_name_of_the_site_and_the_about_link(make_app, ada):
    app = make_app(SITE_NAME="Our games")
    browser = Browser(app, app.response_class)
    for _ in ("guest", "player"):
        titles = [parse(browser.get(path)).title.text for path in ("/", "/developer/docs")]
        assert titles == ["Our games", "For developers - Our games"]
        browser.sign_in()
    about = "https://example.org/about?a=1&b=2"
    client = make_app(SITE_NAME="Ada & <Friends>", ABOUT_URL=about).test_client()
    for path in ("/", "/sign-in", "/nowhere"):
        page = client.get(path)
        assert "Ada &amp; &lt;Friends&gt;" in page.text and "<Friends>" not in page.text
        assert parse(page).select(f'[href="{about}"]')
    assert "Privacy" not in make_app().test_client().get("/").text


# -- headers --------------------------------------------------------------------------------------


def test_every_page_is_a_document_without_inline_script(browser, ada, program, subtests):
    """tests/attacks/test_all_routes.py tests the headers that all responses have."""
    pages = {
        "home": browser.get("/"),
        "wrong password": browser.sign_in(password="wrong"),
        "not found": browser.get("/nowhere"),
        "wrong method": browser.put("/sign-in"),
        "too large": browser.post("/sign-in", data={"name": "x" * PAGE_LIMIT}),
        "cross-site": browser.post("/sign-out", headers=FOREIGN_LINK),
        "foreign host": browser.get("/", base_url="http://evil.example"),
    }
    browser.sign_in()
    pages |= {path: browser.get(path) for path in ("/", "/account", program.link())}
    statuses = sorted({page.status_code for page in pages.values()})
    assert statuses == [200, 400, 403, 404, 405, 413]
    for name, page in pages.items():
        with subtests.test(name):
            policy = page.headers["Content-Security-Policy"]
            directives = {each: values for each, *values in map(str.split, policy.split(";"))}
            assert directives["base-uri"] == ["'none'"]
            assert directives.pop("form-action")[0] == "'self'"
            assert set(sum(directives.values(), [])) == {"'self'", "'none'"}
            inline = r"<style|<script(?! src=)|\sstyle=|\son[a-z]+=|javascript:"
            assert not re.search(inline, page.text)
            assert page.text.startswith("<!doctype html>")
            assert page.text.count("<h1>") == page.text.count("<title>") == 1


def test_games_of_any_origin_import_the_module(anyone):
    """Also on pages that load only what allows it (Cross-Origin-Embedder-Policy)."""
    address = "/static/v1/identity.js"
    answer = anyone.get(address, headers={"Origin": "https://game.example"})
    assert (answer.status_code, answer.mimetype) == (200, "text/javascript")
    assert answer.headers["Access-Control-Allow-Origin"] == "*"
    assert answer.headers["Cross-Origin-Resource-Policy"] == "cross-origin"
    assert answer.headers["Cache-Control"] == "public, max-age=3600"
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    again = anyone.get(address, headers={"If-None-Match": answer.headers["ETag"]})
    assert (again.status_code, again.data) == (304, b"")
    module = answer.text
    assert module.count("\n") < 200
    assert "localStorage" not in module  # which every script of the origin can read
    assert not re.search(r"^\s*import ", module, re.MULTILINE)


# -- errors ---------------------------------------------------------------------------------------


def test_api_errors_are_json(anyone, subtests):
    for method, path, status in (
        ("POST", "/api/nothing", 404),
        ("OPTIONS", "/api/nothing", 404),
        ("GET", "/api/oauth/token/", 404),
        ("GET", "/api/oauth//whois", 404),
        ("GET", "/api/\0", 404),
        ("GET", "/api/oauth/token", 405),
        ("GET", "/api/users/info", 400),
    ):
        with subtests.test(method, path=path):
            answer = anyone.open(path, method=method)  # CheckedClient checks the body's format
            assert answer.status_code == status
            assert ("/openapi.json" in answer.json["message"]) == (status == 404)
            assert ("Allow" in answer.headers) == (status == 405)


def test_error_page_shows_the_session_unless_it_is_5xx(app, browser, ada, faults):
    def broken() -> None:
        raise RuntimeError("the secret of the inside")

    app.add_url_rule("/broken", view_func=broken)
    app.add_url_rule("/api/broken", "broken call", view_func=broken)
    browser.sign_in()
    for path, status, shown in (("/nowhere", 404, True), ("/broken", 500, False)):
        page = browser.get(path)
        assert (page.status_code, "Sign out" in page.text) == (status, shown)
        assert "inside" not in page.text
    answer = browser.get("/api/broken")
    assert (answer.status_code, "inside" in answer.text) == (500, False)
    faults.damage_user(ada.id)
    for path, status in (("/nowhere", 404), ("/account", 503)):
        page = browser.get(path)
        assert (page.status_code, "Sign out" in page.text) == (status, False)


def test_form_over_64_kib_is_413_and_query_of_raw_bytes_400(adas_browser):
    for path in ("/sign-in", "/oauth/authorize", "/sign-out"):
        assert adas_browser.post(path, data={"request": "x" * PAGE_LIMIT}).status_code == 413
    for path in ("/", "/oauth/authorize", "/api/users/info"):
        overrides = {"PATH_INFO": path, "QUERY_STRING": "next=/\xff"}
        assert adas_browser.open(environ_overrides=overrides).status_code == 400


# -- hosts ----------------------------------------------------------------------------------------
LOOPBACK_HOSTS = ["localhost", "127.0.0.1", "[::1]", "localhost:8000", "127.0.0.1:9", "LocalHost"]
FOREIGN_HOSTS = [
    *("evil.example", "localhost.evil.example", "localhost.", "127.0.0.2", "", "0.0.0.0", "127.1"),
    *("localhost@evil.example", "evil.example\\localhost", "localhost evil.example", "[::2]"),
    *("::1", "localhost:x", "localhost:", ":8000", "localhost/evil.example", "é"),
    *("..", "a..b", "a" * 70, "a" * 300),  # invalid host names: Werkzeug has no URL
]


def test_host_is_that_of_the_base_url_or_any_loopback_host(make_app, ada, subtests):
    own = ["id.example.org", "ID.example.org:443"]
    public_foreign = ["www.id.example.org", "example.org", *LOOPBACK_HOSTS]
    for base_url, accepted, refused in (
        ("http://localhost", LOOPBACK_HOSTS, FOREIGN_HOSTS),
        ("https://id.example.org", own, [*FOREIGN_HOSTS, *public_foreign]),
    ):
        client = make_app(BASE_URL=base_url).test_client()
        for host in accepted + refused:
            for path in ("/", "/api/users/info?id=1"):
                with subtests.test(host, path=path):
                    answer = client.get(path, environ_overrides={"HTTP_HOST": host})
                    assert answer.status_code == (200 if host in accepted else 400)


@pytest.mark.parametrize("proxies", ["0", "1"])
def test_forwarded_host_headers_are_ignored(make_app, proxies):
    client = make_app(PROXIES=proxies).test_client()
    for header in ("X-Forwarded-Host", "X-Host", "Forwarded", "X-Original-Host"):
        value = "host=evil.example" if header == "Forwarded" else "evil.example"
        assert client.get("/", headers={header: value}).status_code == 200
        foreign = {"Host": "evil.example", header: "localhost"}
        assert client.get("/", headers=foreign).status_code == 400


def test_internal_redirects_have_no_host(browser, ada, program):
    for answer in (browser.get(program.link()), browser.sign_in(), browser.post("/sign-out")):
        assert answer.status_code == 303
        assert re.match("/[a-z-]*", answer.location)


# -- proxies --------------------------------------------------------------------------------------


def test_client_address_is_from_trusted_proxies_only(make_app, subtests):
    public = {"BASE_URL": "https://id.example.org"}  # trusts one proxy by default
    for settings, forwarded_for, address in (
        ({"PROXIES": "0"}, "198.51.100.7", "192.0.2.1"),
        ({"PROXIES": "1"}, None, "192.0.2.1"),
        (public, "203.0.113.9, 198.51.100.7", "198.51.100.7"),  # the left address is forged
        ({"PROXIES": "2"}, "1.1.1.1, 203.0.113.9, 198.51.100.7", "203.0.113.9"),
        ({"PROXIES": "2"}, "198.51.100.7", "192.0.2.1"),  # did not pass both proxies
        ({"PROXIES": "1"}, "2001:db8::7", "2001:db8::"),
        ({"PROXIES": "1"}, "::ffff:198.51.100.7", "198.51.100.7"),
        ({"PROXIES": "1"}, "<script>", "unknown"),
        # Of Azure and some load balancers, with the port and in brackets (RFC 7239 6).
        ({"PROXIES": "1"}, "203.0.113.7:51000", "203.0.113.7"),
        ({"PROXIES": "2"}, "203.0.113.7:51000, 198.51.100.7:80", "203.0.113.7"),
        ({"PROXIES": "1"}, "[2001:db8::7]:443", "2001:db8::"),
        ({"PROXIES": "1"}, '"[2001:DB8::7]"', "2001:db8::"),
        ({"PROXIES": "1"}, "[::ffff:198.51.100.7]:443", "198.51.100.7"),
        ({"PROXIES": "1"}, "fe80::1%eth0", "fe80::"),
        ({"PROXIES": "1"}, "[fe80::1%25eth0]:443", "fe80::"),
        ({"PROXIES": "1"}, "2001:db8::7:443", "2001:db8::"),  # without brackets it is no port
        ({"PROXIES": "1"}, "203.0.113.7:x", "unknown"),
        ({"PROXIES": "1"}, "[203.0.113.7", "unknown"),
        ({"PROXIES": "1"}, "[]", "unknown"),
        ({"PROXIES": "1"}, "_hidden", "unknown"),
    ):
        with subtests.test(forwarded_for, **settings):
            app = make_app(**settings)
            app.add_url_rule("/address", view_func=lambda: client_address(request.remote_addr))
            headers = {"X-Real-IP": "203.0.113.1", "Forwarded": "for=203.0.113.1"}
            headers |= {"X-Forwarded-For": forwarded_for} if forwarded_for else {}
            answer = app.test_client().get(
                "/address",
                base_url=app.config["BASE_URL"],
                headers=headers,
                environ_overrides={"REMOTE_ADDR": "192.0.2.1"},
            )
            assert answer.text == address


def test_ports_of_one_client_share_its_limits_and_its_name_in_the_log(make_app, ada):
    app, environs = make_app(PROXIES="1"), []
    inner = app.wsgi_app

    def keep(environ: dict, start_response: Callable) -> Iterable[bytes]:
        environs.append(environ)
        return inner(environ, start_response)

    app.wsgi_app = keep  # as the server of the access log

    def sign_in(forwarded: str) -> tuple[int, bytes]:
        form, headers = {"name": "Ada", "password": "x"}, {"X-Forwarded-For": forwarded}
        answer = app.test_client().post("/sign-in", data=form, headers=headers)
        return answer.status_code, access_line(environs[-1], "", 0, 0.0).partition(b" ")[0]

    seen = [sign_in(f"203.0.113.7:{port}") for port in range(ATTEMPTS_PER_NAME + 1)]
    assert {address for _, address in seen} == {b"203.0.113.7"}
    assert [status for status, _ in seen[-2:]] == [403, 429]
    assert sign_in("203.0.113.8:1") == (403, b"203.0.113.8")
    assert sign_in("[2001:db8::7%25eth0]:1") == (403, b"2001:db8::7")


# -- cross-site posts -----------------------------------------------------------------------------

OWN_ORIGIN = "http://localhost"  # the base URL of these tests
POSTS = [
    # Sec-Fetch-Site, Origin, accepted
    ("same-origin", "null", True),  # Origin is ignored if Sec-Fetch-Site is sent
    ("none", "https://evil.example", True),
    ("same-site", OWN_ORIGIN, False),
    ("cross-site", OWN_ORIGIN, False),
    ("cross-site", None, False),
    ("", OWN_ORIGIN, False),
    ("SAME-ORIGIN", OWN_ORIGIN, False),
    ("same-origin, cross-site", OWN_ORIGIN, False),
    (None, OWN_ORIGIN, True),
    (None, None, True),
    (None, "null", False),
    (None, "", False),
    (None, "https://localhost", False),
    (None, "http://localhost:8000", False),
    (None, "http://localhost.evil.example", False),
    (None, f"{OWN_ORIGIN} {OWN_ORIGIN}", False),
]


def test_same_origin_and_non_browser_posts_are_accepted(browser, ada, subtests, make_app):
    for fetch_site, origin, accepted in POSTS:
        with subtests.test(fetch_site, origin=origin):
            browser.environ_base["HTTP_SEC_FETCH_SITE"] = "same-origin"
            browser.sign_in()
            del browser.environ_base["HTTP_SEC_FETCH_SITE"]
            sent = {**FOREIGN_LINK, "Sec-Fetch-Site": fetch_site, "Origin": origin}
            headers = {name: value for name, value in sent.items() if value is not None}
            answer = browser.post("/sign-out", headers=headers)
            assert answer.status_code == (303 if accepted else 403)
            assert ("Hello" in browser.get("/").text) != accepted
    client = make_app(BASE_URL="https://ID.example.org/").test_client()
    for origin, status in (("https://id.example.org", 303), ("http://id.example.org", 403)):
        headers = {"Origin": origin, "Host": "id.example.org"}
        assert client.post("/sign-out", headers=headers).status_code == status
