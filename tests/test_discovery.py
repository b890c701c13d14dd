"""Discovery: the metadata of the grant, the description of the API, and the health check."""

import time
from urllib.robotparser import RobotFileParser

import pytest
from authlib.oauth2.rfc8414 import AuthorizationServerMetadata

from identity.oauth.clients import DEVICE_GRANT
from identity.oauth.terms import SCOPES
from identity.site.catalogues import LANGUAGES
from model.errors import StorageFailed

HEALTH_INTERVAL = 5  # seconds between two writes of the health check

METADATA = "/.well-known/oauth-authorization-server"
CHANGE_PASSWORD = "/.well-known/change-password"
SITE = "https://id.example.org"


def test_metadata_lists_supported_features_only(make_app):
    """test_token.py and test_authorize.py test client authentication and PKCE."""
    app = make_app(BASE_URL=SITE)
    metadata = app.test_client().get(METADATA, base_url=SITE).json
    AuthorizationServerMetadata(metadata).validate()  # RFC 8414
    secret = ["client_secret_basic", "client_secret_post"]
    assert metadata == {
        "issuer": SITE,
        "authorization_endpoint": f"{SITE}/oauth/authorize",
        "token_endpoint": f"{SITE}/oauth/token",
        "device_authorization_endpoint": f"{SITE}/oauth/device",
        "userinfo_endpoint": f"{SITE}/oauth/userinfo",
        "scopes_supported": [*SCOPES, "profile"],
        "response_types_supported": ["code"],
        "response_modes_supported": ["query", "web_message"],
        "grant_types_supported": ["authorization_code", DEVICE_GRANT, "refresh_token"],
        "token_endpoint_auth_methods_supported": [*secret, "none"],
        "revocation_endpoint": f"{SITE}/oauth/revoke",
        "revocation_endpoint_auth_methods_supported": [*secret, "none"],
        "introspection_endpoint": f"{SITE}/oauth/introspect",
        "introspection_endpoint_auth_methods_supported": secret,
        "code_challenge_methods_supported": ["S256"],
        "ui_locales_supported": [*LANGUAGES],
        "backchannel_logout_supported": False,
        "backchannel_logout_session_supported": False,
    }
    routes = {str(rule) for rule in app.url_map.iter_rules()}
    endpoints = {url for name, url in metadata.items() if name.endswith("_endpoint")}
    assert {url.removeprefix(SITE) for url in endpoints} <= routes


def test_openapi_names_the_site_and_existing_routes_only(make_app):
    app = make_app(BASE_URL=SITE, SITE_NAME='Ada\'s "Games" </script> ♞', OPENID="on")
    description = app.test_client().get("/openapi.json", base_url=SITE).json
    assert description["openapi"] == "3.1.0"
    assert description["info"]["title"] == 'Ada\'s "Games" </script> ♞'
    assert description["servers"] == [{"url": SITE}]
    scheme = description["components"]["securitySchemes"]["session"]
    assert scheme["name"] == app.config["SESSION_COOKIE_NAME"]
    paths = list(description["paths"])
    assert paths == [
        *("/api/oauth/token", "/api/oauth/whois", "/oauth/token", "/oauth/revoke"),
        *("/oauth/introspect", "/oauth/device", "/oauth/device/qr", "/oauth/userinfo"),
        *("/api/tickets", "/api/tickets/check"),
        "/oauth/keys",
        *("/api/users/info", "/api/users/batch", "/api/users/heartbeat", "/users/{id}/picture"),
        "/pfp/{size}/{file}",
    ]
    without = make_app(BASE_URL=SITE).test_client().get("/openapi.json", base_url=SITE).json
    assert list(without["paths"]) == [each for each in paths if each != "/oauth/keys"]
    adapter = app.url_map.bind("id.example.org")
    for path, methods in description["paths"].items():
        example = path.format(id=1, size="small", file="1-2.webp")
        assert [each.upper() for each in methods if adapter.test(example, each)] != []


def test_metadata_is_cacheable_and_readable_from_any_origin(anyone):
    for path in (METADATA, "/openapi.json"):
        answer = anyone.get(path, headers={"Origin": "https://game.example"})
        assert (answer.status_code, answer.content_type) == (200, "application/json")
        assert answer.headers["Access-Control-Allow-Origin"] == "*"
        assert answer.headers["Cache-Control"] == "public, max-age=3600"
        assert "Set-Cookie" not in answer.headers


