"""How soon apps know that a player was suspended, with a real server."""

import contextlib
import http.server
import socket
import threading
import time
from collections.abc import Iterator

import pytest
from conftest import on_each_backend
from waiting import wait_until

from identity.acts import accounts
from identity.acts.actors import COMMAND, Authority
from live.running import running_server
from model.records import Grant, now_ms

pytestmark = pytest.mark.load
APPS, DEAD = 20, 3
LIMIT = 10  # seconds


@contextlib.contextmanager
def receiving() -> Iterator[tuple[int, list[tuple[str, float]]]]:
    """Yield the port of a server for all apps, and what it gets: paths, and when."""
    received = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            received.append((self.path, time.monotonic()))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server.server_address[1], received
    server.shutdown()
    server.server_close()


@on_each_backend
def test_twenty_apps_know_of_a_suspension_in_ten_seconds(backend, tmp_path):
    """Three of them never answer. Each of the others gets its two tokens once."""
    with contextlib.ExitStack() as stack:
        port, received = stack.enter_context(receiving())
        dead = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(DEAD)]
        url = backend.setting(str(tmp_path))
        servers = [stack.enter_context(running_server(OPENID="on", STORAGE=url))]
        if url != "files":  # two machines
            servers.append(stack.enter_context(running_server(OPENID="on", STORAGE=url)))
        server = servers[0]
        ada, store = server.add_user("ada")["id"], server.open_storage()
        server.start_session("ada")
        uris = [f"http://127.0.0.1:{each.getsockname()[1]}/" for each in dead]
        uris += [f"http://127.0.0.1:{port}/{number}" for number in range(APPS - DEAD)]
        clients = [
            server.add_client(f"App {number}", "https://app.example/", backchannel_logout_uri=uri)
            for number, uri in enumerate(uris)
        ]
        with store.users.edit(ada) as user:
            user.grants = {
                each["client_id"]: Grant(f"grant{number}", ["userinfo"], now_ms())
                for number, each in enumerate(clients)
            }
        began = time.monotonic()
        accounts.suspend(Authority(store, COMMAND), ada)
        wait_until(lambda: len(received) == 2 * (APPS - DEAD))
        took = max(at for _, at in received) - began
        paths = sorted(path for path, _ in received)
        assert paths == sorted(f"/{number}" for number in range(APPS - DEAD) for _ in range(2))
        assert took < LIMIT
        store.close()
