"""What holds for every answer: headers, errors, a full disk, hosts, proxies, cross-site posts."""

import os
import re
import subprocess

import pytest
from flask import request

from identity.limits import client_address

PAGE_LIMIT = 64 * 1024  # bytes of a form


@pytest.fixture
def pages(browser, ada, program) -> dict:
    """One page of each kind, by what it is."""
    found = {
        "home": browser.get("/"),
        "sign-in": browser.get("/sign-in"),
        "a wrong password": browser.sign_in(password="wrong"),
        "not found": browser.get("/nowhere"),
        "wrong method": browser.put("/sign-in"),
        "too large": browser.post("/sign-in", data={"name": "x" * PAGE_LIMIT}),
        "cross-site": browser.post("/sign-out", headers={"Sec-Fetch-Site": "cross-site"}),
        "foreign host": browser.get("/", base_url="http://evil.example"),
        "unknown client": browser.get("/oauth/authorize?client_id=x"),
        "no picture": browser.get("/pfp/small/1.webp"),
    }
    browser.sign_in()
    found["welcome"] = browser.get("/")
    found["consent"] = browser.get(program.link())
    found["consent of nobody"] = browser.post("/oauth/authorize")
    return found


# -- headers --------------------------------------------------------------------------------------


def test_every_page_has_the_headers_that_browsers_heed(pages):
    statuses = sorted({page.status_code for page in pages.values()})
    assert statuses == [200, 400, 403, 404, 405, 413]
    for what, page in pages.items():
        headers = page.headers
        assert headers["Content-Type"] == "text/html; charset=utf-8", what
        assert headers["X-Content-Type-Options"] == "nosniff", what
        assert headers["Referrer-Policy"] == "same-origin", what
        assert headers["Cache-Control"] == "no-store", what


def test_every_page_forbids_frames_and_inline_script_and_style(pages):
    for what, page in pages.items():
        policy = page.headers["Content-Security-Policy"]
        directives = {name: values for name, *values in map(str.split, policy.split(";"))}
        assert directives["frame-ancestors"] == ["'none'"], what
        assert directives["default-src"] == ["'none'"], what
        assert directives["base-uri"] == ["'none'"], what
        assert directives["form-action"][0] == "'self'", what
        assert "unsafe" not in policy, what
        for name in directives.keys() - {"form-action"}:
            assert set(directives[name]) <= {"'self'", "'none'"}, (what, name)


def test_no_page_needs_inline_script_or_style(pages):
    for what, page in pages.items():
        assert not re.search(
            r"<style|<script(?! src=)|\sstyle=|\son[a-z]+=|javascript:", page.text
        ), what


def test_every_page_is_a_whole_one(pages):
    for what, page in pages.items():
        assert page.text.startswith("<!doctype html>"), what
        assert page.text.count("<h1>") == 1, what
        assert "<title>" in page.text, what
        assert page.text.rstrip().endswith("</html>"), what


def test_a_static_file_is_served_with_nosniff(anyone):
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
def test_errors_under_api_are_json_with_one_message(anyone, method, path, status):
    answer = anyone.open(path, method=method)  # CheckedClient checks the body
    assert answer.status_code == status
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    if status == 405:
        assert answer.headers["Allow"]


def test_an_error_page_shows_who_is_signed_in_where_nothing_broke(app, browser, ada, faults):
    app.add_url_rule("/broken", view_func=lambda: 1 / 0)
    browser.sign_in()
    for path, status, shown in (("/nowhere", 404, True), ("/broken", 500, False)):
        page = browser.get(path)
        assert (page.status_code, "Sign out" in page.text) == (status, shown)
    faults.damage_user(ada.id)
    for path, status in (("/nowhere", 404), ("/account", 503)):
        page = browser.get(path)
        assert (page.status_code, "Sign out" in page.text) == (status, False)


def test_what_breaks_unforeseen_is_500_and_says_nothing_of_the_inside(app):
    def broken() -> None:
        raise RuntimeError("the secret of the inside")

    app.add_url_rule("/api/broken", view_func=broken)
    app.add_url_rule("/broken", "broken page", view_func=broken)
    api, page = (app.test_client().get(path) for path in ("/api/broken", "/broken"))
    assert (api.status_code, page.status_code) == (500, 500)
    assert api.content_type == "application/json"
    assert list(api.json) == ["message"]
    assert page.content_type == "text/html; charset=utf-8"
    assert "Content-Security-Policy" in page.headers
    assert "inside" not in api.text + page.text


