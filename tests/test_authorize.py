"""/oauth/authorize: the player consents, and the client gets a code (RFC 6749 4.1.1, 4.1.2)."""

import html
import itertools
import json
import re
from urllib.parse import quote, urlencode

import pytest
from forms import edit, hidden_field, led_to, parse, problems_of, signed_in
from test_token import CHALLENGE, S256, VERIFIER

from identity.http.stamps import TOO_QUICK
from model.records import ADMINISTRATOR, CLOCK_TOLERANCE, Suspension

CALLBACK = "https://space.example/callback"
EVIL = "https://evil.example/"
STATE = "xyz & ü"


def form_action(page) -> str:
    return re.search("form-action ([^;]*)", page.headers["Content-Security-Policy"])[1]


def page_text(page) -> str:
    """Return the text of a page without markup."""
    return " ".join(html.unescape(re.sub("<[^>]+>", " ", page.text)).split())


def is_error_page(answer) -> bool:
    """Return whether this is the error page for the player, without a redirect."""
    return answer.status_code == 400 and "Location" not in answer.headers and "<h1>" in answer.text


def language_of(page) -> str:
    return parse(page).html["lang"]


def test_pages_have_the_language_that_the_app_asks_for(real_minimum_age, browser, ada, program):
    """OpenID Connect Core 3.1.2.1, here in every request: also pages that a form leads to."""
    link = program.link(scope="email", ui_locales="x-none de-CH fr", state="a")
    address = led_to(browser.get(link))
    assert language_of(browser.get(address)) == "de"
    leads_to = hidden_field(browser.get(address), "next")
    assert language_of(browser.sign_in(password="wrong", next=leads_to)) == "de"
    consent = browser.get(led_to(browser.sign_in(next=leads_to)))
    again = browser.get(hidden_field(consent, "next"))  # as Use another account does
    [form] = parse(consent).select('form[action="/oauth/authorize"]')
    fields = {each["name"]: each["value"] for each in form.select("input")}
    pressed_at_once = browser.post("/oauth/authorize", data=fields | {"decision": "allow"})
    for page in (consent, again, pressed_at_once):
        assert (language_of(page), page.headers["Content-Language"]) == ("de", "de")
    assert language_of(browser.get(program.link())) == "en"


# -- the client and its redirect URI --------------------------------------------------------------


@pytest.mark.parametrize("signed_in", [True, False])
def test_unknown_client_or_uri_is_an_error_page(store, browser, ada, program, register, signed_in):
    """RFC 9700 4.11.2. The same for a client that is disabled."""
    disabled = register("https://off.example/")
    edit(store.clients, disabled.id, disabled=True)
    if signed_in:
        browser.sign_in()
    client_ids = (None, "", "0" * 24, "../users/1", "é\0", [program.id] * 2, disabled.id)
    redirect_uris = (EVIL, [CALLBACK, CALLBACK], [CALLBACK, EVIL])
    for changes in (
        *({"client_id": each} for each in client_ids),
        *({"redirect_uri": each} for each in redirect_uris),
    ):
        for response_type in ("code", "nonsense"):  # other errors are not checked first
            link = program.link(response_type=response_type, **changes)
            assert is_error_page(browser.get(link)), link


def test_damaged_redirect_uri_shows_an_error_page(adas_browser, open_browser, program, faults):
    adas_browser.allow(program)
    damaged = ("com.example.app:/cb", "https://a b.example/", "http://[::1/", "https://a:99999/")
    for uri in damaged:
        faults.change_client(program.id, redirect_uris=[uri])
        links = [program.link(redirect_uri=sent) for sent in (None, uri)]
        for link, browser in itertools.product(links, (adas_browser, open_browser())):
            assert is_error_page(browser.get(link))
            sign_in_page = browser.get(f"/sign-in?{urlencode({'next': link})}")
            assert sign_in_page.status_code in (200, 303)


