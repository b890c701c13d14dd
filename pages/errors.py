"""What is answered where something went wrong: JSON under /api/, a page elsewhere."""

from flask import current_app, render_template, request
from werkzeug.exceptions import HTTPException
from werkzeug.wrappers import Response

import storage
from identity.accounts import may_manage
from identity.fast_path import json_error, storage_http_error
from identity.sessions import signed_in_player


def answer_http_error(error: HTTPException) -> Response:
    """JSON under /api/, a page elsewhere."""
    if request.path.startswith("/api/"):
        return json_error(error)
    if error.response is not None:
        return error.response
    answer = error.get_response()
    answer.data = render_error_page(error)
    return answer


def answer_storage_error(error: storage.StorageError) -> Response:
    """What storage could not do, as HTTP says it."""
    return answer_http_error(storage_http_error(error, current_app.logger))


def render_error_page(error: HTTPException) -> str:
    """What went wrong, for a person; a client's owner also sees the redirect URIs."""
    title, usual_problem = ERROR_PAGES.get(error.code, (error.name, error.description))
    said = error.description != type(error).description
    received = registered = None
    client, player = getattr(error, "client", None), shown_player(error)
    if client and player and may_manage(player, client):
        received, registered = error.received, client.redirect_uris
    return render_template(
        "error.html",
        player=player,
        title=title,
        problem=error.description if said else usual_problem,
        received_uri=received,
        registered_uris=registered,
    )


def shown_player(error: HTTPException) -> storage.User | None:
    """Who is signed in; None where that cannot be told, or something broke, which may again."""
    if error.code >= 500:
        return None
    try:
        return signed_in_player()
    except storage.StorageError:
        return None


ERROR_PAGES = {  # status: title, and what is said where nothing more precise is known
    400: ("That did not work", "The server does not understand this request."),
    403: ("That is not allowed", "This page is not for you, or not from here."),
    404: ("There is nothing here", "The address is mistyped, or what was here is gone."),
    405: ("This page has moved on", "What was here takes forms alone. Go on from the start page."),
    413: ("That is too large", "What was sent is larger than the server takes."),
    500: ("Something broke", "It is not your fault. If it stays, tell those who run this site."),
    503: ("Not right now", "Try again in a moment."),
    507: ("The disk is full", "Nothing was saved, nothing old is lost. Tell those who run this."),
}
