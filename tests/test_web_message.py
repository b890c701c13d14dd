"""response_mode=web_message: a popup posts the response to the page that opened it."""

import json

from forms import hidden_field, parse

CALLBACK = "https://space.example/callback"
MODE = {"response_mode": "web_message", "state": "s"}


def read_message(page) -> tuple[str, dict[str, str]]:
    """Return the origin and the response that the script of this page posts."""
    assert (page.status_code, page.location) == (200, None)
    element = parse(page).select_one("[data-response]")
    return element["data-origin"], json.loads(element["data-response"])


def test_response_is_posted_to_the_redirect_uris_origin(adas_browser, program, ada):
    page = adas_browser.get(program.link(**MODE))
    assert "response_mode=web_message" in hidden_field(page, "next")  # for another account
    _, response = read_message(adas_browser.decide(page, "deny"))
    assert (response["error"], response["state"]) == ("access_denied", "s")
    origin, response = read_message(adas_browser.decide(page))
    assert origin == "https://space.example"
    assert response == {"code": response["code"], "state": "s"}
    token = program.exchange(response["code"], redirect_uri=CALLBACK).json["access_token"]
    assert program.whois(token).json["id"] == ada.id
    _, response = read_message(adas_browser.get(program.link(**MODE)))  # consent is remembered
    assert response.keys() == {"code", "state"}


def test_error_is_posted_before_the_first_consent_too(adas_browser, program):
    """It cannot redirect the player anywhere, unlike an error in a redirect."""
    page = adas_browser.get(program.link(response_type="token", **MODE))
    assert read_message(page)[1]["error"] == "unsupported_response_type"


def test_origin_is_that_of_the_received_redirect_uri(adas_browser, register):
    for registered, sent, origin in (
        ("https://space.example:443/cb", None, "https://space.example"),
        ("https://SPACE.example:8443/cb", None, "https://space.example:8443"),
        ("http://127.0.0.1/cb", "http://127.0.0.1:5173/cb", "http://127.0.0.1:5173"),
    ):
        program = register(registered)
        page = adas_browser.get(program.link(redirect_uri=sent or registered, **MODE))
        assert read_message(adas_browser.decide(page))[0] == origin


def test_redirect_uri_without_origin_is_an_error_page(adas_browser, program, register):
    """RFC 9700 4.17.2: that of another client. A private-use scheme has no origin."""
    adas_browser.allow(program)
    native = register("org.example.space:/callback", public=True)
    for link in (program.link(redirect_uri="https://other.example/", **MODE), native.link(**MODE)):
        answer = adas_browser.get(link)
        assert (answer.status_code, "data-response" in answer.text) == (400, False)


def test_other_modes_redirect_with_a_code_or_an_error(adas_browser, program):
    for mode in ("", "query"):
        page = adas_browser.get(program.link(response_mode=mode, prompt="consent"))
        assert "code" in program.read_callback(adas_browser.decide(page))
    for mode in ("fragment", "Query", "query web_message", ["query", "web_message"]):
        page = adas_browser.get(program.link(response_mode=mode, state="s"))
        answer = program.read_callback(page)
        assert (answer["error"], answer["state"]) == ("invalid_request", "s"), mode


def test_response_is_text_on_a_page_that_is_not_stored(adas_browser, program):
    state = "\"'></section><script>alert(1)</script>&amp;ü"
    page = adas_browser.decide(adas_browser.get(program.link(**(MODE | {"state": state}))))
    assert "<script>" not in page.text
    assert read_message(page)[1]["state"] == state
    assert page.headers["Cache-Control"] == "no-store"
    policy = page.headers["Content-Security-Policy"]
    assert "frame-ancestors 'none'" in policy and "unsafe" not in policy
