"""Adding, using and removing passkeys, recovery codes, and an account without a password.

Forms and JSON are those of W3C Web Authentication Level 3; `identity.access.passkeys` has the
rest. Where passkeys are not offered, the addresses answer 404.
"""

import contextlib

from flask import Blueprint, abort, request
from werkzeug.wrappers import Response

from identity.access.letters import notify
from identity.access.passkeys import (
    creation_options,
    new_bytes,
    read_credential,
    verify_registration,
)
from identity.access.sessions import signed_in_player
from identity.access.signing_in import describe_browser
from identity.acts import passkeys as passkey_acts
from identity.acts import recovery_codes
from identity.acts.passkeys import passkeys_of
from identity.http.context import base_url, get_storage, site_name
from identity.http.languages import shown
from identity.http.responses import NO_STORE
from identity.site.formatting import show_browser
from model.errors import NotFound
from model.records import User
from model.rules import PASSKEY_NAME_LENGTH
from model.words import say
from pages.account.security import security_form, security_page
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
from pages.kit.proof import require_proof, with_proof

passkeys = Blueprint("passkeys", __name__)
passkeys.before_request(require_offer)


def find_player() -> tuple[User]:
    """Return the signed-in player, a `find` of `form_view` for scripts. Raises Forbidden."""
    player = signed_in_player()
    if player is None:
        abort(403, say("You are signed out. Sign in again."))
    return (player,)


@passkeys.post("/account/passkeys/options")
@forms.form_view(find_player, message)
def offer_creation(player: User) -> tuple[dict, dict]:
    """Return the options of a new passkey as JSON; takes the `password` unless `is_proven`."""
    require_proof(player)
    rp_id = own_rp_id()
    existing = passkeys_of(get_storage(), player.id, rp_id)
    handle = existing[0].handle if existing else new_bytes()
    rp = {"id": rp_id, "name": site_name()}
    challenge = issue_challenge("add", handle)
    return creation_options(player, handle, existing, challenge, rp), NO_STORE


@passkeys.post("/account/passkeys")
@security_form("passkeys")
def add_passkey(player: User) -> Response | tuple:
    """Add the passkey of a `credential`, which is JSON, under a `name`, or its model's name.

    With the first passkey the player gets recovery codes.
    """
    require_proof(player)
    with counting_refusals():
        challenge, handle = use_challenge("add")
        answer = read_credential(request.form.get("credential", ""))
        passkey, model = verify_registration(
            answer, challenge, own_rp_id(), base_url(), player.id, handle
        )
    browser = show_browser(describe_browser(request.headers.get("User-Agent", "")))
    own_name = shown(say("Passkey (%(browser)s)", browser=browser))[:PASSKEY_NAME_LENGTH].strip()
    typed = request.form.get("name", "").strip()
    passkey.name = typed or model or own_name
    passkey_acts.add(authority_of(player), passkey)
    notify(player, "passkey")
    if codes := recovery_codes.issue(authority_of(player), player.id, replace=False):
        return show_new_codes(player, codes, say("Passkey added."))
    return forms.redirect_with_notice(say("Passkey added."), "/account/security")


@passkeys.post("/account/passkeys/remove")
@security_form("passkeys", stamped=True)
@with_proof
def remove_passkey(player: User) -> Response:
    """Remove the passkey with the `id`; the act refuses to remove the last way in."""
    with contextlib.suppress(NotFound):  # it was removed in another tab
        passkey_acts.remove(authority_of(player), request.form.get("id", ""), own_rp_id())
        notify(player, "passkey removed")
    return forms.redirect_with_notice(say("Passkey removed."), "/account/security")


@passkeys.post("/account/password/remove")
@security_form("removal", stamped=True)
def remove_password(player: User) -> Response:
    """Remove the password; takes the `password` unless `is_proven`."""
    require_proof(player)
    passkey_acts.remove_password(authority_of(player), player.id, own_rp_id())
    if player.password_hash:
        notify(player, "password removed")
    return forms.redirect_with_notice(say("Password removed."), "/account/security")


@passkeys.post("/account/recovery-codes")
@security_form("codes", stamped=True)
def replace_codes(player: User) -> tuple:
    """Replace the recovery codes; takes the `password` unless `is_proven`."""
    require_proof(player)
    codes = recovery_codes.issue(authority_of(player), player.id)
    notify(player, "recovery codes")
    return show_new_codes(player, codes)


def show_new_codes(player: User, codes: list[str], done: str = "") -> tuple:
    """Return the page with what was `done` and new recovery codes, which no other response has."""
    page, headers = security_page(player, {}, codes, done)
    return page, 201, {"Location": "/account/security", **headers}
