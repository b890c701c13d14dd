"""What responses have in common: JSON bodies, errors, and the headers that protect them."""

import json
import logging
from collections.abc import Callable, Mapping
from urllib.parse import urlencode

from flask import Response, g, request
from werkzeug import exceptions
from werkzeug.datastructures import Headers
from werkzeug.exceptions import HTTPException, ServiceUnavailable, TooManyRequests
from werkzeug.http import HTTP_STATUS_CODES

from model.errors import NotFound, SaveUnconfirmed, StorageError, StorageFull, TooManyAttempts
from model.words import say

STORAGE_RETRY_AFTER = 5  # seconds
LONGEST_ADDRESS = 8000  # characters: `serve` takes request lines of 8,190
# No body contains itself; to look for that takes a tenth of the time.
ASCII_JSON = json.JSONEncoder(check_circular=False)
# An escape takes up to three times the bytes.
UTF8_JSON = json.JSONEncoder(ensure_ascii=False, check_circular=False)
NO_STORE = {"Cache-Control": "no-store"}
NO_SNIFF = {"X-Content-Type-Options": "nosniff"}
ANY_ORIGIN = {"Access-Control-Allow-Origin": "*"}  # browsers let any site's pages read it


def encode_json(body: dict) -> bytes:
    """Return the body of a JSON response."""
    return UTF8_JSON.encode(body).encode()


def encode_ascii_json(body: dict) -> bytes:
    """Return the body of a JSON response in ASCII, for the calls whose bytes stay as they are."""
    return ASCII_JSON.encode(body).encode()


class JsonResponse:
    """A JSON response as a WSGI application: a fraction of the cost of a werkzeug Response.

    The body is a dict, or what `encode_json` or `encode_ascii_json` returned for one.
    """

    def __init__(
        self, body: dict | bytes, headers: Mapping[str, str] | None = None, status: int = 200
    ) -> None:
        self.status = f"{status} {HTTP_STATUS_CODES[status].upper()}"  # as werkzeug does
        self.body = body if type(body) is bytes else encode_json(body)
        self.headers = [
            ("Content-Type", "application/json"),
            ("Content-Length", str(len(self.body))),
            *(headers or {}).items(),
        ]

    def __call__(self, environ: dict, start_response: Callable) -> list[bytes]:
        start_response(self.status, self.headers)
        return [self.body]


# -- errors -------------------------------------------------------------------------------------

API_MESSAGES = {  # by status, in place of Werkzeug's, which are for people in front of a browser
    400: "the server cannot read this request",
    404: "there is nothing at this address; /openapi.json lists the addresses of the API",
    405: "this address does not take this method; the Allow header has those that it takes",
    413: "the body is larger than this address takes",
    429: "too many requests; wait as many seconds as Retry-After says",
    500: "the server made a mistake, which is in its log",
}


class InsufficientStorage(HTTPException):
    """507: the disk is full (RFC 4918 11.5)."""

    code = 507
    description = "the disk is full; nothing was saved"


class StorageUnavailable(ServiceUnavailable):
    """503: storage cannot be used now, or a record is damaged."""

    description = "the server cannot read or save what this needs right now"


class SaveNotConfirmed(ServiceUnavailable):
    """503: a change may have been saved, or not."""

    description = "the change may have been saved: read before trying again"


class TokenRefused(HTTPException):
    """A request without a valid access token (RFC 6750 3.1); no error code if it has no token."""

    def __init__(self, error: str | None, description: str, code: int = 401) -> None:
        super().__init__(description)
        self.error = error
        self.challenge = f'Bearer error="{error}"' if error else "Bearer"
        self.code = code

    def get_headers(self, *args) -> list[tuple[str, str]]:
        challenge = ("WWW-Authenticate", self.challenge)
        return [*super().get_headers(*args), challenge, *NO_STORE.items()]


