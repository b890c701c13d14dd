"""deploy/nginx.conf on several machines: pictures from the server, and two servers."""

import contextlib
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from programs import free_port
from waiting import wait_until

from storage import Storage
from storage.pictures import generate_picture

from .behind_nginx import Nginx, ServerBehindNginx
from .running import running_server
from .test_nginx import FORM, Answer, Sender, lines_of, no_upstream_requests, send_http

pytestmark = [pytest.mark.live, pytest.mark.nginx]


class ServerOfPictures(ServerBehindNginx):
    """A running server behind nginx, which does not reach the folder of the pictures."""

    def __init__(self, folder: Path, **settings: str) -> None:
        super().__init__(folder, **settings)
        self.picture_dir = folder / "pictures"


@pytest.fixture(scope="module")
def server() -> Iterator[ServerOfPictures]:
    """A running server whose pictures nginx caches."""
    with running_server(ServerOfPictures) as server:
        yield server


@pytest.fixture
def send(server: ServerOfPictures):
    """A function that sends a request through nginx: `send("GET", path)`."""
    with contextlib.closing(Sender(server.nginx)) as sender:
        yield sender.send_request


@pytest.fixture
def player(server: ServerOfPictures, store: Storage) -> dict:
    """A player whose picture nothing has requested."""
    return server.add_user(f"p{len(list(store.users.ids()))}")


def picture_path(player: dict, size: str = "large") -> str:
    return f"/pfp/{size}/{player['id']}-{player['pfpTimestamp']}.webp"


# -- pictures from the server ---------------------------------------------------------------------


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Range": "bytes=0-9"},
        {"Range": "bytes=-10"},
        {"If-None-Match": "*"},
        {"If-Modified-Since": "Sat, 01 Jan 2050 00:00:00 GMT"},
    ],
)
@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_cached_picture_is_as_that_of_the_server(
    server: ServerOfPictures, player: dict, send, method: str, headers: dict
):
    """The response to the first request, which fills the cache, and those from the cache."""
    path = picture_path(player)
    expected = send_http(server.backend, method, path, headers=headers)
    answers = [send(method, path, headers=headers)]
    wait_until(lambda: path in server.nginx.access_log.read_text())  # the cache has all of it
    with no_upstream_requests(server.nginx):
        answers += [send(method, path, headers=headers), send(method, f"{path}?x", headers=headers)]
    if expected.status != 200:  # only one of the two repeats these headers
        for each in (expected, *answers):
            each.headers.pop("accept-ranges", None)
            each.headers.pop("last-modified", None)
    for answer in answers:
        assert (answer.status, answer.body) == (expected.status, expected.body)
        assert answer.own_headers() == expected.own_headers()


def test_cached_picture_with_its_etag_is_304(server: ServerOfPictures, player: dict, send):
    path = picture_path(player)
    etag = send("GET", path).headers["etag"]
    wait_until(lambda: path in server.nginx.access_log.read_text())
    with no_upstream_requests(server.nginx):
        assert send("GET", path, headers={"If-None-Match": etag}).status == 304
        assert send("GET", path, headers={"If-None-Match": '"another"'}).status == 200


def test_replaced_picture_is_404_soon(store: Storage, player: dict, send):
    """Its copy in the cache is believed for ten seconds."""
    old = [picture_path(player, size) for size in ("large", "medium", "small")]
    assert [send("GET", path).status for path in old] == [200, 200, 200]
    pictures = generate_picture(1000)
    new = store.pictures.save(player["id"], pictures)
    answer = send("GET", f"/pfp/large/{player['id']}-{new}.webp")
    assert (answer.status, answer.body) == (200, pictures["large"])
    wait_until(lambda: [send("GET", path).status for path in old] == [404, 404, 404])
    assert [send("GET", path).status for path in old] == [404, 404, 404]


def test_picture_without_a_timestamp_is_not_cached(server: ServerOfPictures, send):
    """An account without a timestamp keeps its address when the picture changes."""
    imported = server.picture_dir / "small" / "77.webp"
    for number in (77, 78):
        imported.write_bytes(generate_picture(number)["small"])
        answer = send("GET", "/pfp/small/77.webp")
        assert (answer.status, answer.body) == (200, generate_picture(number)["small"])


def test_missing_picture_is_not_cached(server: ServerOfPictures, player: dict, send):
    path = picture_path(player, "medium")
    file = server.picture_dir / "medium" / path.rpartition("/")[2]
    hidden = file.rename(file.with_suffix(".hidden"))
    store = server.open_storage()
    store.pictures.save(player["id"], generate_picture(1001))
    assert send("GET", path).status == 404
    hidden.rename(file)
    assert send("GET", path).status == 200


def test_cached_picture_does_not_depend_on_the_player(server: ServerOfPictures, player: dict, send):
    """Whoever fills the cache: the response has no cookie, and others get the same."""
    cookie = {"Cookie": f"__Host-session={server.start_session(player['name'])}"}
    filled, cached = (send("GET", picture_path(player), headers=each) for each in (cookie, {}))
    assert (filled.status, filled.body) == (cached.status, cached.body)
    for answer in (filled, cached):
        assert "set-cookie" not in answer.headers
        assert "cookie" not in answer.headers.get("vary", "").lower()


