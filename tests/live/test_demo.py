"""`identity-server demo`, from its first word to its end."""

import contextlib
import os
import signal
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import click
import pytest
import requests
from waiting import wait_until

import storage

from .demo import EXAMPLE, Demo
from .running import ANSWER_TIMEOUT

COMMUNITY, PASSWORD = EXAMPLE["COMMUNITY"], EXAMPLE["PASSWORD"]
choose_addresses = EXAMPLE["choose_addresses"]

pytestmark = [pytest.mark.live, pytest.mark.load]


@pytest.fixture
def demo(tmp_path: Path) -> Iterator[Callable[..., Demo]]:
    """Starts the demo."""
    started = []

    def demo(**options) -> Demo:
        started.append(Demo(tmp_path, **options))
        return started[-1]

    yield demo
    for each in started:
        each.kill()


def check_nothing_is_left(demo: Demo) -> None:
    assert demo.processes() == []
    assert list(demo.temporary.iterdir()) == []


@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP], ids=str)
def test_a_signal_ends_the_demo_and_leaves_no_process_and_no_file(demo, end: signal.Signals):
    started = demo()
    started.start()
    # The demo, gunicorn and its two workers, two programs.
    wait_until(lambda: len(started.processes()) == 6)
    assert len(list(started.temporary.iterdir())) == 1
    # Somebody is looking: an open connection holds nothing up.
    with requests.Session() as browser:
        assert browser.get(started.site, timeout=ANSWER_TIMEOUT).status_code == 200
        if end == signal.SIGINT:
            started.press_ctrl_c()
        else:
            os.kill(started.process.pid, end)
        assert started.wait() == 0
    assert started.errors.read_text() == ""
    check_nothing_is_left(started)


@pytest.mark.parametrize("moment", ["Five players move into", "A web app and a game join them"])
def test_ctrl_c_while_it_sets_up_leaves_nothing_either(demo, moment: str):
    started = demo()
    started.listen_for(moment)
    started.press_ctrl_c()
    started.press_ctrl_c()  # the impatient
    assert started.wait() == 0
    assert "Ctrl-C" not in started.said
    assert started.errors.read_text() == ""
    check_nothing_is_left(started)


def test_a_program_that_ends_ends_the_demo_with_one_line(demo):
    started = demo()
    started.start()
    [web_app] = [
        each
        for each in started.processes()
        if b"web_app" in Path(f"/proc/{each}/cmdline").read_bytes()
    ]
    os.kill(web_app, signal.SIGKILL)
    assert started.wait() == 1
    assert started.errors.read_text() == "Error: the web app ended with status -9\n"
    check_nothing_is_left(started)


def test_the_demo_reads_no_setting_takes_the_next_free_port_and_shows_five_players(
    demo, tmp_path: Path
):
    own = {"IDENTITY_DATA_DIR": str(tmp_path / "own"), "IDENTITY_BASE_URL": "nonsense"}
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        started = demo(port=port, **own, GUNICORN_CMD_ARGS="--nonsense")
        started.start()
    addresses = [started.site, started.web_app]
    assert all(port < int(each.rpartition(":")[2]) < port + 50 for each in addresses)
    assert not (tmp_path / "own").exists()
    profiles = [read_profile(started, user_id) for user_id in range(1, 6)]
    for profile, member in zip(profiles, COMMUNITY, strict=True):
        assert profile["name"] == member.name
        assert (profile["bio"], profile["equippedFlair"]) == (member.bio, member.flair)
        assert profile["playMinutes"] == member.play_minutes > 0
    assert len({read_picture(started, profile) for profile in profiles}) == 5


@pytest.mark.parametrize("host", ["localhost", "0.0.0.0"])
def test_the_game_is_there_at_each_host_that_the_demo_takes(demo, host: str):
    started = demo(host=host)
    started.start()
    assert requests.get(started.play, timeout=ANSWER_TIMEOUT).status_code == 200


@pytest.mark.parametrize("host", ["[::1]", "[::]", "127.0.0.2", "192.0.2.1", "games.example"])
def test_the_demo_takes_no_host_at_which_it_would_show_no_game(host: str):
    with pytest.raises(click.BadParameter, match="needs 127.0.0.1 or localhost"):
        choose_addresses(host, 8000, contextlib.ExitStack())


def test_nobody_else_is_given_a_port_that_the_demo_chose():
    """It uses them seconds later."""
    with contextlib.ExitStack() as running:
        for chosen in choose_addresses("127.0.0.1", 0, running):
            address = "127.0.0.1", urlsplit(chosen).port
            with socket.socket() as another, pytest.raises(OSError, match="in use"):
                another.bind(address)
            socket.create_server(address).close()
    with socket.socket() as another:
        another.bind(address)


def read_profile(demo: Demo, user_id: int) -> dict:
    answer = requests.get(f"{demo.site}/api/users/info?id={user_id}", timeout=ANSWER_TIMEOUT)
    return answer.json()["user"]


def read_picture(demo: Demo, profile: dict) -> bytes:
    address = f"{demo.site}/pfp/small/{profile['id']}-{profile['pfpTimestamp']}.webp"
    return requests.get(address, timeout=ANSWER_TIMEOUT).content


@pytest.mark.parametrize("member", COMMUNITY, ids=lambda member: member.name)
def test_the_site_would_take_what_the_demo_gives_its_players(member):
    email = f"{member.name}@example.org"
    assert storage.check_password(PASSWORD, member.name, email) is None
    assert storage.check_flair(member.flair) is None
    rows = member.face.split()
    assert [len(row) for row in rows] == [8] * 16
