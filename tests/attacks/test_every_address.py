"""Every address there is, asked in ways that nobody named: no route may be forgotten."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from flask import Flask

from storage import ADMINISTRATOR

METHODS = ("GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE", "TRACE", "BREW")
# These look at no cookie.
OPEN_TO_ANY_ORIGIN = (
    *("/api/oauth/whois", "/api/users/info", "/pfp/", "/.well-known/", "/openapi.json"),
)
ODD_PARTS = (
    *("1", "01", "٣", "9" * 400, "..", "%00", "%2f..%2f", "a" * 5000, "%ff", '"><script>'),
    *(".htaccess", "1-1.webp%0d%0aX-Planted:x", "large", "\u202e"),
)


def addresses(app: Flask, part: str) -> Iterator[str]:
    """Every address that is routed, with this where it has a part to fill in."""
    for rule in app.url_map.iter_rules():
        sizes = re.sub("<any[^>]*>", "large", rule.rule)
        yield re.sub("<[^>]*>", part, sizes)


@pytest.fixture
def administrators_browser(store, adas_browser, ada):
    """The browser of somebody who may see and do everything."""
    with store.edit_user(ada.id) as user:
        user.mod_level = ADMINISTRATOR
    return adas_browser


@pytest.fixture(params=["administrator", "guest"])
def visitor(request, administrators_browser):
    """Somebody who may do everything, and somebody who may do nothing; so to the end."""
    if request.param == "guest":
        administrators_browser.delete_cookie("session")
    yield administrators_browser
    seen = administrators_browser.get("/players").status_code
    assert seen == (200 if request.param == "administrator" else 303)


@pytest.fixture
def game(store):
    """A game that has a page here; its client's id stands in that page's address."""
    client, _ = store.add_client("Game", [], None, game_url="https://game.example/")
    return client


SIGNING_OUT = ("/sign-out", "/account/sign-out-everywhere")


def open_every_address(
    app: Flask, visitor, parts: tuple[str, ...], methods: tuple[str, ...] = METHODS, **options
) -> Iterator:
    """The answers to these methods at every address, once each; nobody is signed out."""
    every_address = dict.fromkeys(each for part in parts for each in addresses(app, part))
    for address in every_address:
        for method in methods:
            if method != "POST" or address not in SIGNING_OUT:
                yield visitor.open(address, method=method, **options)


def test_no_address_breaks_whatever_stands_in_it(app, administrators_browser, game):
    """Nor does any of it become a header or markup."""
    parts = (game.id, *ODD_PARTS)
    for answer in open_every_address(app, administrators_browser, parts, ("GET", "POST")):
        assert answer.status_code < 500, answer.request
        assert "X-Planted" not in answer.headers
        assert '"><script>' not in answer.text


def test_every_answer_says_what_browsers_must_heed(app, visitor, game):
    """RFC 9700 4.16: no page can be framed, errors and redirects among them."""
    for answer in open_every_address(app, visitor, (game.id, "1")):
        assert answer.status_code < 500
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        if answer.content_type.startswith("text/html"):
            policy = answer.headers["Content-Security-Policy"]
            assert "frame-ancestors 'none'" in policy
            assert "default-src 'none'" in policy
            assert "unsafe" not in policy and "*" not in policy
            assert answer.headers["Cache-Control"] == "no-store"
            assert answer.headers["Referrer-Policy"] == "same-origin"
        for cookie in answer.headers.getlist("Set-Cookie"):
            assert "HttpOnly" in cookie and "Domain" not in cookie


def test_no_other_site_reads_what_depends_on_the_player(app, visitor, game):
    """RFC 9700 2.6: above all no CORS where a client gets its code."""
    asks = {"Origin": "https://evil.example", "Access-Control-Request-Method": "GET"}
    for headers in (asks, {"Origin": "null"}):
        for answer in open_every_address(app, visitor, (game.id,), headers=headers):
            assert "Access-Control-Allow-Credentials" not in answer.headers
            opened = answer.headers.get("Access-Control-Allow-Origin")
            assert opened in (None, "*")  # never the one that asks
            if opened:
                assert answer.request.path.startswith(OPEN_TO_ANY_ORIGIN)
                assert "Vary" not in answer.headers and "Set-Cookie" not in answer.headers


CANARY = "canary.example"
REFLECTED = (
    *("X-Forwarded-Host", "X-Forwarded-Server", "X-Forwarded-Port", "X-Forwarded-Prefix"),
    *("X-Forwarded-Proto", "X-Original-URL", "X-Rewrite-URL", "X-Host", "Forwarded", "Via"),
    *("Referer", "User-Agent", "Accept-Language", "From", "True-Client-IP", "X-Real-IP"),
    *("X-HTTP-Method-Override", "X-Method-Override", "X-Wap-Profile", "Content-Location"),
)


@pytest.mark.parametrize("proxies", ["0", "1"])
def test_no_header_of_a_request_gets_into_an_answer(make_app, proxies):
    """Cache poisoning: what an attacker sends comes back to nobody."""
    app = make_app(PROXIES=proxies)
    client = app.test_client()
    for address in addresses(app, "1"):
        answer = client.get(address, headers=dict.fromkeys(REFLECTED, CANARY))
        assert CANARY not in answer.text
        assert CANARY not in str(answer.headers)


def test_no_header_or_field_overrides_the_method(store, adas_browser, ada, anyone):
    for header in ("X-HTTP-Method-Override", "X-HTTP-Method", "X-Method-Override"):
        answer = adas_browser.get("/account/sign-out-everywhere", headers={header: "POST"})
        assert answer.status_code == 405
    assert adas_browser.get("/sign-out?_method=POST").status_code == 405
    assert len(store.read_user(ada.id).sessions) == 1


def everything_in(folder: Path) -> dict[Path, bytes]:
    """Every file below a folder."""
    return {each: each.read_bytes() for each in folder.rglob("*") if each.is_file()}


def test_no_link_changes_anything(app, administrators_browser, ada, program, game, tmp_path):
    """Other sites may lead a browser to any address: GET, HEAD and OPTIONS only look.

    All but the request of a client that the player allowed before: that gives it a new code.
    """
    fields = "&name=x&bio=x&what=bio&mod_level=0&flair=x&client_id=x&session=x&listed=yes&confirm=1"
    before = everything_in(tmp_path)
    every_address = {each for part in (str(ada.id), game.id) for each in addresses(app, part)}
    for method in ("GET", "HEAD", "OPTIONS"):
        for address in every_address:
            administrators_browser.open(f"{address}?decision=allow{fields}", method=method)
        administrators_browser.open(program.link(decision="allow"), method=method)
    assert everything_in(tmp_path) == before


def test_what_a_player_may_save_is_no_script_to_another_site(adas_browser):
    """JSON hijacking: included as a script it runs not, and shown it is a file to be saved."""
    answer = adas_browser.get("/account/export")
    assert answer.content_type == "application/json"
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert answer.headers["Cache-Control"] == "no-store"
    assert re.fullmatch(r'attachment; filename="[\w.-]+"', answer.headers["Content-Disposition"])
    assert answer.text.startswith("{\n")
