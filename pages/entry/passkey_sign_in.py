"""Signing in with a passkey, called by a script. Forms and JSON are those of Web Authentication."""

import functools

from flask import Blueprint, request

from identity.access.passkeys import (
    read_credential,
    read_passkey,
    request_options,
    verify_assertion,
)
from identity.access.sessions import first_to_terms, next_address, signed_in_player
from identity.access.signing_in import PASSKEY_AMR
from identity.acts import passkeys as passkey_acts
from identity.acts.passkeys import passkeys_of
from identity.http.context import base_url, get_storage
from identity.http.responses import NO_STORE
from pages.entry.sign_in import complete_sign_in, is_enough
from pages.kit import forms
from pages.kit.actors import authority_of
from pages.kit.passkeys import (
    counting_refusals,
    issue_challenge,
    message,
    own_rp_id,
    require_offer,
    use_challenge,
)
from pages.kit.proof import note_proof

passkey_sign_in = Blueprint("passkey_sign_in", __name__)
passkey_sign_in.before_request(require_offer)


@passkey_sign_in.post("/sign-in/passkey/options")
def offer_request() -> tuple[dict, dict]:
    """Return the options of a sign-in that leads to `next` as JSON.

    Any passkey will do. A signed-in player, who only proves who presses, needs one of their own.
    """
    player, rp_id = signed_in_player(), own_rp_id()
    confirms = player is not None and is_enough(next_address())
    allowed = passkeys_of(get_storage(), player.id, rp_id) if confirms else []
    asked_id = str(player.id) if allowed else ""
    return request_options(allowed, issue_challenge("sign-in", asked_id), rp_id), NO_STORE


@passkey_sign_in.post("/sign-in/passkey")
@forms.form_view(lambda: (next_address(),), message)
def sign_in_with_passkey(leads_to: str) -> tuple[dict, dict]:
    """Sign in by a `credential`, which is JSON, and return `next` as JSON.

    A signed-in player, whom no app asks to sign in again, only proves who presses.
    """
    with counting_refusals():
        challenge, asked_id = use_challenge("sign-in")
        answer = read_credential(request.form.get("credential", ""))
        passkey, user = read_passkey(get_storage(), answer, own_rp_id(), asked_id)
        use = verify_assertion(answer, passkey, challenge, base_url())
    by, player = authority_of(user), signed_in_player()
    if player and player.id == user.id and is_enough(leads_to):
        passkey_acts.note_use(by, passkey.id, *use)
        note_proof()
    else:
        note_use = functools.partial(passkey_acts.note_use, by, passkey.id, *use)
        complete_sign_in(user, leads_to, None, note_use, PASSKEY_AMR)
        leads_to = first_to_terms(leads_to)
    return {"next": leads_to}, NO_STORE
