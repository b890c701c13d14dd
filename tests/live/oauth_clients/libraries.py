"""The libraries, and how each is configured."""

import os
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from .. import npm
from ..conftest import CALLBACK
from .python_sessions import AuthlibSession, RequestsOauthlibSession
from .session import Configuration, Session

SOURCES = Path(__file__).parent
PUBLIC, CONFIDENTIAL = "public", "confidential"
BASIC, POST = "client_secret_basic", "client_secret_post"
LOOPBACK = "http://127.0.0.1:8000/callback"


# By language: what the tests of a library need, as pytest's markers.
MARKS = {"python": pytest.mark.clients, "node": pytest.mark.node, "go": pytest.mark.go}


@dataclass(frozen=True)
class Library:
    """A library, and its methods of client authentication, the default first."""

    name: str
    language: str
    driver: str | Callable[[Configuration], Session]  # the name of a program, or a Python class
    public: tuple[str, ...] = ("none",)
    confidential: tuple[str, ...] = (BASIC, POST)
    redirect_uri: str = CALLBACK  # as registered

    def methods(self, kind: str) -> tuple[str, ...]:
        """Return the methods of client authentication for this kind of client."""
        return self.public if kind == PUBLIC else self.confidential

    @property
    def listens(self) -> bool:
        """Whether the library itself listens at its redirect URI, at a port of its choice."""
        return self.redirect_uri == LOOPBACK


LIBRARIES = [
    # By default it sends HTTP Basic, without a secret with an empty password.
    Library("requests-oauthlib", "python", RequestsOauthlibSession, public=(BASIC, "none")),
    Library("authlib", "python", AuthlibSession),
    Library("oauth4webapi", "node", "oauth4webapi.mjs"),
    # It sends the redirect URI without its query to the token endpoint.
    Library("openid-client", "node", "openid_client.mjs", redirect_uri=CALLBACK.partition("?")[0]),
    # It has no HTTP Basic.
    Library("appauth", "node", "appauth.bundle.cjs", confidential=(POST,), redirect_uri=LOOPBACK),
    Library(
        "x-oauth2", "go", "x_oauth2", public=("auto", "none"), confidential=("auto", BASIC, POST)
    ),
]


def install_npm_packages(folder: Path) -> None:
    """Install the drivers for node, and the packages that they need."""
    for path in (SOURCES / "package.json", SOURCES / "xdg-open", *SOURCES.glob("*.mjs")):
        shutil.copy(path, folder)
    npm.install(folder)


def build_go_driver(folder: Path) -> None:
    """Build the driver for Go, with the packages that Debian installs."""
    own = {"GO111MODULE": "off", "GOPATH": "/usr/share/gocode", "GOCACHE": str(folder / "cache")}
    command = [shutil.which("go"), "build", "-o", folder, SOURCES / "x_oauth2.go"]
    done = subprocess.run(command, env=os.environ | own, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