@pytest.mark.parametrize("path", ["/sign-in", "/sign-out", "/oauth/authorize", "/api/oauth/whois"])
def test_a_form_over_64_kib_is_refused_before_anything_reads_it(browser, path):
    answer = browser.post(path, data={"next": "x" * PAGE_LIMIT})
    assert answer.status_code in (413, 405, 403)
    assert answer.status_code == {"/api/oauth/whois": 405, "/oauth/authorize": 403}.get(path, 413)


def test_a_consent_over_64_kib_is_413(adas_browser):
    answer = adas_browser.post("/oauth/authorize", data={"request": "x" * PAGE_LIMIT})
    assert answer.status_code == 413


@pytest.mark.parametrize("path", ["/", "/sign-in", "/oauth/authorize", "/api/oauth/whois", "/x"])
def test_a_query_of_raw_bytes_is_400(browser, path):
    overrides = {"PATH_INFO": path, "QUERY_STRING": "next=/\xff"}
    answer = browser.open(environ_overrides=overrides)
    assert answer.status_code == 400
    assert (answer.content_type == "application/json") == path.startswith("/api/")


@pytest.mark.parametrize(
    "cookie", ["session=\xff", "session=", "session", ";;;", "=", "session=a.b.c"]
)
def test_a_broken_cookie_is_no_cookie(anyone, cookie):
    assert anyone.get("/", headers={"Cookie": cookie}).status_code == 200


# -- a full disk ----------------------------------------------------------------------------------


@pytest.fixture
def fill_disk(tmp_path):
    """Puts this test's folders on a disk of their own, and fills it when it is called."""
    options = ["-t", "tmpfs", "-o", "size=1m", "tmpfs", str(tmp_path)]
    subprocess.run(["mount", *options], check=True)

    def fill() -> None:
        with pytest.raises(OSError), open(tmp_path / "filler", "wb", buffering=0) as file:
            while True:
                file.write(bytes(4096))

    yield fill
    subprocess.run(["umount", str(tmp_path)], check=True)


@pytest.mark.faults
@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a disk needs root")
def test_on_a_full_disk_only_what_must_be_saved_is_refused(
    fill_disk, browser, ada, program, open_browser, register
):
    browser.sign_in()
    other_browser = open_browser()
    other_browser.sign_in()
    code = browser.allow(program)
    page = browser.get(register("https://space.example/callback").link(state="x"))
    fill_disk()
    # Look-ups, tokens and signed-in pages go on, and so does the limit on guessing.
    token = program.token_for(code)
    assert program.whois(token).json["id"] == ada.id
    assert program.http.get("/api/users/info?id=1").status_code == 200
    assert "Hello" in browser.get("/").text
    assert [open_browser().sign_in(password="wrong").status_code for _ in range(10)] == [403] * 10
    # A replayed code is refused all the same.
    assert program.exchange(code).status_code == 400
    # What cannot be saved is told: the client, or the player.
    for answer in (browser.decide(page), browser.get(program.link(state="x"))):
        told = program.read_callback(answer)
        assert (told["error"], told["state"]) == ("server_error", "x")
    assert program.read_callback(browser.decide(page, "deny"))["error"] == "access_denied"
    assert open_browser().sign_in().status_code == 429
    signed_out = other_browser.post("/sign-out")
    assert (signed_out.status_code, "Set-Cookie" in signed_out.headers) == (303, True)
    assert "Hello" not in other_browser.get("/").text


@pytest.mark.faults
@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a disk needs root")
def test_a_sign_in_on_a_full_disk_is_507_and_not_counted(fill_disk, browser, ada, open_browser):
    browser.sign_in()
    fill_disk()
    for _ in range(11):
        answer = open_browser().sign_in()
        assert (answer.status_code, "disk is full" in answer.text) == (507, True)
        assert "Set-Cookie" not in answer.headers
    assert open_browser().sign_in(password="wrong").status_code == 403


# -- hosts ----------------------------------------------------------------------------------------

OWN_LOOPBACK = [
    *("localhost", "127.0.0.1", "[::1]", "localhost:8000", "127.0.0.1:9", "[::1]:8000"),
    *("LocalHost", "LOCALHOST:8000"),
]
FOREIGN = [
    *("evil.example", "localhost.evil.example", "evil.example:8000", "localhost.", "127.0.0.2", ""),
    *(
        "localhost@evil.example",
        "evil.example\\localhost",
        "localhost evil.example",
        "[::2]",
        "::1",
    ),
    *("localhost:x", "localhost:", ":8000", "localhost/evil.example", "é", "0.0.0.0", "127.1"),
    *(".", "..", "a..b", "a" * 70, "a" * 300),  # no host names to Werkzeug: it builds no URL then
]


