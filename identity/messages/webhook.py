"""A webhook: one address of the community's chat, which is told what happens on the site.

The address is typed by an administrator, and reached from inside the network of the server: it must
not lead to what only this machine or its neighbours reach (server-side request forgery).
"""

import contextlib
import hashlib
import hmac
import http.client
import ipaddress
import json
import re
import secrets
import socket
import ssl
import threading
import time
from urllib.parse import SplitResult, urlsplit

from identity.messages.connecting import connect
from identity.messages.outbox import CHAT, WEBHOOK_ID, Channel, NotSent, Paused
from identity.site.clock import note_clock
from identity.site.languages import language_of
from model.kinds import WEBHOOKS
from model.records import now_ms
from model.site_records import Message, Webhook
from model.words import load_words, say
from storage import Storage

EVENTS = {  # as the form words them
    "player": say("New players"),
    "application": say("Requests to join"),
    "report": say("Reports about players and their apps"),
    "game": say("Games that wait to be listed"),
    "listed": say("Games that are new on the home page"),
    "suspension": say("Suspensions"),
    "announcement": say("Announcements"),
}
FORMATS = {"discord": "Discord", "json": say("JSON, signed")}
TIMEOUT = 5  # seconds for a whole message
MOST_READ = 65_536  # bytes of a response
MARKDOWN = re.compile(r"([\\*_~`|<>#@\[\]()]|:(?=//))")
NOT_PUBLIC = [  # no chat is there, but `ipaddress` (of an older Python) says that they are global
    *map(ipaddress.ip_network, ("192.0.0.0/24", "192.88.99.0/24", "fec0::/10", "3fff::/20")),
    # IPv6 networks whose addresses lead to an IPv4 address
    *map(ipaddress.ip_network, ("::/96", "::ffff:0:0/96", "::ffff:0:0:0/96", "64:ff9b::/96")),
    *map(ipaddress.ip_network, ("64:ff9b:1::/48", "2001::/23", "2002::/16")),
]


# -- the address --------------------------------------------------------------------------------


def check_address(url: str, private: bool) -> str | None:
    """Return what is wrong with a webhook's address, or None; `private` allows this network."""
    try:
        parts = urlsplit(url)
        is_complete = bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        is_complete = False
    if not is_complete or len(url) > 500 or not re.fullmatch(r"[!-~]+", url):
        return say("Copy the whole address from your chat.")
    if parts.username is not None or parts.password is not None:
        return say("Use an address without a name and a password.")
    if not has_allowed_scheme(parts, private):
        return say("Start with https://.")
    try:
        resolve(parts, private)
    except NotSent as error:
        return say("%(problem)s Use another address.", problem=str(error))
    return None


def resolve(parts: SplitResult, private: bool) -> list[tuple[int, tuple]]:
    """Return families and addresses to connect to, resolved once. Raises NotSent.

    It is raised for a private address as well, unless `private`.
    """
    try:
        found = socket.getaddrinfo(
            parts.hostname, parts.port or usual_port(parts), type=socket.SOCK_STREAM
        )
    except (OSError, UnicodeError) as error:
        raise NotSent(say("No such host was found.")) from error
    for _, _, _, _, address in found:
        if not private and not is_public_address(address[0]):
            raise NotSent(say("The host is in a private network."))
    return [(family, address) for family, _, _, _, address in found]


def has_allowed_scheme(parts: SplitResult, private: bool) -> bool:
    return parts.scheme == "https" or (private and parts.scheme == "http")


def usual_port(parts: SplitResult) -> int:
    return 443 if parts.scheme == "https" else 80


def is_public_address(address: str) -> bool:
    """Return True for an address of the internet, which leads nowhere else."""
    ip = ipaddress.ip_address(address.partition("%")[0])
    if any(ip in network for network in NOT_PUBLIC):
        return False
    return ip.is_global and not (ip.is_multicast or ip.is_reserved or ip.is_unspecified)


# -- sending ------------------------------------------------------------------------------------


