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


ERROR_PAGES = {  # status: title, and the text if the error has no description of its own
    400: ("Something went wrong", "Go back and try again."),
    403: ("Not allowed", "You can't open this page. Go back to home and start from there."),
    404: ("Page not found", "Check the address, or go back to home."),
    405: ("Page not found", "This address can't be opened directly. Start from home."),
    413: ("Too large", "Go back and send something smaller."),
    500: (
        "Something broke",
        "This is our mistake. Try again, or tell the people who run this site.",
    ),
    503: ("Try again soon", "The server can't do this right now. Try again in a moment."),
    507: ("The disk is full", "Nothing was saved. Tell the people who run this site."),
}
