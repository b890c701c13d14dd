"""The Space Game's own server: it finds out who plays, and keeps each player's best score.

    CLIENT_ID=... CLIENT_SECRET=... python examples/space_game/backend.py

The page gets a code through the identity server's own identity.js: from the play page that embeds
the game, or from a popup. This server exchanges the code, because the client secret must never
reach a browser. It needs only the standard library. The client's game URL and redirect URI are
http://127.0.0.1:5001/
"""

import contextlib
import json
import os
import re
import secrets
import threading
from html import escape
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlencode, urlsplit

SERVER = os.environ.get("SERVER", "http://127.0.0.1:8000")  # the identity server
HOST, PORT = os.environ.get("HOST", "127.0.0.1"), int(os.environ.get("PORT", "5001"))
ORIGIN = os.environ.get("ORIGIN", f"http://{HOST}:{PORT}")  # where browsers reach this server
CHAT = os.environ.get("CHAT", "")  # host:port of chat.py; without it the game has no chat
CLIENT = {name.lower(): os.environ.get(name, "") for name in ("CLIENT_ID", "CLIENT_SECRET")}
SCORES = Path(os.environ.get("SCORES", "scores.json"))  # best scores by player id: names change
PAGES = Path(__file__).parent
KINDS = {".html": "text/html", ".css": "text/css", ".js": "text/javascript"}
POLICY = (
    f"default-src 'none'; script-src 'self' {SERVER}/static/v1/identity.js; "
    "style-src 'self'; base-uri 'none'; form-action 'none'; "
    f"img-src {SERVER} data:; connect-src 'self' {SERVER}{CHAT and f' ws://{CHAT}'}; "
    f"frame-ancestors {SERVER}"  # no other page can embed the game: clickjacking
)
MAX_SCORE = 1000  # no minute has more stars
# Bytes: a code has 43, its verifier 72, and JSON of this length cannot exceed the recursion limit.
BODY_LIMIT = 500
SHOWN = 10  # scores in the list
PLAYERS_KEPT = 10_000

# Player ids, and access tokens, by a random token, which the page keeps in memory and sends with
# each request. Not a cookie: in a frame on another site browsers drop cookies that are not
# SameSite=None, Secure and Partitioned, and over plain http those, too. A token always works, and
# no other page can make a browser send it. A reload loses it, which costs nothing: the identity
# server remembers the consent and gives another code.
players: dict[str, tuple[int, str]] = {}
saving = threading.Lock()


class Refused(Exception):
    """An error message for the game, with an HTTP status."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


# -- who plays ----------------------------------------------------------------------------------


def sign_in(answer: dict[str, str]) -> dict:
    """Exchange a code. Return the player's id and a new token. Raises Refused."""
    form = {"grant_type": "authorization_code", **answer, **CLIENT}
    access_token = call_api("/api/oauth/token", form=form)["access_token"]  # RFC 6749 4.1.3
    player = call_api(f"/api/oauth/whois?client_id={CLIENT['client_id']}", access_token)
    for old in list(players)[:-PLAYERS_KEPT]:
        players.pop(old, None)
    token = secrets.token_urlsafe(32)
    players[token] = player["id"], access_token
    return {"token": token, "id": player["id"]}


def get_ticket(access_token: str, nonce: dict[str, str]) -> dict[str, str]:
    """Return a ticket for the chat. Raises Refused, as after ten minutes, when the token ends."""
    ticket = call_api("/api/tickets", access_token, {"server": CHAT, **nonce})
    return {"ticket": ticket["ticket"]}


def call_api(path: str, access_token: str = "", form: dict[str, str] | None = None) -> dict:
    """Call the identity server. Return its response. Raises Refused."""
    headers = {"Authorization": f"Bearer {access_token}"} if access_token else {}
    body = None
    if form:
        headers["Content-Type"] = "application/x-www-form-urlencoded"
        body = urlencode(form)
    connect = HTTPSConnection if SERVER.startswith("https:") else HTTPConnection
    connection = connect(urlsplit(SERVER).netloc, timeout=5)
    try:
        connection.request("POST" if form else "GET", path, body, headers)
        response = connection.getresponse()
        values = json.load(response)
    except (OSError, HTTPException, ValueError) as error:
        raise Refused(502, f"the identity server does not respond: {error}") from error
    if response.status != 200:
        raise Refused(403, f"the identity server refused: {values['message']}")
    return values


# -- scores -------------------------------------------------------------------------------------


def read_scores() -> dict[str, int]:
    """Return the best scores by player id."""
    return json.loads(SCORES.read_text()) if SCORES.exists() else {}


def best_scores() -> list[dict[str, int]]:
    """Return the highest scores. The page reads the names from the identity server."""
    ranked = sorted(read_scores().items(), key=lambda each: -each[1])
    return [{"id": int(player), "score": score} for player, score in ranked[:SHOWN]]


