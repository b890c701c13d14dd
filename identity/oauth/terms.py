"""The terms of the grant that pages need as well: scopes, PKCE, refusals, a pending request."""

from urllib.parse import parse_qsl, urlencode, urlsplit

from werkzeug.datastructures import MultiDict
from werkzeug.exceptions import BadRequest

from identity.acts.rights import may_manage
from identity.http.context import base_url, get_storage
from identity.http.signing import digest_of
from model.errors import StorageError
from model.records import OFFLINE, Client, User
from model.rules import has_origin, origin_of
from model.words import say

JOIN = "join"  # the scope of join tickets
# What each scope tells a client about the player, or lets it do; the first is always granted.
SCOPES = {
    "userinfo": say("your public profile"),
    "email": say("your email address"),
    "groups": say("your role and flairs"),
    JOIN: say("join game servers as you"),
    OFFLINE: say("stay signed in as you"),
}
AUTHORIZE_PATHS = ("/oauth/authorize", "/oauth")
CODE_MAX_AGE = 60  # seconds; RFC 6749 4.1.2 allows ten minutes
# What the token endpoint says of codes, and the tester explains.
CODE_USED = "this authorization code was used before; each is valid once"
CODE_TOO_OLD = f"this authorization code is older than {CODE_MAX_AGE} seconds"


class InvalidRequest(BadRequest):
    """A token request that is refused; `error` is its code in RFC 6749 5.2."""

    error = "invalid_request"


class InvalidGrant(InvalidRequest):
    """A token request without a valid authorization code."""

    error = "invalid_grant"


class InvalidClient(InvalidRequest):
    """A token request without client authentication."""

    error = "invalid_client"


class UnauthorizedClient(InvalidRequest):
    """A request of a client for a grant that it has not registered."""

    error = "unauthorized_client"


class InvalidScope(InvalidRequest):
    """A token request for more than was granted."""

    error = "invalid_scope"


class UnsupportedGrantType(InvalidRequest):
    """A token request for another grant than those of this server."""

    error = "unsupported_grant_type"


def code_challenge_of(verifier: str) -> str:
    """Return the PKCE challenge for a verifier, by the method S256 (RFC 7636 4.2)."""
    return digest_of(verifier)


def pending_parameters(address: str) -> MultiDict:
    """Return the parameters of an authorization request at this address, none at another page's."""
    path, _, query = address.partition("?")
    return MultiDict(parse_qsl(query) if path in AUTHORIZE_PATHS else ())


def find_pending_authorization(address: str) -> tuple[Client, str] | None:
    """Return client and redirect URI of the authorization request at an address of this server.

    None if the address is another page's, or if the request has no usable client or redirect URI.
    """
    parameters = pending_parameters(address)
    if any(len(parameters.getlist(name)) > 1 for name in ("client_id", "redirect_uri")):
        return None
    try:
        client = get_storage().clients.read(parameters.get("client_id", ""))
    except StorageError:
        return None
    redirect_uri = client.choose_redirect_uri(parameters.get("redirect_uri"))
    return (client, redirect_uri) if redirect_uri and not client.disabled else None


def add_to_query(uri: str, parameters: dict[str, str]) -> str:
    """Return a redirect URI with these parameters as well (RFC 6749 4.1.2)."""
    return f"{uri}{'&' if '?' in uri else '?'}{urlencode(parameters)}"


def destination_of(redirect_uri: str) -> str:
    """Return what the player reads of a redirect URI: its host, or its private-use scheme."""
    if has_origin(redirect_uri):
        return urlsplit(redirect_uri).netloc
    return redirect_uri.partition("/")[0]


def redirect_targets(redirect_uri: str) -> str:
    """Return the CSP sources for a form on the way to a redirect URI: its origin and scheme.

    Browsers apply form-action to the redirects after a post, and to the client's own redirects
    after them, which may lead to another host.
    """
    scheme = f"{redirect_uri.partition(':')[0]}:"
    return f"{origin_of(redirect_uri)} {scheme}" if has_origin(redirect_uri) else scheme


def find_tester_uri(client: Client, received: str, player: User | None) -> str | None:
    """Return a received redirect URI if it is the tester's of a client that the player manages.

    None for others: nobody else gets there with a code of this client.
    """
    if received != tester_redirect_uri(client) or player is None:
        return None
    return received if may_manage(player, client) else None


def tester_redirect_uri(client: Client) -> str:
    """Return the redirect URI of this site's own tester, for those who manage the client."""
    return f"{base_url()}/developer/{client.id}/try/callback"
