"""A running server behind nginx, which is configured by deploy/nginx.conf, and its HTTP client."""

import contextlib
import functools
import http.client
import json
import re
import secrets
import socket
import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from programs import free_port
from waiting import wait_until

from identity.site.settings import ROOT

from .running import ANSWER_TIMEOUT, STOP_TIMEOUT, RunningServer, running_server
from .shared import start_once

FORM = {"Content-Type": "application/x-www-form-urlencoded"}
# Headers that a proxy adds or replaces; all others must be the server's.
PROXY_HEADERS = {"server", "date", "connection", "keep-alive", "strict-transport-security"}
SITE = Path(ROOT) / "deploy" / "nginx.conf"
# Debian's nginx.conf with other paths, around the site; the error log has level `info`.
NGINX_CONF = """
daemon off;
user root;
pid {folder}/nginx.pid;
error_log {folder}/error.log info;
events {{ worker_connections 768; }}
http {{
    include /etc/nginx/mime.types;
    default_type application/octet-stream;
    sendfile on;
    gzip on;
    access_log {folder}/other.log;
    client_body_temp_path {folder}/bodies;
    proxy_temp_path {folder}/answers;
    fastcgi_temp_path {folder}/unused;
    uwsgi_temp_path {folder}/unused;
    scgi_temp_path {folder}/unused;
    include {folder}/site.conf;
}}
"""


class Nginx:
    """nginx at 127.0.0.1, with a folder for its logs, certificate and pictures (in `pfp/`).

    `read_timeout_ms` is its read timeout for the server, in milliseconds. `cache_time` is the time
    in seconds after which it asks whether a cached picture has changed.
    """

    def __init__(
        self, folder: Path, read_timeout_ms: int = 1000 * ANSWER_TIMEOUT, cache_time: int = 10
    ) -> None:
        self.folder = folder
        self.read_timeout_ms = read_timeout_ms
        self.cache_time = cache_time
        self.http_port, self.https_port = free_port(), free_port()
        self.address = f"https://127.0.0.1:{self.https_port}"
        self.certificate = folder / "certificate.pem"
        self.access_log = folder / "access.log"
        self.process: subprocess.Popen | None = None

    def start(self, *backends: str) -> None:
        """Start nginx in front of the servers at `backends` (HOST:PORT); return when it listens."""
        self.folder.mkdir(exist_ok=True)
        if not self.certificate.exists():
            self._make_certificate()
        configuration = self.folder / "nginx.conf"
        configuration.write_text(NGINX_CONF.format(folder=self.folder))
        (self.folder / "site.conf").write_text(self.site(*backends))
        command = ["nginx", "-e", self.folder / "error.log", "-c", configuration]
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL)
        wait_until(self._answers, self.process, (self.folder / "error.log").read_text)

    def _answers(self) -> bool:
        with contextlib.suppress(ConnectionRefusedError):
            self.connect().close()
            return True
        return False

    def site(self, *backends: str) -> str:
        """Return the site configuration with the paths and ports of this test.

        Raises AssertionError if deploy/nginx.conf lacks a text that is to be replaced.
        """
        text = SITE.read_text()
        letsencrypt = "/etc/letsencrypt/live/id.example.org"
        for original, replacement in (
            ("listen 80;", f"listen 127.0.0.1:{self.http_port};"),
            ("listen [::]:80;", ""),
            ("listen 443 ssl;", f"listen 127.0.0.1:{self.https_port} ssl;"),
            ("listen [::]:443 ssl;", ""),
            (f"{letsencrypt}/fullchain.pem", str(self.certificate)),
            (f"{letsencrypt}/privkey.pem", str(self.folder / "key.pem")),
            ("server_name id.example.org;", "server_name 127.0.0.1;"),
            ("/var/log/nginx/identity-server.access.log", str(self.access_log)),
            ("server 127.0.0.1:8000;", " ".join(f"server {each};" for each in backends)),
            ("/var/lib/nginx/identity-pictures", f"{self.folder}/cache"),
            ("proxy_read_timeout 20s;", f"proxy_read_timeout {self.read_timeout_ms}ms;"),
            ("proxy_cache_valid 200 10s;", f"proxy_cache_valid 200 {self.cache_time}s;"),
            ("root /var/lib/identity-server;", f"root {self.folder};"),
            ("root /opt/identity-server;", f"root {ROOT};"),
        ):
            assert original in text
            text = text.replace(original, replacement)
        return text

    def _make_certificate(self) -> None:
        command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2"
        options = ["-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"]
        options += ["-keyout", self.folder / "key.pem", "-out", self.certificate]
        subprocess.run([*command.split(), *options], check=True, capture_output=True)

    def stop(self) -> None:
        """Stop nginx."""
        self.process.terminate()
        self.process.wait(STOP_TIMEOUT)

    @contextlib.contextmanager
    def running(self, *backends: str) -> Iterator[None]:
        """Run nginx in front of `backends` until the block ends."""
        self.start(*backends)
        try:
            yield
        finally:
            self.stop()

    def connect(self, address: str = "127.0.0.1") -> ssl.SSLSocket:
        """Open a TLS connection to nginx from this loopback address."""
        plain = socket.create_connection(
            ("127.0.0.1", self.https_port), timeout=ANSWER_TIMEOUT, source_address=(address, 0)
        )
        return trust(self.certificate).wrap_socket(plain, server_hostname="127.0.0.1")

    def logged_lines(self) -> list[str]:
        """Return the lines of the access log for all responses so far."""
        # A line is written after its response, and before the next request is read.
        mark = f"/{secrets.token_hex(8)}"
        send_http(f"http://127.0.0.1:{self.http_port}", "GET", mark)
        wait_until(lambda: mark in self.access_log.read_text())
        return self.access_log.read_text().splitlines()

    @contextlib.contextmanager
    def no_upstream_requests(self) -> Iterator[None]:
        """Check that nginx passes no request on: the log lines have no upstream time."""
        seen = len(self.logged_lines())
        yield
        lines = self.logged_lines()[seen:]
        assert [line for line in lines if not line.endswith(" -")] == []


