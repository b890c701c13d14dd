"""A session of an OAuth library: one player signs in with it."""

from typing import Protocol, TypedDict


class Configuration(TypedDict):
    """How a session is configured. A library takes the endpoints, or reads them at the issuer."""

    issuer: str
    authorization_endpoint: str
    token_endpoint: str
    whois: str
    client_id: str
    client_secret: str | None
    redirect_uri: str
    scope: str
    method: str  # of client authentication, as RFC 7591 names them, or "auto"
    pkce: bool


class LibraryError(Exception):
    """The error that a library raised, with its text."""


class Session(Protocol):
    """A session of a library. Its methods raise LibraryError."""

    def authorize(self) -> str:
        """Return the address where the library sends the browser."""

    def exchange(self, callback: str) -> list:
        """Take the address where the browser arrived, and exchange its code.

        Returns the token type and the seconds that the token is valid.
        """

    def refresh(self) -> list:
        """Use the refresh token, and return what `exchange` does."""

    def introspect(self) -> dict:
        """Return what the server says of the refresh token (RFC 7662)."""

    def revoke(self) -> None:
        """End the refresh token (RFC 7009)."""

    def whois(self) -> dict:
        """Return the response of whois."""