def crawler(make_app, **settings: str) -> RobotFileParser:
    """Return the rules for search engines of a site."""
    answer = make_app(**settings).test_client().get("/robots.txt")
    assert (answer.status_code, answer.content_type) == (200, "text/plain; charset=utf-8")
    assert "Set-Cookie" not in answer.headers
    rules = RobotFileParser()
    rules.parse(answer.text.splitlines())
    return rules


PROFILES = ("/users/1", "/users/1/picture", "/players", "/players?q=a", "/pfp/large/1-2.webp")


def test_search_engines_read_public_pages_only(make_app):
    """Profiles if the setting says so. Some programs take the first rule that matches, as here."""
    public = {"/", "/games/1", "/play/1", "/developer/docs", "/developer/docs/games"}
    public |= {"/static/style.css", "/covers/large/1.webp", "/robots.txt", "/terms", "/privacy"}
    hidden = {"/account", "/account/security", "/admin", "/api/users/info", "/developer"}
    hidden |= {"/recover", "/confirm", "/oauth/authorize?client_id=x", "/sign-in", "/sign-up"}
    for setting, profiles in (("off", set()), ("on", {*PROFILES})):
        rules = crawler(make_app, INDEX_PROFILES=setting)
        paths = public | hidden | {*PROFILES}
        assert {path for path in paths if rules.can_fetch("Anybot", path)} == public | profiles


def test_every_page_for_members_alone_is_hidden_from_search_engines(app, make_app, anyone):
    rules = crawler(make_app)
    paths = {rule.rule for rule in app.url_map.iter_rules() if "GET" in rule.methods}
    fixed = {each for each in paths if "<" not in each and each != CHANGE_PASSWORD}
    leads_to_sign_in = {each for each in fixed if anyone.get(each).status_code == 303}
    assert len(leads_to_sign_in) > 5
    assert [each for each in leads_to_sign_in if rules.can_fetch("Anybot", each)] == []


def test_password_managers_find_the_form(anyone, adas_browser):
    """W3C, A Well-Known URL for Changing Passwords. What is unknown there is a 404 (4)."""
    for browser in (anyone, adas_browser):
        answer = browser.get(CHANGE_PASSWORD)
        assert (answer.status_code, answer.location) == (303, "/account/security")
    assert "Password" in adas_browser.get(answer.location).text
    unknown = "/.well-known/resource-that-should-not-exist-whose-status-code-should-not-be-200"
    assert anyone.get(unknown).status_code == 404


def test_healthz_is_200_for_any_host_and_leaves_no_file(anyone, faults):
    """Load balancers and containers use an IP address; all other routes refuse foreign hosts."""
    before = faults.stored()
    answer = anyone.get("/healthz")
    assert (answer.status_code, answer.json) == (200, {"message": "ok"})
    assert answer.headers["Cache-Control"] == "no-store"
    assert faults.stored() == before
    for host, is_foreign in (
        ("10.1.2.3", True),
        ("elsewhere.example", True),
        ("localhost", False),
        ("[::1]:8000", False),
    ):
        headers = {"Host": host}
        assert anyone.get("/healthz", headers=headers).status_code == 200
        assert anyone.head("/healthz", headers=headers).status_code == 200
        assert (anyone.get("/openapi.json", headers=headers).status_code == 400) == is_foreign


def test_healthz_is_503_if_nothing_can_be_saved(anyone, faults):
    faults.refuse_saves("health")
    answer = anyone.get("/healthz")
    assert (answer.status_code, answer.content_type) == (503, "application/json")
    assert list(answer.json) == ["message"]


def test_health_check_writes_at_most_every_five_seconds(store, faults, monkeypatch):
    """Failure and recovery are both noticed by the next write only."""

    def pass_time(seconds: float) -> None:
        before = time.monotonic  # which the fixture `clock` does not move
        monkeypatch.setattr(time, "monotonic", lambda: before() + seconds)

    store.require_health()
    faults.refuse_saves("health")
    store.require_health()
    pass_time(HEALTH_INTERVAL)
    with pytest.raises(StorageFailed):
        store.require_health()
    faults.allow_saves()
    with pytest.raises(StorageFailed):
        store.require_health()
    pass_time(HEALTH_INTERVAL)
    store.require_health()
