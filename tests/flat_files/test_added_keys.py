"""Keys that are new in a version: the first start of that version adds them to the records."""

import os
import shutil
import signal
import subprocess
import sys
import threading

import pytest

from model.kind import hour_of
from model.records import now_ms
from storage import open_storage

KILLED = """
import os, signal, sys
from storage.flat_files.entries import Entries
put, left = Entries.put, int(sys.argv[3])
def put_or_die(self, *args, **options):
    global left
    left -= 1
    if left < 0:
        os.kill(os.getpid(), signal.SIGKILL)
    put(self, *args, **options)
Entries.put = put_or_die
from storage import open_storage
open_storage(sys.argv[1], sys.argv[2])
"""


@pytest.fixture
def older(storage, data):
    """The data folder of an installation from before some of the keys."""
    now = now_ms()
    for name in ("Ada", "Bob", "Cleo"):
        user = storage.users.register(name, "", "")
        with storage.users.edit(user.id) as user:
            user.last_heartbeat = now - 1000
    storage.invites.issue(7)
    storage.close()
    for folder in ("index/users/played", "index/users/joined", "secrets"):
        shutil.rmtree(data / folder)
    (data / "used_invites").mkdir()
    return data


def check_whole(data, pictures) -> None:
    store = open_storage(str(data), str(pictures))
    assert list(store.verify()) == []
    now = now_ms()
    assert store.users.count_between("played", hour_of(now - 3_600_000), hour_of(now)) == 3
    assert sorted(each for each in os.listdir(data) if each in ("added_keys", "used_invites")) == []


def test_start_adds_new_keys_to_the_records_that_are_there(older, pictures):
    check_whole(older, pictures)


def test_racing_starts_see_all_keys(older, pictures):
    """No worker answers before the one that adds them is done."""
    begin, counted, now = threading.Barrier(4), [], now_ms()

    def start() -> None:
        begin.wait()
        users = open_storage(str(older), str(pictures)).users
        counted.append(users.count_between("played", hour_of(now - 3_600_000), hour_of(now)))

    workers = [threading.Thread(target=start) for _ in range(4)]
    for each in workers:
        each.start()
    for each in workers:
        each.join()
    assert counted == [3] * 4
    check_whole(older, pictures)


@pytest.mark.live
def test_start_that_was_killed_is_repeated(older, pictures, subtests):
    for entries in range(7):
        with subtests.test(entries=entries):
            for folder in ("index/users/played", "index/users/joined", "secrets"):
                shutil.rmtree(older / folder, ignore_errors=True)
            args = [sys.executable, "-c", KILLED, str(older), str(pictures), str(entries)]
            killed = subprocess.run(args, check=False)
            assert killed.returncode == -signal.SIGKILL
            check_whole(older, pictures)
