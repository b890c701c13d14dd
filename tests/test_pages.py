"""All responses: headers, errors, a full disk, hosts, proxies and cross-site posts."""

import html
import re
from pathlib import Path

import pytest
from conftest import FOREIGN_LINK, CheckedClient
from flask import request
from forms import hidden_field

from identity.limits import client_address
from identity.settings import ROOT

PAGE_LIMIT = 64 * 1024  # bytes of a form


@pytest.fixture
def pages(browser, ada, program) -> dict:
    """One page of each kind, by name."""
    found = {
        "home": browser.get("/"),
        "sign-in": browser.get("/sign-in"),
        "wrong password": browser.sign_in(password="wrong"),
        "not found": browser.get("/nowhere"),
        "wrong method": browser.put("/sign-in"),
        "too large": browser.post("/sign-in", data={"name": "x" * PAGE_LIMIT}),
        "cross-site": browser.post("/sign-out", headers=FOREIGN_LINK),
        "foreign host": browser.get("/", base_url="http://evil.example"),
        "unknown client": browser.get("/oauth/authorize?client_id=x"),
        "no picture": browser.get("/pfp/small/1.webp"),
    }
    browser.sign_in()
    found["welcome"] = browser.get("/")
    found["account"] = browser.get("/account")
    found["apps"] = browser.get("/account/apps")
    found["consent"] = browser.get(program.link())
    found["consent without a request"] = browser.post("/oauth/authorize")
    return found


def preview_of(page) -> dict[str, str]:
    """Return the description and the Open Graph tags of a page."""
    found = re.findall(
        '<meta (?:name|property)="(description|og:[^"]*)" content="([^"]*)">', page.text
    )
    assert len(found) == len(dict(found))
    return {name: html.unescape(value) for name, value in found}


# -- link previews --------------------------------------------------------------------------------


def test_link_to_a_profile_or_game_is_previewed(make_app, store, ada, tmp_path):
    """The values are public, and the addresses are those of the base URL, never of the Host."""
    with store.users.edit(ada.id) as user:
        user.bio = '  "Chess",\nmostly.  ' + "x" * 300
    game, _ = store.clients.register(
        "Pong", [], None, game_url="https://pong.example/", description="For 2"
    )
    app = make_app(BASE_URL="https://id.example.org", SITE_NAME="Our games", SIGN_UP="open")
    anyone = app.test_client()
    site, https = "https://id.example.org", {"base_url": "https://id.example.org"}
    general = "One account for all our games, with your name, picture and play time."
    touch_icon = f"{site}/static/touch-icon.png"
    expected = {
        "/": ("Our games", general, touch_icon, f"{site}/"),
        f"/play/{game.id}": ("Pong", "For 2", touch_icon, f"{site}/play/{game.id}"),
        "/users/1": (
            "Ada",
            '"Chess", mostly. ' + "x" * 183,
            f"{site}/pfp/large/{ada.picture_file}",
            f"{site}/users/1",
        ),
        "/sign-up?invite=secret": ("Our games", general, touch_icon, None),
        "/new-password?link=secret": ("Our games", general, touch_icon, None),
        "/nowhere": ("Our games", general, touch_icon, None),
    }
    for address, values in expected.items():
        preview = preview_of(anyone.get(address, **https))
        assert preview.pop("og:type") == "website"
        assert preview.pop("og:site_name") == "Our games"
        assert preview.pop("description") == preview["og:description"]
        names = ("og:title", "og:description", "og:image", "og:url")
        assert tuple(map(preview.get, names)) == values, address
    image = anyone.get("/static/touch-icon.png", **https)
    assert (image.status_code, image.content_type) == (200, "image/png")


# -- headers --------------------------------------------------------------------------------------


