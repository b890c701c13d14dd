"""The demo's mailbox: it takes every letter, sends none, and shows all on a page.

    PAGE=127.0.0.1:8003 SMTP=127.0.0.1:8025 python examples/demo/letters.py

The identity server has IDENTITY_SMTP_URL=smtp+cleartext://127.0.0.1:8025. Letters are in memory.
"""

import contextlib
import email
import os
import re
import threading
from email.message import EmailMessage
from email.policy import SMTP
from html import escape
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import zip_longest
from socketserver import StreamRequestHandler, ThreadingTCPServer

PATH = "/demo/letters"
POLICY = "default-src 'none'; style-src 'self'; img-src data:; frame-ancestors 'none'"
LINK = re.compile(r"https?://[^\s<>]+")
KEPT = 100  # letters
LETTER_LIMIT = 1_000_000  # bytes
STYLE = """
:root { color-scheme: light dark; }
body { max-width: 42rem; margin: 0 auto; padding: 1.5rem 1rem; overflow-wrap: anywhere; }
body { font: 1.0625rem/1.5 system-ui, sans-serif; }
article { margin: 1.5rem 0; padding: 1rem 1.25rem; border: 1px solid #8888; border-radius: 12px; }
h2 { margin: 0; font-size: 1.125rem; }
pre { margin: 0; white-space: pre-wrap; font: inherit; }
.head { margin: 0 0 1rem; opacity: .8; font-size: .9375rem; }
"""
PAGE = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<title>Letters of the demo</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<link rel="icon" href="data:,">
<link rel="stylesheet" href="/style.css">
<h1>Letters</h1>
<p>Every letter of the demo ends here, the newest first. Load the page again to see new ones.</p>
{letters}
"""
LETTER = """<article>
<h2>{subject}</h2>
<p class="head">To {to} · {date}</p>
<pre>{text}</pre>
</article>
"""

letters: list[str] = []  # as HTML, oldest first


class Mailbox(StreamRequestHandler):
    """A connection of a mail server that takes every letter (RFC 5321)."""

    timeout = 60  # seconds

    def handle(self) -> None:
        with contextlib.suppress(OSError):  # the client has left
            self.reply("220 the mailbox of the demo")
            while line := self.rfile.readline(1000):
                command = line[:4].upper().strip()
                if command == b"DATA":
                    self.reply("354 end with a dot")
                    self.keep()
                elif command == b"EHLO":
                    self.reply("250-mailbox\r\n250-8BITMIME\r\n250 SMTPUTF8")
                elif command in (b"HELO", b"MAIL", b"RCPT", b"RSET", b"NOOP"):
                    self.reply("250 OK")
                elif command == b"QUIT":
                    return self.reply("221 bye")
                else:
                    return self.reply("502 not known here")  # such as HTTP, which a page can send

    def keep(self) -> None:
        """Read a letter up to the line with a dot, and keep it."""
        content = b""
        while (line := self.rfile.readline(LETTER_LIMIT)) != b".\r\n":
            if not line or len(content) > LETTER_LIMIT:
                raise ConnectionError
            content += line.removeprefix(b".")  # RFC 5321 4.5.2
        try:
            letters.append(show_letter(email.message_from_bytes(content, policy=SMTP)))
        except (AttributeError, LookupError, ValueError):
            return self.reply("554 a letter has a text that can be read")
        del letters[:-KEPT]
        self.reply("250 kept")

    def reply(self, text: str) -> None:
        self.wfile.write(f"{text}\r\n".encode())


class Page(BaseHTTPRequestHandler):
    """A handler for the page that lists the letters."""

    timeout = 10  # seconds

    def do_GET(self) -> None:
        if self.headers["Host"] != os.environ["PAGE"]:  # a name of a page that wants to read it
            return self.respond(400, "This page has another address.", "plain")
        if self.path == "/style.css":
            return self.respond(200, STYLE, "css")
        if self.path in ("/", PATH):
            shown = "".join(reversed(letters)) or "<p>No letter has come yet.</p>"
            return self.respond(200, PAGE.format(letters=shown), "html")
        self.respond(404, "There is no such page.", "plain")

    def respond(self, status: int, text: str, kind: str) -> None:
        """Send a text to the browser."""
        self.send_response(status)
        self.send_header("Content-Type", f"text/{kind}; charset=utf-8")
        self.send_header("Content-Security-Policy", POLICY)
        # The links in letters are secrets.
        self.send_header("Referrer-Policy", "no-referrer")
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        with contextlib.suppress(ConnectionError):  # the browser may close the connection
            self.wfile.write(text.encode())

    def log_message(self, *_: object) -> None:
        """Log nothing."""


def show_letter(letter: EmailMessage) -> str:
    """Return a letter as HTML: its text, in which addresses are links."""
    text, parts = letter.get_body(("plain",)).get_content(), []
    for plain, link in zip_longest(LINK.split(text), LINK.findall(text), fillvalue=""):
        parts += [escape(plain), f'<a href="{escape(link)}">{escape(link)}</a>' if link else ""]
    heads = {name: escape(str(letter[name])) for name in ("subject", "to", "date")}
    return LETTER.format(text="".join(parts), **heads)


class MailServer(ThreadingTCPServer):
    allow_reuse_address = daemon_threads = True


def address_of(name: str) -> tuple[str, int]:
    """Return the host and the port in an environment variable."""
    host, _, port = os.environ[name].rpartition(":")
    return host, int(port)


if __name__ == "__main__":
    threading.Thread(
        target=MailServer(address_of("SMTP"), Mailbox).serve_forever, daemon=True
    ).start()
    with contextlib.suppress(KeyboardInterrupt):
        ThreadingHTTPServer(address_of("PAGE"), Page).serve_forever()
