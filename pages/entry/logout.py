"""Signing out here because a program asks for it (OpenID Connect RP-Initiated Logout 1.0)."""

from typing import NamedTuple

from flask import Blueprint, abort, request
from werkzeug.datastructures import MultiDict
from werkzeug.wrappers import Response

from identity.access.sessions import signed_in_player
from identity.access.signing_in import end_session
from identity.acts.rights import may_manage
from identity.http.context import base_url, get_storage
from identity.http.responses import NO_STORE, ExactRedirect, redirect_to_get, security_policy
from identity.oauth.authorization import read_single
from identity.oauth.openid import BadHint, read_hint, require_openid
from identity.oauth.reauthentication import own_session
from identity.oauth.terms import add_to_query, destination_of, redirect_targets
from model.records import Client, User
from model.words import say
from pages.kit.rendering import IN_ENGLISH, render_page

CLIENTS_READ = 200  # to find the one with a URI

logout = Blueprint("logout", __name__)
logout.before_request(require_openid)


class LogoutRequest(NamedTuple):
    """A checked request: the client that asks, and where the player goes next, if it says so."""

    client: Client | None
    is_named: bool  # by the request; else the client is the one with this URI
    uri: str  # one of the client's post-logout redirect URIs, or ""
    received: str  # the URI that was sent
    state: str

    @property
    def address(self) -> str:
        """The post-logout redirect URI with the state in its query."""
        return add_to_query(self.uri, {"state": self.state}) if self.state else self.uri


@logout.route("/oauth/logout", methods=["GET", "POST"])
def start_logout() -> Response | tuple:
    """Sign out the player whom `id_token_hint` names, and return to the program.

    Anyone else is asked first: a link could sign people out, or send them to the site of a member.
    """
    if request.method == "POST":
        return redirect_to_get()
    claims = read_claims(read_single(request.args, "id_token_hint"))
    logout_request = read_logout_request(request.args, claims)
    player = signed_in_player()
    is_known = claims is not None and (player is None or claims["sub"] == str(player.id))
    if is_known and request.method == "GET":  # RFC 9110 9.2.1: HEAD is safe
        # The app of another session of the player does not know that this one ends.
        own = own_session(player).sid if player else None
        return complete(logout_request, claims["aud"] if own and claims.get("sid") == own else "")
    return logout_page(logout_request, player, player)


@logout.post("/oauth/logout/confirm")
def confirm_logout() -> Response | tuple:
    """Sign out after the player pressed the button, and return to the program."""
    return complete(read_logout_request(request.form, None))


def read_claims(hint: str) -> dict | None:
    """Return the claims of an ID token hint, None for "" or an unknown key. Raises BadRequest."""
    try:
        return read_hint(hint, get_storage(), base_url()) if hint else None
    except BadHint as error:
        problem = IN_ENGLISH.format(f"id_token_hint {error}")
        abort(400, say("This link can't sign you out: %(problem)s.", problem=problem))


def read_logout_request(parameters: MultiDict, claims: dict | None) -> LogoutRequest:
    """Return the request; `claims` are those of the ID token hint, None without one.

    Without a client in it the client is the only one with this URI, or None. Raises BadRequest.

    A URI that the client did not register is not used, and signing out works: the player may be
    at a computer that others use.
    """
    names = ("client_id", "post_logout_redirect_uri", "state")
    client_id, received, state = (read_single(parameters, name) for name in names)
    if claims and client_id not in ("", claims["aud"]):
        problem = say("The id_token_hint of this link is of another app. Tell the app's developer.")
        abort(400, problem)
    named = claims["aud"] if claims else client_id
    client = get_storage().clients.find(named) if named else find_only_client(received)
    is_registered = client is not None and returns_to(client, received)
    return LogoutRequest(client, bool(named), received if is_registered else "", received, state)


def returns_to(client: Client, uri: str) -> bool:
    """Return True for an enabled client that registered this post-logout redirect URI."""
    return not client.disabled and uri in client.post_logout_redirect_uris


def find_only_client(uri: str) -> Client | None:
    """Return the one client with this URI; None for no or several ones, or if too many have any."""
    clients = get_storage().clients.page("logout", "returns", at_most=CLIENTS_READ) if uri else []
    found = [each for each in clients if returns_to(each, uri)]
    return found[0] if len(found) == 1 and len(clients) < CLIENTS_READ else None


def complete(logout_request: LogoutRequest, told: str = "") -> Response | tuple:
    """Sign out; redirect to a program that the request named, or show that nobody is signed in.

    `told` is the id of the app whose ID token came with the request.
    """
    viewer = signed_in_player()
    end_session(told)
    if not logout_request.uri or not logout_request.is_named:
        return logout_page(logout_request, None, viewer)
    headers = {"Location": logout_request.address, **NO_STORE}
    return ExactRedirect(status=303, headers=headers)


def logout_page(
    logout_request: LogoutRequest, player: User | None, viewer: User | None
) -> tuple[str, dict[str, str]]:
    """Return the page that asks `player`, or says to a guest, None, that nobody is signed in here.

    A `viewer` who manages the client sees a URI that is not registered beside those that are.
    """
    uri, client = logout_request.uri, logout_request.client
    is_mistaken = client is not None and logout_request.received != uri
    page = render_page(
        "entry/logout.html",
        player,
        asked=logout_request,
        destination=destination_of(uri),
        shows_uris=is_mistaken and viewer is not None and may_manage(viewer, client),
    )
    return page, security_policy(form_targets=redirect_targets(uri)) if uri else {}
