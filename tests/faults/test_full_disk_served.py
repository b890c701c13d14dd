"""What `identity-server serve` does where temporary files, too, are on a disk that is full."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests
from live import running
from live.person import Person
from live.running import ANSWER_TIMEOUT, RunningServer
from operations import small_disk
from test_full_disk import FILL
from test_read_only_disk import remount
from waiting import wait_until

from storage.pictures import generate_picture

pytestmark = [
    pytest.mark.faults,
    pytest.mark.skipif(os.geteuid() != 0, reason="mounting a disk needs root"),
]

# A command in mounts of its own, in which nothing but the disk is written to. (/tmp itself cannot
# be covered: the code, or Python, may be in it.)
NOWHERE_ELSE = """
for folder in /tmp /var/tmp "$PWD"; do
    mount --rbind "$folder" "$folder" && mount -o remount,bind,ro "$folder" || exit
done
exec "$@"
"""
PICTURE = generate_picture(7)["large"]
REFUSALS = {**FILL, "read-only": lambda disk: remount(disk, "ro")}


@pytest.fixture
def disk(tmp_path) -> Iterator[Path]:
    folder = tmp_path / "disk"
    folder.mkdir()
    with small_disk(folder, files=200):
        yield folder


@pytest.fixture
def server(tmp_path, disk, monkeypatch) -> Iterator[RunningServer]:
    """A server that is not started yet, with its data and all temporary files on the disk."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("TMPDIR", str(disk))
    confined = ["unshare", "--mount", "sh", "-c", NOWHERE_ELSE, "sh", *running.COMMAND]
    monkeypatch.setattr(running, "COMMAND", confined)
    server = RunningServer(tmp_path)
    server.data_dir, server.picture_dir = disk / "data", disk / "pictures"
    server.add_user("ada")
    yield server
    if server.process:
        server.stop()


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
def test_it_starts_on_a_full_disk_and_reloads(server, disk, full):
    FILL[full](disk)
    server.start()
    assert name_of_ada(server) == "ada"
    reload(server)
    assert name_of_ada(server) == "ada"


@pytest.mark.parametrize("full", FILL)
def test_it_reloads_on_a_disk_that_filled_up(server, disk, full):
    server.start()
    FILL[full](disk)
    reload(server)
    assert name_of_ada(server) == "ada"


@pytest.mark.parametrize("refused", REFUSALS)
def test_a_large_picture_is_told_what_a_small_one_is(server, disk, refused):
    server.start()
    ada = Person(server.address)
    ada.sign_in("ada")
    REFUSALS[refused](disk)
    address = f"{server.address}/account/picture"
    answers = [
        ada.browser.post(address, files={"picture": picture}, timeout=ANSWER_TIMEOUT)
        for picture in (PICTURE, PICTURE.ljust(600_000, b"\0"))
    ]
    ada.close()
    assert {each.status_code for each in answers} == {503 if refused == "read-only" else 507}
    assert "Traceback" not in server.error_log.read_text()
