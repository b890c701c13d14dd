"""Backups during continuous writes."""

import contextlib
import itertools
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from archives import Site
from waiting import wait_until

from benchmarks.population import populate
from identity.accounts import RENAMES_AN_HOUR
from identity.limits import PICTURES

from .form_browser import FormBrowser
from .running import PASSWORD, RunningServer
from .test_account_races import post, upload
from .test_races import Background, until_not_busy

pytestmark = [pytest.mark.live, pytest.mark.load]
PLAYERS = 100
BACKUPS = 2
PAUSE = 0.2  # seconds: leaves processor time for sign-ups, which hash passwords

Action = Callable[[int], None]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RunningServer]:
    """A server with open sign-up and PLAYERS users."""
    populate(str(tmp_path), PLAYERS)
    server = RunningServer(tmp_path, SIGN_UP="open", PROXIES="1")
    server.start()
    yield server
    server.stop()


addresses = itertools.count()


def sign_up(server: RunningServer, name: str) -> FormBrowser:
    """Create an account from a new address (the limit is ten a day); return its browser."""
    form_browser, number = FormBrowser(server.address), next(addresses)
    form = {"name": name, "email": f"{name.replace(' ', '.')}@example.org", "password": PASSWORD}
    headers = {"X-Forwarded-For": f"10.0.{number // 256}.{number % 256}"}
    answer = until_not_busy(lambda: post(form_browser, "/sign-up", data=form, headers=headers))
    assert answer.status_code == 303, answer.text
    return form_browser


def edit_profile(server: RunningServer, client: int) -> Action:
    form_browser = None

    def action(number: int) -> None:
        nonlocal form_browser
        if number % RENAMES_AN_HOUR == 0:  # the player before has changed the name as often
            form_browser = sign_up(server, f"Writer {client}.{number}")
        fields = {"bio": f"bio {number}", "name": f"Writer {client} {number}"}
        assert post(form_browser, "/account", data=fields).status_code == 303
        assert f"bio {number}" in form_browser.open("/account").text
        time.sleep(PAUSE)

    return action


def change_picture(server: RunningServer, client: int) -> Action:
    form_browser = None

    def action(number: int) -> None:
        nonlocal form_browser
        if number % PICTURES == 0:  # the player before has uploaded all that one may
            form_browser = sign_up(server, f"Painter {client} {number}")
        upload(form_browser, number)
        assert form_browser.open("/account").status == 200
        time.sleep(PAUSE)

    return action


def sign_up_and_delete(server: RunningServer, client: int) -> Action:
    def action(number: int) -> None:
        form_browser = sign_up(server, f"Guest {client} {number}")
        form = {"password": PASSWORD, "stamp": form_browser.read_stamp()}
        answer = until_not_busy(lambda: post(form_browser, "/account/delete", data=form))
        assert answer.status_code == 303, answer.text
        form_browser.close()

    return action


def test_backup_during_concurrent_writes_restores_without_problems(
    server: RunningServer, tmp_path: Path
):
    """Writes: profile and name edits, uploads, sign-ups and deletions. Two backups in a row."""
    actions = [edit_profile(server, client) for client in range(4)]
    actions += [change_picture(server, client) for client in range(2)]
    actions += [sign_up_and_delete(server, client) for client in range(2)]
    archives = [tmp_path / f"{number}.tar.gz" for number in range(BACKUPS)]

    def wait_for_writes_after_the_snapshot(done: int, _: int) -> None:
        if done == PLAYERS:  # all records are hard-linked into the snapshot
            wait_for_a_write_of_each(running)

    with contextlib.ExitStack() as clients:
        running = [clients.enter_context(Background(action)) for action in actions]
        wait_for_a_write_of_each(running)
        for archive in archives:
            players = Site(tmp_path).backup(archive, progress=wait_for_writes_after_the_snapshot)
            assert players >= PLAYERS + 6
    for archive in archives:
        restored = Site(tmp_path / archive.stem)
        restored.restore(archive)
        assert restored.problems() == []
        users = restored.open().users.ids()
        assert users[:PLAYERS] == [*range(1, PLAYERS + 1)]
        names = {restored.open().users.read(user_id).name[:6] for user_id in users[PLAYERS:]}
        assert {"Writer", "Painte"} <= names <= {"Writer", "Painte", "Guest "}


def wait_for_a_write_of_each(running: list[Background]) -> None:
    """Return when each of them has completed an action that began after this call."""
    before = [each.count for each in running]
    wait_until(lambda: all(a.count > b + 1 for a, b in zip(running, before, strict=True)))