def test_tester_uri_is_for_managers_only(store, adas_browser, ada, bob, open_browser, register):
    """The player is asked each time, also after a consent."""
    program = register(CALLBACK, owner_id=ada.id)
    program.redirect_uri = f"http://localhost/developer/{program.id}/try/callback"
    for _ in range(2):
        page = adas_browser.get(program.link())
        assert page.status_code == 200
        assert "code" in program.read_callback(adas_browser.decide(page))
    bobs_browser = open_browser()
    assert is_error_page(bobs_browser.get(program.link()))  # nobody is signed in
    bobs_browser.sign_in("Bob")
    assert is_error_page(bobs_browser.get(program.link()))
    other = register(CALLBACK, owner_id=ada.id)
    assert is_error_page(adas_browser.get(other.link(redirect_uri=program.redirect_uri)))
    edit(store.users, bob.id, mod_level=ADMINISTRATOR)
    assert bobs_browser.get(program.link()).status_code == 200


def test_redirect_uri_is_optional_if_one_is_registered(adas_browser, register):
    two = register(CALLBACK, f"{CALLBACK}/2")
    for sent in (None, ""):
        program = register(CALLBACK)
        page = adas_browser.get(program.link(redirect_uri=sent))
        assert program.read_callback(adas_browser.decide(page))["code"]
        assert is_error_page(adas_browser.get(two.link(redirect_uri=sent)))


def test_loopback_redirect_uri_may_have_any_port(adas_browser, register):
    for registered, received in (
        ("http://127.0.0.1/cb", "http://127.0.0.1:50123/cb"),
        ("http://127.0.0.1/cb", "http://127.0.0.1:65535/cb"),
        ("http://127.0.0.1:3000/cb", "http://127.0.0.1/cb"),
        ("http://127.0.0.1:3000/cb?x=1", "http://127.0.0.1:4000/cb?x=1"),
        ("http://[::1]/cb", "http://[::1]:50123/cb"),
        ("http://localhost:3000/cb", "http://localhost:3000/cb"),
    ):
        location = adas_browser.decide(
            adas_browser.get(register(registered).link(redirect_uri=received))
        ).location
        assert location.startswith(received + ("&code=" if "?" in received else "?code="))


def test_redirect_uri_must_match_but_for_the_port_of_a_loopback_address(adas_browser, register):
    """RFC 9700 4.1.3. test_storage_rules.py has many more."""
    link = register(CALLBACK, "http://127.0.0.1/cb").link
    for uri in (
        *(f"{CALLBACK}{end}" for end in ("/", "?", "#", "x", "\n", "\0", "/../callback")),
        *("HTTPS://space.example/callback", "https://space.example:443/callback", "/callback"),
        *("https://space.example\\.evil.example/callback", "https://spаce.example/callback"),
        *("http://127.0.0.1:80@evil.example/cb", "http://localhost:3000/cb", "http://127.1/cb"),
    ):
        assert is_error_page(adas_browser.get(link(redirect_uri=uri))), uri


def test_only_managers_see_redirect_uris_of_an_error(store, browser, ada, bob, register):
    program = register(CALLBACK, "https://second.example/", owner_id=ada.id)

    def check_page(sees: bool) -> None:
        page = browser.get(program.link(redirect_uri="https://evil.example/<script>"))
        assert is_error_page(page)
        for uri in (CALLBACK, "https://second.example/", "https://evil.example/&lt;script&gt;"):
            assert (uri in page.text) == sees
        assert "<script>" not in page.text

    check_page(sees=False)
    browser.sign_in("Ada")
    check_page(sees=True)
    browser.sign_in("Bob")
    check_page(sees=False)
    edit(store.users, bob.id, mod_level=ADMINISTRATOR)
    check_page(sees=True)


def test_client_that_requires_pkce_gets_no_code_without_it(adas_browser, register, store):
    """RFC 9700 2.1.1."""
    program = register(CALLBACK, require_pkce=True)
    error = program.read_error_link(adas_browser.get(program.link()))
    assert error["error"] == "invalid_request"
    code = adas_browser.allow(program, **S256)
    assert program.exchange(code, code_verifier=VERIFIER).status_code == 200
    edit(store.clients, program.id, require_pkce=False)
    code = adas_browser.allow(program)
    edit(store.clients, program.id, require_pkce=True)
    assert program.exchange(code).status_code == 400