def test_every_page_has_security_headers_and_no_inline_script(pages):
    statuses = sorted({page.status_code for page in pages.values()})
    assert statuses == [200, 400, 403, 404, 405, 413]
    for page_name, page in pages.items():
        headers = page.headers
        assert headers["Content-Type"] == "text/html; charset=utf-8", page_name
        assert headers["X-Content-Type-Options"] == "nosniff", page_name
        assert headers["Referrer-Policy"] == "same-origin", page_name
        assert headers["Cache-Control"] == "no-store", page_name
        policy = headers["Content-Security-Policy"]
        directives = {name: values for name, *values in map(str.split, policy.split(";"))}
        assert directives["frame-ancestors"] == ["'none'"], page_name
        assert directives["default-src"] == ["'none'"], page_name
        assert directives["base-uri"] == ["'none'"], page_name
        assert directives["form-action"][0] == "'self'", page_name
        assert "unsafe" not in policy, page_name
        for name in directives.keys() - {"form-action"}:
            assert set(directives[name]) <= {"'self'", "'none'"}, (page_name, name)
        inline = r"<style|<script(?! src=)|\sstyle=|\son[a-z]+=|javascript:"
        assert not re.search(inline, page.text), page_name
        assert page.text.startswith("<!doctype html>"), page_name
        assert page.text.count("<h1>") == 1, page_name
        assert "<title>" in page.text, page_name
        assert page.text.rstrip().endswith("</html>"), page_name


def test_games_of_any_origin_import_the_module(anyone):
    """Also on pages that load only what allows it (Cross-Origin-Embedder-Policy)."""
    address = "/static/v1/identity.js"
    answer = anyone.get(address, headers={"Origin": "https://game.example"})
    assert (answer.status_code, answer.mimetype) == (200, "text/javascript")
    assert answer.headers["Access-Control-Allow-Origin"] == "*"
    assert answer.headers["Cross-Origin-Resource-Policy"] == "cross-origin"
    assert answer.headers["Cache-Control"] == "public, max-age=3600"
    again = anyone.get(address, headers={"If-None-Match": answer.headers["ETag"]})
    assert (again.status_code, again.data) == (304, b"")


def test_module_is_short_and_needs_nothing():
    module = Path(ROOT, "static/identity.js").read_text(encoding="utf-8")
    assert module.count("\n") < 200
    assert "localStorage" not in module  # which every script of the origin can read
    assert not re.search(r"^\s*import ", module, re.MULTILINE)


def test_static_file_has_nosniff(anyone):
    with anyone.get("/static/style.css") as answer:
        assert answer.content_type.startswith("text/css")
        assert answer.headers["X-Content-Type-Options"] == "nosniff"


# -- errors ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/api/", 404),
        ("GET", "/api/nothing", 404),
        ("POST", "/api/nothing", 404),
        ("OPTIONS", "/api/nothing", 404),
        ("GET", "/api/oauth/token/", 404),
        ("GET", "/api/oauth//whois", 404),
        ("GET", "/api/oauth/../secret", 404),
        ("GET", "/api/\0", 404),
        ("GET", "/api/oauth/token", 405),
        ("DELETE", "/api/oauth/whois", 405),
        ("GET", "/api/users/info", 400),
    ],
)
def test_api_errors_are_json(anyone, method, path, status):
    answer = anyone.open(path, method=method)  # CheckedClient checks the body's format
    assert answer.status_code == status
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    if status == 404:
        assert "/openapi.json" in answer.json["message"]
    if status == 405:
        assert answer.headers["Allow"]


def test_error_page_shows_the_session_except_for_server_errors(app, browser, ada, faults):
    app.add_url_rule("/broken", view_func=lambda: 1 / 0)
    browser.sign_in()
    for path, status, shown in (("/nowhere", 404, True), ("/broken", 500, False)):
        page = browser.get(path)
        assert (page.status_code, "Sign out" in page.text) == (status, shown)
    faults.damage_user(ada.id)
    for path, status in (("/nowhere", 404), ("/account", 503)):
        page = browser.get(path)
        assert (page.status_code, "Sign out" in page.text) == (status, False)


