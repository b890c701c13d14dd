"""Third-party OAuth clients, configured with only the endpoints and the credentials."""

from urllib.parse import urlsplit

import flask
import pytest
from authlib.common.security import generate_token
from authlib.integrations.base_client import OAuthError
from authlib.integrations.flask_client import OAuth
from authlib.integrations.requests_client import OAuth2Session as AuthlibSession
from oauthlib.oauth2 import AccessDeniedError, MismatchingStateError, OAuth2Error
from requests_oauthlib import OAuth2Session

from .conftest import CALLBACK
from .form_browser import FormBrowser
from .running import RunningServer

pytestmark = [pytest.mark.live, pytest.mark.clients]
SCOPE = ["openid", "profile", "email"]  # what generic clients request


@pytest.fixture(autouse=True)
def plain_http(monkeypatch: pytest.MonkeyPatch) -> None:
    """Allow the libraries to use a server without TLS."""
    monkeypatch.setenv("OAUTHLIB_INSECURE_TRANSPORT", "1")
    monkeypatch.setenv("AUTHLIB_INSECURE_TRANSPORT", "1")


@pytest.fixture
def authorize_url(server: RunningServer) -> str:
    return f"{server.address}/oauth/authorize"


@pytest.fixture
def token_url(server: RunningServer) -> str:
    return f"{server.address}/api/oauth/token"


@pytest.fixture
def whois_url(server: RunningServer) -> str:
    return f"{server.address}/api/oauth/whois"


@pytest.fixture
def expected_whois(ada: dict) -> dict:
    """The response of whois with the email scope."""
    return {each: ada[each] for each in ("id", "name", "pfpTimestamp", "email")}


def requests_oauthlib_session(client: dict, **options) -> OAuth2Session:
    return OAuth2Session(client["client_id"], redirect_uri=CALLBACK, scope=SCOPE, **options)


def authlib_session(client: dict, **options) -> AuthlibSession:
    return AuthlibSession(
        client["client_id"],
        client["client_secret"],
        redirect_uri=CALLBACK,
        scope=" ".join(SCOPE),
        **options,
    )


# -- requests-oauthlib --------------------------------------------------------------------------


@pytest.mark.parametrize("pkce", [None, "S256"])
@pytest.mark.parametrize("secret_in_body", [False, True])
def test_requests_oauthlib_reads_the_profile(
    adas_form_browser: FormBrowser,
    client: dict,
    authorize_url: str,
    token_url: str,
    whois_url: str,
    expected_whois: dict,
    secret_in_body: bool,
    pkce: str | None,
):
    session = requests_oauthlib_session(client, pkce=pkce)
    link, _ = session.authorization_url(authorize_url)
    arrived = adas_form_browser.allow(link, "ada")
    token = session.fetch_token(
        token_url,
        authorization_response=arrived.address,  # checks the state as well
        client_secret=client["client_secret"],
        include_client_id=secret_in_body,
    )
    assert (token["token_type"], token["expires_in"]) == ("Bearer", 600)
    assert session.get(whois_url).json() == expected_whois


def test_requests_oauthlib_refuses_a_wrong_state(
    adas_form_browser: FormBrowser, client: dict, authorize_url: str, token_url: str
):
    """The state is returned unchanged, and only the session that sent it accepts it."""
    link, state = requests_oauthlib_session(client).authorization_url(authorize_url)
    arrived = adas_form_browser.allow(link, "ada")
    another = requests_oauthlib_session(client)
    another.authorization_url(authorize_url)
    assert arrived.answer["state"] == state
    with pytest.raises(MismatchingStateError):
        another.fetch_token(
            token_url, authorization_response=arrived.address, client_secret=client["client_secret"]
        )


