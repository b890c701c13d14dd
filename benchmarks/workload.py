"""The measured installation, and the calls to it."""

import copy
import os
import random
import secrets
from collections.abc import Callable
from typing import NamedTuple
from urllib.parse import parse_qs, urlencode

from benchmarks.population import PASSWORD, REDIRECT_URI, joined, make_player
from identity.http.signing import serializer
from identity.oauth.grants import issue_access_token
from identity.oauth.refresh import secret_after
from identity.oauth.terms import JOIN
from identity.oauth.tickets import PURPOSE
from identity_server import create_app
from model.grant_records import AuthorizationCode
from model.kinds import FAMILIES
from model.records import OFFLINE, Session, now_ms

# Settings of another installation, which are ignored.
PREFIXES = ("IDENTITY_", "GUNICORN_", "GRANIAN_")
SIGNED_IN = 100  # players, for the calls that need a session
GAME_SERVER, NONCE = "play.example.org:30000", "f3a0b1c2d3e4"  # of the calls about tickets
ACTIVE, SHARE_OF_ACTIVE = 1000, 0.9  # in a community most calls are about few players


class Call(NamedTuple):
    """One HTTP request."""

    path: str
    authorization: str = ""
    form: str = ""  # makes it a POST
    cookie: str = ""
    address: str = ""  # of the client, as a proxy tells it

    def as_bytes(self) -> bytes:
        """Return the request of a keep-alive client."""
        lines = [f"{'POST' if self.form else 'GET'} {self.path} HTTP/1.1", "Host: 127.0.0.1"]
        if self.authorization:
            lines.append(f"Authorization: {self.authorization}")
        if self.cookie:
            lines += [f"Cookie: {self.cookie}", "Sec-Fetch-Site: same-origin"]
        if self.address:
            lines.append(f"X-Forwarded-For: {self.address}")
        if self.form:
            lines.append("Content-Type: application/x-www-form-urlencoded")
            lines.append(f"Content-Length: {len(self.form)}")
        return "\r\n".join([*lines, "", self.form]).encode()


