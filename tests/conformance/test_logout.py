"""The plan "RP-Initiated OP" (oidcc-rp-initiated-logout-certification-test-plan): 11 modules."""

from urllib.parse import parse_qsl

import pytest
from conftest import on_each_backend
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
from cryptography.hazmat.primitives.hashes import SHA256
from forms import is_signed_in, parse
from werkzeug.test import TestResponse

from conformance.relying_party import AFTER_LOGOUT, LONG_STATE, RelyingParty, encode

pytestmark = on_each_backend


@pytest.fixture
def hint(party) -> str:
    """The ID token of the player who has signed in."""
    return party.sign_in().tokens["id_token"]


def log_out(party: RelyingParty, hint: str | None, uri: str | None = AFTER_LOGOUT, **more: str):
    """Follow the program's link to the logout endpoint."""
    asked = {"id_token_hint": hint, "post_logout_redirect_uri": uri, **more}
    return party.visit(asked, "end_session_endpoint")


def check_signed_out(party: RelyingParty) -> None:
    """Check, as the plan does, that the program gets no code without a page any more."""
    assert party.ask_for_error(prompt="none", state=LONG_STATE) == "login_required"


def check_refused(party: RelyingParty, page: TestResponse) -> None:
    """Check that an error page redirects nobody, links nowhere and signs nobody out."""
    assert (page.status_code, page.location) == (400, None)
    assert ("forum.example" in page.text, is_signed_in(party.browser)) == (False, True)


def check_signed_out_here(party: RelyingParty, page: TestResponse) -> None:
    """Check that the player is signed out, and that the page redirects nobody and links nowhere."""
    assert (page.status_code, page.location) == (200, None)
    assert "forum.example" not in page.text
    check_signed_out(party)


def confirm(party: RelyingParty, page: TestResponse) -> None:
    """Press the button of a page that asks; the player is signed out, and stays on this site."""
    assert (page.status_code, is_signed_in(party.browser)) == (200, True)
    [form] = parse(page).select("main form")
    fields = {each["name"]: each["value"] for each in form.select("[name]")}
    assert party.browser.post(form["action"], data=fields).status_code == 200
    check_signed_out(party)


def test_oidcc_rp_initiated_logout_discovery_endpoint_verification(party):
    """The discovery document has `end_session_endpoint`; test_config.py checks the https."""
    assert party.path_of("end_session_endpoint").startswith("/")


def test_oidcc_rp_initiated_logout(party, hint):
    """The player is signed out and taken to the registered address, with `state` unchanged."""
    address, _, query = log_out(party, hint, state=LONG_STATE).location.partition("?")
    assert (address, parse_qsl(query)) == (AFTER_LOGOUT, [("state", LONG_STATE)])
    check_signed_out(party)


def test_oidcc_rp_initiated_logout_bad_post_logout_redirect_uri(party, hint):
    """An address that is not registered is not called; the player is signed out."""
    check_signed_out_here(party, log_out(party, hint, "https://forum.example/other"))


def test_oidcc_rp_initiated_logout_modified_id_token_hint(party, hint):
    """A hint that was changed to the algorithm `none` gets an error page."""
    unsigned = f"{encode({'alg': 'none'})}.{hint.split('.')[1]}."
    check_refused(party, log_out(party, unsigned))


def test_oidcc_rp_initiated_logout_no_id_token_hint(party, hint):
    """An address without a hint: the player is asked, and not taken there."""
    confirm(party, log_out(party, None))


def test_oidcc_rp_initiated_logout_no_params(party, hint):
    """Nothing at all: the player is asked."""
    confirm(party, log_out(party, None, None))


def test_oidcc_rp_initiated_logout_no_post_logout_redirect_uri(party, hint):
    """A hint without an address: the player is signed out, and stays on this site."""
    assert log_out(party, hint, None, state=LONG_STATE).status_code == 200
    check_signed_out(party)


def test_oidcc_rp_initiated_logout_no_state(party, hint):
    """Without `state`, the registered address is called as it is."""
    assert log_out(party, hint).location == AFTER_LOGOUT
    check_signed_out(party)


def test_oidcc_rp_initiated_logout_only_state(party, hint):
    """Only `state`: the player is asked."""
    confirm(party, log_out(party, None, None, state=LONG_STATE))


def test_oidcc_rp_initiated_logout_query_added_to_post_logout_redirect_uri(party, hint):
    """The registered address with a query is another address."""
    check_signed_out_here(party, log_out(party, hint, f"{AFTER_LOGOUT}?foo=bar"))


def test_oidcc_rp_initiated_logout_bad_id_token_hint(party):
    """A hint that the program signed itself: an error, and no hint if its `kid` is unknown."""
    done, key = party.sign_in(), rsa.generate_private_key(3, 2048)  # another than the server's
    for kid, check in ((done.header["kid"], check_refused), ("of the program", confirm)):
        signed = encode(done.header | {"kid": kid}, done.claims)
        signature = encode(key.sign(signed.encode(), PKCS1v15(), SHA256()))
        check(party, log_out(party, f"{signed}.{signature}"))
