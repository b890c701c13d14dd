"""One member who keeps a server busy, behind nginx and without it: others sign in all the same."""

import contextlib
import http.client
import io
import itertools
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlencode, urlsplit

import pytest
from PIL import Image
from waiting import wait_until

from .behind_nginx import ServerBehindNginx
from .running import ANSWER_TIMEOUT, PASSWORD, running_server
from .test_nginx import FORM, Answer, Sender

pytestmark = [pytest.mark.live, pytest.mark.nginx]
HASHING_CONNECTIONS, PICTURE_CONNECTIONS = 8, 2  # of the member
OTHERS, SIGNED_IN = 10, 9  # players, and how many of them succeed
ROUND_TRIP = 0.05  # seconds: the member is elsewhere, and takes no processor time from the server
WRONG_PASSWORDS = 9  # at ten the member could confirm nothing any more

Request = tuple[str, bytes, dict[str, str]]  # path, body, headers
Send = Callable[..., Answer]


class RealServer(ServerBehindNginx):
    """A server where passwords cost what they cost: one member sends many."""

    is_quick = False


@pytest.fixture(scope="module")
def server() -> Iterator[ServerBehindNginx]:
    """A server behind nginx, with players."""
    with running_server(RealServer) as server:
        for number in range(OTHERS):
            server.add_user(f"player{number}x", f"{number}@example.org")
        yield server


@pytest.fixture(params=["nginx", "gunicorn alone"])
def through(request) -> str:
    """Where the requests go."""
    return request.param


@pytest.fixture
def member(server: ServerBehindNginx, through: str) -> str:
    """The name of a member, who has made no request before."""
    return server.add_user(f"mallory {through}", f"{through.split()[0]}@example.com")["name"]


@pytest.fixture
def send(server: ServerBehindNginx, through: str) -> Send:
    """A function that posts one request from an address, and returns the response."""

    def send(address: str, path: str, body: bytes, headers: dict[str, str]) -> Answer:
        if through == "nginx":
            connection = Sender(server.nginx, address)
        else:  # which believes one proxy, as behind nginx
            netloc = urlsplit(server.backend).netloc
            connection = http.client.HTTPConnection(netloc, timeout=ANSWER_TIMEOUT)
            headers = headers | {"X-Forwarded-For": address, "Host": "127.0.0.1"}
        with contextlib.closing(connection):
            connection.request("POST", path, body, headers)
            return Answer(connection.getresponse())

    return send


def form(path: str, **fields: str) -> Request:
    """Return the request of a form."""
    return path, urlencode(fields).encode(), FORM


def large_picture() -> Request:
    """Return an upload of a kilobyte that is decoded to 25 megapixels."""
    content = io.BytesIO()
    Image.new("RGB", (5000, 5000), (9, 9, 9)).save(content, "WEBP", lossless=True)
    assert len(content.getvalue()) < 2000
    head = b'--x\r\nContent-Disposition: form-data; name="picture"; filename="a.webp"\r\n\r\n'
    body = head + content.getvalue() + b"\r\n--x--\r\n"
    return "/account/picture", body, {"Content-Type": "multipart/form-data; boundary=x"}


@contextlib.contextmanager
def attack(server: ServerBehindNginx, send: Send, member: str) -> Iterator[Counter]:
    """Send everything expensive on ten connections of one member until the block ends.

    The block gets the number of responses of each path and status.
    """
    statuses: Counter[tuple[str, int]] = Counter()
    over = threading.Event()
    session = {"cookie": server.start_session(member)}
    confirmed = {"current_password": PASSWORD}
    emails = (f"mallory.{number}@example.com" for number in itertools.count())
    expensive = itertools.cycle(
        (
            lambda: form("/account/password", **confirmed, new_password="too short"),
            lambda: form("/account/password", **confirmed, new_password=PASSWORD),
            lambda: form("/account/email", **confirmed, email=next(emails)),
        )
    )
    wrong = iter([form("/account/delete", password="wrong")] * WRONG_PASSWORDS)
    picture = large_picture()

    def post(path: str, body: bytes, headers: dict[str, str]) -> None:
        time.sleep(ROUND_TRIP)
        cookie = {"Cookie": f"__Host-session={session['cookie']}"}
        try:
            answer = send(f"127.0.2.{len(member)}", path, body, headers | cookie)
        except TimeoutError:  # of a picture: it is decoded when nothing else wants the processor
            statuses[path, 504] += 1
            return
        statuses[path, answer.status] += 1
        if "/sign-in" in answer.headers.get("location", ""):  # a new password ends all sessions
            session["cookie"] = server.start_session(member)

    def upload() -> None:
        while not over.is_set():
            post(*picture)

    def confirm() -> None:
        while not over.is_set():
            post(*(next(wrong, None) or next(expensive)()))

    with ThreadPoolExecutor(HASHING_CONNECTIONS + PICTURE_CONNECTIONS) as threads:
        running = [threads.submit(upload) for _ in range(PICTURE_CONNECTIONS)]
        running += [threads.submit(confirm) for _ in range(HASHING_CONNECTIONS)]
        try:
            yield statuses
        finally:
            over.set()
    for each in running:
        each.result()


def test_one_member_does_not_keep_others_from_signing_in(
    server: ServerBehindNginx, send: Send, member: str
):
    """Ten connections confirm with right and wrong passwords and upload large pictures."""
    confirmed = {f"/account/{name}" for name in ("password", "email", "delete")}
    with attack(server, send, member) as statuses:
        wait_until(lambda: {path for path, _ in list(statuses)} >= confirmed)
        others = Counter(
            send(
                f"127.0.1.{n + 1}", *form("/sign-in", name=f"player{n}x", password=PASSWORD)
            ).status
            for n in range(OTHERS)
        )
    assert others[303] >= SIGNED_IN, (others, statuses)
    refused = {path for path, status in statuses if status in (429, 503)}
    assert refused >= {"/account/password", "/account/email"}