@pytest.mark.parametrize("host", OWN_LOOPBACK)
def test_a_loopback_server_answers_to_every_name_of_loopback(anyone, ada, host):
    overrides = {"HTTP_HOST": host}
    answer = anyone.get("/api/users/info?id=1", environ_overrides=overrides)
    assert answer.status_code == 200


@pytest.mark.parametrize("host", FOREIGN)
def test_another_host_is_400(anyone, ada, host):
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
def test_a_public_server_answers_to_its_own_name_alone(make_app, host, status):
    client = make_app(BASE_URL="https://id.example.org").test_client()
    assert client.get("/", environ_overrides={"HTTP_HOST": host}).status_code == status


@pytest.mark.parametrize("header", ["X-Forwarded-Host", "X-Host", "Forwarded", "X-Original-Host"])
@pytest.mark.parametrize("proxies", ["0", "1"])
def test_no_other_header_names_the_host(make_app, header, proxies):
    client = make_app(PROXIES=proxies).test_client()
    value = "host=evil.example" if header == "Forwarded" else "evil.example"
    assert client.get("/", headers={header: value}).status_code == 200
    assert client.get("/", headers={"Host": "evil.example", header: "localhost"}).status_code == 400


@pytest.mark.parametrize(
    "path", ["//sign-in", "/sign-in//", "//evil.example/", "/oauth/authorize/"]
)
def test_no_address_is_redirected_to_a_tidier_one(anyone, path):
    # Werkzeug would build it from the Host and the scheme that the proxy speaks.
    answer = anyone.open(environ_overrides={"PATH_INFO": path})
    assert "Location" not in answer.headers


def test_redirects_within_the_server_name_no_host(browser, ada, program):
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
        ("1", "203.0.113.9, 198.51.100.7", "198.51.100.7"),  # the left one is forged
        ("2", "203.0.113.9, 198.51.100.7", "203.0.113.9"),
        ("2", "1.1.1.1, 203.0.113.9, 198.51.100.7", "203.0.113.9"),
        ("2", "198.51.100.7", "192.0.2.1"),  # did not pass both
        ("1", "2001:db8::7", "2001:db8::"),
        ("1", "::ffff:198.51.100.7", "198.51.100.7"),
        ("1", "unknown", "unknown"),
        ("1", "<script>", "unknown"),
    ],
)
def test_an_address_is_what_our_own_proxies_say(make_app, proxies, forwarded_for, address):
    app = make_app(PROXIES=proxies)
    app.add_url_rule("/address", view_func=lambda: client_address(request.remote_addr))
    client = app.test_client()
    client.environ_base["REMOTE_ADDR"] = "192.0.2.1"
    headers = {} if forwarded_for is None else {"X-Forwarded-For": forwarded_for}
    headers |= {"X-Real-IP": "203.0.113.1", "Forwarded": "for=203.0.113.1"}
    assert client.get("/address", headers=headers).text == address


def test_behind_an_https_address_one_proxy_is_ours_by_default(make_app):
    app = make_app(BASE_URL="https://id.example.org")
    app.add_url_rule("/address", view_func=lambda: client_address(request.remote_addr))
    headers = {"X-Forwarded-For": "203.0.113.9, 198.51.100.7", "Host": "id.example.org"}
    assert app.test_client().get("/address", headers=headers).text == "198.51.100.7"


def test_forged_addresses_do_not_escape_the_limit_on_guessing(program):
    program.http.environ_base["REMOTE_ADDR"] = "192.0.2.1"
    statuses = [
        program.exchange("x", {"X-Forwarded-For": f"203.0.113.{i}"}, client_secret="x").status_code
        for i in range(101)
    ]
    assert statuses == [401] * 100 + [429]


# -- posts from other sites -----------------------------------------------------------------------