def test_client_without_email_gets_none_whoever_asks(adas_browser, register, store):
    """RFC 9700 2.3: a stranger can add the scope to the link of a client."""
    program = register(CALLBACK, no_email=True)
    page = adas_browser.get(program.link(scope="email userinfo"))
    assert "ada@example.org" not in page.text
    token = program.token_for(program.read_callback(adas_browser.decide(page))["code"])
    assert "email" not in program.whois(token).json
    assert "code" in program.read_callback(adas_browser.get(program.link(scope="email")))


def test_no_redirect_to_the_client_before_sign_in(browser, ada, program):
    """RFC 9700 4.11.2. The request continues afterwards."""
    for changes in ({"response_type": "token"}, {"state": ["a", "b"]}, {"state": STATE}):
        answer = browser.get(program.link(**changes))
        assert (answer.status_code, answer.location.partition("?")[0]) == (303, "/sign-in")
    page = browser.get(answer.location)
    assert "Space Game" in page_text(page)
    consent = browser.get(browser.sign_in(next=hidden_field(page, "next")).location)
    assert program.read_callback(browser.decide(consent))["state"] == STATE


# -- errors returned to the client (RFC 6749 4.1.2.1) ---------------------------------------------

CHALLENGES = (None, "", CHALLENGE[:-1], CHALLENGE + "=", "é" * 43, [CHALLENGE] * 2)
TYPES = ("token", "code token", "Code")
REQUEST_ERRORS = {  # parameters by the error that they cause
    "unsupported_response_type": [{"response_type": each} for each in TYPES],
    "invalid_request": [
        *({"response_type": each} for each in (None, "", ["code", "code"])),
        {"scope": ["email", "userinfo"]},
        # Without a method, it would be plain.
        *(S256 | {"code_challenge_method": each} for each in (None, "plain", "s256", ["S256"] * 2)),
        *(S256 | {"code_challenge": each} for each in CHALLENGES),
    ],
}


@pytest.mark.parametrize("consented", [False, True])
def test_request_errors_are_returned_to_the_client_with_state(adas_browser, program, consented):
    """RFC 9700 2.1.1 and 2.1.2. Before consent the player follows a link (RFC 9700 4.11.2)."""
    if consented:
        adas_browser.allow(program)
    read_answer = program.read_callback if consented else program.read_error_link
    for error, requests in REQUEST_ERRORS.items():
        for changes in requests:
            answer = read_answer(adas_browser.get(program.link(state=STATE, **changes)))
            description = answer.pop("error_description")
            assert answer == {"error": error, "state": STATE}, changes
            # RFC 6749 4.1.2.1 excludes quotes, backslashes and all non-ASCII characters.
            assert re.fullmatch(r"[\x20-\x21\x23-\x5b\x5d-\x7e]+", description)
    repeated_state = read_answer(adas_browser.get(program.link(state=["a", "b"])))
    assert repeated_state["error"] == "invalid_request"


def test_request_error_before_consent_redirects_nobody(adas_browser, register):
    """RFC 9700 4.11.2: otherwise a link to this server would lead to any site of a member."""
    program = register(CALLBACK, name="<b>Space</b> Game")
    page = adas_browser.get(program.link(response_type="x", state='"><script>'))
    assert is_error_page(page)
    assert "<b>Space" not in page.text
    assert "<script>" not in page.text
    problem = "<b>Space</b> Game sent a request that does not work. Tell its developer:"
    assert problem in html.unescape(page.text) and "response_type must be code." in page.text
    assert "Continue to space.example" in page_text(page)


STATES = [
    *("", " ", "a b", "a+b", "a%20b", "%", "a&code=x&b", "a=b", "#x", "?", '"><script>', "é✓𝄞"),
    *("a\nb", "\0", "x" * 3000, "&amp;", "'", "\\", "%2525", "\u202e"),
]


