"""The chat of the Space Game: a game server that admits players with join tickets alone.

    CHAT=127.0.0.1:5002 python examples/space_game/chat.py

CHAT is its own address, for which tickets have to be; backend.py reads it as well. The chat has no
client secret, and sees no access token. It needs only the standard library, and therefore reads
WebSocket frames itself, as far as it needs them (RFC 6455). docs/engines/servers.md has servers
with libraries.
"""

import contextlib
import hashlib
import json
import secrets
import threading
import time
from base64 import b64encode
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socket import MSG_DONTWAIT

from backend import CHAT, Refused, call_api

TICKET_TIMEOUT = 20  # seconds
CHECK_EVERY = 5  # seconds, to see it in a demo; elsewhere a minute is enough
MESSAGE_LIMIT = 2000  # bytes
KEY_SUFFIX = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"  # RFC 6455 1.3
TEXT, CLOSE = 0x81, 0x88  # whole messages, RFC 6455 5.2
REFUSED = 1008  # RFC 6455 7.4.1

players: dict["Connection", dict] = {}  # the profile of each player inside
speaking = threading.Lock()


class Connection(BaseHTTPRequestHandler):
    """The connection of a page, in a thread of its own."""

    timeout = TICKET_TIMEOUT
    protocol_version = "HTTP/1.1"  # that of 101

    def do_GET(self) -> None:
        """Begin a WebSocket connection (RFC 6455 4.2.2)."""
        self.close_connection = True
        key = self.headers.get("Sec-WebSocket-Key")
        if not key:
            self.send_response(200, "This is a WebSocket server")
            return self.end_headers()
        digest = hashlib.sha1(f"{key}{KEY_SUFFIX}".encode()).digest()
        self.send_response(101)
        self.send_header("Upgrade", "websocket")
        self.send_header("Connection", "Upgrade")
        self.send_header("Sec-WebSocket-Accept", b64encode(digest).decode())
        self.end_headers()
        try:
            self.let_in()
        except TimeoutError:
            self.refuse("no ticket came")
        except OSError:
            pass  # the page has left

    def let_in(self) -> None:
        """Let a player in who has a ticket for this connection, and hand on what they say."""
        nonce = secrets.token_urlsafe(16)
        self.send(TEXT, nonce.encode())
        form = {"ticket": self.receive(), "server": CHAT, "nonce": nonce}
        try:
            players[self] = call_api("/api/tickets/check", form=form)["user"]
        except Refused as refused:
            return self.refuse(str(refused))
        self.connection.settimeout(None)
        try:
            say(self, "is here")
            while text := self.receive():
                say(self, text)
        finally:
            players.pop(self, None)

    def receive(self) -> str:
        """Return the next text; "" at the end. A browser sends a short text in one frame."""
        kind, length = self.rfile.read(2).ljust(2, b"\0")
        length &= 0x7F  # without the bit of the mask, which browsers always send
        if length == 126:
            length = int.from_bytes(self.rfile.read(2))
        if kind != TEXT or length == 127 or length > MESSAGE_LIMIT:
            return ""
        mask, data = self.rfile.read(4), self.rfile.read(length)
        text = bytes(byte ^ mask[n % 4] for n, byte in enumerate(data))
        return text.decode(errors="replace")

    def send(self, kind: int, data: bytes) -> None:
        """Send a frame. Raises OSError, also for a page that does not read what it gets."""
        length = [len(data)] if len(data) < 126 else [126, *len(data).to_bytes(2)]
        frame = bytes([kind, *length]) + data
        if self.connection.send(frame, MSG_DONTWAIT) < len(frame):
            raise BlockingIOError

    def refuse(self, reason: str) -> None:
        """End the connection; the page shows the reason."""
        with contextlib.suppress(OSError):
            self.send(CLOSE, REFUSED.to_bytes(2) + reason.encode()[:123])

    def log_message(self, *_: object) -> None:
        """Log nothing."""


def say(speaker: Connection, text: str) -> None:
    """Send a text to all players, if the speaker is one of them: a dropped one may still send."""
    with speaking:
        if profile := players.get(speaker):
            said = json.dumps({"id": profile["id"], "name": profile["name"], "text": text})
            for each in list(players):
                try:
                    each.send(TEXT, said.encode())
                except OSError:
                    players.pop(each, None)


def drop_suspended() -> None:
    """Drop suspended and deleted players, again and again: it asks about up to a hundred."""
    while True:
        time.sleep(CHECK_EVERY)
        ids = {profile["id"] for profile in list(players.values())[:100]}
        try:
            asked = f"/api/users/batch?ids={','.join(map(str, ids))}"
            users = call_api(asked)["users"] if ids else []
        except Refused:
            continue  # while the identity server does not answer, nobody has to leave
        gone = ids - {user["id"] for user in users if "suspended" not in user}
        for connection, profile in list(players.items()):
            if profile["id"] in gone:
                players.pop(connection, None)
                connection.refuse("this account is suspended or deleted")


if __name__ == "__main__":
    host, _, port = CHAT.rpartition(":")
    threading.Thread(target=drop_suspended, daemon=True).start()
    with contextlib.suppress(KeyboardInterrupt):
        ThreadingHTTPServer((host, int(port)), Connection).serve_forever()
