"""The token request (RFC 6749 4.1.3): its parameters, and the client that sends it (2.3).

A confidential client proves itself with its secret, by HTTP Basic or in the form. A public one has
none (RFC 6749 2.1) and only names itself: PKCE protects its codes.
"""

import base64
import hmac
import logging
from collections.abc import Container
from typing import NoReturn
from urllib.parse import unquote_plus

from flask import abort
from werkzeug.datastructures import WWWAuthenticate

from identity.http.fast_path import ApiRequest, parse_parameters
from identity.http.limits import count_attempts, limits_of_address
from identity.oauth.terms import InvalidClient, InvalidRequest, UnsupportedGrantType
from model.errors import StorageFailed, TooManyAttempts
from model.records import Client, sha256

TOKEN_BODY_LIMIT = 16 * 1024  # bytes
FORM_TYPE = "application/x-www-form-urlencoded"
CODE_GRANT = "authorization_code"
DEVICE_GRANT = "urn:ietf:params:oauth:grant-type:device_code"  # RFC 8628 3.4
REFRESH_GRANT = "refresh_token"  # RFC 6749 6, at /oauth/token alone
CODE_FIELDS = {CODE_GRANT: "code", DEVICE_GRANT: "device_code"}  # what a grant has to send
STANDARD_FIELDS = CODE_FIELDS | {REFRESH_GRANT: "refresh_token"}
TOKEN_FIELDS = ("grant_type", "code", "redirect_uri", "client_id", "client_secret", "code_verifier")
TOKEN_FIELDS += ("device_code",)
REFRESH_FIELDS = (*TOKEN_FIELDS, "refresh_token", "scope")
CLIENT_FAILURES = 100  # failed client authentications from an address, in ATTEMPTS_WINDOW

logger = logging.getLogger("identity_server")  # the app's own


def read_form_parameters(api_request: ApiRequest) -> list[tuple[str, str]]:
    """Return the parameters in a form. Raises BadRequest, and RequestEntityTooLarge."""
    body = api_request.read_body(TOKEN_BODY_LIMIT)
    media_type = api_request.environ.get("CONTENT_TYPE", "").partition(";")[0].strip().lower()
    if media_type in ("application/json", "multipart/form-data"):
        raise InvalidRequest(f"send the parameters form-encoded: {FORM_TYPE}")
    try:
        return parse_parameters(body.decode(), errors="strict")
    except ValueError:
        raise InvalidRequest("the body is not form-encoded UTF-8") from None


def single_parameters(sent: list[tuple[str, str]], names: Container[str]) -> dict[str, str]:
    """Return the parameters of these names, without blank ones.

    Raises InvalidRequest if one is repeated.
    """
    values = {}
    for name, value in sent:
        if name in names:
            if name in values:
                raise InvalidRequest(f"{name} is repeated")
            values[name] = value
    return {name: value for name, value in values.items() if value}


def read_token_form(sent: list[tuple[str, str]], is_standard: bool) -> dict[str, str]:
    """Return the parameters of a token request without blank ones. Raises InvalidRequest.

    At /oauth/token (`is_standard`) another grant is refused first, at /api/oauth/token last.
    """
    # RFC 6749 3.2: a blank parameter counts as missing, and none of ours may be repeated.
    form = {name: value for name, value in sent if value}
    grant = form.get("grant_type", CODE_GRANT)
    fields = STANDARD_FIELDS if is_standard else CODE_FIELDS
    is_other_grant, expected = grant not in fields, f"grant_type must be {' or '.join(fields)}"
    if is_standard and is_other_grant:  # whatever else is wrong
        raise UnsupportedGrantType(expected)
    single_parameters(sent, REFRESH_FIELDS if grant == REFRESH_GRANT else TOKEN_FIELDS)
    for name in ("grant_type", fields.get(grant, "code")):
        if name not in form:
            raise InvalidRequest(f"{name} is missing")
    if is_other_grant:
        raise UnsupportedGrantType(expected)
    return form


def allow_pages_of_client(api_request: ApiRequest, parameters: dict[str, str]) -> Client | None:
    """Let pages of any origin read the answer if the form names a public client.

    Return the client that it names, of any kind, or None.
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
    named = allow_pages_of_client(api_request, form)
    needs_secret = named is None or not named.public
    client_id, client_secret = read_client_credentials(api_request, form, needs_secret)
    client = named if "client_id" in form else api_request.storage.clients.find(client_id)
    if client and not client.disabled and has_own_secret(client, client_secret):
        return client
    abort_unauthorized(api_request)


def read_client_credentials(
    api_request: ApiRequest, form: dict[str, str], needs_secret: bool
) -> tuple[str, str]:
    """Return the client's id and secret, from HTTP Basic or the form (RFC 6749 2.3.1).

    The secret is "" if none was sent. Raises InvalidRequest, and InvalidClient for a form without a
    client id, or without a secret if it `needs_secret`.
    """
    scheme, credentials = api_request.authorization
    if scheme != "basic":
        if "client_id" not in form:
            raise InvalidClient("client_id is missing; or send both as HTTP Basic")
        if needs_secret and "client_secret" not in form:
            raise InvalidClient("client_secret is missing; or send both as HTTP Basic")
        return form["client_id"], form.get("client_secret", "")
    try:
        pair = base64.b64decode(credentials, validate=True).decode()
    except ValueError:  # not base64, not ASCII, or not UTF-8
        pair = ""
    # RFC 6749 2.3.1: both halves are form-encoded first, which does not change ours.
    client_id, _, client_secret = (unquote_plus(half) for half in pair.partition(":"))
    if form.get("client_id", client_id) != client_id:
        raise InvalidRequest("client_id in the body is not the one of HTTP Basic")
    # RFC 6749 2.3 has one method in a request, but Discourse sends the same secret by both.
    if form.get("client_secret", client_secret) != client_secret:
        raise InvalidRequest("client_secret in the body is not the one of HTTP Basic")
    return client_id, client_secret


def has_own_secret(client: Client, client_secret: str) -> bool:
    """Return True for the secret of a confidential client, or none for a public one."""
    if client.public:
        return client_secret == ""
    # Bytes: of text this takes ASCII alone, and people edit records.
    kept = client.secret_sha256.encode()
    return hmac.compare_digest(sha256(client_secret).encode(), kept)


def abort_unauthorized(api_request: ApiRequest) -> NoReturn:
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
