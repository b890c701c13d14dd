"""The process of one play: python -m exercises.server FOLDER, in a copy of the checkout.

It reads lines until its standard input ends, and prints a line for each. After "new" it serves a
new community, and prints JSON: the address, the settings with the folders, the clients, and the
cookies of the players, who are signed in. After a number of seconds its clock has moved by them.
"""

import itertools
import json
import sys
import time
from threading import Thread

from werkzeug.serving import WSGIRequestHandler, make_server

from identity.http.signing import serializer
from identity_server import create_app
from model.records import Session, now_ms
from storage import Storage

REAL_CLOCK = time.time, time.time_ns
MALLORY = 2  # her id: she is the second player
CLIENTS = {
    "game": ("Space Game", ["https://space.example/callback", "https://space.example/forum"], {}),
    "phone": ("Pocket Game", ["http://127.0.0.1/callback"], {"public": True}),
    "trap": ("Free Coins", ["https://mallory.example/callback"], {}),
}


class QuietHandler(WSGIRequestHandler):
    """A request handler that prints nothing: the player of the exercise prints each request."""

    def log_request(self, *_: object) -> None:
        pass


def add_player(store: Storage, name: str) -> str:
    """Add a player who is signed in; return the cookie of the session."""
    user = store.users.register(name, f"{name}@example.org", password_hash="")
    with store.users.edit(user.id) as user:
        user.sessions = [Session(f"session of {name}", now_ms(), "curl")]
    values = {"user": user.id, "id": f"session of {name}"}
    return f"session={serializer('session', store).dumps(values)}"


def add_community(store: Storage) -> dict[str, dict]:
    """Add Ada, Mallory and the clients; return cookies by name, and clients by key."""
    cookies = {name: add_player(store, name) for name in ("ada", "mallory")}
    clients = {}
    for key, (name, uris, fields) in CLIENTS.items():
        owner_id = MALLORY if key == "trap" else None
        client, secret = store.clients.register(name, uris, owner_id, **fields)
        clients[key] = {"name": name, "id": client.id, "secret": secret, "redirect_uris": uris}
    return {"cookies": cookies, "clients": clients}


def main() -> None:
    """Serve one new community after the other, in the folder that the command line names."""
    server = make_server("127.0.0.1", 0, None, threaded=True, request_handler=QuietHandler)
    address = f"http://127.0.0.1:{server.port}"
    Thread(target=server.serve_forever, daemon=True).start()
    folders = (f"{sys.argv[1]}/community-{number}" for number in itertools.count(1))
    for line in sys.stdin:
        if line == "new\n":
            time.time, time.time_ns = REAL_CLOCK
            folder = next(folders)
            settings = {"DATA_DIR": f"{folder}/instance", "PICTURE_DIR": f"{folder}/pictures"}
            server.app = create_app({**settings, "BASE_URL": address})
            community = add_community(server.app.extensions["storage"])
            print(json.dumps({"address": address, "settings": settings} | community), flush=True)
        else:
            advance_clock(int(line))
            print("done", flush=True)


def advance_clock(seconds: int) -> None:
    """Move the clock of this process forward."""
    now, now_ns = time.time, time.time_ns
    time.time = lambda: now() + seconds
    time.time_ns = lambda: now_ns() + seconds * 10**9


if __name__ == "__main__":
    main()