def test_state_is_returned_unchanged_with_the_code(open_browser, ada, bob, program):
    """RFC 9700 4.7.1. Also with a refusal, an error and a remembered consent."""
    bobs_browser = signed_in(open_browser(), "Bob")
    for state in STATES:
        browser = open_browser()
        asked = browser.get(program.link(state=state, prompt="consent"))
        sign_in_page = browser.get(asked.location)
        page = browser.get(browser.sign_in(next=hidden_field(sign_in_page, "next")).location)
        wrong_link = program.link(state=state, response_type="x")
        answers = [
            *(browser.decide(page, "deny"), browser.decide(page)),
            *(browser.get(program.link(state=state)), browser.get(wrong_link)),
        ]
        states = [program.read_callback(answer)["state"] for answer in answers]
        states.append(program.read_error_link(bobs_browser.get(wrong_link))["state"])
        assert states == [state] * 5


def test_unknown_scopes_are_ignored(store, adas_browser, ada, register):
    for with_email, scopes in (
        (False, (None, "", "userinfo", "EMAIL", "email,userinfo", "emails admin")),
        (True, ("email", "email userinfo", "openid profile email", "email email")),
    ):
        for asked in scopes:
            program = register(CALLBACK)
            token = program.token_for(adas_browser.allow(program, scope=asked))
            granted = ["userinfo", "email"] if with_email else ["userinfo"]
            assert store.users.read(ada.id).grants[program.id].scope == granted
            assert ("email" in program.whois(token).json) == with_email


# -- the consent page -----------------------------------------------------------------------------


def test_consent_page_names_client_owner_and_redirect_host(adas_browser, bob, register):
    program = register("https://space.example:8443/callback", owner_id=bob.id)
    page = adas_browser.get(program.link())
    text = page_text(page)
    assert "Space Game wants to know who you are" in text
    assert f"Registered by the player Bob , player id {bob.id}." in text
    assert "space.example:8443" in text
    assert "Signed in as Ada" in text
    assert "access lasts until you remove it on your apps ." in text
    buttons = re.findall(r'<button name="decision" value="(\w+)"[^>]*>(\w+)</button>', page.text)
    assert buttons == [("allow", "Allow"), ("deny", "Cancel")]
    assert "ada@example.org" not in text
    assert "ada@example.org" in page_text(adas_browser.get(program.link(scope="email")))


def test_page_says_who_registered_a_client(adas_browser, store, bob, register, faults):
    """No name imitates them: they have the id, and a link to the profile."""
    program = register(CALLBACK, owner_id=bob.id)
    link = f'<a href="/users/{bob.id}" target="_blank" rel="noopener"><bdi class="name">'
    for name in ("the people of this site", "a player who left", "player Ada id 1"):
        store.users.rename(bob.id, name)
        page = adas_browser.get(program.link())
        assert f"Registered by the player {name} , player id {bob.id}." in page_text(page)
        assert f"{link}{name}<" in page.text
    for lose in (faults.damage_user, faults.remove_user):
        lose(bob.id)
        words = f"Registered by player {bob.id}, who left or whose record is damaged."
        assert words in page_text(adas_browser.get(program.link()))
    administrators = "Registered by the administrators of Identity Server"
    assert administrators in page_text(adas_browser.get(register(CALLBACK).link()))


def test_client_name_is_escaped(adas_browser, register):
    name = "<b>\"Evil\" & 'Co'</b>"
    program = register(CALLBACK, name=name)
    consent = adas_browser.get(program.link())
    adas_browser.post("/sign-out")
    for page in (consent, adas_browser.get(adas_browser.get(program.link()).location)):
        assert "<b>" not in page.text
        assert name in html.unescape(page.text)


def test_use_another_account_continues_the_request(adas_browser, bob, program):
    page = adas_browser.get(program.link(state=STATE))
    signed_out = adas_browser.post("/sign-out", data={"next": hidden_field(page, "next")})
    sign_in_page = adas_browser.get(adas_browser.get(signed_out.location).location)
    signed_in = adas_browser.sign_in("Bob", next=hidden_field(sign_in_page, "next"))
    answer = program.read_callback(adas_browser.decide(adas_browser.get(signed_in.location)))
    assert answer["state"] == STATE
    assert program.whois(program.token_for(answer["code"])).json["name"] == "Bob"


# -- remembered consent ---------------------------------------------------------------------------


