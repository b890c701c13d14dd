"""An installation to measure on, and the calls that are made of it."""

import os
import random
import secrets
from collections.abc import Callable
from typing import NamedTuple
from urllib.parse import urlencode

from benchmarks.population import REDIRECT_URI, came, populate
from identity_server import create_app, issue_access_token
from storage import AuthorizationCode


class Call(NamedTuple):
    """One HTTP request."""

    path: str
    authorization: str = ""
    form: str = ""  # a POST where there is one

    def as_bytes(self) -> bytes:
        """As a keep-alive client sends it."""
        lines = [f"{'POST' if self.form else 'GET'} {self.path} HTTP/1.1", "Host: 127.0.0.1"]
        if self.authorization:
            lines.append(f"Authorization: {self.authorization}")
        if self.form:
            lines.append("Content-Type: application/x-www-form-urlencoded")
            lines.append(f"Content-Length: {len(self.form)}")
        return "\r\n".join([*lines, "", self.form]).encode()


class Installation:
    """So many users in `folder`, and one client that all of them allow to know who they are.

    Each method makes `count` calls, of users drawn anew, that are answered 200 when they are sent
    within a minute.
    """

    def __init__(self, folder: str, users: int, progress: Callable[[str], None]) -> None:
        # What is set for another installation does not count for this one.
        for name in [each for each in os.environ if each.startswith(("IDENTITY_", "GUNICORN_"))]:
            del os.environ[name]
        self.settings = {"DATA_DIR": f"{folder}/data", "PICTURE_DIR": f"{folder}/pictures"}
        self.users = users
        self.storage, self.client, self.secret = populate(folder, users, progress=progress)
        self.app = create_app(self.settings)

    def _drawn_users(self, count: int) -> list[int]:
        return random.choices(range(1, self.users + 1), k=count)

    def _consent(self, user_id: int) -> AuthorizationCode:
        """What the server keeps of a user's consent until the code is exchanged."""
        grant = self.storage.read_user(user_id).grants[self.client.id]
        return AuthorizationCode(
            self.client.id, user_id, grant.id, grant.scope, REDIRECT_URI, code_challenge=None
        )

    def info_calls(self, count: int) -> list[Call]:
        """Public profiles."""
        return [Call(f"/api/users/info?id={user_id}") for user_id in self._drawn_users(count)]

    def whois_calls(self, count: int) -> list[Call]:
        """Who holds this access token?"""
        consents = map(self._consent, self._drawn_users(count))
        tokens = (issue_access_token(each, self.storage) for each in consents)
        return [Call("/api/oauth/whois", authorization=f"Bearer {each}") for each in tokens]

    def token_calls(self, count: int) -> list[Call]:
        """Exchanges of codes, each issued now and good once."""
        return [self._token_call(user_id) for user_id in self._drawn_users(count)]

    def _token_call(self, user_id: int) -> Call:
        code = secrets.token_urlsafe(32)
        self.storage.add_code(code, self._consent(user_id))
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": REDIRECT_URI,
            "client_id": self.client.id,
            "client_secret": self.secret,
        }
        return Call("/api/oauth/token", form=urlencode(form))

    def picture_calls(self, count: int) -> list[Call]:
        """Pictures of 64 pixels."""
        return [Call(f"/pfp/medium/{each}-{came(each)}.webp") for each in self._drawn_users(count)]


CALLS = {
    "users/info": Installation.info_calls,
    "whois": Installation.whois_calls,
    "token": Installation.token_calls,
    "picture": Installation.picture_calls,
}