def test_requests_oauthlib_fails_with_a_wrong_verifier(
    adas_form_browser: FormBrowser, client: dict, authorize_url: str, token_url: str
):
    right_session, wrong_session = (
        requests_oauthlib_session(client, pkce="S256") for _ in range(2)
    )
    link, state = right_session.authorization_url(authorize_url)
    wrong_session.authorization_url(authorize_url, state=state)
    arrived = adas_form_browser.allow(link, "ada")
    exchange = {"authorization_response": arrived.address, "client_secret": client["client_secret"]}
    with pytest.raises(OAuth2Error):
        wrong_session.fetch_token(token_url, **exchange)
    assert right_session.fetch_token(token_url, **exchange)["token_type"] == "Bearer"


def test_requests_oauthlib_raises_access_denied_after_cancel(
    server: RunningServer, adas_form_browser: FormBrowser, authorize_url: str, token_url: str
):
    refused_client = server.add_client("Refused Game", CALLBACK)
    session = requests_oauthlib_session(refused_client)
    link, _ = session.authorization_url(authorize_url)
    arrived = adas_form_browser.press(adas_form_browser.open(link), "Cancel")
    with pytest.raises(AccessDeniedError, match="the player refused"):
        session.fetch_token(
            token_url,
            authorization_response=arrived.address,
            client_secret=refused_client["client_secret"],
        )


# -- Authlib ------------------------------------------------------------------------------------


@pytest.mark.parametrize("pkce", [None, "S256"])
@pytest.mark.parametrize("method", ["client_secret_basic", "client_secret_post"])
def test_authlib_reads_the_profile(
    adas_form_browser: FormBrowser,
    client: dict,
    authorize_url: str,
    token_url: str,
    whois_url: str,
    expected_whois: dict,
    method: str,
    pkce: str | None,
):
    session = authlib_session(client, token_endpoint_auth_method=method, code_challenge_method=pkce)
    verifier = generate_token(48) if pkce else None
    link, state = session.create_authorization_url(authorize_url, code_verifier=verifier)
    arrived = adas_form_browser.allow(link, "ada")
    token = session.fetch_token(
        token_url, authorization_response=arrived.address, state=state, code_verifier=verifier
    )
    assert (token["token_type"], token["expires_in"]) == ("Bearer", 600)
    assert session.get(whois_url).json() == expected_whois


def test_authlib_fails_with_a_wrong_verifier(
    adas_form_browser: FormBrowser, client: dict, authorize_url: str, token_url: str, whois_url: str
):
    session = authlib_session(client, code_challenge_method="S256")
    verifier = generate_token(48)
    link, state = session.create_authorization_url(authorize_url, code_verifier=verifier)
    exchange = {
        "authorization_response": adas_form_browser.allow(link, "ada").address,
        "state": state,
    }
    # Authlib raises only if the body has an `error`; what it returns here is not a usable token.
    refused = session.fetch_token(token_url, code_verifier=generate_token(48), **exchange)
    assert refused == {"message": "code_verifier does not match the code_challenge"}
    with pytest.raises(OAuthError):
        session.get(whois_url)
    token = session.fetch_token(token_url, code_verifier=verifier, **exchange)
    assert token["token_type"] == "Bearer"


def test_flask_app_with_authlib_signs_the_player_in(
    form_browser: FormBrowser,
    client: dict,
    authorize_url: str,
    token_url: str,
    whois_url: str,
    expected_whois: dict,
):
    game = flask.Flask("game")
    game.secret_key = generate_token(48)
    identity = OAuth(game).register(
        "identity",
        client_id=client["client_id"],
        client_secret=client["client_secret"],
        authorize_url=authorize_url,
        access_token_url=token_url,
        client_kwargs={"scope": " ".join(SCOPE), "code_challenge_method": "S256"},
    )

    @game.get("/log-in")
    def log_in():
        return identity.authorize_redirect(CALLBACK)

    @game.get("/callback")
    def callback():
        identity.authorize_access_token()
        return identity.get(whois_url).json()

    browser = game.test_client()
    arrived = form_browser.allow(browser.get("/log-in").location, "ada")
    answer = browser.get(f"/callback?{urlsplit(arrived.address).query}")
    assert answer.json == expected_whois