def test_consent_is_per_player_and_client(adas_browser, open_browser, bob, program, register):
    adas_browser.allow(program)
    adas_browser.sign_in()  # also in a new session
    other_address = program.link().replace("/oauth/authorize", "/oauth")
    for link in (program.link(), other_address):
        assert program.read_callback(adas_browser.get(link))["code"]
    assert adas_browser.get(register("https://other.example/").link()).status_code == 200
    assert signed_in(open_browser(), "Bob").get(program.link()).status_code == 200


def test_new_scope_or_known_prompt_needs_consent_again(store, adas_browser, program, ada):
    """Others are ignored; an answer to `none` would redirect a player who pressed nothing."""
    narrow_page = adas_browser.get(program.link())
    adas_browser.allow(program)
    page = adas_browser.get(program.link(scope="email"))
    assert page.status_code == 200
    adas_browser.decide(page, "deny")
    assert adas_browser.get(program.link(scope="email")).status_code == 200
    assert adas_browser.get(program.link()).status_code == 303
    adas_browser.allow(program, scope="email")
    for scope in ("email", "userinfo", None):
        assert adas_browser.get(program.link(scope=scope)).status_code == 303
    token = program.token_for(program.read_callback(adas_browser.decide(narrow_page))["code"])
    assert "email" not in program.whois(token).json
    assert store.users.read(ada.id).grants[program.id].scope == ["userinfo", "email"]
    adas_browser.allow(program)
    for prompt in ("consent", "login", "select_account", "none x login"):
        assert "Use another account" in adas_browser.get(program.link(prompt=prompt)).text
    for prompt in (None, "", "none", "x", "Login"):
        link = program.link(prompt=prompt, resource=["https://a.example", "https://b.example"])
        assert "code" in program.read_callback(adas_browser.get(link))


# -- the signed consent request -------------------------------------------------------------------


@pytest.fixture
def page(adas_browser, program):
    return adas_browser.get(program.link(state=STATE))


@pytest.fixture
def check_refused(store, ada):
    """A function that checks that a response has this status, no redirect, and left no grant."""

    def check_refused(answer, status: int = 400) -> None:
        assert (answer.status_code, answer.location) == (status, None)
        assert store.users.read(ada.id).grants == {}

    return check_refused


def test_denial_is_not_remembered_and_writes_nothing(page, adas_browser, program, faults):
    faults.refuse_saves("everything")
    answer = program.read_callback(adas_browser.decide(page, "deny"))
    assert answer.pop("error_description")
    assert answer == {"error": "access_denied", "state": STATE}
    assert adas_browser.get(program.link()).status_code == 200


def test_forged_or_incomplete_decision_is_400(page, adas_browser, open_browser, check_refused):
    """The page of another session, a changed request, and no decision or an unknown one."""
    other_browser = signed_in(open_browser())
    check_refused(other_browser.decide(page))
    signed = hidden_field(page, "request")
    for forged in ("", "x", signed[1:], signed[:-1], signed.swapcase()):
        form = {"request": forged, "decision": "allow"}
        check_refused(adas_browser.post("/oauth/authorize", data=form))
    for decision in ("", "Allow", "yes", "allow ", "cancel"):
        check_refused(adas_browser.decide(page, decision))
    for address in ("/oauth/authorize", "/oauth/authorize?decision=allow"):
        check_refused(adas_browser.post(address, data={"request": signed}))


def test_consent_page_after_ten_minutes_is_400(clock, page, adas_browser, program, check_refused):
    clock.shift(601)
    check_refused(adas_browser.decide(page))
    clock.shift(-1)
    assert program.read_callback(adas_browser.decide(page))["code"]


@pytest.mark.parametrize("decision", ["allow", "deny"])
def test_decision_in_the_first_second_does_not_count(
    clock, real_minimum_age, page, adas_browser, program, decision, check_refused
):
    """RFC 9700 4.16: a double click, of which the first click opened the page.

    In a window that was opened from a sandboxed frame no script of ours could ignore it.
    """
    for seconds in (0, 0.5, 0.999):
        clock.shift(seconds)
        again = adas_browser.decide(page, decision)
        check_refused(again)
        assert problems_of(again) == {"form": TOO_QUICK}
        assert "<title>Problem: " in again.text
        assert form_action(again) == form_action(page)
        page = again
    clock.shift(1)
    answer = program.read_callback(adas_browser.decide(page, decision))
    assert (("code" in answer), answer["state"]) == (decision == "allow", STATE)


