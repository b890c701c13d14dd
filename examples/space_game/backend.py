"""The Space Game's own server: it learns who plays, and keeps each player's best score.

    CLIENT_ID=... CLIENT_SECRET=... python examples/space_game/backend.py

The game is shown inside the identity server's page, which gives it a code; this program exchanges
the code, for the client secret must never reach a browser. It needs the standard library alone.
The client's game URL is http://127.0.0.1:5001/
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
ORIGIN = os.environ.get("ORIGIN", f"http://{HOST}:{PORT}")  # where browsers reach this program
CLIENT = {name.lower(): os.environ.get(name, "") for name in ("CLIENT_ID", "CLIENT_SECRET")}
SCORES = Path(os.environ.get("SCORES", "scores.json"))  # each player's best, by id: names change
PAGES = Path(__file__).parent
KINDS = {".html": "text/html", ".css": "text/css", ".js": "text/javascript"}
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; base-uri 'none'; form-action 'none'; "
    f"img-src {SERVER} data:; connect-src 'self' {SERVER}; "
    f"frame-ancestors {SERVER}"  # no other page shows this game around a click of its own
)
MAX_SCORE = 1000  # more stars than that do not fall in a minute
BODY_LIMIT = 500  # bytes: a code has 43, and so little JSON nests no deeper than Python reads it
SHOWN = 10  # scores in the list
PLAYERS_KEPT = 10_000

# The ids of those who play, by a random token that their page keeps in its memory and sends along.
# Not a cookie: in a frame on another site browsers drop those that are not SameSite=None, Secure
# and Partitioned, and over plain http, as on one's own machine, those as well. A token works in
# both, and no other page can have a browser send it. It is gone when the page is loaded anew, which
# costs nothing: the identity server remembers what the player allowed, and gives another code.
players: dict[str, int] = {}
saving = threading.Lock()


class Refused(Exception):
    """What the game is told, with an HTTP status."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


# -- who plays ----------------------------------------------------------------------------------


def sign_in(code: str) -> dict:
    """The player whom a code is about, with a new token for them. Raises Refused."""
    # No redirect_uri: a code that came by message has none.
    form = urlencode({"grant_type": "authorization_code", "code": code, **CLIENT})
    form_encoded = {"Content-Type": "application/x-www-form-urlencoded"}
    answer = ask("POST", "/api/oauth/token", form, form_encoded)  # RFC 6749 4.1.3
    bearer = {"Authorization": f"Bearer {answer['access_token']}"}
    player = ask("GET", "/api/oauth/whois", None, bearer)
    for forgotten in list(players)[:-PLAYERS_KEPT]:
        players.pop(forgotten, None)
    token = secrets.token_urlsafe(32)
    players[token] = player["id"]
    return {"token": token, "id": player["id"]}


def ask(method: str, path: str, body: str | None, headers: dict[str, str]) -> dict:
    """What the identity server answers. Raises Refused."""
    connect = HTTPSConnection if SERVER.startswith("https:") else HTTPConnection
    connection = connect(urlsplit(SERVER).netloc, timeout=10)
    try:
        connection.request(method, path, body, headers)
        answer = connection.getresponse()
        values = json.load(answer)
    except (OSError, HTTPException, ValueError) as error:
        raise Refused(502, f"the identity server does not answer: {error}") from error
    if answer.status != 200:
        raise Refused(403, f"the identity server refuses: {values['message']}")
    return values


# -- scores -------------------------------------------------------------------------------------


def read_scores() -> dict[str, int]:
    """The best score of each player id."""
    return json.loads(SCORES.read_text()) if SCORES.exists() else {}


def best_scores() -> list[dict[str, int]]:
    """The top of the list; the page asks the identity server what those players are called now."""
    ranked = sorted(read_scores().items(), key=lambda each: -each[1])
    return [{"id": int(player), "score": score} for player, score in ranked[:SHOWN]]


def keep_score(player_id: int, score: int) -> None:
    """Keep a score where it is the player's best. A reader sees the old file or the new one."""
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


class Browser(BaseHTTPRequestHandler):
    """One request of the game's page."""

    timeout = 10  # seconds

    def handle(self) -> None:
        """Answer it; a browser that has left is nobody's fault."""
        with contextlib.suppress(ConnectionError):
            super().handle()

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        if path == "/scores":
            return self.answer(200, best_scores())
        file = PAGES / ("index.html" if path == "/" else path[1:])
        # A name in the folder itself: `path` may hold anything.
        if file not in PAGES.iterdir() or file.suffix not in KINDS:
            return self.answer(404, {"message": "there is nothing here"})
        text = file.read_text()
        if path == "/":
            text = text.replace("$SERVER", escape(SERVER))
            text = text.replace("$CLIENT_ID", escape(CLIENT["client_id"]))
        self.send(200, text, KINDS[file.suffix])

    def do_POST(self) -> None:
        try:
            self.refuse_cross_site()
            values = self.read_json()
            if self.path == "/sign-in":
                return self.answer(200, sign_in(read_code(values)))
            if self.path == "/scores":
                keep_score(self.read_player(), read_score(values))
                return self.answer(200, best_scores())
            self.answer(404, {"message": "there is nothing here"})
        except Refused as refused:
            self.answer(refused.status, {"message": str(refused)})

    def refuse_cross_site(self) -> None:
        """Only the game's own page may post: no other page brings a code of its own here.

        Whoever could would sign a player in as somebody else (RFC 6749 10.12). Raises Refused.
        """
        fetch_site = self.headers.get("Sec-Fetch-Site", "same-origin")  # not sent over plain http
        if self.headers.get("Origin") != ORIGIN or fetch_site != "same-origin":
            raise Refused(403, "this was sent from another site")

    def read_json(self) -> dict:
        """The object in the body. Raises Refused."""
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

    def read_player(self) -> int:
        """The id of who sent this: of nobody else. Raises Refused."""
        token = self.headers.get("Authorization", "").removeprefix("Bearer ")
        if token not in players:
            raise Refused(401, "the game does not know you any more")
        return players[token]

    def answer(self, status: int, values: object) -> None:
        """Send JSON."""
        self.send(status, json.dumps(values), "application/json")

    def send(self, status: int, text: str, kind: str) -> None:
        """Send a text."""
        self.send_response(status)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Security-Policy", POLICY)
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_: object) -> None:
        """Keep no log."""


def read_code(values: dict) -> str:
    """The code that a page sent. Raises Refused."""
    code = values.get("code")
    if not isinstance(code, str) or not code.isascii():
        raise Refused(400, "a code is a text in ASCII")
    return code


def read_score(values: dict) -> int:
    """The score that a page sent. Raises Refused.

    The game runs on the player's machine, so its score is what the player says: a game where that
    matters is played by its server.
    """
    score = values.get("score")
    if type(score) is not int or not 0 <= score <= MAX_SCORE:
        raise Refused(400, f"a score is a whole number from 0 to {MAX_SCORE}")
    return score


class Server(ThreadingHTTPServer):
    """Answers each browser in a thread of its own."""

    # Connections that wait to be accepted: of more than socketserver's 5 at once some are reset.
    request_queue_size = 128


if __name__ == "__main__":
    print(f"The Space Game is at {ORIGIN}/, to be played on {SERVER}", flush=True)
    with contextlib.suppress(KeyboardInterrupt):
        Server((HOST, PORT), Browser).serve_forever()
