"""Error responses: JSON where programs ask, a page elsewhere."""

from flask import current_app, redirect, request
from werkzeug.exceptions import BadRequest, Forbidden, HTTPException
from werkzeug.wrappers import Response

from identity.access.sessions import local_address, signed_in_player
from identity.acts.actors import NotAllowed
from identity.acts.rights import may_manage
from identity.http.responses import (
    JsonResponse,
    SaveNotConfirmed,
    has_json_errors,
    json_error,
    storage_http_error,
)
from identity.oauth.authorization import UnusableClient
from identity.oauth.guards import is_page
from identity.oauth.terms import destination_of
from identity.site.pasted import BEHIND_ADDRESS
from model.errors import StorageError
from model.records import Client, User
from model.words import say
from pages.kit.proof import ProofMissing, show_proof_page
from pages.kit.rendering import render_page


def handle_http_error(error: HTTPException) -> Response | JsonResponse:
    """Return an error as JSON where programs ask, as a page elsewhere."""
    if error.response is not None:
        return error.response
    cause = getattr(error, "original_exception", None)
    if isinstance(cause, StorageError):  # raised outside of a view: the cookie is not set
        return handle_storage_error(cause)
    if has_json_errors(request.path):
        return json_error(error, request.path)
    return find_intended_page(error) or render_error_page(error)


def find_intended_page(error: HTTPException) -> Response | None:
    """For a 404, return a redirect to the address without what stood behind a link, else None."""
    path = request.path.rstrip(BEHIND_ADDRESS)
    is_other = path != request.path and path[-1:] != "/" and not request.query_string
    if error.code != 404 or request.method != "GET" or not is_other or not is_page():
        return None
    return redirect(local_address(path), 303)


def handle_storage_error(error: StorageError) -> Response | JsonResponse:
    return handle_http_error(storage_http_error(error, current_app.logger))


def render_error_page(error: HTTPException, **more: str | list[str]) -> Response:
    """Return the error as a page, with its status and headers.

    The page may also show a `cause` in English, or `received_uri` and `registered_uris`, or link to
    `client_address`, on `client_host`.
    """
    usual = ERROR_PAGES.get(error.code, (error.name, error.description))
    title, usual_problem = ERROR_PAGES.get(type(error), usual)
    has_own_text = error.description != type(error).description
    response = error.get_response()
    problem = error.description if has_own_text else usual_problem
    player = shown_player(error)
    response.data = render_page("kit/error.html", player, title=title, problem=problem, **more)
    return response


def shown_player(error: HTTPException) -> User | None:
    """Return the player for an error page; None for a guest, or if reading the record may fail.

    Also None for what is no page, such as a picture that is gone: any site may load that.
    """
    if error.code >= 500 or not is_page():
        return None
    try:
        return signed_in_player()
    except StorageError:
        return None


ERROR_PAGES = {  # status or error: title, and the text if it has no description of its own
    400: (say("Something went wrong"), say("Go back and try again.")),
    403: (
        say("Not allowed"),
        say("You can't open this page. Go back to home and start from there."),
    ),
    404: (say("Page not found"), say("Check the address, or go back to home.")),
    405: (say("Page not found"), say("This address can't be opened directly. Start from home.")),
    413: (say("Too large"), say("Go back and send something smaller.")),
    429: (say("Too many requests"), say("Wait a minute, then try again.")),
    500: (
        say("Something broke"),
        say("This is our mistake. Try again, or tell the people who run this site."),
    ),
    503: (say("Try again soon"), say("The server can't do this right now. Try again in a moment.")),
    SaveNotConfirmed: (
        say("Look before you try again"),
        say("This may have been saved, or not. Go back and load the page again to see."),
    ),
    507: (say("The disk is full"), say("Nothing was saved. Tell the people who run this site.")),
}


# -- authorization requests ---------------------------------------------------------------------


def show_bad_request(error: Exception, client: Client, address: str) -> Response:
    """Return a page with the error, and a link to `address`, which takes the error to the client.

    RFC 9700 4.11.2: without consent to the client nobody is redirected to it, or a malformed
    request would be an open redirector to any site that a member registered.
    """
    problem = say("%(app)s sent a request that does not work. Tell its developer:", app=client.name)
    shown = {
        "cause": f"{error}.",
        "client_address": address,
        "client_host": destination_of(address),
    }
    return render_error_page(BadRequest(problem), **shown)


def show_unusable_client(error: UnusableClient) -> Response:
    """Return the error page; those who manage the client also see which redirect URIs it has."""
    player = signed_in_player()
    if player and error.client and may_manage(player, error.client):
        return render_error_page(
            error, received_uri=error.received, registered_uris=error.client.redirect_uris
        )
    return render_error_page(error)


ERROR_HANDLERS = {
    HTTPException: handle_http_error,
    UnusableClient: show_unusable_client,
    ProofMissing: show_proof_page,
    StorageError: handle_storage_error,
    NotAllowed: lambda error: handle_http_error(Forbidden(str(error))),
}