def test_quick_press_keeps_the_request(clock, real_minimum_age, adas_browser, program):
    """Use another account leads to it as well."""
    link = program.link(state="", scope="email", **S256)
    page = adas_browser.decide(adas_browser.get(link))
    assert "ada@example.org" in page.text
    again = adas_browser.get(hidden_field(page, "next"))
    clock.shift(1)
    for each in (page, again):
        answer = program.read_callback(adas_browser.decide(each))
        assert answer["state"] == ""
        assert program.exchange(answer["code"]).status_code == 400  # lacks the PKCE verifier


def test_clock_set_back_does_not_lock_the_consent_page(
    clock, real_minimum_age, adas_browser, program, check_refused
):
    """Up to CLOCK_TOLERANCE the page may be of another machine, where it was shown before."""
    clock.shift(7200)  # otherwise the session would be from the future, too
    page = adas_browser.get(program.link())
    clock.shift(-CLOCK_TOLERANCE)
    assert program.read_callback(adas_browser.decide(page, "deny"))["error"] == "access_denied"
    clock.shift(-3600)
    again = adas_browser.decide(page)
    check_refused(again)
    clock.shift(1)
    assert program.read_callback(adas_browser.decide(again))["code"]


def test_parameters_beside_the_signed_request_are_ignored(adas_browser, page, program, register):
    other = register("https://other.example/")
    query = {"client_id": other.id, "redirect_uri": other.redirect_uri}
    form = {"request": hidden_field(page, "request"), "decision": "allow", "state": "other"}
    form |= {**query, "scope": "email"}
    answer = adas_browser.post(f"/oauth/authorize?{urlencode(query)}", data=form)
    answer = program.read_callback(answer)
    assert answer["state"] == STATE
    assert "email" not in program.whois(program.token_for(answer["code"])).json


def test_consent_after_suspension_or_sign_out_is_403(store, page, ada, adas_browser, check_refused):
    edit(store.users, ada.id, suspension=Suspension("command"))
    check_refused(adas_browser.decide(page), 403)
    edit(store.users, ada.id, suspension=None)
    adas_browser.post("/sign-out")
    check_refused(adas_browser.decide(page), 403)


@pytest.mark.parametrize("change", ["redirect URI withdrawn", "disabled", "deleted"])
def test_changed_client_gets_no_code(store, page, adas_browser, program, change, check_refused):
    if change == "deleted":
        store.clients.delete(program.id)
    else:
        with store.clients.edit(program.id) as client:
            client.disabled = change == "disabled"
            client.redirect_uris = ["https://new.example/"]
    for decision in ("allow", "deny"):
        check_refused(adas_browser.decide(page, decision))


# -- the code and the redirect --------------------------------------------------------------------


def test_callback_is_303_and_keeps_the_redirect_uri(adas_browser, program, register):
    """Auth.js refuses `iss` unless it was told the issuer; identity.js names the response mode."""
    page = adas_browser.get(program.link())
    error = {"error", "error_description"}
    for answer, parameters in (
        (adas_browser.decide(page, "deny"), error),
        (adas_browser.decide(page), {"code"}),
        (adas_browser.get(program.link()), {"code"}),
        (adas_browser.get(program.link(response_type="x")), error),
    ):
        query = program.read_callback(answer)
        assert query.keys() == parameters  # no state was sent
        assert re.fullmatch("[A-Za-z0-9_-]{43}", query.get("code", "-" * 43))
        assert (answer.status_code, answer.headers["Cache-Control"]) == (303, "no-store")
    answer = program.read_callback(adas_browser.get(program.link(response_mode="query")))
    assert answer["iss"] == "http://localhost"
    for uri in (
        *("https://a.example/cb?x=1&y=%20+b", "https://a.example/cb?code=mine"),
        *("https://a.example", "https://a.example:/", "https://a.example/%E2%9C%93"),
        "https://a.example/a;b=(c),$!*",
        *("https://a.example/?a[]=1&b=%5B", "https://A.Example:443/CB", "http://127.0.0.1:00080/"),
    ):
        location = adas_browser.decide(adas_browser.get(register(uri).link())).location
        assert location.startswith(uri + ("&code=" if "?" in uri else "?code="))


