"""The plan "Back-Channel OP" (oidcc-backchannel-rp-initiated-logout-certification-test-plan)."""

from urllib.parse import parse_qsl

import test_logout_channel
from conftest import on_each_backend
from joserfc import jwt
from joserfc.jwk import KeySet
from test_logout_channel import SITE, WIKI, id_token

from conformance.relying_party import AFTER_LOGOUT, LONG_STATE
from identity.messages.outbox import Sender
from identity.oauth.logout_channel import EVENT, Logouts

pytestmark = on_each_backend
receiver = test_logout_channel.receiver


def test_oidcc_backchannel_logout_discovery_endpoint_verification(party):
    """The discovery document has both flags, and where to sign out."""
    names = ("backchannel_logout_supported", "backchannel_logout_session_supported")
    assert [party.metadata[each] for each in names] == [True, True]
    assert party.path_of("end_session_endpoint").startswith("/")


def test_oidcc_backchannel_rp_initiated_logout(party, store, receiver, register):
    """The program gets a logout token of its session, and the player is signed out.

    In the plan the program itself asks. Here the one that asks knows already, so another one does.
    """
    with store.clients.edit(party.program.id) as client:
        client.owner_id, client.backchannel_logout_uri = None, receiver.url
    claims = party.sign_in().claims
    wiki = register(WIKI, post_logout_redirect_uris=[AFTER_LOGOUT])
    asked = {"id_token_hint": id_token(wiki, party.browser), "state": LONG_STATE}
    asked |= {"post_logout_redirect_uri": AFTER_LOGOUT}
    address, _, query = party.visit(asked, "end_session_endpoint").location.partition("?")
    assert (address, parse_qsl(query)) == (AFTER_LOGOUT, [("state", LONG_STATE)])
    Sender(store, Logouts(store, SITE)).send_due(0)
    [(_, token)] = receiver.received
    keys = KeySet.import_key_set(party.http.get(party.path_of("jwks_uri")).json)
    told = jwt.decode(token, keys, algorithms=["RS256"]).claims
    assert (told["iss"], told["aud"]) == (party.metadata["issuer"], party.program.id)
    assert (told["sub"], told["sid"]) == (claims["sub"], claims["sid"])
    assert told["events"] == {EVENT: {}} and told["jti"] and told["iat"] < told["exp"]
    assert "nonce" not in told
    assert party.ask_for_error(prompt="none") == "login_required"