def test_unexpected_error_is_500_without_details(app):
    def broken() -> None:
        raise RuntimeError("the secret of the inside")

    app.add_url_rule("/api/broken", view_func=broken)
    app.add_url_rule("/broken", "broken page", view_func=broken)
    api, page = (CheckedClient(app).get(path) for path in ("/api/broken", "/broken"))
    assert (api.status_code, page.status_code) == (500, 500)
    assert api.content_type == "application/json"
    assert list(api.json) == ["message"]
    assert page.content_type == "text/html; charset=utf-8"
    assert "Content-Security-Policy" in page.headers
    assert "inside" not in api.text + page.text


@pytest.mark.parametrize("path", ["/sign-in", "/sign-out", "/oauth/authorize", "/api/oauth/whois"])
def test_form_over_64_kib_is_413(browser, path):
    answer = browser.post(path, data={"next": "x" * PAGE_LIMIT})
    assert answer.status_code in (413, 405, 403)
    assert answer.status_code == {"/api/oauth/whois": 405, "/oauth/authorize": 403}.get(path, 413)


def test_consent_form_over_64_kib_is_413(adas_browser):
    answer = adas_browser.post("/oauth/authorize", data={"request": "x" * PAGE_LIMIT})
    assert answer.status_code == 413


@pytest.mark.parametrize(
    "path", ["/", "/sign-in", "/oauth/authorize", "/api/oauth/whois", "/api/users/info", "/x"]
)
def test_query_of_raw_bytes_is_400(browser, path):
    overrides = {"PATH_INFO": path, "QUERY_STRING": "next=/\xff"}
    answer = browser.open(environ_overrides=overrides)
    assert answer.status_code == 400
    assert (answer.content_type == "application/json") == path.startswith("/api/")


@pytest.mark.parametrize(
    "cookie", ["session=\xff", "session=", "session", ";;;", "=", "session=a.b.c"]
)
def test_invalid_cookie_is_ignored(anyone, cookie):
    assert anyone.get("/", headers={"Cookie": cookie}).status_code == 200


# -- hosts ----------------------------------------------------------------------------------------

LOOPBACK_HOSTS = [
    *("localhost", "127.0.0.1", "[::1]", "localhost:8000", "127.0.0.1:9", "[::1]:8000"),
    *("LocalHost", "LOCALHOST:8000"),
]
FOREIGN_HOSTS = [
    *("evil.example", "localhost.evil.example", "evil.example:8000", "localhost.", "127.0.0.2", ""),
    *(
        "localhost@evil.example",
        "evil.example\\localhost",
        "localhost evil.example",
        "[::2]",
        "::1",
    ),
    *("localhost:x", "localhost:", ":8000", "localhost/evil.example", "é", "0.0.0.0", "127.1"),
    *(".", "..", "a..b", "a" * 70, "a" * 300),  # invalid host names: Werkzeug builds no URL
]


@pytest.mark.parametrize("host", LOOPBACK_HOSTS)
def test_loopback_server_accepts_every_loopback_host(anyone, ada, host):
    overrides = {"HTTP_HOST": host}
    answer = anyone.get("/api/users/info?id=1", environ_overrides=overrides)
    assert answer.status_code == 200


@pytest.mark.parametrize("host", FOREIGN_HOSTS)
def test_unknown_host_is_400(anyone, ada, host):
    for path in ("/", "/api/users/info?id=1", "/api/oauth/token"):
        assert anyone.get(path, environ_overrides={"HTTP_HOST": host}).status_code == 400


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("id.example.org", 200),
        ("ID.example.org:443", 200),
        ("localhost", 400),
        ("127.0.0.1", 400),
        ("www.id.example.org", 400),
        ("example.org", 400),
    ],
)
def test_public_server_accepts_its_own_host_only(make_app, host, status):
    client = make_app(BASE_URL="https://id.example.org").test_client()
    assert client.get("/", environ_overrides={"HTTP_HOST": host}).status_code == status


