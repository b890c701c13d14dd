"""deploy/nginx.conf on several machines: pictures from the server, and two servers."""

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from programs import free_port
from waiting import wait_until

from images.pictures import generate_picture
from storage import Storage

from . import behind_nginx
from .behind_nginx import FORM, Nginx, Sender, ServerBehindNginx, send_http
from .test_nginx import PICTURE_REQUESTS, comparable_picture

pytestmark = [pytest.mark.live, pytest.mark.nginx]
server = behind_nginx.server


@pytest.fixture(scope="module")
def nginx(server: ServerBehindNginx, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nginx]:
    """nginx that does not reach the server's folder of pictures, and caches them."""
    nginx = Nginx(tmp_path_factory.mktemp("caching") / "nginx")
    with nginx.running(server.backend_netloc):
        yield nginx


@pytest.fixture
def send(nginx: Nginx):
    """A function that sends a request through nginx: `send("GET", path)`."""
    with contextlib.closing(Sender(nginx)) as sender:
        yield sender.send_request


@pytest.fixture
def player(server: ServerBehindNginx, store: Storage) -> dict:
    """A player whose picture nothing has requested."""
    return server.add_user(f"p{len(list(store.users.ids()))}")


def picture_path(player: dict, size: str = "large") -> str:
    return f"/pfp/{size}/{player['id']}-{player['pfpTimestamp']}.webp"


# -- pictures from the server ---------------------------------------------------------------------


def test_cached_picture_is_as_that_of_the_server(
    server: ServerBehindNginx, nginx: Nginx, send, subtests
):
    """The response to the first request, which fills the cache, and those from the cache."""
    for number, (method, headers) in enumerate(PICTURE_REQUESTS):
        path = picture_path(server.add_user(f"pat{number}"))
        with subtests.test(method, headers=headers):
            expected = send_http(server.backend, method, path, headers=headers)
            answers = [send(method, path, headers=headers)]
            wait_until(lambda path=path: path in nginx.access_log.read_text())  # it has all of it
            with nginx.no_upstream_requests():
                for address in (path, f"{path}?x"):
                    answers.append(send(method, address, headers=headers))
                for etag, status in ((expected.headers["etag"], 304), ('"another"', 200)):
                    assert send(method, path, headers={"If-None-Match": etag}).status == status
            for answer in answers:
                assert comparable_picture(answer) == comparable_picture(expected)


def test_picture_without_a_timestamp_is_not_cached(server: ServerBehindNginx, send):
    """An account without a timestamp keeps its address when the picture changes."""
    imported = server.picture_dir / "small" / "77.webp"
    for number in (77, 78):
        imported.write_bytes(generate_picture(number)["small"])
        answer = send("GET", "/pfp/small/77.webp")
        assert (answer.status, answer.body) == (200, generate_picture(number)["small"])


def test_missing_picture_is_not_cached(
    server: ServerBehindNginx, store: Storage, player: dict, send
):
    timestamp = store.pictures.save(player["id"], generate_picture(1001))
    name = f"{player['id']}-{timestamp}.webp"
    file = server.picture_dir / "medium" / name
    hidden = file.rename(file.with_suffix(".hidden"))
    assert send("GET", f"/pfp/medium/{name}").status == 404
    hidden.rename(file)
    assert send("GET", f"/pfp/medium/{name}").status == 200


def test_cached_picture_does_not_depend_on_the_player(
    server: ServerBehindNginx, player: dict, send
):
    """Whoever fills the cache: the response has no cookie, and others get the same."""
    cookie = {"Cookie": f"__Host-session={server.start_session(player['name'])}"}
    filled, cached = (send("GET", picture_path(player), headers=each) for each in (cookie, {}))
    assert (filled.status, filled.body) == (cached.status, cached.body)
    for answer in (filled, cached):
        assert "set-cookie" not in answer.headers
        assert "cookie" not in answer.headers.get("vary", "").lower()


def test_only_pictures_are_cached(nginx: Nginx, player: dict, send):
    paths = ("/", f"/users/{player['id']}", f"/api/users/info?id={player['id']}")
    for path in (*paths, picture_path(player)) * 2:
        send("GET", path)
    cached = [each.read_bytes() for each in (nginx.folder / "cache").rglob("*") if each.is_file()]
    keys = [content.partition(b"\nKEY: ")[2].partition(b"\n")[0] for content in cached]
    assert keys
    assert all(key.startswith(b"/pfp/") for key in keys)


