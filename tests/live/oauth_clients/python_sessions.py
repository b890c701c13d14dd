"""Sessions of the Python libraries: requests-oauthlib and Authlib."""

import requests
from authlib.common.errors import AuthlibBaseError
from authlib.common.security import generate_token
from authlib.integrations.requests_client import OAuth2Session as AuthlibOAuth2Session
from oauthlib.oauth2 import OAuth2Error, WebApplicationClient
from requests import HTTPError, Response
from requests.auth import HTTPBasicAuth
from requests_oauthlib import OAuth2Session

from .session import Configuration, LibraryError


def read_player(response: Response) -> dict:
    """Return the body of a successful response of whois."""
    try:
        response.raise_for_status()
    except HTTPError as error:
        raise LibraryError(str(error)) from error
    return response.json()


class RequestsOauthlibSession:
    """requests-oauthlib as a web app uses it: a new object for each request of the browser."""

    def __init__(self, configuration: Configuration) -> None:
        self._configuration = configuration
        self._client = WebApplicationClient(configuration["client_id"])
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

    def exchange(self, callback: str) -> list:
        library = self._start(state=self._state)
        # By default the library sends HTTP Basic, without a secret with an empty password.
        in_body = self._configuration["method"] != "client_secret_basic"
        try:
            token = library.fetch_token(
                self._configuration["token_endpoint"],
                authorization_response=callback,
                client_secret=self._configuration["client_secret"],
                include_client_id=in_body or None,
                **({"code_verifier": self._verifier} if self._verifier else {}),
            )
        except OAuth2Error as error:
            raise LibraryError(str(error)) from error
        self._library = library
        return [token["token_type"], token["expires_in"]]

    def refresh(self) -> list:
        try:
            token = self._library.refresh_token(
                self._configuration["token_endpoint"], **self._authentication()
            )
        except OAuth2Error as error:
            raise LibraryError(str(error)) from error
        return [token["token_type"], token["expires_in"]]

    def revoke(self) -> None:
        """Send the request that oauthlib makes: this library has no function for it."""
        sent = self._authentication()
        address, headers, body = self._client.prepare_token_revocation_request(
            f"{self._configuration['issuer']}/oauth/revoke",
            self._library.token["refresh_token"],
            "refresh_token",
            **{name: value for name, value in sent.items() if name != "auth"},
        )
        requests.post(address, body, headers=headers, auth=sent.get("auth")).raise_for_status()

    def whois(self) -> dict:
        return read_player(self._library.get(self._configuration["whois"]))

    def _authentication(self) -> dict:
        """Return how the client proves itself: the library leaves that to its user here."""
        both = self._configuration["client_id"], self._configuration["client_secret"] or ""
        if self._configuration["method"] == "client_secret_basic":
            return {"auth": HTTPBasicAuth(*both)}
        return dict(zip(("client_id", "client_secret"), both, strict=True))

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

    def exchange(self, callback: str) -> list:
        library = self._start()
        try:
            token = library.fetch_token(
                self._configuration["token_endpoint"],
                authorization_response=callback,
                state=self._state,
                code_verifier=self._verifier,
            )
        except AuthlibBaseError as error:
            raise LibraryError(str(error)) from error
        if "access_token" not in token:  # the library raises only if the body has an `error`
            raise LibraryError(token["message"])
        self._library = library
        return [token["token_type"], token["expires_in"]]

    def refresh(self) -> list:
        try:
            token = self._library.refresh_token(self._configuration["token_endpoint"])
        except AuthlibBaseError as error:
            raise LibraryError(str(error)) from error
        return [token["token_type"], token["expires_in"]]

    def introspect(self) -> dict:
        address = f"{self._configuration['issuer']}/oauth/introspect"
        refresh_token = self._library.token["refresh_token"]
        return self._library.introspect_token(address, refresh_token, "refresh_token").json()

    def revoke(self) -> None:
        address = f"{self._configuration['issuer']}/oauth/revoke"
        refresh_token = self._library.token["refresh_token"]
        self._library.revoke_token(address, refresh_token, "refresh_token").raise_for_status()

    def whois(self) -> dict:
        return read_player(self._library.get(self._configuration["whois"]))

    def _start(self) -> AuthlibOAuth2Session:
        return AuthlibOAuth2Session(
            self._configuration["client_id"],
            self._configuration["client_secret"],
            redirect_uri=self._configuration["redirect_uri"],
            scope=self._configuration["scope"],
            token_endpoint_auth_method=self._configuration["method"],
            revocation_endpoint_auth_method=self._configuration["method"],
            code_challenge_method="S256" if self._configuration["pkce"] else None,
        )