class Chat(Channel):
    """The channel of the chat's messages; with `private` it may be in this network."""

    name = CHAT
    poll = 5.0  # seconds
    delays = [60, 300, 1800, 7200, 21_600, 86_400]  # seconds

    def __init__(self, store: Storage, site: str, private: bool, language: str) -> None:
        self._store = store
        self._site = site
        self._private = private
        self._language = language

    def send(self, message: Message) -> None:
        """Post a message to the webhook; without a webhook do nothing. Raises NotSent."""
        webhook = self._store.records(WEBHOOKS).find(WEBHOOK_ID)
        if webhook is None:
            return
        content = content_of(webhook, self._site, message, self._language)
        status, headers = deliver(webhook.url, self._private, *content)
        note_clock(self._store, CHAT, headers.get("Date", ""))
        if status == 429:
            wait = headers.get("Retry-After", "")
            seconds = int(wait) if re.fullmatch("[0-9]{1,6}", wait) else 60
            raise Paused("It asked to wait.", max(seconds, 1))
        if not 200 <= status < 300:
            raise NotSent(f"It answered with the status {status}.")


def content_of(
    webhook: Webhook, site: str, message: Message, language: str
) -> tuple[bytes, dict[str, str]]:
    """Return the body of a message in the webhook's format, and the headers for it.

    A message of an earlier version, or of an administrator's own text, has no words.
    """
    values = json.loads(message.body)
    text = language_of(language).shown(load_words(values.get("words", ""), values["text"]))
    url = site + values["path"]
    headers = {"Content-Type": "application/json", "User-Agent": "Identity-Server"}
    if webhook.format == "discord":
        # No name becomes a link, or is mentioned; an announcement is the administrators' own text.
        escaped = text if message.event == "announcement" else MARKDOWN.sub(r"\\\1", text)
        content = f"{escaped} <{url}>"[:2000]
        return json.dumps({"content": content, "allowed_mentions": {"parse": []}}).encode(), headers
    values = {"id": message.id, "event": message.event, "time": message.created, "site": site}
    body, time = json.dumps(values | {"text": text, "url": url}).encode(), str(now_ms() // 1000)
    headers["X-Identity-Timestamp"] = time
    headers["X-Identity-Signature"] = f"sha256={sign(webhook.key, time, body)}"
    return body, headers


def sign(key: str, time: str, body: bytes) -> str:
    """Return the HMAC with SHA-256, in hex, of the time in seconds, a full stop and the body."""
    return hmac.new(key.encode(), f"{time}.".encode() + body, hashlib.sha256).hexdigest()


def new_key() -> str:
    """Return a new key for `sign`."""
    return secrets.token_urlsafe(32)


def deliver(
    url: str, private: bool, body: bytes, headers: dict, timeout: float | None = None
) -> tuple[int, dict]:
    """Post a body in TIMEOUT or so many seconds, to the address that was checked. Raises NotSent.

    Redirects are not followed. A timer closes the socket, because its own timeout is one of each
    read: a server that sends a byte every few seconds would hold the thread.
    """
    parts = urlsplit(url)
    if not has_allowed_scheme(parts, private):
        raise NotSent("The address does not start with https://.")
    timeout = timeout or TIMEOUT
    addresses, ends = resolve(parts, private), time.monotonic() + timeout
    try:
        with connect(addresses, ends) as connected, connected.dup() as duplicate:
            left = max(ends - time.monotonic(), 0)
            timer = threading.Timer(
                left, shut_down, [duplicate]
            )  # TLS takes the socket itself over
            timer.start()
            try:
                connected.settimeout(timeout)
                return exchange(connected, parts, body, headers)
            finally:
                timer.cancel()
    except (OSError, http.client.HTTPException, ValueError) as error:
        reason = error.reason if isinstance(error, ssl.SSLError) else type(error).__name__
        raise NotSent(f"It could not be reached ({reason}).") from error


def shut_down(connected: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connected.shutdown(socket.SHUT_RDWR)


def exchange(
    connected: socket.socket, parts: SplitResult, body: bytes, headers: dict[str, str]
) -> tuple[int, dict]:
    """Send the request and return the status and headers. Raises OSError, HTTPException."""
    connection = http.client.HTTPConnection(parts.hostname, parts.port or usual_port(parts))
    connection.default_port = usual_port(parts)  # which `Host` does not name
    if parts.scheme == "https":  # verified for the name, wherever it led
        context = ssl.create_default_context()
        connected = context.wrap_socket(connected, server_hostname=parts.hostname)
    connection.sock = connected
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    connection.request("POST", path, body, headers | {"Connection": "close"})
    response = connection.getresponse()
    response.read(MOST_READ)
    return response.status, response.headers
