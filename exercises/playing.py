"""How an exercise is played: a copy of the server, and visitors whose requests are printed."""

import contextlib
import functools
import html
import json
import os
import re
import secrets
import shlex
import shutil
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import parse_qsl, urlencode, urlsplit

ROOT = Path(__file__).resolve().parent.parent
COPIED = [
    "exercises",
    "identity",
    "pages",
    "serving",
    "commands",
    "storage",
    "images",
    "model",
    "templates",
    "static",
]
VERIFIER = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk"  # with its challenge: RFC 7636, appendix B
CHALLENGE = "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM"
PKCE = {"code_challenge": CHALLENGE, "code_challenge_method": "S256"}
LONG_VALUE = re.compile(r"([\w-]{6})[\w-]{16,}(\.[\w.-]+)?")  # a code, a token, a secret, an id
LINE_LENGTH = 96

Say = Callable[[str], None]


def join_words(words: Iterable[str]) -> str:
    """Return a shell command of these words, on several lines if it is long."""
    line, lines = "", []
    for word in words:
        if line and len(line) + len(word) > LINE_LENGTH:
            lines.append(line)
            line = "     "
        line += f" {word}" if line else word
    return " \\\n".join([*lines, line])


@dataclass(frozen=True)
class Removal:
    """A check that is taken out: code that stands once in a module, and the code in its place."""

    path: str
    code: str
    instead: str = ""

    def apply(self, root: Path) -> None:
        """Take the check out of the copy at `root`."""
        source = (root / self.path).read_text(encoding="utf-8")
        assert source.count(self.code) == 1, f"{self.path} has another version of the check"
        changed = source.replace(self.code, self.instead)
        (root / self.path).write_text(changed, encoding="utf-8")

    def __str__(self) -> str:
        source = (ROOT / self.path).read_text(encoding="utf-8")
        line = source.partition(self.code)[0].count("\n") + 1
        code = textwrap.dedent(self.code).rstrip()
        instead = textwrap.dedent(self.instead).strip() or "nothing"
        return f"{self.path}, line {line}:\n\n{code}\n\nIn its place: {instead}"


@dataclass(frozen=True)
class Client:
    """An OAuth client of the community; a public one has no secret."""

    name: str
    id: str
    secret: str | None
    redirect_uris: list[str]

    @property
    def credentials(self) -> dict[str, str]:
        """The parameters with which the client authenticates at the token endpoint."""
        return {"client_id": self.id} | ({"client_secret": self.secret} if self.secret else {})

    def request(self, **parameters: str) -> str:
        """Return the path of an authorization request of this client."""
        query = {"response_type": "code", "client_id": self.id}
        query |= {"redirect_uri": self.redirect_uris[0], "state": secrets.token_urlsafe(8)}
        return f"/oauth/authorize?{urlencode(query | parameters, safe=':/')}"


@dataclass(frozen=True)
class Answer:
    """A response of the server."""

    status: int
    location: str
    text: str

    @property
    def parameters(self) -> dict[str, str]:
        """The query parameters of the redirect to a client: code, state, error."""
        return dict(parse_qsl(urlsplit(self.location).query))

    @property
    def code(self) -> str:
        """The authorization code in the redirect, "" if there is none."""
        return self.parameters.get("code", "")

    @property
    def json(self) -> dict:
        return json.loads(self.text)

    def field(self, name: str) -> str:
        """Return the value of a hidden field of the page."""
        return html.unescape(re.search(f'name="{name}" value="([^"]*)"', self.text)[1])

    def __str__(self) -> str:
        if self.location:
            return f"{self.status} Location: {self.location}"
        if self.text.startswith("{"):
            return f"{self.status} {self.text}"
        title = re.search("<title>(.*?)</title>", self.text, re.DOTALL)
        problem = re.search(r'class="problem"[^>]*>([^<]*)|<h1>[^<]*</h1>\s*<p>([^<]*)', self.text)
        shown = [title[1].strip() if title else self.text]
        shown += [each.strip() for each in problem.groups() if each] if problem else []
        return html.unescape(f"{self.status} {': '.join(shown)}")


@dataclass(frozen=True)
class Visitor:
    """A browser or a program that sends requests; each is printed as a curl command."""

    name: str
    address: str
    say: Say
    names: dict[str, str]  # what is printed for the ids and secrets of the clients
    cookie: str = ""

    def get(self, path: str, **headers: str) -> Answer:
        """Send a GET request; an underscore in the name of a header is a hyphen."""
        return self._send("GET", path, {}, headers)

    def post(self, path: str, /, **form: str) -> Answer:
        """Send a form."""
        return self._send("POST", path, form, {})

    def _send(self, method: str, path: str, form: dict, headers: dict) -> Answer:
        headers = {name.replace("_", "-"): value for name, value in headers.items()}
        shown = [f"curl -b {self.name}" if self.cookie else "curl", f'"$SITE{path}"']
        shown += [f"-H {shlex.quote(f'{name}: {each}')}" for name, each in headers.items()]
        shown += [f"-d {shlex.quote(f'{name}={value}')}" for name, value in form.items()]
        if self.cookie:
            headers["Cookie"] = self.cookie
        if form:
            headers["Content-Type"] = "application/x-www-form-urlencoded"
        connection = HTTPConnection(urlsplit(self.address).netloc, timeout=60)
        connection.request(method, path, urlencode(form) or None, headers)
        response = connection.getresponse()
        text = response.read().decode()
        location = response.getheader("Location", "")
        connection.close()
        answer = Answer(response.status, location, text)
        self.say(f"  $ {join_words(map(self._shorten, shown))}\n  {self._shorten(str(answer))}\n")
        return answer

    def _shorten(self, text: str) -> str:
        """Return a text with names for ids and secrets, and the beginning of codes and tokens."""
        for value, name in self.names.items():
            text = text.replace(value, name)
        return LONG_VALUE.sub(r"\1…", text)


