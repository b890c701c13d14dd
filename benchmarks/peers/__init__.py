"""Two OAuth servers for node that keep everything in memory, to race with.

Both check the client's secret, spend the code, and look up the access token, as this server does.
npm installs them from package.json into a temporary folder.
"""

import contextlib
import json
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlencode
from urllib.request import urlopen

from benchmarks.population import PASSWORD, REDIRECT_URI
from benchmarks.servers import BIND, Server, running_server
from benchmarks.workload import Call
from identity.access.passwords import hash_password

FOLDER = Path(__file__).parent
DRIVERS = {
    "oidc-provider": "oidc_provider.mjs",
    "@node-oauth/express-oauth-server": "express_oauth_server.mjs",
}
PLAYERS = 1000
CLIENT_ID, SECRET = "peer", "the secret of a client in a race"
USERINFO_SCOPE = "openid profile email"
# oidc-provider would sign an ID token, which this server has not.
TOKEN_SCOPE = "profile email"
TOKENS_LAST = 300  # seconds; they expire after 600
READY = f"/codes?count=0&scope={TOKEN_SCOPE.replace(' ', '+')}"


def install(folder: Path) -> str:
    """Install the peers and their drivers in a folder. Return the versions as text."""
    for path in (FOLDER / "package.json", *FOLDER.glob("*.mjs")):
        shutil.copy(path, folder)
    command = ["npm", "install", "--no-audit", "--no-fund"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"npm install failed:\n{done.stderr}")
    node = subprocess.run(["node", "--version"], capture_output=True, text=True, check=True)
    packages = json.loads((FOLDER / "package.json").read_text())["dependencies"].items()
    return ", ".join(
        [f"node {node.stdout.strip()}", *(f"{name} {each}" for name, each in packages)]
    )


@contextlib.contextmanager
def running_peer(folder: Path, package: str) -> Iterator["Peer"]:
    """Run the peer of this package, installed in this folder, on SERVER_CORE."""
    environment = {"NODE_ENV": "production", "PLAYERS": str(PLAYERS), "REDIRECT_URI": REDIRECT_URI}
    environment |= {"CLIENT_ID": CLIENT_ID, "CLIENT_SECRET": SECRET}
    environment["PASSWORD_HASH"] = hash_password(PASSWORD)
    command = ["node", str(folder / DRIVERS[package]), BIND]
    with running_server(command, READY, environment) as server:
        yield Peer(server)


class Peer:
    """A running peer, and the requests to it."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.address = f"http://127.0.0.1:{server.port}"
        self.tokens: list[str] = []
        self.renew_at = 0.0

    def issue_codes(self, count: int, scope: str) -> list[str]:
        """Issue codes for random players."""
        query = urlencode({"count": count, "scope": scope})
        with urlopen(f"{self.address}/codes?{query}") as response:
            return json.load(response)

    def exchange(self, code: str) -> dict:
        """Return the token response for a code."""
        with urlopen(f"{self.address}/token", exchange_form(code).encode()) as response:
            return json.load(response)

    def token_requests(self, count: int) -> list[bytes]:
        """Return exchanges of new codes."""
        codes = self.issue_codes(count, TOKEN_SCOPE)
        return [Call("/token", form=exchange_form(code)).as_bytes() for code in codes]

    def userinfo_requests(self, count: int) -> list[bytes]:
        """Return requests with access tokens of random players."""
        if time.monotonic() > self.renew_at:
            self.renew_at = time.monotonic() + TOKENS_LAST
            codes = self.issue_codes(PLAYERS, USERINFO_SCOPE)
            self.tokens = [self.exchange(code)["access_token"] for code in codes]
        chosen = random.choices(self.tokens, k=count)
        return [Call("/me", authorization=f"Bearer {each}").as_bytes() for each in chosen]

    def sign_in_requests(self, count: int) -> list[bytes]:
        """Return sign-ins of random players."""
        chosen = random.choices(range(1, PLAYERS + 1), k=count)
        forms = (urlencode({"name": each, "password": PASSWORD}) for each in chosen)
        return [Call("/sign-in", form=each).as_bytes() for each in forms]


def exchange_form(code: str, secret: str = SECRET) -> str:
    """Return the form of a token request."""
    form = {
        "grant_type": "authorization_code",
        "code": code,
        "redirect_uri": REDIRECT_URI,
        "client_id": CLIENT_ID,
        "client_secret": secret,
    }
    return urlencode(form)
