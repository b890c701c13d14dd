"""What `identity-server serve` does where temporary files, too, are on a disk that is full."""

import contextlib
import signal
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
import requests
from customized import CHEAP_HASH, CHEAP_PASSWORDS, customize
from live import running
from live.form_browser import FormBrowser
from live.running import ANSWER_TIMEOUT, RunningServer
from needs import MOUNTS
from operations import small_disk
from test_full_disk import FILL, make_room
from test_read_only_disk import remount
from waiting import wait_until

from storage.pictures import generate_picture

pytestmark = [pytest.mark.faults, MOUNTS]

# A command in mounts of its own, in which nothing but the disk is written to. (/tmp itself cannot
# be covered: the code, or Python, may be in it.)
NOWHERE_ELSE = """
for folder in /tmp /var/tmp "$PWD"; do
    mount --rbind "$folder" "$folder" && mount -o remount,bind,ro "$folder" || exit
done
exec "$@"
"""
PICTURE = generate_picture(7)["large"]


@contextlib.contextmanager
def installed(folder: Path) -> Iterator[tuple[RunningServer, Path]]:
    """A server that is not started yet, and the disk with its data and all temporary files."""
    disk = folder / "disk"
    disk.mkdir()
    with small_disk(disk, files=200), pytest.MonkeyPatch.context() as patch:
        patch.setenv("NO_PROXY", "127.0.0.1")
        patch.setenv("TMPDIR", str(disk))
        customize(patch, folder, CHEAP_PASSWORDS)
        confined = ["unshare", "--mount", "sh", "-c", NOWHERE_ELSE, "sh", *running.COMMAND]
        patch.setattr(running, "COMMAND", confined)
        server = RunningServer(folder)
        server.data_dir, server.picture_dir = disk / "data", disk / "pictures"
        server.open_storage().add_user("ada", "ada@example.org", CHEAP_HASH)
        yield server, disk
        if server.process:
            server.stop()


@pytest.fixture(scope="module")
def one_for_all(tmp_path_factory) -> Iterator[tuple[RunningServer, Path]]:
    """A server that runs, and its disk."""
    with installed(tmp_path_factory.mktemp("served")) as (server, disk):
        server.start()
        yield server, disk


@pytest.fixture
def served(one_for_all) -> Iterator[tuple[RunningServer, Path]]:
    """The same, and the disk has room again when the test ends."""
    server, disk = one_for_all
    yield server, disk
    make_room(disk)


def name_of_ada(server: RunningServer) -> str:
    answer = requests.get(f"{server.address}/api/users/info?id=1", timeout=ANSWER_TIMEOUT)
    return answer.json()["user"]["name"]


def reload(server: RunningServer) -> None:
    """Return when the old workers are gone and the new ones are there."""
    old = set(server.workers())
    server.process.send_signal(signal.SIGHUP)

    def are_new() -> bool:
        workers = server.workers()
        return len(workers) == 2 and old.isdisjoint(workers)

    wait_until(are_new, server.process, server.error_log.read_text)


@pytest.mark.parametrize("full", FILL)
def test_the_server_starts_and_reloads_on_a_full_disk(tmp_path, full):
    with installed(tmp_path) as (server, disk):
        FILL[full](disk)
        server.start()
        assert name_of_ada(server) == "ada"
        reload(server)
        assert name_of_ada(server) == "ada"


@pytest.mark.parametrize("full", FILL)
def test_the_server_reloads_after_the_disk_filled_up(served, full):
    server, disk = served
    FILL[full](disk)
    reload(server)
    assert name_of_ada(server) == "ada"


def answers_to_pictures(server: RunningServer, refuse: Callable[[Path], None], disk: Path) -> list:
    """The statuses for a small picture and a large one, once the disk refuses them."""
    ada = FormBrowser(server.address)
    ada.sign_in("ada")
    refuse(disk)
    address = f"{server.address}/account/picture"
    answers = [
        ada.session.post(address, files={"picture": picture}, timeout=ANSWER_TIMEOUT)
        for picture in (PICTURE, PICTURE.ljust(600_000, b"\0"))
    ]
    ada.close()
    assert "Traceback" not in server.error_log.read_text()
    return [each.status_code for each in answers]


@pytest.mark.parametrize("full", FILL)
def test_a_large_picture_gets_the_same_error_as_a_small_one(served, full):
    server, disk = served
    assert answers_to_pictures(server, FILL[full], disk) == [507, 507]


def test_a_large_picture_gets_the_same_error_on_a_read_only_disk(tmp_path):
    """By a server of its own: for five seconds a server tells why the disk refused the last one."""
    with installed(tmp_path) as (server, disk):
        server.start()
        assert answers_to_pictures(server, partial(remount, how="ro"), disk) == [503, 503]
