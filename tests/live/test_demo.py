"""`identity-server demo`, from its start to its end."""

import contextlib
import os
import re
import signal
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import pytest
import requests
from click.testing import CliRunner
from waiting import wait_until

from identity_admin import identity_server_command

from .demo import EXAMPLE, Demo
from .running import ANSWER_TIMEOUT

COMMUNITY, GAMES, PASSWORD = EXAMPLE["COMMUNITY"], EXAMPLE["GAMES"], EXAMPLE["PASSWORD"]
choose_addresses = EXAMPLE["choose_addresses"]

pytestmark = [pytest.mark.live, pytest.mark.load]


@pytest.fixture
def demo(tmp_path: Path) -> Iterator[Callable[..., Demo]]:
    """Start a demo, killed after the test."""
    started = []

    def demo(**options) -> Demo:
        started.append(Demo(tmp_path, **options))
        return started[-1]

    yield demo
    for each in started:
        each.kill()


def check_end(demo: Demo, status: int = 0, errors: str = "") -> None:
    """Check that a demo ends with this status and these errors, and that nothing of it is left."""
    assert (demo.wait(), demo.errors.read_text()) == (status, errors)
    assert demo.processes() == []
    assert list(demo.temporary.iterdir()) == []


@pytest.mark.parametrize(
    "end",
    [
        signal.SIGTERM,
        *(pytest.param(n, marks=pytest.mark.slow) for n in (signal.SIGINT, signal.SIGHUP)),
    ],
    ids=str,
)
def test_signal_stops_all_processes_and_removes_all_files(demo, end: signal.Signals):
    started = demo(host="localhost")
    started.start()
    # The demo, gunicorn and its two workers, two apps, a chat, the tiny games, the mailbox.
    wait_until(lambda: len(started.processes()) == 9)
    assert len(list(started.temporary.iterdir())) == 1
    # An open connection delays nothing.
    with requests.Session() as browser:
        assert browser.get(started.play, timeout=ANSWER_TIMEOUT).status_code == 200
        if end == signal.SIGINT:
            started.press_ctrl_c()
        else:
            os.kill(started.process.pid, end)
        check_end(started)


@pytest.mark.parametrize("moment", ["Twelve players move into", "Seven games and a web app join"])
def test_ctrl_c_during_setup_leaves_nothing(demo, moment: str):
    started = demo()
    started.read_until(moment)
    started.press_ctrl_c()
    started.press_ctrl_c()  # an impatient user
    check_end(started)
    assert "Ctrl-C" not in started.output


def test_end_of_an_app_stops_the_demo_with_one_line(demo):
    started = demo()
    started.start()
    [web_app] = [
        each
        for each in started.processes()
        if b"web_app" in Path(f"/proc/{each}/cmdline").read_bytes()
    ]
    os.kill(web_app, signal.SIGKILL)
    check_end(started, 1, "Error: the web app ended with status -9\n")


def test_demo_ignores_settings_and_takes_free_ports(demo, tmp_path: Path):
    own = {"IDENTITY_DATA_DIR": str(tmp_path / "own"), "IDENTITY_BASE_URL": "nonsense"}
    with socket.create_server(("127.0.0.1", 0)) as taken, socket.socket(socket.AF_INET6) as other:
        port = taken.getsockname()[1]
        first_free = port + 1
        with contextlib.suppress(OSError):  # this machine has no IPv6
            other.bind(("::1", first_free))
            first_free += 1
        started = demo(host="0.0.0.0", port=port, **own, GUNICORN_CMD_ARGS="--nonsense")
        started.start()
    assert requests.get(started.play, timeout=ANSWER_TIMEOUT).status_code == 200
    addresses = [started.site, started.web_app]
    assert all(first_free <= int(each.rpartition(":")[2]) < port + 50 for each in addresses)
    assert not (tmp_path / "own").exists()
    pictures = set()
    for user_id, member in enumerate(COMMUNITY, 1):
        address = f"{started.site}/api/users/info?id={user_id}"
        profile = requests.get(address, timeout=ANSWER_TIMEOUT).json()["user"]
        assert profile["name"] == member.name
        assert (profile["bio"], profile["equippedFlair"]) == (member.bio, member.flair)
        assert profile["playMinutes"] == member.play_minutes > 0
        address = f"{started.site}/pfp/small/{user_id}-{profile['pfpTimestamp']}.webp"
        pictures.add(requests.get(address, timeout=ANSWER_TIMEOUT).content)
    assert len(pictures) == 12
    check_games(started)
    check_administrator(started)


def check_games(demo: Demo) -> None:
    """Check that each game answers, and which are listed and played on the home page."""
    home = requests.get(demo.site, timeout=ANSWER_TIMEOUT).text
    listed = {game.id for game in GAMES if game.name != "Mole Cave"}
    assert set(re.findall(r'href="/play/([^"/]+)"', home)) == listed and len(listed) == 6
    assert len(re.findall(r"\b1 playing", home)) == 2
    origins = set()
    for game in GAMES:
        page = requests.get(f"{demo.site}/play/{game.id}", timeout=ANSWER_TIMEOUT).text
        address = re.search(r'<iframe[^>]* src="([^"]+)"', page)[1]
        origins.add(address)
        content = requests.get(address, timeout=ANSWER_TIMEOUT).text
        assert game.id in content
        for script in re.findall(r' src="(/[^"]+)"', content):
            assert requests.get(f"{address}{script[1:]}", timeout=ANSWER_TIMEOUT).ok
    assert len(origins) == len(GAMES)


def check_administrator(demo: Demo) -> None:
    """Check what waits for ada, and that the letter about her sign-in arrives."""
    with requests.Session() as browser:
        form = {"name": "ada", "password": PASSWORD}
        browser.post(f"{demo.site}/sign-in", form, timeout=ANSWER_TIMEOUT).raise_for_status()
        waiting = browser.get(f"{demo.site}/admin", timeout=ANSWER_TIMEOUT).text
        log = browser.get(f"{demo.site}/admin/log", timeout=ANSWER_TIMEOUT).text
    for words in ("kofi</bdi>: Cheating", "Mole Cave</bdi> waits to be listed", "hugo</bdi> ends"):
        assert words in re.sub(r"\s+", " ", waiting), words
    assert len(re.findall("<h3", log)) > 20  # days
    wait_until(lambda: "New sign-in" in requests.get(demo.letters, timeout=ANSWER_TIMEOUT).text)


def test_hosts_other_than_loopback_are_refused():
    for host in ("[::1]", "[::]", "127.0.0.2", "192.0.2.1", "games.example"):
        with pytest.raises(click.BadParameter, match="needs 127.0.0.1 or localhost"):
            choose_addresses(host, 8000, contextlib.ExitStack())


@pytest.mark.postgresql
def test_demo_leaves_its_community_in_a_database(demo, databases):
    with databases.lend() as backend:
        url = backend.setting("demo")
        started = demo(arguments=["--storage", url])
        started.start()
        assert requests.get(f"{started.site}/healthz", timeout=ANSWER_TIMEOUT).status_code == 200
        started.press_ctrl_c()
        check_end(started)
        assert "stays in the database" in started.output
        store = backend.open("demo", "")
        assert [store.users.read(each).name for each in store.users.ids()] == [
            each.name for each in COMMUNITY
        ]
        again = CliRunner().invoke(identity_server_command, ["demo", "--storage", url])
        assert again.exit_code == 1
        assert "the database has players or clients" in again.output
