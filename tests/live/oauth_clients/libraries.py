"""The libraries, and how each is configured."""

from collections.abc import Callable
from dataclasses import dataclass

from ..conftest import CALLBACK
from .python_sessions import AuthlibSession, FlaskSession, RequestsOauthlibSession
from .session import Configuration, Session

PUBLIC, CONFIDENTIAL = "public", "confidential"
BASIC, POST = "client_secret_basic", "client_secret_post"
LOOPBACK = "http://127.0.0.1:8000/callback"


@dataclass(frozen=True)
class Library:
    """A library, and its methods of client authentication, the default first."""

    name: str
    driver: Callable[[Configuration], Session]
    public: tuple[str, ...] = ("none",)
    confidential: tuple[str, ...] = (BASIC, POST)
    redirect_uri: str = CALLBACK  # as registered

    def methods(self, kind: str) -> tuple[str, ...]:
        """Return the methods of client authentication for this kind of client."""
        return self.public if kind == PUBLIC else self.confidential


LIBRARIES = [
    # By default it sends HTTP Basic, without a secret with an empty password.
    Library("requests-oauthlib", RequestsOauthlibSession, public=(BASIC, "none")),
    Library("authlib", AuthlibSession),
    Library("authlib-flask", FlaskSession),
]