@pytest.mark.parametrize("header", ["X-Forwarded-Host", "X-Host", "Forwarded", "X-Original-Host"])
@pytest.mark.parametrize("proxies", ["0", "1"])
def test_forwarded_host_headers_are_ignored(make_app, header, proxies):
    client = make_app(PROXIES=proxies).test_client()
    value = "host=evil.example" if header == "Forwarded" else "evil.example"
    assert client.get("/", headers={header: value}).status_code == 200
    assert client.get("/", headers={"Host": "evil.example", header: "localhost"}).status_code == 400


@pytest.mark.parametrize(
    "path", ["//sign-in", "/sign-in//", "//evil.example/", "/oauth/authorize/"]
)
def test_untidy_paths_are_not_redirected(anyone, path):
    # Werkzeug would build the URL from the Host header and the proxy's scheme.
    answer = anyone.open(environ_overrides={"PATH_INFO": path})
    assert "Location" not in answer.headers


def test_internal_redirects_have_no_host(browser, ada, program):
    for answer in (browser.get(program.link()), browser.sign_in(), browser.post("/sign-out")):
        assert answer.status_code == 303
        assert re.match("/[a-z-]*", answer.location)


# -- proxies --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("proxies", "forwarded_for", "address"),
    [
        ("0", None, "192.0.2.1"),
        ("0", "198.51.100.7", "192.0.2.1"),
        ("1", None, "192.0.2.1"),
        ("1", "198.51.100.7", "198.51.100.7"),
        ("1", "203.0.113.9, 198.51.100.7", "198.51.100.7"),  # the left address is forged
        ("2", "203.0.113.9, 198.51.100.7", "203.0.113.9"),
        ("2", "1.1.1.1, 203.0.113.9, 198.51.100.7", "203.0.113.9"),
        ("2", "198.51.100.7", "192.0.2.1"),  # did not pass both proxies
        ("1", "2001:db8::7", "2001:db8::"),
        ("1", "::ffff:198.51.100.7", "198.51.100.7"),
        ("1", "unknown", "unknown"),
        ("1", "<script>", "unknown"),
    ],
)
def test_client_address_is_from_trusted_proxies_only(make_app, proxies, forwarded_for, address):
    app = make_app(PROXIES=proxies)
    app.add_url_rule("/address", view_func=lambda: client_address(request.remote_addr))
    client = app.test_client()
    client.environ_base["REMOTE_ADDR"] = "192.0.2.1"
    headers = {} if forwarded_for is None else {"X-Forwarded-For": forwarded_for}
    headers |= {"X-Real-IP": "203.0.113.1", "Forwarded": "for=203.0.113.1"}
    assert client.get("/address", headers=headers).text == address


def test_https_base_url_trusts_one_proxy_by_default(make_app):
    app = make_app(BASE_URL="https://id.example.org")
    app.add_url_rule("/address", view_func=lambda: client_address(request.remote_addr))
    headers = {"X-Forwarded-For": "203.0.113.9, 198.51.100.7", "Host": "id.example.org"}
    assert app.test_client().get("/address", headers=headers).text == "198.51.100.7"


# -- cross-site posts -----------------------------------------------------------------------------

OWN_ORIGIN = "http://localhost"  # the base URL of these tests
POSTS = [
    # Sec-Fetch-Site, Origin, accepted
    ("same-origin", OWN_ORIGIN, True),
    ("same-origin", None, True),
    ("none", None, True),
    ("same-origin", "null", True),  # Origin is ignored if Sec-Fetch-Site is sent
    ("none", "https://evil.example", True),
    ("same-site", OWN_ORIGIN, False),
    ("same-site", None, False),
    ("cross-site", None, False),
    ("cross-site", OWN_ORIGIN, False),
    ("cross-site", "null", False),
    ("", OWN_ORIGIN, False),
    ("nonsense", OWN_ORIGIN, False),
    ("SAME-ORIGIN", OWN_ORIGIN, False),
    ("same-origin, cross-site", OWN_ORIGIN, False),
    (None, OWN_ORIGIN, True),
    (None, None, True),
    (None, "null", False),
    (None, "", False),
    (None, "https://evil.example", False),
    (None, "https://localhost", False),
    (None, "http://127.0.0.1", False),
    (None, "http://localhost:8000", False),
    (None, "http://localhost.evil.example", False),
    (None, "http://game.localhost", False),
    (None, f"{OWN_ORIGIN}/", False),
    (None, f"{OWN_ORIGIN} {OWN_ORIGIN}", False),
]


