"""Sessions of the Python libraries: requests-oauthlib, Authlib, and Authlib for Flask."""

from urllib.parse import urlsplit

import flask
from authlib.common.errors import AuthlibBaseError
from authlib.common.security import generate_token
from authlib.integrations.flask_client import OAuth
from authlib.integrations.requests_client import OAuth2Session as AuthlibOAuth2Session
from oauthlib.oauth2 import OAuth2Error
from requests import HTTPError, Response
from requests_oauthlib import OAuth2Session

from .session import Configuration, LibraryError


def read_player(response: Response) -> dict:
    """Return the body of a successful response of whois."""
    try:
        response.raise_for_status()
    except HTTPError as error:
        raise LibraryError(str(error)) from error
    return response.json()


def refuse_unusable_token(token: dict) -> None:
    """Raise LibraryError for the body of an error: Authlib raises only if it has an `error`."""
    if "access_token" not in token:
        raise LibraryError(token["message"])


class RequestsOauthlibSession:
    """requests-oauthlib as a web app uses it: a new object for each request of the browser."""

    def __init__(self, configuration: Configuration) -> None:
        self._configuration = configuration
        self._verifier = ""

    def authorize(self) -> str:
        library = self._start(
            scope=self._configuration["scope"].split(),
            pkce="S256" if self._configuration["pkce"] else None,
        )
        address, self._state = library.authorization_url(
            self._configuration["authorization_endpoint"]
        )
        if self._configuration["pkce"]:
            self._verifier = library._code_verifier  # noqa: SLF001  it has no public name
        return address

    def exchange(self, callback: str, verifier: str = "") -> list:
        library = self._start(state=self._state)
        verifier = verifier or self._verifier
        # By default the library sends HTTP Basic, without a secret with an empty password.
        in_body = self._configuration["method"] != "client_secret_basic"
        try:
            token = library.fetch_token(
                self._configuration["token_endpoint"],
                authorization_response=callback,
                client_secret=self._configuration["client_secret"],
                include_client_id=in_body or None,
                **({"code_verifier": verifier} if verifier else {}),
            )
        except OAuth2Error as error:
            raise LibraryError(str(error)) from error
        self._library = library
        return [token["token_type"], token["expires_in"]]

    def whois(self) -> dict:
        return read_player(self._library.get(self._configuration["whois"]))

    def _start(self, **options) -> OAuth2Session:
        redirect_uri = self._configuration["redirect_uri"]
        return OAuth2Session(self._configuration["client_id"], redirect_uri=redirect_uri, **options)


class AuthlibSession:
    """Authlib's session for requests."""

    def __init__(self, configuration: Configuration) -> None:
        self._configuration = configuration
        self._verifier = generate_token(48) if configuration["pkce"] else None

    def authorize(self) -> str:
        address, self._state = self._start().create_authorization_url(
            self._configuration["authorization_endpoint"], code_verifier=self._verifier
        )
        return address

    def exchange(self, callback: str, verifier: str = "") -> list:
        library = self._start()
        try:
            token = library.fetch_token(
                self._configuration["token_endpoint"],
                authorization_response=callback,
                state=self._state,
                code_verifier=verifier or self._verifier,
            )
        except AuthlibBaseError as error:
            raise LibraryError(str(error)) from error
        refuse_unusable_token(token)
        self._library = library
        return [token["token_type"], token["expires_in"]]

    def whois(self) -> dict:
        return read_player(self._library.get(self._configuration["whois"]))

    def _start(self) -> AuthlibOAuth2Session:
        return AuthlibOAuth2Session(
            self._configuration["client_id"],
            self._configuration["client_secret"],
            redirect_uri=self._configuration["redirect_uri"],
            scope=self._configuration["scope"],
            token_endpoint_auth_method=self._configuration["method"],
            code_challenge_method="S256" if self._configuration["pkce"] else None,
        )


class FlaskSession:
    """A Flask app with Authlib, which reads the metadata of the server (RFC 8414)."""

    def __init__(self, configuration: Configuration) -> None:
        self._configuration = configuration
        self._game = flask.Flask("game")
        self._game.secret_key = generate_token(48)
        self._game.testing = True  # errors reach the test
        self._browser = self._game.test_client()
        pkce = {"code_challenge_method": "S256"} if configuration["pkce"] else {}
        self._identity = OAuth(self._game).register(
            "identity",
            client_id=configuration["client_id"],
            client_secret=configuration["client_secret"],
            server_metadata_url=f"{configuration['issuer']}/.well-known/oauth-authorization-server",
            client_kwargs={
                "scope": configuration["scope"],
                "token_endpoint_auth_method": configuration["method"],
                **pkce,
            },
        )

        @self._game.get("/sign-in")
        def sign_in():
            return self._identity.authorize_redirect(configuration["redirect_uri"])

        @self._game.get("/callback")
        def callback():
            return self._identity.authorize_access_token()

    def authorize(self) -> str:
        return self._browser.get("/sign-in").location

    def exchange(self, callback: str, verifier: str = "") -> list:
        assert not verifier, "the verifier is in the session of the app"
        try:
            token = self._browser.get(f"/callback?{urlsplit(callback).query}").json
        except AuthlibBaseError as error:
            raise LibraryError(str(error)) from error
        refuse_unusable_token(token)
        self._token = token
        return [token["token_type"], token["expires_in"]]

    def whois(self) -> dict:
        with self._game.app_context():
            return read_player(self._identity.get(self._configuration["whois"], token=self._token))
