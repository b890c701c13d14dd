"""A web app that asks an identity server who its visitor is, and shows every message.

Numbers in parentheses are sections of RFC 6749. It needs only the standard library, and CLIENT_ID
and CLIENT_SECRET in the environment. Its redirect URI is http://127.0.0.1:5000/callback
"""

import contextlib
import hashlib
import json
import os
import re
import secrets
from base64 import urlsafe_b64encode
from dataclasses import dataclass, field
from html import escape
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qsl, urlencode, urlsplit

SERVER = os.environ.get("SERVER", "http://127.0.0.1:8000")  # the identity server
HOST, PORT = os.environ.get("HOST", "127.0.0.1"), int(os.environ.get("PORT", "5000"))
REDIRECT_URI = f"http://{HOST}:{PORT}/callback"
CLIENT = {name.lower(): os.environ.get(name, "") for name in ("CLIENT_ID", "CLIENT_SECRET")}
SECRETS = ("code", "client_secret", "code_verifier", "access_token", "Authorization")
SECRET = re.compile(r"(\S{4})\S*$")
PAGE, STYLE = (Path(__file__).with_suffix(kind) for kind in (".html", ".css"))
POLICY = f"default-src 'none'; style-src 'self'; img-src {SERVER} data:; frame-ancestors 'none'"
visits = {}  # the newest thousand: each Visit by its random cookie


@dataclass
class Visit:
    """The state of one browser."""

    state: str = ""  # "" if no sign-in is in progress
    code_verifier: str = ""
    messages: list[tuple[str, dict]] = field(default_factory=list)  # of the grant, in order
    player: dict = field(default_factory=dict)
    problem: str = ""


def start_sign_in() -> Visit:
    """Return a visit with the first message, which the browser is to send (4.1.1)."""
    # The state binds the response to this browser (10.12), the verifier the code to this visit.
    state, code_verifier = secrets.token_urlsafe(32), secrets.token_urlsafe(32)
    digest = urlsafe_b64encode(hashlib.sha256(code_verifier.encode()).digest()).decode()
    request = {"response_type": "code", "client_id": CLIENT["client_id"], "state": state}
    request |= {"redirect_uri": REDIRECT_URI, "scope": "userinfo email"}
    request |= {"code_challenge": digest.rstrip("="), "code_challenge_method": "S256"}  # RFC 7636
    return Visit(state, code_verifier, [(f"GET {SERVER}/oauth/authorize", request)])


def finish_sign_in(visit: Visit, response: dict[str, str]) -> None:
    """Find out who the visitor is, from the response that the browser delivered (4.1.2)."""
    expected, received = visit.state.encode(), response.get("state", "").encode()
    # 10.12: without this check an attacker could sign the visitor in as the attacker.
    if not expected or not secrets.compare_digest(expected, received):
        visit.problem = "It sent a state that is not this browser's. It was ignored."
        return
    visit.state = ""  # valid once
    visit.messages.append((f"GET {REDIRECT_URI}", response))
    if "code" not in response:  # 4.1.2.1
        visit.problem = f"It says {response.get('error')}: {response.get('error_description')}"
        return
    form = {"grant_type": "authorization_code", "code": response["code"], **CLIENT}
    form |= {"redirect_uri": REDIRECT_URI, "code_verifier": visit.code_verifier}
    if token := call_api(visit, "POST", "/api/oauth/token", form):
        path, header = "/api/oauth/whois", {"Authorization": f"Bearer {token['access_token']}"}
        visit.player = call_api(visit, "GET", f"{path}?client_id={form['client_id']}", header)


def call_api(visit: Visit, method: str, path: str, sent: dict[str, str]) -> dict:
    """Send a form or a header to the identity server. Return its response, {} for a problem."""
    visit.messages.append((f"{method} {SERVER}{path}", sent))
    form = (urlencode(sent), {"Content-Type": "application/x-www-form-urlencoded"})
    connect = HTTPSConnection if SERVER.startswith("https:") else HTTPConnection
    connection = connect(urlsplit(SERVER).netloc, timeout=10)
    try:
        connection.request(method, path, *(form if method == "POST" else (None, sent)))
        values = json.load(response := connection.getresponse())
    except (OSError, HTTPException, ValueError) as error:
        visit.problem = f"It does not answer as it should: {error}"
        return {}
    visit.messages.append((f"{response.status} {response.reason}", values))
    visit.problem = "" if response.status == 200 else f"It refuses: {values.get('message')}"
    return {} if visit.problem else values


def page(visit: Visit) -> str:
    """Return the page with all messages so far, and the next step."""
    player, request = visit.player, visit.messages[0][1] if visit.messages else {}
    now = "problem" if visit.problem else "known" if player else "asking" if visit.state else "new"
    texts = {"now": now, "problem": visit.problem, "name": player.get("name", ""), "server": SERVER}
    texts["query"] = urlencode(request)
    texts["picture"] = "-".join(str(player[k]) for k in ("id", "pfpTimestamp") if k in player)
    messages = []  # padded below with "" for messages that were not sent
    for line, values in visit.messages:
        shown = {k: SECRET.sub(r"\1…", v) if k in SECRETS else v for k, v in values.items()}
        rows = "".join(f"<dt>{escape(k)}<dd>{escape(str(v))}" for k, v in shown.items())
        messages.append(f"<p><code>{escape(line)}</code></p><dl>{rows}</dl>")
    return PAGE.read_text().format(*messages, *[""] * 6, **{k: escape(v) for k, v in texts.items()})


class RequestHandler(BaseHTTPRequestHandler):
    timeout = 10  # seconds

    def handle(self) -> None:
        with contextlib.suppress(ConnectionError):  # the browser may close the connection
            super().handle()

    def do_GET(self) -> None:
        path, _, query = self.path.partition("?")
        old_key = re.search(r"(?:^|; )web_app=([\w-]+)|$", self.headers.get("Cookie", ""))[1]
        visit = visits.get(old_key, Visit())
        if path == "/":
            return self.respond(200, page(visit))
        if path == f"/{STYLE.name}":
            return self.respond(200, STYLE.read_text(), "css")
        if path == "/callback":
            finish_sign_in(visit, dict(parse_qsl(query)))
        elif path == "/sign-in":
            visit = start_sign_in()
        else:
            return self.respond(404, "There is no such page.", "plain")
        # A new cookie, as an attacker may have set the old one; and an address without the code.
        for old in (old_key, *list(visits)[:-1000]):
            visits.pop(old, None)
        visits[key := secrets.token_urlsafe(32)] = visit
        cookie = {"Set-Cookie": f"web_app={key}; HttpOnly; SameSite=Lax; Path=/"}
        self.respond(303, "", Location="/", **cookie)

    def respond(self, status: int, text: str, kind: str = "html", **headers: str) -> None:
        """Send a text to the browser."""
        self.send_response(status)
        headers |= {"Content-Type": f"text/{kind}; charset=utf-8", "Cache-Control": "no-store"}
        for header in {**headers, "Content-Security-Policy": POLICY}.items():
            self.send_header(*header)
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_: object) -> None:
        """Log nothing: the log would contain codes."""


if __name__ == "__main__":
    print(f"The web app is at http://{HOST}:{PORT}/", flush=True)
    with contextlib.suppress(KeyboardInterrupt):
        ThreadingHTTPServer((HOST, PORT), RequestHandler).serve_forever()