@pytest.mark.parametrize(("fetch_site", "origin", "accepted"), POSTS)
def test_same_origin_and_non_browser_posts_are_accepted(browser, ada, fetch_site, origin, accepted):
    browser.sign_in()
    del browser.environ_base["HTTP_SEC_FETCH_SITE"]
    sent = {**FOREIGN_LINK, "Sec-Fetch-Site": fetch_site, "Origin": origin}
    headers = {name: value for name, value in sent.items() if value is not None}
    answer = browser.post("/sign-out", headers=headers)
    assert answer.status_code == (303 if accepted else 403)
    assert ("Hello" in browser.get("/").text) != accepted


@pytest.mark.parametrize("path", ["/api/oauth/whois", "/api/oauth/token/", "/api/oauth//token"])
def test_only_the_token_endpoint_accepts_cross_site_posts(anyone, path):
    headers = {**FOREIGN_LINK, "Origin": "https://game.example"}
    assert anyone.post(path, headers=headers).status_code == 403
    assert anyone.post("/api/oauth/token", headers=headers).status_code == 400


def test_cross_site_links_are_accepted(browser, ada, program):
    assert browser.get("/sign-in", headers=FOREIGN_LINK).status_code == 200
    browser.sign_in()
    assert browser.get(program.link(), headers=FOREIGN_LINK).status_code == 200
    assert "Hello" in browser.get("/", headers=FOREIGN_LINK).text


def test_cross_site_consent_is_403_and_stores_no_grant(store, adas_browser, ada, program):
    page = adas_browser.get(program.link())
    form = {"request": hidden_field(page, "request"), "decision": "allow"}
    from_sibling = FOREIGN_LINK | {"Sec-Fetch-Site": "same-site"}
    answer = adas_browser.post("/oauth/authorize", data=form, headers=from_sibling)
    assert answer.status_code == 403
    assert store.users.read(ada.id).grants == {}


def test_cross_site_sign_in_is_not_rate_limited(browser, ada, faults):
    form = {"name": "Ada", "password": "wrong"}
    for _ in range(11):
        answer = browser.post("/sign-in", data=form, headers=FOREIGN_LINK)
        assert answer.status_code == 403
    assert faults.attempt_counts() == []
    assert browser.sign_in().status_code == 303


def test_own_origin_on_https_is_the_base_url(make_app):
    client = make_app(BASE_URL="https://ID.example.org/").test_client()
    for origin, status in (
        ("https://id.example.org", 303),
        ("http://id.example.org", 403),
        ("https://game.id.example.org", 403),
        ("https://id.example.org:8443", 403),
    ):
        headers = {"Origin": origin, "Host": "id.example.org"}
        assert client.post("/sign-out", headers=headers).status_code == status


# -- site name and about link ---------------------------------------------------------------------


def test_every_page_has_the_site_name_and_the_about_link(make_app):
    about = "https://example.org/about?a=1&b=2"
    client = make_app(SITE_NAME="Ada & <Friends>", ABOUT_URL=about).test_client()
    for path in ("/", "/sign-in", "/nowhere"):
        text = client.get(path).text
        assert "Ada &amp; &lt;Friends&gt;" in text
        assert "<Friends>" not in text
        assert 'href="https://example.org/about?a=1&amp;b=2"' in text


def test_page_without_about_url_has_no_about_link(make_app):
    assert "Privacy" not in make_app().test_client().get("/").text
