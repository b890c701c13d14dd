"""The plan "Basic OP" (oidcc-basic-certification-test-plan): its 38 modules, in the plan's order.

"Core" is OpenID Connect Core 1.0. Of what it leaves to the server, `request` and `request_uri` are
refused; `claims`, `display`, `ui_locales`, `claims_locales`, `acr_values` and unknown scopes are
ignored; there are no unsigned ID tokens.
"""

import json
import re

import pytest
from conftest import FOREIGN_LINK, on_each_backend
from cryptography.exceptions import InvalidSignature
from test_token import S256, VERIFIER

from conformance.relying_party import LONG_STATE, RelyingParty, SignIn, encode, read_error

pytestmark = on_each_backend

BOTH_PAGES = ["sign-in", "consent"]


def test_relying_party_refuses_what_was_changed(party):
    """Negative control of the checks that these tests make."""
    done = party.sign_in()
    nonce, (_, payload, signature) = done.claims["nonce"], done.tokens["id_token"].split(".")
    other_player = f"{encode(done.header, done.claims | {'sub': '2'})}.{signature}"
    unsigned = f"{encode(done.header | {'alg': 'none'})}.{payload}."
    for changes in ({"id_token": other_player}, {"id_token": unsigned}, {"access_token": "x"}):
        with pytest.raises((AssertionError, InvalidSignature)):
            party.verify(done.tokens | changes, nonce)
    with pytest.raises(AssertionError):
        party.verify(done.tokens, "of another request")


def test_oidcc_server(party, ada):
    """The code flow: a valid ID token, a code of at least 128 bits, no claim without its scope."""
    done = party.sign_in()
    assert (done.pages, done.claims["sub"]) == (BOTH_PAGES, str(ada.id))
    assert len(done.code) * 6 >= 128 and {"name", "email"}.isdisjoint(done.claims)


def test_oidcc_response_type_missing(party):
    """An error, by a redirect once the player allowed the client."""
    party.sign_in()
    assert party.ask_for_error(response_type=None) == "invalid_request"


def test_oidcc_idtoken_signature(party):
    """The default algorithm is RS256, and `kid` names a published key: `verify` looks it up."""
    assert party.sign_in().header["alg"] == "RS256"


def test_oidcc_idtoken_unsigned(party):
    """Skipped by the plan if the discovery document does not list `none`."""
    assert party.metadata["id_token_signing_alg_values_supported"] == ["RS256"]


def test_oidcc_userinfo_get(party, ada):
    """GET with the token in the header answers with `sub`."""
    assert party.sign_in().userinfo["sub"] == str(ada.id)


def test_oidcc_userinfo_post_header(party):
    """POST with the token in the header answers as GET does."""
    done = party.sign_in()
    assert party.ask_userinfo(done.tokens, "POST").json == done.userinfo


def test_oidcc_userinfo_post_body(party):
    """POST with the token in the form (RFC 6750 2.2) answers as GET does."""
    done = party.sign_in()
    path, form = party.path_of("userinfo_endpoint"), {"access_token": done.tokens["access_token"]}
    assert party.http.post(path, data=form).json == done.userinfo


def test_oidcc_ensure_request_without_nonce_succeeds_for_code_flow(party):
    """The code flow needs no nonce, and then the ID token has none."""
    assert "nonce" not in party.sign_in(nonce=None).claims


def test_oidcc_scope_profile(party, ada):
    """The claims of the profile that the server knows (Core 5.4)."""
    done = party.sign_in(scope="openid profile")
    for claims in (done.userinfo, done.claims):
        assert (claims["name"], claims["preferred_username"]) == (ada.name, "ada")
        assert all(type(claims[name]) is str for name in ("nickname", "picture", "profile"))


def test_oidcc_scope_email(party, ada):
    """`email` and `email_verified`."""
    done = party.sign_in(scope="openid email")
    for claims in (done.userinfo, done.claims):
        assert (claims["email"], claims["email_verified"]) == (ada.email, False)


def test_oidcc_scope_address(party):
    """Skipped by the plan if the discovery document does not list the scope; it is ignored."""
    assert "address" not in party.metadata["scopes_supported"]
    assert party.sign_in(scope="openid address").tokens["scope"] == "openid"


