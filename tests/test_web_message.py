"""response_mode=web_message: a popup posts the response to the page that opened it."""

import html
import json
import re

import pytest
from forms import hidden_field

from identity.stamps import TOO_QUICK

CALLBACK = "https://space.example/callback"
MODE = {"response_mode": "web_message", "state": "s"}


def read_message(page) -> tuple[str, dict[str, str]]:
    """Return the origin and the response that the script of this page posts."""
    assert (page.status_code, page.location) == (200, None)
    origin, response = (
        html.unescape(re.search(f'data-{name}="([^"]*)"', page.text)[1])
        for name in ("origin", "response")
    )
    return origin, json.loads(response)


def is_error_page(answer) -> bool:
    """Return whether this is an error page, from which nothing is posted."""
    return answer.status_code == 400 and "data-response" not in answer.text


def test_code_and_state_are_posted_to_the_origin_of_the_redirect_uri(adas_browser, program, ada):
    origin, response = read_message(adas_browser.decide(adas_browser.get(program.link(**MODE))))
    assert origin == "https://space.example"
    assert response == {"code": response["code"], "state": "s"}
    token = program.exchange(response["code"], redirect_uri=CALLBACK).json["access_token"]
    assert program.whois(token).json["id"] == ada.id


def test_remembered_consent_is_posted_without_a_question(adas_browser, program):
    adas_browser.allow(program)
    _, response = read_message(adas_browser.get(program.link(**MODE)))
    assert response.keys() == {"code", "state"}


def test_cancel_is_posted(adas_browser, program):
    page = adas_browser.decide(adas_browser.get(program.link(**MODE)), "deny")
    _, response = read_message(page)
    assert (response["error"], response["state"]) == ("access_denied", "s")


def test_error_is_posted_before_the_first_consent_too(adas_browser, program):
    """It cannot redirect the player anywhere, unlike an error in a redirect."""
    page = adas_browser.get(program.link(response_type="token", **MODE))
    assert read_message(page)[1]["error"] == "unsupported_response_type"


@pytest.mark.parametrize(
    "registered, sent, origin",
    [
        ("https://space.example:443/cb", None, "https://space.example"),
        ("https://SPACE.example:8443/cb", None, "https://space.example:8443"),
        ("http://127.0.0.1/cb", "http://127.0.0.1:5173/cb", "http://127.0.0.1:5173"),
    ],
)
def test_origin_is_that_of_the_received_redirect_uri(
    adas_browser, register, registered, sent, origin
):
    program = register(registered)
    page = adas_browser.get(program.link(redirect_uri=sent or registered, **MODE))
    assert read_message(adas_browser.decide(page))[0] == origin


def test_redirect_uri_of_another_client_is_an_error_page(adas_browser, program, register):
    other = register("https://other.example/callback")
    adas_browser.allow(program)
    assert is_error_page(adas_browser.get(program.link(redirect_uri=other.redirect_uri, **MODE)))


def test_private_use_scheme_has_no_origin_to_post_to(adas_browser, register):
    program = register("org.example.space:/callback", public=True)
    assert is_error_page(adas_browser.get(program.link(**MODE)))


def test_mode_cannot_be_changed_on_the_consent_page(adas_browser, program):
    page = adas_browser.get(program.link(state="s"))
    form = {"request": hidden_field(page, "request"), "decision": "allow", **MODE}
    answer = adas_browser.post("/oauth/authorize?response_mode=web_message", data=form)
    assert program.read_callback(answer)["code"]


def test_mode_survives_another_account_and_a_press_that_was_too_quick(
    adas_browser, program, real_minimum_age
):
    page = adas_browser.get(program.link(**MODE))
    assert "response_mode=web_message" in hidden_field(page, "next")
    again = adas_browser.decide(page)
    assert TOO_QUICK in again.text and "close this window" in again.text


@pytest.mark.parametrize("mode", [None, "", "query"])
def test_query_is_a_redirect_as_no_mode_is(adas_browser, program, mode):
    page = adas_browser.get(program.link(response_mode=mode))
    assert "code" in program.read_callback(adas_browser.decide(page))


@pytest.mark.parametrize(
    "mode", ["form_post", "fragment", "Query", "query web_message", ["query", "web_message"]]
)
def test_mode_that_is_not_announced_is_invalid(adas_browser, program, mode):
    adas_browser.allow(program)
    answer = program.read_callback(adas_browser.get(program.link(response_mode=mode, state="s")))
    assert (answer["error"], answer["state"]) == ("invalid_request", "s")


def test_response_is_text_on_a_page_that_is_not_stored(adas_browser, program):
    state = "\"'></section><script>alert(1)</script>&amp;ü"
    page = adas_browser.decide(adas_browser.get(program.link(**(MODE | {"state": state}))))
    assert "<script>" not in page.text
    assert read_message(page)[1]["state"] == state
    assert page.headers["Cache-Control"] == "no-store"
    policy = page.headers["Content-Security-Policy"]
    assert "frame-ancestors 'none'" in policy and "unsafe" not in policy