def test_only_pictures_are_cached(server: ServerOfPictures, player: dict, send):
    for path in (
        "/",
        f"/users/{player['id']}",
        f"/api/users/info?id={player['id']}",
        picture_path(player),
    ):
        for _ in range(2):
            send("GET", path)
    cached = [
        path.read_bytes() for path in (server.nginx.folder / "cache").rglob("*") if path.is_file()
    ]
    keys = [content.partition(b"\nKEY: ")[2].partition(b"\n")[0] for content in cached]
    assert keys
    assert all(key.startswith(b"/pfp/") for key in keys)


def test_dot_files_are_never_served(server: ServerOfPictures, send):
    (server.picture_dir / "large" / ".1-1.webp").write_bytes(b"half")
    for name in (".1-1.webp", "%2e1-1.webp", "./.1-1.webp", "x/../.1-1.webp", "1-1.webp.0a1b"):
        for path in (f"/pfp/large/{name}", f"/pfp/{name}", f"//pfp/large/{name}"):
            assert send("GET", path).status in (400, 404)


def test_cached_pictures_are_served_while_the_server_is_gone(tmp_path: Path):
    """Also expired ones."""
    with running_server(ServerOfPictures) as server:
        path = picture_path(server.add_user("ada"))
        with contextlib.closing(Sender(server.nginx)) as sender:
            picture = sender.send_request("GET", path).body
            server.process.terminate()
            server.process.wait()
            assert sender.send_request("GET", "/").status == 502
            seen = len(lines_of(server.nginx.access_log))

            def asked_the_server() -> bool:
                answer = sender.send_request("GET", path)
                assert (answer.status, answer.body) == (200, picture)
                return any(
                    not line.endswith(" -") for line in lines_of(server.nginx.access_log)[seen:]
                )

            wait_until(asked_the_server)  # ten seconds after the first request
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


def send_all(nginx: Nginx, method: str, count: int = 10) -> list[Answer]:
    """Send requests one after the other, each on a connection of its own."""
    answers = []
    for _ in range(count):
        with contextlib.closing(Sender(nginx)) as sender:
            answers.append(sender.send_request(method, "/api/oauth/token", b"", FORM))
    return answers


def test_two_servers_share_the_requests(tmp_path: Path):
    nginx = Nginx(tmp_path / "nginx")
    with stubs(200, 200) as both, nginx.running(*(each.address for each in both)):
        assert {answer.status for answer in send_all(nginx, "POST", 20)} == {200}
        assert all(len(each.requests) >= 5 for each in both)


def test_request_goes_to_the_other_server_if_one_is_gone(tmp_path: Path):
    """POST requests as well: nothing was sent."""
    nginx = Nginx(tmp_path / "nginx")
    with stubs(200) as [other], nginx.running(f"127.0.0.1:{free_port()}", other.address):
        for method in ("GET", "POST"):
            assert {answer.status for answer in send_all(nginx, method)} == {200}
        assert len(other.requests) == 20


def test_silent_server_is_left_after_a_while(tmp_path: Path):
    """Such as a machine without power, on a connection from before. A POST gets 504."""
    nginx = Nginx(tmp_path / "nginx", read_timeout_ms=500)
    with socket.create_server(("127.0.0.1", 0)) as silent, stubs(200) as [other]:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        with nginx.running(address, other.address):
            assert {answer.status for answer in send_all(nginx, "GET", 4)} == {200}
        with nginx.running(address, other.address):
            statuses = [answer.status for answer in send_all(nginx, "POST", 4)]
            assert sorted(statuses) == [200, 200, 200, 504]
        assert sorted(other.requests) == [*["GET"] * 4, *["POST"] * 3]


def test_post_is_never_repeated(tmp_path: Path):
    """A server that ends the connection may have done what was posted. A GET is repeated."""
    nginx = Nginx(tmp_path / "nginx")
    with stubs(None, None) as both, nginx.running(*(each.address for each in both)):
        assert send_all(nginx, "POST", 1)[0].status == 502
        assert [each.requests for each in both if each.requests] == [["POST"]]
    with stubs(None, 200) as both, nginx.running(*(each.address for each in both)):
        assert [answer.status for answer in send_all(nginx, "GET", 2)] == [200, 200]
        assert both[0].requests == ["GET"]  # and then not for ten seconds


def test_busy_server_is_believed(tmp_path: Path):
    """A 503 is passed on: the other server would need as long to say the same."""
    nginx = Nginx(tmp_path / "nginx")
    with stubs(503, 503) as both, nginx.running(*(each.address for each in both)):
        for method in ("GET", "POST"):
            assert {answer.status for answer in send_all(nginx, method, 4)} == {503}
        assert sum(len(each.requests) for each in both) == 8
