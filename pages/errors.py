"""Error responses: JSON under /api/, a page elsewhere."""

from flask import current_app, request
from werkzeug.exceptions import HTTPException
from werkzeug.wrappers import Response

import storage
from identity.responses import JsonResponse, json_error, storage_http_error
from identity.sessions import signed_in_player
from pages.rendering import render_page


def handle_http_error(error: HTTPException) -> Response | JsonResponse:
    """Return an error as JSON under /api/, as a page elsewhere."""
    if error.response is not None:
        return error.response
    return json_error(error) if request.path.startswith("/api/") else render_error_page(error)


def handle_storage_error(error: storage.StorageError) -> Response | JsonResponse:
    """Return the HTTP error for a storage error."""
    return handle_http_error(storage_http_error(error, current_app.logger))


def render_error_page(
    error: HTTPException,
    received_uri: str | None = None,
    registered_uris: list[str] | None = None,
) -> Response:
    """Return the error as a page; one about a redirect URI shows the registered ones as well."""
    title, usual_problem = ERROR_PAGES.get(error.code, (error.name, error.description))
    has_own_text = error.description != type(error).description
    response = error.get_response()
    response.data = render_page(
        "error.html",
        shown_player(error),
        title=title,
        problem=error.description if has_own_text else usual_problem,
        received_uri=received_uri,
        registered_uris=registered_uris,
    )
    return response


def shown_player(error: HTTPException) -> storage.User | None:
    """Return the signed-in player, None if that is unknown or reading the record may fail again."""
    if error.code >= 500:
        return None
    try:
        return signed_in_player()
    except storage.StorageError:
        return None


ERROR_PAGES = {  # status: title, and the text if the error has no description of its own
    400: ("That did not work", "The server does not understand this request."),
    403: ("That is not allowed", "This page is not for you, or not from here."),
    404: ("There is nothing here", "The address is mistyped, or what was here is gone."),
    405: ("This page has moved on", "What was here takes forms alone. Go on from the start page."),
    413: ("That is too large", "What was sent is larger than the server takes."),
    500: ("Something broke", "It is not your fault. If it stays, tell those who run this site."),
    503: ("Not right now", "Try again in a moment."),
    507: ("The disk is full", "Nothing was saved, nothing old is lost. Tell those who run this."),
}