def keep_score(player_id: int, score: int) -> None:
    """Save a score if it is the player's best. Readers see the old file or the new one."""
    with saving:
        scores = read_scores()
        scores[str(player_id)] = max(score, scores.get(str(player_id), 0))
        temporary = SCORES.with_name(f".{SCORES.name}")
        with temporary.open("w") as file:
            json.dump(scores, file)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(SCORES)


# -- requests -----------------------------------------------------------------------------------


class RequestHandler(BaseHTTPRequestHandler):
    """A handler for the requests of the game's page."""

    timeout = 10  # seconds

    def handle(self) -> None:
        """Handle a request; the browser may close the connection."""
        with contextlib.suppress(ConnectionError):
            super().handle()

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        if path == "/scores":
            return self.respond(200, best_scores())
        file = PAGES / ("index.html" if path == "/" else path[1:])
        # Only names in the folder itself: `path` may contain "..".
        if file not in PAGES.iterdir() or file.suffix not in KINDS:
            return self.respond(404, {"message": "there is no such page"})
        text = file.read_text()
        if path == "/":
            text = text.replace("$SERVER", escape(SERVER))
            text = text.replace("$CLIENT_ID", escape(CLIENT["client_id"]))
            text = text.replace("$CHAT", escape(CHAT))
        self.send(200, text, KINDS[file.suffix])

    def do_HEAD(self) -> None:
        """Answer the play page, which asks whether the game does."""
        self.send(200, "", KINDS[".html"])

    def do_POST(self) -> None:
        try:
            self.refuse_cross_site()
            values = self.read_json()
            if self.path == "/sign-in":
                answer = read_texts(values, "code", "code_verifier")  # RFC 7636 4.5
                return self.respond(200, sign_in(answer))
            if self.path == "/scores":
                keep_score(self.read_player()[0], read_score(values))
                return self.respond(200, best_scores())
            if self.path == "/ticket":
                nonce = read_texts(values, "nonce")
                return self.respond(200, get_ticket(self.read_player()[1], nonce))
            self.respond(404, {"message": "there is no such page"})
        except Refused as refused:
            self.respond(refused.status, {"message": str(refused)})

    def refuse_cross_site(self) -> None:
        """Raise Refused for a POST that is not from the game's own page.

        Another page could sign a player in with a code of an attacker (RFC 6749 10.12).
        """
        fetch_site = self.headers.get("Sec-Fetch-Site", "same-origin")  # absent over plain http
        if self.headers.get("Origin") != ORIGIN or fetch_site != "same-origin":
            raise Refused(403, "the request is from another site")

    def read_json(self) -> dict:
        """Return the JSON object in the body. Raises Refused."""
        length = self.headers.get("Content-Length", "")
        if not re.fullmatch("[0-9]{1,3}", length) or int(length) > BODY_LIMIT:
            raise Refused(413, f"send a body of up to {BODY_LIMIT} bytes")
        try:
            values = json.loads(self.rfile.read(int(length)))
        except ValueError as error:
            raise Refused(400, "the body is not JSON") from error
        if not isinstance(values, dict):
            raise Refused(400, "the body is not an object")
        return values

    def read_player(self) -> tuple[int, str]:
        """Return the id and the access token of who sent the request. Raises Refused."""
        token = self.headers.get("Authorization", "").removeprefix("Bearer ")
        if token not in players:
            raise Refused(401, "your session has ended: load the page again")
        return players[token]

    def respond(self, status: int, values: object) -> None:
        """Send a JSON response."""
        self.send(status, json.dumps(values), "application/json")

    def send(self, status: int, text: str, kind: str) -> None:
        """Send a response."""
        self.send_response(status)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Security-Policy", POLICY)
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_: object) -> None:
        """Log nothing."""


def read_texts(values: dict, *names: str) -> dict[str, str]:
    """Return the texts with these names in a request. Raises Refused."""
    texts = {name: values.get(name) for name in names}
    for name, value in texts.items():
        if not isinstance(value, str) or not value.isascii():
            raise Refused(400, f"{name} must be ASCII text")
    return texts


def read_score(values: dict) -> int:
    """Return the score in a request. Raises Refused.

    The game runs on the player's machine, so a player can forge a score. A game that must prevent
    this runs on its server.
    """
    score = values.get("score")
    if type(score) is not int or not 0 <= score <= MAX_SCORE:
        raise Refused(400, f"the score must be a whole number from 0 to {MAX_SCORE}")
    return score


class Server(ThreadingHTTPServer):
    """A server with one thread per connection."""

    # The listen backlog: with socketserver's 5, some of many simultaneous connections are reset.
    request_queue_size = 128


if __name__ == "__main__":
    print(f"The Space Game is at {ORIGIN}/, to be played on {SERVER}", flush=True)
    with contextlib.suppress(KeyboardInterrupt):
        Server((HOST, PORT), RequestHandler).serve_forever()
