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
from statistics import median
from urllib.parse import urlencode, urlsplit

import pytest
from PIL import Image
from waiting import wait_until

from .behind_nginx import ServerBehindNginx
from .running import ANSWER_TIMEOUT, PASSWORD, running_server
from .test_nginx import FORM, Answer, Sender

pytestmark = [pytest.mark.live, pytest.mark.nginx]
HASHING_CONNECTIONS, PICTURE_CONNECTIONS = 8, 2  # of the member
OTHERS, SIGNED_IN = 20, 18  # players, and how many of them succeed
QUIET_SIGN_INS = 5  # before the attack, and as many after it
SLOWER = 25  # times as long as these may the others' take: on an idle machine five times
ROUND_TRIP = 0.05  # seconds: the member is elsewhere, and takes no processor time from the server
WRONG_PASSWORDS = 9  # at ten the member could confirm nothing any more

Request = tuple[str, bytes, dict[str, str]]  # path, body, headers
Send = Callable[..., Answer]


@pytest.fixture(scope="module")
def server() -> Iterator[ServerBehindNginx]:
    """A server behind nginx, with players."""
    with running_server(ServerBehindNginx) as server:
        for number in range(OTHERS):
            server.add_user(f"player{number:02}x", f"{number}@example.org")
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


class Attack:
    """Connections of one member that send everything expensive, until the block ends."""

    def __init__(self, server: ServerBehindNginx, send: Send, member: str) -> None:
        self.server, self.send, self.member = server, send, member
        self.address = f"127.0.2.{len(member)}"
        self.statuses: Counter[tuple[str, int]] = Counter()
        self.over = threading.Event()
        confirmed = {"current_password": PASSWORD}
        emails = (f"mallory.{number}@example.com" for number in itertools.count())
        self.hashing = itertools.cycle(
            (
                lambda: form("/account/password", **confirmed, new_password="too short"),
                lambda: form("/account/password", **confirmed, new_password=PASSWORD),
                lambda: form("/account/email", **confirmed, email=next(emails)),
            )
        )
        self.wrong = iter([form("/account/delete", password="wrong")] * WRONG_PASSWORDS)
        self.picture = large_picture()
        self.cookie = server.start_session(self.member)

    def __enter__(self) -> "Attack":
        self.threads = ThreadPoolExecutor(HASHING_CONNECTIONS + PICTURE_CONNECTIONS)
        pictures = [self.threads.submit(self.upload) for _ in range(PICTURE_CONNECTIONS)]
        hashing = [self.threads.submit(self.hash) for _ in range(HASHING_CONNECTIONS)]
        self.running = [*pictures, *hashing]
        return self

    def __exit__(self, *_: object) -> None:
        self.over.set()
        self.threads.shutdown()
        for each in self.running:
            each.result()

    def hash(self) -> None:
        while not self.over.is_set():
            self.post(next(self.wrong, None) or next(self.hashing)())

    def upload(self) -> None:
        while not self.over.is_set():
            self.post(self.picture)

    def post(self, sent: Request) -> None:
        time.sleep(ROUND_TRIP)
        path, body, headers = sent
        cookie = {"Cookie": f"__Host-session={self.cookie}"}
        try:
            answer = self.send(self.address, path, body, headers | cookie)
        except TimeoutError:  # of a picture: it is decoded when nothing else wants the processor
            self.statuses[path, 504] += 1
            return
        self.statuses[path, answer.status] += 1
        if "/sign-in" in answer.headers.get("location", ""):  # a new password ends all sessions
            self.cookie = self.server.start_session(self.member)


def test_one_member_does_not_keep_others_from_signing_in(
    server: ServerBehindNginx, send: Send, member: str
):
    """Ten connections confirm with right and wrong passwords and upload large pictures."""
    confirmed = {f"/account/{name}" for name in ("password", "email", "delete")}
    sign_ins = itertools.count()

    def sign_in() -> tuple[int, float]:
        """Sign the next player in from an own address; return the status and the seconds."""
        number = next(sign_ins)
        name = f"player{number % OTHERS:02}x"
        path, body, headers = form("/sign-in", name=name, password=PASSWORD)
        started = time.monotonic()
        answer = send(f"127.0.1.{number + 1}", path, body, headers)
        return answer.status, time.monotonic() - started

    quiet = [sign_in() for _ in range(QUIET_SIGN_INS)]
    with Attack(server, send, member) as attack:
        wait_until(lambda: {path for path, _ in list(attack.statuses)} >= confirmed)
        others = [sign_in() for _ in range(OTHERS)]
    quiet += [sign_in() for _ in range(QUIET_SIGN_INS)]
    assert Counter(status for status, _ in others)[303] >= SIGNED_IN, (others, attack.statuses)
    seconds, quiet_seconds = (median(each for _, each in times) for times in (others, quiet))
    assert seconds < SLOWER * quiet_seconds, (others, quiet)
    refused = {path for path, status in attack.statuses if status in (429, 503)}
    assert refused >= {"/account/password", "/account/email"}
