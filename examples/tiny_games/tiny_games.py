"""Tiny games, each a page with a script, at an origin of its own: http://127.0.0.1:PORT/

    python examples/tiny_games/tiny_games.py lights:5010:CLIENT_ID:"City Lights"

Each argument has the name of a script, a port, the id of a public client with the game's address as
its game URL and redirect URI, and a title. No game has a secret: the identity server's identity.js
signs players in. Only the garden has a game server, garden.py.
"""

import contextlib
import json
import re
import sys
import threading
from html import escape
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import garden

HOST, SERVER = "127.0.0.1", garden.SERVER
PAGES = Path(__file__).parent
KINDS = {".html": "text/html", ".css": "text/css", ".js": "text/javascript"}
POLICY = (
    f"default-src 'none'; script-src 'self' {SERVER}/static/v1/identity.js; style-src 'self'; "
    f"base-uri 'none'; form-action 'none'; img-src {SERVER} data:; connect-src 'self' {SERVER}; "
    f"frame-ancestors {SERVER}"  # no other page can embed the games: clickjacking
)
BODY_LIMIT = 3000  # bytes: a ticket has up to 2,000


class RequestHandler(BaseHTTPRequestHandler):
    """A handler for the requests of a game's page."""

    timeout = 10  # seconds

    def handle(self) -> None:
        with contextlib.suppress(ConnectionError):  # the browser may close the connection
            super().handle()

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        if path == "/plots" and self.server.game == "garden":
            return self.respond(200, garden.plots)
        file = PAGES / ("index.html" if path == "/" else path[1:])
        # Only names in the folder itself: `path` may contain "..".
        if file not in PAGES.iterdir() or file.suffix not in KINDS:
            return self.respond(404, {"message": "there is no such page"})
        text = file.read_text()
        if path == "/":
            for name in ("server", "game", "client_id", "title"):
                text = text.replace(f"${name}", escape(getattr(self.server, name)))
        self.send(200, text, KINDS[file.suffix])

    def do_HEAD(self) -> None:
        """Answer the play page, which asks whether the game does."""
        self.send(200, "", KINDS[".html"])

    def do_POST(self) -> None:
        """Pass a request of the garden's page on to its server."""
        if self.server.game != "garden":
            return self.respond(404, {"message": "there is no such page"})
        length = self.headers.get("Content-Length", "")
        if not re.fullmatch("[0-9]{1,4}", length) or int(length) > BODY_LIMIT:
            return self.respond(413, {"message": f"send a body of up to {BODY_LIMIT} bytes"})
        try:
            values = json.loads(self.rfile.read(int(length)))
        except (ValueError, RecursionError):
            return self.respond(400, {"message": "the body is not JSON"})
        address = f"{HOST}:{self.server.server_port}"
        self.respond(*garden.answer(self.path, values, address))

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


class Server(ThreadingHTTPServer):
    """The server of one game, with one thread per connection."""

    # The listen backlog: with socketserver's 5, some of many simultaneous connections are reset.
    request_queue_size = 128

    def __init__(self, argument: str) -> None:
        self.game, port, self.client_id, self.title = argument.split(":", 3)
        self.server = SERVER
        super().__init__((HOST, int(port)), RequestHandler)


if __name__ == "__main__":
    if not sys.argv[1:]:
        sys.exit(__doc__)
    servers = [Server(argument) for argument in sys.argv[1:]]
    for each in servers:
        print(f"{each.game} is at http://{HOST}:{each.server_port}/", flush=True)
        threading.Thread(target=each.serve_forever, daemon=True).start()
    with contextlib.suppress(KeyboardInterrupt):
        threading.Event().wait()
