"""Signing out here because a program asks for it (OpenID Connect RP-Initiated Logout 1.0)."""

from flask import Blueprint, abort, request
from werkzeug.datastructures import MultiDict
from werkzeug.wrappers import Response

from identity.authorization import read_single
from identity.context import base_url, get_storage
from identity.oauth import add_to_query, destination_of, redirect_targets
from identity.openid import BadHint, is_on, read_hint
from identity.responses import NO_STORE, ExactRedirect, redirect_to_get, security_policy
from identity.sessions import end_session, signed_in_player
from pages.rendering import render_page
from storage.records import Client

logout = Blueprint("logout", __name__)


@logout.before_request
def require_openid() -> None:
    """Raise NotFound unless OpenID Connect is on."""
    if not is_on():
        abort(404)


@logout.route("/oauth/logout", methods=["GET", "POST"])
def start_logout() -> Response | tuple:
    """Sign out the player whom `id_token_hint` names, and return to the program.

    Anyone else is asked first: a link of another site could sign people out.
    """
    if request.method == "POST":
        return redirect_to_get()
    claims = read_claims(read_single(request.args, "id_token_hint"))
    client, uri = read_client_and_uri(request.args, claims)
    player = signed_in_player()
    if player is None and claims:
        return leave(client, uri)
    if player is None:  # a link without a hint could send anyone to the site of a member
        return logout_page(client, uri)
    if claims and claims["sub"] == str(player.id):
        end_session()
        return leave(client, uri)
    return logout_page(client, uri)


@logout.post("/oauth/logout/confirm")
def confirm_logout() -> Response | tuple:
    """Sign out after the player pressed the button, and return to the program."""
    client, uri = read_client_and_uri(request.form, None)
    end_session()
    return leave(client, uri)


def read_claims(hint: str) -> dict | None:
    """Return the claims of an ID token hint, None without one or if its key is unknown."""
    try:
        return read_hint(hint, get_storage(), base_url()) if hint else None
    except BadHint as error:
        abort(400, f"This link can't sign you out: its id_token_hint {error}.")


def read_client_and_uri(
    parameters: MultiDict, claims: dict | None
) -> tuple[Client | None, str | None]:
    """Return the client that asks and its post-logout redirect URI, as far as it sent them.

    Raises BadRequest.
    """
    client_id = read_single(parameters, "client_id")
    uri = read_single(parameters, "post_logout_redirect_uri")
    if claims and client_id not in ("", claims["aud"]):
        abort(400, "The id_token_hint of this link is of another app. Tell the app's developer.")
    client = get_storage().clients.find(claims["aud"] if claims else client_id)
    if client is None:  # nobody says whose the URI is: it is not used, and signing out works
        return None, None
    if uri and (client.disabled or uri not in client.post_logout_redirect_uris):
        abort(400, "The app did not register this post_logout_redirect_uri. Tell its developer.")
    return client, uri or None


def address_after(uri: str) -> str:
    """Return a post-logout redirect URI with the `state` of this request."""
    state = read_single(request.values, "state")
    return add_to_query(uri, {"state": state}) if state else uri


def leave(client: Client | None, uri: str | None) -> Response | tuple:
    """Return to the program, or show that the player is signed out."""
    if uri is None:
        return logout_page(client, None, is_done=True)
    return ExactRedirect(status=303, headers={"Location": address_after(uri), **NO_STORE})


def logout_page(client: Client | None, uri: str | None, is_done: bool = False) -> tuple:
    """Return the page that asks the player, or says that nobody is signed in here."""
    player = None if is_done else signed_in_player()
    page = render_page(
        "logout.html",
        player,
        client=client,
        uri=uri,
        state=read_single(request.values, "state"),
        address=uri and address_after(uri),
        destination=uri and destination_of(uri),
    )
    return page, security_policy(form_targets=redirect_targets(uri)) if uri else {}
