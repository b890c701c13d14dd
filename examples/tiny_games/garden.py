"""The garden's game server: it lets in who brings a ticket, and remembers who planted where.

It has no client secret, and sees no access token: only tickets, which are for this server alone and
for one nonce of it (docs/games/tickets.md).
"""

import json
import os
import secrets
import threading
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from urllib.parse import urlencode, urlsplit

SERVER = os.environ.get("SERVER", "http://localhost:8000")  # the identity server
PLOTS = 12 * 8
REMEMBERED = 1000  # nonces, and players who came in: the newest

# The id of the player who planted each plot. A server that is not an example keeps this on a disk.
plots: dict[str, int] = json.loads(os.environ.get("PLOTS", "{}"))
nonces: dict[str, None] = {}
gardeners: dict[str, int] = {}  # player ids, by a random token of each page
changing = threading.Lock()


class Refused(Exception):
    """An error message for the page, with an HTTP status."""


def answer(path: str, values: object, address: str) -> tuple[int, dict]:
    """Return the status and the values of a response; `address` is where this server is reached."""
    try:
        texts = values.values() if isinstance(values, dict) else [None]
        if not all(isinstance(each, str) and each.isascii() for each in texts):
            raise Refused(400, "send a JSON object of ASCII texts")
        if path == "/nonce":
            return 200, {"nonce": remember(nonces, None)}
        if path == "/enter":
            return 200, {"token": enter(values.get("ticket", ""), values.get("nonce", ""), address)}
        if path == "/plant":
            return 200, plant(values.get("token", ""), values.get("plot", ""))
        raise Refused(404, "there is no such page")
    except Refused as refused:
        status, message = refused.args
        return status, {"message": message}


def enter(ticket: str, nonce: str, address: str) -> str:
    """Return a token for the player whose ticket this is. Raises Refused."""
    with changing:
        if nonce not in nonces:
            raise Refused(403, "this nonce was not given here, or was used")
        del nonces[nonce]  # one nonce, one ticket
    form = urlencode({"ticket": ticket, "server": address, "nonce": nonce})
    headers = {"Content-Type": "application/x-www-form-urlencoded"}
    connect = HTTPSConnection if SERVER.startswith("https:") else HTTPConnection
    connection = connect(urlsplit(SERVER).netloc, timeout=5)
    try:
        connection.request("POST", "/api/tickets/check", form, headers)
        response = connection.getresponse()
        checked = json.load(response)
    except (OSError, HTTPException, ValueError) as error:
        raise Refused(502, f"the identity server does not respond: {error}") from error
    if response.status != 200:
        raise Refused(403, checked["message"])
    return remember(gardeners, checked["user"]["id"])


def plant(token: str, plot: str) -> dict[str, int]:
    """Plant a flower on a plot, over another one, and return all plots. Raises Refused."""
    if token not in gardeners:
        raise Refused(401, "come in with a ticket first")
    if plot not in map(str, range(PLOTS)):
        raise Refused(400, f"a plot is a number from 0 to {PLOTS - 1}")
    plots[plot] = gardeners[token]
    return plots


def remember(kept: dict, value: object) -> str:
    """Keep a value under a new random key, and return that. Only the newest are kept."""
    with changing:
        for old in list(kept)[: -REMEMBERED + 1]:
            del kept[old]
        key = secrets.token_urlsafe(16)
        kept[key] = value
    return key
