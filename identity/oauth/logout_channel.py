"""The logout tokens that apps get (OpenID Connect Back-Channel Logout 1.0), as they are sent.

A program finds a session by its `sid`, and some by nothing else; a token without one ends all that
a program has of the player (2.6). So the end of everything is one such token and one of each sid.
"""

import contextlib
import json
import logging
import secrets
import time
from urllib.parse import urlencode

from identity.acts.rights import is_of_administrators
from identity.messages.outbox import LOGOUT, Channel, Deferred, NotSent, Postponed
from identity.messages.webhook import TIMEOUT, deliver
from identity.oauth.clients import FORM_TYPE
from identity.oauth.openid import issue_jwt
from model.errors import NotFound
from model.kinds import OUTBOX
from model.records import Client, now_ms
from model.site_records import Message
from storage import Storage

EVENT = "http://schemas.openid.net/event/backchannel-logout"
LOGOUT_TOKEN_TYPE = "logout+jwt"
LOGOUT_TOKEN_MAX_AGE = 120  # seconds
FIRST_TIMEOUT = 2  # seconds for a whole message: of several apps that are down, others wait so long
AFTER_FAILURE = 60_000  # milliseconds without a try
# A member who runs slow servers takes one second of so many, and some milliseconds of that at once.
SHARE, AT_ONCE = 30, 180_000
UNKNOWN_THERE = (400, 501)  # the app has no such session, or cannot end one (2.8): no further try

logger = logging.getLogger("identity_server")  # the app's own


class Logouts(Channel):
    """The channel of logout tokens."""

    name = LOGOUT
    poll = 1.0  # seconds
    delays = [60, 300, 1800, 7200, 21_600, 43_200, 54_000]  # seconds: a day and a half

    def __init__(self, store: Storage, issuer: str) -> None:
        self._store = store
        self._issuer = issuer
        self._silent: dict[str, int] = {}  # by app that failed: until when nothing is sent
        self._busy: dict[int, int] = {}  # by member: until when their apps have had their share

    def send(self, message: Message) -> None:
        """Post the tokens of a message; without an app that wants them, do nothing.

        Raises NotSent. What the app was told of it is not told again.
        """
        values = json.loads(message.body)
        client = self._store.clients.find(values["client"])
        # From a time without OpenID Connect: it would end sessions that have begun since.
        is_old = now_ms() > message.created + 2 * sum(self.delays) * 1000
        if is_old or client is None or client.disabled or not client.backchannel_logout_uri:
            return
        private = is_of_administrators(self._store, client)
        now, busy = now_ms(), self._busy.get(client.owner_id, 0)
        turn = max(self._silent.get(client.id, 0), busy - AT_ONCE)
        if turn > now:
            raise Postponed(turn)
        begun, left = time.monotonic(), list(values["sids"])
        timeout = TIMEOUT if message.tries else FIRST_TIMEOUT
        try:
            while left:
                self._post(client, private, values | {"sid": left[0]}, begun + timeout)
                del left[0]
        except NotSent as error:
            self._note_rest(message, values | {"sids": left})
            if len(left) < len(values["sids"]):  # the app is slow, or there are many
                raise Postponed(now_ms() + timeout * 1000) from error
            self._silent[client.id] = now_ms() + AFTER_FAILURE
            raise Deferred(str(error)) from error
        finally:
            if not private:
                took = round((time.monotonic() - begun) * 1000)
                self._busy[client.owner_id] = max(busy, now) + SHARE * took

    def _post(self, client: Client, private: bool, values: dict, ends: float) -> None:
        """Post the token of one sid until a time. Raises NotSent."""
        timeout = ends - time.monotonic()
        if timeout <= 0:
            raise NotSent("It takes too long for each token.")
        # Signed here: a token of an earlier try has expired.
        token = issue_jwt(
            self._store, self._issuer, claims_of(values), LOGOUT_TOKEN_TYPE, LOGOUT_TOKEN_MAX_AGE
        )
        body = urlencode({"logout_token": token}).encode()
        headers = {"Content-Type": FORM_TYPE, "User-Agent": "Identity-Server"}
        status, _ = deliver(client.backchannel_logout_uri, private, body, headers, timeout)
        if status in UNKNOWN_THERE:
            logger.info("client %s answered a logout token with %d", client.id, status)
        elif not 200 <= status < 300:
            raise NotSent(f"It answered with the status {status}.")

    def _note_rest(self, message: Message, values: dict) -> None:
        """Keep in the message what the app was not told yet."""
        with contextlib.suppress(NotFound), self._store.records(OUTBOX).edit(message.id) as kept:
            kept.body = json.dumps(values)


def claims_of(values: dict) -> dict:
    """Return the claims of a token (2.4) for a player, a client and a sid, "" for all sessions."""
    claims = {"aud": values["client"], "sub": str(values["user"]), "events": {EVENT: {}}}
    claims |= {"jti": secrets.token_urlsafe(16)}
    return claims | {"sid": values["sid"]} if values["sid"] else claims
