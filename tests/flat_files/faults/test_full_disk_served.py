"""`identity-server serve` with its data and all temporary files on a full disk."""

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

# Run a command in a mount namespace in which only the disk is writable. (/tmp cannot be replaced,
# because the code or Python may be in it.)
CONFINED = """
for folder in /tmp /var/tmp "$PWD"; do
    mount --rbind "$folder" "$folder" && mount -o remount,bind,ro "$folder" || exit
done
exec "$@"
"""
PICTURE = generate_picture(7)["large"]


@contextlib.contextmanager
def installed(folder: Path) -> Iterator[tuple[RunningServer, Path]]:
    """Yield a server that is not started yet, and the disk with its data and temporary files."""
    disk = folder / "disk"
    disk.mkdir()
    with small_disk(disk, files=200), pytest.MonkeyPatch.context() as patch:
        patch.setenv("NO_PROXY", "127.0.0.1")
        patch.setenv("TMPDIR", str(disk))
        customize(patch, folder, CHEAP_PASSWORDS)
        confined = ["unshare", "--mount", "sh", "-c", CONFINED, "sh", *running.COMMAND]
        patch.setattr(running, "COMMAND", confined)
        server = RunningServer(folder)
        server.data_dir, server.picture_dir = disk / "data", disk / "pictures"
        server.open_storage().users.register("ada", "ada@example.org", CHEAP_HASH)
        yield server, disk
        if server.process:
            server.stop()


@pytest.fixture(scope="module")
def module_server(tmp_path_factory) -> Iterator[tuple[RunningServer, Path]]:
    """A running server and its disk, shared by the tests of this module."""
    with installed(tmp_path_factory.mktemp("served")) as (server, disk):
        server.start()
        yield server, disk


@pytest.fixture
def served(module_server) -> Iterator[tuple[RunningServer, Path]]:
    """The shared server and its disk, which is emptied after the test."""
    server, disk = module_server
    yield server, disk
    make_room(disk)


def fetch_name(server: RunningServer) -> str:
    answer = requests.get(f"{server.address}/api/users/info?id=1", timeout=ANSWER_TIMEOUT)
    return answer.json()["user"]["name"]


def reload(server: RunningServer) -> None:
    """Reload the server; return when new workers have replaced the old ones."""
    old = set(server.workers())
    server.process.send_signal(signal.SIGHUP)

    def are_new() -> bool:
        workers = server.workers()
        return len(workers) == 2 and old.isdisjoint(workers)

    wait_until(are_new, server.process, server.error_log.read_text)


@pytest.mark.parametrize("full", FILL)
def test_server_starts_and_reloads_on_a_full_disk(tmp_path, full):
    with installed(tmp_path) as (server, disk):
        FILL[full](disk)
        server.start()
        assert fetch_name(server) == "ada"
        reload(server)
        assert fetch_name(server) == "ada"


def upload_statuses(server: RunningServer, refuse: Callable[[Path], None], disk: Path) -> list:
    """Return the statuses of the upload of a small and a large picture after `refuse(disk)`."""
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
def test_small_and_large_uploads_are_507_on_a_full_disk(served, full):
    server, disk = served
    assert upload_statuses(server, FILL[full], disk) == [507, 507]


def test_small_and_large_uploads_are_503_on_a_read_only_disk(tmp_path):
    """A new server, because a server reports the cause of the last disk error for five seconds."""
    with installed(tmp_path) as (server, disk):
        server.start()
        assert upload_statuses(server, partial(remount, how="ro"), disk) == [503, 503]