class Installation:
    """An installation in `folder` with this number of users, who all allow one client.

    Each method returns `count` calls for random users. If sent within a minute, each gets a 200.
    """

    def __init__(
        self,
        folder: str,
        users: int,
        fill: Callable,
        progress: Callable[[str], None],
        url: str = "files",
    ) -> None:
        for name in [each for each in os.environ if each.startswith(PREFIXES)]:
            del os.environ[name]
        self.settings = {"DATA_DIR": f"{folder}/data", "PICTURE_DIR": f"{folder}/pictures"}
        self.settings["STORAGE"] = url
        self.users = users
        self.everyone = self.active = range(1, users + 1)  # ids
        self.storage, self.client, self.secret = fill(folder, users, progress=progress)
        self.cookies: list[str] = []  # of signed-in players
        self.app = create_app(self.settings)

    def with_active_players(self) -> "Installation":
        """Return the same installation with SHARE_OF_ACTIVE of its calls for ACTIVE players."""
        skewed = copy.copy(self)
        skewed.active = self.everyone[:: self.users // ACTIVE]
        return skewed

    def _random_users(self, count: int) -> list[int]:
        return [
            random.choice(self.active if random.random() < SHARE_OF_ACTIVE else self.everyone)
            for _ in range(count)
        ]

    def _consent(self, user_id: int) -> AuthorizationCode:
        """Return what the server stores for a code."""
        grant = self.storage.users.read(user_id).grants[self.client.id]
        return AuthorizationCode(
            self.client.id, user_id, grant.id, grant.scope, REDIRECT_URI, code_challenge=None
        )

    def info_calls(self, count: int) -> list[Call]:
        """Return requests for public profiles."""
        return [Call(f"/api/users/info?id={user_id}") for user_id in self._random_users(count)]

    def whois_calls(self, count: int) -> list[Call]:
        """Return requests with an access token."""
        consents = map(self._consent, self._random_users(count))
        tokens = (issue_access_token(each, self.storage) for each in consents)
        return [Call("/api/oauth/whois", authorization=f"Bearer {each}") for each in tokens]

    def token_calls(self, count: int) -> list[Call]:
        """Return exchanges of new codes."""
        return [self._token_call(each) for each in map(self._consent, self._random_users(count))]

    def _token_call(self, consent: AuthorizationCode, path: str = "/api/oauth/token") -> Call:
        code = secrets.token_urlsafe(32)
        self.storage.codes.add(code, consent)
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": REDIRECT_URI,
            "client_id": self.client.id,
            "client_secret": self.secret,
        }
        return Call(path, form=urlencode(form))

    def first_calls(self, count: int) -> list[Call]:
        """Return exchanges of new codes that also give a refresh token."""
        calls = []
        for consent in map(self._consent, self._random_users(count)):
            consent.scope = [*consent.scope, OFFLINE]
            consent.family = secrets.token_urlsafe(12)
            calls.append(self._token_call(consent, "/oauth/token"))
        return calls

    def refresh_calls(self, count: int) -> list[Call]:
        """Return uses of a refresh token and of those that follow, to be made in this order."""
        [first] = self.first_calls(1)
        form = {name: value for name, [value] in parse_qs(first.form).items()}
        token = self.app.test_client().post(first.path, data=form).json["refresh_token"]
        family_id, secret = token.split(".")
        salt, calls = self.storage.records(FAMILIES).read(family_id).salt, []
        form["grant_type"] = "refresh_token"
        for _ in range(count):
            form["refresh_token"] = f"{family_id}.{secret}"
            calls.append(Call(first.path, form=urlencode(form)))
            secret = secret_after(secret, salt)
        return calls

    def ticket_calls(self, count: int) -> list[Call]:
        """Return requests for tickets of a game server."""
        form = urlencode({"server": GAME_SERVER, "nonce": NONCE})
        calls = []
        for consent in map(self._consent, self._random_users(count)):
            consent.scope = [*consent.scope, JOIN]
            token = issue_access_token(consent, self.storage)
            calls.append(Call("/api/tickets", form=form, authorization=f"Bearer {token}"))
        return calls

    def check_calls(self, count: int) -> list[Call]:
        """Return checks of tickets."""
        calls = []
        for consent in map(self._consent, self._random_users(count)):
            values = consent.user_id, consent.client_id, consent.grant_id, GAME_SERVER, NONCE
            ticket = serializer(PURPOSE, self.storage).dumps(values)
            form = {"ticket": ticket, "server": GAME_SERVER, "nonce": NONCE}
            calls.append(Call("/api/tickets/check", form=urlencode(form)))
        return calls

    def picture_calls(self, count: int) -> list[Call]:
        """Return requests for pictures of 64 pixels."""
        return [
            Call(f"/pfp/medium/{each}-{joined(each)}.webp") for each in self._random_users(count)
        ]

    # -- calls of pages; the server believes X-Forwarded-For -----------------------------------

    def sign_in_calls(self, count: int) -> list[Call]:
        """Return sign-ins of random players, each from an address of its own."""
        return [
            Call(
                "/sign-in",
                form=urlencode({"name": make_player(each, "", "").name, "password": PASSWORD}),
                address=f"10.{random.randrange(256)}.{random.randrange(256)}.{number % 256}",
            )
            for number, each in enumerate(random.choices(self.everyone, k=count))
        ]

    def save_calls(self, count: int) -> list[Call]:
        """Return forms that change a bio."""
        forms = (urlencode({"bio": secrets.token_hex(20)}) for _ in range(count))
        cookies = random.choices(self._signed_in(), k=count)
        return [
            Call("/account", form=each, cookie=cookie)
            for each, cookie in zip(forms, cookies, strict=True)
        ]

    def home_calls(self, count: int) -> list[Call]:
        """Return requests of signed-in players for the home page."""
        return [Call("/", cookie=each) for each in random.choices(self._signed_in(), k=count)]

    def _signed_in(self) -> list[str]:
        """Return the session cookies of some players."""
        if not self.cookies:
            users = random.sample(self.everyone, min(SIGNED_IN, self.users))
            self.cookies = list(map(self.sign_in, users))
        return self.cookies

    def sign_in(self, user_id: int) -> str:
        """Start a session of a player, and return its cookie."""
        entry = Session(secrets.token_urlsafe(16), now_ms(), "a benchmark")
        with self.storage.users.edit(user_id) as user:
            user.sessions = [entry]
        values = {"_permanent": True, "user": user_id, "id": entry.id}
        return f"session={serializer('session', self.storage).dumps(values)}"


CALLS = {
    "users/info": Installation.info_calls,
    "whois": Installation.whois_calls,
    "token": Installation.token_calls,
    "picture": Installation.picture_calls,
}
TICKETS = {"ticket": Installation.ticket_calls, "check": Installation.check_calls}
# They save, and wait for the disk; to be made one after the other.
FAMILY_CALLS = {"refresh token": Installation.first_calls, "refresh": Installation.refresh_calls}
PAGES = {  # of a server with PROXIES=1
    "home page": Installation.home_calls,
    "save": Installation.save_calls,
    "sign-in": Installation.sign_in_calls,
}
# Options of `Track` for calls that take long; a worker hashes two passwords at a time.
PAGE_OPTIONS = {
    "home page": {"first_calls": 100},
    "save": {"first_calls": 100},
    "sign-in": {"connections": 2, "least_calls": 2, "first_calls": 2},
}


def requests_of(installation: Installation, call: str) -> Callable[[int], list[bytes]]:
    """Return a function that makes requests of a call."""
    return lambda count: [each.as_bytes() for each in (CALLS | PAGES)[call](installation, count)]