@dataclass
class Play:
    """A new community on one server, and the means of an attack. `say` prints a line."""

    process: subprocess.Popen
    folder: str
    say: Say
    settings: dict[str, str] = field(default_factory=dict)
    address: str = ""
    clients: dict[str, Client] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        ready = json.loads(self._send("new"))
        self.address, self.settings = ready["address"], ready["settings"]
        self.clients = {key: Client(**each) for key, each in ready["clients"].items()}
        self.game, self.phone, self.trap = self.clients.values()
        for client in self.clients.values():
            name = f"${client.name.upper().replace(' ', '_')}"
            self.names[client.id] = f"{name}_ID"
            if client.secret:
                self.names[client.secret] = f"{name}_SECRET"
        self.app = Visitor("the app", self.address, self.say, self.names)
        self.ada, self.mallory = (
            replace(self.app, name=name, cookie=cookie) for name, cookie in ready["cookies"].items()
        )

    def _send(self, line: object) -> str:
        """Send a line to the server; return its response."""
        print(line, file=self.process.stdin, flush=True)
        return self.process.stdout.readline()

    def later(self, seconds: int) -> None:
        """Let time pass on the server."""
        self.say(f"  ({seconds} seconds later)\n" if seconds > 1 else "  (a second later)\n")
        self._send(seconds)

    def command(self, *words: str) -> None:
        """Run a command of the administrator on this server."""
        shown = (self.names.get(each, each) for each in words)
        self.say(f"  $ identity-server {' '.join(shown)}\n")
        environment = {f"IDENTITY_{name}": each for name, each in self.settings.items()}
        run = [sys.executable, "-c", "from identity_admin import main; main()", *words]
        subprocess.run(run, cwd=self.folder, env=environment, check=True, capture_output=True)

    def allow(self, visitor: Visitor, client: Client, **parameters: str) -> Answer:
        """Let somebody allow a client what it asks for; return the redirect with the code."""
        answer = visitor.get(client.request(**parameters))
        if answer.status != 200:
            return answer
        self.later(1)  # a press in the first second of the page does not count
        signed = answer.field("request")
        return visitor.post("/oauth/authorize", request=signed, decision="allow")

    def exchange(self, client: Client, code: str, **parameters: str) -> Answer:
        """Exchange a code for a token, as the server of a client does."""
        form = {"grant_type": "authorization_code", "code": code}
        return self.app.post("/api/oauth/token", **form | client.credentials | parameters)

    def token_for(self, visitor: Visitor, client: Client) -> str:
        """Let somebody allow a client; return the access token that it gets."""
        code = self.allow(visitor, client).code
        return self.exchange(client, code).json["access_token"]

    def stay_signed_in(self, visitor: Visitor, client: Client) -> str:
        """Let somebody allow a public client to stay signed in; return its refresh token."""
        code = self.allow(visitor, client, scope="offline_access", **PKCE).code
        form = {"grant_type": "authorization_code", "code": code, "code_verifier": VERIFIER}
        return self.app.post("/oauth/token", **form | client.credentials).json["refresh_token"]

    def refresh(self, client: Client, token: str) -> Answer:
        """Send a refresh token, as a client does or who copied it from there."""
        form = {"grant_type": "refresh_token", "refresh_token": token}
        return self.app.post("/oauth/token", **form | client.credentials)

    def whois(self, token: str) -> Answer:
        """Ask who gave this access token."""
        return self.app.get("/api/oauth/whois", Authorization=f"Bearer {token}")


Begin = Callable[[Say], Play]  # begins a play on a running server


@contextlib.contextmanager
def running(removals: list[Removal]) -> Iterator[Begin]:
    """Run a copy of the server without these checks; yield a function that begins a play on it."""
    with tempfile.TemporaryDirectory(prefix="exercise-") as folder:
        for name in COPIED:
            ignored = shutil.ignore_patterns("__pycache__", "pfp")
            shutil.copytree(ROOT / name, f"{folder}/{name}", ignore=ignored)
        for module in ROOT.glob("*.py"):
            shutil.copy(module, folder)
        for removal in removals:
            removal.apply(Path(folder))
        run = [sys.executable, "-m", "exercises.server", folder]
        # Without the settings of an installation of the reader's own, above all its database.
        kept = {name: each for name, each in os.environ.items() if "IDENTITY_" not in name}
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        with subprocess.Popen(run, cwd=folder, env=kept, text=True, **pipes) as process:
            try:
                yield functools.partial(Play, process, folder)
            finally:
                process.stdin.close()  # it ends the server
