"""The command `rotate-key`, and racing rotations; the rest is in contract/keys.py."""

import threading

import pytest
from test_command import Installation
from waiting import PATIENCE, is_waiting_for_a_lock, wait_until

from commands.printing import describe_audit_line
from identity.acts.actors import COMMAND, Authority
from identity.oauth.openid import rotate_keys
from model.errors import StorageFailed
from storage.flat_files import keys as key_files


def test_rotate_key_explains_what_stays_valid_and_what_ends(tmp_path):
    installation = Installation(tmp_path)
    [first] = installation.open().keys.current()
    printed = installation.output("rotate-key")
    assert printed == (
        "A new key signs. What the key before signed goes on until the next rotation.\n"
    )
    kept, second = installation.open().keys.current()
    assert kept == first
    printed = installation.output("rotate-key", "--drop-old")
    assert printed == (
        "A new key signs. Everything signed before has ended: everyone signs in again.\n"
    )
    [key] = installation.open().keys.current()
    assert key not in (first, second)
    kept, dropped = map(describe_audit_line, installation.open().audit.read())
    assert kept.endswith("  the command: key rotate")
    assert dropped.endswith("  the command: key drop-old")


def test_keys_are_not_rotated_without_an_audit_line(storage, faults):
    before = storage.keys.current()
    faults.refuse_saves("audit")
    with pytest.raises(StorageFailed):
        rotate_keys(Authority(storage, COMMAND), drop_old=True)
    assert storage.keys.current() == before


def test_concurrent_rotations_keep_both_keys(storage, monkeypatch):
    new_keys = iter(("first", "second"))
    started, resume = threading.Event(), threading.Event()

    def new_key() -> str:
        started.set()
        resume.wait(PATIENCE)
        return next(new_keys)

    monkeypatch.setattr(key_files, "new_key", new_key)
    first, second = (threading.Thread(target=storage.keys.rotate, args=(False,)) for _ in range(2))
    first.start()
    started.wait(PATIENCE)
    second.start()
    wait_until(lambda: not second.is_alive() or is_waiting_for_a_lock())
    resume.set()
    first.join()
    second.join()
    assert storage.keys.current() == (b"first", b"second")


def test_first_start_after_a_rotation_keeps_the_keys(storage):
    storage.keys.rotate(drop_old=False)
    keys = storage.keys.current()
    storage.keys.make()  # as a first start that found no file just before the rotation
    assert storage.keys.current() == keys