def storage_http_error(error: StorageError, logger: logging.Logger) -> HTTPException:
    """Return the HTTP error for a storage error, and log it unless the request is at fault."""
    if isinstance(error, NotFound):
        return exceptions.NotFound()
    if isinstance(error, TooManyAttempts):
        return TooManyRequests(retry_after=error.retry_after)
    logger.error("%s", error)
    if isinstance(error, StorageFull):
        return InsufficientStorage()
    if isinstance(error, SaveUnconfirmed):
        return SaveNotConfirmed(retry_after=STORAGE_RETRY_AFTER)
    return StorageUnavailable(retry_after=STORAGE_RETRY_AFTER)


STANDARD_PATHS = ("/oauth/token", "/oauth/device", "/oauth/userinfo")  # errors of the standards
STANDARD_PATHS += ("/oauth/revoke", "/oauth/introspect")
STANDARD_ERRORS = {401: "invalid_client", 500: "server_error"}  # of RFC 6749, by status
STANDARD_ERRORS |= dict.fromkeys((429, 503, 507), "temporarily_unavailable")


def has_json_errors(path: str) -> bool:
    """Return True for a path of programs: errors elsewhere are pages."""
    return path.startswith("/api/") or path in STANDARD_PATHS


def json_error(error: HTTPException, path: str) -> JsonResponse:
    """Return an error as JSON, in the form that is used at this path.

    Under /api/ it is `{"message": <its description>}`. At STANDARD_PATHS it has `error` and
    `error_description` (RFC 6749 5.2), without `error` where RFC 6750 3.1 wants none.
    """
    headers = {name: value for name, value in error.get_headers() if name != "Content-Type"}
    has_own_text = error.description != type(error).description
    usual = API_MESSAGES.get(error.code, error.description)
    text = error.description if has_own_text else usual
    body = {"message": text}
    if path in STANDARD_PATHS:
        code = getattr(error, "error", STANDARD_ERRORS.get(error.code, "invalid_request"))
        body = ({"error": code} if code else {}) | {"error_description": text}
        headers |= NO_STORE
    return JsonResponse(body, headers, error.code)


# -- pages and redirects ------------------------------------------------------------------------


def security_policy(
    frame_origin: str | None = None, form_targets: str = "", connects: bool = False
) -> dict[str, str]:
    """Return the Content-Security-Policy header of a page.

    `frame_origin` is the origin of the page's one frame; such a page has a script that sends
    requests, there only to see whether the frame answers. `form_targets` are CSP sources that
    forms may lead to besides this server. A page that `connects` has a script that sends requests
    to this server.
    """
    sources = "connect-src 'self'; " if connects else ""  # of two, browsers ignore the second
    if frame_origin:
        sources = f"frame-src {frame_origin}; connect-src 'self' {frame_origin}; "
    policy = (
        "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; "
        f"base-uri 'none'; frame-ancestors 'none'; {sources}form-action 'self' {form_targets}"
    )
    return {"Content-Security-Policy": policy.rstrip()}


PAGE_HEADERS = {
    **security_policy(),
    # With no-referrer, browsers would send Origin: null with our own forms.
    "Referrer-Policy": "same-origin",
    **NO_STORE,
}


def add_default_headers(response: Response) -> Response:
    """Add the headers that all responses have; those that a view has set stay."""
    response.headers.update(NO_SNIFF)
    if response.headers.get("Content-Type", "").startswith("text/html"):
        for name, value in PAGE_HEADERS.items():
            response.headers.setdefault(name, value)
        if "content_language" in g:
            response.headers["Content-Language"] = g.content_language
    return response


def redirect_to_get() -> Response:
    """Return a redirect of a form that another site posts to the same request by GET.

    Raises BadRequest if the address with all fields is too long.
    """
    address = f"{request.path}?{urlencode([*request.form.items(multi=True)])}"
    if len(address) > LONGEST_ADDRESS:
        raise exceptions.BadRequest(say("This request is too long. Tell the app's developer."))
    return ExactRedirect(status=303, headers={"Location": address, **NO_STORE})


class ExactRedirect(Response):
    """A redirect to the address as it is: Werkzeug would rewrite some of them."""

    def get_wsgi_headers(self, environ: dict) -> Headers:
        """Return the headers, with the Location unchanged."""
        headers = super().get_wsgi_headers(environ)
        headers["Location"] = self.headers["Location"]
        return headers
