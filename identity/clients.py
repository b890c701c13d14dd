"""Client authentication at the token endpoint (RFC 6749 2.3).

A confidential client proves itself with its secret, by HTTP Basic or in the form. A public one has
none (RFC 6749 2.1) and only names itself: PKCE protects its codes.
"""

import base64
import hmac
import logging
from typing import NoReturn
from urllib.parse import unquote_plus

from flask import abort
from werkzeug.datastructures import WWWAuthenticate

from identity.fast_path import ApiRequest
from identity.limits import count_attempts, limits_of_address
from storage.errors import StorageFailed, TooManyAttempts
from storage.records import Client, sha256

CLIENT_FAILURES = 100  # failed client authentications from an address, in ATTEMPTS_WINDOW

logger = logging.getLogger("identity_server")  # the app's own


def find_named_client(api_request: ApiRequest, parameters: dict[str, str]) -> Client | None:
    """Return the client that a form names, or None; pages of any origin read a public one's answer.

    Public clients run in such pages, which may read their errors too. The secret of a confidential
    client has no place in a page.
    """
    named = api_request.storage.clients.find(parameters.get("client_id", ""))
    api_request.any_origin = named is not None and named.public
    return named


def authenticate_client(api_request: ApiRequest, form: dict[str, str]) -> Client:
    """Return the client that sends a token request.

    Raises BadRequest, Unauthorized, TooManyRequests.
    """
    named = find_named_client(api_request, form)
    needs_secret = named is None or not named.public
    client_id, client_secret = read_client_credentials(api_request, form, needs_secret)
    client = named if "client_id" in form else api_request.storage.clients.find(client_id)
    if client and not client.disabled and has_own_secret(client, client_secret):
        return client
    refuse_client(api_request)


def read_client_credentials(
    api_request: ApiRequest, form: dict[str, str], needs_secret: bool
) -> tuple[str, str]:
    """Return the client's id and secret, from HTTP Basic or the form (RFC 6749 2.3.1).

    The secret is "" if none was sent, which is refused in a form that `needs_secret`.
    """
    scheme, credentials = api_request.authorization
    if scheme != "basic":
        if "client_id" not in form:
            abort(400, "client_id is missing; or send both as HTTP Basic")
        if needs_secret and "client_secret" not in form:
            abort(400, "client_secret is missing; or send both as HTTP Basic")
        return form["client_id"], form.get("client_secret", "")
    try:
        pair = base64.b64decode(credentials, validate=True).decode()
    except ValueError:  # not base64, not ASCII, or not UTF-8
        pair = ""
    # RFC 6749 2.3.1: both halves are form-encoded first, which does not change ours.
    client_id, _, client_secret = (unquote_plus(half) for half in pair.partition(":"))
    if form.get("client_id", client_id) != client_id:
        abort(400, "client_id in the body is not the one of HTTP Basic")
    # RFC 6749 2.3 has one method in a request, but Discourse sends the same secret by both.
    if form.get("client_secret", client_secret) != client_secret:
        abort(400, "client_secret in the body is not the one of HTTP Basic")
    return client_id, client_secret


def has_own_secret(client: Client, client_secret: str) -> bool:
    """Return True for the secret of a confidential client, or none for a public one."""
    if client.public:
        return client_secret == ""
    # Bytes: of text this takes ASCII alone, and people edit records.
    kept = client.secret_sha256.encode()
    return hmac.compare_digest(sha256(client_secret).encode(), kept)


def refuse_client(api_request: ApiRequest) -> NoReturn:
    """Count a failed client authentication. Raises Unauthorized, TooManyRequests."""
    # Counted after the check and by address only: client ids are public, and a limit by id would
    # let anyone lock a client out.
    try:
        address = api_request.environ.get("REMOTE_ADDR")
        limits = limits_of_address(address, "client from", CLIENT_FAILURES)
        count_attempts(api_request.storage, limits)
    except TooManyAttempts as error:
        abort(429, str(error), retry_after=error.retry_after)
    except StorageFailed as error:
        logger.error("a failed client authentication is not counted: %s", error)
    # RFC 6749 5.2: the challenge is for a client that tried HTTP Basic.
    tried_basic = api_request.authorization[0] == "basic"
    challenge = WWWAuthenticate("basic", {"realm": "OAuth clients"}) if tried_basic else None
    refusal = "client_id is unknown or disabled, or client_secret is wrong"
    abort(401, refusal, www_authenticate=challenge)
