"""A running server behind nginx, which is configured by deploy/nginx.conf."""

import contextlib
import re
import socket
import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path

from programs import free_port
from waiting import wait_until

from identity.settings import ROOT

from .running import ANSWER_TIMEOUT, STOP_TIMEOUT, RunningServer

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

    `read_timeout_ms` is its read timeout for the server, in milliseconds.
    """

    def __init__(self, folder: Path, read_timeout_ms: int = 1000 * ANSWER_TIMEOUT) -> None:
        self.folder = folder
        self.read_timeout_ms = read_timeout_ms
        self.http_port, self.https_port = free_port(), free_port()
        self.address = f"https://127.0.0.1:{self.https_port}"
        self.certificate = folder / "certificate.pem"
        self.access_log = folder / "access.log"
        self.process: subprocess.Popen | None = None

    def start(self, *backends: str) -> None:
        """Start nginx in front of the servers at `backends` (HOST:PORT); return when it listens."""
        self.folder.mkdir(exist_ok=True)
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
        context = ssl.create_default_context(cafile=str(self.certificate))
        plain = socket.create_connection(
            ("127.0.0.1", self.https_port), timeout=ANSWER_TIMEOUT, source_address=(address, 0)
        )
        return context.wrap_socket(plain, server_hostname="127.0.0.1")


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
            self.nginx.start(self.backend.removeprefix("http://"))
        return listening is not None

    def stop(self) -> None:
        """Stop nginx and the server."""
        self.nginx.stop()
        super().stop()
