"""Descriptions for programs: the authorization server, the API, and the health of the server."""

from flask import Blueprint, current_app, render_template
from werkzeug.wrappers import Response

from identity.context import base_url, get_storage
from identity.oauth import SCOPES
from identity.responses import ANY_ORIGIN, NO_STORE, JsonResponse
from storage.errors import StorageError

PUBLIC = {**ANY_ORIGIN, "Cache-Control": "public, max-age=3600"}  # seconds

discovery = Blueprint("discovery", __name__)


@discovery.get("/.well-known/oauth-authorization-server")
def authorization_server() -> JsonResponse:
    """Return the metadata of the authorization server (RFC 8414). The issuer is the base URL."""
    metadata = {
        "issuer": base_url(),
        "authorization_endpoint": f"{base_url()}/oauth/authorize",
        "token_endpoint": f"{base_url()}/api/oauth/token",
        "scopes_supported": list(SCOPES),
        "response_types_supported": ["code"],
        "response_modes_supported": ["query", "web_message"],
        "grant_types_supported": ["authorization_code"],
        "token_endpoint_auth_methods_supported": [
            "client_secret_basic",
            "client_secret_post",
            "none",
        ],
        "code_challenge_methods_supported": ["S256"],
    }
    return JsonResponse(metadata, PUBLIC)


@discovery.get("/openapi.json")
def openapi() -> Response:
    cookie = current_app.config["SESSION_COOKIE_NAME"]
    body = render_template("openapi.json", base_url=base_url(), session_cookie=cookie)
    return Response(body, headers=PUBLIC, content_type="application/json")


@discovery.get("/healthz")
def healthz() -> JsonResponse:
    """Return 200 if records and pictures can be read and written, else 503."""
    try:
        get_storage().check_health()
    except StorageError as error:
        current_app.logger.error("unhealthy: %s", error)
        body = {"message": "the records or pictures cannot be read or written"}
        return JsonResponse(body, NO_STORE, 503)
    return JsonResponse({"message": "ok"}, NO_STORE)
