"""Backups of a server that is written to all the time."""

import contextlib
import itertools
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from archives import Site
from waiting import wait_until

from benchmarks.population import populate

from .person import Person
from .running import PASSWORD, RunningServer
from .test_account_races import post, upload
from .test_races import Background, until_not_busy

pytestmark = [pytest.mark.live, pytest.mark.load]
PLAYERS = 100
BACKUPS = 2
PAUSE = 0.2  # seconds: new accounts, whose passwords are hashed, would get no processor

Act = Callable[[int], None]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RunningServer]:
    """Where anybody may make an account."""
    populate(str(tmp_path), PLAYERS)
    server = RunningServer(tmp_path, SIGN_UP="open", PROXIES="1")
    server.start()
    yield server
    server.stop()


addresses = itertools.count()


def sign_up(server: RunningServer, name: str) -> Person:
    """Somebody with a new account, from an address of their own: each makes ten a day."""
    person, number = Person(server.address), next(addresses)
    form = {"name": name, "email": f"{name.replace(' ', '.')}@example.org", "password": PASSWORD}
    headers = {"X-Forwarded-For": f"10.0.{number // 256}.{number % 256}"}
    answer = until_not_busy(lambda: post(person, "/sign-up", data=form, headers=headers))
    assert answer.status_code == 303, answer.text
    return person


def edit_profile(server: RunningServer, client: int) -> Act:
    person = sign_up(server, f"Writer {client}")

    def act(number: int) -> None:
        fields = {"bio": f"bio {number}", "name": f"Writer {client} {number % 3}"}
        assert post(person, "/account", data=fields).status_code == 303
        assert f"bio {number}" in person.open("/account").text
        time.sleep(PAUSE)

    return act


def change_picture(server: RunningServer, client: int) -> Act:
    person = sign_up(server, f"Painter {client}")

    def act(number: int) -> None:
        upload(person, number)
        assert person.open("/account").status == 200
        time.sleep(PAUSE)

    return act


def come_and_go(server: RunningServer, client: int) -> Act:
    def act(number: int) -> None:
        person = sign_up(server, f"Guest {client} {number}")
        form = {"password": PASSWORD}
        answer = until_not_busy(lambda: post(person, "/account/delete", data=form))
        assert answer.status_code == 303, answer.text
        person.close()

    return act


def test_a_backup_taken_while_eight_clients_write_restores_to_a_sound_installation(
    server: RunningServer, tmp_path: Path
):
    """Profiles, names, pictures, new accounts and deletions; two backups in a row."""
    acts = [edit_profile(server, client) for client in range(4)]
    acts += [change_picture(server, client) for client in range(2)]
    acts += [come_and_go(server, client) for client in range(2)]
    archives = [tmp_path / f"{number}.tar.gz" for number in range(BACKUPS)]

    def wait_before_clients_are_packed(done: int, _: int) -> None:
        if done == PLAYERS:  # all records are linked
            wait_until_each_wrote(running)

    with contextlib.ExitStack() as clients:
        running = [clients.enter_context(Background(act)) for act in acts]
        wait_until_each_wrote(running)
        for archive in archives:
            players = Site(tmp_path).backup(archive, progress=wait_before_clients_are_packed)
            assert players >= PLAYERS + 6
    for archive in archives:
        restored = Site(tmp_path / archive.stem)
        restored.restore(archive)
        assert restored.problems() == []
        users = restored.open().user_ids()
        assert users[:PLAYERS] == [*range(1, PLAYERS + 1)]
        names = {restored.open().read_user(user_id).name[:6] for user_id in users[PLAYERS:]}
        assert {"Writer", "Painte"} <= names <= {"Writer", "Painte", "Guest "}


def wait_until_each_wrote(running: list[Background]) -> None:
    """Return when each of them was at work from now on, and ended with it."""
    before = [each.count for each in running]
    wait_until(lambda: all(a.count > b + 1 for a, b in zip(running, before, strict=True)))