@functools.cache
def trust(certificate: Path) -> ssl.SSLContext:
    """Return a TLS configuration that trusts this certificate."""
    return ssl.create_default_context(cafile=str(certificate))


class ServerBehindNginx(RunningServer):
    """A running server behind nginx: `address` is nginx's base URL, `backend` is gunicorn's."""

    def __init__(self, folder: Path, **settings: str) -> None:
        self.nginx = Nginx(folder / "nginx")
        self.backend = ""
        super().__init__(folder, BASE_URL=self.nginx.address, **settings)
        self.picture_dir = self.nginx.folder / "pfp"

    def _answers(self) -> bool:
        listening = re.search(r"Listening at: (http://\S+)", self.error_log.read_text())
        if listening:
            self.backend, self.address = listening[1], self.nginx.address
            self.nginx.start(self.backend_netloc)
        return listening is not None

    @property
    def backend_netloc(self) -> str:
        """HOST:PORT of gunicorn."""
        return self.backend.removeprefix("http://")

    def stop(self) -> None:
        """Stop nginx and the server."""
        self.nginx.stop()
        super().stop()

    def end(self) -> None:
        """Stop nginx, and end the server at once."""
        self.nginx.stop()
        super().end()


@pytest.fixture(scope="module")
def server(request: pytest.FixtureRequest) -> Iterator[ServerBehindNginx]:
    """A running server behind nginx, with OpenID Connect, which all modules share."""
    start = functools.partial(running_server, ServerBehindNginx, OPENID="on")
    server = start_once(request.config, "server behind nginx", start)
    yield server
    server.empty()


# -- the client -----------------------------------------------------------------------------------


class Answer:
    """A response: status, headers by lower-case name, and body."""

    def __init__(self, answer: http.client.HTTPResponse) -> None:
        self.status = answer.status
        self.headers = {name.lower(): value for name, value in answer.getheaders()}
        self.body = answer.read()

    @property
    def message(self) -> str:
        """The message of an error response under /api/, which must be its only content."""
        assert self.headers["content-type"] == "application/json"
        [(name, message)] = json.loads(self.body).items()
        assert name == "message" and message
        return message

    def without(self, *differing: str) -> tuple[int, dict[str, str], bytes]:
        """Return the response without a proxy's headers, and without the `differing` ones."""
        own = self.headers.keys() - PROXY_HEADERS - {*differing}
        return self.status, {name: self.headers[name] for name in own}, self.body


class Sender(http.client.HTTPSConnection):
    """A connection to nginx from this loopback address; each address has its own rate limits.

    Checks that each response has Strict-Transport-Security.
    """

    def __init__(self, nginx: Nginx, address: str = "127.0.0.1") -> None:
        super().__init__(
            *("127.0.0.1", nginx.https_port),
            **{"context": trust(nginx.certificate), "timeout": ANSWER_TIMEOUT},
            source_address=(address, 0),
        )

    def send_request(self, method: str, path: str, body=None, headers=None, **options) -> Answer:
        self.request(method, path, body, headers or {}, **options)
        answer = Answer(self.getresponse())
        assert answer.headers["strict-transport-security"] == "max-age=31536000"
        return answer


def send_http(
    address: str, method: str, path: str, body: bytes | None = None, headers: dict | None = None
) -> Answer:
    """Send one request by plain HTTP, to gunicorn or to nginx."""
    plain = http.client.HTTPConnection(urlsplit(address).netloc, timeout=ANSWER_TIMEOUT)
    with contextlib.closing(plain):
        plain.request(method, path, body, {"Host": "127.0.0.1"} | (headers or {}))
        return Answer(plain.getresponse())
