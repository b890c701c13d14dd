"""The command `rotate-key`: its output, its effect and the key file.

test_storage_contract.py has the contract for all backends, faults/ has kills, and
live/test_rotated_keys.py tests that the workers of a running server use the new keys at once.
"""

import threading
from pathlib import Path

import pytest
from click.testing import CliRunner
from waiting import PATIENCE, is_waiting_for_a_lock, wait_until

from commands.printing import describe_audit_line
from identity.accounts import Acts
from identity.actors import COMMAND
from identity_admin import identity_server_command
from storage.errors import StorageFailed
from storage.flat_files import keys as key_files
from storage.flat_files.backend import FlatFiles


@pytest.fixture
def store(flat_folders, unsynced) -> FlatFiles:
    return FlatFiles(*map(str, flat_folders))


@pytest.fixture
def key_file(store, flat_folders) -> Path:
    return flat_folders[0] / "secret_key"


@pytest.fixture
def rotate(store, environment):
    """A function that runs `identity-server rotate-key` and returns its output."""
    environment.setenv("IDENTITY_DATA_DIR", store.layout.data_dir)
    environment.setenv("IDENTITY_PICTURE_DIR", store.layout.picture_dir)

    def rotate(*arguments: str) -> str:
        done = CliRunner().invoke(identity_server_command, ["rotate-key", *arguments])
        assert (done.exit_code, done.stderr) == (0, "")
        return done.stdout

    return rotate


def test_rotate_key_adds_a_key_and_explains_what_stays_valid(rotate, key_file):
    (first,) = key_file.read_text().splitlines()
    printed = rotate()
    assert printed == (
        "A new key signs. What the key before signed goes on until the next rotation.\n"
    )
    kept, second = key_file.read_text().splitlines()
    assert kept == first
    assert first not in printed and second not in printed


def test_rotate_key_drops_old_keys_and_explains_what_ends(rotate, key_file):
    rotate()
    before = key_file.read_text().splitlines()
    printed = rotate("--drop-old")
    assert printed == (
        "A new key signs. Everything signed before has ended: everyone signs in again.\n"
    )
    (key,) = key_file.read_text().splitlines()
    assert key not in before


def test_audit_log_describes_both_rotations(rotate, store):
    rotate()
    rotate("--drop-old")
    first, second = map(describe_audit_line, store.audit.read())
    assert first.endswith("  the command: key rotate")
    assert second.endswith("  the command: key drop-old")


def test_keys_are_not_rotated_if_the_audit_log_cannot_be_saved(store, key_file, faults):
    before = key_file.read_bytes()
    faults.refuse_saves("audit")
    with pytest.raises(StorageFailed):
        Acts(store, COMMAND).rotate_keys(drop_old=True)
    assert key_file.read_bytes() == before


def test_concurrent_rotations_keep_both_keys(store, monkeypatch):
    new_keys = iter(("first", "second"))
    started, resume = threading.Event(), threading.Event()

    def new_key() -> str:
        started.set()
        resume.wait(PATIENCE)
        return next(new_keys)

    monkeypatch.setattr(key_files, "new_key", new_key)
    first, second = (threading.Thread(target=store.keys.rotate, args=(False,)) for _ in range(2))
    first.start()
    started.wait(PATIENCE)
    second.start()
    wait_until(lambda: not second.is_alive() or is_waiting_for_a_lock())
    resume.set()
    first.join()
    second.join()
    assert store.keys.current() == (b"first", b"second")


def test_first_start_after_a_rotation_keeps_the_keys(store):
    store.keys.rotate(drop_old=False)
    keys = store.keys.current()
    store.keys.make()  # as a first start that found no file just before the rotation
    assert store.keys.current() == keys
