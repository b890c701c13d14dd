"""Letters from a real server, whose workers are killed and replaced while they send one."""

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests
from mail_server import MailServer, code_in, link_in, text_of_letter
from waiting import wait_until

from commands.running import SERVER_MODULES
from identity.messages.letter import Letter
from identity.messages.mail import compose
from identity.messages.outbox import MAIL, new_message
from model.kinds import OUTBOX, waiting_queues
from model.records import now_ms

from .running import ANSWER_TIMEOUT, RunningServer, running_server

pytestmark = pytest.mark.live

EMAIL = "ada@example.org"


@pytest.fixture(scope="module", params=SERVER_MODULES)
def installed(request) -> Iterator[tuple[RunningServer, MailServer]]:
    """A running server of each kind, and the mail server that it gives letters to."""
    mail_server = MailServer()
    settings = {"SMTP_URL": mail_server.url(), "MAIL_FROM": "site@games.example"}
    with running_server(kind=request.param, **settings) as server:
        user = server.add_user("ada", EMAIL)
        server.open_storage().users.change_email(user["id"], EMAIL, verified=True)
        yield server, mail_server
    mail_server.close()


@pytest.fixture
def server(installed) -> Iterator[RunningServer]:
    installed[0].forget_attempts()
    yield installed[0]


@pytest.fixture
def mail_server(installed) -> Iterator[MailServer]:
    mail_server = installed[1]
    yield mail_server
    mail_server.pauses.clear()
    mail_server.letters.clear()
    mail_server.received.clear()


def put_letter(server: RunningServer, to: str = EMAIL) -> None:
    """Put a letter into the outbox, as another process does."""
    config = {"SITE_NAME": "x", "MAIL_FROM": "a@b.example"}
    store = server.open_storage()
    body = compose(store, config, to, Letter("x", ["x"], server.address, "x"), "en")
    store.records(OUTBOX).add(new_message(MAIL, "password", body, to=to))


def waiting(server: RunningServer) -> list:
    outbox = server.open_storage().records(OUTBOX)
    return [each for queue in waiting_queues(MAIL) for each in outbox.page("queue", queue)]


def sending_worker(server: RunningServer) -> int:
    """Return the worker that holds the lock of the outbox."""
    lock = str(os.stat(server.data_dir / "locks" / "outbox-mail").st_ino)
    held = [line.split() for line in Path("/proc/locks").read_text().splitlines()]
    [pid] = {int(each[4]) for each in held if each[5].endswith(f":{lock}")}
    assert pid in server.workers()
    return pid


def test_lost_password_is_set_within_seconds(server, mail_server):
    """From the form to the mailbox and back, in the browser that asked."""
    with requests.Session() as browser:
        started = time.monotonic()
        form = {"email": EMAIL}
        browser.post(f"{server.address}/recover", form, timeout=ANSWER_TIMEOUT)
        wait_until(lambda: mail_server.letters)
        assert time.monotonic() - started < 5
        text = text_of_letter(mail_server.letters[0])
        assert link_in(text).startswith(f"{server.address}/recover#")
        form = {"code": code_in(text), "new_password": "another good phrase"}
        page = browser.post(f"{server.address}/recover/password", form, timeout=ANSWER_TIMEOUT)
        assert "Password set. You are signed in." in page.text
        wait_until(lambda: len(mail_server.letters) == 2)  # about the new password
    assert link_in(text).partition("#")[2] not in server.access_log.read_text()


@pytest.mark.load
@pytest.mark.parametrize(
    ("step", "most"), [("EHLO", 1), ("RCPT", 1), ("DATA", 2)], ids=["before", "to", "after data"]
)
def test_letter_of_a_killed_worker_is_sent_by_another(server, mail_server, step, most):
    """It is sent twice only if the server has all of it, and the record is not yet removed."""
    if server.kind == "granian":
        time.sleep(6)  # it ends if a new worker is killed within 5.5 seconds
    mail_server.pauses[step] = 1.5
    requests.post(f"{server.address}/recover", {"email": EMAIL}, timeout=ANSWER_TIMEOUT)
    wait_until(lambda: step in mail_server.received)
    killed = sending_worker(server)
    os.kill(killed, signal.SIGKILL)
    mail_server.pauses.clear()
    wait_until(lambda: not waiting(server))
    wait_until(lambda: len(server.workers()) == 2)
    assert killed not in server.workers()
    time.sleep(1.5)  # what the first dialogue does when its pause ends
    assert 1 <= len(mail_server.letters) <= most
    assert len({link_in(text_of_letter(each)) for each in mail_server.letters}) == 1
    assert len({each["Message-ID"] for each in mail_server.letters}) == 1


@pytest.mark.load
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP], ids=["recycled", "reload"])
def test_worker_that_ends_finishes_its_letter(server, mail_server, number):
    if server.kind == "granian" and number == signal.SIGTERM:
        time.sleep(6)  # it ends if a new worker ends within 5.5 seconds
    mail_server.pauses["DATA"] = 1.5
    put_letter(server)
    wait_until(lambda: "DATA" in mail_server.received)
    worker = sending_worker(server)
    os.kill(worker if number == signal.SIGTERM else server.process.pid, number)
    wait_until(lambda: worker not in server.workers())
    wait_until(lambda: not waiting(server) and len(server.workers()) == 2)
    assert len(mail_server.letters) == 1
    mail_server.pauses.clear()
    put_letter(server)  # nobody sends a request: the other worker takes over
    wait_until(lambda: len(mail_server.letters) == 2)


def test_letters_from_before_the_start_are_sent(server, mail_server):
    server.kill()
    put_letter(server)
    server.launch()
    wait_until(lambda: mail_server.letters, server.process)
    wait_until(lambda: not waiting(server))  # the server counts it before it replies
    wait_until(lambda: len(server.workers()) == 2, server.process)


def test_command_tests_the_server_and_lists_letters(server, mail_server):
    printed = server.command_output("mail", "test", "me@example.org")
    assert "< 354" in printed and "> QUIT" not in printed.splitlines()[-1]
    assert mail_server.recipients[-1] == "me@example.org"
    mail_server.replies["gone@example.org"] = "550 No such user"
    failed = server.start_command("mail", "test", "gone@example.org")
    _, problem = failed.communicate(timeout=ANSWER_TIMEOUT)
    assert (failed.returncode, "550 No such user" in problem) == (1, True)
    put_letter(server, "gone@example.org")
    wait_until(lambda: not waiting(server))
    [letter] = server.command("mail", "list")
    assert letter["state"] == "given up" and "550" in letter["problem"]
    assert set(letter) == {
        *("id", "kind", "to", "state", "tries", "next", "problem", "created", "expires")
    }
    assert letter["created"] <= now_ms() < letter["expires"]