def test_oidcc_scope_phone(party):
    """Skipped by the plan if the discovery document does not list the scope; it is ignored."""
    assert "phone" not in party.metadata["scopes_supported"]
    assert party.sign_in(scope="openid phone").tokens["scope"] == "openid"


def test_oidcc_scope_all(party, ada):
    """All scopes of Core 5.4 at once: those that the server has are granted, and named."""
    done = party.sign_in(scope="openid profile email address phone")
    assert done.tokens["scope"] == "openid profile email"
    assert (done.userinfo["name"], done.userinfo["email"]) == (ada.name, ada.email)


def test_oidcc_ensure_other_scope_order_succeeds(party, ada):
    """`email openid` is `openid email` (RFC 6749 3.3)."""
    done = party.sign_in(scope="email openid")
    assert (done.claims["email"], "scope" in done.tokens) == (ada.email, False)


def test_oidcc_display_page(party):
    """`display=page` leads to no error."""
    assert party.sign_in(display="page").pages == BOTH_PAGES


def test_oidcc_display_popup(party):
    """`display=popup` leads to no error."""
    assert party.sign_in(display="popup").pages == BOTH_PAGES


def sign_in_again(party: RelyingParty, clock, first: SignIn, **second: str | int) -> tuple:
    """Return the pages of a sign-in 2 seconds after another, and how much later `auth_time` is."""
    clock.shift(2)
    done = party.sign_in(**second)
    assert done.claims["sub"] == first.claims["sub"]
    return done.pages, done.claims["auth_time"] - first.claims["auth_time"]


def test_oidcc_prompt_login(party, clock):
    """The signed-in player has to type the password again, once."""
    assert sign_in_again(party, clock, party.sign_in(), prompt="login") == (["sign-in"], 2)


def test_oidcc_prompt_none_not_logged_in(party):
    """Without a session: an error that says so, with the state unchanged, and no page."""
    assert party.ask_for_error(prompt="none", state=LONG_STATE) == "login_required"


def test_oidcc_prompt_none_logged_in(party, clock):
    """With a session and consent: a code without a page."""
    assert sign_in_again(party, clock, party.sign_in(), prompt="none") == ([], 0)


def test_oidcc_max_age_1(party, clock):
    """A sign-in that is older than max_age is repeated."""
    assert sign_in_again(party, clock, party.sign_in(), max_age=1) == (["sign-in"], 2)


def test_oidcc_max_age_10000(party, clock):
    """A sign-in that is younger than max_age is enough."""
    assert sign_in_again(party, clock, party.sign_in(max_age=15000), max_age=10000) == ([], 0)


def test_oidcc_ensure_request_with_unknown_parameter_succeeds(party):
    """An unknown parameter is ignored (RFC 6749 3.1)."""
    assert party.sign_in(extra="foobar").pages == BOTH_PAGES


def test_oidcc_id_token_hint(party, clock):
    """prompt=none with the ID token of the signed-in player: a code without a page."""
    first = party.sign_in()
    asked = {"prompt": "none", "id_token_hint": first.tokens["id_token"]}
    assert sign_in_again(party, clock, first, **asked) == ([], 0)


def test_oidcc_login_hint(party, browser, ada):
    """`login_hint` leads to no error: the sign-in page has it as the name."""
    asked = party.request(login_hint=ada.email)
    page = browser.get(party.visit(asked).location)
    assert f'value="{ada.email}"' in page.text
    assert party.complete(page, asked).claims["sub"] == str(ada.id)


def test_oidcc_ui_locales(party):
    """`ui_locales` leads to no error."""
    assert party.sign_in(ui_locales="se").pages == BOTH_PAGES


def test_oidcc_claims_locales(party):
    """`claims_locales` leads to no error."""
    assert party.sign_in(claims_locales="se").pages == BOTH_PAGES


def test_oidcc_ensure_request_with_acr_values_succeeds(party):
    """`acr_values` leads to no error; the server promises no authentication class."""
    assert "acr_values_supported" not in party.metadata
    assert "acr" not in party.sign_in(acr_values="1 2").claims


def test_oidcc_codereuse(party):
    """A code works once; the second use is refused as RFC 6749 5.2 says."""
    answer = party.exchange(party.sign_in().code)
    assert (answer.status_code, read_error(answer.json)) == (400, "invalid_grant")


