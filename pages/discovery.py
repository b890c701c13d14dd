"""What is here, for programs: the authorization server, the API, and whether all is well."""

from flask import Blueprint, current_app, render_template
from werkzeug.wrappers import Response

from identity.context import base_url, get_storage
from identity.fast_path import JsonAnswer
from storage import StorageError

# Anybody's program may read these, and keep them for an hour.
PUBLIC = {"Access-Control-Allow-Origin": "*", "Cache-Control": "public, max-age=3600"}
NO_STORE = {"Cache-Control": "no-store"}

discovery = Blueprint("discovery", __name__)


@discovery.get("/.well-known/oauth-authorization-server")
def authorization_server() -> JsonAnswer:
    """RFC 8414: how the grant goes here. The issuer is the base URL."""
    metadata = {
        "issuer": base_url(),
        "authorization_endpoint": f"{base_url()}/oauth/authorize",
        "token_endpoint": f"{base_url()}/api/oauth/token",
        "scopes_supported": ["userinfo", "email"],
        "response_types_supported": ["code"],
        "response_modes_supported": ["query"],
        "grant_types_supported": ["authorization_code"],
        "token_endpoint_auth_methods_supported": ["client_secret_basic", "client_secret_post"],
        "code_challenge_methods_supported": ["S256"],
    }
    return JsonAnswer(metadata, PUBLIC)


@discovery.get("/openapi.json")
def openapi() -> Response:
    """OpenAPI 3.1: the API, each address with what it takes and answers."""
    cookie = current_app.config["SESSION_COOKIE_NAME"]
    body = render_template("openapi.json", base_url=base_url(), session_cookie=cookie)
    return Response(body, headers=PUBLIC, content_type="application/json")


@discovery.get("/healthz")
def healthz() -> JsonAnswer | Response:
    """Whether records and pictures can be read and written: 200, else 503."""
    try:
        get_storage().check_health()
    except StorageError as error:
        current_app.logger.error("unhealthy: %s", error)
        body = '{"message": "the records or pictures cannot be read or written"}'
        return Response(body, 503, NO_STORE, content_type="application/json")
    return JsonAnswer({"message": "ok"}, NO_STORE)