# -- form-action (CSP) ----------------------------------------------------------------------------


def test_form_action_allows_the_client_origin_and_scheme(open_browser, ada, register):
    for uri, target in (
        ("https://space.example/callback?x=1", "https://space.example https:"),
        ("https://space.example:443/", "https://space.example https:"),
        ("https://Space.Example:8443/", "https://space.example:8443 https:"),
        ("http://game.example/", "http://game.example http:"),
        ("http://localhost:3000/cb", "http://localhost:3000 http:"),
        ("http://127.0.0.1/cb", "http://127.0.0.1 http:"),
        ("http://[::1]:3000/cb", "http://[::1]:3000 http:"),
        ("https://a.example/;script-src%20*;x=,none", "https://a.example https:"),
        ("http://127.0.0.1.example/", "http://127.0.0.1.example http:"),
    ):
        browser, program = open_browser(), register(uri)
        sign_in_page = browser.get(browser.get(program.link()).location)
        next_address = hidden_field(sign_in_page, "next")
        refused = browser.sign_in(program.id, next=next_address)
        consent = browser.get(browser.sign_in(next=next_address).location)
        default_uri = browser.get(program.link(redirect_uri=None))
        for page in (sign_in_page, refused, consent, default_uri):
            assert form_action(page) == f"'self' {target}"


def test_unregistered_uri_is_not_in_the_csp(browser, program):
    link = f"/oauth/authorize?client_id={program.id}"
    for next_address in (
        *(f"{link}&redirect_uri=https://evil.example/", f"{link}&client_id={program.id}"),
        f"{link}&redirect_uri=https://space.example@evil.example/callback",
        *("/oauth/authorize?client_id=https://evil.example", "/oauth/authorize?client_id=%FF%00"),
        *(link.replace("authorize", "authorizex"), link.replace("/oauth/authorize", "/"), ""),
        *(f"//evil.example{link}", f"https://evil.example{link}"),
    ):
        for answer in (
            browser.get(f"/sign-in?next={quote(next_address)}"),
            browser.get(next_address if next_address.startswith("/oauth") else "/"),
            browser.sign_in(password="wrong", next=next_address),
        ):
            assert form_action(answer) == "'self'", next_address


def test_head_request_creates_no_code(adas_browser, program, faults):
    """RFC 9110 9.2.1: HEAD is a safe method."""
    adas_browser.allow(program)
    faults.refuse_saves("codes")
    answer = adas_browser.head(program.link())
    assert (answer.status_code, answer.location) == (200, None)


# -- failing saves and damaged records ------------------------------------------------------------


def test_unsaved_consent_or_code_is_server_error(store, page, ada, adas_browser, program, faults):
    faults.refuse_saves("users")
    expected = {"error": "server_error", "state": STATE}
    answer = program.read_callback(adas_browser.decide(page))
    assert answer.pop("error_description") and answer == expected
    assert store.users.read(ada.id).grants == {}
    faults.allow_saves()
    faults.refuse_saves("codes")
    asked = program.read_callback(adas_browser.decide(page))
    assert asked == program.read_callback(adas_browser.get(program.link(state=STATE)))
    assert asked.pop("error_description") and asked == expected


def test_damaged_client_or_user_is_503(page, ada, adas_browser, program, register, faults):
    other = register("https://other.example/")
    faults.damage_client(program.id, "empty")
    for answer in (adas_browser.get(program.link()), adas_browser.decide(page)):
        assert (answer.status_code, "Location" in answer.headers) == (503, False)
    assert adas_browser.get(other.link()).status_code == 200
    faults.damage_user(ada.id, "empty")
    for link in (other.link(), other.link(redirect_uri="https://evil.example/")):
        assert adas_browser.get(link).status_code == 503


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
