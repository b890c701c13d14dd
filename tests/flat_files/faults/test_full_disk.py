"""A disk that is full of bytes or of files, or read-only: the storage, and `serve` on it."""

import contextlib
import random
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests
from child import MARK
from disks import MOUNTS, PAGE, REFUSE, disk_in_memory, fill_bytes, make_usable
from injection import repeatable_calls
from live import running
from live.running import ANSWER_TIMEOUT, RunningServer
from saves import CODE, SAVES, Installation, count_done, prepare, read_facts
from waiting import wait_until

from images.pictures import generate_picture
from model.errors import StorageFailed, StorageFull
from storage.flat_files.advice import check_folders

pytestmark = [pytest.mark.faults, MOUNTS]
__all__ = ["repeatable_calls"]  # a fixture

# Saves that a full disk allows: it can rename, and create empty files if files are free.
# (Deleting a client writes an audit line, which fits into the last page of the log. Deleting a
# player needs a record that keeps the name: nobody may get it before its time.)
NEEDS_NOTHING = {
    "full of bytes": {"use a code", "delete a client"},
    "full of files": {"use a code", "delete a client"},
    "read-only": set(),
}
CODES = (CODE, MARK)


@pytest.fixture
def disk(tmp_path) -> Iterator[Path]:
    with disk_in_memory(tmp_path) as folder:
        yield folder


@pytest.fixture
def installation(disk) -> Installation:
    installation = Installation(disk)
    prepare(installation.open())
    return installation


@pytest.mark.parametrize("state", REFUSE)
def test_full_disk_keeps_the_old_record(state, tmp_path, subtests):
    """Or on a read-only one."""
    for number, (name, save) in enumerate(SAVES.items()):
        with subtests.test(name), disk_in_memory(tmp_path / str(number)) as disk:
            installation = Installation(disk)
            storage = installation.open()
            prepare(storage)
            known, files = read_facts(storage, CODES), installation.files()
            changes, act = save(storage, MARK, random.Random(0))
            REFUSE[state](disk)
            if name in NEEDS_NOTHING[state]:
                act()
            else:
                with pytest.raises(StorageFailed) as refused:
                    act()
                assert isinstance(refused.value, StorageFull) == (state != "read-only")
                assert count_done(read_facts(storage, CODES), known, changes) < len(changes)
                assert installation.files() == files
                make_usable(disk)
                act()
            assert count_done(read_facts(storage, CODES), known, changes) == len(changes)


def test_start_reports_a_read_only_disk_and_how_to_fix_it(disk, installation):
    REFUSE["read-only"](disk)
    found = list(check_folders(*installation.folders))
    places = [each.problem.partition(" cannot write in ")[2] for each in found]
    assert places == list(installation.folders)
    assert all(each.fix.startswith("mount its disk for writing") for each in found)


def test_audit_line_that_fits_only_in_part_is_rolled_back(disk, installation):
    log = installation.data / "audit.log"
    line = log.read_bytes()
    log.write_bytes((line * PAGE)[len(line) * PAGE - PAGE + 20 :])  # 20 bytes less than a page
    storage = installation.open()
    fill_bytes(disk)
    before = log.read_bytes()
    with pytest.raises(StorageFull):
        storage.audit.write("act", "command")
    assert log.read_bytes() == before


# -- `identity-server serve`, with all temporary files on that disk ------------------------------


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