OWN = "http://localhost"  # the base URL of these tests
POSTS = [
    # Sec-Fetch-Site, Origin, let through?
    ("same-origin", OWN, True),
    ("same-origin", None, True),
    ("none", None, True),
    ("same-origin", "null", True),  # the first header alone counts where it is sent
    ("none", "https://evil.example", True),
    ("same-site", OWN, False),
    ("same-site", None, False),
    ("cross-site", None, False),
    ("cross-site", OWN, False),
    ("cross-site", "null", False),
    ("", OWN, False),
    ("nonsense", OWN, False),
    ("SAME-ORIGIN", OWN, False),
    ("same-origin, cross-site", OWN, False),
    (None, OWN, True),
    (None, None, True),
    (None, "null", False),
    (None, "", False),
    (None, "https://evil.example", False),
    (None, "https://localhost", False),
    (None, "http://127.0.0.1", False),
    (None, "http://localhost:8000", False),
    (None, "http://localhost.evil.example", False),
    (None, "http://game.localhost", False),
    (None, f"{OWN}/", False),
    (None, f"{OWN} {OWN}", False),
]


@pytest.mark.parametrize(("fetch_site", "origin", "passes"), POSTS)
def test_a_post_passes_from_our_own_pages_and_from_no_browser(
    browser, ada, fetch_site, origin, passes
):
    browser.sign_in()
    del browser.environ_base["HTTP_SEC_FETCH_SITE"]
    sent = {"Sec-Fetch-Site": fetch_site, "Origin": origin}
    headers = {name: value for name, value in sent.items() if value is not None}
    answer = browser.post("/sign-out", headers=headers)
    assert answer.status_code == (303 if passes else 403)
    assert ("Hello" in browser.get("/").text) != passes


@pytest.mark.parametrize("path", ["/sign-in", "/sign-out", "/oauth/authorize", "/nowhere", "/"])
@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
def test_whatever_could_change_something_is_refused_from_another_site(browser, path, method):
    answer = browser.open(path, method=method, headers={"Sec-Fetch-Site": "cross-site"})
    assert answer.status_code == 403


@pytest.mark.parametrize("path", ["/api/oauth/whois", "/api/oauth/token/", "/api/oauth//token"])
def test_only_the_token_endpoint_takes_posts_from_another_site(anyone, path):
    headers = {"Sec-Fetch-Site": "cross-site", "Origin": "https://game.example"}
    assert anyone.post(path, headers=headers).status_code == 403
    assert anyone.post("/api/oauth/token", headers=headers).status_code == 400


def test_links_from_other_sites_lead_here(browser, ada, program):
    headers = {"Sec-Fetch-Site": "cross-site", "Origin": "https://space.example"}
    assert browser.get("/sign-in", headers=headers).status_code == 200
    browser.sign_in()
    assert browser.get(program.link(), headers=headers).status_code == 200
    assert "Hello" in browser.get("/", headers=headers).text


def test_a_cross_site_consent_grants_nothing(store, adas_browser, ada, program):
    page = adas_browser.get(program.link())
    adas_browser.environ_base["HTTP_SEC_FETCH_SITE"] = "same-site"
    assert adas_browser.decide(page).status_code == 403
    assert store.read_user(ada.id).grants == {}


def test_a_post_refused_as_cross_site_counts_nowhere(browser, ada, faults):
    browser.environ_base["HTTP_SEC_FETCH_SITE"] = "cross-site"
    for _ in range(11):
        assert browser.sign_in(password="wrong").status_code == 403
    assert faults.attempt_counts() == []
    browser.environ_base["HTTP_SEC_FETCH_SITE"] = "same-origin"
    assert browser.sign_in().status_code == 303


def test_on_https_our_own_origin_is_the_base_url(make_app):
    client = make_app(BASE_URL="https://ID.example.org/").test_client()
    for origin, status in (
        ("https://id.example.org", 303),
        ("http://id.example.org", 403),
        ("https://game.id.example.org", 403),
        ("https://id.example.org:8443", 403),
    ):
        headers = {"Origin": origin, "Host": "id.example.org"}
        assert client.post("/sign-out", headers=headers).status_code == status


# -- what a page says of the site -----------------------------------------------------------------


def test_every_page_names_the_site_and_links_to_what_it_says_about_itself(make_app):
    about = "https://example.org/about?a=1&b=2"
    client = make_app(SITE_NAME="Ada & <Friends>", ABOUT_URL=about).test_client()
    for path in ("/", "/sign-in", "/nowhere"):
        text = client.get(path).text
        assert "Ada &amp; &lt;Friends&gt;" in text
        assert "<Friends>" not in text
        assert 'href="https://example.org/about?a=1&amp;b=2"' in text


def test_without_an_about_page_there_is_no_link_to_one(make_app):
    assert "Privacy" not in make_app().test_client().get("/").text