def test_replaced_picture_is_404_soon(
    server: ServerBehindNginx, store: Storage, player: dict, tmp_path: Path
):
    """Its copy in the cache is believed for ten seconds, here for one."""
    nginx = Nginx(tmp_path / "nginx", cache_time=1)
    with nginx.running(server.backend_netloc), contextlib.closing(Sender(nginx)) as sender:

        def statuses() -> list[int]:
            return [sender.send_request("GET", path).status for path in old]

        old = [picture_path(player, size) for size in ("large", "medium", "small")]
        assert statuses() == [200, 200, 200]
        pictures = generate_picture(1000)
        new = store.pictures.save(player["id"], pictures)
        answer = sender.send_request("GET", f"/pfp/large/{player['id']}-{new}.webp")
        assert (answer.status, answer.body) == (200, pictures["large"])
        wait_until(lambda: statuses() == [404, 404, 404])
        assert statuses() == [404, 404, 404]


def test_cached_picture_is_served_while_the_server_is_gone(
    server: ServerBehindNginx, player: dict, tmp_path: Path
):
    """Also an expired one: nginx asks the server, which does not listen."""
    nginx = Nginx(tmp_path / "nginx", cache_time=1)
    path = picture_path(player)
    with nginx.running(server.backend_netloc), contextlib.closing(Sender(nginx)) as sender:
        picture = sender.send_request("GET", path).body
    with nginx.running(f"127.0.0.1:{free_port()}"), contextlib.closing(Sender(nginx)) as sender:
        assert sender.send_request("GET", "/").status == 502

        def asked_the_server() -> bool:
            answer = sender.send_request("GET", path)
            assert (answer.status, answer.body) == (200, picture)
            lines = [line for line in nginx.logged_lines() if path in line]
            return not lines[-1].endswith(" -")

        wait_until(asked_the_server)
        assert sender.send_request("GET", path).body == picture


# -- two servers ----------------------------------------------------------------------------------


class Stub:
    """A server that keeps the methods of requests; without a status it ends the connection."""

    def __init__(self, status: int | None) -> None:
        self.requests: list[str] = []
        stub = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.rfile.read(int(self.headers.get("Content-Length", 0)))
                stub.requests.append(self.command)
                if status:
                    self.send_response(status)
                    self.send_header("Content-Length", "0")
                    self.end_headers()

            do_POST = do_GET

            def log_message(self, *args) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@contextlib.contextmanager
def stubs(*statuses: int | None) -> Iterator[list[Stub]]:
    with contextlib.ExitStack() as opened:
        yield [opened.enter_context(contextlib.closing(Stub(status))) for status in statuses]


@pytest.fixture
def ask(tmp_path: Path) -> Callable[..., list[int]]:
    """A function that sends requests through nginx to these servers, and returns the statuses.

    Each request has a connection of its own.
    """

    def ask(servers: list[str], *methods: str, **options: int) -> list[int]:
        nginx = Nginx(tmp_path / "nginx", **options)
        statuses = []
        with nginx.running(*servers):
            for method in methods:
                with contextlib.closing(Sender(nginx)) as sender:
                    answer = sender.send_request(method, "/api/oauth/token", b"", FORM)
                    statuses.append(answer.status)
        return statuses

    return ask


def test_request_goes_to_the_other_server_if_one_is_gone(ask):
    """POST requests as well: nothing was sent."""
    with stubs(200) as [other]:
        gone = f"127.0.0.1:{free_port()}"
        assert ask([gone, other.address], *["GET", "POST"] * 10) == [200] * 20
        assert len(other.requests) == 20


def test_silent_server_is_left_after_a_while(ask):
    """Such as a machine without power, on a connection from before. A POST gets 504."""
    with socket.create_server(("127.0.0.1", 0)) as silent, stubs(200) as [other]:
        both = [f"127.0.0.1:{silent.getsockname()[1]}", other.address]
        assert ask(both, *["GET"] * 4, read_timeout_ms=2000) == [200] * 4
        statuses = ask(both, *["POST"] * 4, read_timeout_ms=2000)
        assert sorted(statuses) == [200, 200, 200, 504]
        assert sorted(other.requests) == [*["GET"] * 4, *["POST"] * 3]


def test_post_is_never_repeated(ask):
    """A server that ends the connection may have done what was posted. A GET is repeated."""
    with stubs(None, None) as both:
        assert ask([each.address for each in both], "POST") == [502]
        assert [each.requests for each in both if each.requests] == [["POST"]]
    with stubs(None, 200) as both:
        assert ask([each.address for each in both], "GET", "GET") == [200, 200]
        assert both[0].requests == ["GET"]  # and then not for ten seconds


def test_busy_server_is_believed(ask):
    """A 503 is passed on: the other server would need as long to say the same."""
    with stubs(503, 503) as both:
        assert ask([each.address for each in both], *["GET", "POST"] * 4) == [503] * 8
        assert sum(len(each.requests) for each in both) == 8
