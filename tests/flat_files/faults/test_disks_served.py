"""`identity-server serve` on a disk that is full, with all temporary files, or read-only."""

import contextlib
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests
from disks import MOUNTS, REFUSE, disk_in_memory
from live import running
from live.running import ANSWER_TIMEOUT, RunningServer
from waiting import wait_until

from images.pictures import generate_picture

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
LARGE_PICTURE = PICTURE.ljust(600_000, b"\0")


@contextlib.contextmanager
def confined_server(folder: Path) -> Iterator[tuple[RunningServer, Path]]:
    """Yield a server that is not started yet, and the disk, the only one it can write to."""
    options = "size=1m,nr_inodes=500"
    with disk_in_memory(folder / "disk", options) as disk, pytest.MonkeyPatch.context() as patch:
        patch.setenv("NO_PROXY", "127.0.0.1")
        patch.setenv("TMPDIR", str(disk))
        confined = ["unshare", "--mount", "sh", "-c", CONFINED, "sh", *running.COMMAND]
        patch.setattr(running, "COMMAND", confined)
        server = RunningServer(folder)
        server.data_dir, server.picture_dir = disk / "data", disk / "pictures"
        yield server, disk
        server.stop()


def reload(server: RunningServer) -> None:
    """Reload the server; return when new workers have replaced the old ones."""
    old = set(server.workers())
    server.process.send_signal(signal.SIGHUP)

    def are_new() -> bool:
        workers = server.workers()
        return len(workers) == 2 and old.isdisjoint(workers)

    wait_until(are_new, server.process, server.error_log.read_text)


def look_up(server: RunningServer) -> str:
    answer = requests.get(f"{server.address}/api/users/info?id=1", timeout=ANSWER_TIMEOUT)
    return answer.json()["user"]["name"]


def upload(server: RunningServer, cookie: str, picture: bytes) -> int:
    """Send a picture; return the status."""
    address, cookies = f"{server.address}/account/picture", {"identity_session": cookie}
    files = {"picture": picture}
    return requests.post(address, files=files, cookies=cookies, timeout=ANSWER_TIMEOUT).status_code


@pytest.mark.parametrize("state", REFUSE)
def test_server_starts_and_reloads_on_a_full_disk(tmp_path, state):
    """Or on a read-only one; it refuses uploads, small and large."""
    with confined_server(tmp_path) as (server, disk):
        server.add_user("ada")
        cookie = server.start_session("ada")
        REFUSE[state](disk)
        server.start()
        assert look_up(server) == "ada"
        statuses = {upload(server, cookie, each) for each in (PICTURE, LARGE_PICTURE)}
        assert statuses == {503 if state == "read-only" else 507}
        reload(server)
        assert look_up(server) == "ada"
        assert "Traceback" not in server.error_log.read_text()
