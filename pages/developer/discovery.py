"""Descriptions for programs: the authorization server, the API, and the health of the server."""

from flask import Blueprint, current_app, redirect, render_template
from werkzeug.wrappers import Response

from identity.http.context import base_url, get_storage
from identity.http.responses import ANY_ORIGIN, NO_STORE, JsonResponse
from identity.oauth.authorization import OPENID, PROFILE, PROMPTS
from identity.oauth.claims import CLAIMS, TOKEN_CLAIMS
from identity.oauth.clients import STANDARD_FIELDS
from identity.oauth.openid import is_on, published_keys, require_openid
from identity.oauth.terms import SCOPES
from identity.site.catalogues import LANGUAGES
from model.errors import StorageError
from pages.kit.rendering import lists_profiles

PUBLIC = {**ANY_ORIGIN, "Cache-Control": "public, max-age=3600"}  # seconds

SECRET_METHODS = ["client_secret_basic", "client_secret_post"]
# What search engines find nothing at: pages of the signed-in, forms, and answers for programs.
NOT_CRAWLED = (
    "/account",
    "/application",
    "/unsent",
    "/admin",
    "/api/",
    "/developer",
    "/recover",
    "/confirm",
    "/oauth",
    "/sign-",
)
NOT_CRAWLED += ("/device", "/welcome", "/*/report")
PROFILES = ("/players", "/users/", "/pfp/")

discovery = Blueprint("discovery", __name__)


@discovery.get("/.well-known/oauth-authorization-server")
def authorization_server() -> JsonResponse:
    """Return the metadata of the authorization server (RFC 8414). The issuer is the base URL."""
    return JsonResponse(server_metadata(), PUBLIC)


def server_metadata() -> dict[str, str | list[str]]:
    """Return the metadata that `authorization_server` and `openid_provider` share."""
    return {
        "issuer": base_url(),
        "authorization_endpoint": f"{base_url()}/oauth/authorize",
        "token_endpoint": f"{base_url()}/oauth/token",
        "device_authorization_endpoint": f"{base_url()}/oauth/device",  # RFC 8628 4
        "revocation_endpoint": f"{base_url()}/oauth/revoke",
        "introspection_endpoint": f"{base_url()}/oauth/introspect",
        "userinfo_endpoint": f"{base_url()}/oauth/userinfo",
        "scopes_supported": [*SCOPES, PROFILE, *([OPENID] if is_on() else [])],
        "response_types_supported": ["code"],
        "response_modes_supported": ["query", "web_message"],
        "grant_types_supported": [*STANDARD_FIELDS],
        "token_endpoint_auth_methods_supported": [*SECRET_METHODS, "none"],
        # RFC 8414 2: without it a program takes client_secret_basic alone.
        "revocation_endpoint_auth_methods_supported": [*SECRET_METHODS, "none"],
        "introspection_endpoint_auth_methods_supported": SECRET_METHODS,
        "code_challenge_methods_supported": ["S256"],
        "ui_locales_supported": [*LANGUAGES],
        "backchannel_logout_supported": is_on(),
        "backchannel_logout_session_supported": is_on(),
    }


@discovery.get("/.well-known/openid-configuration")
def openid_provider() -> JsonResponse:
    """Return the metadata of the OpenID provider (OpenID Connect Discovery 3)."""
    require_openid()
    metadata = {
        "jwks_uri": f"{base_url()}/oauth/keys",
        "end_session_endpoint": f"{base_url()}/oauth/logout",
        "subject_types_supported": ["public"],
        "id_token_signing_alg_values_supported": ["RS256"],
        "claims_supported": [*TOKEN_CLAIMS, *CLAIMS],
        "prompt_values_supported": sorted(PROMPTS),
        "claims_parameter_supported": False,
        "request_parameter_supported": False,
        "request_uri_parameter_supported": False,  # the default is true
        "authorization_response_iss_parameter_supported": True,  # RFC 9207
    }
    return JsonResponse(server_metadata() | metadata, PUBLIC)


@discovery.get("/oauth/keys")
def keys() -> JsonResponse:
    """Return the public keys of ID tokens as a JWK set (RFC 7517 5)."""
    require_openid()
    jwks = [each.jwk for each in published_keys(get_storage())]
    return JsonResponse({"keys": jwks}, PUBLIC)


@discovery.get("/openapi.json")
def openapi() -> Response:
    cookie = current_app.config["SESSION_COOKIE_NAME"]
    values = {"base_url": base_url(), "session_cookie": cookie, "openid": is_on()}
    body = render_template("developer/openapi.json", **values)
    return Response(body, headers=PUBLIC, content_type="application/json")


@discovery.get("/robots.txt")
def robots() -> Response:
    """Return what crawlers may read (RFC 9309): profiles only if INDEX_PROFILES is "on"."""
    hidden = NOT_CRAWLED + (() if lists_profiles() else PROFILES)
    # The longest match counts (2.2.2). Some programs take the first one.
    lines = ["User-agent: *", "Allow: /developer/docs", *(f"Disallow: {each}" for each in hidden)]
    return Response("\n".join([*lines, ""]), mimetype="text/plain")


@discovery.get("/.well-known/change-password")
def change_password() -> Response:
    """Redirect to the form for a password (W3C, A Well-Known URL for Changing Passwords, 3)."""
    return redirect("/account/security", 303)


@discovery.get("/healthz")
def healthz() -> JsonResponse:
    """Return 200 if records and pictures can be read and written, else 503."""
    try:
        get_storage().require_health()
    except StorageError as error:
        current_app.logger.error("unhealthy: %s", error)
        body = {"message": "the records or pictures cannot be read or written"}
        return JsonResponse(body, NO_STORE, 503)
    return JsonResponse({"message": "ok"}, NO_STORE)