def test_oidcc_codereuse_30seconds(party, clock):
    """After 30 seconds too, and the token of the first use ends (RFC 6749 4.1.2)."""
    done = party.sign_in()
    clock.shift(30)
    assert read_error(party.exchange(done.code).json) == "invalid_grant"
    assert party.ask_userinfo(done.tokens).status_code == 401


def test_oidcc_ensure_registered_redirect_uri(party):
    """An unregistered redirect URI gets an error page, never a redirect."""
    party.sign_in()
    page = party.visit(party.request(redirect_uri="https://forum.example/callback/other"))
    assert (page.status_code, page.location) == (400, None)


def test_oidcc_ensure_post_request_succeeds(party):
    """The request as a form of the program's site (Core 3.1.2.1), with which no cookie comes."""
    asked, path = party.request(), party.path_of("authorization_endpoint")
    answer = party.http.post(path, data=asked, headers=FOREIGN_LINK)
    assert (answer.status_code, party.complete(answer, asked).pages) == (303, BOTH_PAGES)


def test_oidcc_server_client_secret_post(party, ada):
    """The token request with id and secret in the form (Core 9)."""
    party.token_request = {"client_id": party.program.id, "client_secret": party.program.secret}
    assert party.sign_in().claims["sub"] == str(ada.id)


def test_oidcc_request_uri_unsigned_supported_correctly_or_rejected_as_unsupported(party):
    """A request object at an address is refused (Core 3.1.2.6); nothing is fetched."""
    party.sign_in()
    request_uri = "https://forum.example/request.jwt"
    assert party.ask_for_error(request_uri=request_uri, state=None) == "request_uri_not_supported"


def test_oidcc_unsigned_request_object_supported_correctly_or_rejected_as_unsupported(party):
    """A request object in the request is refused (Core 3.1.2.6), never ignored."""
    party.sign_in()
    asked = {"state": None, "request": f"{encode({'alg': 'none'}, party.request())}."}
    assert party.ask_for_error(**asked) == "request_not_supported"


def test_oidcc_claims_essential(party, ada):
    """An essential `name` for userinfo leads to no error, and userinfo has it (Core 5.5)."""
    done = party.sign_in(claims=json.dumps({"userinfo": {"name": {"essential": True}}}))
    assert (done.userinfo["name"], "name" in done.claims) == (ada.name, False)


def test_oidcc_ensure_request_object_with_redirect_uri(party):
    """A wrong redirect URI beside a request object with the right one: neither gets a code."""
    party.sign_in()  # from now on the player is not asked
    asked = {"request": f"{encode({'alg': 'none'}, party.request())}."}
    page = party.visit(party.request(redirect_uri="https://forum.example/other", **asked))
    assert (page.status_code, page.location) == (400, None)


def test_oidcc_refresh_token(party, register, clock):
    """Two clients refresh (Core 12), the first one with a scope; each has a token of its own."""
    assert "refresh_token" in party.metadata["grant_types_supported"]
    second = RelyingParty(register("https://wiki.example/callback"), party.browser)
    for each, sent in ((party, {"scope": "openid offline_access"}), (second, {})):
        done = each.sign_in(scope="openid offline_access", prompt="consent")
        clock.shift(1)
        answer = each.refresh(done.tokens, **sent)
        assert (answer.status_code, answer.content_type) == (200, "application/json")
        assert answer.headers["Cache-Control"] == "no-store"
        tokens = answer.json
        _, claims = each.verify(tokens, nonce=None)
        same = ("iss", "sub", "aud", "auth_time")  # 12.2
        assert [claims[name] for name in same] == [done.claims[name] for name in same]
        assert claims["iat"] == done.claims["iat"] + 1
        assert each.ask_userinfo(tokens).json["sub"] == claims["sub"]
        for given in (done.tokens, tokens):
            assert re.fullmatch(r"[!-~]{22,}", given["refresh_token"])  # RFC 6749 A.17 and 10.10
        assert tokens["access_token"] != done.tokens["access_token"]
    refused = party.refresh(tokens)
    assert (refused.status_code, read_error(refused.json)) == (400, "invalid_grant")
    assert second.refresh(tokens).status_code == 200


def test_oidcc_ensure_request_with_valid_pkce_succeeds(party, ada):
    """PKCE (RFC 7636) beside the nonce leads to no error."""
    party.token_request = {"code_verifier": VERIFIER}
    assert party.sign_in(**S256).claims["sub"] == str(ada.id)
